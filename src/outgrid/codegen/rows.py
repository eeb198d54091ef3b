"""Which updates of rows there are, and how a row gets to one of them, as code.

The unit of work is a row of one or more neighbouring planes. There are updates for groups of planes
of several sizes, and in and outside of regions, and where masks are +0, updates of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import chain, compress, product

from outgrid.codegen.block import block_vectors
from outgrid.codegen.faces import Faces, FarFaces
from outgrid.codegen.masks import masks, without
from outgrid.codegen.names import Names
from outgrid.codegen.outside import Outside
from outgrid.codegen.statements import Statements, Work, roots
from outgrid.codegen.update import Update
from outgrid.stencil.expression import Access, accesses, nodes, profiles
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
        self.vectors = tuple(self._vectors(stage) for stage in range(len(names.stages)))
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

    def _vectors(self, stage: int) -> int:
        """Vectors of a row that advance together; folded rows, and parts of rows, go one by one."""
        work = self.statements.expressions(stage, USUAL_GROUPS[0])
        if self.names.folded is not None or self.statements.narrow(work):
            return 1
        return block_vectors([made.expression for _, made in work])

    def _masks(self, stage: int) -> frozenset[str]:
        """Fields that are folded into a second update of rows where they are all +0.

        A mask with images along y is not: it would be other rows that have to be looked at.
        """
        row_by_row = self.names.stencil.ndim == 3 and self.names.folded is None
        if not row_by_row or self.vectors[stage] > 1 or self.outside.made(stage):
            return frozenset()
        constant = (f.name for f in self.names.stencil.fields if not f.evolving)
        plain = [f for f in constant if not (self.names.image(f, "y") or self.names.sign(f, "z"))]
        wanted = (a.expression for a in self.names.stages[stage])
        return masks(wanted, plain, self.names.dtype)

    def _folded(self, stage: int, planes: int) -> Work:
        """What rows are updated with where all masks are +0."""
        stage_work = self.names.stages[stage]
        wanted = (a.expression for a in stage_work)
        made = without(wanted, self.masks[stage], self.names.dtype)
        assignments = (Assignment(a.field, e) for a, e in zip(stage_work, made, strict=True))
        return self.statements.moved(tuple(assignments), stage, planes)

    @cached_property
    def updates(self) -> dict[tuple[int, int], tuple[Update, ...]]:
        """The updates of rows that there are, by the stage and the planes at once."""
        stages = range(len(self.names.stages))
        return {
            (stage, planes): tuple(self._updates(stage, planes))
            for stage in stages
            for planes in self.groups(stage)
        }

    def _updates(self, stage: int, planes: int) -> Iterator[Update]:
        def inside(named: str, work: Work) -> Update:
            how = self.statements, self.faces, self.vectors[stage]
            return Update(named, stage, planes, work, *how)

        whole = self.statements.expressions(stage, planes)
        if self.outside.made(stage):
            if planes in self._groups(stage, self.statements):
                yield inside("inside", whole)
            for absent in self._absences(stage):
                if planes in self._taken(stage, absent):
                    yield self._apart(absent, stage, planes)
        elif self.masks[stage]:
            yield inside("whole", whole)
            yield inside("folded", self._folded(stage, planes))
        else:
            yield inside("update", whole)

    def _apart(self, absent: int, stage: int, planes: int) -> Update:
        """The update of rows outside of regions: vector by vector, whatever they are inside."""
        statements, again = self.without[absent], self.outside.again
        return Update(
            f"{OUTSIDE}{absent}",
            stage,
            planes,
            statements.expressions(stage, planes),
            statements,
            FarFaces(self.names, self.statements) if again else self.faces,
            narrow=not again and self._cut_along_rows(absent),
        )

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
        """The farthest cut of any value that is computed ahead, in cells."""
        updates = chain.from_iterable(self.updates.values())
        ahead = (family for update in updates for family in update.ahead)
        return max((abs(cut) for family in ahead for cut in family.cuts.values()), default=1)

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
        updates = self.updates[stage, planes]
        functions = [update.text() for update in updates]
        if self.outside.made(stage):
            functions.append(self._by_region(stage, planes))
        elif len(updates) > 1:
            functions.append(self._choosing(stage, planes, updates[0]))
        return "\n".join(functions)

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
                        # Where a field is kept in parts of rows, there is nothing in the others.
                        whole = " && s.narrow_stride == s.row_stride" * (name in self.names.narrow)
                        yield f"      if (flags & {bits[name]}{whole}) {cleared};"
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

    def _choosing(self, stage: int, planes: int, whole: Update) -> str:
        """Runs of rows around which masks are all +0, and of others, each by its own update."""
        inputs = whole.inputs
        read = [
            node
            for node in nodes(*roots(whole.work))
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
