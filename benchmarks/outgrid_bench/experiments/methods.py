"""Swap, mapped files and direct transfers on one grid beyond memory: time, traffic, and when.

The papers' figures of a problem twice as large as memory, and their time series of bandwidth and
processors, at a larger factor.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from outgrid.lines import format_extents
from outgrid.units import format_bytes
from outgrid_bench.experiments.beyond import (
    ADVISED,
    BLOCKED,
    OURS,
    PLAIN,
    BeyondRow,
    Grid,
    Runs,
    Task,
    agree,
)
from outgrid_bench.experiments.figure import spoken
from outgrid_bench.experiments.outcome import (
    Experiment,
    Finding,
    Outcome,
    Settings,
    Timed,
    judged,
)

__all__ = ["METHODS", "PASSES", "grid_of", "how"]

PLAIN_STEPS = 2
PASSES = 2  # of blocks over the grid: the second reads again what the first one wrote
# One state over memory: the papers count both, so that theirs of twice the memory is 1 here.
FULL_FACTOR = 8.0
LEAST_FACTOR, MOST_FACTOR = 0.7, 1.5
GIB = 1 << 30
EDGE_STEP = 128  # rows of planes are whole vectors


def grid_of(settings: Settings, factor: float) -> Grid:
    """A grid of ``factor`` times the limit that goes with the size of the experiment."""
    if settings.size == "tiny":
        return Grid(256 << 20, factor / 100, (64, 64))
    # Planes as large as the block buffers of the papers have them; where time is short, such that
    # a part of the limit as small as that has blocks as deep.
    planes = settings.by_size(0, 227, 128)
    edge = math.isqrt(settings.limit_bytes // planes // 8)
    edge = max(EDGE_STEP, edge - edge % EDGE_STEP)
    return Grid(settings.limit_bytes, factor, (edge, edge))


def how(
    settings: Settings, grid: Grid, blocks: dict[str, Any], full_factor: float
) -> Iterator[str]:
    """Notes: what blocks there are, and what a quick experiment has less of than a full one."""
    yield f"overlapped: depth {blocks['depth']}, blocks of {blocks['block']} cells"
    if settings.size == "quick":
        yield (
            f"--quick: planes of {format_extents(grid.plane)}, at most {grid.factor:g} times"
            f" {format_bytes(grid.limit_bytes)}; with --full {full_factor:g} times"
            f" {format_bytes(settings.memory_bytes)}"
        )


def measure(settings: Settings) -> Outcome:
    """Plain, overlapped and skewed sweeps on every tier: first the rows that claims are about."""
    timed = Timed("methods", settings)
    runs = Runs(settings, timed)
    factor = settings.factor or {"tiny": 4.0, "quick": 1.0, "full": FULL_FACTOR}[settings.size]
    grid = grid_of(settings, factor)
    blocks = grid.blocks(settings.by_size(4, 256, 256))
    steps = settings.steps or PASSES * int(blocks["depth"])
    memory = {kind: runs.in_memory(grid, min(steps, 16), kind) for kind in ("plain", "tiled")}
    swap, mapped, direct = BLOCKED
    order = (*OURS, direct, PLAIN[0], mapped, swap, ADVISED, *PLAIN[1:])
    tasks = [
        Task(grid, method, PLAIN_STEPS if method in PLAIN else steps, blocks, memory["plain"])
        for method in order
    ]
    shown = [method.name for method in (swap, mapped, ADVISED, direct, *OURS, *PLAIN)]
    rows = sorted(runs.measure(tasks), key=lambda row: shown.index(row.method))
    timed.notes += how(settings, grid, blocks, FULL_FACTOR)
    return timed.outcome(
        rows,
        _findings(rows, memory),
        reference=(
            f"in memory {memory['plain']:.2f} GLUP/s plain and {memory['tiled']:.2f} temporally "
            f"blocked, {runs.reference}; some planes of every answer are compared with plain sweeps"
        ),
        agrees=agree(rows),
        details={"in_memory": memory, "series": runs.series},
    )


def _findings(rows: Sequence[BeyondRow], memory: dict[str, float]) -> list[Finding]:
    """What the paper printed of two states of twice the memory, judged on such a grid alone."""
    by_method = {row.method: row for row in rows}
    like = {
        name: row for name, row in by_method.items() if LEAST_FACTOR <= row.factor <= MOST_FACTOR
    }
    times = {name: memory["plain"] / row.glups for name, row in like.items()}
    read = {name: float(row.disk_read_bytes) for name, row in like.items()}
    swap, mapped, direct = (method.name for method in BLOCKED)

    def ratio(values: dict[str, float], over: str, under: str) -> float | None:
        return values[over] / values[under] if over in values and values.get(under) else None

    rates = {row.method: row.glups for row in rows}
    return [
        judged("fig11.swap", times.get(swap)),
        judged("fig11.mmap", times.get(mapped)),
        judged("fig11.direct", times.get(direct)),
        judged("fig11.plain", times.get("plain on swap")),
        judged("order.mmap", ratio(times, mapped, direct)),
        judged("order.swap", ratio(times, swap, mapped)),
        judged("fig14.swap", ratio(read, swap, direct)),
        judged("fig14.mmap", ratio(read, mapped, direct)),
        judged("order.read.swap", ratio(read, swap, mapped)),
        judged("dram.share", None if direct not in times else 1 / times[direct]),
        judged("future.methods", ratio(rates, "skewed on direct", direct)),
    ]


def draw(outcome: Outcome, figure: Any) -> None:
    """Time over that in memory and traffic of all methods; below, each run's series."""
    series = outcome.details["series"]
    shown = [row for row in outcome.rows if not row["method"].startswith("plain")]
    upper, lower = figure.subfigures(2, 1, height_ratios=(1, 1.3))
    left, right = upper.subplots(1, 2)
    names = [row["method"].replace(" on ", "\n").replace(", ", ",\n") for row in outcome.rows]
    times = [1 / row["over_memory"] for row in outcome.rows]
    colours = [_colour(row) for row in outcome.rows]
    bars = left.bar(names, [time - 1 for time in times], bottom=1, color=colours)
    left.axhline(1, color="0.4", linewidth=1)
    left.margins(y=0.15)
    left.bar_label(bars, [spoken(time, 3) for time in times], fontsize="x-small", padding=2)
    left.set_yscale("log")
    left.set_ylabel("time over plain in memory")
    left.tick_params(axis="x", labelsize="xx-small")
    places = range(len(shown))
    for offset, key in ((-0.2, "disk_read_bytes"), (0.2, "disk_written_bytes")):
        right.bar(
            [place + offset for place in places],
            [row[key] / GIB for row in shown],
            0.4,
            label=key.split("_")[1],
        )
    right.set_xticks(
        list(places), [row["method"].replace(" on ", "\n") for row in shown], fontsize="x-small"
    )
    right.set_ylabel("GiB moved by the disk")
    right.legend(fontsize="x-small")
    panels = lower.subplots(2, max(1, len(shown)), squeeze=False, sharey="row")
    for column, row in enumerate(shown):
        samples = series[f"{row['method']}, {row['factor']:g}"]
        _draw_series(panels[0, column], panels[1, column], row, samples, column == 0)


