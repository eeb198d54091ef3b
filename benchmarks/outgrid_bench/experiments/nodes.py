"""The cluster's runs on ranks of this host, each with a disk of its own, beside the simulator.

All is a sixteenth of the paper's: extents, blocks, depth and steps, so that parts and halos have
the paper's proportions. Ranks share the processors of this host, so that a disk is made slow enough
to bound a run, as it never did there. What the simulator is given comes from these disks and from
the run on the fewest nodes; what it expects of the others is set beside what they took.
"""

from __future__ import annotations

import hashlib
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from outgrid import Record, Result
from outgrid.errors import ExecutionError
from outgrid.machine import Network, describe_machine
from outgrid.record import read_record
from outgrid_bench.cluster import Cluster, Cut, GridSize, Node, price
from outgrid_bench.emulation import DiskClass, parse_disks, refusal
from outgrid_bench.experiments.emulating import on_disks
from outgrid_bench.experiments.fitted import BLOCK, studies
from outgrid_bench.experiments.getput import launcher
from outgrid_bench.experiments.messages import Messages, measure_messages
from outgrid_bench.experiments.outcome import (
    Experiment,
    Finding,
    Outcome,
    Settings,
    Timed,
    judged,
)
from outgrid_bench.simulation import simulate

__all__ = ["NODES"]

DISK = "raid"
SLOWER = 10
AHEAD = 1
NODE_BYTES = 256 << 20
PARTS = ("compute", "get", "put", "exchange", "agree")
JOB = """
[problem]
stencil = "heat7"
shape = {shape}
steps = {steps}
parameters = {{k = 0.1}}
initial = {{u = "x + 2*y + 3*z"}}
[run]
memory = {memory}
tier = "direct"
scheme = "overlapped"
block = {block}
depth = {depth}
threads = 1
scratch = "{scratch}"
cuts = {cuts}
row_cuts = {rows}
"""


@dataclass(frozen=True, slots=True)
class _Case:
    study: str
    grid: GridSize
    cut: Cut
    depth: int
    block: tuple[int, int]

    @property
    def nodes(self) -> int:
        return self.cut.y * self.cut.z


@dataclass(frozen=True, slots=True)
class NodesRow:
    """One run. Seconds are those of its sweeps, and those of parts are means over ranks, of which
    ``least_seconds`` and ``most_seconds`` of updates tell how they differ.
    ``expected_seconds`` are the simulator's."""

    study: str
    nodes: int
    cut: str
    shape: str
    depth: int
    seconds: float
    compute_seconds: float
    get_seconds: float
    put_seconds: float
    exchange_seconds: float
    agree_seconds: float
    least_seconds: float
    most_seconds: float
    expected_seconds: float
    expected_over_measured: float
    read_bytes: int
    written_bytes: int
    sent_bytes: int
    agrees: bool


