"""How long a plan will take: the larger of computing and moving, from rates of the machine.

    sweep = max(updates / R, bytes_read / read_rate + bytes_written / write_rate)

One update costs the time in which the cores make it from cache plus the time in which memory
delivers what it moves; the two hardly overlap in practice. A level-by-level order moves every
operand from memory at each step; diamonds that carry H levels, spread over H*r planes, over slabs
of dz planes move ``(dz + H*r)/(H*dz)`` of that.
"""

from __future__ import annotations

from dataclasses import dataclass

from outgrid.machine import Machine
from outgrid.plan.layout import ITEM_BYTES
from outgrid.plan.model import Prediction
from outgrid.stencil.problem import Problem

# Share of a core's peak vector rate that row updates reach from cache, and the bytes per second
# that one core loads from its own cache. Both are deliberately plain; a calibration replaces them.
VECTOR_FLOPS_PER_CORE = 25e9
CACHE_BANDWIDTH_PER_CORE = 48e9


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


def updates_per_second(found: Rates, levels: int, reach: int, slab: int) -> float:
    """Expected rate R where ``levels`` are carried through the cache over slabs of ``slab`` planes.

    ``reach`` is the number of planes over which those levels are spread.
    """
    reuse = levels * slab / (slab + reach) if levels > 1 else 1.0
    moved = found.update_bytes / max(1.0, reuse)
    return 1 / (1 / min(found.cores, found.cache) + moved / found.memory_bytes_per_second)


def calibrated_rate(found: Rates, measured: float, skew: int, slab: int) -> float:
    """A measured rate, less what slabs of ``slab`` planes cost.

    At every border between slabs each level meets ``skew`` planes that have left the cache, so one
    update moves ``update_bytes * skew / slab`` more.
    """
    moved = found.update_bytes * skew / slab
    return 1 / (1 / measured + moved / found.memory_bytes_per_second)


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
