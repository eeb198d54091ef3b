"""Vectors at the faces of a grid, which read images of what lies inside."""

from __future__ import annotations

from collections.abc import Iterator

from outgrid.codegen.names import Names
from outgrid.codegen.statements import Statements, Work
from outgrid.stencil.boundary import STORED
from outgrid.stencil.expression import Access, Expression
from outgrid.stencil.model import Field
from outgrid.stencil.recomputed import far_reach, inlined, involved


class Faces:
    """What is blended, and what is looked up vector by vector."""

    named = "edge"

    def __init__(self, names: Names, statements: Statements) -> None:
        self.names, self.statements = names, statements

    def anywhere(self, field: Field) -> str:
        """A function that loads a vector from wherever an image of it lies."""
        name, turned = self.names.fields[field.name], ["Real(1)"]
        along = "z" if self.names.stencil.ndim == 3 else "y"
        places = {}
        for axis, at, extent in (
            (along, "z", "s.planes"),
            ("y" if self.names.stencil.ndim == 3 else "", "y", "s.rows"),
            ("x", "x + l", "s.columns"),
        ):
            image, sign = self.names.image(field.name, axis), self.names.sign(field.name, axis)
            places[at] = f"{image}({at}, {extent})" if image else at
            if sign:
                turned.append(f"{sign}({at}, {extent})")
        across = [sign for sign in turned if "x + l" not in sign]
        own = [sign for sign in turned if "x + l" in sign]
        lines = [
            f"OG_CALL V {name}_at(",
            "    const Slab& s, int64_t level, int64_t z, int64_t y, int64_t x) {",
            f"  const {self.names.stored(field.name)}* row = {name}_plane(s, level, {places['z']})"
            f" + ({places['y']}) * s.row_stride;",
            f"  const Real sign = {' * '.join(across)};",
            "  if (x >= kLowX && x + kLanes <= s.columns - kHighX) {",
            "    return all(sign) * load(row + x);",
            "  }",
            "  V v;",
            "  for (int64_t l = 0; l < kLanes; ++l) {",
            f"    const int64_t column = most(0, least({places['x + l']}, s.columns - 1));",
            f"    v[l] = {' * '.join(['sign', *own])} * row[column];",
            "  }",
            "  return v;",
            "}",
            "",
        ]
        return "\n".join(lines)

    def load_anywhere(self, access: Access) -> str:
        places = zip("zyx", self.names.offset(access), strict=True)
        listed = ", ".join(f"{axis} + ({offset})" for axis, offset in places)
        return f"{self.names.fields[access.field]}_at(s, now + ({access.level}), {listed})"

    def work(self, stage: int) -> Work:
        """What a stage assigns in a plane."""
        return self.statements.expressions(stage, 1)

    def _settings(self, work: Work) -> Iterator[str]:
        """What statements need that compute one vector, wherever it lies."""
        yield "  const int64_t now = s.base + t;"
        yield "  const int64_t first = kLowX, last = s.columns - kHighX;"
        yield "  const std::true_type edge;"
        yield "  (void)now, (void)first, (void)last, (void)edge;"
        yield from self.statements.uniforms(work)
        yield from (f"  {line.strip()}" for line in self.statements.profiles(work))
        yield from (f"  {line.strip()}" for line in self.statements.profile_settings(work))

    def edge(self, stage: int) -> str:
        """One vector of one row, wherever it lies: what is read may be an image of anything.

        Few vectors are at an edge, and this is compiled once for all of them.
        """
        work = self.work(stage)
        values: dict[Expression, str] = {}
        lines = [
            f"OG_CALL void {self.named}_{stage}(",
            "    const Slab& s, const Uniform& u, int64_t t, int64_t z, int64_t y, int64_t x) {",
            "  (void)u;",
            "  const int64_t place = y * s.row_stride + x;",
            *self._settings(work),
        ]
        for _, assignment in work:
            lines += [
                f"  {line}"
                for line in self.statements.compute(
                    assignment.expression, values, self.load_anywhere
                )
            ]
        lines.append("  const M in = within(x, kLowX, s.columns - kHighX);")
        for _, assignment in work:
            name, value = self.names.fields[assignment.field], values[assignment.expression]
            temporary = self.names.stencil.field(assignment.field).temporary
            kept = "V{}" if temporary else f"load({name}_plane(s, now - 1, z) + place)"
            lines.append(f"  store({name}_plane(s, now, z) + place, in ? {value} : {kept});")
        return "\n".join([*lines, "}", ""])

    def ends(self) -> Iterator[str]:
        """Vectors before ``head`` and from ``tail`` on need more than a plain load and store."""
        reach = self.reach(-1)
        low, high = (f" + {reach[0]}" if reach[0] else ""), (f" - {reach[1]}" if reach[1] else "")
        head = "begin" if self.names.ragged else "head"
        inside = f"(first{low} + kAcross - 1) / kAcross * kAcross"
        yield f"  const int64_t {head} = least({inside}, c.x1);"
        yield f"  const int64_t tail = most(0, least((last{high}) / kAcross * kAcross, c.x1));"

    def reach(self, axis: int) -> list[int]:
        """How far from both faces of an axis images are read: of x, from both ends of a row."""
        reach = [0, 0]
        for field in self.names.stencil.fields:
            for side, rule in enumerate(self.names.edges.rule(field.name, axis)):
                reach[side] = max(reach[side], 0 if rule == STORED else self.names.radius[axis])
        return reach

    def ends_of_row(self, stage: int, planes: int) -> tuple[str, str] | None:
        """The loops over vectors before and after those inside, where images may be read."""
        if not self.names.edged:
            return None
        calls = " ".join(
            f"{self.named}_{stage}(s, u, t, z + {plane}, y, x);" for plane in range(planes)
        )
        turned = " || ".join(self.turned(planes)) or "false"
        return (
            f"    const int64_t inside = {turned} ? c.x1 : head;\n"
            f"    for (; x < inside; x += kLanes) {{ {calls} }}",
            f"    for (; x < c.x1; x += kLanes) {{ {calls} }}",
        )

    def turned(self, planes: int) -> Iterator[str]:
        """Conditions under which a row reads images that turn the sign, along z or y."""
        axes = (("z", planes, "s.planes"), ("y", 1, "s.rows"))[: self.names.stencil.ndim - 1]
        for number, (axis, count, extent) in enumerate(axes):
            radius = self.names.radius[number]
            low, high = self.names.edges.odd(number)
            if low:
                yield f"{axis} < kLow{axis.upper()} + {radius}"
            if high:
                yield f"{axis} + {count} > {extent} - kHigh{axis.upper()} - {radius}"


