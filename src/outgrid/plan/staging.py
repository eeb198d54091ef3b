"""Which stages are made in parts, so that the planes of a step trail those before it by fewer."""

from __future__ import annotations

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
        joined: list[tuple[str, ...]] = []
        for at, part in enumerate(parts):
            for place, other in enumerate(joined):
                together = [*joined[:place], (*other, *part), *joined[place + 1 :]]
                if moves((*before, *together, *parts[at + 1 :], *after)) == best:
                    joined = together
                    break
            else:
                joined.append(part)
        smallest[number] = tuple(joined)
    found = sum(smallest, ())
    return found if staged(stencil, found).flops <= MOST_FLOPS * stencil.flops else ()
