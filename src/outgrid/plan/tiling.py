"""Which tiles the updates of a slab are made in."""

from __future__ import annotations

from outgrid.config import RunOptions
from outgrid.errors import UsageError
from outgrid.machine import Machine
from outgrid.plan.calibration import Calibration, Sample
from outgrid.plan.layout import ITEM_BYTES, LINE_BYTES
from outgrid.plan.lifetime import dependences
from outgrid.plan.model import Tile
from outgrid.plan.skew import Slope, solve_both_ways
from outgrid.stencil.boundary import Edges
from outgrid.stencil.model import Stencil
from outgrid.stencil.problem import Problem

FRONT_PLANES = 4  # planes per step of the front: rows of one column are shared between them
TILE_COLUMNS = 512  # that rows at least twice as long are cut into
MOST_LEVELS = 64  # beyond, a diamond gains little and the pipeline through it gets long


def tile_slope(stencil: Stencil, dtype: str, edges: Edges | None = None) -> Slope:
    """How edges of diamonds move: rows in 3-D, whole lines of columns in 2-D.

    For one symmetric stage this is the radius, rounded up to a line.
    """
    found = dependences(stencil, edges, axis=1)
    unit = 1 if stencil.ndim == 3 else LINE_BYTES // ITEM_BYTES[dtype]
    return solve_both_ways(found.stages, found.readings, found.writings, unit)


def column_slope(stencil: Stencil, dtype: str, edges: Edges | None = None) -> Slope:
    """How edges between columns of a 3-D diamond fall, in whole lines; they never rise."""
    if stencil.ndim == 2:
        none = (0,) * len(stencil.stages)
        return Slope(1, 0, none, none)
    found = dependences(stencil, edges, axis=2)
    unit = LINE_BYTES // ITEM_BYTES[dtype]
    return solve_both_ways(found.stages, found.readings, found.writings, unit)


def columns_cut(problem: Problem) -> str:
    """Why diamonds of a problem may not cut rows; empty where they may."""
    if problem.ndim == 2:
        return "in two dimensions diamonds lie across the columns: run.tile_rows is their width"
    if problem.edges.periodic(2):
        return "rows that close round a circle are not cut"
    if problem.stencil.reductions:
        return "rows of which something is reduced are not cut"
    return ""


def tile_levels(tile: Tile, problem: Problem) -> int:
    """Levels H between rows of diamonds: a diamond of D cells widens by the slope for H levels."""
    if tile.order != "diamond":
        return 1
    slope = tile_slope(problem.stencil, problem.dtype, problem.edges)
    return max(1, tile.rows // (2 * slope.per_step))


def choose_tile(
    problem: Problem,
    machine: Machine,
    options: RunOptions,
    threads: int,
    depth: int,
    calibration: Calibration | None = None,
    together: bool = False,
) -> Tile:
    """Diamonds for deep sweeps, level order for one step.

    The fastest tile that was measured, else one sized to the caches; options override both.

    A diamond of H levels and slope b is D = 2*b*H wide. Its levels stand r planes apart, so it
    keeps about ``arrays * (D/2 * (2*H*r + planes) + 2*D)`` cells across, in 3-D each a row.
    Round a circle there are as many as threads, if it is long enough. Where all planes make each
    step ``together`` there is no front to go through tiles.
    """
    stencil = problem.stencil
    if depth < 2 or together:
        return Tile("level", options.tile_rows or 0, options.tile_planes or FRONT_PLANES)
    slope = tile_slope(stencil, problem.dtype, problem.edges).per_step
    arrays = sum(
        (2 if field.evolving else 1) * ITEM_BYTES[problem.dtype_of(field.name)]
        for field in stencil.fields
    )
    sample = calibration.best(depth) if calibration else None
    length = _length(problem, options, sample)
    across = (length or problem.shape[-1]) if stencil.ndim == 3 else 1
    cache = machine.l2_bytes
    planes = FRONT_PLANES
    if stencil.ndim == 3:
        cache += min(machine.l3_bytes // machine.cores, 8 << 20)
    reach = max(1, stencil.radius[0])

    def kept_bytes(levels: int) -> int:
        wide = 2 * slope * levels
        return arrays * across * (wide // 2 * (2 * levels * reach + planes) // 2 + 2 * wide)

    levels = 1
    while levels < min(MOST_LEVELS, max(1, depth // 2)) and kept_bytes(levels + 1) <= cache:
        levels += 1
    if sample is not None:
        levels, planes = sample.levels, sample.planes
        if levels == 1 and not options.tile_rows:
            return Tile("level", 0, options.tile_planes or planes)
    if problem.edges.periodic(1):
        levels = max(1, min(levels, problem.shape[1] // (2 * slope * threads)))
    if options.tile_rows:
        levels = max(1, options.tile_rows // (2 * slope))
    return Tile("diamond", 2 * slope * levels, options.tile_planes or planes, length)


def _length(problem: Problem, options: RunOptions, sample: Sample | None) -> int:
    """Columns of a part of a diamond, 0 for whole rows: as wanted, measured, or estimated."""
    columns, reason = problem.shape[-1], columns_cut(problem)
    if options.tile_columns is not None and reason:
        raise UsageError(f"run.tile_columns = {options.tile_columns}: {reason}; leave it out")
    wanted = options.tile_columns
    if wanted is None and sample is not None:
        wanted = sample.columns
    elif wanted is None and not reason and columns >= 2 * TILE_COLUMNS:
        wanted = TILE_COLUMNS
    return wanted if wanted is not None and wanted < columns else 0
