"""Whether a problem may be computed in folded rows, and in how many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from outgrid.folding import Folding
from outgrid.stencil.boundary import STORED

if TYPE_CHECKING:
    from outgrid.stencil.problem import Problem

__all__ = ["folding_of", "why_not_folded"]

LEAST_BYTES = 16  # of a row in a vector: shorter parts take more instructions to cut


def folding_of(problem: Problem, vector_bytes: int) -> Folding | None:
    """How rows of a problem are folded on a processor with such vectors, None if they are not.

    In as many rows as the stencil reads beyond the updated one, or one more, since edges of tiles
    lie between folded rows.
    """
    if why_not_folded(problem):
        return None
    rows = 1
    while rows < problem.stencil.radius[1] and 2 * rows * LEAST_BYTES <= vector_bytes:
        rows *= 2
    return Folding(rows, vector_bytes) if rows > 1 else None


def why_not_folded(problem: Problem) -> str:
    """Why rows of a problem cannot be folded, in words; empty where they can."""
    return next(_reasons(problem), "")


def _reasons(problem: Problem) -> Iterator[str]:
    stencil, edges = problem.stencil, problem.edges
    if problem.ndim != 3:
        yield "a plane of a grid in 2-D is one row"
        return
    if problem.dtypes:
        yield "fields of other types have vectors of their own"
    if stencil.recomputed:
        yield "rows are updated in parts, where temporaries are computed again"
    if stencil.reductions:
        yield "reductions are made row by row"
    for axis, name in ((1, "y"), (2, "x")):
        if any(edges.rule(field.name, axis) != (STORED, STORED) for field in stencil.fields):
            yield f"beyond the faces of {name} there are images of cells"
    if any(any(edges.odd(axis)) for axis in range(3)):
        yield "images change their sign"
