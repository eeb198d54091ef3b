"""One and two ranks of MPI on this host, measured, and what the simulator of clusters expected.

Runs of one rank give what an update takes of a processor, which part of the processors others leave
to them and, where the disk bounds them, the rate at which that moves bytes and what a byte takes of
a processor; two ranks halve cores and disk. What messages take is measured with messages alone. All
have slabs of as many planes, on which the rate of updates depends. Nothing is fitted to runs of two
ranks. Beside halos, which are what is simulated, seams are measured where the cores bound a run,
and what the planner said of each run is shown.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from outgrid import Record, Result
from outgrid.errors import ExecutionError
from outgrid.machine import Network, describe_machine
from outgrid.record import Measured, read_record
from outgrid_bench.cluster import Cluster, Cut, GridSize, Node, price
from outgrid_bench.experiments.getput import launcher
from outgrid_bench.experiments.messages import Messages, measure_messages
from outgrid_bench.experiments.outcome import Experiment, Finding, Outcome, Settings, Timed, judged
from outgrid_bench.simulation import simulate

__all__ = ["RANKS"]

DISK, CORES = "bound by the disk", "bound by the cores"
WAYS = (
    (Cut(1, 1), "halos"),
    (Cut(1, 2), "halos"),
    (Cut(2, 1), "halos"),
    (Cut(1, 2), "seams"),
)
LEAST_LEFT = 0.9  # of the processors: where others have more, seconds say what they did
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
    """Medians of runs of one kind. ``cut`` is (y, z); seconds are those of its sweeps, and means
    over ranks those that a rank waited and those of processors: all that it took, and what updates
    took of that. ``expected_seconds`` and ``expected_processor_seconds`` are the simulator's, 0
    where it has no such exchange, ``planned_seconds`` those of the plan."""

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
    processor_seconds: float
    compute_processor_seconds: float
    sent_bytes: int
    planned_seconds: float
    expected_seconds: float
    expected_over_measured: float
    expected_processor_seconds: float
    seconds_samples: tuple[float, ...]


def measure(settings: Settings) -> Outcome:
    """Every case on one rank, then on two that cut planes or rows; in turns, some times."""
    timed = Timed("ranks", settings)
    side = settings.by_size(48, 256, 512)
    planes = settings.by_size(48, 512, 2048)
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
    records: dict[_Case, list[Record]] = {case: [] for case in cases}
    answers: dict[str, set[str]] = {case.name: set() for case in cases}
    settings.say("messages between two ranks")
    messages = timed.piece("messages", Messages, measure_messages)
    with TemporaryDirectory(dir=settings.folders[0], prefix="outgrid.") as folder:
        for turn in timed.rounds(settings.by_size(1, 3, 3)):
            for number, case in enumerate(cases):
                settings.say(f"{case.name}: {case.ranks} ranks, cut {case.cut}, {case.exchange}")
                name = f"{case.name}, cut {case.cut}, {case.exchange}, round {turn}"
                run = partial(_made, settings, grids[case], case, Path(folder) / str(number))
                record, answer = timed.piece(name, tuple[Record, str], run)
                records[case].append(record)
                answers[case.name].add(answer)
    rows = [_row(case, records, grids[case], settings, messages) for case in cases]
    return timed.outcome(
        rows,
        _findings(rows, _processors(records) / describe_machine().cores),
        reference=(
            "the simulator of clusters, with what cores and disk do in runs of one rank and what "
            "messages take alone"
        ),
        agrees=all(len(answer) == 1 for answer in answers.values()),
        notes=[
            "ranks of one host share its cores, its disk and its memory; of "
            f"{describe_machine().cores} cores others left {_processors(records):.2f} to one rank",
            f"a rank sends {messages.bandwidth / 1e9:.2f} GB/s while as much comes; a small message"
            f" takes {1e3 * messages.latency_seconds:.1f} ms, a GB that is sent "
            f"{1e9 * messages.sent_seconds:.2f} s of a processor, and waiting for messages "
            f"{messages.attention:.1%} of one",
        ],
        details={"messages": asdict(messages)},
    )


def _made(settings: Settings, grid: GridSize, case: _Case, place: Path) -> tuple[Record, str]:
    """A run whose files go again: its record, and a digest of its answer."""
    place.mkdir()
    try:
        record = _run(settings, grid, case, place / "run")
        return record, _digest(Result(place / "run", record)["u"])
    finally:
        shutil.rmtree(place)


def _run(settings: Settings, grid: GridSize, case: _Case, out: Path) -> Record:
    """The record of a run of a job file by a launcher."""
    cut, count = case.cut, case.ranks
    shape = [extent + 2 for extent in grid.shape]
    job = out.with_suffix(".toml")
    memory = _memory(settings) // count >> 20
    job.write_text(
        JOB.format(
            shape=shape,
            steps=grid.steps,
            memory=memory,
            depth=case.depth,
            threads=_threads(case),
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


def _threads(case: _Case) -> int:
    """Of a rank: its share of the cores."""
    return max(1, describe_machine().cores // case.ranks)


def _memory(settings: Settings) -> int:
    """Of all ranks together: what windows of the depth need."""
    return settings.memory or settings.by_size(512 << 20, 512 << 20, 2 << 30)


def _digest(field: Any) -> str:
    """A digest of all values of a field, some planes at a time."""
    digest = hashlib.sha256()
    for first in range(0, len(field), 16):
        digest.update(np.asarray(field[first : first + 16]).tobytes())
    return digest.hexdigest()


def _row(
    case: _Case,
    records: dict[_Case, list[Record]],
    grid: GridSize,
    settings: Settings,
    messages: Messages,
) -> RanksRow:
    def median(name: str) -> float:
        return statistics.median(getattr(record.measured, name) for record in records[case])

    names = ("compute", "get", "put", "exchange", "agree", "processor", "compute_processor")
    every = {f"{name}_seconds": median(f"{name}_seconds") for name in names}
    seconds, expected, busy = median("seconds"), 0.0, 0.0
    if case.exchange == "halos":
        expected, busy = _expected(grid, case, _node(case, records, settings, messages))
        busy *= _processors(records) / case.ranks
    planned = records[case][-1].planned["prediction"]["seconds"]
    return RanksRow(
        case.name,
        case.ranks,
        str(case.cut),
        case.exchange if case.ranks > 1 else "",
        case.depth,
        seconds,
        **every,
        sent_bytes=records[case][-1].measured.sent_bytes,
        planned_seconds=planned,
        expected_seconds=expected,
        expected_over_measured=expected / seconds,
        expected_processor_seconds=busy,
        seconds_samples=tuple(record.measured.seconds for record in records[case]),
    )


def _node(
    case: _Case, records: dict[_Case, list[Record]], settings: Settings, messages: Messages
) -> Node:
    """What a rank has, from the runs of one and from messages: its share of cores and disk."""
    update = statistics.median(
        measured.compute_processor_seconds / measured.updates
        for measured in _alone(records, case.name)
    )
    disk = _alone(records, DISK)
    bandwidth = statistics.median(_moved_bytes(measured) / measured.seconds for measured in disk)
    moved = statistics.median(
        (measured.processor_seconds - measured.compute_processor_seconds) / _moved_bytes(measured)
        for measured in disk
    )
    processors = _processors(records) / case.ranks
    return Node(
        processors / update,
        _memory(settings) // case.ranks,
        1 << 62,
        bandwidth / case.ranks,
        bandwidth / case.ranks,
        Network(messages.bandwidth, messages.latency_seconds),
        moved / processors,
        messages.sent_seconds / processors,
        messages.attention / _threads(case),
    )


def _processors(records: dict[_Case, list[Record]]) -> float:
    """How many of the processors one rank had while all were to make updates."""
    return statistics.median(
        measured.compute_processor_seconds / measured.compute_seconds
        for measured in _alone(records, CORES)
    )


def _alone(records: dict[_Case, list[Record]], name: str) -> list[Measured]:
    """The runs of one rank."""
    mine = (case for case in records if case.name == name and case.ranks == 1)
    return [record.measured for case in mine for record in records[case]]


def _moved_bytes(measured: Measured) -> int:
    return measured.read_bytes + measured.written_bytes


def _expected(grid: GridSize, case: _Case, node: Node) -> tuple[float, float]:
    """Seconds that the simulator says, and those for which cores of a node are busy."""
    cluster = Cluster(case.ranks, node)
    chosen = price(grid, cluster, case.cut, case.depth, "stream")
    if isinstance(chosen, str):
        raise ExecutionError(f"the simulator does not take this run: {chosen}")
    run = simulate(grid, cluster, chosen)
    return run.seconds, run.mean("compute")


def _findings(rows: Sequence[RanksRow], left: float) -> list[Finding]:
    """``left`` is the share of the processors that others leave to one rank."""
    two = [row for row in rows if row.ranks > 1]
    ratios = {
        (name, what): {
            row.cut: getattr(row, f"expected_{seconds}") / getattr(row, seconds)
            for row in two
            if row.case == name and row.exchange == "halos"
        }
        for name, what, seconds in (
            (DISK, "time", "seconds"),
            (CORES, "time", "seconds"),
            (CORES, "processor time", "processor_seconds"),
        )
    }
    keys = dict(zip(ratios, ("ranks.disk", "ranks.cores", "ranks.busy"), strict=True))
    findings: list[Finding] = []
    for (name, what), mine in ratios.items():
        told = ", ".join(f"cut {cut}: {ratio:.2f}" for cut, ratio in mine.items())
        worst = max(mine.values(), key=lambda ratio: abs(ratio - 1))
        finding = judged(keys[name, what], worst, told)
        if (name, what) == (CORES, "time") and left < LEAST_LEFT:
            finding = replace(finding, holds=None)
        findings.append(finding)
    by_exchange = {
        row.exchange: row for row in two if row.case == CORES and row.cut == str(Cut(1, 2))
    }
    halos, seams = by_exchange["halos"], by_exchange["seams"]
    measured = seams.seconds / halos.seconds
    planned = seams.planned_seconds / halos.planned_seconds
    told = f"{measured:.2f}, planned {planned:.2f}"
    return [*findings, judged("ranks.seams", planned / measured, told)]


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
