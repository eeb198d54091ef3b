"""Masks: fields that never change and choose between values, folded in where they are all +0.

Most rows of a flow around walls have none: a row update that takes the mask for +0 makes there what
the whole one makes, to the bit, without comparing and choosing for each cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from outgrid.codegen.vanishing import truth, vanished
from outgrid.stencil.expression import (
    Access,
    Expression,
    Leaf,
    is_condition,
    nodes,
)
from outgrid.stencil.model import Stencil

__all__ = ["mask_fields", "masks", "without"]

# A second row update is compiled where an update has so many parts and a mask this share of them.
LEAST_PARTS, LEAST_SHARE = 200, 0.1


def masks(roots: Iterable[Expression], constant: Iterable[str], dtype: str) -> frozenset[str]:
    """Which of the ``constant`` fields choose so much in ``roots`` that +0 is worth folding in.

    ``dtype`` is what is computed in.
    """
    wanted, given = tuple(roots), frozenset(constant)
    before, after = nodes(*wanted), nodes(*without(wanted, given, dtype))
    if len(before) < LEAST_PARTS or len(before) - len(after) < LEAST_SHARE * len(before):
        return frozenset()
    conditions, zero = [node for node in before if is_condition(node)], _read_of(given)
    decided = nodes(*(node for node in conditions if truth(node, zero, dtype) is not None))
    return frozenset(node.field for node in decided if isinstance(node, Access))


def mask_fields(stencil: Stencil, dtype: str) -> frozenset[str]:
    """The masks of a stencil that is computed in ``dtype``.

    They are +0 nearly everywhere, and kernels use that.
    """
    constant = tuple(field.name for field in stencil.fields if not field.evolving)
    stages = ([a.expression for a in stage.assignments] for stage in stencil.stages)
    return frozenset(name for roots in stages for name in masks(roots, constant, dtype))


def without(
    roots: Iterable[Expression], masks: frozenset[str], dtype: str
) -> tuple[Expression, ...]:
    """The expressions where all cells of ``masks`` are +0: choices that this decides are made."""
    return vanished(roots, _read_of(masks), dtype)


def _read_of(masks: frozenset[str]) -> Callable[[Leaf], bool]:
    return lambda leaf: isinstance(leaf, Access) and leaf.field in masks
