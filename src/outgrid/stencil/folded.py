"""Whether a problem may be computed in folded rows, and in how many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from outgrid.folding import Folding
from outgrid.stencil.boundary import STORED
from outgrid.stencil.region import regional

if TYPE_CHECKING:
    from outgrid.stencil.problem import Problem

__all__ = ["folding_of", "why_not_folded"]

IMAGES = {STORED, "neumann", "mirror", "periodic"}
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
    rules = [{*edges.rule(field.name, axis)} for field in stencil.fields for axis in (1, 2)]
    if any("periodic" in rule for rule in rules[::2]):
        yield "rows that come round again may begin amid a group"
    if any(any(edges.odd(axis)) for axis in range(3)) or not set[str]().union(*rules) <= IMAGES:
        yield "images change their sign"
    if regional(stencil) and any(rule != {STORED} for rule in rules):
        yield "beyond faces there are images of cells that may lie in a region"
