"""Choosing: scheme, depth, slab and tile from a memory limit and a machine.

Every candidate is sized and priced in closed form and the cheapest that fits is taken, so the
choice can be printed with its reason and tested without a disk.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from outgrid.config import RunOptions
from outgrid.errors import InfeasiblePlan, UsageError
from outgrid.lines import format_count
from outgrid.machine import Accelerator, Machine, Network
from outgrid.plan.blocking import plan_blocks, plan_blocks_within
from outgrid.plan.calibration import Calibration
from outgrid.plan.commits import (
    COMMIT_SECONDS,
    Begin,
    commit_planes,
    committing_seconds,
    notes_on_commits,
)
from outgrid.plan.cost import (
    Movement,
    Rates,
    border_seconds,
    predict,
    rates,
    updates_per_second,
)
from outgrid.plan.device import (
    LEAST_PARTS,
    SEEN_BYTES,
    check_offered,
    device_level,
    device_rate,
    ring_tables_bytes,
    tables_bytes,
)
from outgrid.plan.layout import describe, window_bytes
from outgrid.plan.model import DeviceLevel, Layout, Plan, Prediction, Tile
from outgrid.plan.rings import Ring
from outgrid.plan.schedule import STREAMED, Schedule
from outgrid.plan.sizing import (
    Sizing,
    deepest_of_split,
    given_steps,
    split_steps,
    sweep_steps,
)
from outgrid.plan.subgrid import Subgrid
from outgrid.plan.tables import SWEEP_BYTES, steps_bytes
from outgrid.plan.tiers import disk_tier, notes_on_tier, streaming_tier
from outgrid.plan.tiling import choose_tile, tile_levels
from outgrid.plan.traffic import Traffic
from outgrid.plan.trip import Point
from outgrid.purposes import PASSING_TIERS
from outgrid.stencil.problem import Problem
from outgrid.stencil.symbol import AXES
from outgrid.units import format_bytes

SCHEMES = ("skewed", "plain", "overlapped")
# Slabs are sized in bytes per field: below, requests get small; above, memory is better spent on
# depth.
SLAB_BYTES = (1 << 20, 1 << 29)
RESIDENT_SLAB_PLANES = 64
RESIDENT_DEPTH = 64  # steps of the deepest sweeps of a grid in memory
WORTH_CUTTING = 1.05
CUT_SLAB_PLANES = 64  # of strips: beyond, memory is better spent on their height
RESIDENT_SLABS = 8
WORTH_STREAMING = 1.1  # times faster than the same grid in memory
RESIDENT_SLAB_BYTES = 4 << 30
# Of a slab, for each level and neighbour, and way: one fills while one is on its way.
EXCHANGE_BUFFERS = 2
MOST_LISTED = 1 << 14  # sweeps; beyond them their list is looked at before it is made
WORTH_KEEPING = 50  # times the time that it takes to keep a resident grid in mid-run


@dataclass(frozen=True, slots=True)
class _Candidate:
    """One way to run the problem, sized and priced."""

    schedule: Schedule
    layout: Layout
    tile: Tile
    window_bytes: int
    held_bytes: int
    transfer_bytes: int
    exchange_bytes: int
    table_bytes: int
    traffic: Traffic
    prediction: Prediction

    @property
    def parts(self) -> int:
        """Strips of the deepest sweep, 1 for whole planes."""
        return self.schedule.parts(self.schedule.depth)

    @property
    def price(self) -> float:
        """Expected seconds, with room for a disk that gives less than it promised.

        What wears the flash more must be worth it.
        """
        if self.schedule.resident:
            return self.prediction.seconds
        return (
            self.prediction.sustained_seconds
            * WORTH_STREAMING
            * (WORTH_CUTTING if self.parts > 1 else 1.0)
        )

    @property
    def needed_bytes(self) -> int:
        """Memory where the window is, beside what is needed there in any case."""
        return self.held_bytes + self.transfer_bytes + self.exchange_bytes + self.table_bytes


def plan(
    problem: Problem,
    options: RunOptions,
    machine: Machine,
    fixed_bytes: int,
    calibration: Calibration | None = None,
    begin: Begin | None = None,
    part: Part | None = None,
    accelerator: Accelerator | None = None,
) -> Plan:
    """The cheapest plan that fits ``options.memory_bytes``, of the whole grid or a ``part`` of it.

    With an ``accelerator`` the window has to fit its memory, and all that copies pass through the
    limit of the process.

    With ``begin`` it goes on within a sweep if that sweep fits, else it starts that sweep again.

    ``fixed_bytes`` is what the process needs beside the window: interpreter, libraries, kernel. To
    these comes what grows with the steps.
    Without a ``calibration`` of the kernel its rate is estimated from the machine.
    Raises InfeasiblePlan with the limit that would fit, UsageError for values out of range.
    """
    fixed_bytes += steps_bytes(problem)
    if part is not None:
        return _Choice(problem, options, machine, fixed_bytes, calibration, part=part).plan()
    if begin is not None and len(begin.cut) == 2:
        within = plan_blocks_within(problem, options, machine, fixed_bytes, calibration, begin)
        if within is not None:
            return within
    if options.scheme == "overlapped":
        return plan_blocks(problem, options, machine, fixed_bytes, calibration)
    inputs = (problem, options, machine, fixed_bytes, calibration)
    if begin is not None and len(begin.cut) < 2:
        within = _Choice(*inputs, begin, accelerator=accelerator).plan_within()
        if within is not None:
            return within
    return _Choice(*inputs, accelerator=accelerator).plan()


@dataclass(frozen=True, slots=True)
class Part:
    """What one of several ranks is to plan: its ``subgrid``.

    Where ``depths`` and ``slab`` are given, they were chosen for all ranks. ``disk_bytes`` bounds
    the working files.
    """

    subgrid: Subgrid
    network: Network
    disk_bytes: int | None = None
    depths: tuple[int, ...] | None = None
    slab: int | None = None


class _Choice:
    """The inputs of one decision and what follows from them directly."""

    def __init__(
        self,
        problem: Problem,
        options: RunOptions,
        machine: Machine,
        fixed_bytes: int,
        calibration: Calibration | None,
        begin: Begin | None = None,
        part: Part | None = None,
        accelerator: Accelerator | None = None,
    ) -> None:
        self.begin, self.part, self.accelerator = begin, part, accelerator
        self.problem, self.options, self.machine = problem, options, machine
        self.fixed_bytes, self.calibration = fixed_bytes, calibration
        self.sizing = Sizing(problem, part.subgrid if part else None)
        self.threads = options.threads or machine.cores
        self.rates: Rates = rates(problem, machine, self.threads)
        self.host_room = self.room = options.memory_bytes - fixed_bytes
        if accelerator is not None:
            check_offered(problem)
            self.room = accelerator.memory_bytes - tables_bytes(problem)
        self.whole = self.sizing.layout(self.sizing.strips(0), 0)
        self._check_options()

    def _staging_bytes(self, layout: Layout) -> int:
        """Staging buffers of the I/O queue."""
        return self.options.in_flight_bytes if layout.staged else 0

    def _transfer_bytes(self, layout: Layout) -> int:
        """What transfers take of the memory that the window is in."""
        return 0 if self.accelerator is not None else self._staging_bytes(layout)

    def _table_bytes(self, depths: tuple[int, ...], parts: int) -> int:
        """What grows with sweeps of so many ``parts``, in the memory that the window is in."""
        if self.accelerator is not None:
            return SEEN_BYTES * len(depths) * parts
        return SWEEP_BYTES * len(depths)

    def _beside_device(self, chosen: _Candidate) -> int:
        """Memory of the process that a window on a device takes beside what copies pass through."""
        tables = SWEEP_BYTES * len(chosen.schedule.depths) + 2 * chosen.table_bytes
        return self._staging_bytes(chosen.layout) + tables

    def _device_level(self, chosen: _Candidate) -> DeviceLevel | None:
        """The level of a device, if there is one that the process has memory enough to feed."""
        if self.accelerator is None:
            return None
        used = self.accelerator.memory_bytes - self.room + chosen.needed_bytes
        room = self.host_room - self._beside_device(chosen)
        return device_level(
            self.accelerator, used, chosen.layout, chosen.schedule.slab_planes, room
        )

    @property
    def streamed(self) -> str:
        """Name of the axis that a grid is streamed along."""
        return AXES[-self.problem.ndim]

    @property
    def only_resident(self) -> bool:
        """Whether the options ask for a grid that stays where it is while it is updated."""
        return self.options.in_place or self.options.tier == "memory"

    def _check_options(self) -> None:
        options, planes = self.options, self.problem.shape[0]
        if options.scheme is not None and options.scheme not in SCHEMES:
            raise UsageError(
                f"scheme {options.scheme!r} is not known; choose one of {', '.join(SCHEMES)}"
            )
        if options.depth is not None and options.depth < 1:
            raise UsageError(f"depth {options.depth} is below 1 step per sweep")
        if options.scheme == "plain" and options.depth not in (None, 1):
            raise UsageError(
                f"scheme plain makes one step per sweep, so depth {options.depth} cannot be met; "
                "leave depth out or choose scheme skewed"
            )
        if options.slab_planes is not None and not 1 <= options.slab_planes <= planes:
            raise UsageError(
                f"slab_planes {options.slab_planes} is outside 1..{planes}, the planes of the grid"
            )
        if options.threads is not None and options.threads < 1:
            raise UsageError(f"threads {options.threads} is below 1")
        if options.strip_rows is not None:
            self._check_strips(options.strip_rows)

    def _check_strips(self, height: int) -> None:
        if self.problem.ndim == 2:
            raise UsageError("strip_rows cuts planes of several rows; a plane in 2-D is one row")
        if height < 1:
            raise UsageError(f"strip_rows {height} is below 1 row per strip")
        if self.accelerator is not None and self.sizing.circle:
            raise UsageError(
                "strip_rows does not cut grids that are periodic along y on a device; leave it out"
            )
        depth = max(1, min(self.options.depth or 1, self.problem.deepest))
        strips = self.sizing.strips(depth, height)
        if not strips.closes(depth):
            least = strips.beside(depth)
            raise UsageError(
                f"strips of {height} rows do not go round a grid of {self.sizing.rows} rows that is"
                f" periodic along y in sweeps of {depth} steps: they need {least} rows at least and"
                f" a grid of {2 * least}; leave strip_rows out"
            )

    def plan(self) -> Plan:
        """Price all candidates and take the best."""
        best = self._cheapest(small=False) or self._cheapest(small=True)
        if best is None:
            raise self._infeasible()
        return self._finish(best)

    def plan_within(self) -> Plan | None:
        """The cheapest plan that goes on at ``begin``; None where none of that kind fits."""
        options, begin = self.options, self.begin
        if begin is None or self.only_resident or not self._can_roll():
            return None
        if begin.depth > self.problem.steps or (options.scheme == "plain" and begin.depth > 1):
            return None
        if options.strip_rows is not None and (options.strip_rows,) != begin.cut:
            return None
        can_cut = self.sizing.can_cut and not self.sizing.closed
        if begin.cut and not (can_cut and begin.cut[0] > 0):
            return None
        seams = bool(begin.cut) or self.sizing.closed
        strips = self.sizing.strips(begin.depth, self._height_begun)
        if begin.part >= strips.count(begin.depth) or (seams and options.tier in PASSING_TIERS):
            return None
        best = self._cheapest(small=False) or self._cheapest(small=True)
        return self._finish(best) if best is not None else None

    @property
    def _height_begun(self) -> int | None:
        """The height of the strips of the sweep that a run goes on in; None for whole planes."""
        return self.begin.cut[0] if self.begin is not None and self.begin.cut else None

    def _can_roll(self) -> bool:
        """Whether a state may become durable bit by bit."""
        # Reductions count each cell once, so a sweep begins from its start.
        return not self.problem.stencil.reductions

    def _cheapest(self, small: bool) -> _Candidate | None:
        best: _Candidate | None = None
        for candidate in self._candidates(small):
            if self._fits(candidate) and (best is None or candidate.price < best.price * 0.999):
                best = candidate
        return best

    def _fits(self, candidate: _Candidate) -> bool:
        """Whether memory and disk have room, and planes that go round are enough."""
        if candidate.needed_bytes > self.room:
            return False
        if self.accelerator is not None and self._device_level(candidate) is None:
            return False
        if not (candidate.schedule.resident or self._goes_round(candidate)):
            return False
        if self.sizing.least_owned(candidate.schedule.depths) > len(self.sizing.owned.planes):
            return False
        disk = self.part.disk_bytes if self.part is not None else None
        if disk is None:
            return True
        return candidate.traffic.disk_bytes() <= disk

    def _goes_round(self, streamed: _Candidate) -> bool:
        """Whether a grid that is periodic along the stream has planes enough to be streamed."""
        least = self.sizing.least_planes(streamed.schedule.depths, streamed.schedule.slab_planes)
        return self.problem.shape[0] >= least

    def _candidates(self, small: bool) -> Iterator[_Candidate]:
        if self.problem.steps == 0:
            yield self._candidate(0, self._slabs()[0], resident=False)
            return
        streamed = self._small_slabs() if small else self._slabs()
        if self.part is not None and self.part.depths is not None:
            slab = self.part.slab or streamed[0]
            yield self._candidate(max(self.part.depths, default=0), slab, resident=False)
            return
        if self._height_begun is not None:
            yield from self._cut_candidates(small)
            return
        if self.begin is not None or self.part is not None:
            for slab in streamed:
                for depth in self._depths(slab, resident=False):
                    yield self._candidate(depth, slab, resident=False)
            return
        for resident in self._residencies():
            if not resident:
                yield from self._cut_candidates(small)
            if self.options.strip_rows is None:
                for slab in self._resident_slabs() if resident else streamed:
                    for depth in self._depths(slab, resident):
                        yield self._candidate(depth, slab, resident)

    def _cut_candidates(self, small: bool) -> Iterator[_Candidate]:
        """Candidates of planes cut into strips; ``small``: also those of small requests."""
        if not self.sizing.can_cut or (self.accelerator is not None and self.sizing.circle):
            return
        asked = self.options.slab_planes
        for slab in [asked] if asked else self._doubling(CUT_SLAB_PLANES) or [1]:
            for candidate in self._cut(slab):
                moved = slab * candidate.schedule.strips.height * candidate.layout.row_bytes
                if small or asked or moved >= SLAB_BYTES[0]:
                    yield candidate

    def _cut(self, slab: int) -> Iterator[_Candidate]:
        """Candidates of planes cut into strips, as high as memory allows for each depth."""
        for depth in self._cut_depths():
            given = self.options.strip_rows or self._height_begun
            height = given or self._height(depth, slab)
            if height is None:
                return
            strips = self.sizing.strips(depth, height)
            if strips.closes(depth) and (given or strips.count(depth) > 1):
                yield self._candidate(depth, slab, resident=False, height=height)

    def _cut_depths(self) -> list[int]:
        """Depths worth pricing, in steps of about a quarter."""
        steps = self.problem.deepest
        if self.options.scheme == "plain" or self.options.depth is not None:
            return self._depths(1, resident=False)
        deepest = min(steps, self.problem.shape[0] // max(1, self.sizing.skew.per_step))
        found, depth = [1], 2
        while depth < deepest:
            found.append(deepest_of_split(steps, depth))
            depth = max(depth + 2, depth * 5 // 4 // 2 * 2)
        return self._listable({*found, deepest_of_split(steps, max(1, deepest))})

    def _height(self, depth: int, slab: int) -> int | None:
        """Rows of the highest strips that fit, evened out; None where not even one row does."""
        sizing = self.sizing
        rings = sizing.rings((depth,), slab, resident=False, seams=True)
        thinnest = sizing.layout(sizing.strips(depth, 1), depth)
        depths, room = self._split(depth), self.room - self._transfer_bytes(thinnest)
        each = sum(ring.planes * thinnest.of(ring.field).row_stride_bytes for ring in rings)
        beside = sizing.strips(depth, 1).beside(depth)
        height = (room - self._table_bytes(depths, 1)) // each - beside
        # A pitch is rounded up to whole sectors, and an odd number of them.
        while height > 0:
            strips = sizing.strips(depth, height)
            window = self._window_bytes(rings, sizing.layout(strips, depth))
            if window + self._table_bytes(depths, strips.count(depth)) <= room:
                break
            height -= 1
        least = self._least_height(depth)
        if height < least:
            return None
        total = self.problem.shape[1]
        total += 0 if sizing.circle else sizing.strips(depth, height).lean(depth)
        return max(least, -(-total // -(-total // height)))

    def _least_height(self, depth: int) -> int:
        """Rows of the thinnest strips."""
        return max(1, self.sizing.strips(depth, 1).beside(depth) if self.sizing.circle else 1)

    def _residencies(self) -> tuple[bool, ...]:
        if self.part is not None:
            return (False,)
        if self.only_resident:
            return (True,)
        return (True, False) if self.options.tier == "auto" else (False,)

    def _slabs(self) -> list[int]:
        """Slabs worth pricing."""
        if self.options.slab_planes is not None:
            return [self.options.slab_planes]
        plane_bytes = self.whole.pitch_bytes
        found = self._slabs_up_to(SLAB_BYTES[1])
        large = [slab for slab in found if slab * plane_bytes >= SLAB_BYTES[0]]
        return large or found[-1:] or [1]

    def _resident_slabs(self) -> list[int]:
        """Only the first sweep waits for planes that come and only the last leaves them behind.

        Slabs let these two overlap with the transfers; between them a slab only costs a start and
        an end of the threads' work. So either one slab, or a few.
        """
        if self.options.slab_planes is not None:
            return [self.options.slab_planes]
        if self.options.in_place:
            return self._slabs()
        planes = RESIDENT_SLAB_BYTES // self.whole.pitch_bytes
        whole = max(RESIDENT_SLAB_PLANES, min(2 * self.problem.shape[0], planes))
        return [whole, max(1, self.problem.shape[0] // RESIDENT_SLABS)]

    def _small_slabs(self) -> list[int]:
        """Slabs that are taken only where no larger one fits."""
        if self.options.slab_planes is not None:
            return []
        return self._slabs_up_to(SLAB_BYTES[0]) or [1]

    def _slabs_up_to(self, nbytes: int) -> list[int]:
        return self._doubling(nbytes // self.whole.pitch_bytes)

    def _doubling(self, most: int) -> list[int]:
        """Slabs of 1, 2, 4, 6, ... planes up to ``most``, fewer than the grid has.

        Tiles advance by 2, 4 or 8 planes: the last step of a slab should be a whole one.
        """
        slab, found = 1, list[int]()
        while slab < len(self.sizing.owned.planes) and slab <= most:
            found.append(slab)
            step = 2 if slab < 6 else 4 if slab < 12 else 8
            slab = slab * 2 if slab < 4 else slab * 3 // 2 // step * step
        return found

    def _depths(self, slab: int, resident: bool) -> list[int]:
        """Depths worth pricing: for each number of sweeps the least depth that needs no more."""
        steps = self.problem.deepest
        if self.options.scheme == "plain":
            return [1]
        if self.options.depth is not None:
            return [min(self.options.depth, steps)]
        most = min(steps, self._deepest(slab, resident))
        return self._listable({deepest_of_split(steps, depth) for depth in range(1, most + 1)})

    def _listable(self, depths: set[int]) -> list[int]:
        """Those of which memory has room to list the sweeps, at least the deepest one."""
        least = -(-self.problem.steps * SWEEP_BYTES // max(1, self.host_room))
        return sorted({depth for depth in depths if depth >= least} or {max(depths)})

    def _deepest(self, slab: int, resident: bool) -> int:
        """Largest depth whose window fits, by bisection; memory grows with depth."""
        if resident and not self.options.in_place:
            return RESIDENT_DEPTH
        room = self.room - self._transfer_bytes(self.whole)
        planes = self.problem.shape[0] // max(1, self.sizing.skew.per_step)
        low, high = 1, max(1, min(planes, self.problem.deepest))
        while low < high:
            middle = (low + high + 1) // 2
            rings = self.sizing.rings((middle,), slab, resident=False)
            layout = self.sizing.layout(self.sizing.strips(middle), middle)
            if self._window_bytes(rings, layout) <= room:
                low = middle
            else:
                high = middle - 1
        return low

    def _window_bytes(self, rings: tuple[Ring, ...], layout: Layout) -> int:
        tables = ring_tables_bytes(rings) if self.accelerator is not None else 0
        return window_bytes(rings, layout) + tables

    def _candidate(
        self, depth: int, slab: int, resident: bool, height: int | None = None
    ) -> _Candidate:
        sizing = self.sizing
        depths = self._split(depth)
        deepest = max(depths, default=0)
        strips = sizing.strips(deepest, height)
        layout = sizing.layout(strips, deepest)
        # Without a front over a closed grid each sweep is one slab, in which all planes make every
        # step together.
        together = resident and sizing.closed and not sizing.seams(depths, resident)
        slab = sizing.whole_planes(deepest) if together else slab
        schedule = sizing.schedule(depths, slab, resident, strips)
        traffic = sizing.traffic(schedule)
        tile = choose_tile(
            self.problem,
            self.machine,
            self.options,
            self.threads,
            depth if self.accelerator is None else 1,  # a device goes level by level
            self.calibration,
            together,
            slab,
        )
        rate = self._rate(tile, depth, slab)
        trips = min(1, len(depths)) if resident else len(depths)
        moved = traffic.moved_bytes
        planes = len(schedule.stored.planes)
        lead = min(1.0, sizing.skew.per_step * depth / planes)
        share = min(1.0, slab / (planes * strips.count(deepest)))
        movement = Movement(trips, *moved, share, self.options.request_bytes)
        updated = schedule.row_updates * self.problem.shape[-1]
        copying = 0.0
        if self.accelerator is not None:
            copying = max(moved) / self.accelerator.bandwidth
        prediction = predict(
            updated,
            self.machine,
            rate,
            len(depths),
            movement,
            lead,
            self.threads if self.accelerator is None else 0,
            sum(moved) if disk_tier(self.options) == "direct" else 0,
            self._exchange(traffic),
            copying,
            self._waiting(traffic, updated / rate),
        )
        # As many as sweeps, but for those of a resident grid, and bit by bit where that goes.
        whole = resident or self.part is not None or not self._can_roll()
        within = 1 if whole else planes * strips.count(deepest)
        committing = committing_seconds(
            self.problem,
            self.options,
            self.machine,
            prediction.seconds,
            trips,
            len(depths) * within,
        )
        prediction = prediction.after(committing)
        window_bytes = self._window_bytes(schedule.rings, layout)
        held_bytes = window_bytes
        if self.options.in_place:  # in use at a time is what the window of a streamed grid holds
            held = sizing.rings((1,) if together else depths, slab, resident=False)
            held_bytes = min(window_bytes, self._window_bytes(held, layout))
        return _Candidate(
            schedule,
            layout,
            tile,
            window_bytes,
            held_bytes,
            self._transfer_bytes(layout),
            # Planes of neighbours wait there for the disk, and planes for neighbours.
            EXCHANGE_BUFFERS * traffic.buffered_bytes(slab),
            self._table_bytes(depths, strips.count(deepest)),
            traffic,
            prediction,
        )

    def _exchange(self, traffic: Traffic) -> float:
        """Seconds in which what is exchanged between sweeps goes one way."""
        if self.part is None:
            return 0.0
        network, sweeps = self.part.network, traffic.schedule.sweeps
        nbytes = max(traffic.exchanged_bytes)
        return nbytes / network.bandwidth + sweeps * network.latency_seconds

    def _waiting(self, traffic: Traffic, compute_seconds: float) -> float:
        """Seconds in which ranks that leave seams wait for each other.

        An inverted rank begins when the seam at its first cut is complete. Then it is as far behind
        as the last level of an upright one is behind its front, so that in each sweep they meet:
        the upright one has results to write when the inverted one has done with the sweep before.
        A slab, the seam's way through the disk, a flush and two messages are between them then;
        the slab that a window has to spare for results hides one of its own.
        """
        found, machine = traffic.schedule, self.machine
        if self.part is None or not any(found.cuts(found.depth)):
            return 0.0
        plane_seconds = compute_seconds / found.sweeps / max(1, len(found.owned))
        begin = (found.skew * found.depth + 2 * found.slab_planes) * plane_seconds
        each = traffic.seam_read_bytes(found.depth) / machine.read_bandwidth
        each += machine.flush_seconds + 2 * self.part.network.latency_seconds
        return begin + found.sweeps * each

    def _split(self, depth: int) -> tuple[int, ...]:
        """Steps per sweep: a depth that was asked for is kept, one of our own is balanced."""
        if depth == 0:
            return ()
        if self.part is not None and self.part.depths is not None:
            return self.part.depths
        self._check_sweeps(depth)
        given = self.options.depth is not None
        if self.begin is None:
            return sweep_steps(self.problem, depth, given=given)
        split = given_steps if given else split_steps
        return (self.begin.depth, *split(self.problem.steps - self.begin.depth, depth))

    def _check_sweeps(self, depth: int) -> None:
        """Raise InfeasiblePlan where not even a list of all sweeps has room."""
        steps = self.problem.steps
        sweeps = -(-steps // depth)
        listed = SWEEP_BYTES * sweeps
        if sweeps > MOST_LISTED and listed > self.host_room:
            slab = self.options.slab_planes or 1
            layout = self.sizing.layout(self.sizing.strips(depth), depth)
            rings = self.sizing.rings((depth,), slab, resident=False)
            window = 0 if self.accelerator is not None else self._window_bytes(rings, layout)
            beside = window + self._staging_bytes(layout)
            needed = listed + self.fixed_bytes + beside
            # What grows with the steps is among the fixed bytes, and would be less for fewer.
            growing = steps_bytes(self.problem)
            each = SWEEP_BYTES + -(-growing * depth // steps)
            fitting = max(0, self.host_room + growing - beside) // each * depth
            raise InfeasiblePlan(
                f"{steps} steps, {depth} in each sweep, are {sweeps} sweeps, and the list of them "
                f"takes {format_bytes(listed)}, with the program itself above the "
                f"memory limit of {format_bytes(self.options.memory_bytes)}; run at most "
                f"{fitting} steps at a time, or a limit of "
                f"{-(-needed // (1 << 20))} MiB fits"
            )

    def _rate(self, tile: Tile, depth: int, slab: int) -> float:
        """Updates per second, from the tile's own measurement if there is one."""
        if self.accelerator is not None:
            return device_rate(self.problem, self.accelerator, self.sizing.cells_per_plane, slab)
        skew = self.sizing.skew.per_step
        levels = tile_levels(tile, self.problem)
        sample = None
        if self.calibration:
            sample = self.calibration.of(levels, tile.planes, tile.columns, tile.band)
        if self.calibration and sample is not None:
            unknown = border_seconds(self.rates, skew)
            return self.calibration.rate(sample, depth, slab, unknown)
        reach = levels * max(1, skew)
        return updates_per_second(self.rates, min(levels, max(1, depth)), reach, slab)

    def _infeasible(self) -> InfeasiblePlan:
        """What is missing, and the nearest values that fit."""
        options = self.options
        candidates = list(self._candidates_at_least())
        if not candidates:
            return self._cannot_go_round()
        smallest = min(candidates, key=lambda c: c.needed_bytes)
        least, owned = (
            self.sizing.least_owned(smallest.schedule.depths),
            len(self.sizing.owned.planes),
        )
        if least > owned:
            return self._too_thin(smallest.schedule.depths, least, owned)
        disk = self.part.disk_bytes if self.part is not None else None
        if disk is not None and smallest.needed_bytes <= self.room:
            wanted, depth = smallest.traffic.disk_bytes(), smallest.schedule.depth
            return InfeasiblePlan(
                f"a sweep of {depth} steps keeps {format_bytes(wanted)} on the disk of a rank, "
                f"which has {format_bytes(disk)}; "
                + ("a lower depth, or " if depth > 1 else "")
                + "more ranks on other disks fit"
            )
        if self.accelerator is not None:
            return self._device_infeasible(smallest, self.accelerator)
        needed = smallest.needed_bytes + self.fixed_bytes
        asked = "" if options.depth is None else f" for depth {options.depth}"
        slab = (
            f" with slabs of {smallest.schedule.slab_planes} planes" if options.slab_planes else ""
        )
        message = (
            f"the window{asked}{slab} needs {format_bytes(smallest.held_bytes)} and the program "
            f"itself {format_bytes(needed - smallest.held_bytes)}, together above the "
            f"memory limit of {format_bytes(options.memory_bytes)}; "
        )
        fits = None
        if options.depth is not None and options.depth > 1:
            fits = self._deepest_that_fits(smallest.schedule.slab_planes)
        if fits:
            message += f"depth {fits} fits, or "
        # Rounded up, and in whole units: what is said here is going to be typed.
        return InfeasiblePlan(message + f"a limit of {-(-needed // (1 << 20))} MiB fits")

    def _too_thin(self, depths: tuple[int, ...], least: int, owned: int) -> InfeasiblePlan:
        """Why a rank has no room for the seams at its cuts, and what would do."""
        fits = [depth for depth in range(1, max(depths)) if self._thick_enough(depth)]
        ways = [f"depth {fits[-1]}"] if fits else []
        ways += ["fewer ranks", "exchange = 'halos'"]
        return InfeasiblePlan(
            f"a rank that leaves seams owns at least {least} planes in sweeps of {max(depths)} "
            f"steps, and one of {owned} was to do so; {' or '.join(ways)} fits"
        )

    def _thick_enough(self, depth: int) -> bool:
        return self.sizing.least_owned((depth,)) <= len(self.sizing.owned.planes)

    def _device_infeasible(self, smallest: _Candidate, of: Accelerator) -> InfeasiblePlan:
        """What is missing on a device, or in the memory of the process beside it."""
        missing = smallest.needed_bytes - self.room
        if missing > 0:
            needed = of.memory_bytes + missing
            return InfeasiblePlan(
                f"the window needs {format_bytes(smallest.needed_bytes)} of the device's memory and"
                f" tables {format_bytes(of.memory_bytes - self.room)}, together above the"
                f" {format_bytes(of.memory_bytes)} that may be taken; {-(-needed // (1 << 20))} MiB"
                " of device_memory fit"
            )
        layout = smallest.layout
        least = LEAST_PARTS * layout.window_rows * layout.row_bytes + self._beside_device(smallest)
        return InfeasiblePlan(
            f"copies to the device pass through {format_bytes(least)} of memory at least, beside"
            f" {format_bytes(self.fixed_bytes)} for the program itself, together above the memory"
            f" limit of {format_bytes(self.options.memory_bytes)}; a limit of"
            f" {-(-(least + self.fixed_bytes) // (1 << 20))} MiB fits"
        )

    def _cannot_go_round(self) -> InfeasiblePlan:
        """Why a grid that is periodic along the stream cannot be streamed, and what would do."""
        options, planes = self.options, self.problem.shape[0]
        depth, slab = min(options.depth or 1, self.problem.deepest), options.slab_planes or 1
        least = self.sizing.least_planes(self._split(depth), slab)
        fits = [d for d in range(1, depth) if self.sizing.least_planes((d,), slab) <= planes]
        smaller = slab > 1 and self.sizing.least_planes(self._split(depth), 1) <= planes
        ways = [f"depth {fits[-1]} fits"] if fits else []
        ways += ["smaller slabs fit"] if smaller else []
        return InfeasiblePlan(
            f"a grid that is periodic along {self.streamed} is streamed with {depth} steps in slabs"
            f" of {slab} planes only if it has at least {least} planes, and this one has {planes}; "
            + ", or ".join([*ways, "leave tier out, so that it is updated in memory"])
        )

    def _candidates_at_least(self) -> Iterator[_Candidate]:
        """Candidates among which is the one that needs least."""
        for resident in self._residencies():
            slabs = self._resident_slabs() if resident else [1, *self._slabs()[:1]]
            for slab in slabs[-1:] if self.options.slab_planes else slabs:
                for depth in self._depths_at_least():
                    for height in (None,) if resident else self._heights_at_least(depth):
                        found = self._candidate(depth, slab, resident, height)
                        if resident or self._goes_round(found):
                            yield found

    def _depths_at_least(self) -> list[int]:
        """The shallowest sweeps, whose window is the smallest, and deeper ones, whose list is."""
        steps = self.problem.deepest
        fixed = self.options.scheme == "plain" or self.options.depth is not None
        if fixed or self.part is not None:
            return [min(self.options.depth or 1, steps)]
        found = {deepest_of_split(steps, depth) for depth in range(1, RESIDENT_DEPTH + 1)}
        listed = [each for each in found if self.problem.steps <= each * MOST_LISTED]
        return sorted(listed) or [max(found)]

    def _heights_at_least(self, depth: int) -> tuple[int | None, ...]:
        if self.options.strip_rows is not None:
            return (self.options.strip_rows,)
        thinnest = self._least_height(depth)
        if not self.sizing.can_cut or self.only_resident:
            return (None,)
        return (None, thinnest) if self.sizing.strips(depth, thinnest).closes(depth) else (None,)

    def _deepest_that_fits(self, slab: int) -> int | None:
        """The largest depth below the one asked for that fits, in whole planes or in strips."""
        if self.only_resident:
            return None
        low, high = 0, (self.options.depth or 1) - 1
        while low < high:
            middle = (low + high + 1) // 2
            fits = any(
                candidate.needed_bytes <= self.room and self._goes_round(candidate)
                for candidate in (
                    self._candidate(middle, slab, resident=False, height=height)
                    for height in self._heights_at_least(middle)
                )
            )
            low, high = (middle, high) if fits else (low, middle - 1)
        return low or None

    def _finish(self, chosen: _Candidate) -> Plan:
        problem, traffic = self.problem, chosen.traffic
        schedule = self._kept(chosen)
        tier = streaming_tier(self.options)
        if chosen.schedule.resident and not self.options.in_place:
            tier = "memory"
        mapped = tier == "mmap" and schedule.resident
        disk_bytes = self.sizing.traffic(schedule).disk_bytes(
            "direct" if schedule.resident else disk_tier(self.options),
            chosen.window_bytes if mapped else 0,
        )
        begin = self.begin or Begin(0, 0)
        spared = traffic.spared_bytes(begin.depth, begin.part, schedule.begin.planes)
        read, written = (n - less for n, less in zip(traffic.moved_bytes, spared, strict=True))
        sent_bytes, received_bytes = traffic.exchanged_bytes
        ranked = self.sizing.subgrid is not None
        return Plan.of(
            schedule,
            problem_digest=problem.digest,
            stencil=problem.stencil.name,
            scheme="plain" if schedule.depth == 1 else "skewed",
            dtype=problem.dtype,
            layout=chosen.layout,
            tile=chosen.tile,
            threads=self.threads,
            memory_bytes=self.options.memory_bytes,
            fixed_bytes=self.fixed_bytes,
            window_bytes=chosen.window_bytes,
            transfer_bytes=self._staging_bytes(chosen.layout),
            exchange_bytes=chosen.exchange_bytes,
            disk_bytes=disk_bytes,
            read_bytes=read,
            written_bytes=written * (schedule.states if schedule.commit_sweeps else 1),
            fill_bytes=traffic.fill_bytes,
            updates=self.sizing.updates,
            flops=self.sizing.updates * problem.stencil.flops,
            prediction=chosen.prediction,
            notes=tuple(self._notes(chosen)),
            pin=self.options.pin,
            tier=tier,
            keep=self.options.keep,
            held_bytes=0 if self.accelerator is not None else chosen.held_bytes,
            device=self._device_level(chosen),
            snapshot_bytes=problem.kept_bytes(problem.steps, schedule.part) if ranked else 0,
            sent_bytes=sent_bytes,
            received_bytes=received_bytes,
        )

    def _kept(self, chosen: _Candidate) -> Schedule:
        """The schedule, with what is made durable and where it begins."""
        begin, commits = self.begin or Begin(0, 0), self._commit_sweeps(chosen)
        # A face that reaches below the grid spares nothing.
        planes = begin.planes if begin.planes > chosen.schedule.lean(begin.depth) else 0
        return replace(
            chosen.schedule,
            commit_planes=self._commit_planes(chosen),
            commit_sweeps=commits if chosen.schedule.sweeps > commits else 0,
            begin=Point(0, begin.part, planes),
        )

    def _notes(self, chosen: _Candidate) -> Iterator[str]:
        """What a reader of the plan has to know."""
        problem, sizing, schedule = self.problem, self.sizing, chosen.schedule
        yield from notes_on_tier(self.options)
        yield describe(chosen.layout)
        if sizing.subgrid is not None and sizing.subgrid.cut[0] > 1:
            way = "downward" if sizing.subgrid.downward else "upward"
            other = "against" if sizing.subgrid.opposite else "like"
            yield f"planes pass {way}, {other} those of the neighbours along z"
            if sizing.with_seams:
                does = "leaves seams at its cuts" if sizing.subgrid.upright else "takes seams"
                yield f"nothing is computed twice: this rank {does}"
        if chosen.parts > 1:
            yield (
                f"planes pass in {chosen.parts} strips of {chosen.schedule.strips.height} "
                "rows; their seams are written and read again"
                + (", and close the circle" if sizing.circle else "")
            )
        closing = schedule.closing(schedule.depth, STREAMED)
        if closing is not None:
            again = format_count(closing.reach, "plane")
            seam = "" if chosen.schedule.resident else "leave a seam in each sweep, and "
            yield (
                f"periodic along {self.streamed}: the first {again} {seam}come round again at"
                f" {'the end of each sweep' if chosen.schedule.resident else 'its end'}"
            )
        elif sizing.closed:
            yield f"periodic along {self.streamed}: every step is made over the whole grid"
        if problem.until is not None:
            yield (
                f"ends where {problem.until.rule}; all figures are those of {problem.steps} steps"
            )
        yield "kernel rate measured" if self.calibration else "kernel rate estimated"
        levels = tile_levels(chosen.tile, problem)
        across = "rows" if problem.stencil.ndim == 3 else "columns"
        if chosen.tile.order == "diamond":
            yield (
                f"diamond tiles of {chosen.tile.rows} {across} "
                f"carry {levels} levels through the cache"
                + (f", {chosen.tile.columns} columns at a time" if chosen.tile.columns else "")
                + (f", in bands of {chosen.tile.band} rows" if chosen.tile.band else "")
            )
        yield from self._notes_in_vain(chosen)

    def _notes_in_vain(self, chosen: _Candidate) -> Iterator[str]:
        """What was asked for, and means nothing to what was chosen."""
        options = self.options
        if options.slab_planes not in (None, chosen.schedule.slab_planes):
            yield "slab_planes does nothing: every step is made over the whole grid"
        for name in ("tile_columns", "tile_band"):
            if options.given(name) is not None and chosen.tile.order == "level":
                yield f"{name} does nothing: planes are updated level by level, without diamonds"
        if not chosen.schedule.resident:
            yield from notes_on_commits(options, self._whole_sweeps(chosen))

    def _whole_sweeps(self, chosen: _Candidate) -> str:
        """Why a sweep becomes durable as a whole only; empty where it does so bit by bit."""
        if not self._can_roll():
            return "reductions count each cell once"
        if chosen.parts > 1 and self.sizing.closed:
            return "strips of a circle leave to each other what closes it"
        return ""

    def _commit_planes(self, chosen: _Candidate) -> int:
        """Planes between two commits within a sweep, 0 where there are none."""
        if chosen.schedule.resident or not chosen.schedule.depths or self.part is not None:
            return 0
        if self._whole_sweeps(chosen):
            return 0
        cut, planes = chosen.parts > 1, chosen.parts * self.problem.shape[0]
        seams = cut or self.sizing.closed
        every = commit_planes(self.options, self._sweep_seconds(chosen), planes, seams)
        # Strips need a flush each and a second place for seams: not where a sweep is over sooner.
        return 0 if cut and every == planes and self.begin is None else every

    def _commit_sweeps(self, chosen: _Candidate) -> int:
        """Sweeps between two commits of a resident grid, 0 for streamed ones."""
        if not chosen.schedule.resident or not chosen.schedule.depths:
            return 0
        seconds = self.options.commit_seconds
        if seconds is None:
            moving = chosen.traffic.moved_bytes[1] / self.machine.write_bandwidth
            seconds = max(COMMIT_SECONDS, WORTH_KEEPING * moving)
        sweeps = math.ceil(min(seconds / self._sweep_seconds(chosen), len(chosen.schedule.depths)))
        return max(1, sweeps)

    @staticmethod
    def _sweep_seconds(chosen: _Candidate) -> float:
        return max(1e-9, chosen.prediction.seconds / len(chosen.schedule.depths))
