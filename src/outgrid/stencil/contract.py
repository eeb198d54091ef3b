"""Where a multiplication and an addition fuse: one rule, applied before any code is generated.

Compilers fuse where they like, which changes last bits from one variant of a kernel to the next. So
the tree says it instead, and every variant evaluates the same fused tree.
"""

from typing import TypeGuard

from outgrid.stencil.expression import (
    Expression,
    Operation,
    is_uniform,
    nodes,
    operation,
    the_one,
)

__all__ = ["contract"]


def contract(expression: Expression) -> Expression:
    """The tree with sums of products written as fma(a, b, c) = a*b + c, rounded once.

    a*b + c and c + a*b become fma(a, b, c); a*b - c becomes fma(a, b, -c); c - a*b becomes
    fma(-a, b, c). Where both sides are products the left one is fused. A product that is uniform
    over the grid is left alone: it is computed once per run, so a plain addition is as cheap, and
    uniform parts never contain an fma.
    """
    done: dict[Expression, Expression] = {}
    for node in nodes(expression):
        if not isinstance(node, Operation):
            done[node] = node
        elif node.name in ("add", "sub"):
            left, right = (done[operand] for operand in node.operands)
            done[node] = _sum(node.name, left, right)
        else:
            done[node] = _joined(node.name, *(done[operand] for operand in node.operands))
    return done[expression]


def _sum(name: str, left: Expression, right: Expression) -> Expression:
    if _is_product(left):
        addend = right if name == "add" else operation("neg", right)
        return _joined("fma", *left.operands, addend)
    if _is_product(right):
        first, second = right.operands
        factor = first if name == "add" else operation("neg", first)
        return _joined("fma", factor, second, left)
    return _joined(name, left, right)


def _joined(name: str, *operands: Expression) -> Operation:
    """The operation as it is: nothing is folded, and equal ones are the same object."""
    return the_one(Operation(name, operands))


def _is_product(node: Expression) -> TypeGuard[Operation]:
    return isinstance(node, Operation) and node.name == "mul" and not is_uniform(node)
