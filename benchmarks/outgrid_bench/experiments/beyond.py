"""One grid beyond memory by every method: what the papers compare, and ours.

All runs of one grid and as many steps must leave the same bytes, of which some planes are compared
with plain sweeps in memory. Methods that rely on the system
get a control group as large as our memory limit, of which their block buffers take a part: the
rest is the system's page cache, or what is not swapped out yet.
"""

from __future__ import annotations

import math
import re
import shutil
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from outgrid import Plan, Problem, pipeline
from outgrid.config import RunOptions
from outgrid.errors import ExecutionError
from outgrid.parts import AXES, Stencil, lookup
from outgrid.probe.profile import known_machine
from outgrid.units import format_bytes, format_seconds
from outgrid_bench.experiments.outcome import QUICK_SECONDS, Settings, Timed
from outgrid_bench.experiments.watched import Killed, Watched, watch_run
from outgrid_bench.limit import Limited, limited
from outgrid_bench.measure import in_memory, same_planes, update_rate
from outgrid_bench.workloads import CORE_PLANES, noise

__all__ = [
    "ADVISED",
    "BLOCKED",
    "OURS",
    "PLAIN",
    "BeyondRow",
    "Grid",
    "Kind",
    "Method",
    "Runs",
    "Task",
    "agree",
    "kind_of",
]

BUFFER_SHARE = 0.7  # of the limit, for block buffers; the papers used 0.63
LEAST_PLANES = 32
SWAP_SPARE_BYTES = 64 << 20
CENTRES = (0.4, 1.0)  # of the grid, where answers are compared
# Of the disk's bandwidth: what the system makes of it by faults. Only expected times go by it.
FAULT_SHARE = 0.4
START_SECONDS = 3.0  # of a process that runs, and of looking at its answer


