"""Masks: fields that never change and choose between values, folded in where they are all +0.

Most rows of a flow around walls have none: a row update that takes the mask for +0 makes there what
the whole one makes, to the bit, without comparing and choosing for each cell.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from outgrid.stencil.expression import (
    OPERATIONS,
    Access,
    Constant,
    Expression,
    Operation,
    is_condition,
    nodes,
)
from outgrid.stencil.model import Stencil

__all__ = ["folded", "mask_fields", "masks"]

# A second row update is compiled where an update has so many parts and a mask this share of them.
LEAST_PARTS, LEAST_SHARE = 200, 0.1


def masks(roots: Iterable[Expression], constant: Iterable[str], dtype: str) -> frozenset[str]:
    """Which of the ``constant`` fields choose so much in ``roots`` that +0 is worth folding in.

    ``dtype`` is what is computed in.
    """
    wanted, given = tuple(roots), frozenset(constant)
    before, after = nodes(*wanted), nodes(*folded(wanted, given, dtype))
    if len(before) < LEAST_PARTS or len(before) - len(after) < LEAST_SHARE * len(before):
        return frozenset()
    conditions = [node for node in before if is_condition(node)]
    decided = nodes(*(node for node in conditions if _truth(node, given, dtype) is not None))
    return frozenset(node.field for node in decided if isinstance(node, Access))


def mask_fields(stencil: Stencil, dtype: str) -> frozenset[str]:
    """The masks of a stencil that is computed in ``dtype``.

    They are +0 nearly everywhere, and kernels use that.
    """
    constant = tuple(field.name for field in stencil.fields if not field.evolving)
    stages = ([a.expression for a in stage.assignments] for stage in stencil.stages)
    return frozenset(name for roots in stages for name in masks(roots, constant, dtype))


def folded(
    roots: Iterable[Expression], masks: frozenset[str], dtype: str
) -> tuple[Expression, ...]:
    """The expressions where all cells of ``masks`` are +0: choices that this decides are made."""
    wanted, made = tuple(roots), dict[Expression, Expression]()
    for node in nodes(*wanted):
        made[node] = node
        if isinstance(node, Operation):
            operands = tuple(made[operand] for operand in node.operands)
            truth = _truth(node.operands[0], masks, dtype) if node.name == "where" else None
            if truth is not None:
                made[node] = operands[1 if truth else 2]
            elif operands != node.operands:
                made[node] = Operation(node.name, operands)
    return tuple(made[root] for root in wanted)


def _truth(condition: Expression, masks: frozenset[str], dtype: str) -> bool | None:
    """What a condition is where all cells of ``masks`` are +0; None where that decides nothing.

    Constants are rounded to ``dtype``, as kernels round them.
    """
    real = np.dtype(dtype).type
    values = dict[Expression, Any]()
    for node in nodes(condition):
        values[node] = None
        if isinstance(node, Constant):
            with np.errstate(over="ignore"):
                values[node] = real(node.value)
        elif isinstance(node, Access) and node.field in masks:
            values[node] = real(0)
        elif isinstance(node, Operation) and is_condition(node):
            operands = [values[operand] for operand in node.operands]
            if None not in operands:
                values[node] = bool(OPERATIONS[node.name].function(*operands))
    truth = values[condition]
    return truth if isinstance(truth, bool) else None
