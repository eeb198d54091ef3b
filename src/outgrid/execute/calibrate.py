"""Measuring a kernel for the plan, in half a minute: once per kernel, length of rows and threads.

The kernel runs on noise, and on +0 in masks, in a window of its own whose rows are as long as the
problem's, since a tile's place in the caches hangs on them; the number of rows and planes is cut to
a few hundred MiB.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from outgrid.build import kept
from outgrid.build.compiler import find_compiler, processor
from outgrid.build.kept import cache_folder, decoded
from outgrid.codegen.kernel import row_groups
from outgrid.codegen.masks import mask_fields
from outgrid.codegen.names import passes_caches
from outgrid.codegen.version import generator_version
from outgrid.config import AUTO, RunOptions
from outgrid.errors import BuildError
from outgrid.execute.absence import Absence
from outgrid.execute.kernel import Kernel
from outgrid.execute.others import Others
from outgrid.execute.window import Window
from outgrid.machine import Machine
from outgrid.plan.calibration import Calibration, Sample
from outgrid.plan.layout import GUARD_BYTES, ITEM_BYTES, layout
from outgrid.plan.model import MOST_GROUP, Plan, Tile
from outgrid.plan.planner import plan
from outgrid.plan.program import Advance, program
from outgrid.plan.schedule.lifetime import ring_count
from outgrid.plan.sizing import Sizing
from outgrid.plan.tiling import (
    FRONT_PLANES,
    LEVELS,
    asking_for,
    band_rows,
    choose_tile,
    columns_cut,
    levels_round,
    tile_levels,
    tile_slope,
    whole_rows,
)
from outgrid.regular import read_own
from outgrid.schemes import named_by_depth
from outgrid.stencil.checks import least_extent
from outgrid.stencil.parameters import parameter_value
from outgrid.stencil.problem import Problem
from outgrid.stencil.region import regional

FRONTS = (2, 4, 8, 16)  # planes per step of the front
MOST_ROWS = 512
MOST_PLANES = {2: 512, 3: 128}
LEAST_PLANES, LEAST_ROWS = 32, 128  # on which a slow kernel is measured
STEP_SECONDS = 0.03  # that one step of a trial may take
BUDGET_SECONDS, PATIENT_SECONDS = 25.0, 120.0  # that a calibration may take
# Shares of the budget after which the search ends, the climb from what it found, and the comparison
# of the fastest. What is left is for borders.
SEARCH_SHARE, CLIMB_SHARE, COMPARE_SHARE = 0.4, 0.7, 0.85
PARTS = (512, 256)  # columns that rows at least twice as long are cut into
PART_LEVELS = 8  # with fewer, what parts of rows read beside them is more than they spare
THIN_SLAB = {2: 32, 3: 8}  # planes between borders, where what a border costs is measured
BORDER_DEPTH = 4  # steps of a sweep that goes level by level, where that is measured
REPETITIONS, PATIENT_REPETITIONS = 2, 5
ROUNDS = 3  # of the fastest tiles, for each repetition
PATIENT_RIVALS = 3  # tiles of each kind whose neighbours a patient search measures
# Shares of the best rate that make a tile worth measuring again: another program may have halved
# it for a while, and what the best one is hangs on the depth of a plan.
DOUBTFUL, CLOSE = 0.45, 0.9
FALLEN = 0.8
# A window so many times as large as the caches comes from memory, nearly all of it.
BEYOND = 4
FORM = "18"  # changes with what is measured: older calibrations are not found again


def calibrate(
    problem: Problem,
    options: RunOptions,
    machine: Machine,
    kernel: Kernel,
    room_bytes: int,
    beside: Tile | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Calibration | None:
    """Rates of the plain sweep and of diamonds; None where ``room_bytes`` hold too little.

    With ``effort = "patient"`` more of them are measured, and more often. ``beside`` is another
    tile to be measured, whether a search comes to it or not. What there is no time for is left out:
    the last tiles of the search, the last neighbours, repetitions of slow tiles, then borders.
    """
    begin = clock()
    small = _small(problem, room_bytes)
    if small is None:
        return None
    patient = options.effort == "patient"
    repetitions, count = (PATIENT_REPETITIONS, PATIENT_RIVALS) if patient else (REPETITIONS, 1)
    seconds = PATIENT_SECONDS if patient else BUDGET_SECONDS
    groups = row_groups(problem.stencil, problem.dtype, problem.edges, problem.dtypes)
    plains = _level_by_level(problem, groups)
    plain = plains[0]
    others = Others()
    with ExitStack() as stack:
        trials = _Trials(small, problem, options, machine, kernel, clock)
        trials.until = begin + SEARCH_SHARE * seconds
        stack.callback(trials.release)
        trials.run([plain])
        affordable = round(STEP_SECONDS * trials.rates[plain])
        if affordable < small.cells / 2:
            trials.release()
            small = _small(problem, room_bytes, affordable) or small
            trials = trials.on(small)
            stack.callback(trials.release)
            trials.run([plain])
        trials.run(plains[1:])
        stencil = problem.stencil
        if any(passes_caches(field, stencil, problem.dtypes) for field in stencil.evolving):
            plains += [replace(trial, stream=True) for trial in plains]
            trials.run(plains[len(plains) // 2 :])
        trials.search(groups, patient)
        trials.until = begin + CLIMB_SHARE * seconds
        trials.climb(count, groups)
        trials.until = begin + COMPARE_SHARE * seconds
        if beside is not None and trials.fits(beside):
            trials.run([_trial(small, beside)] * repetitions)
        for _ in range(ROUNDS * repetitions):
            trials.run([*trials.within(CLOSE), *plains])
        trials.run(trials.within(DOUBTFUL))
        trials.until = begin + seconds
        kept = [trial for trial in plains if not trial.stream and trial in trials.rates]
        rivals = [*trials.rivals(count), max(kept, key=trials.rates.__getitem__)]
        borders = trials.borders(rivals, repetitions)
    deep = max((border for t, border in borders.items() if t.levels > 1), default=None)
    border = borders.get(trials.best(), deep)
    return Calibration(trials.samples(borders), border, patient, others.share())


def _level_by_level(problem: Problem, groups: Sequence[int]) -> list[Trial]:
    """Trials of updates level by level, in ``groups`` of planes, largest first."""
    largest, *smaller = groups
    trials = [Trial(1, FRONT_PLANES)]
    trials += [Trial(1, largest)] if largest > FRONT_PLANES else []
    trials += [Trial(1, FRONT_PLANES, group=n) for n in smaller if n < FRONT_PLANES]
    if len(problem.stencil.stages) > 1:  # which follow each other in steps of the front
        trials += [Trial(1, n, group=n) for n in (*smaller, largest) if n < FRONT_PLANES]
    return trials


class Trial(msgspec.Struct, frozen=True):
    """A tile, as in a `Sample`, over slabs of ``slab`` planes; 0 for a front that is not broken."""

    levels: int
    planes: int
    columns: int = 0
    slab: int = 0
    band: int = 0
    group: int = MOST_GROUP
    fetch: bool = False
    stream: bool = False

    @property
    def depth(self) -> int:
        """Steps of the sweep: two diamonds; level by level several where that meets borders."""
        if self.levels > 1:
            return 2 * self.levels
        return BORDER_DEPTH if self.slab else 1


def _groups(groups: Sequence[int], planes: int) -> list[int]:
    """Those of ``groups`` that a step of so many planes is updated in, or the smallest."""
    return [group for group in groups if group <= planes] or [groups[-1]]


def _trial(small: Problem, tile: Tile) -> Trial:
    shape = tile_levels(tile, small), tile.planes, tile.columns, 0, tile.band, tile.group
    return Trial(*shape, tile.fetch, tile.stream)


class _Trials:
    """Rates of tiles in one window. Others can only slow a trial down, so the best one counts."""

    def __init__(
        self,
        small: Problem,
        whole: Problem,
        options: RunOptions,
        machine: Machine,
        kernel: Kernel,
        clock: Callable[[], float],
    ) -> None:
        self.small, self.options, self.machine, self.kernel = small, options, machine, kernel
        self.whole, self.clock, self.until = whole, clock, math.inf
        self.absence = Absence.of(small, whole)
        self._lines = _begin_on_lines(whole, options, machine)
        self.rates: dict[Trial, float] = {}
        self._asked: set[Trial] = set()  # which plans may have made into others
        self._window: Window | None = None

    def on(self, small: Problem) -> _Trials:
        """The same in another window, of which nothing is known yet."""
        trials = _Trials(small, self.whole, self.options, self.machine, self.kernel, self.clock)
        trials.until = self.until
        return trials

    def run(self, trials: Iterable[Trial]) -> list[float]:
        """Measure each of them once more; what was run counts, if not all that was asked.

        The first one in any case, others as long as they are going to end before ``until``.
        Returns the rates of those that were run.
        """
        found: list[float] = []
        for trial in filter(self._ends, trials):
            self._asked.add(trial)
            chosen = _plan(self.small, self.options, self.machine, trial, self._lines)
            if self._window is None:
                touch = functools.partial(self.kernel.touch, chosen)
                self._window = Window(chosen, touch)
                masks = mask_fields(self.small.stencil, self.small.dtype)
                self._window.fill(np.random.default_rng(0), masks)
            own = Kernel.of(self.kernel.library, self.small, chosen.depth)
            own = replace(own, absence=self.absence)
            rate = _rate(chosen, self._window, own)
            made = replace(_trial(self.small, chosen.tile), slab=trial.slab)
            self.rates[made] = max(rate, self.rates.get(made, 0.0))
            found.append(rate)
        return found

    def _ends(self, trial: Trial) -> bool:
        """Whether there is time for a trial, if it is no slower than before or the slowest."""
        if not self.rates:
            return True
        rate = self.rates.get(trial, min(self.rates.values()))
        return self.clock() + self.small.cells * trial.depth / rate <= self.until

    def search(self, groups: Sequence[int], patient: bool) -> None:
        """Measure tiles of more and more levels: of whole rows and parts, without bands and with.

        They are updated in that one of ``groups`` which suits a small tile. More levels of a kind
        are left out where they are no longer faster, or, if ``patient``, where they have become
        much slower.
        """
        small, first = self.small, self._first(groups)
        width = 2 * tile_slope(small.stencil, small.dtype, small.edges).per_step
        for length, banded in product((0, *_parts(small)), (False, True)):
            # Parts of rows are there for tiles of more levels than whole ones can be.
            least = max(PART_LEVELS, self.best().levels) if length else 0
            rows = self._band(FRONT_PLANES, length) if banded else 0
            if banded and not rows:
                continue
            found: list[float] = []
            for level in (n for n in self.levels() if n >= least and width * n > rows):
                tile = replace(first, levels=level, columns=length, band=rows)
                found += self.run([replace(tile, fetch=first.fetch and not rows)])
                if found and max(found[-2:]) < (FALLEN if patient else 1.0) * max(found):
                    break

    def _first(self, groups: Sequence[int]) -> Trial:
        """The fastest of the small tiles without bands, by group and fetching."""
        levels = self.levels()
        small = Trial(levels[min(1, len(levels) - 1)], FRONT_PLANES)
        fitting = _groups(groups, FRONT_PLANES)
        tiles = [replace(small, group=n, fetch=f) for n in fitting for f in (True, False)]
        self.run(tiles * REPETITIONS)
        return max(tiles, key=lambda tile: self.rates.get(tile, 0.0))

    def levels(self) -> list[int]:
        """Levels of diamonds that are tried: those that this grid and plans have room for."""
        reach = self.small.shape[0] // (2 * max(1, self.whole.stencil.radius[0]))
        fitting = {self._fitting(n) for n in LEVELS[self.whole.ndim] if n <= reach}
        return sorted(fitting - {1}) or [1]

    def climb(self, count: int, groups: Sequence[int]) -> None:
        """Measure all neighbours of the fastest tile, and so on from what is the fastest then.

        It ends at ``count`` tiles of each kind whose neighbours are all known.
        """
        while True:
            ordered = sorted(self.rivals(count), key=lambda trial: -self.rates[trial])
            around = (self._neighbours(best, groups) for best in ordered)
            if not any(self.run(fresh) for fresh in filter(None, around)):
                return

    def _neighbours(self, tile: Trial, groups: Sequence[int]) -> list[Trial]:
        """What was not tried of all that differ in one way.

        That is the step of the front, with the highest bands that fit then and, where it was the
        largest, the largest of ``groups``; half a band, groups, fetching, and levels.
        """
        found: list[Trial] = []
        for planes in (n for n in FRONTS if n in (tile.planes // 2, tile.planes * 2)):
            fitting = _groups(groups, planes)
            most = fitting[0] if tile.group >= _groups(groups, tile.planes)[0] else tile.group
            group = next(n for n in fitting if n <= most)
            band = tile.band and self._band(planes, tile.columns)
            found.append(replace(tile, planes=planes, band=band, group=group))
        half = whole_rows(self.small, tile.band // 2)
        found += [replace(tile, band=half)] if 0 < half < tile.band else []
        found += [replace(tile, group=group) for group in _groups(groups, tile.planes)]
        found += [replace(tile, fetch=not tile.fetch)]
        levels = self.levels()
        place = bisect.bisect_left(levels, tile.levels)
        beside = levels[max(0, place - 1) : place] + levels[place + 1 : place + 2]
        found += [replace(tile, levels=n) for n in beside]
        return [trial for trial in found if trial not in self._asked]

    def fits(self, tile: Tile) -> bool:
        """Whether a plan may have a tile, and not one of fewer levels."""
        levels = tile_levels(tile, self.small)
        return self._fitting(levels) == levels

    def _fitting(self, levels: int) -> int:
        """So many levels, or as many as plans have."""
        return levels_round(self.whole, self.options.threads or self.machine.cores, levels)

    def _band(self, planes: int, length: int) -> int:
        return band_rows(self.small, self.machine, planes, length)

    def best(self) -> Trial:
        """The fastest tile of several levels, where one was tried."""
        return max(self.rivals(), key=lambda trial: self.rates[trial])

    def rivals(self, count: int = 1) -> list[Trial]:
        """The fastest such tiles without bands, and with them, where they were tried."""
        tiles = [trial for trial in self.rates if not (trial.slab or trial.stream)]
        deep = [trial for trial in tiles if trial.levels > 1] or tiles
        kinds = ([t for t in deep if not t.band], [t for t in deep if t.band])
        ordered = (sorted(kind, key=lambda trial: -self.rates[trial]) for kind in kinds)
        return [trial for kind in ordered for trial in kind[:count]]

    def borders(self, tiles: list[Trial], repetitions: int) -> dict[Trial, float]:
        """Seconds by which an update takes longer for every border, times planes between these.

        A border may cost wide tiles in bands more than those that fit the caches, or less. Level by
        level, each step begins anew at it.
        """
        thin = THIN_SLAB[self.small.ndim]
        self.run([one for t in tiles for one in (t, replace(t, slab=thin))] * repetitions)
        return {
            t: max(0.0, 1 / self.rates[cut] - 1 / self.rates[t]) * thin
            for t in tiles
            if (cut := replace(t, slab=thin)) in self.rates
        }

    def samples(self, borders: Mapping[Trial, float]) -> tuple[Sample, ...]:
        """The rates of all tiles, with what borders cost some of them."""
        return tuple(
            Sample(
                *(t.levels, t.planes, rate, t.columns, t.band, t.group, t.fetch, t.stream),
                border_seconds=borders.get(t),
            )
            for t, rate in self.rates.items()
            if not t.slab
        )

    def within(self, share: float) -> list[Trial]:
        """Tiles that make so large a share of the best rate, the fastest first."""
        least = share * self.rates[self.best()]
        ordered = sorted(self.rates, key=lambda trial: -self.rates[trial])
        return [trial for trial in ordered if self.rates[trial] >= least]

    def release(self) -> None:
        """Give the window's memory back."""
        if self._window is not None:
            self._window.release()


