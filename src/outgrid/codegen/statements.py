"""Statements that compute one vector of cells in each of several planes, for any loop."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

from outgrid.codegen.names import Names
from outgrid.codegen.walk import walk
from outgrid.plan.layout import GUARD_BYTES, ITEM_BYTES
from outgrid.stencil.expression import (
    Access,
    Constant,
    Expression,
    Operation,
    Profile,
    is_condition,
    nodes,
    profiles,
    substitute_all,
)
from outgrid.stencil.model import Assignment

LARGEST_VECTOR_BYTES = 64  # of any processor

Work = list[tuple[int, Assignment]]
"""What is assigned, plane by plane."""
Inputs = dict[tuple[str, int, int], str]
"""Names of the planes read, by (field, version, plane offset)."""


def farthest_read(dtype: str) -> int:
    """How many cells along x a cell may read beyond a row: as many as lie in the window's guard.

    Two vectors of it are left for rounding such a way up to whole vectors, and for the last one.
    """
    return (GUARD_BYTES - 2 * LARGEST_VECTOR_BYTES) // ITEM_BYTES[dtype]


class Statements:
    """What is read, and what is computed from it."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def expressions(self, stage: int, planes: int) -> Work:
        """The assignments of ``planes`` neighbouring planes, offsets counted from the first.

        Levels become versions: 0 is what this step makes, -1 what the one before has made.
        """
        return self.moved(self.names.stages[stage], stage, planes)

    def moved(self, assignments: tuple[Assignment, ...], stage: int, planes: int) -> Work:
        work: Work = []
        given = [assignment.expression for assignment in assignments]
        leaves = [node for node in nodes(*given) if isinstance(node, Access | Profile)]
        for plane in range(planes):
            moved: dict[Expression, Expression] = {}
            for node in leaves:
                if isinstance(node, Access):
                    version = self.names.stencil.version(stage, node)
                    offset = (node.offset[0] + plane, *node.offset[1:])
                    moved[node] = Access(node.field, version, offset)
                elif node.axis == 0:
                    moved[node] = Profile(node.name, 0, plane)
            made = zip(assignments, substitute_all(given, moved), strict=True)
            work += [(plane, Assignment(source.field, expression)) for source, expression in made]
        return work

    def inputs(self, work: Work, stage: int, planes: int) -> Inputs:
        """Planes read, keyed by (field, version, plane offset); the kept value is read as well."""
        inputs: Inputs = {}
        keys = [
            (node.field, node.level, node.offset[0])
            for node in nodes(*roots(work))
            if isinstance(node, Access)
        ]
        updated = self.names.written(stage)
        lasting = [field.name for field in updated if not field.temporary]
        keys += [(name, -1, plane) for plane in range(planes) for name in lasting]
        for field, version, plane in keys:
            sign = "m" if plane < 0 else "p"
            age = {0: "new_", -1: "", -2: "old_"}[version]
            name = f"{self.names.fields[field]}_{age}{sign}{abs(plane)}"
            inputs.setdefault((field, version, plane), name)
        return inputs

    def fetched(self, work: Work) -> Iterator[Access]:
        """What the first plane reads of steps before."""
        for node in nodes(*roots((plane, made) for plane, made in work if plane == 0)):
            if isinstance(node, Access) and node.level < 0:
                yield node

    def _used_uniforms(self, work: Work) -> list[Expression]:
        """Uniform values that a cell needs, not those that only lead to them."""
        used: dict[Expression, None] = {}
        for _, assignment in work:
            for node in nodes(assignment.expression):
                if node in self.names.uniform:
                    continue
                if isinstance(node, Operation):
                    used |= {o: None for o in node.operands if o in self.names.uniform}
            if assignment.expression in self.names.uniform:
                used[assignment.expression] = None
        return list(used)

    def uniforms(self, work: Work) -> Iterator[str]:
        """Vectors of the uniform values that a cell needs."""
        for node in self._used_uniforms(work):
            name = self.names.uniform[node]
            yield f"  const {self.vector(node)} {name}v = all(u.{name});"

    def kept(self, field: str, inputs: Inputs, plane: int, place: str) -> str:
        """What cells of a field hold that a row has outside the interior: of a temporary 0."""
        if self.names.stencil.field(field).temporary:
            return "V{}"
        return f"load({inputs[field, -1, plane]} + {self.names.at(field, place)})"

    def planes(self, inputs: Inputs) -> Iterator[str]:
        """The planes that are read."""
        for (field, version, plane), name in inputs.items():
            place = f"now + ({version}), {self.names.plane(field, plane)}"
            address = f"{self.names.fields[field]}_plane(s, {place})"
            yield f"  const {self.names.stored(field)}* const {name} = {address};"

    def vector(self, node: Expression) -> str:
        """The type of the vector of a value."""
        return "M" if is_condition(node) else "V"

    def compute(
        self,
        expression: Expression,
        values: dict[Expression, str],
        load: Callable[[Access], str],
        prefix: str = "v",
    ) -> Iterator[str]:
        """Statements for what ``values`` does not name yet; equal values are computed once.

        Names of values begin with ``prefix``.
        """

        def leaf(node: Expression) -> str | None:
            if node in self.names.uniform:
                return f"{self.names.uniform[node]}v"
            if isinstance(node, Constant):
                return f"all({self.names.scalar(node)})"
            return self.profile(node) if isinstance(node, Profile) else None

        def read(access: Access) -> Generator[str, None, str]:
            yield from ()
            return load(access)

        yield from walk(missing(expression, values), values, leaf, read, self.vector, prefix)

    def load(self, inputs: Inputs, access: Access, index: str = "i", cut: bool = False) -> str:
        """The vector that is read; ``cut`` out of those beside it where that is faster."""
        plane, row, column = self.names.offset(access)
        at = f"{inputs[access.field, access.level, plane]} + {self.names.at(access.field, index)}"
        if self.names.folded is not None:
            return self._load_folded(inputs, access) or f"load_at<{row}, {column}>({at}, stride)"
        place = f"{at}{self.row(access)}"
        if column and cut:
            return f"load_beside<{column}>({place})"
        beside = f" {'+' if column > 0 else '-'} {abs(column)}" if column else ""
        return f"load({place}{beside})"

    def _load_folded(self, inputs: Inputs, access: Access) -> str:
        """A load of what may be an image beyond faces of y or x; empty where it cannot be one."""
        plane, row, column = self.names.offset(access)
        images = {
            axis: self.names.image(access.field, axis) if offset else None
            for axis, offset in (("y", row), ("x", column))
        }
        if not any(images.values()):
            return ""
        found = [
            f"[&](int64_t at) {{ return {f'{name}(at, s.{extent})' if name else 'at'}; }}"
            for name, extent in ((images["y"], "rows"), (images["x"], "columns"))
        ]
        along = "true" if images["x"] else "false"
        given = f"edge, {inputs[access.field, access.level, plane]}, stride, here, x"
        ends = "kLowY, s.rows - kHighY, s.rows, first, last"
        return f"load_image<{row}, {column}, {along}>({given}, {ends}, {', '.join(found)})"

    def load_beyond(self, inputs: Inputs, access: Access) -> str:
        """The same of a vector at an end of a row, where what is read may be an image."""
        image = self.names.image(access.field, "x")
        plane, _, column = self.names.offset(access)
        if image is None or not column:
            return self.load(inputs, access)
        row = f"{inputs[access.field, access.level, plane]} + (i - x){self.row(access)}"
        sign = self.names.sign(access.field, "x")
        turned = f"{sign}(at, s.columns) * " if sign else ""
        found = f"{turned}{self.names.real}(row[{image}(at, s.columns)])"
        looked = f"[&](const auto* row, int64_t at) {{ return {found}; }}"
        return f"load_beyond<{column}>({row}, x, first, last, {looked})"

    def row(self, access: Access) -> str:
        """The way from a row to the one that an access reads."""
        row = self.names.offset(access)[1]
        if row and self.names.image(access.field, "y") and self.names.stencil.ndim == 3:
            return f" + {self.names.fields[access.field]}_row_{'m' if row < 0 else 'p'}{abs(row)}"
        stride = self.names.stride(access.field)
        return f" {'+' if row > 0 else '-'} {abs(row)} * {stride}" if row else ""

    def _row_names(self, work: Work) -> dict[tuple[str, int], str]:
        """Names of the distances to rows that may lie beyond a face, by field and offset."""
        names: dict[tuple[str, int], str] = {}
        for node in nodes(*roots(work)):
            if isinstance(node, Access) and self.names.stencil.ndim == 3 and node.offset[1]:
                row = node.offset[1]
                if self.names.image(node.field, "y") and self.names.folded is None:
                    sign = "m" if row < 0 else "p"
                    name = f"{self.names.fields[node.field]}_row_{sign}{abs(row)}"
                    names[node.field, row] = name
        return names

    def _used_profiles(self, work: Work) -> tuple[Profile, ...]:
        return profiles(*roots(work))

    def profile(self, profile: Profile, vector: str = "") -> str:
        """The value of a profile for the vector at x, or another one of a block."""
        name = f"g{self.names.profiles.index(profile.name)}"
        if profile.axis == self.names.stencil.ndim - 1:
            return f"{'load' if vector else 'along_row'}({name} + x{vector})"
        return f"{name}_{profile.offset}"

    def profiles(self, work: Work) -> Iterator[str]:
        used = self._used_profiles(work)
        for name in dict.fromkeys(profile.name for profile in used):
            number = self.names.profiles.index(name)
            yield f"  const {self.names.real}* const g{number} = s.profiles[{number}];"
        for profile in used:
            if profile.axis < self.names.stencil.ndim - 1:
                name = self.profile(profile)
                value = f"g{self.names.profiles.index(profile.name)}[z + {profile.offset}]"
                yield f"  V {name} = {f'all({value})' if profile.axis == 0 else 'V{}'};"

    def along_rows(self, work: Work) -> dict[Profile, str]:
        """Names of the vectors of what differs along rows alone."""
        names, last = self.names.profiles, self.names.stencil.ndim - 1
        used = (profile for profile in self._used_profiles(work) if profile.axis == last)
        return {profile: f"g{names.index(profile.name)}_here" for profile in used}

    def row_offsets(self, work: Work) -> Iterator[str]:
        for name in self._row_names(work).values():
            yield f"  int64_t {name} = 0;"

    def profile_settings(self, work: Work) -> Iterator[str]:
        for profile in self._used_profiles(work):
            if 0 < profile.axis < self.names.stencil.ndim - 1:
                pointer = f"g{self.names.profiles.index(profile.name)}"
                yield f"    {self.profile(profile)} = along_column({pointer} + y);"

    def narrow(self, work: Work) -> bool:
        """Whether it reads or makes fields whose rows may be kept in parts."""
        read = (node.field for node in nodes(*roots(work)) if isinstance(node, Access))
        return not self.names.narrow.isdisjoint((*read, *(made.field for _, made in work)))

    def row_settings(self, work: Work) -> Iterator[str]:
        yield from self.profile_settings(work)
        if self.narrow(work):
            yield "    aside = y * (narrow - stride);"
        if self.names.ragged:
            yield "    inner = rows_within(y, kLowY, s.rows - kHighY);"
        if self.names.imaged:
            yield "    here = y;"
        for (field, row), name in self._row_names(work).items():
            image = self.names.image(field, "y")
            yield f"    {name} = ({image}(y + ({row}), s.rows) - y) * stride;"


