"""The function that updates rows of a stage in so many planes at once, as code.

Rows are whole vectors; cells of the boundary layer that share a vector with interior cells are
blended with the value they keep, so there are no remainder loops and every cell is computed by the
same instructions in the same order. `outgrid.codegen.loops` has the loops over the vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from itertools import groupby

import msgspec

from outgrid.codegen import loops
from outgrid.codegen.carrying import Carrying
from outgrid.codegen.faces import Faces
from outgrid.codegen.names import Names, passes_caches
from outgrid.codegen.rolling import Family, families
from outgrid.codegen.statements import Inputs, Statements, Work, farthest_read, roots
from outgrid.stencil.expression import Expression, Profile, accesses, nodes

__all__ = ["Update"]


class Update(msgspec.Struct, frozen=True, dict=True):
    """Some `work` in neighbouring `planes`: values that several of them read are loaded once.

    A block has so many `vectors`; `narrow` rows are short, and go on from row to row.
    """

    named: str
    stage: int
    planes: int
    work: Work
    statements: Statements
    faces: Faces
    vectors: int = 1
    narrow: bool = False

    @property
    def name(self) -> str:
        """What the function is called."""
        return f"{self.named}_{self.stage}_{self.planes}"

    @property
    def names(self) -> Names:
        """What the source calls fields."""
        return self.statements.names

    @cached_property
    def inputs(self) -> Inputs:
        """The planes that are read."""
        return self.statements.inputs(self.work, self.stage, self.planes)

    @cached_property
    def ends(self) -> tuple[str, str] | None:
        """The loops over the vectors at the ends of a row, where these are no blended ones."""
        if self.looks_beyond:
            loop = "    for (; x < {}; x += kLanes) beyond(row + x, x);"
            return loop.format("head"), loop.format("c.x1")
        return self.faces.ends_of_row(self.stage, self.planes)

    @property
    def looks_beyond(self) -> bool:
        """Whether vectors at the ends of rows are updated here, in all planes at once.

        Others go to `Faces.edge`, one by one: where images along other axes turn the sign, and
        where fields are not read that are there all the same beyond the other end of a row.
        """
        whole = self.statements is self.faces.statements and self.named != "folded"
        plain = self.vectors == 1 and not any(self.faces.turned(self.planes))
        return self.names.edged and whole and plain

    @cached_property
    def carrying(self) -> Carrying:
        """What rows carry on: nothing where some rows are updated by another function.

        In two dimensions a row is a plane, and planes that are updated at once share it.
        """
        turned = self.names.edged and any(self.faces.turned(self.planes))
        carries = self.names.stencil.ndim == 3 and self.vectors == 1 and not turned
        carries = carries and self.names.folded is None
        return Carrying(self.statements, self.work, carries)

    @cached_property
    def ahead(self) -> tuple[Family, ...]:
        """The values that are computed ahead, as far as the farthest cut of any of them.

        From there they read as far as a cell is read at, so each of the two ways takes half of what
        may be read beyond a row. Values with longer ones are computed in their places.
        """
        if self.names.imaged:
            return ()
        most = farthest_read(self.names.dtype) // 2

        def near(family: Family) -> bool:
            read = (access.offset[-1] for access in accesses(family.expression))
            return all(-most <= way <= most for way in (*family.cuts.values(), *read))

        return tuple(filter(near, families(roots(self.carrying.left))))

    def text(self) -> str:
        """The whole function."""
        if self.vectors > 1:
            loop = loops.blocked(self)
        elif self.narrow and not self.ends:
            loop = loops.narrow(self)
        elif self.ahead and not self.narrow:
            loop = loops.rolled(self)
        else:
            loop = loops.plain(self)
        lines = [
            f"static void {self.name}(const Slab& s, const Uniform& u, int64_t t,",
            "                       int64_t z, const Tile& c, const Way& way) {",
            "  const bool past = way.past;",
            "  (void)u, (void)past;",
        ]
        if not self.work:
            return "\n".join([*lines, "  (void)s, (void)t, (void)z, (void)c;", "}", ""])
        lines.append("  const int64_t now = s.base + t, stride = s.row_stride;")
        if self.statements.narrow(self.work):
            lines.append("  const int64_t narrow = s.narrow_stride;")
            lines.append(
                "  int64_t aside = 0;  // from where a cell of a row lies to where it is kept"
            )
        lines += self.statements.planes(self.inputs)
        for plane in range(self.planes):
            for field in self.names.written(self.stage):
                to = self.names.fields[field.name]
                lines.append(f"  auto* const {to}_out{plane} = {to}_plane(s, now, z + {plane});")
        if self.vectors == 1:
            lines += [*self.statements.uniforms(self.work), *self._fetched()]
        lines += [
            *self.statements.profiles(self.work),
            *self.statements.row_offsets(self.work),
            "  const int64_t first = kLowX, last = s.columns - kHighX;",
            *self.faces.ends(),
            *self.carrying.begun(self.inputs, self.name),
            *["  M inner;"] * self.names.ragged,
            *["  int64_t here = 0;"] * self.names.imaged,
            *(self._beyond() if self.looks_beyond else ()),
            *loop,
            "}",
            "",
        ]
        return "\n".join(lines)

    def _fetched(self) -> Iterator[str]:
        """The function that fetches what is read and written first in the next step of the front.

        With a vector of cells at the edge of a diamond goes the farthest plane that these read of
        each field beside the updated cell, and of rows as far beyond the edge as they read; where
        a diamond begins, also what they write over. What they read of it at the updated cell alone
        comes with the rows beyond of the level before.
        """
        if self.names.stencil.ndim < 3:
            yield "  auto fetch = [](int64_t) {};"
            return
        reads: dict[tuple[str, int], set[tuple[int, int]]] = {}
        for node in self.statements.fetched(self.work):
            reads.setdefault((node.field, node.level), set()).add(self.names.offset(node)[:2])
        written = dict.fromkeys(made.field for _, made in self.work)
        always: list[tuple[str, str]] = []
        yield "  const bool fetches = way.ahead != 0;"
        for (field, version), places in reads.items():
            evolving = self.names.stencil.field(field).evolving
            if evolving and places == {(0, 0)}:
                continue
            unit = self.names.row_unit
            rows = max(_whole(row, unit) for _, row in places)
            for reach in sorted({0, rows}):
                depths = [plane for plane, row in places if _whole(row, unit) >= reach]
                name = f"{self.names.fields[field]}_{'beyond' if reach else 'ahead'}{-version}_"
                stride = self.names.stride(field)
                side = f" + way.beyond * {reach} * {stride}" if reach else ""
                farthest = f"(s.downward ? {min(depths)} : {max(depths)})"
                yield from self._next(name, field, version, farthest, side)
                always += [(f"{name}{plane}", field) for plane in range(self.planes)]
        for field in written:
            yield from self._next(f"{self.names.fields[field]}_over", field, 0, "0", "")
        over = [
            (f"{self.names.fields[f]}_over{plane}", f)
            for f in written
            for plane in range(self.planes)
        ]
        yield "  auto fetch = [&](int64_t i) __attribute__((always_inline)) {"
        yield "    if (!fetches) return;"
        yield from (f"    fetch_line({name} + {self.names.at(field)});" for name, field in always)
        yield "    if (!way.begins) return;"
        yield from (f"    fetch_line({name} + {self.names.at(field)});" for name, field in over)
        yield "  };"

    def _beyond(self) -> Iterator[str]:
        """The function that updates a vector at an end of a row in each plane."""
        yield "  auto beyond = [&](int64_t i, int64_t x) {"
        yield "    const M in = within(x, first, last);"
        load = partial(self.statements.load_beyond, self.inputs)
        values: dict[Expression, str] = {}
        for plane, group in groupby(self.work, key=lambda planed: planed[0]):
            results: list[tuple[str, str]] = []
            for _, assignment in group:
                computed = self.statements.compute(assignment.expression, values, load)
                yield from (f"    {line}" for line in computed)
                results.append((assignment.field, values[assignment.expression]))
            for field, value in results:
                kept = self.statements.kept(field, self.inputs, plane, "i")
                to = self.names.made(field, plane)
                yield f"    store({to}, in ? {value} : {kept});"
        yield "  };"

    def _next(self, name: str, field: str, version: int, farthest: str, side: str) -> Iterator[str]:
        """Places of a version of a field, one step of the front ahead, for each updated plane."""
        plane = f"{self.names.fields[field]}_plane"
        for n in range(self.planes):
            z = f"inside(s, z + {n} + way.ahead + {farthest})"
            at = f"{plane}(s, now + ({version}), {z}){side}"
            yield f"  const auto* const {name}{n} = fetches ? {at} : nullptr;"

    def _stores(self, plane: int, results: list[tuple[str, str]]) -> Iterator[str]:
        """Statements that store a plane, past the caches where that is asked for and possible.

        The choice is made once for all fields, and the usual one goes straight on.
        """
        to = {field: self.names.made(field, plane) for field, _ in results}
        stencil, apart = self.names.stencil, self.names.apart
        passing = [f for f, _ in results if passes_caches(stencil.field(f), stencil, apart)]
        if passing:
            yield "} else if (__builtin_expect(past, false)) {"
            for field, value in results:
                yield f"  store{'_past' if field in passing else ''}({to[field]}, {value});"
        yield "} else {"
        yield from (f"  store({to[field]}, {value});" for field, value in results)
        yield "}"

    def value_ahead(self, number: int, values: dict[Expression, str]) -> Iterator[str]:
        """Statements for a value that is evaluated at ``next``, some vectors ahead."""
        load = partial(self.statements.load, self.inputs, index="next")
        expression = self.ahead[number].expression
        yield from self.statements.compute(expression, values, load, "w")
        yield f"r[{number}][2 * kReach] = {values[expression]};"

    def body(
        self,
        rolled: tuple[Family, ...] = (),
        known: Mapping[Profile, str] | None = None,
        cut: bool = False,
    ) -> Iterator[str]:
        """Statements for one vector of cells in each plane, with values that are ``known`` before.

        Cells beside the updated ones are loaded, or ``cut`` out of vectors where that is faster.

        What is computed ahead comes where it is cut first, and a plane is stored before the next
        one is computed: few values wait then. No other plane reads what is written over there, as
        fields that are updated in place are read at the updated cell only.
        """
        yield "fetch(i);"
        load = partial(self.statements.load, self.inputs, cut=cut)
        values: dict[Expression, str] = {**(known or {})} | {
            node: f"shifted<{way}>(r[{number}])"
            for number, family in enumerate(rolled)
            for node, way in family.cuts.items()
        }
        ahead = dict.fromkeys(range(len(rolled)))
        early: dict[Expression, str] = {}
        carried: set[int] = set()
        for plane, group in groupby(self.carrying.left, key=lambda planed: planed[0]):
            results: list[tuple[str, str]] = []
            for _, assignment in group:
                used = set(nodes(assignment.expression))
                for number in [*ahead]:
                    if any(way > 0 and n in used for n, way in rolled[number].cuts.items()):
                        yield from self.value_ahead(number, early)
                        del ahead[number]
                yield from self.carrying.loads(assignment.expression, values)
                yield from self.statements.compute(assignment.expression, values, load)
                results.append((assignment.field, values[assignment.expression]))
            yield from self.carrying.stores(values, carried)
            yield "if constexpr (edge.value) {"
            inner = " & inner" if self.names.ragged else ""
            yield f"  const M in = within(x, first, last){inner};"
            for field, value in results:
                kept = self.statements.kept(field, self.inputs, plane, "i")
                to = self.names.made(field, plane)
                yield f"  store({to}, in ? {value} : {kept});"
            yield from self._stores(plane, results)
        for number in ahead:
            yield from self.value_ahead(number, early)


def _whole(row: int, unit: int) -> int:
    """How far from a row another one is, rounded up to whole groups of folded rows."""
    return -(-abs(row) // unit) * unit
