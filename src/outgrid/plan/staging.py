"""Which stages are made in parts, so that the planes of a step trail those before it by fewer."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from outgrid.plan.schedule.lifetime import dependences
from outgrid.plan.tiling import tile_slope
from outgrid.stencil.boundary import Edges
from outgrid.stencil.model import Staging, Stencil
from outgrid.stencil.problem import Problem
from outgrid.stencil.staged import independent, staged

__all__ = ["staging_of"]

MOST_FLOPS = 1.1  # of those of whole stages: parts make what they share more than once


def staging_of(problem: Problem) -> Staging:
    """The parts of stages with which a step trails the one before it by the fewest planes.

    As few parts as lead to this skew, and to the lowest slope of edges of tiles that parts lead to.
    Empty if whole stages have that skew.
    """
    return _staging_of(problem.stencil, problem.dtype, problem.edges)


@lru_cache(maxsize=64)
def _staging_of(stencil: Stencil, dtype: str, edges: Edges) -> Staging:
    if stencil.recomputed or stencil.staged:
        return ()

    def moves(staging: Staging) -> tuple[int, int]:
        changed = staged(stencil, staging)
        skew = dependences(changed, edges).skew().per_step
        return skew, tile_slope(changed, dtype, edges).per_step

    whole = tuple(stage.updated for stage in stencil.stages)
    smallest = [independent(stage) for stage in stencil.stages]
    best = moves(sum(smallest, ()))
    if best[0] >= moves(whole)[0]:
        return ()
    for number, parts in enumerate(smallest):
        before, after = sum(smallest[:number], ()), sum(smallest[number + 1 :], ())

        def as_good(middle: Staging, before: Staging = before, after: Staging = after) -> bool:
            return moves((*before, *middle, *after)) == best

        smallest[number] = _joined(parts, as_good)
    found = sum(smallest, ())
    return found if staged(stencil, found).flops <= MOST_FLOPS * stencil.flops else ()


def _joined(parts: Staging, as_good: Callable[[Staging], bool]) -> Staging:
    """Fewer ``parts``, each with the first ones that it can be joined to."""
    joined: Staging = ()
    for at, part in enumerate(parts, start=1):
        wider = ((*joined[:n], (*one, *part), *joined[n + 1 :]) for n, one in enumerate(joined))
        fit = (each for each in wider if as_good((*each, *parts[at:])))
        joined = next(fit, (*joined, part))
    return joined
