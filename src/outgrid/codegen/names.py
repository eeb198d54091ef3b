"""What a kernel calls things: planes of rings, parameters, images of what lies beyond a face."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from outgrid.codegen.spelling import CELLS, ELEMENTARY, SPELLING
from outgrid.errors import DefinitionError
from outgrid.plan.lifetime import ring_count
from outgrid.stencil.boundary import EVEN, STORED, Edges
from outgrid.stencil.contract import contract
from outgrid.stencil.expression import (
    STEP,
    Access,
    Constant,
    Expression,
    Operation,
    Parameter,
    is_condition,
    is_uniform,
    nodes,
)
from outgrid.stencil.model import Assignment, Field, Stencil
from outgrid.stencil.symbol import AXES


@dataclass(frozen=True, slots=True)
class RingSlot:
    """Where a field's ring stands in the kernel's list of rings."""

    field: str
    index: int


def ring_order(stencil: Stencil) -> tuple[RingSlot, ...]:
    """Order of the rings in the kernel's argument."""
    return tuple(
        RingSlot(field.name, index)
        for field in stencil.fields
        for index in range(ring_count(field, stencil))
    )


class Names:
    """Names and pieces of one kernel, for any processor."""

    def __init__(
        self, stencil: Stencil, dtype: str, edges: Edges, apart: Mapping[str, str]
    ) -> None:
        self.stencil, self.dtype, self.edges, self.apart = stencil, dtype, edges, apart
        self.real = CELLS[dtype]
        self.stages = tuple(
            tuple(Assignment(a.field, contract(a.expression)) for a in stage.assignments)
            for stage in stencil.stages
        )
        self.reduced = tuple(
            tuple(Assignment(each.name, contract(each.expression)) for each in stage.reductions)
            for stage in stencil.stages
        )
        self.rings = ring_order(stencil)
        self.names = {field.name: f"f{i}" for i, field in enumerate(stencil.fields)}
        self.profiles = tuple(profile.name for profile in stencil.profiles)
        self.radius = stencil.radius
        self.uniform = self._uniform_nodes()
        self.elementary = any(
            isinstance(node, Operation) and node.name in ELEMENTARY for node in self._nodes()
        )
        # Images of columns, and whatever turns its sign, are looked up vector by vector.
        self.edged = any(self.image(field.name, "x") for field in stencil.fields) or any(
            any(edges.odd(axis)) for axis in range(stencil.ndim)
        )

    def layers(self) -> str:
        """Cells of the fixed layer at each face."""
        low, high = zip(*self.edges.layers, strict=True)
        if self.stencil.ndim == 2:
            low, high = (low[0], 0, low[1]), (high[0], 0, high[1])
        names = ("LowZ", "LowY", "LowX", "HighZ", "HighY", "HighX")
        pairs = zip(names, (*low, *high), strict=True)
        return f"static constexpr int64_t {', '.join(f'k{name} = {n}' for name, n in pairs)};"

    def stored(self, field: str) -> str:
        """The type of a cell of a field as it is kept."""
        return CELLS[self.apart.get(field, self.dtype)]

    def by_field(self) -> str:
        """What a field is, by its number: the stage that updates it, and the size of its cells."""
        written = [self.stencil.writer(field.name) for field in self.stencil.fields]
        tables = {
            "writer": ["-1" if stage is None else str(stage) for stage in written],
            "cell_bytes": [f"sizeof({self.stored(field.name)})" for field in self.stencil.fields],
        }
        lines: list[str] = []
        for name, values in tables.items():
            lines.append(f"OG_INLINE int {name}(int64_t field) {{")
            lines.append(f"  constexpr int found[] = {{{', '.join(values)}}};")
            lines.append("  return found[field];\n}")
        lines.append(
            "OG_INLINE void* plane_of(const Slab& s, int64_t field, int64_t level, int64_t z) {"
        )
        for number, field in enumerate(self.stencil.fields):
            if field.evolving:
                plane = f"{self.names[field.name]}_plane(s, level, z)"
                lines.append(f"  if (field == {number}) return {plane};")
        return "\n".join([*lines, "  return nullptr;", "}", ""])

    def _uniform_nodes(self) -> dict[Expression, str]:
        """Names of the parameters and of what is computed from them alone, once per call."""
        found: dict[Expression, str] = {}
        for node in self._nodes():
            if node not in found and not isinstance(node, Constant) and is_uniform(node):
                found[node] = f"p{len(found)}"
        return found

    def _nodes(self) -> Iterator[Expression]:
        """All that stages compute and reduce."""
        for stage in (*self.stages, *self.reduced):
            for assignment in stage:
                yield from nodes(assignment.expression)

    def uniform_struct(self) -> str:
        """Parameters, and what follows from them alone, in the precision of the fields."""
        lines = ["struct Uniform {"]
        lines += [f"  {self.type(node)} {name};" for node, name in self.uniform.items()]
        lines += ["  OG_INLINE Uniform of(const double* given) {", "    (void)given;"]
        for node, name in self.uniform.items():
            value = ""
            if isinstance(node, Parameter):
                number = (*self.stencil.parameters, STEP.name).index(node.name)
                value = f"{self.real}(given[{number}])"
            elif isinstance(node, Operation):
                operands = [self.uniform.get(o) or self.scalar(o) for o in node.operands]
                value = SPELLING[node.name].format(*operands)
            lines.append(f"    const {self.type(node)} {name} = {value};")
        made = ", ".join(self.uniform.values())
        return "\n".join([*lines, f"    return {{{made}}};", "  }", "};", ""])

    def type(self, node: Expression) -> str:
        return "bool" if is_condition(node) else self.real

    def scalar(self, node: Expression) -> str:
        if not isinstance(node, Constant):
            raise DefinitionError(f"{node!r} is not a constant")
        return f"{self.real}({node.value.hex()})"

    def pointers(self) -> str:
        """Access to the plane of a field at a level relative to the one being computed."""
        lines: list[str] = []
        start = 0
        for field in self.stencil.fields:
            plane = f"{self.stored(field.name)}*"
            count = ring_count(field, self.stencil)
            which = f"{start} + (level % {count} + {count}) % {count}" if count > 1 else f"{start}"
            lines.append(
                f"OG_INLINE {plane} {self.names[field.name]}_plane(const Slab& s, int64_t level, "
                f"int64_t z) {{\n  (void)level;\n"
                f"  return ({plane})s.rings[{which}][z] + s.row_offset;\n}}"
            )
            start += count
        return "\n".join(lines)

    @property
    def updated(self) -> tuple[str, ...]:
        """The types of cells that are updated."""
        cells = (self.stored(field.name) for field in self.stencil.evolving)
        return tuple(dict.fromkeys(cells))

    def image(self, field: str, axis: str) -> str | None:
        """The function that finds the plane, row or column read in place of one beyond a face."""
        if axis not in AXES[-self.stencil.ndim :]:
            return None
        rules = self.edges.rule(field, AXES.index(axis) - 3 + self.stencil.ndim)
        return None if rules == (STORED, STORED) else f"{self.names[field]}_{axis}"

    def row_images(self) -> Iterator[str]:
        """Functions ``f0_y(y, rows)``: where what is read at y lies; ``f0_y_sign``: its sign."""
        images = {
            STORED: ("i", "i"),
            "neumann": ("2 * low - 1 - i", "2 * high - 1 - i"),
            "mirror": ("2 * low - i", "2 * high - 2 - i"),
            "periodic": ("i + (high - low)", "i - (high - low)"),
        }
        images |= {odd: images[even] for odd, even in EVEN.items()}
        images["zero"] = (
            "i == low - 1 ? low : 2 * low - 2 - i",
            "i == high ? high - 1 : 2 * high - i",
        )
        for field in self.stencil.fields:
            for axis in AXES[-self.stencil.ndim :]:
                name = self.image(field.name, axis)
                if name is None:
                    continue
                rules = self.edges.rule(field.name, AXES.index(axis) - 3 + self.stencil.ndim)
                below, above = images[rules[0]][0], images[rules[1]][1]
                upper = "Z" if self.stencil.ndim == 2 and axis == "y" else axis.upper()
                yield (
                    f"OG_INLINE int64_t {name}(int64_t i, int64_t n) {{\n"
                    f"  const int64_t low = kLow{upper}, high = n - kHigh{upper};\n"
                    f"  return i < low ? ({below}) : i >= high ? ({above}) : i;\n}}\n"
                )
                if self.sign(field.name, axis) is not None:
                    signs = [
                        f"(i == {first} ? 0 : -1)" if rule == "zero" else -1 if rule in EVEN else 1
                        for rule, first in zip(rules, ("low - 1", "high"), strict=True)
                    ]
                    yield (
                        f"OG_INLINE {self.real} {name}_sign(int64_t i, int64_t n) {{\n"
                        f"  const int64_t low = kLow{upper}, high = n - kHigh{upper};\n"
                        f"  return i < low ? {signs[0]} : i >= high ? {signs[1]} : 1;\n}}\n"
                    )

    def sign(self, field: str, axis: str) -> str | None:
        """The function that says with which sign an image is read, where not all are the same."""
        image = self.image(field, axis)
        if image is None:
            return None
        rules = self.edges.rule(field, AXES.index(axis) - 3 + self.stencil.ndim)
        return f"{image}_sign" if any(rule in EVEN for rule in rules) else None

    def ringed(self, stage: int) -> tuple[Field, ...]:
        """Fields that a stage updates out of place: what is not updated has to be carried on."""
        return tuple(f for f in self._updated(stage) if ring_count(f, self.stencil) > 1)

    def _updated(self, stage: int) -> tuple[Field, ...]:
        return tuple(self.stencil.field(each.field) for each in self.stages[stage])

    def offset(self, access: Access) -> tuple[int, int, int]:
        """(plane, row, column) offset; in two dimensions a plane is one row."""
        if self.stencil.ndim == 2:
            return access.offset[0], 0, access.offset[1]
        return access.offset[0], access.offset[1], access.offset[2]

    def plane(self, field: str, plane: int) -> str:
        image = self.image(field, "z" if self.stencil.ndim == 3 else "y")
        return f"z + ({plane})" if image is None else f"{image}(z + ({plane}), s.planes)"