def known(path: Path) -> Calibration | None:
    """The calibration kept at ``path``, None where there is none of this form."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return decoded(read_own(path), Calibration)
    return None


def keep(calibration: Calibration, path: Path) -> None:
    """Keep a calibration for the next plan; whole or not at all."""
    kept.keep(path, msgspec.json.encode(calibration))


def calibration_path(
    problem: Problem, options: RunOptions, machine: Machine, room_bytes: int
) -> Path:
    """Where a calibration is kept: its name digests all that decides the rates.

    That is what the source of the kernel follows from, who compiles and runs it, the length of
    rows, where planes may begin, where fields exist that exist in a region only, and whether the
    window that is measured in ``room_bytes`` is larger than the caches; the source itself need not
    be there.
    """
    kernel = (generator_version(), problem.stencil.digest, problem.dtype, problem.edges)
    apart = sorted(problem.dtypes.items())
    by = machine.cpu, machine.l2_bytes, machine.l3_bytes, machine.compiler, *processor(), *_maker()
    lines = _begin_on_lines(problem, options, machine)
    runs = options.threads or machine.cores, problem.shape[1:], lines
    measured = _place(problem, machine, room_bytes)
    parts = (FORM, *kernel, apart, *by, *runs, *measured)
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]
    return cache_folder() / "calibrations" / f"{digest}.json"


def _maker() -> tuple[str, ...]:
    """The compiler, its version and flags; nothing where there is none."""
    try:
        return find_compiler().identity
    except BuildError:
        return ()


def _place(problem: Problem, machine: Machine, room_bytes: int) -> tuple[object, ...]:
    """Whether a window is larger than the caches, and the ends of regions in it."""
    shape = _cut(problem, room_bytes)
    if shape is None:
        return ()
    item = ITEM_BYTES[problem.dtype]
    rings = sum(ring_count(field, problem.stencil) for field in problem.stencil.fields)
    caches = machine.l3_bytes + machine.cores * machine.l2_bytes
    beyond = math.prod(shape) * rings * item >= BEYOND * caches
    names = regional(problem.stencil)
    there = ((name, _within(box, shape)) for name in names for box in problem.regions.get(name, ()))
    return beyond, [(name, box) for name, box in there if all(box)]


def _within(box: tuple[range, ...], shape: tuple[int, ...]) -> tuple[range, ...]:
    """The part of a box in the first planes, rows and columns."""
    return tuple(part[: max(0, n - part.start)] for part, n in zip(box, shape, strict=True))


def least_planes(problem: Problem) -> int:
    """Planes without which a kernel is not measured: fronts of tiles have no way to go."""
    return 8 * problem.stencil.radius[0] + 8


def _small(problem: Problem, room_bytes: int, most_cells: int | None = None) -> Problem | None:
    """The problem on a grid that fits ``room_bytes``, with rows of the same length.

    Of no more than ``most_cells``, as far as a few rows and planes allow.
    """
    cut, stencil = _cut(problem, room_bytes, most_cells), problem.stencil
    if cut is None:
        return None
    zeros = {field.name: 0.0 for field in stencil.fields if not field.temporary}
    values: dict[str, Any] = {
        name: parameter_value(problem, name, 0) for name in stencil.parameters
    }
    for profile in stencil.given_profiles:
        values[profile.name] = np.resize(problem.profile_values(profile.name), cut[profile.axis])
    small = Problem(
        stencil, cut, problem.dtype, 1, values, problem.boundary, zeros, dtypes=problem.dtypes
    )
    return small.folding(stencil.folded)


def _cut(
    problem: Problem, room_bytes: int, most_cells: int | None = None
) -> tuple[int, ...] | None:
    """The shape of that grid, None where ``room_bytes`` hold too little."""
    stencil = problem.stencil
    rings = sum(ring_count(field, stencil) for field in stencil.fields)
    room = (room_bytes - 2 * rings * GUARD_BYTES) // rings
    least = max(LEAST_PLANES, least_planes(problem))
    rows = ()
    if problem.ndim == 3:
        held = room // ITEM_BYTES[problem.dtype]
        cells = held if most_cells is None else min(held, most_cells)
        wanted = min(MOST_ROWS, max(LEAST_ROWS, cells // (least * problem.shape[-1])))
        most = whole_rows(problem, max(wanted, least_extent(1, stencil, problem.edges)))
        rows = (min(problem.shape[1], most),)
    shape = (*rows, problem.shape[-1])
    pitch = layout((1, *shape), problem.dtype).pitch_bytes
    planes = room // pitch
    most = max(MOST_PLANES[problem.ndim], 16 * stencil.radius[0])
    planes = min(planes, most, max(problem.shape[0], 2 * stencil.radius[0] + 1))
    if most_cells is not None:
        planes = min(planes, max(least, most_cells // math.prod(shape)))
    if planes < least_planes(problem):
        return None
    return (planes, *shape)


def _parts(small: Problem) -> tuple[int, ...]:
    """Lengths that rows are cut into for a trial."""
    if columns_cut(small):
        return ()
    return tuple(length for length in PARTS if 2 * length <= small.shape[-1])


def _begin_on_lines(problem: Problem, options: RunOptions, machine: Machine) -> bool:
    """Whether planes begin at lines in the window of a run.

    Of a tier that is chosen its grid stays in memory where the limit has room for the fields.
    """
    fields = problem.stencil.fields
    held_bytes = sum(field.levels * problem.stored_bytes(field.name) for field in fields)
    fits = options.tier == AUTO and held_bytes < options.memory_bytes
    return Sizing(problem, lines=machine.lines).on_lines(options.tier == "memory" or fits)


def _plan(small: Problem, options: RunOptions, machine: Machine, trial: Trial, lines: bool) -> Plan:
    """A resident plan of one sweep, in a window whose planes lie as in that of the run."""
    slope = tile_slope(small.stencil, small.dtype, small.edges).per_step
    depth = trial.depth
    own = RunOptions(
        memory_bytes=1 << 60,
        tier="memory",
        depth=depth,
        scheme=named_by_depth(depth),
        tile_planes=trial.planes,
        tile_group=trial.group,
        tile_stream=trial.stream,
        threads=options.threads,
        pin=options.pin,
    )
    if trial.levels > 1:
        rows = 2 * slope * trial.levels
        shape = rows, trial.planes, trial.columns, trial.band, trial.group
        tile = Tile("diamond", *shape, fetch=trial.fetch)
        own = asking_for(tile, small, own)
    data = small.to_dict() | {"steps": depth}
    folded = small.stencil.folded
    whole = Problem.from_dict(data).folding(folded)
    chosen, sizing = plan(whole, own, machine, 0), Sizing(whole, lines=lines)
    if trial.levels == 1 and depth > 1:
        tile = Tile("level", 0, trial.planes, group=trial.group)
    else:
        # A grid that is periodic along the stream is measured for streaming, where diamonds serve.
        tile = choose_tile(small, machine, own, chosen.threads, depth)
    slab = trial.slab or chosen.schedule.pitch_planes
    laid_out = sizing.layout(sizing.strips(0), 0)
    schedule = replace(chosen.schedule, slab_planes=slab)
    return replace(chosen, tile=tile, layout=laid_out, schedule=schedule)


def _rate(chosen: Plan, window: Window, kernel: Kernel) -> float:
    begin = time.perf_counter()
    for instruction in program(chosen):
        if isinstance(instruction, Advance):
            kernel.advance(chosen, window, instruction)
    return chosen.work.updates / (time.perf_counter() - begin)
