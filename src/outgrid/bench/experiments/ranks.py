"""One and two ranks of MPI on this host, measured, and what the simulator of clusters expected.

Runs of one rank give the rate at which a node updates and, where the disk bounds them, the rate at
which that moves bytes; two ranks halve both. All have slabs of as many planes, on which the rate of
updates depends. Nothing is fitted to runs of two ranks. Beside halos, which are what is simulated,
seams are measured where the cores bound a run, and what the planner said of each run is shown.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from outgrid.bench.cluster import simulate
from outgrid.bench.experiments.getput import launcher
from outgrid.bench.experiments.outcome import OUTGRID, Experiment, Finding, Outcome, Settings, Timed
from outgrid.errors import ExecutionError
from outgrid.machine import Network, describe_machine
from outgrid.plan.cluster import Cluster, Cut, GridSize, Node, price
from outgrid.record import Record, read_record
from outgrid.result import Result

__all__ = ["RANKS"]

DISK, CORES = "bound by the disk", "bound by the cores"
WAYS = (
    (Cut(1, 1), "halos"),
    (Cut(1, 2), "halos"),
    (Cut(2, 1), "halos"),
    (Cut(1, 2), "seams"),
)
WITHIN = 0.2
JOB = """
[problem]
stencil = "heat7"
shape = {shape}
steps = {steps}
parameters = {{k = 0.1}}
initial = {{u = "x + 2*y + 3*z"}}
[run]
memory = "{memory}MiB"
tier = "direct"
depth = {depth}
threads = {threads}
slab_planes = {slab}
"""


@dataclass(frozen=True, slots=True)
class _Case:
    """What bounds a run, the steps of a sweep that make it so, the cut and what goes over it."""

    name: str
    depth: int
    cut: Cut
    exchange: str

    @property
    def ranks(self) -> int:
        return self.cut.y * self.cut.z


@dataclass(frozen=True, slots=True)
class RanksRow:
    """Medians of runs of one kind. ``cut`` is (y, z); seconds are those of its sweeps, those that
    a rank waited the mean over ranks. ``expected_seconds`` are the simulator's, 0 where it has no
    such exchange, ``planned_seconds`` those of the plan."""

    case: str
    ranks: int
    cut: str
    exchange: str
    depth: int
    seconds: float
    compute_seconds: float
    get_seconds: float
    put_seconds: float
    exchange_seconds: float
    agree_seconds: float
    sent_bytes: int
    planned_seconds: float
    expected_seconds: float
    expected_over_measured: float
    seconds_samples: tuple[float, ...]


def measure(settings: Settings) -> Outcome:
    """Every case on one rank, then on two that cut planes or rows; in turns, some times."""
    timed = Timed("ranks", settings)
    side = settings.by_size(48, 256, 512)
    planes = settings.by_size(48, 1024, 2048)
    cases = [
        _Case(name, depth, cut, exchange)
        for name, depth in ((DISK, 1), (CORES, settings.by_size(8, 64, 64)))
        for cut, exchange in WAYS
        if name == CORES or exchange == "halos"
    ]
    grids = {
        case: GridSize((planes - 2, side - 2, side - 2), settings.by_size(2, 3, 4) * case.depth)
        for case in cases
    }
    found: dict[_Case, list[Record]] = {case: [] for case in cases}
    answers: dict[str, set[str]] = {case.name: set() for case in cases}
    with TemporaryDirectory(dir=settings.folders[0], prefix="outgrid.") as folder:
        for turn in range(settings.by_size(1, 2, 3)):
            for number, case in enumerate(cases):
                settings.say(f"{case.name}: {case.ranks} ranks, cut {case.cut}, {case.exchange}")
                with TemporaryDirectory(dir=folder, prefix=f"{turn}.{number}.") as within:
                    out = Path(within) / "run"
                    record = _run(settings, grids[case], case, out)
                    found[case].append(record)
                    answers[case.name].add(_digest(Result(out, record)["u"]))
    rows = [_row(case, found, grids[case], settings) for case in cases]
    return timed.outcome(
        rows,
        _findings(rows),
        reference="the simulator of clusters, with the rates of cores and disk in runs of one rank",
        agrees=all(len(each) == 1 for each in answers.values()),
        notes=["ranks of one host share its cores, its disk and its memory"],
    )


def _run(settings: Settings, grid: GridSize, case: _Case, out: Path) -> Record:
    """The record of a run of a job file by a launcher."""
    cut, count = case.cut, case.ranks
    shape = [extent + 2 for extent in grid.shape]
    job = out.with_suffix(".toml")
    threads = max(1, describe_machine().cores // count)
    memory = _memory(settings) // count >> 20
    job.write_text(
        JOB.format(
            shape=shape,
            steps=grid.steps,
            memory=memory,
            depth=case.depth,
            threads=threads,
            slab=settings.by_size(4, 12, 12),
        )
    )
    command = [sys.executable, "-m", "outgrid", "run", str(job), "--out", str(out), "--quiet"]
    if count > 1:
        more = ["--set", f"exchange={case.exchange}"]
        if case.exchange == "halos":  # seams have cuts that suit them
            cuts = [shape[0] // 2] if cut.z > 1 else []
            rows = [shape[1] // 2] if cut.y > 1 else []
            more += ["--set", f"cuts={cuts}", "--set", f"row_cuts={rows}"]
        command = [launcher("ranks"), "-n", str(count), *command, *more]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ)
    if done.returncode:
        raise ExecutionError(f"{count} ranks ended with {done.returncode}: {done.stderr.strip()}")
    return read_record(out)


def _memory(settings: Settings) -> int:
    """Of all ranks together: less than a state, so that windows are small."""
    return settings.memory or settings.by_size(512 << 20, 512 << 20, 2 << 30)


def _digest(field: Any) -> str:
    """A digest of all values of a field, some planes at a time."""
    found = hashlib.sha256()
    for first in range(0, len(field), 16):
        found.update(np.asarray(field[first : first + 16]).tobytes())
    return found.hexdigest()


def _row(
    case: _Case, found: dict[_Case, list[Record]], grid: GridSize, settings: Settings
) -> RanksRow:
    def median(name: str) -> float:
        return statistics.median(getattr(each.measured, name) for each in found[case])

    names = ("compute", "get", "put", "exchange", "agree")
    every = {f"{name}_seconds": median(f"{name}_seconds") for name in names}
    seconds, expected = median("seconds"), 0.0
    if case.exchange == "halos":
        expected = _expected(grid, case, _node(case, found, settings))
    planned = found[case][-1].plan["prediction"]["seconds"]
    return RanksRow(
        case.name,
        case.ranks,
        str(case.cut),
        case.exchange if case.ranks > 1 else "",
        case.depth,
        seconds,
        **every,
        sent_bytes=found[case][-1].measured.sent_bytes,
        planned_seconds=planned,
        expected_seconds=expected,
        expected_over_measured=expected / seconds,
        seconds_samples=tuple(each.measured.seconds for each in found[case]),
    )


def _node(case: _Case, found: dict[_Case, list[Record]], settings: Settings) -> Node:
    """What a rank has, from the runs of one: its share of the cores and of the disk."""
    alone = {each.name: found[each] for each in found if each.ranks == 1}
    rate = statistics.median(
        each.measured.updates / each.measured.compute_seconds for each in alone[case.name]
    )
    bandwidth = statistics.median(
        (each.measured.read_bytes + each.measured.written_bytes) / each.measured.seconds
        for each in alone[DISK]
    )
    count, memory = case.ranks, _memory(settings)
    shared = bandwidth / count
    return Node(rate / count, memory // count, 1 << 62, shared, shared, Network())


def _expected(grid: GridSize, case: _Case, node: Node) -> float:
    """Seconds that the simulator says."""
    cluster = Cluster(case.ranks, node)
    chosen = price(grid, cluster, case.cut, case.depth, "stream")
    if isinstance(chosen, str):
        raise ExecutionError(f"the simulator does not take this run: {chosen}")
    return simulate(grid, cluster, chosen).seconds


def _findings(rows: Sequence[RanksRow]) -> list[Finding]:
    two = [row for row in rows if row.ranks > 1]
    found = [
        Finding(
            f"{OUTGRID}, simulator",
            f"the time of two ranks, {name}, is foreseen within {WITHIN:.0%}",
            "",
            ", ".join(f"cut {row.cut}: {row.expected_over_measured:.2f}" for row in mine),
            all(abs(row.expected_over_measured - 1) <= WITHIN for row in mine),
        )
        for name in (DISK, CORES)
        if (mine := [row for row in two if row.case == name and row.exchange == "halos"])
    ]
    each = {row.exchange: row for row in two if row.case == CORES and row.cut == str(Cut(1, 2))}
    halos, seams = each["halos"], each["seams"]
    measured = seams.seconds / halos.seconds
    planned = seams.planned_seconds / halos.planned_seconds
    return [
        *found,
        Finding(
            f"{OUTGRID}, planner",
            f"what seams take over what halos take, cores bound, is foreseen within {WITHIN:.0%}",
            "",
            f"{measured:.2f}, planned {planned:.2f}",
            abs(planned / measured - 1) <= WITHIN,
        ),
    ]


def draw(outcome: Outcome, figure: Any) -> None:
    """Measured and expected seconds beside each other."""
    axes = figure.add_subplot()
    places = np.arange(len(outcome.rows))
    bars = (
        ("seconds", "measured"),
        ("expected_seconds", "expected by the simulator"),
        ("planned_seconds", "planned"),
    )
    for shift, (name, label) in zip((-0.27, 0, 0.27), bars, strict=True):
        axes.bar(places + shift, [row[name] for row in outcome.rows], 0.27, label=label)
    names = [
        f"{row['case']}\nranks: {row['ranks']}, cut {row['cut']}\n{row['exchange']}"
        for row in outcome.rows
    ]
    axes.set_xticks(places, names, fontsize="small", rotation=20, ha="right")
    axes.set_ylabel("seconds of the sweeps")
    axes.legend()


RANKS = Experiment("ranks", "one and two ranks of MPI here, beside the simulator", measure, draw)
