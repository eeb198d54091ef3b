"""One and two ranks of MPI on this host, measured, and what the simulator of clusters expected.

The run of one rank gives the rate at which a node updates, and the probe what its disk does; two
ranks halve both. Nothing is fitted to the runs of two ranks. They exchange halos, as simulated.
"""

from __future__ import annotations

import os
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
from outgrid.bench.experiments.outcome import Experiment, Finding, Outcome, Settings, Timed
from outgrid.errors import ExecutionError
from outgrid.machine import Network, describe_machine
from outgrid.plan.cluster import Cluster, Cut, GridSize, Node, price
from outgrid.probe.profile import known_machine
from outgrid.record import Record, read_record
from outgrid.result import Result

__all__ = ["RANKS"]

CASES = {"bound by the disk": 1, "bound by the cores": 16}  # and the depth that makes it so
CUTS = (Cut(1, 1), Cut(1, 2), Cut(2, 1))  # y, z
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
exchange = "halos"
"""


@dataclass(frozen=True, slots=True)
class RanksRow:
    """One run. ``cut`` is (y, z); seconds are those of its sweeps."""

    case: str
    ranks: int
    cut: str
    depth: int
    seconds: float
    compute_seconds: float
    sent_bytes: int
    expected_seconds: float
    expected_over_measured: float


def measure(settings: Settings) -> Outcome:
    """Every case on one rank, then on two that cut planes or rows."""
    timed = Timed("ranks", settings)
    side = settings.by_size(48, 256, 512)
    planes = settings.by_size(48, 256, 1024)
    rows: list[RanksRow] = []
    same = True
    with TemporaryDirectory(dir=settings.folders[0], prefix="outgrid.") as folder:
        for case, depth in list(CASES.items())[settings.by_size(1, 0, 0) :]:
            grid = GridSize((planes - 2, side - 2, side - 2), settings.by_size(2, 4, 4) * depth)
            answers: list[bytes] = []
            rate = 0.0
            for cut in CUTS:
                settings.say(f"{case}: {cut.y * cut.z} ranks, cut {cut}")
                out = Path(folder) / f"{depth}.{cut.y}.{cut.z}"
                record = _run(settings, grid, depth, cut, out)
                measured = record.measured
                rate = rate or grid.cells * grid.steps / measured.compute_seconds
                expected = _expected(settings, grid, depth, cut, rate)
                rows.append(
                    RanksRow(
                        case,
                        cut.y * cut.z,
                        str(cut),
                        depth,
                        measured.seconds,
                        measured.compute_seconds,
                        measured.sent_bytes,
                        expected,
                        expected / measured.seconds,
                    )
                )
                answers.append(np.asarray(Result(out, record)["u"]).tobytes())
            same = same and len(set(answers)) == 1
    return timed.outcome(
        rows,
        _findings(rows),
        reference="the simulator of clusters, with the rate of one rank and the probe of the disk",
        agrees=same,
        notes=["ranks of one host share its cores, its disk and its memory"],
    )


def _run(settings: Settings, grid: GridSize, depth: int, cut: Cut, out: Path) -> Record:
    """The record of a run of a job file by a launcher."""
    count = cut.y * cut.z
    shape = [extent + 2 for extent in grid.shape]
    job = out.with_suffix(".toml")
    threads = max(1, describe_machine().cores // count)
    memory = settings.memory_bytes // count >> 20
    job.write_text(
        JOB.format(shape=shape, steps=grid.steps, memory=memory, depth=depth, threads=threads)
    )
    command = [sys.executable, "-m", "outgrid", "run", str(job), "--out", str(out), "--quiet"]
    if count > 1:
        cuts = [shape[0] // 2] if cut.z > 1 else []
        rows = [shape[1] // 2] if cut.y > 1 else []
        more = ["--set", f"cuts={cuts}", "--set", f"row_cuts={rows}"]
        command = [launcher("ranks"), "-n", str(count), *command, *more]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ)
    if done.returncode:
        raise ExecutionError(f"{count} ranks ended with {done.returncode}: {done.stderr.strip()}")
    return read_record(out)


def _expected(settings: Settings, grid: GridSize, depth: int, cut: Cut, rate: float) -> float:
    """Seconds that the simulator says."""
    place = settings.folders[0]
    machine = describe_machine() if settings.size == "tiny" else known_machine(place)
    count = cut.y * cut.z
    bandwidth = machine.mixed_bandwidth / count
    node = Node(rate / count, settings.memory_bytes, 1 << 62, bandwidth, bandwidth, Network())
    cluster = Cluster(count, node)
    chosen = price(grid, cluster, cut, depth, "stream")
    if isinstance(chosen, str):
        raise ExecutionError(f"the simulator does not take this run: {chosen}")
    return simulate(grid, cluster, chosen, direction="upward").seconds


def _findings(rows: Sequence[RanksRow]) -> list[Finding]:
    return [
        Finding(
            "simulator",
            f"the time of two ranks, {case}, is foreseen within {WITHIN:.0%}",
            "",
            ", ".join(f"cut {row.cut}: {row.expected_over_measured:.2f}" for row in mine),
            all(abs(row.expected_over_measured - 1) <= WITHIN for row in mine),
        )
        for case in CASES
        if (mine := [row for row in rows if row.case == case and row.ranks > 1])
    ]


def draw(outcome: Outcome, figure: Any) -> None:
    """Measured and expected seconds beside each other."""
    axes = figure.add_subplot()
    places = np.arange(len(outcome.rows))
    bars = ((-0.2, "seconds", "measured"), (0.2, "expected_seconds", "expected by the simulator"))
    for shift, name, label in bars:
        axes.bar(places + shift, [row[name] for row in outcome.rows], 0.4, label=label)
    names = [f"{row['case']}\nranks: {row['ranks']}, cut {row['cut']}" for row in outcome.rows]
    axes.set_xticks(places, names, fontsize="small")
    axes.set_ylabel("seconds of the sweeps")
    axes.legend()


RANKS = Experiment("ranks", "one and two ranks of MPI here, beside the simulator", measure, draw)
