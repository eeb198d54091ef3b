"""A 15 x 15 mask: 225 weights that all differ, the widest stencil that is measured.

Filters of this size are what image processing does; every update makes 225 multiply-adds, so the
cores bound it and not the memory.
"""

from __future__ import annotations

import math

from outgrid.stencil.definition import stencil
from outgrid.stencil.symbol import FieldSymbol, Symbol

__all__ = ["RADIUS", "mask15", "weights"]

RADIUS = 7
WIDTH = 3.0


def weights() -> dict[tuple[int, int], float]:
    """Weight per offset (y, x): a bell, tilted so that no two weights agree; their sum is 1."""
    reach = range(-RADIUS, RADIUS + 1)
    bell = {
        (y, x): math.exp(-(y * y + x * x) / (2 * WIDTH * WIDTH)) * (1 + 0.01 * y + 0.003 * x)
        for y in reach
        for x in reach
    }
    total = math.fsum(bell.values())
    return {offset: weight / total for offset, weight in bell.items()}


@stencil(ndim=2)
def mask15(u: FieldSymbol) -> Symbol:
    """Weighted mean of the 15 x 15 cells around a cell."""
    taps = [weight * u[y, x] for (y, x), weight in weights().items()]
    total = taps[0]
    for tap in taps[1:]:
        total = total + tap
    return total