def _cases(settings: Settings) -> list[_Case]:
    """The paper's studies made small; a quick run leaves out those of 16 nodes and more."""
    small = settings.by_size(128, 16, 16)
    most = settings.by_size(4, 8, 16)
    cases: list[_Case] = []
    every = {**studies()}
    cube, _, depth = every["strong"][0]
    every["strong"] = [(cube, cut, depth) for cut in (Cut(2, 2), Cut(2, 4), Cut(4, 4))]
    if settings.size == "tiny":
        every = {"strong": every["strong"][:1]}
    for study, runs in every.items():
        for grid, cut, steps in runs:
            z, y, x = ((extent + 2) // small for extent in grid.shape)
            made = GridSize((z, y, x), grid.steps // small)
            block = (BLOCK[0] // small, BLOCK[1] // small)
            cases.append(_Case(study, made, cut, max(1, steps // small), block))
    return [case for case in cases if case.nodes <= most]


def measure(settings: Settings) -> Outcome:
    """Each study on ranks, those of one grid with the same bytes."""
    cases = _cases(settings)
    most = max(case.nodes for case in cases)
    asked = parse_disks(f"{DISK}:{most}/{SLOWER}")
    notes = ["extents, blocks, depth and steps are a sixteenth of the paper's"]
    reason = refusal()
    emulate = settings.size != "tiny" and reason is None and not settings.labels
    if not emulate and not settings.labels:
        notes.append(reason or "one disk for all ranks")
    with on_disks(settings, [asked] if emulate else []) as placed, ExitStack() as stack:
        timed = Timed("nodes", placed)
        links = Path(stack.enter_context(TemporaryDirectory(prefix="outgrid.")))
        for rank in range(most):
            folder = placed.folders[rank % len(placed.folders)] / f"rank-{rank}"
            folder.mkdir()
            stack.callback(folder.rmdir)
            (links / str(rank)).symlink_to(folder.resolve())
        out = Path(stack.enter_context(TemporaryDirectory(dir=settings.folders[0])))
        done: list[tuple[_Case, Record, str]] = []
        for number, case in enumerate(cases):
            settings.say(f"{case.study}: {case.nodes} ranks, cut {case.cut}, depth {case.depth}")
            name = f"{case.study}, {case.grid}, cut {case.cut}, depth {case.depth}"
            run = partial(_run, case, links, out / str(number))
            done.append((case, *timed.piece(name, tuple[Record, str], run)))
        messages = timed.piece("messages", Messages, measure_messages)
        disk = parse_disks(placed.labels[0]).disk if placed.labels else None
        rows = _rows(done, disk, Network(messages.bandwidth, messages.latency_seconds))
        return timed.outcome(
            rows,
            [*_claims(rows), *_simulator(rows, disk)],
            reference="the simulator of clusters, given these disks and the run on fewest nodes",
            agrees=all(row.agrees for row in rows),
            notes=notes,
        )


def _run(case: _Case, links: Path, out: Path) -> tuple[Record, str]:
    """A run by MPI's launcher: its record, and a digest of its answer."""
    shape = tuple(extent + 2 for extent in case.grid.shape)
    job = out.with_suffix(".toml")
    job.write_text(
        JOB.format(
            shape=list(shape),
            steps=case.grid.steps,
            memory=NODE_BYTES,
            block=[*case.block, case.grid.shape[2]],
            depth=case.depth,
            scratch=f"{links}/{{rank}}",
            cuts=_cuts(case.grid.shape[0], case.cut.z),
            rows=_cuts(case.grid.shape[1], case.cut.y),
        )
    )
    run = [sys.executable, "-m", "outgrid", "run", str(job), "--out", str(out), "--quiet"]
    command = [launcher("nodes"), "-n", str(case.nodes), *run]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise ExecutionError(
            f"{case.nodes} ranks ended with {done.returncode}: {done.stderr.strip()}"
        )
    record = read_record(out)
    field, digest = Result(out, record)["u"], hashlib.sha256()
    for first in range(0, len(field), 64):
        digest.update(np.asarray(field[first : first + 64]).tobytes())
    return record, digest.hexdigest()


def _cuts(cells: int, parts: int) -> list[int]:
    """Where an axis with a fixed cell at each end is cut into parts of as many cells."""
    return [1 + cells * part // parts for part in range(1, parts)]


def _rows(
    done: Sequence[tuple[_Case, Record, str]], disk: DiskClass | None, network: Network
) -> list[NodesRow]:
    answers = {case.grid: digest for case, _, digest in done}
    first = [rank.measured for rank in done[0][1].ranks]
    # Of a rank on a core of its own; the simulator lets ranks wait for cores.
    rate = sum(rank.updates for rank in first) / sum(rank.compute_seconds for rank in first)
    rows: list[NodesRow] = []
    for case, record, digest in done:
        ranks = [rank.measured for rank in record.ranks]
        means = {
            f"{name}_seconds": statistics.mean(getattr(rank, f"{name}_seconds") for rank in ranks)
            for name in PARTS
        }
        computed = [rank.compute_seconds for rank in ranks]
        seconds = max(rank.seconds for rank in ranks)
        expected = 0.0 if disk is None else _expected(case, rate, disk, network)
        rows.append(
            NodesRow(
                case.study,
                case.nodes,
                str(case.cut),
                " x ".join(str(extent) for extent in case.grid.shape),
                case.depth,
                seconds,
                **means,
                least_seconds=min(computed),
                most_seconds=max(computed),
                expected_seconds=expected,
                expected_over_measured=expected / seconds,
                read_bytes=sum(rank.read_bytes for rank in ranks),
                written_bytes=sum(rank.written_bytes for rank in ranks),
                sent_bytes=sum(rank.sent_bytes for rank in ranks),
                agrees=digest == answers[case.grid],
            )
        )
    return rows


def _expected(case: _Case, rate: float, disk: DiskClass, network: Network) -> float:
    # Our blocks are read ahead and written behind, and an emulated disk has a rate for each.
    sizes = (NODE_BYTES, 1 << 62, disk.read_bytes, disk.write_bytes, network)
    node = Node(rate, *sizes, ahead=AHEAD)
    cluster = Cluster(case.nodes, node, describe_machine().cores)
    chosen = price(case.grid, cluster, case.cut, case.depth, "blocks", case.block)
    if isinstance(chosen, str):
        raise ExecutionError(f"the simulator does not take this run: {chosen}")
    return simulate(case.grid, cluster, chosen).seconds


def _claims(rows: Sequence[NodesRow]) -> list[Finding]:
    def row(study: str, cut: str) -> NodesRow | None:
        return next((r for r in rows if (r.study, r.cut) == (study, cut)), None)

    def ratio(
        value: Callable[[NodesRow], float], over: NodesRow | None, under: NodesRow | None
    ) -> float | None:
        return None if over is None or under is None else value(over) / value(under)

    def time(one: NodesRow) -> float:
        return one.seconds

    def moved(one: NodesRow) -> float:
        return one.get_seconds + one.put_seconds

    cube, cuboid = row("shape", "(2, 4)"), row("shape", "(1, 8)")
    strong8, strong16 = row("strong", "(2, 4)"), row("strong", "(4, 4)")
    weak4, weak8, weak16 = (row("weak", f"(2, {z})") for z in (2, 4, 8))
    efficiency = ratio(lambda one: one.seconds * one.nodes, strong8, strong16)
    return [
        judged("nodes.strong.16", efficiency),
        judged("nodes.weak.8", ratio(time, weak8, weak4)),
        judged("nodes.weak.16", ratio(time, weak16, weak4)),
        judged("nodes.shape", ratio(time, cube, cuboid)),
        judged("nodes.transfers", ratio(moved, cube, cuboid)),
        judged("nodes.compute", ratio(lambda one: one.compute_seconds, cube, cuboid)),
        judged("nodes.cube_exchange", cube and cube.exchange_seconds / cube.seconds),
        judged("nodes.cuboid_exchange", cuboid and cuboid.exchange_seconds / cuboid.seconds),
    ]


def _simulator(rows: Sequence[NodesRow], disk: DiskClass | None) -> list[Finding]:
    """Whether the simulator foresees the runs that it knows nothing of."""
    if disk is None:
        return []
    others = [row for row in rows if row.nodes != min(r.nodes for r in rows)]
    ratios = [row.expected_over_measured for row in others]
    worst = max(ratios, key=lambda ratio: abs(ratio - 1), default=None)
    told = [f"{r.study} {r.cut}: {r.expected_over_measured:.2f}" for r in others]
    return [judged("nodes.simulator", worst, ", ".join(told))]


def draw(outcome: Outcome, figure: Any) -> None:
    """Seconds of a rank by what it did, stacked, and what the simulator expected."""
    axes = figure.add_subplot()
    rows = outcome.rows
    names = [f"{r['study']}\n{r['nodes']} nodes\n{r['cut']}, depth {r['depth']}" for r in rows]
    base = [0.0] * len(rows)
    for part in PARTS:
        heights = [row[f"{part}_seconds"] for row in rows]
        axes.bar(range(len(rows)), heights, bottom=base, label=part)
        base = [low + height for low, height in zip(base, heights, strict=True)]
    places = range(len(rows))
    axes.plot(places, [r["seconds"] for r in rows], "k_", markersize=24, label="of the sweeps")
    axes.plot(places, [r["expected_seconds"] for r in rows], "kx", label="simulated")
    axes.set_xticks(list(places), names, fontsize="small")
    axes.set_ylabel("seconds of a rank")
    axes.legend(ncols=len(PARTS))


NODES = Experiment(
    "nodes",
    "the cluster's runs on ranks with disks of their own, beside the simulator",
    measure,
    draw,
)
