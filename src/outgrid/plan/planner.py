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
from outgrid.machine import Machine
from outgrid.plan.blocking import plan_blocks
from outgrid.plan.calibration import Calibration
from outgrid.plan.cost import (
    Movement,
    Rates,
    border_seconds,
    predict,
    rates,
    slabbed_rate,
    updates_per_second,
)
from outgrid.plan.layout import describe
from outgrid.plan.model import Layout, Plan, Prediction, Ring, Tile
from outgrid.plan.sizing import Sizing, given_steps, split_steps
from outgrid.plan.strips import Strips
from outgrid.plan.tiling import choose_tile, tile_levels
from outgrid.stencil.problem import Problem
from outgrid.stencil.symbol import AXES
from outgrid.units import format_bytes

SCHEMES = ("skewed", "plain", "overlapped")
# Slabs are sized in bytes per field: below, requests get small; above, memory is better spent on
# depth.
SLAB_BYTES = (1 << 20, 1 << 29)
RESIDENT_SLAB_PLANES = 64
WORTH_CUTTING = 1.05
# A disk that is busy for minutes, beside cores that are, moves less than in a probe of seconds:
# plans are chosen as if transfers took so much longer.
SUSTAINED = 1.7
CUT_SLAB_PLANES = 64  # of strips: beyond, memory is better spent on their height
RESIDENT_SLABS = 8
WORTH_STREAMING = 1.1  # times faster than the same grid in memory
RESIDENT_SLAB_BYTES = 4 << 30
# A crash is to cost about so many seconds; what is kept of a resident grid in mid-run, at most this
# share of the time.
COMMIT_SECONDS = 30.0
WORTH_KEEPING = 50


@dataclass(frozen=True, slots=True)
class _Candidate:
    """One way to run the problem, sized and priced."""

    depths: tuple[int, ...]
    slab: int
    resident: bool
    strips: Strips
    layout: Layout
    tile: Tile
    rings: tuple[Ring, ...]
    window_bytes: int
    transfer_bytes: int
    moved_bytes: tuple[int, int]
    prediction: Prediction

    @property
    def parts(self) -> int:
        """Strips of the deepest sweep, 1 for whole planes."""
        return self.strips.count(max(self.depths, default=0))

    @property
    def price(self) -> float:
        """Expected seconds, with room for a disk that gives less than it promised.

        What wears the flash more must be worth it.
        """
        if self.resident:
            return self.prediction.seconds
        seconds = max(self.prediction.seconds, SUSTAINED * self.prediction.transfer_seconds)
        return seconds * WORTH_STREAMING * (WORTH_CUTTING if self.parts > 1 else 1.0)

    @property
    def needed_bytes(self) -> int:
        """Memory beside what the process needs in any case."""
        return self.window_bytes + self.transfer_bytes


def plan(
    problem: Problem,
    options: RunOptions,
    machine: Machine,
    fixed_bytes: int,
    calibration: Calibration | None = None,
    begin: Begin | None = None,
) -> Plan:
    """The cheapest plan that fits ``options.memory_bytes``.

    With ``begin`` it goes on within a sweep if that sweep fits, else it starts that sweep again.

    ``fixed_bytes`` is what the process needs beside the window: interpreter, libraries, kernel.
    Without a ``calibration`` of the kernel its rate is estimated from the machine.
    Raises InfeasiblePlan with the limit that would fit, UsageError for values out of range.
    """
    if options.scheme == "overlapped":
        return plan_blocks(problem, options, machine, fixed_bytes, calibration)
    if begin is not None:
        within = _Choice(problem, options, machine, fixed_bytes, calibration, begin).plan_within()
        if within is not None:
            return within
    return _Choice(problem, options, machine, fixed_bytes, calibration).plan()


