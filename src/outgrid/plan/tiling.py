"""Which tiles the updates of a slab are made in."""

from __future__ import annotations

from functools import lru_cache
from itertools import product

from msgspec.structs import replace

from outgrid.config import RunOptions
from outgrid.errors import UsageError
from outgrid.machine import Machine
from outgrid.plan.calibration import Calibration, Sample
from outgrid.plan.cost import rates, waiting_share
from outgrid.plan.layout import ITEM_BYTES, LINE_BYTES
from outgrid.plan.model import MOST_GROUP, Tile
from outgrid.plan.schedule.lifetime import dependences, row_unit
from outgrid.plan.schedule.skew import Slope, solve_both_ways
from outgrid.stencil.boundary import Edges
from outgrid.stencil.model import Stencil
from outgrid.stencil.problem import Problem

FRONT_PLANES = 4  # planes per step of the front: rows of one column are shared between them
LARGE_FRONT_PLANES = 8  # where bands of as many rows fit
TILE_COLUMNS = 512  # that rows at least twice as long are cut into, where bands of them get thin
MOST_LEVELS = 64  # beyond, a diamond gains little and the pipeline through it gets long
TILES_PER_THREAD = 2  # in a row of diamonds, at the least
LEAST_GAIN = 0.1  # of a plain update's time, that no longer waiting for memory saves
BAND_SHARE = 0.6  # of the second-level cache, for what a level of a band reads and writes
MOST_SHARED_BYTES = 8 << 20  # of a third level that a core uses: others take of it as well
# Levels of diamonds that are measured, and estimated, by the dimensions of the grid.
LEVELS = {2: (8, 16, 24, 32, 48, 64), 3: (2, 4, 6, 8, 12, 16, 24, 32)}


@lru_cache(maxsize=64)
def tile_slope(stencil: Stencil, dtype: str, edges: Edges | None = None) -> Slope:
    """How edges of diamonds move: rows in 3-D, whole lines of columns in 2-D.

    For one symmetric stage this is the radius, rounded up to a line, or to whole folded rows.
    """
    reads = dependences(stencil, edges, axis=1)
    unit = row_unit(stencil) if stencil.ndim == 3 else LINE_BYTES // ITEM_BYTES[dtype]
    return solve_both_ways(reads.stages, reads.readings, reads.writings, unit)


def column_slope(stencil: Stencil, dtype: str, edges: Edges | None = None) -> Slope:
    """How edges between columns of a 3-D diamond fall, in whole lines; they never rise."""
    if stencil.ndim == 2:
        none = (0,) * len(stencil.stages)
        return Slope(1, 0, none, none)
    reads = dependences(stencil, edges, axis=2)
    unit = LINE_BYTES // ITEM_BYTES[dtype]
    return solve_both_ways(reads.stages, reads.readings, reads.writings, unit)


def columns_cut(problem: Problem) -> str:
    """Why diamonds of a problem may not cut rows; empty where they may."""
    if problem.ndim == 2:
        return "in 2-D tile_rows is the width of diamonds in columns"
    if problem.edges.periodic(2):
        return "a periodic axis is not cut into diamonds"
    if problem.stencil.reductions:
        return "rows are not cut where there are reductions"
    return ""


def bands_cut(problem: Problem) -> str:
    """Why diamonds of a problem have no bands of rows; empty where they may."""
    if problem.ndim == 2:
        return "in 2-D diamonds consist of columns, not rows"
    return ""


