"""Updates of rows: whole vectors, in groups of neighbouring planes, one by one, ahead or in blocks.

The unit of work is a row of one or more neighbouring planes: values that several planes read are
loaded once. Rows are whole vectors; cells of the boundary layer that share a vector with interior
cells are blended with the value they keep, so there are no remainder loops and every cell is
computed by the same instructions in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from functools import partial
from itertools import chain, compress, groupby, product

from outgrid.codegen.block import block, block_vectors, spelled
from outgrid.codegen.carrying import Carrying
from outgrid.codegen.faces import Faces, FarFaces
from outgrid.codegen.masks import folded, masks
from outgrid.codegen.names import Names, passes_caches
from outgrid.codegen.outside import Outside
from outgrid.codegen.rolling import Family, families
from outgrid.codegen.statements import Inputs, Statements, Work, farthest_read, roots
from outgrid.codegen.two_loops import two_loops
from outgrid.codegen.waist import waist
from outgrid.stencil.expression import Access, Expression, accesses, nodes, profiles
from outgrid.stencil.model import Assignment
from outgrid.stencil.region import KIND_BITS, kinds_of_regions, regional

GROUPS = (8, 4, 2, 1)  # planes per row update, most first: they share the loads of a column
USUAL_GROUPS = GROUPS[1:]  # of most stencils
# Planes that a row update reads, at the most: beyond, addresses and values leave the registers, and
# a processor follows no more streams. One plane is always updated alone.
MOST_STREAMS = 32
FEW = 2  # planes at once of updates that few cells take
OUTSIDE = "outside"  # how updates of cells outside of regions are called


class Rows:
    """The functions that update rows of a stage in so many planes at once."""

    def __init__(self, names: Names, statements: Statements, faces: Faces) -> None:
        self.names, self.statements, self.faces = names, statements, faces
        self.kinds = kinds_of_regions(names.stencil)
        self.without = self._without()
        self.outside = self.without[max(self.without)]
        self.narrow = False  # whether rows are short, and go on from row to row
        self.vectors = tuple(
            block_vectors([a.expression for _, a in statements.expressions(stage, USUAL_GROUPS[0])])
            for stage in range(len(names.stages))
        )
        self.masks = tuple(self._masks(stage) for stage in range(len(names.stages)))

    def _without(self) -> dict[int, Outside]:
        """The statements without fields of regions, by the kinds that are absent, a bit for each.

        Of stages that compute temporaries again a bit for each of them.
        """
        if again := self.names.stencil.recomputed_set:
            outside = Outside(self.names, again)
            return {1 << stage: outside for stage in range(len(self.names.stages))}
        return {
            absent: Outside(self.names, chain(*compress(self.kinds, bits)))
            for bits in product((False, True), repeat=len(self.kinds))
            for absent in [sum(1 << n for n, bit in enumerate(bits) if bit)]
        }

    def _masks(self, stage: int) -> frozenset[str]:
        """Fields that are folded into a second update of rows where they are all +0.

        A mask with images along y is not: it would be other rows that have to be looked at.
        """
        if self.names.stencil.ndim < 3 or self.vectors[stage] > 1 or self.outside.made(stage):
            return frozenset()
        constant = (f.name for f in self.names.stencil.fields if not f.evolving)
        plain = [f for f in constant if not (self.names.image(f, "y") or self.names.sign(f, "z"))]
        wanted = (a.expression for a in self.names.stages[stage])
        return masks(wanted, plain, self.names.dtype)

    def _folded(self, stage: int, planes: int) -> Work:
        """What rows are updated with where all masks are +0."""
        stage_work = self.names.stages[stage]
        wanted = (a.expression for a in stage_work)
        made = folded(wanted, self.masks[stage], self.names.dtype)
        assignments = (Assignment(a.field, e) for a, e in zip(stage_work, made, strict=True))
        return self.statements.moved(tuple(assignments), stage, planes)

    def _works(self, stage: int, planes: int) -> Iterator[tuple[Rows, str, Work]]:
        """The updates of rows that there are, what begins their names, and who writes them."""
        whole = self.statements.expressions(stage, planes)
        if self.outside.made(stage):
            if planes in self._groups(stage, self.statements):
                yield self, "inside", whole
            for absent in self._absences(stage):
                if planes in self._taken(stage, absent):
                    work = self.without[absent].expressions(stage, planes)
                    yield self._apart(absent), f"{OUTSIDE}{absent}", work
        elif self.masks[stage]:
            yield self, "whole", whole
            yield self, "folded", self._folded(stage, planes)
        else:
            yield self, "update", whole

    def groups(self, stage: int) -> tuple[int, ...]:
        """How many planes rows may be updated in at once, most first.

        A group reads as many planes beside its own as the stencil reaches both ways. Where these
        outnumber its own, twice as many planes are worth the registers that they do not find.
        Most cells lie outside of regions, so what is read there counts.
        """
        return self._groups(stage, self.outside if self.outside.made(stage) else self.statements)

    def _absences(self, stage: int) -> tuple[int, ...]:
        """Which kinds of fields of regions may be absent, of those that a stage reads or makes."""
        if self.outside.again:
            return (1 << stage,)
        used = {
            field
            for made in self.names.stages[stage]
            for field in (made.field, *(access.field for access in accesses(made.expression)))
        }
        kinds = sum(1 << n for n, fields in enumerate(self.kinds) if used & {*fields})
        return tuple(absent for absent in self.without if absent and absent & kinds == absent)

    def _taken(self, stage: int, absent: int) -> tuple[int, ...]:
        """The planes at once of an update without those kinds: many where nothing is left of them.

        Few cells lie in some layers and not in others, so their updates are short ones.
        """
        if absent == max(self._absences(stage)):
            return self.groups(stage)
        return tuple(n for n in self._groups(stage, self.without[absent]) if n <= FEW)

    def _groups(self, stage: int, statements: Statements) -> tuple[int, ...]:
        """The groups of rows that are updated by these statements."""
        beside = 2 * self.names.radius[0] if self.names.stencil.ndim == 3 else 0
        large = beside > USUAL_GROUPS[0] and self.vectors[stage] == 1
        groups = GROUPS if large else USUAL_GROUPS

        def streams(planes: int) -> int:
            """Planes of all fields that an update in so many planes reads."""
            work = statements.expressions(stage, planes)
            return len(statements.inputs(work, stage, planes))

        return tuple(n for n in groups if n == 1 or streams(n) <= MOST_STREAMS)

    def farthest(self) -> int:
        """The farthest cut of any rolled value, in cells."""
        return max(
            (
                abs(cut)
                for stage in range(len(self.names.stages))
                for planes in self.groups(stage)
                for rows, _, work in self._works(stage, planes)
                for family in rows._rolled(rows._carrying(work, stage, planes))
                for cut in family.cuts.values()
            ),
            default=1,
        )

    def dispatch(self) -> str:
        """The largest group that fits into ``n`` planes; returns the planes taken."""
        lines = [
            "static int64_t update_planes(const Slab& s, const Uniform& u, int64_t t, int stage,",
            "                             int64_t z, int64_t n, const Tile& c, const Way& way) {",
            "  (void)stage, (void)n;",
        ]
        last = len(self.names.stages) - 1
        for stage in range(last + 1):
            lines.append(f"  if (stage == {stage}) {{" if stage < last else "  {")
            for planes in self.groups(stage):
                condition = f"if (n >= {planes}) " if planes > 1 else ""
                call = f"update_{stage}_{planes}(s, u, t, z, c, way), {planes}"
                lines.append(f"    {condition}return {call};")
            lines.append("  }")
        return "\n".join([*lines, "}", ""])

    def update(self, stage: int, planes: int) -> str:
        """Rows [y0, y1) of ``planes`` planes from z on, whole rows of vectors."""
        works = [*self._works(stage, planes)]
        functions = [rows.update_of(name, stage, planes, work) for rows, name, work in works]
        if self.outside.made(stage):
            functions.append(self._by_region(stage, planes))
        elif len(works) > 1:
            functions.append(self._choosing(stage, planes, works[0][2]))
        return "\n".join(functions)

    def _apart(self, absent: int) -> Rows:
        """The updates of rows outside of regions: vector by vector, whatever they are inside."""
        apart = copy(self)
        apart.statements, apart.vectors = self.without[absent], (1,) * len(self.vectors)
        if self.outside.again:
            apart.faces = FarFaces(self.names, self.statements)
        else:
            apart.narrow = self._cut_along_rows(absent)
        return apart

    def _cut_along_rows(self, absent: int) -> bool:
        """Whether fields are there, of those kinds that are not absent, in a part of a row only."""
        conditions, last = regional(self.names.stencil), self.names.stencil.ndim - 1
        there = (kind for n, kind in enumerate(self.kinds) if not absent >> n & 1)
        return any(p.axis == last for kind in there for p in profiles(conditions[kind[0]]))

    def _by_region(self, stage: int, planes: int) -> str:
        """Rows in and outside of regions, each by its own update."""
        bits = {name: 1 << KIND_BITS + n for n, name in enumerate(regional(self.names.stencil))}
        written = [field.name for field in self.names.written(stage)]

        def calls(name: str, sizes: tuple[int, ...]) -> Iterator[str]:
            size = next(n for n in sizes if n <= planes)
            for first in range(0, planes, size):
                yield f"      {name}_{stage}_{size}(s, u, t, z + {first}, part, way);"

        def cases() -> Iterator[str]:
            absences = self._absences(stage)
            yield f"    switch (flags & {max(absences)}) {{"
            for absent in absences:
                yield f"      case {absent}:"
                yield from calls(f"{OUTSIDE}{absent}", self._taken(stage, absent))
                for name in written:
                    if name not in self.without[absent].absent or self.outside.again:
                        continue
                    plane = f"{self.names.fields[name]}_plane"
                    for n in range(planes):
                        cleared = f"clear({plane}(s, s.base + t, z + {n}), s.row_stride, part)"
                        yield f"      if (flags & {bits[name]}) {cleared};"
                yield "      break;"
            yield "      default:"
            yield from calls("inside", self._groups(stage, self.statements))
            yield "    }"

        apart = [
            f"  if (!in_one_part(s, z, {planes})) {{",
            f"    for (int64_t n = 0; n < {planes}; ++n) update_{stage}_1(s, u, t, z + n, c, way);",
            "    return;",
            "  }",
        ]
        kinds = max(self._absences(stage))
        return "\n".join(
            [
                f"static void update_{stage}_{planes}(const Slab& s, const Uniform& u, int64_t t,",
                "                       int64_t z, const Tile& c, const Way& way) {",
                *(apart if self.outside.again and planes > 1 else ()),
                f"  by_region(s, z, {planes}, c, {kinds}, [&](const Tile& part, int64_t flags) {{",
                *cases(),
                "  });",
                "}",
                "",
            ]
        )

    def _choosing(self, stage: int, planes: int, work: Work) -> str:
        """Runs of rows around which masks are all +0, and of others, each by its own update."""
        inputs = self.statements.inputs(work, stage, planes)
        read = [
            node
            for node in nodes(*roots(work))
            if isinstance(node, Access) and node.field in self.masks[stage]
        ]
        places = dict.fromkeys((node.field, node.level, node.offset[0]) for node in read)
        _, rows, columns = (max(abs(node.offset[axis]) for node in read) for axis in range(3))
        given = "s.row_stride * y, left, right"
        empty = " && ".join(f"empty({inputs[place]}, {given})" for place in places)
        return "\n".join(
            [
                f"static void update_{stage}_{planes}(const Slab& s, const Uniform& u, int64_t t,",
                "                       int64_t z, const Tile& c, const Way& way) {",
                "  const int64_t now = s.base + t;",
                *self.statements.planes({place: inputs[place] for place in places}),
                f"  const int64_t left = most(0, c.x0 - {columns});",
                f"  const int64_t right = least(s.columns, c.x1 + {columns});",
                f"  int64_t y = c.y0 - {rows}, run = 0;  // empty rows in turn before y",
                "  auto without = [&](int64_t row) {",
                f"    for (; y <= row + {rows}; ++y) run = {empty} ? run + 1 : 0;",
                f"    return run > 2 * {rows};",
                "  };",
                "  for (int64_t begin = c.y0, end = begin; begin < c.y1; begin = end) {",
                "    const bool all = without(begin);",
                "    for (end = begin + 1; end < c.y1 && without(end) == all;) ++end;",
                "    const Tile rows{begin, end, c.x0, c.x1};",
                f"    all ? folded_{stage}_{planes}(s, u, t, z, rows, way) : "
                f"whole_{stage}_{planes}(s, u, t, z, rows, way);",
                "  }",
                "}",
                "",
            ]
        )

    def update_of(self, named: str, stage: int, planes: int, work: Work) -> str:
        """The function that does some work, named so."""
        name = f"{named}_{stage}_{planes}"
        inputs = self.statements.inputs(work, stage, planes)
        wide = self.vectors[stage] > 1
        ends = self.faces.ends_of_row(stage, planes)
        carrying = self._carrying(work, stage, planes)
        rolled = () if wide or self.narrow else self._rolled(carrying)
        if wide:
            loop = self._block_loop(work, inputs, self.vectors[stage], ends)
        elif self.narrow and not ends:
            loop = self._narrow_loop(carrying, inputs)
        elif rolled:
            loop = self._rolled_loop(carrying, inputs, rolled, ends)
        else:
            loop = self._loop(carrying, inputs, ends)
        lines = [
            f"static void {name}(const Slab& s, const Uniform& u, int64_t t,",
            "                       int64_t z, const Tile& c, const Way& way) {",
            "  const bool past = way.past;",
            "  (void)u, (void)past;",
        ]
        if not work:
            return "\n".join([*lines, "  (void)s, (void)t, (void)z, (void)c;", "}", ""])
        lines.append("  const int64_t now = s.base + t, stride = s.row_stride;")
        lines += self.statements.planes(inputs)
        for plane in range(planes):
            for field in self.names.written(stage):
                to = self.names.fields[field.name]
                lines.append(f"  auto* const {to}_out{plane} = {to}_plane(s, now, z + {plane});")
        if not wide:
            lines += self.statements.uniforms(work)
        lines += [
            *(() if wide else self._fetched(work, planes)),
            *self.statements.profiles(work),
            *self.statements.row_offsets(work),
            "  const int64_t first = kLowX, last = s.columns - kHighX;",
            *self.faces.ends(),
            *carrying.begun(inputs, name),
            *loop,
            "}",
            "",
        ]
        return "\n".join(lines)

    def _carrying(self, work: Work, stage: int, planes: int) -> Carrying:
        """What rows carry on: nothing where some rows are updated by another function.

        In two dimensions a row is a plane, and planes that are updated at once share it.
        """
        turned = self.names.edged and any(self.faces.turned(planes))
        carries = self.names.stencil.ndim == 3 and self.vectors[stage] == 1 and not turned
        return Carrying(self.statements, work, carries)

    def _rolled(self, carrying: Carrying) -> tuple[Family, ...]:
        """The values that are computed ahead, as far as the farthest cut of any of them.

        From there they read as far as a cell is read at, so each of the two ways takes half of what
        may be read beyond a row. Values with longer ones are computed in their places.
        """
        most = farthest_read(self.names.dtype) // 2

        def near(family: Family) -> bool:
            read = (access.offset[-1] for access in accesses(family.expression))
            return all(-most <= way <= most for way in (*family.cuts.values(), *read))

        return tuple(filter(near, families(roots(carrying.left))))

    def _loop(
        self,
        carrying: Carrying,
        inputs: Inputs,
        ends: tuple[str, str] | None,
    ) -> Iterator[str]:
        """Rows of vectors, each on its own; ``ends`` are the loops over those at the ends."""
        first = () if carrying.carries else waist(roots(carrying.left))
        yield "  auto cells = [&](int64_t i, int64_t x, auto edge) __attribute__((always_inline)) {"
        yield "    (void)x;"
        yield from (f"    {line}" for line in self._body(carrying, inputs, ()))
        yield "  };"
        if first:
            yield from two_loops(self.names, self.statements, carrying.left, inputs, first)
        yield "  for (int64_t y = c.y0; y < c.y1; ++y) {"
        yield "    const int64_t row = y * stride;"
        yield from self.statements.row_settings(carrying.left)
        yield "    int64_t x = c.x0;"
        blended = "cells(row + x, x, std::true_type{})"
        yield ends[0] if ends else f"    for (; x < head; x += kLanes) {blended};"
        if first:
            yield "    for (int64_t end; x < tail; x = end) {"
            yield "      end = least(tail, x + kPart);"
            yield "      update_part(row, x, end);"
            yield "    }"
        else:
            yield "    for (; x < tail; x += kLanes) cells(row + x, x, std::false_type{});"
        yield ends[1] if ends else f"    for (; x < c.x1; x += kLanes) {blended};"
        yield "  }"

    def _narrow_loop(self, carrying: Carrying, inputs: Inputs) -> Iterator[str]:
        """Columns of vectors, of which each is at an edge in all rows or in none.

        No stream of the processor follows them, so what the next row reads first is fetched.
        """
        yield "  auto cells = [&](int64_t i, int64_t x, auto edge) __attribute__((always_inline)) {"
        yield "    (void)x;"
        highest: dict[str, int] = {}
        for node in nodes(*roots(carrying.left)):
            if (
                isinstance(node, Access)
                and (at := (node.field, node.level, node.offset[0])) in inputs
            ):
                highest[inputs[at]] = max(highest.get(inputs[at], 0), node.offset[1])
        for place, row in highest.items():
            yield f"    __builtin_prefetch({place} + i + {row + 1} * stride);"
        yield from (f"    {line}" for line in self._body(carrying, inputs, ()))
        yield "  };"
        yield "  for (int64_t x = c.x0; x < c.x1; x += kLanes) {"
        yield "    auto rows = [&](auto edge) __attribute__((always_inline)) {"
        yield "      for (int64_t y = c.y0; y < c.y1; ++y) {"
        yield "        const int64_t row = y * stride;"
        yield from (f"    {line}" for line in self.statements.row_settings(carrying.left))
        yield "        cells(row + x, x, edge);"
        yield "      }"
        yield "    };"
        yield "    x < head || x >= tail ? rows(std::true_type{}) : rows(std::false_type{});"
        yield "  }"

    def _block_loop(
        self,
        work: Work,
        inputs: Inputs,
        vectors: int,
        ends: tuple[str, str] | None,
    ) -> Iterator[str]:
        """Rows of blocks of kBlock vectors, and of single ones at the end of a row."""
        blocked = block(
            [a.expression for _, a in work],
            self.statements.row,
            lambda profile: self.statements.profile(profile, " + n * kLanes"),
        )
        before, inside = spelled(blocked, inputs, self.names.stored)
        weights = [
            f"u.{self.names.uniform[weight]}"
            if weight in self.names.uniform
            else self.names.scalar(weight)
            for weight in blocked.weights
        ]
        yield f"  constexpr int kBlock = kRegisters == 32 ? {vectors} : {vectors // 2};"
        yield f"  const {self.names.real} given[] = {{{', '.join(weights)}}};"
        yield f"  const {self.names.real}* w = given;"
        yield '  asm volatile("" : "+r"(w) : : "memory");  // numbers are broadcast from memory'
        yield from (f"  {line}" for line in before)
        yield "  auto cells = [&](int64_t i, int64_t x, auto wide) __attribute__((always_inline)) {"
        yield "    constexpr int kWide = wide.value;"
        yield from (f"    {line}" for line in inside)
        if not ends:
            yield "    if (x < head || x + kWide * kLanes > tail) {"
            for (plane, assignment), result in zip(work, blocked.results, strict=True):
                place = "i + n * kLanes"
                kept = self.statements.kept(assignment.field, inputs, plane, place)
                chosen = f"within(x + n * kLanes, first, last) ? v{result}[n] : {kept}"
                yield f"      OG_VECTORS v{result}[n] = {chosen};"
            yield "    }"
        for (plane, assignment), result in zip(work, blocked.results, strict=True):
            to = f"{self.names.fields[assignment.field]}_out{plane} + i + n * kLanes"
            yield f"    OG_VECTORS store({to}, v{result}[n]);"
        yield "  };"
        yield "  for (int64_t y = c.y0; y < c.y1; ++y) {"
        yield "    const int64_t row = y * stride;"
        yield from self.statements.row_settings(work)
        yield "    int64_t x = c.x0;"
        last = "tail" if ends else "c.x1"
        if ends:
            yield ends[0]
        yield f"    for (; x + (kBlock - 1) * kLanes < {last}; x += kBlock * kLanes) {{"
        yield "      cells(row + x, x, std::integral_constant<int, kBlock>{});"
        yield "    }"
        yield f"    for (; x < {last}; x += kLanes) {{"
        yield "      cells(row + x, x, std::integral_constant<int, 1>{});"
        yield "    }"
        if ends:
            yield ends[1]
        yield "  }"

    def _rolled_loop(
        self,
        carrying: Carrying,
        inputs: Inputs,
        rolled: tuple[Family, ...],
        ends: tuple[str, str] | None,
    ) -> Iterator[str]:
        """Rows of vectors that share values: r0[kReach] belongs to the current vector."""
        count = len(rolled)
        yield f"  V r[{count}][2 * kReach + 1];"
        yield "  auto ahead = [&](int64_t next) __attribute__((always_inline)) {"
        values: dict[Expression, str] = {}
        for number in range(count):
            yield from (f"    {line}" for line in self._ahead(rolled, number, inputs, values))
        yield "  };"
        yield "  auto roll = [&]() __attribute__((always_inline)) {"
        yield f"    for (int n = 0; n < {count}; ++n) {{"
        yield "      for (int v = 0; v < 2 * kReach; ++v) r[n][v] = r[n][v + 1];"
        yield "    }"
        yield "  };"
        yield "  auto cells = [&](int64_t i, int64_t x, auto edge) __attribute__((always_inline)) {"
        yield "    const int64_t next = i + kReach * kLanes;"
        yield "    (void)x;"
        yield from (f"    {line}" for line in self._body(carrying, inputs, rolled))
        yield "    roll();"
        yield "  };"
        yield "  for (int64_t y = c.y0; y < c.y1; ++y) {"
        yield "    const int64_t row = y * stride;"
        yield from self.statements.row_settings(carrying.left)
        yield "    int64_t x = c.x0;"
        if ends:
            yield ends[0]
        yield "    for (int v = -kReach; v < kReach; ++v) {"
        yield "      ahead(row + x + v * kLanes);"
        yield "      roll();"
        yield "    }"
        blended = "cells(row + x, x, std::true_type{})"
        if not ends:
            yield f"    for (; x < head; x += kLanes) {blended};"
        yield "    for (; x < tail; x += kLanes) cells(row + x, x, std::false_type{});"
        yield ends[1] if ends else f"    for (; x < c.x1; x += kLanes) {blended};"
        yield "  }"

    def _fetched(self, work: Work, planes: int) -> Iterator[str]:
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
        for node in self.statements.fetched(work):
            reads.setdefault((node.field, node.level), set()).add(self.names.offset(node)[:2])
        written = dict.fromkeys(made.field for _, made in work)
        always: list[str] = []
        yield "  const bool fetches = way.ahead != 0;"
        for (field, version), places in reads.items():
            evolving = self.names.stencil.field(field).evolving
            if evolving and places == {(0, 0)}:
                continue
            rows = max(abs(row) for _, row in places)
            for reach in sorted({0, rows}):
                depths = [plane for plane, row in places if abs(row) >= reach]
                name = f"{self.names.fields[field]}_{'beyond' if reach else 'ahead'}{-version}_"
                side = f" + way.beyond * {reach} * stride" if reach else ""
                farthest = f"(s.downward ? {min(depths)} : {max(depths)})"
                yield from self._next(name, field, version, farthest, side, planes)
                always += [f"{name}{plane}" for plane in range(planes)]
        for field in written:
            yield from self._next(f"{self.names.fields[field]}_over", field, 0, "0", "", planes)
        over = [f"{self.names.fields[f]}_over{plane}" for f in written for plane in range(planes)]
        yield "  auto fetch = [&](int64_t i) __attribute__((always_inline)) {"
        yield "    if (!fetches) return;"
        yield from (f"    fetch_line({name} + i);" for name in always)
        yield "    if (!way.begins) return;"
        yield from (f"    fetch_line({name} + i);" for name in over)
        yield "  };"

    def _next(
        self, name: str, field: str, version: int, farthest: str, side: str, planes: int
    ) -> Iterator[str]:
        """Places of a version of a field, one step of the front ahead, for each updated plane."""
        plane = f"{self.names.fields[field]}_plane"
        for n in range(planes):
            z = f"inside(s, z + {n} + way.ahead + {farthest})"
            at = f"{plane}(s, now + ({version}), {z}){side}"
            yield f"  const auto* const {name}{n} = fetches ? {at} : nullptr;"

    def _stores(self, plane: int, results: list[tuple[str, str]]) -> Iterator[str]:
        """Statements that store a plane, past the caches where that is asked for and possible.

        The choice is made once for all fields, and the usual one goes straight on.
        """
        to = {field: f"{self.names.fields[field]}_out{plane} + i" for field, _ in results}
        stencil, apart = self.names.stencil, self.names.apart
        passing = [f for f, _ in results if passes_caches(stencil.field(f), stencil, apart)]
        if passing:
            yield "} else if (__builtin_expect(past, false)) {"
            for field, value in results:
                yield f"  store{'_past' if field in passing else ''}({to[field]}, {value});"
        yield "} else {"
        yield from (f"  store({to[field]}, {value});" for field, value in results)
        yield "}"

    def _ahead(
        self,
        rolled: tuple[Family, ...],
        number: int,
        inputs: Inputs,
        values: dict[Expression, str],
    ) -> Iterator[str]:
        """Statements for a value that is evaluated at ``next``, some vectors ahead."""
        load = partial(self.statements.load, inputs, index="next")
        expression = rolled[number].expression
        yield from self.statements.compute(expression, values, load, "w")
        yield f"r[{number}][2 * kReach] = {values[expression]};"

    def _body(
        self,
        carrying: Carrying,
        inputs: Inputs,
        rolled: tuple[Family, ...],
    ) -> Iterator[str]:
        """Statements for one vector of cells in each plane.

        What is computed ahead comes where it is cut first, and a plane is stored before the next
        one is computed: few values wait then. No other plane reads what is written over there, as
        fields that are updated in place are read at the updated cell only.
        """
        yield "fetch(i);"
        load = partial(self.statements.load, inputs)
        values: dict[Expression, str] = {
            node: f"shifted<{cut}>(r[{number}])"
            for number, family in enumerate(rolled)
            for node, cut in family.cuts.items()
        }
        ahead = dict.fromkeys(range(len(rolled)))
        known: dict[Expression, str] = {}
        carried: set[int] = set()
        for plane, group in groupby(carrying.left, key=lambda planed: planed[0]):
            results: list[tuple[str, str]] = []
            for _, assignment in group:
                used = set(nodes(assignment.expression))
                for number in [*ahead]:
                    if any(cut > 0 and n in used for n, cut in rolled[number].cuts.items()):
                        yield from self._ahead(rolled, number, inputs, known)
                        del ahead[number]
                yield from carrying.loads(assignment.expression, values)
                yield from self.statements.compute(assignment.expression, values, load)
                results.append((assignment.field, values[assignment.expression]))
            yield from carrying.stores(values, carried)
            yield "if constexpr (edge.value) {"
            yield "  const M in = within(x, first, last);"
            for field, value in results:
                kept = self.statements.kept(field, inputs, plane, "i")
                yield f"  store({self.names.fields[field]}_out{plane} + i, in ? {value} : {kept});"
            yield from self._stores(plane, results)
        for number in ahead:
            yield from self._ahead(rolled, number, inputs, known)
