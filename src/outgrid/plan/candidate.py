"""Candidates: ways to run a problem, each a schedule with its price."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, partial

import msgspec

from outgrid.plan.commits import committing_seconds
from outgrid.plan.cost import (
    Beside,
    Computing,
    Movement,
    border_seconds,
    leaving_bytes,
    packing_seconds,
    predict,
    unpacking_bytes,
    updates_per_second,
)
from outgrid.plan.device import device_level, device_rate
from outgrid.plan.model import DeviceLevel, Layout, Prediction, Tile
from outgrid.plan.request import Request
from outgrid.plan.schedule.model import Schedule
from outgrid.plan.schedule.pitch import whole_planes
from outgrid.plan.tables import SWEEP_BYTES, unfinished_bytes
from outgrid.plan.tiers import disk_tier
from outgrid.plan.tiling import choose_tile, tile_levels
from outgrid.plan.traffic import Traffic
from outgrid.schemes import named_by_depth

WORTH_CUTTING = 1.05
WORTH_STREAMING = 1.1  # times faster than the same grid in memory
# Of a slab, for each level and neighbour, and way: one fills while one is on its way.
EXCHANGE_BUFFERS = 2
# A piece of a file takes as long as so many bytes more: pieces of this size reached half the rate.
# Processors are kept as long by each as by the checksums of so many bytes, 35 us.
PIECE_BYTES, PIECE_SUMMED_BYTES = 64 << 10, 350_000


class Candidate(msgspec.Struct, frozen=True, dict=True):
    """One way to run the problem by a ``scheme``: sized, and priced once that is asked for.

    Most candidates do not fit, and pricing many strips takes longer than sizing them.
    """

    scheme: str
    schedule: Schedule
    layout: Layout
    tile: Tile
    window_bytes: int
    held_bytes: int
    transfer_bytes: int
    exchange_bytes: int
    table_bytes: int
    traffic: Traffic
    predicted: Callable[[], Prediction]
    notes: tuple[str, ...] = ()
    unfinished_bytes: int = 0

    @cached_property
    def prediction(self) -> Prediction:
        """What the cost model expects."""
        return self.predicted()

    @property
    def parts(self) -> int:
        """Strips or blocks of the deepest sweep, 1 for whole planes."""
        return self.schedule.cutting.trips(self.schedule.depth)

    @property
    def price(self) -> float:
        """Expected seconds; what wears the flash more must be worth it."""
        if self.schedule.resident:
            return self.prediction.seconds
        worth = WORTH_STREAMING * (WORTH_CUTTING if self.parts > 1 else 1.0)
        return self.prediction.seconds * worth

    @property
    def needed_bytes(self) -> int:
        """Memory where the window is, beside what is needed there in any case."""
        beside = self.exchange_bytes + self.table_bytes + self.unfinished_bytes
        return self.held_bytes + self.transfer_bytes + beside


def sized(
    request: Request, depth: int, slab: int, resident: bool, height: int | None = None
) -> Candidate:
    """Sweeps of ``depth`` steps in slabs; of strips of ``height`` rows, or whole planes."""
    sizing = request.sizing
    depths = request.split(depth)
    deepest = max(depths, default=0)
    strips = sizing.strips(deepest, height)
    layout = sizing.layout(strips, deepest, resident and request.accelerator is None)
    # Without a front over a closed grid each sweep is one slab, in which all planes make every
    # step together; and on a device, whose caches no slab would fit.
    closed = sizing.streamed.periodic or request.accelerator is not None
    together = resident and closed and not sizing.seams(depths, resident)
    slab = whole_planes(sizing.streamed, deepest) if together else slab
    schedule = sizing.schedule(depths, slab, resident, strips)
    whole = not resident and strips.count(deepest) == 1
    traffic = sizing.traffic(schedule, request.packed if whole else None)
    tile = choose_tile(
        request.problem,
        request.machine,
        request.options,
        request.threads,
        depth if request.accelerator is None else 1,  # a device goes level by level
        request.calibration,
        together,
        slab,
    )
    window_bytes = request.window_bytes(schedule.rings, layout)
    held_bytes = window_bytes
    if request.options.in_place:  # in use at a time is what the window of a streamed grid holds
        held = sizing.window.rings((1,) if together else depths, slab, resident=False)
        held_bytes = min(window_bytes, request.window_bytes(held, layout))
    return Candidate(
        named_by_depth(schedule.depth),
        schedule,
        layout,
        tile,
        window_bytes,
        held_bytes,
        request.transfer_bytes(layout),
        # Planes of neighbours wait there for the disk, and planes for neighbours.
        EXCHANGE_BUFFERS * traffic.buffered_bytes(slab),
        request.table_bytes(depths, strips.count(deepest)),
        traffic,
        partial(_prediction, request, depth, slab, tile, traffic),
        unfinished_bytes=_unfinished(request, schedule, tile) if request.accelerator is None else 0,
    )


def _unfinished(request: Request, schedule: Schedule, tile: Tile) -> int:
    """Memory of what diamonds leave of planes that snapshots keep, until these are complete."""
    if tile.order != "diamond":
        return 0
    levels = min(schedule.depth, 2 * tile_levels(tile, request.problem))
    share = schedule.strips.height / schedule.strips.rows
    return unfinished_bytes(request.problem, levels, schedule.slab_planes, share)


def _prediction(
    request: Request, depth: int, slab: int, tile: Tile, traffic: Traffic
) -> Prediction:
    """What the cost model expects of a schedule with that traffic."""
    sizing, schedule = request.sizing, traffic.schedule
    depths, resident, strips = schedule.depths, schedule.resident, schedule.strips
    deepest = max(depths, default=0)
    rate = _rate(request, tile, depth, slab)
    trips = min(1, len(depths)) if resident else len(depths)
    moved = traffic.moved_bytes
    piece_bytes = _piece_bytes(request, schedule, slab)
    apart = 1 + PIECE_BYTES / piece_bytes
    planes = len(schedule.stored.planes)
    lead = min(1.0, sizing.streamed.skew.per_step * depth / planes)
    share = min(1.0, slab / (planes * strips.count(deepest)))
    kept_bytes = request.problem.kept_bytes(sum(depths), schedule.domain.carried)
    summed = sum(moved) if disk_tier(request.options) == "direct" else 0
    summed += leaving_bytes(kept_bytes)
    summed += trips * unpacking_bytes(traffic.unpacked_bytes)
    summed += round(sum(moved) / piece_bytes * PIECE_SUMMED_BYTES)
    updated = schedule.row_updates * request.problem.shape[-1]
    threads = request.threads if request.accelerator is None else 0
    copying = 0.0
    if request.accelerator is not None:
        copying = max(moved) / request.accelerator.bandwidth
    prediction = predict(
        request.machine,
        Computing(updated, rate, len(depths), lead, threads),
        Movement(
            trips,
            int(moved[0] * apart),
            int(moved[1] * apart) + kept_bytes,
            share,
            request.options.request_bytes,
            summed,
        ),
        Beside(
            exchange_seconds(request, traffic), copying, _waiting(request, traffic, updated / rate)
        ),
    )
    # As many as sweeps, but for those of a resident grid, and bit by bit where that goes.
    whole = resident or request.part is not None or not request.can_roll
    within = 1 if whole else planes * strips.count(deepest)
    committing = committing_seconds(
        request.problem,
        request.options,
        request.machine,
        prediction.seconds,
        trips,
        len(depths) * within,
    )
    packing = packing_seconds(request.machine, traffic.unpacked_bytes, traffic.packed_bytes)
    return prediction.after(committing + packing)


def _piece_bytes(request: Request, schedule: Schedule, slab: int) -> float:
    """Bytes of a file that are moved together where slabs are in pieces, else no bound.

    Of planes in strips a slab is a piece of each plane, and so it is of a grid whose planes
    are rows of files: none is next to another.
    """
    problem, strips = request.problem, schedule.strips
    cut = strips.count(schedule.depth) > 1
    rows = slab if problem.in_rows_of_files else strips.height if cut else math.inf
    return rows * problem.shape[-1] * problem.item_bytes


def exchange_seconds(request: Request, traffic: Traffic) -> float:
    """Seconds in which what is exchanged between sweeps goes one way."""
    if request.part is None:
        return 0.0
    network, sweeps = request.part.network, traffic.schedule.sweeps
    nbytes = max(traffic.exchanged_bytes)
    return nbytes / network.bandwidth + sweeps * network.latency_seconds


def _waiting(request: Request, traffic: Traffic, compute_seconds: float) -> float:
    """Seconds in which ranks that leave seams wait for each other.

    An inverted rank begins when the seam at its first cut is complete. Then it is as far behind
    as the last level of an upright one is behind its front, so that in each sweep they meet:
    the upright one has results to write when the inverted one has done with the sweep before.
    A slab, the seam's way through the disk, its flush and two messages are between them then;
    the slab that a window has to spare for results hides one of its own.
    """
    schedule, machine = traffic.schedule, request.machine
    if request.part is None or not any(schedule.cutting.between_ranks(schedule.depth)):
        return 0.0
    plane_seconds = compute_seconds / schedule.sweeps / max(1, len(schedule.domain.owned.planes))
    begin = (schedule.skew.per_step * schedule.depth + 2 * schedule.slab_planes) * plane_seconds
    nbytes = traffic.seam_read_bytes(schedule.depth)
    between = nbytes / machine.read_bandwidth + nbytes * machine.flushing_seconds
    between += machine.flush_seconds + 2 * request.part.network.latency_seconds
    return begin + schedule.sweeps * between


def _rate(request: Request, tile: Tile, depth: int, slab: int) -> float:
    """Updates per second, from the tile's own measurement if there is one."""
    if request.accelerator is not None:
        return device_rate(
            request.problem,
            request.accelerator,
            request.sizing.cells_per_plane,
            depth,
            slab,
            request.chip_tile,
        )
    skew = request.sizing.streamed.skew.per_step
    levels = tile_levels(tile, request.problem)
    sample = None
    if request.calibration:
        sample = request.calibration.of(levels, tile)
    if request.calibration and sample is not None:
        unknown = border_seconds(request.rates, skew)
        return request.calibration.rate(sample, depth, slab, unknown)
    reach = levels * max(1, skew)
    return updates_per_second(request.rates, min(levels, max(1, depth)), reach, slab)


def beside_device(request: Request, chosen: Candidate) -> int:
    """Memory of the process that a window on a device takes beside what copies pass through."""
    tables = SWEEP_BYTES * len(chosen.schedule.depths) + 2 * chosen.table_bytes
    return request.staging_bytes(chosen.layout) + tables


def level_of(request: Request, chosen: Candidate) -> DeviceLevel | None:
    """The level of a device, if there is one that the process has memory enough to feed."""
    if request.accelerator is None:
        return None
    used = request.accelerator.memory_bytes - request.room + chosen.needed_bytes
    room = request.host_room - beside_device(request, chosen)
    return device_level(request.accelerator, used, chosen.layout, chosen.schedule.slab_planes, room)
