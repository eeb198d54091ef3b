"""Vectors at the faces of a grid, which read images of what lies inside."""

from __future__ import annotations

from collections.abc import Iterator

from outgrid.codegen.names import Names
from outgrid.codegen.statements import Statements
from outgrid.stencil.boundary import STORED
from outgrid.stencil.expression import Access, Expression
from outgrid.stencil.model import Field


class Faces:
    """What is blended, and what is looked up vector by vector."""

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

    def edge(self, stage: int) -> str:
        """One vector of one row, wherever it lies: what is read may be an image of anything.

        Few vectors are at an edge, and this is compiled once for all of them.
        """
        work = self.statements.expressions(stage, 1)
        values: dict[Expression, str] = {}
        lines = [
            f"OG_CALL void edge_{stage}(",
            "    const Slab& s, const Uniform& u, int64_t t, int64_t z, int64_t y, int64_t x) {",
            "  (void)u;",
            "  const int64_t now = s.base + t, place = y * s.row_stride + x;",
            *self.statements.uniforms(work),
        ]
        lines += [f"  {line.strip()}" for line in self.statements.profiles(work)]
        lines += [f"  {line.strip()}" for line in self.statements.profile_settings(work)]
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
        reach = [0, 0]
        for field in self.names.stencil.fields:
            for side, rule in enumerate(self.names.edges.rule(field.name, -1)):
                reach[side] = max(reach[side], 0 if rule == STORED else self.names.radius[-1])
        low, high = (f" + {reach[0]}" if reach[0] else ""), (f" - {reach[1]}" if reach[1] else "")
        yield f"  const int64_t head = least((first{low} + kLanes - 1) / kLanes * kLanes, c.x1);"
        yield f"  const int64_t tail = most(0, least((last{high}) / kLanes * kLanes, c.x1));"

    def ends_of_row(self, stage: int, planes: int) -> tuple[str, str] | None:
        """The loops over vectors before and after those inside, where images may be read."""
        if not self.names.edged:
            return None
        calls = " ".join(f"edge_{stage}(s, u, t, z + {plane}, y, x);" for plane in range(planes))
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
