"""How long a plan will take: computing and moving side by side, from rates of the machine.

    sweep = sqrt((updates / R)^2 + (bytes / rate of reading and writing at once)^2)

Neither hides the other for nothing: transfers take bandwidth of memory and time of processors from
the kernel, and where both take about as long, now one waits and now the other. The root of the sum
of squares is an empirical rule, see docs/design/performance.md.

One update costs the time in which the cores make it from cache plus the time in which memory
delivers what it moves; the two hardly overlap in practice. A level-by-level order moves every
operand from memory at each step; diamonds that carry H levels, spread over H*r planes, over slabs
of dz planes move ``(dz + H*r)/(H*dz)`` of that.
"""

from __future__ import annotations

import math

import msgspec

from outgrid.machine import Machine
from outgrid.plan.layout import ITEM_BYTES
from outgrid.plan.model import Prediction
from outgrid.stencil.expression import flops
from outgrid.stencil.problem import Problem
from outgrid.stencil.recomputed import far_flops, far_share

# Share of a core's peak vector rate that row updates reach from cache, and the bytes per second
# that one core loads from its own cache. Both are deliberately plain; a calibration replaces them.
VECTOR_FLOPS_PER_CORE = 25e9
CACHE_BANDWIDTH_PER_CORE = 48e9
# Operations that adding a value to a total, or comparing it, takes the time of; sums in two
# dimensions are added up exactly at the end of each line of 64 bytes, others at that of a row.
REDUCED_FLOPS, SUMMED_LINE_FLOPS = 8, 48
# What a slab costs beside its updates: its instructions, and the threads that start and end.
SLAB_SECONDS = 2e-4
# Bytes per second of which one core makes checksums within a run: it waits for memory.
CHECKSUM_BANDWIDTH = 10e9
# Bytes per second that one core collects of what snapshots keep, and writes.
LEAVING_BANDWIDTH = 4e9
# Bytes per second that one core unpacks, of smooth fields.
UNPACKING_BANDWIDTH = 4.5e9


class Rates(msgspec.Struct, frozen=True):
    """Updates per second that bound a problem on a machine, by resource."""

    cores: float
    cache: float
    memory_bytes_per_second: float
    update_bytes: float


def rates(problem: Problem, machine: Machine, threads: int) -> Rates:
    """Bounds for one problem: ``update_bytes`` is what one update moves if nothing is reused.

    Cells near faces, where all temporaries are kept, have a share in them.
    """
    far = _rates(problem, machine, threads)
    if not problem.stencil.recomputed:
        return far
    near, share = _rates(problem.recomputing(()), machine, threads), far_share(problem)
    return Rates(
        cores=1 / (share / far.cores + (1 - share) / near.cores),
        cache=1 / (share / far.cache + (1 - share) / near.cache),
        memory_bytes_per_second=far.memory_bytes_per_second,
        update_bytes=share * far.update_bytes + (1 - share) * near.update_bytes,
    )


def _rates(problem: Problem, machine: Machine, threads: int) -> Rates:
    """The same of cells far from faces."""
    stencil = problem.stencil
    width = 8 / ITEM_BYTES[problem.dtype]
    item = {field.name: ITEM_BYTES[problem.dtype_of(field.name)] for field in stencil.fields}
    again = stencil.recomputed_set
    fields = [field for field in stencil.fields if field.name not in again]
    evolving = [field for field in fields if field.evolving]
    streams = sum(field.levels * item[field.name] for field in fields)
    # Levels read, and for each result one line fetched and one written back; the level before the
    # current one is overwritten in place, so it is fetched already.
    fetched = sum(item[field.name] for field in evolving if field.levels == 1)
    moved = streams + fetched + sum(item[field.name] for field in evolving)
    share = min(1.0, threads / machine.cores)
    reduced = sum(
        flops(reduction.expression)
        + (SUMMED_LINE_FLOPS if (stencil.ndim, reduction.kind) == (2, "sum") else REDUCED_FLOPS)
        for reduction in stencil.reductions
    )
    return Rates(
        cores=threads * VECTOR_FLOPS_PER_CORE * width / max(1, far_flops(stencil) + reduced),
        cache=threads * CACHE_BANDWIDTH_PER_CORE / moved,
        memory_bytes_per_second=machine.memory_bandwidth * share,
        update_bytes=moved,
    )


def updates_per_second(bounds: Rates, levels: int, reach: int, slab: int) -> float:
    """Expected rate R where ``levels`` are carried through the cache over slabs of ``slab`` planes.

    ``reach`` is the number of planes over which those levels are spread.
    """
    reuse = levels * slab / (slab + reach) if levels > 1 else 1.0
    moved = bounds.update_bytes / max(1.0, reuse)
    return 1 / (1 / min(bounds.cores, bounds.cache) + moved / bounds.memory_bytes_per_second)


def waiting_share(bounds: Rates) -> float:
    """The share of its time for which a plain update waits for memory."""
    computing = 1 / min(bounds.cores, bounds.cache)
    waiting = bounds.update_bytes / bounds.memory_bytes_per_second
    return waiting / (computing + waiting)


