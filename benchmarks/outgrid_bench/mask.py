"""Masks of weights that all differ: 3 x 3, and 15 x 15, the widest stencil that is measured.

Filters of this size are what image processing does; every update makes 225 multiply-adds, so the
cores bound it and not the memory.
"""

from __future__ import annotations

import math

from outgrid import stencil
from outgrid.parts import FieldSymbol, Symbol

__all__ = ["mask3", "mask15", "weights"]


def weights(radius: int) -> dict[tuple[int, int], float]:
    """Weight per offset (y, x): a bell, tilted so that no two weights agree; their sum is 1."""
    reach, width = range(-radius, radius + 1), (radius + 2) / 3
    bell = {
        (y, x): math.exp(-(y * y + x * x) / (2 * width * width)) * (1 + 0.01 * y + 0.003 * x)
        for y in reach
        for x in reach
    }
    total = math.fsum(bell.values())
    return {offset: weight / total for offset, weight in bell.items()}


def weighted(u: FieldSymbol, radius: int) -> Symbol:
    """Weighted mean of the square around a cell."""
    taps = [weight * u[y, x] for (y, x), weight in weights(radius).items()]
    total = taps[0]
    for tap in taps[1:]:
        total = total + tap
    return total


@stencil(ndim=2)
def mask3(u: FieldSymbol) -> Symbol:
    """Weighted mean of the 3 x 3 cells around a cell."""
    return weighted(u, 1)


@stencil(ndim=2)
def mask15(u: FieldSymbol) -> Symbol:
    """Weighted mean of the 15 x 15 cells around a cell."""
    return weighted(u, 7)