@dataclass(frozen=True, slots=True)
class Method:
    """A scheme on a tier; ``in_place`` works on the mapped memory itself, ``advice`` is what the
    system is told of mappings."""

    scheme: str
    tier: str
    in_place: bool = False
    threads: int | None = None
    advice: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As it stands in rows and figures."""
        return f"{self.scheme} on {self.tier}{', advised' if self.advice else ''}"

    def settings(self, limit_bytes: int, blocks: dict[str, Any]) -> dict[str, Any]:
        """Entries of a [run] table."""
        # What is in place is held by the system, and a window past the page cache is all there is.
        alone = self.tier == "direct" or self.in_place
        memory = limit_bytes if alone else int(BUFFER_SHARE * limit_bytes)
        given: dict[str, Any] = {"memory": memory, "scheme": self.scheme, "tier": self.tier}
        if self.in_place:
            given["in_place"] = True
        if self.advice:
            given["madvise"] = list(self.advice)
        if self.threads:
            given["threads"] = self.threads
        return given | (blocks if self.scheme == "overlapped" else {})


PLAIN = (
    Method("plain", "swap", in_place=True),
    Method("plain", "mmap", in_place=True),
    Method("plain", "direct"),
)
BLOCKED = (
    Method("overlapped", "swap"),
    Method("overlapped", "mmap"),
    Method("overlapped", "direct"),
)
# What mapped files can do at best: a block is asked for before it is copied, and nothing around it.
ADVISED = Method("overlapped", "mmap", advice=("random", "willneed", "dontneed"))
OURS = (Method("skewed", "direct"),)


@dataclass(frozen=True)
class Kind:
    """What is computed: a stencil, by the name that a job file has for it, and its data.

    ``fields`` counts arrays, ``evolving`` those of them that are there twice.
    """

    name: str
    source: str
    stencil: Stencil
    dtype: str
    fields: int
    evolving: int
    initial: dict[str, Any]
    parameters: dict[str, float]

    @property
    def item_bytes(self) -> int:
        """Bytes of one value."""
        return {"float32": 4, "float64": 8}[self.dtype]


def kind_of(
    name: str,
    source: str,
    stencil: Stencil,
    dtype: str,
    initial: dict[str, Any],
    parameters: dict[str, float] | None = None,
) -> Kind:
    """A kind, its arrays counted."""
    evolving = sum(field.evolving for field in stencil.fields)
    return Kind(
        name, source, stencil, dtype, len(stencil.fields), evolving, initial, parameters or {}
    )


HEAT7 = kind_of("heat7", "heat7", lookup("heat7").trace(3), "float64", {"u": noise(3)}, {"k": 0.1})


@dataclass(frozen=True, slots=True)
class Grid:
    """A grid whose fields are ``factor`` times the limit, of planes of shape ``plane``."""

    limit_bytes: int
    factor: float
    plane: tuple[int, ...]
    kind: Kind = HEAT7

    @property
    def plane_bytes(self) -> int:
        """Bytes of one plane of one field."""
        return self.kind.item_bytes * math.prod(self.plane)

    @property
    def planes(self) -> int:
        """Planes of the grid."""
        wanted = self.factor * self.limit_bytes / (self.kind.fields * self.plane_bytes)
        return max(LEAST_PLANES, round(wanted))

    @property
    def nbytes(self) -> int:
        """Bytes of all fields, each once."""
        return self.kind.fields * self.planes * self.plane_bytes

    @property
    def swap_bytes(self) -> int:
        """Bytes with the second copies of what evolves: what may have to go to swap."""
        return (self.kind.fields + self.kind.evolving) * self.planes * self.plane_bytes

    def part(self, steps: int, centre: float) -> tuple[Problem, int, slice]:
        """Planes around ``centre``, 0..1 of the grid, with all that they depend on in so many
        steps: the problem, the first plane to compare, and where it and those after it lie."""
        core = min(CORE_PLANES, self.planes)
        start = round(centre * (self.planes - core))
        reach = steps * self.kind.stencil.radius[0]
        first, last = max(0, start - reach), min(self.planes, start + core + reach)
        problem = self.problem(steps, range(first, last))
        return problem, start, slice(start - first, start - first + core)

    def table(self, steps: int) -> dict[str, Any]:
        """Entries of a [problem] table."""
        return {
            "stencil": self.kind.source,
            "shape": [self.planes, *self.plane],
            "dtype": self.kind.dtype,
            "steps": steps,
            "boundary": "frozen",
            "parameters": self.kind.parameters,
            "initial": self.kind.initial,
        }

    def problem(self, steps: int, planes: range | None = None) -> Problem:
        """The same as a value, or of ``planes`` of it with the values that they begin with."""
        kind, planes = self.kind, range(self.planes) if planes is None else planes
        initial = {name: self._moved(value, planes.start) for name, value in kind.initial.items()}
        shape = (len(planes), *self.plane)
        return Problem(kind.stencil, shape, kind.dtype, steps, kind.parameters, "frozen", initial)

    def _moved(self, formula: Any, first: int) -> Any:
        """What the formula of a field of the whole grid is on planes from ``first`` on."""
        if not isinstance(formula, str) or first == 0:
            return formula
        axis = AXES[-self.kind.stencil.ndim]
        formula = re.sub(rf"\b{axis}\b", f"({axis} + {first})", formula)
        return re.sub(rf"\bn{axis}\b", str(self.planes), formula)

    def blocks(self, most_steps: int, share: float = BUFFER_SHARE) -> dict[str, Any]:
        """Depth and block that the papers' rules find in that part of the limit."""
        memory = int(share * self.limit_bytes)
        options = RunOptions.of(memory=memory, scheme="overlapped", tier="direct")
        plan = pipeline.plan(self.problem(most_steps), options)
        if plan.schedule.blocks is None:
            raise ExecutionError(f"the plan of scheme overlapped has no blocks: {plan.scheme}")
        return {"depth": plan.depth, "block": [*plan.schedule.blocks.core, self.plane[-1] - 2]}


@dataclass(frozen=True, slots=True)
class BeyondRow:
    """One run. Rates are in 1e9 needed updates per second, ``over_memory`` the rate over that of
    plain sweeps in memory; ``disk_read_bytes`` and ``disk_written_bytes`` are what the disk moved
    during the sweeps, ``read_bytes`` and ``written_bytes`` what the run asked for. ``busy`` and
    ``iowait`` are shares of all processors; ``flash_written_bytes`` all that it wrote,
    its filling and results too. ``identical``: some planes are those of plain sweeps."""

    stencil: str
    method: str
    tier: str
    threads: int
    factor: float
    grid_bytes: int
    limit_bytes: int
    steps: int
    depth: int
    seconds: float
    glups: float
    over_memory: float
    read_bytes: int
    written_bytes: int
    disk_read_bytes: int
    disk_written_bytes: int
    busy: float
    iowait: float
    flash_written_bytes: int
    checksum: str
    identical: bool


@dataclass(frozen=True, slots=True)
class Task:
    """A run to be made. ``plain_glups`` is the rate in memory that it is set beside."""

    grid: Grid
    method: Method
    steps: int
    blocks: dict[str, Any]
    plain_glups: float

    @property
    def name(self) -> str:
        """In words."""
        threads = self.method.threads or "all"
        return (
            f"{self.grid.kind.name}, {self.method.name}, threads: {threads}, "
            f"{self.grid.factor:g} times the limit, {self.steps} steps"
        )

    @property
    def given(self) -> dict[str, Any]:
        """Entries of a [run] table."""
        return self.method.settings(self.grid.limit_bytes, self.blocks)


