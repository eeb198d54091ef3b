"""Whether a problem may be computed in folded rows, and in how many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from outgrid.folding import Folding
from outgrid.numbers import item_bytes
from outgrid.stencil.boundary import STORED

if TYPE_CHECKING:
    from outgrid.stencil.problem import Problem

__all__ = ["folding_of", "whole_shape", "why_not_folded", "why_shape_not_folded"]

LINE_BYTES = 64
LEAST_BYTES = 16  # of a row in a vector: shorter parts take more instructions to cut


def folding_of(problem: Problem, vector_bytes: int) -> Folding | None:
    """How rows of a problem are folded on a processor with such vectors, None if they are not.

    In as many rows as the stencil reads beyond the updated one, or one more, since edges of tiles
    lie between folded rows; in less where the grid has not whole groups of so many.
    """
    rows = 1 if why_not_folded(problem) else _wanted_rows(problem, vector_bytes)
    while rows > 1:
        if not _why_shape(problem, rows):
            return Folding(rows, vector_bytes)
        rows //= 2
    return None


def why_not_folded(problem: Problem) -> str:
    """Why rows of a problem cannot be folded on any grid, in words; empty where they can."""
    return next(_reasons(problem), "")


def why_shape_not_folded(problem: Problem, vector_bytes: int) -> str:
    """Why they cannot on the grid of the problem; empty where they can, or would not be at all."""
    unfit = why_not_folded(problem) or folding_of(problem, vector_bytes) is not None
    return "" if unfit or _wanted_rows(problem, vector_bytes) == 1 else _why_shape(problem, 2)


def whole_shape(problem: Problem, vector_bytes: int) -> tuple[int, ...]:
    """The smallest grid, no smaller than that of a problem, on which they can."""
    rows, line = _wanted_rows(problem, vector_bytes), LINE_BYTES // item_bytes(problem.dtype)
    planes, high, wide = problem.shape
    return planes, -(-high // rows) * rows, -(-wide // line) * line


def _wanted_rows(problem: Problem, vector_bytes: int) -> int:
    rows, reach = 1, problem.stencil.radius[1] if problem.ndim == 3 else 0
    while rows < reach and 2 * rows * LEAST_BYTES <= vector_bytes:
        rows *= 2
    return rows


def _why_shape(problem: Problem, rows: int) -> str:
    if problem.shape[1] % rows:
        return f"{problem.shape[1]} rows are not whole groups of {rows}"
    if problem.shape[2] * item_bytes(problem.dtype) % LINE_BYTES:
        return f"rows of {problem.shape[2]} cells are not whole lines of a cache"
    return ""


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