def band_rows(problem: Problem, machine: Machine, planes: int, columns: int = 0) -> int:
    """Rows of a band, so that what a level of it reads and writes fits the second-level cache.

    A step of the front through n planes and b rows reads (n + 2*rz)*(b + 2*ry) rows of a level of
    each field and writes n*b of the next; of coefficients it reads n*b. ``columns`` is the length
    of a row, 0 for whole ones. 0 where there are no bands, or none of a row or more fits.
    """
    if bands_cut(problem):
        return 0
    stencil = problem.stencil
    sizes = [(f.evolving, ITEM_BYTES[problem.dtype_of(f.name)]) for f in stencil.fields]
    evolving = sum(item for changes, item in sizes if changes)
    constant = sum(item for changes, item in sizes if not changes)
    wide, high = planes + 2 * stencil.radius[0], 2 * stencil.radius[1]
    room = BAND_SHARE * machine.l2_bytes / (columns or problem.shape[-1])
    row = evolving * (wide + planes) + constant * planes
    rows, unit = int((room - evolving * wide * high) / row), row_unit(stencil)
    return max(0, rows // unit * unit)


def asking_for(tile: Tile, problem: Problem, options: RunOptions) -> RunOptions:
    """The options, asking for this diamond tile and no other: whole rows, or no bands, too."""
    return replace(
        options,
        tile_rows=tile.rows,
        tile_planes=tile.planes,
        tile_columns=None if columns_cut(problem) else tile.columns or problem.shape[-1],
        tile_band=None if bands_cut(problem) else tile.band or tile.rows,
        tile_group=tile.group,
        tile_fetch=tile.fetch,
    )


def whole_rows(problem: Problem, rows: int) -> int:
    """So many rows, rounded up to those that edges may lie between."""
    unit = row_unit(problem.stencil)
    return -(-rows // unit) * unit


def tile_levels(tile: Tile, problem: Problem) -> int:
    """Levels H between rows of diamonds: a diamond of D cells widens by the slope for H levels."""
    if tile.order != "diamond":
        return 1
    slope = tile_slope(problem.stencil, problem.dtype, problem.edges)
    return max(1, tile.rows // (2 * slope.per_step))


def levels_round(problem: Problem, threads: int, levels: int) -> int:
    """``levels`` of diamonds, or as many as leave one for each thread round a circle of rows."""
    if not problem.edges.periodic(1):
        return levels
    slope = tile_slope(problem.stencil, problem.dtype, problem.edges).per_step
    return max(1, min(levels, problem.shape[1] // (2 * slope * threads)))


def choose_tile(
    problem: Problem,
    machine: Machine,
    options: RunOptions,
    threads: int,
    depth: int,
    calibration: Calibration | None = None,
    together: bool = False,
    slab: int | None = None,
) -> Tile:
    """Diamonds for deep sweeps, level order for one step, its stages fused.

    The fastest tile that was measured, over slabs of ``slab`` planes, else one sized to the
    caches, and in two dimensions level order where memory hardly holds up the cores; options
    override both, and ask for diamonds by any of their extents but the planes of the front.

    A diamond of H levels and slope b is D = 2*b*H wide. Its levels stand r planes apart, so it
    keeps about ``arrays * (D/2 * (2*H*r + planes) + 2*D)`` cells across, in 3-D each a row. With
    bands of rows there are no more levels than leave each thread two diamonds. Round a circle there
    are as many as threads, if it is long enough. Where all planes make each step ``together`` there
    is no front to go through tiles.
    """
    for name, reason in (("columns", columns_cut(problem)), ("band", bands_cut(problem))):
        if (wanted := getattr(options, f"tile_{name}")) is not None and reason:
            raise UsageError(f"tile_{name} = {wanted}: {reason}; leave it out")
    if depth < 2 or together:
        alone = depth < 2
        fused = len(problem.stencil.stages) > 1 and not together
        plain = calibration.plain(alone) if calibration else None
        return _by_level(problem, options, plain, alone, fused)
    measured = calibration.best(depth, slab) if calibration else None
    slope = tile_slope(problem.stencil, problem.dtype, problem.edges).per_step
    asked = options.tile_rows or options.tile_columns or options.tile_band
    if measured is not None and (measured.levels > 1 or options.tile_rows):
        levels, planes = measured.levels, measured.planes
        columns, band, fetch = measured.columns, measured.band, measured.fetch
    elif not asked and (measured is not None or _gains_little(problem, machine, threads)):
        return _by_level(problem, options, measured, False)
    else:
        levels, planes, columns, band = _estimated(problem, machine, options, threads, depth)
        fetch = None
    levels = levels_round(problem, threads, levels)
    if options.tile_rows:
        levels = max(1, options.tile_rows // (2 * slope))
    rows = 2 * slope * levels
    columns, band = options.tile_columns or columns, options.tile_band or band
    band = whole_rows(problem, band)
    band = band if band < rows else 0
    fetch = not band if fetch is None else fetch
    return Tile(
        "diamond",
        rows,
        options.tile_planes or planes,
        columns if columns < problem.shape[-1] else 0,
        band,
        options.tile_group or (measured.group if measured is not None else MOST_GROUP),
        fetch if options.tile_fetch is None else options.tile_fetch,
    )


def _gains_little(problem: Problem, machine: Machine, threads: int) -> bool:
    """Whether diamonds of which nothing was measured would hardly pay.

    In two dimensions they are narrow, and their edges cost more than memory does where there are
    many operations. In three they consist of whole rows, and what goes level by level begins anew
    at every border of a slab.
    """
    return problem.ndim == 2 and waiting_share(rates(problem, machine, threads)) < LEAST_GAIN


def _by_level(
    problem: Problem, options: RunOptions, measured: Sample | None, alone: bool, fused: bool = False
) -> Tile:
    """Level after level, in groups of planes as large as the best that were ``measured``.

    What is stored past the caches is far for the next level, so that is for steps ``alone``. Where
    stages are ``fused``, those of a level go through the grid together.
    """
    planes, group = (measured.planes, measured.group) if measured else (FRONT_PLANES, MOST_GROUP)
    stream = options.tile_stream
    if stream is None:
        stream = measured is not None and measured.stream
    return Tile(
        "front" if fused else "level",
        whole_rows(problem, options.tile_rows or 0),
        options.tile_planes or planes,
        group=options.tile_group or group,
        stream=alone and stream,
    )


def _estimated(
    problem: Problem, machine: Machine, options: RunOptions, threads: int, depth: int
) -> tuple[int, int, int, int]:
    """(levels, planes, columns, rows of a band) of a tile of which nothing was measured."""
    slope = tile_slope(problem.stencil, problem.dtype, problem.edges).per_step
    most = max(1, min(MOST_LEVELS, depth // 2))
    parts = 0 if columns_cut(problem) or problem.shape[-1] < 2 * TILE_COLUMNS else TILE_COLUMNS
    lengths = (options.tile_columns,) if options.tile_columns else (0, parts)
    for columns, planes in product(lengths, (LARGE_FRONT_PLANES, FRONT_PLANES)):
        band = band_rows(problem, machine, options.tile_planes or planes, columns)
        shared = problem.shape[1] // (2 * slope * TILES_PER_THREAD * threads)
        levels = _kept(problem, machine, columns, max(1, min(most, shared)))
        if planes <= band < 2 * slope * levels:
            return levels, planes, columns, band
    columns = lengths[-1]
    return _kept(problem, machine, columns, most), FRONT_PLANES, columns, 0


def _kept(problem: Problem, machine: Machine, columns: int, most: int) -> int:
    """How many levels of a diamond a core keeps in its caches, at the most so many."""
    slope = tile_slope(problem.stencil, problem.dtype, problem.edges).per_step
    across, cache = 1, machine.l2_bytes
    if problem.ndim == 3:
        across = columns or problem.shape[-1]
        cache += min(machine.l3_bytes // machine.cores, MOST_SHARED_BYTES)
    arrays = sum(
        (2 if field.evolving else 1) * ITEM_BYTES[problem.dtype_of(field.name)]
        for field in problem.stencil.fields
    )
    reach = max(1, problem.stencil.radius[0])

    def kept_bytes(levels: int) -> int:
        wide = 2 * slope * levels
        return arrays * across * (wide // 2 * (2 * levels * reach + FRONT_PLANES) // 2 + 2 * wide)

    levels = next((n for n in range(most, 1, -1) if kept_bytes(n) <= cache), 1)
    if problem.ndim == 2:
        return levels
    return max((n for n in LEVELS[3] if n <= levels), default=levels)  # they divide many depths
