"""Which tiles the updates of a slab are made in."""

from __future__ import annotations

from outgrid.config import RunOptions
from outgrid.machine import Machine
from outgrid.plan.layout import ITEM_BYTES
from outgrid.plan.model import Tile
from outgrid.stencil.model import Stencil
from outgrid.stencil.problem import Problem

FRONT_PLANES = 2  # planes per step of the front: rows of one column are shared between them


def tile_levels(tile: Tile, stencil: Stencil) -> int:
    """Levels H between rows of diamonds: a diamond of D rows grows by the radius for H levels."""
    if tile.order != "diamond" or stencil.ndim != 3:
        return 1
    return max(1, tile.rows // (2 * max(1, stencil.radius[1])))


def _front_planes(problem: Problem, machine: Machine, threads: int) -> int:
    """Rows of a 2-D grid that the front moves at once: as many as half of the caches hold."""
    arrays = sum(2 if field.evolving else 1 for field in problem.stencil.fields)
    row_bytes = problem.shape[-1] * ITEM_BYTES[problem.dtype]
    planes = threads * machine.l2_bytes // 2 // (arrays * row_bytes)
    return max(2, min(64, planes // 4 * 4))


def choose_tile(
    problem: Problem, machine: Machine, options: RunOptions, threads: int, depth: int
) -> Tile:
    """Diamonds in 3-D and a narrow front in 2-D, sized to the caches; level order for one step.

    A diamond of D rows and radius r keeps about ``arrays * (D*D/(2r) + 2D)`` rows in cache.
    """
    stencil = problem.stencil
    if depth < 2:
        return Tile("level", options.tile_rows or 0, 1)
    if stencil.ndim != 3:
        return Tile("front", 0, _front_planes(problem, machine, threads))
    radius = max(1, stencil.radius[1])
    arrays = sum(2 if field.evolving else 1 for field in stencil.fields)
    row_bytes = problem.shape[-1] * ITEM_BYTES[problem.dtype]
    cache = machine.l2_bytes + min(machine.l3_bytes // machine.cores, 8 << 20)
    rows = 2 * radius
    while arrays * ((rows + 2 * radius) ** 2 / (2 * radius) + 2 * rows) * row_bytes <= cache:
        rows += 2 * radius
    rows = min(rows, 2 * radius * max(1, depth // 2))
    rows = options.tile_rows or rows
    rows = max(2 * radius, rows // (2 * radius) * (2 * radius))
    return Tile("diamond", rows, FRONT_PLANES)