def roots(work: Iterable[tuple[int, Assignment]]) -> list[Expression]:
    """What is assigned, plane by plane."""
    return [assignment.expression for _, assignment in work]


def missing(expression: Expression, known: Mapping[Expression, str]) -> tuple[Expression, ...]:
    """Nodes that are not known, operands first; nothing below a known node is looked at.

    Of two operands the one that needs more registers comes first, so that few values wait (Sethi
    and Ullman, doi:10.1145/321607.321620): compilers keep about the order that they are given.
    """
    needs = _needs(expression, known)
    ordered: dict[Expression, None] = {}
    pending: list[tuple[Expression, bool]] = [(expression, False)]
    while pending:
        node, operands_done = pending.pop()
        if node in known or node in ordered:
            continue
        if operands_done or not isinstance(node, Operation):
            ordered[node] = None
        else:
            pending.append((node, True))
            first = sorted(node.operands, key=lambda operand: -needs[operand])
            pending += [(operand, False) for operand in reversed(first)]
    return tuple(ordered)


def _needs(expression: Expression, known: Mapping[Expression, str]) -> dict[Expression, int]:
    """Registers that the value of each node takes to compute, were nothing computed before."""
    needs: dict[Expression, int] = {}
    pending: list[tuple[Expression, bool]] = [(expression, False)]
    while pending:
        node, operands_done = pending.pop()
        if node in needs:
            continue
        if node in known or isinstance(node, Constant):
            needs[node] = 0
        elif not isinstance(node, Operation):
            needs[node] = 1
        elif operands_done:
            largest = sorted((needs[operand] for operand in node.operands), reverse=True)
            needs[node] = max(1, *(need + kept for kept, need in enumerate(largest)))
        else:
            pending.append((node, True))
            pending += [(operand, False) for operand in node.operands]
    return needs
