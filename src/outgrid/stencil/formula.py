"""An update rule as MathML, which browsers and notebooks draw without a script."""

from __future__ import annotations

from outgrid.markup import facts, safe
from outgrid.stencil import expression as ex
from outgrid.stencil.expression import Access, Constant, Expression, Operation, Parameter, Profile
from outgrid.stencil.model import Assignment, Stencil
from outgrid.stencil.symbol import AXES

__all__ = ["equations", "shown"]

MOST_SYMBOLS = 400
"""Of a longer rule nobody reads the formula."""

Drawn = tuple[str, int]
"""MathML, and how tightly it binds: sums 1, products 2, others 3; comparisons and logic 0."""

SIGNS = {
    "add": ("+", 1),
    "sub": ("&#8722;", 1),
    "mul": ("&#8901;", 2),
    "lt": ("&lt;", 0),
    "le": ("&#8804;", 0),
    "eq": ("=", 0),
    "ne": ("&#8800;", 0),
    "and": ("&#8743;", 0),
    "or": ("&#8744;", 0),
}


def shown(stencil: Stencil) -> str:
    """A stencil as a notebook shows it: how far it reads, what it costs, its update rule."""
    levels = {1: "", 2: " (two levels)"}
    rows = [
        ("dimensions", str(stencil.ndim)),
        ("fields", ", ".join(f"{field.name}{levels[field.levels]}" for field in stencil.evolving)),
        ("coefficients", ", ".join(field.name for field in stencil.coefficients)),
        ("parameters", ", ".join(stencil.parameters)),
        ("radius", " x ".join(map(str, stencil.radius))),
        ("stages", str(len(stencil.stages))),
        ("operations", f"{stencil.flops} for each cell and step"),
    ]
    drawn = "".join(equations(stencil))
    return facts(f"stencil {stencil.name}", rows, f"<div style='overflow-x:auto'>{drawn}</div>")


def equations(stencil: Stencil) -> list[str]:
    """Each assignment of a stencil as MathML; in words where it is too long to be read."""
    axes, equations = tuple(AXES[-stencil.ndim :]), list[str]()
    for number, stage in enumerate(stencil.stages):
        for made in stage.assignments:
            equations.append(_equation(stencil, number, made, axes))
    return equations


def _equation(stencil: Stencil, stage: int, made: Assignment, axes: tuple[str, ...]) -> str:
    here = Access(made.field, 0, (0,) * stencil.ndim)
    left = _value(here, axes, 0)
    if _symbols(made.expression) > MOST_SYMBOLS:
        count = len(ex.accesses(made.expression))
        right = f"<mtext>{count} values, {ex.flops(made.expression)} operations</mtext>"
    else:
        right = _drawn(stencil, stage, made.expression, axes)[0]
    body = f"<mrow>{left}<mo>=</mo>{right}</mrow>"
    drawn = f"<math xmlns='http://www.w3.org/1998/Math/MathML' displaystyle='true'>{body}</math>"
    return f"<div style='margin:.5em 0'>{drawn}</div>"


def _symbols(expression: Expression) -> int:
    """How many symbols are written, shared parts as often as they are used."""
    size: dict[Expression, int] = {}
    for node in ex.nodes(expression):
        parts = node.operands if isinstance(node, Operation) else ()
        size[node] = 1 + sum(size[part] for part in parts)
    return size[expression]


def _drawn(stencil: Stencil, stage: int, expression: Expression, axes: tuple[str, ...]) -> Drawn:
    drawn: dict[Expression, Drawn] = {}
    for node in ex.nodes(expression):
        match node:
            case Constant(value):
                drawn[node] = f"<mn>{value:.6g}</mn>", 3 if value >= 0 else 0
            case Parameter(name):
                drawn[node] = f"<mi>{safe(name)}</mi>", 3
            case Profile(name, axis):
                drawn[node] = f"<msub><mi>{safe(name)}</mi><mi>{safe(axes[axis])}</mi></msub>", 3
            case Access(name):
                evolves = stencil.field(name).evolving
                time = stencil.version(stage, node) if evolves else None
                drawn[node] = _value(node, axes, time), 3
            case Operation(name, operands):
                drawn[node] = _operation(name, [drawn[part] for part in operands])
    return drawn[expression]


def _value(access: Access, axes: tuple[str, ...], version: int | None) -> str:
    """A field at a cell, at time n + 1 for version 0, n for -1; a coefficient has no time."""
    places = "<mo>,</mo>".join(
        f"<mi>{safe(axis)}</mi>" + (_signed(offset) if offset else "")
        for axis, offset in zip(axes, access.offset, strict=True)
    )
    name, cell = f"<mi>{safe(access.field)}</mi>", f"<mrow>{places}</mrow>"
    if version is None:
        return f"<msub>{name}{cell}</msub>"
    time = "<mi>n</mi>" + (_signed(version + 1) if version + 1 else "")
    return f"<msubsup>{name}{cell}<mrow>{time}</mrow></msubsup>"


def _signed(number: int) -> str:
    sign = "+" if number > 0 else "&#8722;"
    return f"<mo>{sign}</mo><mn>{abs(number)}</mn>"


def _operation(name: str, parts: list[Drawn]) -> Drawn:
    if name in SIGNS:
        sign, binds = SIGNS[name]
        # The right operand of a difference binds more tightly than the difference itself.
        right = binds + 1 if name == "sub" else binds
        left_part, right_part = _within(parts[0], max(binds, 1)), _within(parts[1], max(right, 1))
        return f"<mrow>{left_part}<mo>{sign}</mo>{right_part}</mrow>", binds
    match name:
        case "div":
            return f"<mfrac>{_row(parts[0])}{_row(parts[1])}</mfrac>", 3
        case "neg":
            return f"<mrow><mo>&#8722;</mo>{_within(parts[0], 2)}</mrow>", 1
        case "pow":
            return f"<msup>{_within(parts[0], 4)}{_row(parts[1])}</msup>", 3
        case "sqrt":
            return f"<msqrt>{parts[0][0]}</msqrt>", 3
        case "abs":
            return f"<mrow><mo>|</mo>{parts[0][0]}<mo>|</mo></mrow>", 3
        case "not":
            return f"<mrow><mo>&#172;</mo>{_within(parts[0], 3)}</mrow>", 0
        case "fma":
            return _operation("add", [_operation("mul", parts[:2]), parts[2]])
        case "where":
            condition, one, other = (part for part, _ in parts)
            rows = _case(one, f"<mtext>if&#160;</mtext>{condition}")
            rows += _case(other, "<mtext>else</mtext>")
            return f"<mrow><mo>{{</mo><mtable>{rows}</mtable></mrow>", 1
        case _:
            inside = "<mo>,</mo>".join(part for part, _ in parts)
            return f"<mrow><mi>{name}</mi><mo>(</mo>{inside}<mo>)</mo></mrow>", 3


def _case(value: str, when: str) -> str:
    return f"<mtr><mtd>{value}</mtd><mtd><mrow>{when}</mrow></mtd></mtr>"


def _row(part: Drawn) -> str:
    return f"<mrow>{part[0]}</mrow>"


def _within(part: Drawn, binds: int) -> str:
    """A part of an operation, in parentheses where it binds less tightly."""
    drawn, mine = part
    return drawn if mine >= binds else f"<mrow><mo>(</mo>{drawn}<mo>)</mo></mrow>"