def _draw_series(
    upper: Any, lower: Any, row: dict[str, Any], samples: Sequence[dict[str, float]], first: bool
) -> None:
    pairs = list(itertools.pairwise(samples))
    middles = [(a["seconds"] + b["seconds"]) / 2 for a, b in pairs]

    def rates(key: str) -> list[float]:
        return [(b[key] - a[key]) / max(b["seconds"] - a["seconds"], 1e-3) for a, b in pairs]

    for key, name in (("read_bytes", "read"), ("written_bytes", "written")):
        upper.plot(middles, [rate / 1e9 for rate in rates(key)], linewidth=1, label=name)
    for key, name in (("busy_seconds", "computing"), ("iowait_seconds", "waiting for disks")):
        lower.plot(middles, rates(key), linewidth=1, label=name)
    upper.set_title(row["method"], fontsize="small")
    lower.set_xlabel("seconds")
    if first:
        upper.set_ylabel("GB/s")
        lower.set_ylabel("processors")
        upper.legend(fontsize="x-small")
        lower.legend(fontsize="x-small")


def _colour(row: dict[str, Any]) -> str:
    return {"swap": "C3", "mmap": "C1", "direct": "C0"}[row["tier"]]


METHODS = Experiment(
    "methods",
    "swap, mapped files and direct transfers, plain, overlapped and skewed: time and traffic",
    measure,
    draw,
)
