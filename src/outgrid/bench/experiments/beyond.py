"""One grid beyond memory by every method: what the papers compare, and ours.

All runs of one grid make the same steps and must leave the same bytes; sweeps of one step, which
are so much slower, make fewer, and are compared among themselves. Methods that rely on the system
get a control group as large as our memory limit, of which their block buffers take a part: the
rest is the system's page cache, or what is not swapped out yet.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from outgrid import pipeline
from outgrid.bench.experiments.outcome import Settings
from outgrid.bench.experiments.watched import Killed, Watched, watch_run
from outgrid.bench.limit import Limited, limited
from outgrid.bench.measure import in_memory, update_rate
from outgrid.bench.workloads import noise
from outgrid.config import RunOptions
from outgrid.errors import ExecutionError
from outgrid.stencil.catalog import lookup
from outgrid.stencil.model import Stencil
from outgrid.stencil.problem import Problem

__all__ = [
    "BLOCKED",
    "OURS",
    "PLAIN",
    "BeyondRow",
    "Grid",
    "Kind",
    "Method",
    "Runs",
    "agree",
    "kind_of",
]

BUFFER_SHARE = 0.7  # of the limit, for block buffers; the papers used 0.63
REFERENCE_BYTES = 1 << 30  # of all fields, in memory
LEAST_PLANES = 32
SWAP_SPARE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Method:
    """A scheme on a tier; ``in_place`` works on the mapped memory itself."""

    scheme: str
    tier: str
    in_place: bool = False
    threads: int | None = None

    @property
    def name(self) -> str:
        """As it stands in rows and figures."""
        return f"{self.scheme} on {self.tier}"

    def settings(self, limit_bytes: int, blocks: dict[str, Any]) -> dict[str, Any]:
        """Entries of a [run] table."""
        # What is in place is held by the system, and a window past the page cache is all there is.
        alone = self.tier == "direct" or self.in_place
        memory = limit_bytes if alone else int(BUFFER_SHARE * limit_bytes)
        given: dict[str, Any] = {"memory": memory, "scheme": self.scheme, "tier": self.tier}
        if self.in_place:
            given["in_place"] = True
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

    def problem(self, steps: int) -> Problem:
        """The same as a value."""
        kind, shape = self.kind, (self.planes, *self.plane)
        return Problem(
            kind.stencil, shape, kind.dtype, steps, kind.parameters, "frozen", kind.initial
        )

    def blocks(self, most_steps: int) -> dict[str, Any]:
        """Depth and block that the papers' rules find in the part of the limit for buffers."""
        memory = int(BUFFER_SHARE * self.limit_bytes)
        options = RunOptions.of(memory=memory, scheme="overlapped", tier="direct")
        plan = pipeline.plan(self.problem(most_steps), options)
        if plan.blocks is None:
            raise ExecutionError(f"the plan of scheme overlapped has no blocks: {plan.scheme}")
        return {"depth": plan.depth, "block": [*plan.blocks.core, self.plane[-1] - 2]}


@dataclass(frozen=True, slots=True)
class BeyondRow:
    """One run. Rates are in 1e9 needed updates per second, ``over_memory`` the rate over that of
    plain sweeps in memory; ``disk_read_bytes`` and ``disk_written_bytes`` are what the disk moved
    during the sweeps, ``read_bytes`` and ``written_bytes`` what the run asked for. ``busy`` and
    ``iowait`` are shares of all processors."""

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
    checksum: str


class Runs:
    """Runs of grids in one folder, each removed when it has been looked at."""

    def __init__(self, settings: Settings, notes: list[str]) -> None:
        self.settings, self.notes = settings, notes
        self.folder = settings.folders[0].absolute()
        self.series: dict[str, list[dict[str, float]]] = {}

    def in_memory(self, grid: Grid, steps: int, threads: int | None = None) -> dict[str, float]:
        """1e9 updates per second in memory: plain sweeps, and temporally blocked ones."""
        small = replace(grid, factor=min(grid.factor, REFERENCE_BYTES / grid.limit_bytes))
        problem = small.problem(steps)
        with self._place() as place:
            return {
                kind: update_rate(in_memory(problem, kind, place, threads=threads)[0])
                for kind in ("plain", "tiled")
            }

    def measure(
        self,
        grid: Grid,
        methods: Sequence[Method],
        steps: int,
        blocks: dict[str, Any],
        plain_glups: float,
    ) -> list[BeyondRow]:
        """A row for each method that can run here; why one cannot is noted."""
        rows: list[BeyondRow] = []
        for method in methods:
            if method.tier == "swap" and not self.settings.with_swap:
                self._note("tier swap was left out: --with-swap allows a swap file to be made")
                continue
            told = f"{grid.kind.name}, {method.name}, threads: {method.threads or 'all'}"
            self.settings.say(f"{told}, {grid.factor:g} times the limit, {steps} steps")
            with self._place() as place, self._limit(grid, method, place) as limit:
                if method.tier != "direct" and not limit.enforced:
                    self._note(f"{method.tier} was left out: {limit.reason}")
                    continue
                self._note(limit.reason)
                given = method.settings(grid.limit_bytes, blocks)
                try:
                    watched = watch_run(grid.table(steps), given, place, limit)
                except Killed as killed:
                    # The system gives up where it cannot swap fast enough: an answer of its own.
                    self._note(f"{told}: {killed}")
                    continue
            rows.append(_row(grid, method, steps, watched, plain_glups))
            self.series[f"{method.name}, {grid.factor:g}"] = watched.series()
        return rows

    @contextmanager
    def _limit(self, grid: Grid, method: Method, place: Path) -> Generator[Limited]:
        if method.tier != "swap":
            with limited(grid.limit_bytes) as found:
                yield found
            return
        # Both states of the grid; what memory holds of them is room to spare.
        swap_bytes = grid.swap_bytes + SWAP_SPARE_BYTES
        with limited(grid.limit_bytes, swap_bytes, place.parent) as found:
            yield found

    @contextmanager
    def _place(self) -> Generator[Path]:
        place = Path(tempfile.mkdtemp(prefix="outgrid-bench-", dir=self.folder))
        try:
            yield place
        finally:
            shutil.rmtree(place)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _row(grid: Grid, method: Method, steps: int, watched: Watched, plain_glups: float) -> BeyondRow:
    record, measured, total = watched.record, watched.record.measured, watched.total
    cores = int(record.machine["cores"])
    spent = max(total.seconds, 1e-9) * cores
    return BeyondRow(
        grid.kind.name,
        method.name,
        method.tier,
        int(record.plan["threads"]),
        grid.factor,
        grid.nbytes,
        grid.limit_bytes,
        steps,
        int(record.plan["depth"]),
        measured.seconds,
        measured.glups,
        measured.glups / plain_glups,
        measured.read_bytes,
        measured.written_bytes,
        total.read_bytes,
        total.written_bytes,
        total.busy_seconds / spent,
        total.iowait_seconds / spent,
        " ".join(record.checksums.values()),
    )


def agree(rows: Sequence[BeyondRow]) -> bool:
    """Whether all runs of one grid and as many steps left the same bytes."""
    found: dict[tuple[str, int, int], set[str]] = {}
    for row in rows:
        found.setdefault((row.stencil, row.grid_bytes, row.steps), set()).add(row.checksum)
    return all(len(sums) == 1 for sums in found.values())
