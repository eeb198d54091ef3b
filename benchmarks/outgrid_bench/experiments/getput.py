"""Remote memory by get and put against paging: a vector sum, heat7 in blocks, and bare regions.

Ranks of MPI on this host lend memory to one that computes, which has a share of what the data take.
Between hosts the network adds to what is shown here, for both ways.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from outgrid.errors import ExecutionError, UsageError
from outgrid.machine import describe_machine
from outgrid.units import format_bytes
from outgrid_bench.experiments.figure import look
from outgrid_bench.experiments.getput_ranks import WAYS, Task, main
from outgrid_bench.experiments.outcome import Experiment, Finding, Outcome, Settings, Timed, judged

__all__ = ["GETPUT", "launcher"]

SHARES = (0.15, 0.3, 0.45, 0.7, 1.0)
SUM_SHARE, STENCIL_SHARE = 0.15, 0.45  # the paper's local memory over all data
SUM_BAR, STENCIL_BAR = 0.3, 1.3
RANKS = 3
PAGING = {"vector sum": "copied pages", "heat7": "pages"}  # what the paper compares with
FLOPS = 9  # of an update of heat7
PARTS = (("compute", "C2"), ("copy", "C0"), ("fault", "C3"), ("flush", "C1"))


@dataclass(frozen=True, slots=True)
class GetPutRow:
    """One program in one way. ``share`` is local memory over all data; ``copy_seconds`` moving of
    blocks without waiting for pages, which is ``fault_seconds``; ``flush_seconds`` writes back what
    is left at the end;
    ``over_paging`` the time over that of the paper's paging with the same share, the median of
    what each round says; ``mflops`` are those of needed updates of the stencil; ``samples`` are the
    seconds of all rounds."""

    program: str
    way: str
    share: float
    local_bytes: int
    data_bytes: int
    moved_bytes: int
    seconds: float
    copy_seconds: float
    compute_seconds: float
    fault_seconds: float
    flush_seconds: float
    over_paging: float | None
    threads: int
    mflops: float | None
    agrees: bool
    samples: tuple[float, ...]


def measure(settings: Settings) -> Outcome:
    """Both programs at every share, then regions of several sizes beside plain calls of MPI."""
    timed = Timed("getput", settings)
    notes: list[str] = []
    rows: list[GetPutRow] = []
    for task in _tasks(settings):
        share = f", local memory {task.shares[0]:.0%}" if len(task.shares) == 1 else ""
        name = f"{task.program}, threads: {task.threads}{share}"
        settings.say(f"{name}: {', '.join(WAYS[task.program])}")
        told = timed.piece(name, dict[str, Any], partial(_begin, task))
        if told["refused"]:
            timed.note(f"no paging was measured: {told['refused']}")
        rows += _rows(task, told["runs"])
        timed.note(
            f"{task.program}: pages of {format_bytes(task.page_bytes)}, threads: {task.threads}"
            + (f", {task.passes} passes of depth {task.depth}" if task.depth > 1 else "")
        )
    sizes = {
        "tiny": (1 << 16, 1 << 20),
        "quick": (1 << 20, 16 << 20, 128 << 20),
        "full": (1 << 16, 1 << 20, 16 << 20, 128 << 20, 1 << 30),
    }[settings.size]
    settings.say("regions beside plain calls of MPI")
    rounds = settings.by_size(1, 7, 9)
    regions = Task("moving", (), (), 0, rounds, 1, sizes_bytes=sizes)
    moved = timed.piece("regions", dict[str, Any], lambda: _begin(regions))
    moving = _rates(moved["moves"])
    notes += _floors(rows, moving)
    return timed.outcome(
        rows,
        [*_findings(rows), *_moving_findings(moving)],
        reference=(
            "the same program with copies from and to paged arrays; regions: one plain call of MPI "
            "for each rank"
        ),
        agrees=all(row.agrees for row in rows) and moved["agrees"],
        notes=notes,
        details={"moving": moving},
    )


def _tasks(settings: Settings) -> tuple[Task, ...]:
    threads = describe_machine().cores
    shares = (0.3, 1.0) if settings.size == "tiny" else SHARES
    page = settings.by_size(8 << 10, 2 << 20, 8 << 20)
    rounds = settings.by_size(1, 3, 3)
    count = settings.by_size(1 << 18, 1 << 25, settings.memory_bytes // 4)
    side = settings.by_size(32, 256, 512)
    planes = settings.by_size(48, 256, max(64, settings.memory_bytes // (8 * side * side)))
    stencil = Task(
        "heat7",
        (planes, side, side),
        shares,
        page,
        rounds,
        threads,
        depth=settings.by_size(2, 4, 8),
        passes=2,
    )
    fewer = [count for count in (1, 2, 4, 8) if count < threads]
    return (
        Task("vector sum", (count,), shares, page, rounds, threads),
        *(
            replace(stencil, shares=(share,)) for share in shares
        ),  # minutes each where data are large
        *(replace(stencil, shares=(STENCIL_SHARE,), threads=some) for some in fewer),
    )


def _begin(task: Task) -> dict[str, Any]:
    """Run one task in ranks of its own; what rank 0 told."""
    begin = f"from {main.__module__} import main; main()"
    command = [launcher("getput"), "-n", str(RANKS), sys.executable, "-c", begin]
    # Threads that spin after their part of a sum would take processors from those that move bytes.
    environment = os.environ | {"OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(
        [*command, json.dumps(asdict(task))],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ExecutionError(
            f"the ranks of {task.program} ended with exit code {done.returncode}: "
            f"{done.stderr.strip()}"
        )
    return json.loads(done.stdout)


def launcher(bench: str) -> str:
    """MPI's launcher: that of this environment, or the first on the path."""
    beside = str(Path(sys.executable).parent)
    mpiexec = shutil.which("mpiexec", path=beside) or shutil.which("mpiexec")
    if mpiexec is None or importlib.util.find_spec("mpi4py") is None:
        raise UsageError(f"{bench} needs mpiexec and mpi4py: pip install 'outgrid[mpi]'")
    return mpiexec