@dataclass(frozen=True, slots=True)
class _Made:
    """What is kept of a run: its row, and its series of bandwidth and processors."""

    row: BeyondRow
    series: list[dict[str, float]]


class Runs:
    """Runs of grids in one folder, each removed when it has been looked at.

    Each is a part of ``timed``. Grids that rates in memory are measured on have at most
    ``reference_bytes`` in all fields.
    """

    def __init__(self, settings: Settings, timed: Timed) -> None:
        self.settings, self.timed = settings, timed
        self.folder = settings.folders[0].absolute()
        self.series: dict[str, list[dict[str, float]]] = {}
        self.reference_bytes = settings.by_size(1 << 28, 1 << 28, 1 << 30)
        self._answers: dict[tuple[Any, ...], list[tuple[int, np.ndarray]]] = {}

    @property
    def reference(self) -> str:
        """What `in_memory` measures, in words."""
        return f"of a grid of at most {format_bytes(self.reference_bytes)}"

    def in_memory(
        self, grid: Grid, steps: int, kind: str = "plain", threads: int | None = None
    ) -> float:
        """1e9 updates per second in memory of plain sweeps, or of "tiled" (blocked in time)."""
        small = replace(grid, factor=min(grid.factor, self.reference_bytes / grid.limit_bytes))
        told = f"{grid.kind.name} in memory, {kind}, threads: {threads or 'all'}"

        def measured() -> float:
            self.settings.say(told)
            with self._place() as place:
                return update_rate(in_memory(small.problem(steps), kind, place, threads=threads)[0])

        return self.timed.piece(told, float, measured)

    def measure(self, tasks: Sequence[Task]) -> list[BeyondRow]:
        """A row for each task that can be done here, in their order; why one cannot is noted.

        A quick experiment leaves out what is not expected to end in time, but for the first.
        """
        if self.settings.with_swap:
            wanted = list(tasks)
        else:
            wanted = [task for task in tasks if task.method.tier != "swap"]
            if len(wanted) < len(tasks):
                self.timed.note("tier swap was left out: --with-swap allows a swap file to be made")
        missing = [task for task in wanted if task.name not in self.timed]
        left = {task.name: START_SECONDS + self._expected(task) for task in missing}
        expected, taken = 0.0, 0.0
        paces: dict[str, float] = {}  # of the last run of each method
        late: list[str] = []
        for task in missing:
            # What is left is told as the expectations before it turned out.
            pace = taken / expected if expected else 1.0
            if expected and paces.get(task.method.name, 1.0) * left[task.name] > self.timed.left:
                late.append(f"{task.method.name} at {task.grid.factor:g} times the limit")
                del left[task.name]
                continue
            about = format_seconds(pace * left[task.name])
            total = format_seconds(pace * sum(left.values()))
            self.settings.say(f"{task.name}: about {about}, all that is left {total}")
            begin = time.perf_counter()
            if self._part(task) is not None:
                expected += left[task.name]
                taken += time.perf_counter() - begin
                paces[task.method.name] = (time.perf_counter() - begin) / left[task.name]
            del left[task.name]
        if late:
            self.timed.note(
                f"left out, since {QUICK_SECONDS} seconds are not enough for them here (--full has "
                f"no limit of time): {'; '.join(dict.fromkeys(late))}"
            )
        done = [(task, self._part(task)) for task in wanted if task.name in self.timed]
        for task, made in done:
            if made is not None:
                self.series[f"{task.method.name}, {task.grid.factor:g}"] = made.series
        return [made.row for _, made in done if made is not None]

    def _part(self, task: Task) -> _Made | None:
        """One run, as a part; None where it could not be made, which a note tells."""
        return self.timed.piece(task.name, _Made | None, lambda: self._measure(task))

    def _measure(self, task: Task) -> _Made | None:
        """Make one run."""
        grid, method = task.grid, task.method
        with self._place() as place:
            needed = self._plan(task).volume.disk_bytes
            needed += grid.swap_bytes if method.tier == "swap" else 0
            free = shutil.disk_usage(place).free
            if needed > free:
                self.timed.note(
                    f"{task.name}: left out, it takes {format_bytes(needed)} of disk of which "
                    f"{format_bytes(free)} are free"
                )
                return None
            with self._limit(grid, method, place) as limit:
                if method.tier != "direct" and not limit.enforced:
                    self.timed.note(f"{method.tier} was left out: {limit.reason}")
                    return None
                self.timed.note(limit.reason)
                if method.tier == "swap" and not limit.swap_bytes:
                    return None
                try:
                    watched = watch_run(grid.table(task.steps), task.given, place, limit)
                except Killed as killed:
                    # The system gives up where it cannot swap fast enough: an answer of its own.
                    self.timed.note(f"{task.name}: {killed}")
                    return None
            result = place / "run" / f"{grid.kind.stencil.fields[0].name}.npy"
            identical = all(
                same_planes(result, start, values) for start, values in self._answer(task)
            )
        row = _measured(task, watched, identical)
        self.settings.say(
            f"    {row.seconds:.4g} s, {row.over_memory:.3g} of the rate in memory, "
            f"{row.disk_read_bytes / 1e9:.3g} GB read, {row.disk_written_bytes / 1e9:.3g} written"
            f"{'' if identical else ', WRONG'}"
        )
        return _Made(row, watched.series())

    def _answer(self, task: Task) -> list[tuple[int, np.ndarray]]:
        """First planes and values of some parts of the grid, by plain sweeps in memory."""
        grid = task.grid
        key = (grid.kind.name, grid.planes, *grid.plane, task.steps)
        if key not in self._answers:
            planes: list[tuple[int, np.ndarray]] = []
            with self._place() as place:
                for centre in CENTRES:
                    problem, start, core = grid.part(task.steps, centre)
                    planes.append((start, in_memory(problem, "plain", place, core)[1]))
            self._answers[key] = planes
        return self._answers[key]

    def _plan(self, task: Task) -> Plan:
        options = RunOptions.of(**task.given, out=self.folder / "plan")
        return pipeline.plan(task.grid.problem(task.steps), options)

    def _expected(self, task: Task) -> float:
        """Seconds that a run may take, from the probe of the disk and what faults make of it."""
        plan, grid, method = self._plan(task), task.grid, task.method
        machine = known_machine(self.folder)
        beside = (plan.volume.fill_bytes + plan.volume.exported_bytes) / machine.write_bandwidth
        if method.tier == "direct":
            return plan.predicted_seconds + beside
        moved = plan.volume.read_bytes + plan.volume.written_bytes
        if method.in_place:  # both states are read and one is written
            moved = 3 * task.steps * grid.nbytes
        if method.tier == "swap":  # filled, and looked at in the end
            moved += 2 * grid.nbytes
        return plan.predicted_seconds + beside + moved / (FAULT_SHARE * machine.mixed_bandwidth)

    @contextmanager
    def _limit(self, grid: Grid, method: Method, place: Path) -> Generator[Limited]:
        if method.tier != "swap":
            with limited(grid.limit_bytes) as limit:
                yield limit
            return
        # Both states of the grid; what memory holds of them is room to spare.
        swap_bytes = grid.swap_bytes + SWAP_SPARE_BYTES
        with limited(grid.limit_bytes, swap_bytes, place.parent) as limit:
            yield limit

    @contextmanager
    def _place(self) -> Generator[Path]:
        place = Path(tempfile.mkdtemp(prefix="outgrid-bench-", dir=self.folder))
        try:
            yield place
        finally:
            shutil.rmtree(place)


