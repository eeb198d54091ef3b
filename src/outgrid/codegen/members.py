"""What every ``struct Stencil`` says of itself, for any processor: numbers, planes, images."""

from __future__ import annotations

from collections.abc import Iterator

from outgrid.codegen.names import Names
from outgrid.codegen.spelling import SPELLING
from outgrid.plan.schedule.lifetime import ring_count
from outgrid.stencil.boundary import EVEN, STORED
from outgrid.stencil.expression import STEP, Operation, Parameter
from outgrid.stencil.region import kinds_of_regions
from outgrid.stencil.symbol import AXES


def layers(names: Names) -> str:
    """Cells of the fixed layer at each face."""
    low, high = zip(*names.edges.layers, strict=True)
    if names.stencil.ndim == 2:
        low, high = (low[0], 0, low[1]), (high[0], 0, high[1])
    faces = ("LowZ", "LowY", "LowX", "HighZ", "HighY", "HighX")
    pairs = zip(faces, (*low, *high), strict=True)
    return f"static constexpr int64_t {', '.join(f'k{name} = {n}' for name, n in pairs)};"


def by_field(names: Names) -> str:
    """What a field is, by its number: the stage that updates it, the type of its cells, its rows.

    Nobody looks at temporaries that are computed again: most of their cells are not made.
    """
    again = names.stencil.recomputed_set
    written = [
        None if field.name in again else names.stencil.writer(field.name)
        for field in names.stencil.fields
    ]
    tables = {
        "writer": ["-1" if stage is None else str(stage) for stage in written],
        "cell_kind": [f"kKind<{names.stored(field.name)}>" for field in names.stencil.fields],
    }
    narrow = ", ".join(str(field.name in names.narrow).lower() for field in names.stencil.fields)
    # Temporaries that are computed again have the table of regions for themselves.
    kinds = () if again else kinds_of_regions(names.stencil)
    bits = {name: 1 << n for n, kind in enumerate(kinds) for name in kind}
    absent = ", ".join(str(bits.get(field.name, 0)) for field in names.stencil.fields)
    lines = [
        f"static constexpr bool kNarrow[] = {{{narrow}}};",
        f"static constexpr int64_t kAbsent[] = {{{absent}}};  // bit of parts without it",
    ]
    for name, values in tables.items():
        lines.append(f"OG_INLINE int {name}(int64_t field) {{")
        lines.append(f"  constexpr int found[] = {{{', '.join(values)}}};")
        lines.append("  return found[field];\n}")
    lines.append(
        "OG_INLINE void* plane_of(const Slab& s, int64_t field, int64_t level, int64_t z) {"
    )
    for number, field in enumerate(names.stencil.fields):
        if field.evolving:
            plane = f"{names.fields[field.name]}_plane(s, level, z)"
            lines.append(f"  if (field == {number}) return {plane};")
    return "\n".join([*lines, "  return nullptr;", "}", ""])


def uniform_struct(names: Names) -> str:
    """Parameters, and what follows from them alone, in the precision of the fields."""
    lines = ["struct Uniform {"]
    lines += [f"  {names.type(node)} {name};" for node, name in names.uniform.items()]
    lines += ["  OG_INLINE Uniform of(const double* given) {", "    (void)given;"]
    for node, name in names.uniform.items():
        value = ""
        if isinstance(node, Parameter):
            number = (*names.stencil.parameters, STEP.name).index(node.name)
            value = f"{names.real}(given[{number}])"
        elif isinstance(node, Operation):
            operands = [names.uniform.get(o) or names.scalar(o) for o in node.operands]
            value = SPELLING[node.name].format(*operands)
        lines.append(f"    const {names.type(node)} {name} = {value};")
    made = ", ".join(names.uniform.values())
    return "\n".join([*lines, f"    return {{{made}}};", "  }", "};", ""])


def pointers(names: Names) -> str:
    """Access to the plane of a field at a level relative to the one being computed."""
    lines: list[str] = []
    start = 0
    for field in names.stencil.fields:
        plane = f"{names.stored(field.name)}*"
        count = ring_count(field, names.stencil)
        which = f"{start} + (level % {count} + {count}) % {count}" if count > 1 else f"{start}"
        if not field.evolving:  # the step that reads it may have a ring of its own
            which = f"{start} + s.ring_step * (level - s.base)"
        lines.append(
            f"OG_INLINE {plane} {names.fields[field.name]}_plane(const Slab& s, int64_t level, "
            f"int64_t z) {{\n  (void)level;\n"
            f"  return ({plane})s.rings[{which}][z] + s.row_offset;\n}}"
        )
        start += count
    return "\n".join(lines)


def row_images(names: Names) -> Iterator[str]:
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
    for field in names.stencil.fields:
        for axis in AXES[-names.stencil.ndim :]:
            name = names.image(field.name, axis)
            if name is None:
                continue
            rules = names.edges.rule(field.name, AXES.index(axis) - 3 + names.stencil.ndim)
            below, above = images[rules[0]][0], images[rules[1]][1]
            upper = "Z" if names.stencil.ndim == 2 and axis == "y" else axis.upper()
            yield (
                f"OG_INLINE int64_t {name}(int64_t i, int64_t n) {{\n"
                f"  const int64_t low = kLow{upper}, high = n - kHigh{upper};\n"
                f"  return i < low ? ({below}) : i >= high ? ({above}) : i;\n}}\n"
            )
            if names.sign(field.name, axis) is not None:
                signs = [
                    {"zero": f"(i == {first} ? 0 : -1)", "empty": "0"}.get(
                        rule, "-1" if rule in EVEN else "1"
                    )
                    for rule, first in zip(rules, ("low - 1", "high"), strict=True)
                ]
                yield (
                    f"OG_INLINE {names.real} {name}_sign(int64_t i, int64_t n) {{\n"
                    f"  const int64_t low = kLow{upper}, high = n - kHigh{upper};\n"
                    f"  return i < low ? {signs[0]} : i >= high ? {signs[1]} : 1;\n}}\n"
                )
