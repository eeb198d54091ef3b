"""A stencil's kernel as readable C++: straight-line vector code inside loops that never change.

The unit of work is a row of one or more neighbouring planes: values that several planes read are
loaded once. Rows are whole vectors; cells of the boundary layer that share a vector with interior
cells are blended with the value they keep, so there are no remainder loops and every cell is
computed by the same instructions in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from outgrid.codegen.block import block, block_vectors, spelled
from outgrid.codegen.rolling import Family, families
from outgrid.codegen.traversal import LOOPS, SLAB
from outgrid.codegen.vector import PRELUDE, SPELLING, TYPES
from outgrid.errors import DefinitionError
from outgrid.plan.layout import GUARD_BYTES, ITEM_BYTES
from outgrid.plan.lifetime import dependences, ring_count
from outgrid.plan.tiling import tile_slope
from outgrid.stencil.boundary import STORED, Edges
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
    substitute,
)
from outgrid.stencil.model import Assignment, Field, Stencil
from outgrid.stencil.symbol import AXES

GROUPS = (4, 2, 1)  # planes per row update, most first: they share the loads of a column
LARGEST_VECTOR_BYTES = 64


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


def generate(stencil: Stencil, dtype: str, edges: Edges | None = None) -> str:
    """C++ source of the kernel of ``stencil`` for ``dtype`` ("float32" or "float64").

    ``edges`` say what lies beyond the interior; without them, a fixed layer on all sides.
    Exports ``int outgrid_advance(const Slab*)``. Raises DefinitionError for a stencil that the
    generator does not cover.
    """
    farthest = (GUARD_BYTES - 2 * LARGEST_VECTOR_BYTES) // ITEM_BYTES[dtype]
    if stencil.radius[-1] > farthest:
        raise DefinitionError(
            f"stencil {stencil.name!r} reads {stencil.radius[-1]} cells away along x; kernels in "
            f"{dtype} reach {farthest}"
        )
    return _Writer(stencil, dtype, edges or Edges.fixed(stencil)).text()


class _Writer:
    """Names and pieces of one kernel."""

    def __init__(self, stencil: Stencil, dtype: str, edges: Edges) -> None:
        self.stencil, self.dtype, self.edges = stencil, dtype, edges
        self.real, self.integer, self.suffix, self.word = TYPES[dtype]
        self.stages = tuple(
            tuple(Assignment(a.field, contract(a.expression)) for a in stage.assignments)
            for stage in stencil.stages
        )
        self.rings = ring_order(stencil)
        self.names = {field.name: f"f{i}" for i, field in enumerate(stencil.fields)}
        self.radius = stencil.radius
        self.uniform = self._uniform_nodes()
        # Images of rows and columns are looked up vector by vector.
        self.imaged = any(
            self._image(field.name, axis)
            for field in stencil.fields
            for axis in AXES[1 - stencil.ndim :]
        )
        self.vectors = tuple(
            1
            if self.imaged
            else block_vectors([a.expression for _, a in self._expressions(stage, GROUPS[0])])
            for stage in range(len(self.stages))
        )

    def text(self) -> str:
        """The whole source."""
        radius = self.radius if self.stencil.ndim == 3 else (self.radius[0], 0, self.radius[1])
        prelude = PRELUDE.replace("REAL", self.real).replace("INTEGER", self.integer)
        prelude = prelude.replace("SUFFIX", self.suffix).replace("WORD", self.word)
        prelude = prelude.replace("FARTHEST", str(self._farthest()))
        return "\n".join(
            [
                f"// Kernel of stencil {self.stencil.digest[:16]}, {self.dtype}: "
                f"{self.stencil.flops} flops per update, radius {radius}.",
                *(f"//   {name} = field {number}" for number, name in self._field_comments()),
                prelude,
                SLAB.replace("REAL", self.real),
                self._layers(),
                self._stage_constants(),
                f"constexpr int64_t kParameters = {len(self.stencil.parameters) + 1};  // and step",
                f"constexpr bool kAcrossColumns = {'true' if self.stencil.ndim == 2 else 'false'};",
                "",
                self._uniform_struct(),
                self._pointers(),
                *self._images(),
                self._keep_tile(),
                *(
                    self._update(stage, planes)
                    for stage in range(len(self.stages))
                    for planes in GROUPS
                ),
                self._dispatch(),
                LOOPS.replace("REAL", self.real),
            ]
        )

    def _layers(self) -> str:
        """Cells of the fixed layer at each face."""
        low, high = zip(*self.edges.layers, strict=True)
        if self.stencil.ndim == 2:
            low, high = (low[0], 0, low[1]), (high[0], 0, high[1])
        names = ("LowZ", "LowY", "LowX", "HighZ", "HighY", "HighX")
        pairs = zip(names, (*low, *high), strict=True)
        return f"constexpr int64_t {', '.join(f'k{name} = {n}' for name, n in pairs)};"

    def _stage_constants(self) -> str:
        """Where each stage of a step works: planes behind the front, and rows beside an edge."""
        slope = tile_slope(self.stencil, self.dtype, self.edges)
        shifts = dependences(self.stencil, self.edges).skew().shifts
        lines = [f"constexpr int kStages = {len(self.stages)};"]
        lines.append(f"constexpr int64_t kSlope = {slope.per_step};")
        writers = (self.stencil.writer(field.name) for field in self.stencil.fields)
        listed = ", ".join("-1" if writer is None else str(writer) for writer in writers)
        lines.append(f"constexpr int kWriter[] = {{{listed}}};  // the stage that updates a field")
        for name, values in {"Shift": shifts, "Fall": slope.falls, "Rise": slope.rises}.items():
            listed = ", ".join(map(str, values))
            lines.append(f"constexpr int64_t k{name}[kStages] = {{{listed}}};")
        return "\n".join(lines)

    def _farthest(self) -> int:
        """The farthest cut of any rolled value, in cells."""
        return max(
            (
                abs(cut)
                for planes in GROUPS
                for stage in range(len(self.stages))
                for family in families(a.expression for _, a in self._expressions(stage, planes))
                for cut in family.cuts.values()
            ),
            default=1,
        )

    def _field_comments(self) -> Iterator[tuple[int, str]]:
        for number, field in enumerate(self.stencil.fields):
            yield number, self.names[field.name]

    def _uniform_nodes(self) -> dict[Expression, str]:
        """Names of the parameters and of what is computed from them alone, once per call."""
        found: dict[Expression, str] = {}
        for assignment in (each for stage in self.stages for each in stage):
            for node in nodes(assignment.expression):
                if node not in found and not isinstance(node, Constant) and is_uniform(node):
                    found[node] = f"p{len(found)}"
        return found

    def _uniform_struct(self) -> str:
        """Parameters, and what follows from them alone, in the precision of the fields."""
        lines = ["struct Uniform {"]
        lines += [f"  {self._type(node)} {name};" for node, name in self.uniform.items()]
        lines += ["  void set(const double* given) {", "    (void)given;"]
        for node, name in self.uniform.items():
            if isinstance(node, Parameter):
                number = (*self.stencil.parameters, STEP.name).index(node.name)
                lines.append(f"    {name} = {self.real}(given[{number}]);")
            elif isinstance(node, Operation):
                operands = [self.uniform.get(o) or self._scalar(o) for o in node.operands]
                lines.append(f"    {name} = {SPELLING[node.name].format(*operands)};")
        return "\n".join([*lines, "  }", "};", ""])

    def _type(self, node: Expression) -> str:
        return "bool" if is_condition(node) else self.real

    def _vector(self, node: Expression) -> str:
        return "M" if is_condition(node) else "V"

    def _scalar(self, node: Expression) -> str:
        if not isinstance(node, Constant):
            raise DefinitionError(f"{node!r} is not a constant")
        return f"{self.real}({node.value.hex()})"

    def _pointers(self) -> str:
        """Access to the plane of a field at a level relative to the one being computed."""
        lines = [f"using Plane = {self.real}*;"]
        start = 0
        for field in self.stencil.fields:
            count = ring_count(field, self.stencil)
            which = f"{start} + (level % {count} + {count}) % {count}" if count > 1 else f"{start}"
            lines.append(
                f"OG_INLINE Plane {self.names[field.name]}_plane(const Slab& s, int64_t level, "
                f"int64_t z) {{\n  (void)level;\n"
                f"  return (Plane)s.rings[{which}][z] + s.row_offset;\n}}"
            )
            start += count
        lines.append(
            "OG_INLINE Plane plane_of(const Slab& s, int64_t field, int64_t level, int64_t z) {"
        )
        for number, name in enumerate(self.names.values()):
            lines.append(f"  if (field == {number}) return {name}_plane(s, level, z);")
        return "\n".join([*lines, "  return nullptr;", "}", ""])

    def _image(self, field: str, axis: str) -> str | None:
        """The function that finds the plane, row or column read in place of one beyond a face."""
        if axis not in AXES[-self.stencil.ndim :]:
            return None
        rules = self.edges.rule(field, AXES.index(axis) - 3 + self.stencil.ndim)
        return None if rules == (STORED, STORED) else f"{self.names[field]}_{axis}"

    def _images(self) -> Iterator[str]:
        """Functions ``f0_y(y, rows)``: where what is read at y lies."""
        images = {
            STORED: ("i", "i"),
            "neumann": ("2 * low - 1 - i", "2 * high - 1 - i"),
            "mirror": ("2 * low - i", "2 * high - 2 - i"),
            "periodic": ("i + (high - low)", "i - (high - low)"),
        }
        for field in self.stencil.fields:
            for axis in AXES[-self.stencil.ndim :]:
                name = self._image(field.name, axis)
                if name is None:
                    continue
                rules = self.edges.rule(field.name, AXES.index(axis) - 3 + self.stencil.ndim)
                below, above = images[rules[0]][0], images[rules[1]][1]
                upper = "Z" if self.stencil.ndim == 2 and axis == "y" else axis.upper()
                yield (
                    f"OG_INLINE int64_t {name}(int64_t i, int64_t n) {{\n"
                    f"  const int64_t low = kLow{upper}, high = n - kHigh{upper};\n"
                    f"  return i < low ? {below} : i >= high ? {above} : i;\n}}\n"
                )
            column = self._image(field.name, "x")
            if column is not None:
                yield (
                    f"OG_INLINE V {column}_load(const {self.real}* row, int64_t x, int64_t n) {{\n"
                    "  V v;\n"
                    "  for (int64_t l = 0; l < kLanes; ++l) {\n"
                    f"    v[l] = row[most(0, least({column}(x + l, n), n - 1))];\n"
                    "  }\n  return v;\n}\n"
                )

    def _keep_tile(self) -> str:
        lines = ["void keep_tile(const Slab& s, int64_t t, int stage, int64_t z, const Tile& c) {"]
        for stage in range(len(self.stages)):
            lines.append(f"  if (stage == {stage}) {{")
            for field in self._updated(stage):
                if ring_count(field, self.stencil) == 1:
                    continue  # it is where it has to be
                name = self.names[field.name]
                to, source = (f"{name}_plane(s, s.base + t{back}, z)" for back in ("", " - 1"))
                lines.append(f"    keep({to}, {source}, s.row_stride, c);")
            lines.append("  }")
        return "\n".join([*lines, "  (void)s, (void)t, (void)z, (void)c;", "}", ""])

    def _updated(self, stage: int) -> tuple[Field, ...]:
        return tuple(self.stencil.field(each.field) for each in self.stages[stage])

    def _offset(self, access: Access) -> tuple[int, int, int]:
        """(plane, row, column) offset; in two dimensions a plane is one row."""
        if self.stencil.ndim == 2:
            return access.offset[0], 0, access.offset[1]
        return access.offset[0], access.offset[1], access.offset[2]

    def _expressions(self, stage: int, planes: int) -> list[tuple[int, Assignment]]:
        """The assignments of ``planes`` neighbouring planes, offsets counted from the first.

        Levels become versions: 0 is what this step makes, -1 what the one before has made.
        """
        found: list[tuple[int, Assignment]] = []
        for plane in range(planes):
            for assignment in self.stages[stage]:
                moved: dict[Expression, Expression] = {
                    node: Access(
                        node.field,
                        self.stencil.version(stage, node),
                        (node.offset[0] + plane, *node.offset[1:]),
                    )
                    for node in nodes(assignment.expression)
                    if isinstance(node, Access)
                }
                expression = substitute(assignment.expression, moved)
                found.append((plane, Assignment(assignment.field, expression)))
        return found

    def _update(self, stage: int, planes: int) -> str:
        """Rows [y0, y1) of ``planes`` planes from z on, whole rows of vectors."""
        work = self._expressions(stage, planes)
        inputs = self._inputs(work, stage, planes)
        wide = self.vectors[stage] > 1
        alone = wide or self.imaged
        rolled = () if alone else families(assignment.expression for _, assignment in work)
        lines = [
            f"void update_{stage}_{planes}(const Slab& s, const Uniform& u, int64_t t, int64_t z,",
            "                const Tile& c) {",
            "  (void)u;",
            "  const int64_t now = s.base + t, stride = s.row_stride;",
        ]
        for (field, version, plane), name in inputs.items():
            lines.append(
                f"  const {self.real}* const {name} = "
                f"{self.names[field]}_plane(s, now + ({version}), {self._plane(field, plane)});"
            )
        for plane in range(planes):
            for field in self._updated(stage):
                name = self.names[field.name]
                lines.append(
                    f"  Plane const {name}_out{plane} = {name}_plane(s, now, z + {plane});"
                )
        if not wide:
            lines += [
                f"  const {self._vector(node)} {self.uniform[node]}v = all(u.{self.uniform[node]});"
                for node in self._used_uniforms(work)
            ]
        lines += [
            *self._row_offsets(work),
            "  const int64_t first = kLowX, last = s.columns - kHighX;",
            *self._ends(),
            *(
                self._block_loop(work, inputs, self.vectors[stage])
                if wide
                else (self._rolled_loop if rolled else self._loop)(work, inputs, rolled)
            ),
            "}",
            "",
        ]
        return "\n".join(lines)

    def _plane(self, field: str, plane: int) -> str:
        image = self._image(field, "z" if self.stencil.ndim == 3 else "y")
        return f"z + ({plane})" if image is None else f"{image}(z + ({plane}), s.planes)"

    def _ends(self) -> Iterator[str]:
        """Vectors before ``head`` and from ``tail`` on need more than a plain load and store."""
        reach = [0, 0]
        for field in self.stencil.fields:
            for side, rule in enumerate(self.edges.rule(field.name, -1)):
                reach[side] = max(reach[side], 0 if rule == STORED else self.radius[-1])
        low, high = (f" + {reach[0]}" if reach[0] else ""), (f" - {reach[1]}" if reach[1] else "")
        yield f"  const int64_t head = least((first{low} + kLanes - 1) / kLanes * kLanes, c.x1);"
        yield f"  const int64_t tail = most(0, least((last{high}) / kLanes * kLanes, c.x1));"

    def _row_names(self, work: list[tuple[int, Assignment]]) -> dict[tuple[str, int], str]:
        """Names of the distances to rows that may lie beyond a face, by field and offset."""
        found: dict[tuple[str, int], str] = {}
        for _, assignment in work:
            for node in nodes(assignment.expression):
                if isinstance(node, Access) and self.stencil.ndim == 3 and node.offset[1]:
                    row = node.offset[1]
                    if self._image(node.field, "y"):
                        sign = "m" if row < 0 else "p"
                        name = f"{self.names[node.field]}_row_{sign}{abs(row)}"
                        found[node.field, row] = name
        return found

    def _row_offsets(self, work: list[tuple[int, Assignment]]) -> Iterator[str]:
        for name in self._row_names(work).values():
            yield f"  int64_t {name} = 0;"

    def _row_settings(self, work: list[tuple[int, Assignment]]) -> Iterator[str]:
        for (field, row), name in self._row_names(work).items():
            yield f"    {name} = ({self._image(field, 'y')}(y + ({row}), s.rows) - y) * stride;"

    def _loop(
        self,
        work: list[tuple[int, Assignment]],
        inputs: dict[tuple[str, int, int], str],
        rolled: tuple[Family, ...],
    ) -> Iterator[str]:
        """Rows of vectors, each on its own."""
        yield "  auto cells = [&](int64_t i, int64_t x, auto edge) __attribute__((always_inline)) {"
        yield "    (void)x;"
        yield from (f"    {line}" for line in self._body(work, inputs, rolled))
        yield "  };"
        yield "  for (int64_t y = c.y0; y < c.y1; ++y) {"
        yield "    const int64_t row = y * stride;"
        yield from self._row_settings(work)
        yield "    int64_t x = c.x0;"
        yield "    for (; x < head; x += kLanes) cells(row + x, x, std::true_type{});"
        yield "    for (; x < tail; x += kLanes) cells(row + x, x, std::false_type{});"
        yield "    for (; x < c.x1; x += kLanes) cells(row + x, x, std::true_type{});"
        yield "  }"

    def _block_loop(
        self,
        work: list[tuple[int, Assignment]],
        inputs: dict[tuple[str, int, int], str],
        vectors: int,
    ) -> Iterator[str]:
        """Rows of blocks of kBlock vectors, and of single ones at the end of a row."""
        found = block([a.expression for _, a in work], lambda access: self._offset(access)[1])
        before, inside = (
            [line.replace("REAL", self.real) for line in lines] for lines in spelled(found, inputs)
        )
        weights = [
            f"u.{self.uniform[weight]}" if weight in self.uniform else self._scalar(weight)
            for weight in found.weights
        ]
        yield f"  constexpr int kBlock = kRegisters == 32 ? {vectors} : {vectors // 2};"
        yield f"  const {self.real} given[] = {{{', '.join(weights)}}};"
        yield f"  const {self.real}* w = given;"
        yield '  asm volatile("" : "+r"(w) : : "memory");  // numbers are broadcast from memory'
        yield from (f"  {line}" for line in before)
        yield "  auto cells = [&](int64_t i, int64_t x, auto wide) __attribute__((always_inline)) {"
        yield "    constexpr int kWide = wide.value;"
        yield from (f"    {line}" for line in inside)
        yield "    if (x < head || x + kWide * kLanes > tail) {"
        for (plane, assignment), result in zip(work, found.results, strict=True):
            kept = f"load({inputs[assignment.field, -1, plane]} + i + n * kLanes)"
            chosen = f"within(x + n * kLanes, first, last) ? v{result}[n] : {kept}"
            yield f"      OG_VECTORS v{result}[n] = {chosen};"
        yield "    }"
        for (plane, assignment), result in zip(work, found.results, strict=True):
            to = f"{self.names[assignment.field]}_out{plane} + i + n * kLanes"
            yield f"    OG_VECTORS store({to}, v{result}[n]);"
        yield "  };"
        yield "  for (int64_t y = c.y0; y < c.y1; ++y) {"
        yield "    const int64_t row = y * stride;"
        yield "    int64_t x = c.x0;"
        yield "    for (; x + (kBlock - 1) * kLanes < c.x1; x += kBlock * kLanes) {"
        yield "      cells(row + x, x, std::integral_constant<int, kBlock>{});"
        yield "    }"
        yield "    for (; x < c.x1; x += kLanes) {"
        yield "      cells(row + x, x, std::integral_constant<int, 1>{});"
        yield "    }"
        yield "  }"

    def _rolled_loop(
        self,
        work: list[tuple[int, Assignment]],
        inputs: dict[tuple[str, int, int], str],
        rolled: tuple[Family, ...],
    ) -> Iterator[str]:
        """Rows of vectors that share values: r0[kReach] belongs to the current vector."""
        count = len(rolled)
        yield f"  V r[{count}][2 * kReach + 1];"
        yield "  auto ahead = [&](int64_t i) __attribute__((always_inline)) {"
        yield from (f"    {line}" for line in self._ahead(rolled, inputs))
        yield "  };"
        yield "  auto cells = [&](int64_t i, int64_t x, auto edge) __attribute__((always_inline)) {"
        yield "    (void)x;"
        yield from (f"    {line}" for line in self._body(work, inputs, rolled))
        yield "  };"
        yield "  auto roll = [&]() __attribute__((always_inline)) {"
        yield f"    for (int n = 0; n < {count}; ++n) {{"
        yield "      for (int v = 0; v < 2 * kReach; ++v) r[n][v] = r[n][v + 1];"
        yield "    }"
        yield "  };"
        yield "  auto next = [&](int64_t i, int64_t x, auto edge) __attribute__((always_inline)) {"
        yield "    ahead(i + kReach * kLanes);"
        yield "    cells(i, x, edge);"
        yield "    roll();"
        yield "  };"
        yield "  for (int64_t y = c.y0; y < c.y1; ++y) {"
        yield "    const int64_t row = y * stride;"
        yield from self._row_settings(work)
        yield "    for (int v = -kReach; v < kReach; ++v) {"
        yield "      ahead(row + c.x0 + v * kLanes);"
        yield "      roll();"
        yield "    }"
        yield "    int64_t x = c.x0;"
        yield "    for (; x < head; x += kLanes) next(row + x, x, std::true_type{});"
        yield "    for (; x < tail; x += kLanes) next(row + x, x, std::false_type{});"
        yield "    for (; x < c.x1; x += kLanes) next(row + x, x, std::true_type{});"
        yield "  }"

    def _inputs(
        self, work: list[tuple[int, Assignment]], stage: int, planes: int
    ) -> dict[tuple[str, int, int], str]:
        """Planes read, keyed by (field, version, plane offset); the kept value is read as well."""
        found: dict[tuple[str, int, int], str] = {}
        keys = [
            (node.field, node.level, node.offset[0])
            for _, assignment in work
            for node in nodes(assignment.expression)
            if isinstance(node, Access)
        ]
        updated = self._updated(stage)
        keys += [(field.name, -1, plane) for plane in range(planes) for field in updated]
        for field, version, plane in keys:
            sign = "m" if plane < 0 else "p"
            age = {0: "new_", -1: "", -2: "old_"}[version]
            name = f"{self.names[field]}_{age}{sign}{abs(plane)}"
            found.setdefault((field, version, plane), name)
        return found

    def _used_uniforms(self, work: list[tuple[int, Assignment]]) -> list[Expression]:
        """Uniform values that a cell needs, not those that only lead to them."""
        used: dict[Expression, None] = {}
        for _, assignment in work:
            for node in nodes(assignment.expression):
                if node in self.uniform:
                    continue
                if isinstance(node, Operation):
                    used |= {o: None for o in node.operands if o in self.uniform}
            if assignment.expression in self.uniform:
                used[assignment.expression] = None
        return list(used)

    def _ahead(
        self, rolled: tuple[Family, ...], inputs: dict[tuple[str, int, int], str]
    ) -> Iterator[str]:
        """Statements for the values that are evaluated one vector ahead."""
        values: dict[Expression, str] = {}
        for family in rolled:
            yield from self._statements(family.expression, values, inputs)
        for number, family in enumerate(rolled):
            yield f"r[{number}][2 * kReach] = {values[family.expression]};"

    def _statements(
        self,
        expression: Expression,
        values: dict[Expression, str],
        inputs: dict[tuple[str, int, int], str],
    ) -> Iterator[str]:
        """Statements for what ``values`` does not name yet; equal values are computed once."""
        for node in missing(expression, values):
            if node in self.uniform:
                values[node] = f"{self.uniform[node]}v"
            elif isinstance(node, Constant):
                values[node] = f"all({self._scalar(node)})"
            elif isinstance(node, Access):
                values[node] = f"v{len(values)}"
                yield f"const V {values[node]} = {self._load(node, inputs)};"
            elif isinstance(node, Operation):
                operands = [values[operand] for operand in node.operands]
                values[node] = f"v{len(values)}"
                spelled = SPELLING[node.name].format(*operands)
                yield f"const {self._vector(node)} {values[node]} = {spelled};"

    def _body(
        self,
        work: list[tuple[int, Assignment]],
        inputs: dict[tuple[str, int, int], str],
        rolled: tuple[Family, ...],
    ) -> Iterator[str]:
        """Statements for one vector of cells in each plane."""
        values: dict[Expression, str] = {
            node: f"shifted<{cut}>(r[{number}])"
            for number, family in enumerate(rolled)
            for node, cut in family.cuts.items()
        }
        results: list[tuple[int, str, str]] = []
        for plane, assignment in work:
            yield from self._statements(assignment.expression, values, inputs)
            results.append((plane, assignment.field, values[assignment.expression]))
        yield "if constexpr (edge.value) {"
        yield "  const M in = within(x, first, last);"
        for plane, field, value in results:
            kept = f"load({inputs[field, -1, plane]} + i)"
            yield f"  store({self.names[field]}_out{plane} + i, in ? {value} : {kept});"
        yield "} else {"
        for plane, field, value in results:
            yield f"  store({self.names[field]}_out{plane} + i, {value});"
        yield "}"

    def _load(self, access: Access, inputs: dict[tuple[str, int, int], str]) -> str:
        plane, row, column = self._offset(access)
        place = f"{inputs[access.field, access.level, plane]} + i"
        if row and self._image(access.field, "y") and self.stencil.ndim == 3:
            place += f" + {self.names[access.field]}_row_{'m' if row < 0 else 'p'}{abs(row)}"
        elif row:
            place += f" {'+' if row > 0 else '-'} {abs(row)} * stride"
        image = self._image(access.field, "x")
        if not column:
            return f"load({place})"
        beside = f"{'+' if column > 0 else '-'} {abs(column)}"
        if image is None:
            return f"load({place} {beside})"
        beyond = f"{image}_load({place} - x, x {beside}, s.columns)"
        return f"decltype(edge)::value ? {beyond} : load({place} {beside})"

    def _dispatch(self) -> str:
        """The largest group that fits into ``n`` planes; returns the planes taken."""
        lines = [
            "int64_t update_planes(const Slab& s, const Uniform& u, int64_t t, int stage,",
            "                      int64_t z, int64_t n, const Tile& c) {",
            "  (void)stage;",
        ]
        last = len(self.stages) - 1
        for stage in range(last + 1):
            lines.append(f"  if (stage == {stage}) {{" if stage < last else "  {")
            for planes in GROUPS:
                condition = f"if (n >= {planes}) " if planes > 1 else ""
                call = f"update_{stage}_{planes}(s, u, t, z, c), {planes}"
                lines.append(f"    {condition}return {call};")
            lines.append("  }")
        return "\n".join([*lines, "}", ""])


def missing(expression: Expression, known: Mapping[Expression, str]) -> tuple[Expression, ...]:
    """Nodes that are not known, operands first; nothing below a known node is looked at."""
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
            pending += [(operand, False) for operand in reversed(node.operands)]
    return tuple(ordered)
