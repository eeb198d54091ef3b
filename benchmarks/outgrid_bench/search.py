"""Running one problem in every way that a plan could choose, and finding the fastest.

The files of the problem are made once, and every candidate sweeps them: what it computes on are
the results of the one before. The first round stops a candidate as soon as it falls behind the
fastest so far by a third. The best of them are measured anew, in rounds of changing order:
the best of many noisy figures is partly the luckiest, the median of new ones is not.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path

from msgspec.structs import replace

from outgrid import Machine, Plan, Problem
from outgrid.config import RunOptions
from outgrid.errors import InfeasiblePlan
from outgrid.parts import (
    Advance,
    Arrival,
    Callbacks,
    Hierarchy,
    InitialValues,
    Instruction,
    Kernel,
    SeamKey,
    Tile,
    Window,
    asking_for,
    band_rows,
    bands_cut,
    columns_cut,
    fill,
    program,
    row_updates,
    stream,
    tile_levels,
    tile_slope,
)
from outgrid.storage import DirectStore, Store, Transfers

__all__ = ["Ground", "Timing", "neighbourhood", "race"]

SLOWER = 1.3  # the first round gives up on a candidate that takes so many times the least
START = 0.1  # share of a run in which nothing is decided yet
FINALISTS = 6
ROUNDS = 5
DEPTHS = (1, 4, 16, 64)
SLAB_BYTES = (1 << 20, 4 << 20, 16 << 20)  # of one field
LEVELS = {2: (8, 16, 32, 64), 3: (4, 8, 16, 32)}  # of a diamond, by dimensions
FRONTS = (2, 4, 8)  # planes per step of the front
STRIPS = (2, 4, 8)  # that planes are cut into
BLOCK_ROWS = 32  # of a plane, in sweeps of one step

Price = Callable[[RunOptions], Plan]


@dataclass(slots=True)
class Timing:
    """A plan and what it took; ``first_seconds`` is infinite where the first round gave it up."""

    plan: Plan
    first_seconds: float = math.inf
    samples: list[float] = field(default_factory=list[float])

    @property
    def seconds(self) -> float:
        """Median of the rounds."""
        return statistics.median(self.samples)


def neighbourhood(
    problem: Problem, options: RunOptions, machine: Machine, choice: Plan, price: Price
) -> list[Plan]:
    """The plans of all combinations of settings around ``choice`` that fit the memory limit."""
    plans = {_settings(choice): choice}
    for wanted in _wanted(problem, options, machine, choice):
        try:
            chosen = price(wanted)
        except InfeasiblePlan:
            continue
        plans.setdefault(_settings(chosen), chosen)
    return list(plans.values())


def _settings(plan: Plan) -> tuple[object, ...]:
    return (
        plan.schedule.resident,
        plan.schedule.depths,
        plan.schedule.slab_planes,
        plan.schedule.strips,
        plan.tile,
        plan.threads,
    )


def _wanted(
    problem: Problem, options: RunOptions, machine: Machine, choice: Plan
) -> Iterator[RunOptions]:
    """Every depth with every slab, tile and number of threads; a resident grid has one slab.

    Strips are tried with the tile of the choice alone: their seams cost the same in any order.
    """
    width = 2 * tile_slope(problem.stencil, problem.dtype, problem.edges).per_step
    depths = sorted({n for n in (*DEPTHS, choice.depth) if n <= problem.steps})
    sizes = (nbytes // problem.plane_bytes for nbytes in SLAB_BYTES)
    slabs = sorted({n for n in (*sizes, choice.schedule.slab_planes) if 1 <= n <= problem.shape[0]})
    rows = {width * n for n in LEVELS[problem.ndim]}
    fronts = {*FRONTS}
    if choice.tile.order == "diamond":
        rows, fronts = rows | {choice.tile.rows}, fronts | {choice.tile.planes}
    whole = None if columns_cut(problem) else problem.shape[-1]
    lengths = {whole, choice.tile.columns or whole}  # of the parts of long rows
    threads = sorted({max(1, choice.threads // 2), choice.threads})
    for depth, count in product(depths, threads):
        shapes = [
            (height, front, length, band)
            for height, front, length in product(sorted(rows), sorted(fronts), lengths)
            for band in _bands(problem, machine, choice.tile, front, length)
        ]
        if depth == 1:
            shapes = [(None, None, None, None)]
            shapes += [(BLOCK_ROWS, None, None, None)] if problem.ndim == 3 else []
        for height, front, length, band in shapes:
            # A diamond is twice as high as it has levels: one that no sweep fills is no candidate.
            if height and depth > 1 and height // width > depth:
                continue
            common = replace(
                options,
                depth=depth,
                threads=count,
                tile_rows=height,
                tile_planes=front,
                tile_columns=length,
                tile_band=band,
            )
            yield replace(common, tier="memory")
            for slab in slabs:
                yield replace(common, tier="direct", slab_planes=slab)
    yield from _in_strips(problem, options, choice, [n for n in depths if n > 1], slabs)


def _in_strips(
    problem: Problem, options: RunOptions, choice: Plan, depths: list[int], slabs: list[int]
) -> Iterator[RunOptions]:
    """Strips with the tile and the threads of the choice, for every depth and slab."""
    tile, total = choice.tile, problem.shape[1]
    if problem.ndim == 2 or tile.order != "diamond" or len(problem.stencil.stages) > 1:
        return
    common = replace(asking_for(tile, problem, options), tier="direct", threads=choice.threads)
    heights = {total // n for n in STRIPS} | {choice.schedule.strips.height}
    strips = sorted(height for height in heights if 0 < height < total)
    for depth, slab, strip in product(depths, slabs, strips):
        if tile_levels(tile, problem) <= depth:
            yield replace(common, depth=depth, slab_planes=slab, strip_rows=strip)


def _bands(
    problem: Problem, machine: Machine, choice: Tile, planes: int, columns: int | None
) -> tuple[int | None, ...]:
    """Rows of a band that are tried: all, as many as fit the cache, and those of the choice."""
    if bands_cut(problem):
        return (None,)
    fitting = band_rows(problem, machine, planes, columns or 0)
    return (*sorted({height for height in (fitting, choice.band) if height}), problem.shape[1])


class Ground:
    """The files of a problem, on which its plans are timed. A context: the files are removed."""

    def __init__(self, problem: Problem, arrivals: Sequence[Arrival], place: Path) -> None:
        self.problem, self.arrivals, self.place = problem, tuple(arrivals), place
        self._stack = ExitStack()
        self._stores: dict[tuple[str, int, int], DirectStore] = {}

    def __enter__(self) -> Ground:
        with ExitStack() as stack:
            self.transfers = stack.enter_context(Transfers())
            for arrival in self.arrivals:
                for state in (0,) if arrival.constant else (0, 1):
                    self._create(stack, arrival, state)
            fill(InitialValues(self.problem), self.arrivals, self._initial, self.transfers)
            self.transfers.drain()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _create(self, stack: ExitStack, arrival: Arrival, state: int) -> None:
        path = self.place / f"{arrival.field}{arrival.level}.{state}.npy"
        problem = self.problem
        store = DirectStore.create(path, problem.shape, problem.dtype, self.transfers)
        stack.callback(path.unlink)
        stack.callback(store.close)
        self._stores[arrival.field, arrival.level, state] = store

    def _initial(self, arrival: Arrival) -> DirectStore:
        return self._stores[arrival.field, arrival.level, 0]

    def _seams(self, stack: ExitStack, plan: Plan) -> dict[SeamKey, Store]:
        """Places for the seams of a plan, gone with ``stack``."""
        stores: dict[SeamKey, Store] = {}
        for key, shape in plan.schedule.places.items():
            path = self.place / f"{'.'.join(map(str, key))}.seam.npy"
            store = DirectStore.create(path, shape, self.problem.dtype, self.transfers)
            stack.callback(path.unlink)
            stack.callback(store.close)
            stores[key] = store
        return stores

    def seconds(self, plan: Plan, kernel: Kernel, patience: float = math.inf) -> float:
        """Time of all sweeps of ``plan``; infinite if it is not done after ``patience`` seconds."""
        window = Window(plan, partial(kernel.touch, plan))
        within = _Within(plan, patience)
        with ExitStack() as stack:
            stack.callback(window.release)
            tally = stream(
                plan,
                kernel,
                Hierarchy(window, self._stores, self.transfers, self._seams(stack, plan)),
                Callbacks(committed=lambda point: None),
                instructions=within,
            )
        return math.inf if within.stopped else tally.seconds


class _Within:
    """A program that ends as soon as it is clear that it will not be done in time.

    Clear means: behind a run that takes all of ``patience``, by more than START of the whole. What
    came before the end is a program of its own, so nothing is left under way.
    """

    def __init__(self, plan: Plan, patience: float) -> None:
        self._plan, self._patience = plan, patience
        self._total = plan.schedule.planes * plan.layout.rows * sum(plan.schedule.depths)
        self.stopped = False

    def __iter__(self) -> Iterator[Instruction]:
        begin, done = time.perf_counter(), 0
        for instruction in program(self._plan):
            if isinstance(instruction, Advance):
                allowed = self._patience * (done / self._total + START)
                if time.perf_counter() - begin > allowed:
                    self.stopped = True
                    return
                done += row_updates(self._plan, instruction)
            yield instruction


def race(plans: Sequence[Plan], ground: Ground, kernel: Kernel) -> list[Timing]:
    """Time all ``plans``, the first of which is the planner's choice; it is always a finalist."""
    timings = [Timing(plan) for plan in plans]
    shuffled = random.Random(len(timings))
    least = math.inf
    for timing in (timings[0], *shuffled.sample(timings[1:], len(timings) - 1)):
        timing.first_seconds = ground.seconds(timing.plan, kernel, SLOWER * least)
        least = min(least, timing.first_seconds)
    ended = [timing for timing in timings[1:] if math.isfinite(timing.first_seconds)]
    ended.sort(key=lambda timing: timing.first_seconds)
    finalists = [timings[0], *ended[:FINALISTS]]
    for _ in range(ROUNDS):
        for timing in shuffled.sample(finalists, len(finalists)):
            timing.samples.append(ground.seconds(timing.plan, kernel))
    return timings