def _rows(task: Task, runs: Sequence[dict[str, Any]]) -> list[GetPutRow]:
    program = task.program
    cells = task.depth * task.passes
    for extent in task.shape:
        cells *= extent
    rows: list[GetPutRow] = []
    for share in dict.fromkeys(run["share"] for run in runs):
        paging = [r["seconds"] for r in runs if (r["way"], r["share"]) == (PAGING[program], share)]
        for way in WAYS[program]:
            mine = [run for run in runs if (run["way"], run["share"]) == (way, share)]
            if not mine:
                continue
            samples = tuple(run["seconds"] for run in mine)
            ratios = [own / other for own, other in zip(samples, paging, strict=False)]
            middle = sorted(mine, key=lambda run: run["seconds"])[len(mine) // 2]
            rows.append(
                GetPutRow(
                    program,
                    way,
                    share,
                    middle["local_bytes"],
                    middle["data_bytes"],
                    middle["moved_bytes"],
                    middle["seconds"],
                    middle["copy_seconds"],
                    middle["compute_seconds"],
                    middle["fault_seconds"],
                    middle["flush_seconds"],
                    statistics.median(ratios) if ratios else None,
                    task.threads,
                    FLOPS * cells / middle["seconds"] / 1e6 if program == "heat7" else None,
                    all(run["agrees"] for run in mine),
                    samples,
                )
            )
    return rows


def _rates(moves: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Bytes per second by size and way, the median of all rounds."""
    keys = dict.fromkeys((move["bytes"], move["how"]) for move in moves)
    rates: list[dict[str, Any]] = []
    for size, how in keys:
        seconds = [move["seconds"] for move in moves if (move["bytes"], move["how"]) == (size, how)]
        rate = size / statistics.median(seconds)
        rates.append({"bytes": size, "how": how, "bytes_per_second": rate})
    return rates


def _floors(rows: Sequence[GetPutRow], moving: Sequence[dict[str, Any]]) -> list[str]:
    """What the vector sum takes over plain calls of MPI that move each of its bytes once."""
    largest = max(move["bytes"] for move in moving)
    rates = {move["how"]: move["bytes_per_second"] for move in moving if move["bytes"] == largest}
    floors: list[str] = []
    for share in dict.fromkeys(row.share for row in rows if row.program == "vector sum"):
        mine = [row for row in rows if (row.program, row.share) == ("vector sum", share)]
        floor = mine[0].data_bytes / 3 * (2 / rates["MPI_Get"] + 1 / rates["MPI_Put"])
        over = ", ".join(f"{row.way} {row.seconds / floor:.2f}" for row in mine)
        floors.append(f"vector sum, {share:.0%}, over one call of MPI for each array: {over}")
    return floors


def _findings(rows: Sequence[GetPutRow]) -> list[Finding]:
    most = max(row.threads for row in rows)

    def ratio(program: str, share: float) -> float | None:
        for row in rows:
            if (row.program, row.way, row.share, row.threads) == (
                program,
                "get/put",
                share,
                most,
            ):
                return row.over_paging
        return None

    heat7 = ratio("heat7", STENCIL_SHARE)
    return [
        judged("sum.15", ratio("vector sum", SUM_SHARE)),
        judged("sum.30", ratio("vector sum", 2 * SUM_SHARE)),
        judged("heat7.45", None if heat7 is None else 1 / heat7),
    ]


def _moving_findings(moving: Sequence[dict[str, Any]]) -> list[Finding]:
    largest = max(move["bytes"] for move in moving)
    rates = {move["how"]: move["bytes_per_second"] for move in moving if move["bytes"] == largest}
    shares = rates["get"] / rates["MPI_Get"], rates["put"] / rates["MPI_Put"]
    fresh = rates["get into new memory"] / rates["MPI_Get"]
    told = (
        f"{format_bytes(largest)}: get {shares[0]:.0%} of MPI_Get, put {shares[1]:.0%} of MPI_Put; "
        f"into memory that is touched for the first time {fresh:.0%}"
    )
    return [judged("regions", min(shares), told)]


def draw(outcome: Outcome, figure: Any) -> None:
    """What the time of each way went for, by share; below, rates of regions."""
    panels = figure.subplots(2, 2)
    for axes, program in zip(panels[0], WAYS, strict=True):
        _draw_parts(axes, program, [row for row in outcome.rows if row["program"] == program])
    _draw_ratios(panels[1][0], outcome.rows)
    _draw_rates(panels[1][1], outcome.details["moving"])


def _draw_parts(axes: Any, program: str, rows: Sequence[dict[str, Any]]) -> None:
    names: list[str] = []
    for row in rows:
        names.append(f"{row['way']}, {row['share']:.0%}, {row['threads']}")
        bottom = 0.0
        for part, colour in PARTS:
            seconds = row[f"{part}_seconds"]
            axes.bar(len(names) - 1, seconds, bottom=bottom, color=colour)
            bottom += seconds
    for part, colour in PARTS:
        axes.bar(0, 0, color=colour, label=part)
    turned = {"rotation": 60, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(range(len(names)), names, fontsize="x-small", **turned)
    axes.set_ylabel("seconds")
    axes.set_title(f"{program}, by local memory over data, and threads", fontsize=10)
    axes.set_ylim(top=1.2 * axes.get_ylim()[1])  # room for the legend
    axes.legend(fontsize="x-small", ncols=3, loc="upper center")


def _draw_ratios(axes: Any, rows: Sequence[dict[str, Any]]) -> None:
    for number, program in enumerate(WAYS):
        mine = [
            row
            for row in rows
            if (row["program"], row["way"]) == (program, "get/put") and row["over_paging"]
        ]
        mine = [row for row in mine if row["threads"] == max(r["threads"] for r in mine)]
        if mine:
            shares = [row["share"] for row in mine]
            axes.plot(shares, [row["over_paging"] for row in mine], label=program, **look(number))
        bar = {"vector sum": SUM_BAR, "heat7": 1 / STENCIL_BAR}[program]
        axes.axhline(bar, color=f"C{number}", linestyle=":", linewidth=1)
    axes.set_xlabel("local memory over data")
    axes.set_ylabel("time over paging")
    axes.set_title("get and put; dotted: of the paper", fontsize=10)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend(fontsize="x-small")


def _draw_rates(axes: Any, moving: Sequence[dict[str, Any]]) -> None:
    for number, how in enumerate(dict.fromkeys(move["how"] for move in moving)):
        mine = [move for move in moving if move["how"] == how]
        axes.plot(
            [move["bytes"] / (1 << 20) for move in mine],
            [move["bytes_per_second"] / 1e9 for move in mine],
            linestyle="--" if how.startswith("MPI") else "-",
            label=how,
            **look(number),
        )
    axes.set_xscale("log", base=2)
    axes.set_xlabel("MiB of a region")
    axes.set_ylabel("GB/s")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small")


GETPUT = Experiment(
    "getput",
    "remote memory by get and put against paging: a vector sum, heat7, bare regions",
    measure,
    draw,
)