def _measured(task: Task, watched: Watched, identical: bool) -> BeyondRow:
    grid, method = task.grid, task.method
    record, measured, total = watched.record, watched.record.measured, watched.total
    cores = int(record.machine["cores"])
    spent = max(total.seconds, 1e-9) * cores
    return BeyondRow(
        grid.kind.name,
        method.name,
        method.tier,
        int(record.planned["threads"]),
        grid.factor,
        grid.nbytes,
        grid.limit_bytes,
        task.steps,
        int(record.planned["depth"]),
        measured.seconds,
        measured.glups,
        measured.glups / task.plain_glups,
        measured.read_bytes,
        measured.written_bytes,
        total.read_bytes,
        total.written_bytes,
        total.busy_seconds / spent,
        total.iowait_seconds / spent,
        record.flash_written_bytes,
        " ".join(record.checksums.values()),
        identical,
    )


def agree(rows: Sequence[BeyondRow]) -> bool:
    """Whether all runs of one grid and as many steps left the same bytes, and right ones."""
    checksums: dict[tuple[str, int, int], set[str]] = {}
    for row in rows:
        checksums.setdefault((row.stencil, row.grid_bytes, row.steps), set()).add(row.checksum)
    return all(len(sums) == 1 for sums in checksums.values()) and all(row.identical for row in rows)
