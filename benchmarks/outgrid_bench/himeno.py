"""The Himeno benchmark: Jacobi sweeps for a pressure with general coefficients, 14 arrays.

Each update makes 34 operations and reads 12 arrays that never change: more bytes for each operation
than any other stencil that is measured.
"""

from __future__ import annotations

from outgrid import stencil
from outgrid.parts import FieldSymbol, Symbol

__all__ = ["FLOPS", "INITIAL", "himeno"]

FLOPS = 34
INITIAL: dict[str, str | float] = {
    "p": "z**2 / (nz - 1)**2",
    "residual": 0.0,
    **dict.fromkeys(("a0", "a1", "a2"), 1.0),
    "a3": 1 / 6,
    **dict.fromkeys(("b0", "b1", "b2"), 0.0),
    **dict.fromkeys(("c0", "c1", "c2"), 1.0),
    "source": 0.0,
    "inside": 1.0,
}


@stencil(ndim=3)
def himeno(
    p: FieldSymbol,
    residual: FieldSymbol,
    a0: FieldSymbol,
    a1: FieldSymbol,
    a2: FieldSymbol,
    a3: FieldSymbol,
    b0: FieldSymbol,
    b1: FieldSymbol,
    b2: FieldSymbol,
    c0: FieldSymbol,
    c1: FieldSymbol,
    c2: FieldSymbol,
    source: FieldSymbol,
    inside: FieldSymbol,
    *,
    omega: float = 0.8,
) -> dict[str, Symbol]:
    """The pressure after one step, and by how much it would have changed without relaxation."""
    ahead = a0 * p[1, 0, 0] + a1 * p[0, 1, 0] + a2 * p[0, 0, 1]
    behind = c0 * p[-1, 0, 0] + c1 * p[0, -1, 0] + c2 * p[0, 0, -1]
    corners = (
        b0 * (p[1, 1, 0] - p[1, -1, 0] - p[-1, 1, 0] + p[-1, -1, 0])
        + b1 * (p[0, 1, 1] - p[0, -1, 1] - p[0, 1, -1] + p[0, -1, -1])
        + b2 * (p[1, 0, 1] - p[-1, 0, 1] - p[1, 0, -1] + p[-1, 0, -1])
    )
    change = ((ahead + corners + behind + source) * a3 - p) * inside
    return {"p": p + omega * change, "residual": change}