class FarFaces(Faces):
    """The same of rows far from other faces, where temporaries are computed again.

    What is read of one beyond the end of a row is computed at its image.
    """

    named = "far_edge"

    def __init__(self, names: Names, statements: Statements) -> None:
        super().__init__(names, statements)
        self.again = names.stencil.recomputed_set

    def reach(self, axis: int) -> list[int]:
        """All that is at the ends of rows is looked up, or blended."""
        return [far_reach(self.names.stencil)] * 2

    def load_anywhere(self, access: Access) -> str:
        """Of a temporary that is computed again, what is beyond the end of a row."""
        if access.field not in self.again:
            return super().load_anywhere(access)
        places = zip("zyx", self.names.offset(access), strict=True)
        listed = ", ".join(f"{axis} + ({offset})" for axis, offset in places)
        return f"{self.names.fields[access.field]}_beyond(s, u, t, {listed})"

    def members(self) -> Iterator[str]:
        """All functions for vectors at the ends of rows."""
        stencil = self.names.stencil
        for name in stencil.recomputed:
            yield self._here(name)
            yield self._beyond(name)
        for stage in range(len(stencil.stages)):
            if involved(stencil, stage) and self.work(stage):
                yield self.edge(stage)

    def _here(self, name: str) -> str:
        """A function that computes a vector of a temporary, whatever its cells read."""
        stencil = self.names.stencil
        stage = stencil.writer(name)
        assert stage is not None
        made = [one for one in self.names.stages[stage] if one.field == name]
        inner = inlined(made, self.names.stages, self.again - {name})
        work = Statements.moved(self.statements, inner, stage, 1)
        lines = [
            f"OG_CALL V {self.names.fields[name]}_here(",
            "    const Slab& s, const Uniform& u, int64_t t, int64_t z, int64_t y, int64_t x) {",
            "  (void)u, (void)z, (void)y, (void)x;",
            *self._settings(work),
        ]
        value, values = work[0][1].expression, dict[Expression, str]()
        computed = self.statements.compute(value, values, self.load_anywhere)
        lines += [f"  {line}" for line in computed]
        return "\n".join([*lines, f"  return {values[value]};", "}", ""])

    def _beyond(self, name: str) -> str:
        """A function that gives what a vector of a temporary has beyond the ends of a row."""
        field, reach = self.names.fields[name], self.reach(-1)[0]
        image, sign = self.names.image(name, "x"), self.names.sign(name, "x")
        there = f"{field}_here(s, u, t, z, y, {image}(x + l, s.columns))[0]"
        turned = f"{sign}(x + l, s.columns) * {there}" if sign else there
        low, high = ("0" if rule == STORED else turned for rule in self.names.edges.rule(name, -1))
        lines = [
            f"OG_CALL V {field}_beyond(",
            "    const Slab& s, const Uniform& u, int64_t t, int64_t z, int64_t y, int64_t x) {",
            "  (void)u, (void)t, (void)z, (void)y;",
            "  V v = {};",
            "  const int64_t first = kLowX, last = s.columns - kHighX;",
            "  if (x >= first && x + kLanes <= last) return v;",
            "  for (int64_t l = 0; l < kLanes; ++l) {",
            f"    if (x + l >= first - {reach} && x + l < first) v[l] = {low};",
            f"    if (x + l >= last && x + l < last + {reach}) v[l] = {high};",
            "  }",
            "  return v;",
        ]
        return "\n".join([*lines, "}", ""])
