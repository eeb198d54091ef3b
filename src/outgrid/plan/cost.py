"""How long a plan will take: the larger of computing and moving, from rates of the machine.

    sweep = max(updates / R, bytes_read / read_rate + bytes_written / write_rate)

R is bounded by what the cores update in cache, and by what memory delivers: a level-by-level
order moves every operand from memory at each step, a tiled order once per diamond.
"""

from __future__ import annotations

from dataclasses import dataclass

from outgrid.machine import Machine
from outgrid.plan.layout import ITEM_BYTES
from outgrid.plan.model import Prediction, Tile
from outgrid.stencil.problem import Problem

# Share of a core's peak vector rate that row updates reach from cache, and the bytes per second
# that one core loads from its own cache. Both are deliberately plain; a calibration replaces them.
VECTOR_FLOPS_PER_CORE = 12e9
CACHE_BANDWIDTH_PER_CORE = 60e9


@dataclass(frozen=True, slots=True)
class Rates:
    """Updates per second that bound a problem on a machine, by resource."""

    cores: float
    cache: float
    memory_bytes_per_second: float
    update_bytes: float


def rates(problem: Problem, machine: Machine, threads: int) -> Rates:
    """Bounds for one problem: ``update_bytes`` is what one update moves if nothing is reused."""
    stencil = problem.stencil
    item = ITEM_BYTES[problem.dtype]
    streams = sum(field.levels for field in stencil.fields)
    # Levels read, and for each result one line fetched and one written back; the level before the
    # current one is overwritten in place, so it is fetched already.
    fetched = sum(1 for field in stencil.evolving if field.levels == 1)
    moved = item * (streams + fetched + len(stencil.evolving))
    width = 8 / item
    share = min(1.0, threads / machine.cores)
    return Rates(
        cores=threads * VECTOR_FLOPS_PER_CORE * width / max(1, stencil.flops),
        cache=threads * CACHE_BANDWIDTH_PER_CORE / moved,
        memory_bytes_per_second=machine.memory_bandwidth * share,
        update_bytes=moved,
    )


def updates_per_second(found: Rates, tile: Tile, radius: int, slab: int, depth: int) -> float:
    """Expected rate R of a tile order."""
    moved = found.update_bytes
    if tile.order == "diamond" and depth > 1:
        levels = max(1, tile.rows // (2 * max(1, radius)))
        reuse = min(levels, depth) * slab / (slab + tile.rows / 2)
        moved = found.update_bytes / max(1.0, reuse)
    return min(found.cores, found.cache, found.memory_bytes_per_second / moved)


def predict(
    problem: Problem,
    machine: Machine,
    rate: float,
    depths: tuple[int, ...],
    read_bytes: int,
    written_bytes: int,
    fill_share: float,
) -> Prediction:
    """Time of all sweeps; ``fill_share`` is the share of a sweep in which the window fills."""
    compute = problem.cells * sum(depths) / rate
    transfer = read_bytes / machine.read_bandwidth + written_bytes / machine.write_bandwidth
    sweeps = max(1, len(depths))
    lead = fill_share * min(compute, transfer) / sweeps
    return Prediction(
        seconds=max(compute, transfer) + lead,
        compute_seconds=compute,
        transfer_seconds=transfer,
        updates_per_second=rate,
        bound_by="compute" if compute >= transfer else "read+write",
    )
