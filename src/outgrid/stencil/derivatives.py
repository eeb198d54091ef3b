"""Derivatives of expressions by their leaves, in reverse: as sums of what they depend on."""

from collections.abc import Iterable
from functools import reduce

from outgrid.errors import DefinitionError
from outgrid.stencil import expression as ex
from outgrid.stencil.expression import Constant, Expression, Operation, operation

__all__ = ["Linear", "derivatives", "summed"]

Linear = dict[Expression | None, Expression]
"""A sum of factors that differ from cell to cell (None: 1), each with what is the same for all."""

_ZERO, _ONE = Constant(0.0), Constant(1.0)


def derivatives(expression: Expression, active: Iterable[Expression]) -> dict[Expression, Linear]:
    """The derivative of an expression by each of the `active` leaves that it depends on.

    Raises DefinitionError where there is none.
    """
    wanted = set(active)
    order = ex.nodes(expression)
    depends: set[Expression] = set()
    for node in order:
        if node in wanted or (
            isinstance(node, Operation)
            and any(
                operand in depends and not ex.is_condition(operand) for operand in node.operands
            )
            and not ex.is_condition(node)
        ):
            depends.add(node)
    bars: dict[Expression, Linear] = {expression: {None: _ONE}}
    for node in reversed(order):
        if node not in depends or node not in bars or not isinstance(node, Operation):
            continue
        for operand, factor in zip(node.operands, _partial(node), strict=True):
            if operand in depends and factor is not None and factor != _ZERO:
                bar = bars.setdefault(operand, {})
                for rest, scale in _times(bars[node], factor).items():
                    bar[rest] = operation("add", bar[rest], scale) if rest in bar else scale
    return {leaf: bars[leaf] for leaf in order if leaf in wanted and leaf in bars}


def _times(bar: Linear, factor: Expression) -> Linear:
    if ex.is_uniform(factor):
        return {rest: operation("mul", scale, factor) for rest, scale in bar.items()}
    if list(bar) == [None]:
        return {factor: bar[None]}
    if len(bar) == 1:
        ((rest, scale),) = bar.items()
        assert rest is not None
        return {operation("mul", rest, factor): scale}
    return {operation("mul", _whole(bar), factor): _ONE}


def _whole(bar: Linear) -> Expression:
    """The sum as one expression."""
    return summed(
        scale if rest is None else operation("mul", scale, rest) for rest, scale in bar.items()
    )


def summed(terms: Iterable[Expression]) -> Expression:
    """The sum of expressions, from the first to the last; 0 where there are none."""
    parts = list(terms)
    return reduce(lambda a, b: operation("add", a, b), parts) if parts else _ZERO


def _partial(node: Operation) -> tuple[Expression | None, ...]:
    """The derivative by each operand; None for conditions, which have none."""
    minus = Constant(-1.0)
    a, *others = node.operands
    b = others[0] if others else a
    match node.name:
        case "add":
            return _ONE, _ONE
        case "sub":
            return _ONE, minus
        case "neg":
            return (minus,)
        case "mul":
            return b, a
        case "div":
            # The square of b may be too large or too small where the quotient is not.
            return operation("div", _ONE, b), operation("neg", operation("div", node, b))
        case "fma":
            return b, a, _ONE
        case "abs":
            below, above = operation("lt", a, _ZERO), operation("lt", _ZERO, a)
            rising = operation("where", above, _ONE, _ZERO)
            return (operation("where", below, minus, rising),)
        case "min" | "max":
            first = operation("lt", *((a, b) if node.name == "min" else (b, a)))
            return operation("where", first, _ONE, _ZERO), operation("where", first, _ZERO, _ONE)
        case "where":
            return None, operation("where", a, _ONE, _ZERO), operation("where", a, _ZERO, _ONE)
        case "sqrt":
            return (operation("div", Constant(0.5), node),)
        case "exp":
            return (node,)
        case "log":
            return (operation("div", _ONE, a),)
        case "sin":
            return (operation("cos", a),)
        case "cos":
            return (operation("neg", operation("sin", a)),)
        case "tanh":
            # 1 / cosh(a)**2: what is left of 1 - node**2 is rounding where the node is nearly 1.
            small = operation("exp", operation("neg", operation("abs", a)))
            whole = operation("add", _ONE, operation("mul", small, small))
            slope = operation("div", operation("add", small, small), whole)
            return (operation("mul", slope, slope),)
        case "pow":
            lower = operation("pow", a, operation("sub", b, _ONE))
            by_base = operation("mul", b, lower)
            if isinstance(b, Constant):
                return by_base, None
            # Powers of 0 stay 0 for any exponent above 0, and its logarithm is infinite.
            above = operation("where", operation("eq", a, _ZERO), _ONE, a)
            return by_base, operation("mul", node, operation("log", above))
        case _:
            raise DefinitionError(
                f"{node.name!r} of a value that the gradient depends on has no derivative; "
                "floor, ceil, trunc, round, //, % and fields of whole numbers use it"
            )