def border_seconds(bounds: Rates, skew: int) -> float:
    """What a border between slabs costs an update, times the planes of a slab; an estimate.

    Each level meets ``skew`` planes that have left the cache, so one update moves
    ``update_bytes * skew / slab`` more.
    """
    return bounds.update_bytes * skew / bounds.memory_bytes_per_second


def slabbed_rate(unbroken: float, border: float, slab: int) -> float:
    """A rate measured on an unbroken front, less what slabs of ``slab`` planes cost."""
    return 1 / (1 / unbroken + border / slab)


def transfer_seconds(machine: Machine, read_bytes: float, written_bytes: float) -> float:
    """Time to move the bytes of both directions, as far as possible at once.

    While what was written becomes durable a disk moves nothing else.
    """
    paired = min(read_bytes, written_bytes)
    return (
        2 * paired / machine.mixed_bandwidth
        + (read_bytes - paired) / machine.read_bandwidth
        + (written_bytes - paired) / machine.write_bandwidth
        + written_bytes * machine.flushing_seconds
    )


def with_transfers(
    machine: Machine, threads: int, compute_seconds: float, moved: Movement
) -> float:
    """Time to compute with ``threads`` while bytes are summed and moved, by a core left over.

    Where all cores compute, they share the work of both.
    """
    moving = (moved.read_bytes + moved.written_bytes) * machine.moving_seconds
    work = compute_seconds * threads + moved.summed_bytes / CHECKSUM_BANDWIDTH + moving
    return max(compute_seconds, work / machine.cores)


def unpacking_bytes(nbytes: float) -> int:
    """Bytes of which checksums take as long as it takes to unpack ``nbytes``."""
    return round(nbytes * CHECKSUM_BANDWIDTH / UNPACKING_BANDWIDTH)


def leaving_bytes(nbytes: float) -> int:
    """Bytes of which checksums take as long as it takes to collect and write ``nbytes``."""
    return round(nbytes * CHECKSUM_BANDWIDTH / LEAVING_BANDWIDTH)


def packing_seconds(machine: Machine, nbytes: float, packed_bytes: float) -> float:
    """Time to read ``nbytes`` of coefficients and to write them packed, before the first sweep."""
    return transfer_seconds(machine, nbytes, packed_bytes)


class Movement(msgspec.Struct, frozen=True):
    """What a plan moves: bytes in ``trips`` of the grid through the window.

    A slab is ``slab_share`` of a trip, all of it where the grid is resident in one slab. Of the
    bytes ``summed_bytes`` are summed.
    """

    trips: int
    read_bytes: int
    written_bytes: int
    slab_share: float
    request_bytes: int
    summed_bytes: int = 0


class Computing(msgspec.Struct, frozen=True):
    """Cell ``updates`` in so many ``sweeps``, of which ``threads`` make ``rate`` per second.

    ``fill_share`` is the share of a sweep in which the window fills and computing is not at its
    rate.
    """

    updates: float
    rate: float
    sweeps: int
    fill_share: float = 0.0
    threads: int = 0


class Beside(msgspec.Struct, frozen=True):
    """Seconds of messages between ranks, and of copies to and from a device, beside all else.

    For other ranks a run waits ``wait_seconds``, with nothing beside.
    """

    exchange_seconds: float = 0.0
    copy_seconds: float = 0.0
    wait_seconds: float = 0.0


def predict(machine: Machine, computing: Computing, moved: Movement, others: Beside) -> Prediction:
    """How long it takes to compute and to move so much.

    Nothing is computed before the first slab has come, and nothing is left to compute when the
    last one goes. The other transfers run beside the computing; at the end of each slab the device
    has less than its fill of requests, by one of them. What making states durable takes is not in
    it.
    """
    slabs = computing.sweeps / moved.slab_share
    advancing = computing.updates / computing.rate + slabs * SLAB_SECONDS
    compute = with_transfers(machine, computing.threads, advancing, moved)
    ends = moved.trips / moved.slab_share * moved.request_bytes / machine.mixed_bandwidth
    transfer = transfer_seconds(machine, moved.read_bytes, moved.written_bytes) + ends
    share = moved.slab_share / max(1, moved.trips)
    first_read, last_written = share * moved.read_bytes, share * moved.written_bytes
    alone = transfer_seconds(machine, first_read, 0) + transfer_seconds(machine, 0, last_written)
    beside = max(0.0, transfer - transfer_seconds(machine, first_read, last_written))
    lead = computing.fill_share * min(compute, beside) / max(1, computing.sweeps)
    apart = others.exchange_seconds, others.copy_seconds
    bounds = {
        "compute": compute,
        "read+write": transfer,
        "exchange": others.exchange_seconds,
        "copies": others.copy_seconds,
    }
    return Prediction(
        seconds=alone + max(math.hypot(compute, beside), *apart) + lead + others.wait_seconds,
        compute_seconds=compute,
        transfer_seconds=transfer,
        updates_per_second=computing.rate,
        bound_by=max(bounds, key=lambda name: bounds[name]),
        exchange_seconds=others.exchange_seconds,
        copy_seconds=others.copy_seconds,
        wait_seconds=others.wait_seconds,
    )