@dataclass(frozen=True, slots=True)
class Begin:
    """Where a run goes on: ``planes`` planes of the first sweep, of ``depth`` steps, are there."""

    depth: int
    planes: int


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
    ) -> None:
        self.begin = begin
        self.problem, self.options, self.machine = problem, options, machine
        self.fixed_bytes, self.calibration = fixed_bytes, calibration
        self.sizing = Sizing(problem)
        self.threads = options.threads or machine.cores
        self.rates: Rates = rates(problem, machine, self.threads)
        self.room = options.memory_bytes - fixed_bytes
        self.whole = self.sizing.layout(self.sizing.strips(0), 0)
        self._check_options()

    def _transfer_bytes(self, layout: Layout) -> int:
        """Staging buffers of the I/O queue, beside the window."""
        return self.options.in_flight_bytes if layout.staged else 0

    @property
    def streamed(self) -> str:
        """Name of the axis that a grid is streamed along."""
        return AXES[-self.problem.ndim]

    @property
    def closed(self) -> bool:
        """Whether the first plane reads the last one: no plane can leave before all are updated."""
        return self.problem.edges.periodic(0)

    def _check_options(self) -> None:
        options, planes = self.options, self.problem.shape[0]
        if self.closed and options.tier == "direct":
            raise UsageError(
                f"a grid that is periodic along {self.streamed}, its first axis, is updated in"
                " memory only, so tier direct cannot be met; leave tier out, or let another axis be"
                " the periodic one"
            )
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
        for name in ("block", "inner", "inner_depth"):
            if getattr(options, name) is not None:
                raise UsageError(f"{name} is for scheme overlapped; leave it out, or choose that")

    def _check_strips(self, height: int) -> None:
        if self.problem.ndim == 2:
            raise UsageError("strip_rows cuts planes of several rows; a plane in 2-D is one row")
        if not self.sizing.can_cut:
            raise UsageError(
                "strip_rows is for stencils of one stage on grids that are not periodic along z or "
                f"y; {self.problem.stencil.name!r} has {len(self.problem.stencil.stages)}: leave "
                "it out"
            )
        if height < 1:
            raise UsageError(f"strip_rows {height} is below 1 row per strip")
        if self.options.tier == "memory":
            raise UsageError(
                "strip_rows cuts what is streamed from disk; with tier memory nothing is: leave "
                "one of the two out"
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
        if begin is None or options.tier == "memory" or options.strip_rows is not None:
            return None
        if not self._can_roll() or (options.scheme == "plain" and begin.depth > 1):
            return None
        best = self._cheapest(small=False) or self._cheapest(small=True)
        return self._finish(best) if best is not None else None

    def _can_roll(self) -> bool:
        """Whether a state may become durable bit by bit: in whole planes, one stage per step."""
        return len(self.problem.stencil.stages) == 1

    def _cheapest(self, small: bool) -> _Candidate | None:
        best: _Candidate | None = None
        for candidate in self._candidates(small):
            if candidate.needed_bytes <= self.room and (
                best is None or candidate.price < best.price * 0.999
            ):
                best = candidate
        return best

    def _candidates(self, small: bool) -> Iterator[_Candidate]:
        if self.problem.steps == 0:
            yield self._candidate(0, self._slabs()[0], resident=False)
            return
        streamed = self._small_slabs() if small else self._slabs()
        if self.begin is not None:
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
        if not self.sizing.can_cut:
            return
        asked = self.options.slab_planes
        for slab in [asked] if asked else self._doubling(CUT_SLAB_PLANES) or [1]:
            for candidate in self._cut(slab):
                moved = slab * candidate.strips.height * candidate.layout.row_bytes
                if small or asked or moved >= SLAB_BYTES[0]:
                    yield candidate

    def _cut(self, slab: int) -> Iterator[_Candidate]:
        """Candidates of planes cut into strips, as high as memory allows for each depth."""
        for depth in self._cut_depths():
            height = self.options.strip_rows or self._height(depth, slab)
            if height is None:
                return
            cut = self.sizing.strips(depth, height).count(depth) > 1
            if cut or self.options.strip_rows is not None:
                yield self._candidate(depth, slab, resident=False, height=height)

    def _cut_depths(self) -> list[int]:
        """Depths worth pricing, in steps of about a quarter."""
        steps = self.problem.steps
        if self.options.scheme == "plain" or self.options.depth is not None:
            return self._depths(1, resident=False)
        deepest = min(steps, self.problem.shape[0] // max(1, self.sizing.skew.per_step))
        found, depth = [1], 2
        while depth < deepest:
            found.append(max(split_steps(steps, depth)))
            depth = max(depth + 2, depth * 5 // 4 // 2 * 2)
        return sorted({*found, max(split_steps(steps, max(1, deepest)))})

    def _height(self, depth: int, slab: int) -> int | None:
        """Rows of the highest strips that fit, evened out; None where not even one row does."""
        sizing = self.sizing
        planes = sum(r.planes for r in sizing.rings((depth,), slab, resident=False, seams=True))
        thinnest = sizing.layout(sizing.strips(depth, 1), depth)
        room = (self.room - self._transfer_bytes(thinnest)) // planes
        height = room // thinnest.row_stride_bytes - sizing.row_skew * (depth + 1)
        # A pitch is rounded up to whole pages, and an odd number of them.
        while height > 0:
            if sizing.layout(sizing.strips(depth, height), depth).pitch_bytes <= room:
                break
            height -= 1
        if height < 1:
            return None
        total = self.problem.shape[1] + sizing.row_skew * depth
        return -(-total // -(-total // height))

    def _residencies(self) -> tuple[bool, ...]:
        tier = self.options.tier
        if tier == "memory" or self.closed:
            return (True,)
        return (False,) if tier == "direct" else (True, False)

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
        if self.closed:
            return [self.sizing.whole_planes(max(self._depths(1, resident=True), default=0))]
        if self.options.slab_planes is not None:
            return [self.options.slab_planes]
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
        """Slabs of 1, 2, 4, 6, ... planes up to ``most``, fewer than the grid has."""
        slab, found = 1, list[int]()
        while slab < self.problem.shape[0] and slab <= most:
            found.append(slab)
            slab = slab * 2 if slab < 4 else slab * 3 // 2 // 2 * 2
        return found

    def _depths(self, slab: int, resident: bool) -> list[int]:
        """Depths worth pricing: for each number of sweeps the least depth that needs no more."""
        steps = self.problem.steps
        if self.options.scheme == "plain":
            return [1]
        if self.options.depth is not None:
            return [min(self.options.depth, steps)]
        most = min(steps, self._deepest(slab, resident))
        return sorted({max(split_steps(steps, depth)) for depth in range(1, most + 1)})

    def _deepest(self, slab: int, resident: bool) -> int:
        """Largest depth whose window fits, by bisection; memory grows with depth."""
        if resident:
            return 64
        room = self.room - self._transfer_bytes(self.whole)
        low, high = 1, max(1, self.problem.shape[0] // max(1, self.sizing.skew.per_step))
        while low < high:
            middle = (low + high + 1) // 2
            if self._window_bytes(self.sizing.rings((middle,), slab, resident), self.whole) <= room:
                low = middle
            else:
                high = middle - 1
        return low

    @staticmethod
    def _window_bytes(rings: tuple[Ring, ...], layout: Layout) -> int:
        return sum(ring.planes for ring in rings) * layout.pitch_bytes

    def _candidate(
        self, depth: int, slab: int, resident: bool, height: int | None = None
    ) -> _Candidate:
        sizing = self.sizing
        depths = self._split(depth)
        deepest = max(depths, default=0)
        strips = sizing.strips(deepest, height)
        layout = sizing.layout(strips, deepest)
        rings = sizing.rings(depths, slab, resident, seams=strips.count(deepest) > 1)
        tile = choose_tile(
            self.problem, self.machine, self.options, self.threads, depth, self.calibration
        )
        rate = self._rate(tile, depth, slab)
        trips = min(1, len(depths)) if resident else len(depths)
        moved = sizing.moved_bytes(depths[-1:] if resident else depths, strips)
        lead = min(1.0, sizing.skew.per_step * depth / self.problem.shape[0])
        share = min(1.0, slab / (self.problem.shape[0] * strips.count(deepest)))
        movement = Movement(trips, *moved, share, self.options.request_bytes)
        prediction = predict(self.problem, self.machine, rate, depths, movement, lead)
        return _Candidate(
            depths,
            slab,
            resident,
            strips,
            layout,
            tile,
            rings,
            self._window_bytes(rings, layout),
            self._transfer_bytes(layout),
            moved,
            prediction,
        )

    def _split(self, depth: int) -> tuple[int, ...]:
        """Steps per sweep: a depth that was asked for is kept, one of our own is balanced."""
        if depth == 0:
            return ()
        split = split_steps if self.options.depth is None else given_steps
        if self.begin is None:
            return split(self.problem.steps, depth)
        return (self.begin.depth, *split(self.problem.steps - self.begin.depth, depth))

    def _rate(self, tile: Tile, depth: int, slab: int) -> float:
        """Updates per second, from the tile's own measurement if there is one."""
        skew = self.sizing.skew.per_step
        levels = tile_levels(tile, self.problem)
        sample = self.calibration.of(levels, tile.planes) if self.calibration else None
        if self.calibration and sample is not None:
            if levels == 1:
                return sample.rate(depth)
            border = self.calibration.border_seconds
            if border is None:
                border = border_seconds(self.rates, skew)
            return slabbed_rate(sample.rate(depth), border, slab)
        reach = levels * max(1, skew)
        return updates_per_second(self.rates, min(levels, max(1, depth)), reach, slab)

    def _infeasible(self) -> InfeasiblePlan:
        """What is missing, and the nearest values that fit."""
        options = self.options
        smallest = min(self._candidates_at_least(), key=lambda c: c.needed_bytes)
        needed = smallest.needed_bytes + self.fixed_bytes
        asked = "" if options.depth is None else f" for depth {options.depth}"
        slab = f" with slabs of {smallest.slab} planes" if options.slab_planes else ""
        message = (
            f"the window{asked}{slab} needs {format_bytes(smallest.window_bytes)} and the program "
            f"itself {format_bytes(needed - smallest.window_bytes)}, together above the "
            f"memory limit of {format_bytes(options.memory_bytes)}; "
        )
        fits = None
        if options.depth is not None and options.depth > 1:
            fits = self._deepest_that_fits(smallest.slab)
        if fits:
            message += f"depth {fits} fits, or "
        # Rounded up, and in whole units: what is said here is going to be typed.
        if self.closed:
            message += f"a grid that is periodic along {self.streamed} has to fit into memory; "
        return InfeasiblePlan(message + f"a limit of {-(-needed // (1 << 20))} MiB fits")

    def _candidates_at_least(self) -> Iterator[_Candidate]:
        depth = self.options.depth or 1
        resident = self._residencies()[-1]
        slabs = self._resident_slabs() if resident else [1, *self._slabs()[:1]]
        for slab in slabs[-1:] if self.options.slab_planes else slabs:
            for height in self._heights_at_least():
                yield self._candidate(min(depth, self.problem.steps), slab, resident, height)

    def _heights_at_least(self) -> tuple[int | None, ...]:
        if self.options.strip_rows is not None:
            return (self.options.strip_rows,)
        return (None,) if not self.sizing.can_cut or self.options.tier == "memory" else (None, 1)

    def _deepest_that_fits(self, slab: int) -> int | None:
        """The largest depth below the one asked for that fits, in whole planes or in strips."""
        if self.options.tier == "memory":
            return None
        low, high = 0, (self.options.depth or 1) - 1
        while low < high:
            middle = (low + high + 1) // 2
            fits = any(
                candidate.needed_bytes <= self.room
                for candidate in (
                    self._candidate(middle, slab, resident=False, height=height)
                    for height in self._heights_at_least()
                )
            )
            low, high = (middle, high) if fits else (low, middle - 1)
        return low or None

    def _finish(self, chosen: _Candidate) -> Plan:
        problem, sizing = self.problem, self.sizing
        deepest = max(chosen.depths, default=0)
        notes = [describe(chosen.layout)]
        if chosen.parts > 1:
            notes.append(
                f"planes pass in {chosen.parts} strips of {chosen.strips.height} "
                "rows; their seams are written and read again"
            )
        if self.closed:
            notes.append(f"periodic along {self.streamed}: every step is made over the whole grid")
        notes.append("kernel rate measured" if self.calibration else "kernel rate estimated")
        levels = tile_levels(chosen.tile, problem)
        across = "rows" if problem.stencil.ndim == 3 else "columns"
        if chosen.tile.order == "diamond":
            notes.append(
                f"diamond tiles of {chosen.tile.rows} {across} "
                f"carry {levels} levels through the cache"
            )
        fields = len(sizing.arrivals)
        begin = self.begin.planes if self.begin is not None else 0
        first = max(0, begin - sizing.face * chosen.depths[0]) if begin else 0
        skipped = (first * len(sizing.arrivals), begin * len(sizing.departures))
        commits = self._commit_sweeps(chosen)
        kept = commits and len(chosen.depths) > commits
        plane_bytes = chosen.layout.rows * chosen.layout.row_bytes
        found = Plan(
            problem_digest=problem.digest,
            stencil=problem.stencil.name,
            scheme="plain" if max(chosen.depths, default=0) == 1 else "skewed",
            shape=problem.shape,
            dtype=problem.dtype,
            depths=chosen.depths,
            slab_planes=chosen.slab,
            skew=sizing.skew.per_step,
            shifts=sizing.skew.shifts,
            pitch_planes=sizing.pitch_planes(
                deepest, chosen.slab, chosen.resident, chosen.parts > 1, chosen.depths
            ),
            strips=chosen.strips,
            resident=chosen.resident,
            commit_planes=self._commit_planes(chosen),
            commit_sweeps=commits if kept else 0,
            face=sizing.face,
            begin_planes=begin if first else 0,
            rings=chosen.rings,
            arrivals=sizing.arrivals,
            departures=sizing.departures,
            layout=chosen.layout,
            tile=chosen.tile,
            threads=self.threads,
            memory_bytes=self.options.memory_bytes,
            fixed_bytes=self.fixed_bytes,
            window_bytes=chosen.window_bytes,
            transfer_bytes=chosen.transfer_bytes,
            disk_bytes=sizing.disk_bytes(chosen.depths, chosen.strips),
            read_bytes=chosen.moved_bytes[0] - (skipped[0] * plane_bytes if first else 0),
            written_bytes=chosen.moved_bytes[1] - (skipped[1] * plane_bytes if first else 0),
            fill_bytes=fields * sizing.level_bytes,
            updates=problem.updates,
            flops=problem.updates * problem.stencil.flops,
            prediction=chosen.prediction,
            notes=tuple(notes),
            pin=self.options.pin,
        )
        if not kept:
            return found
        return replace(found, written_bytes=len(found.kept) * found.written_bytes)

    def _commit_planes(self, chosen: _Candidate) -> int:
        """Planes between two commits within a sweep, 0 where there are none."""
        if chosen.resident or chosen.parts > 1 or not chosen.depths or not self._can_roll():
            return 0
        seconds = self.options.commit_seconds
        share = (COMMIT_SECONDS if seconds is None else seconds) / self._sweep_seconds(chosen)
        planes = self.problem.shape[0]
        return max(1, min(planes, math.ceil(planes * share))) if share < 1 else planes

    def _commit_sweeps(self, chosen: _Candidate) -> int:
        """Sweeps between two commits of a resident grid, 0 for streamed ones."""
        if not chosen.resident or not chosen.depths:
            return 0
        seconds = self.options.commit_seconds
        if seconds is None:
            moving = chosen.moved_bytes[1] / self.machine.write_bandwidth
            seconds = max(COMMIT_SECONDS, WORTH_KEEPING * moving)
        sweeps = math.ceil(min(seconds / self._sweep_seconds(chosen), len(chosen.depths)))
        return max(1, sweeps)

    @staticmethod
    def _sweep_seconds(chosen: _Candidate) -> float:
        return max(1e-9, chosen.prediction.seconds / len(chosen.depths))
