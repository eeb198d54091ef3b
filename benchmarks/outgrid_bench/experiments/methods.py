"""Swap, mapped files and direct transfers on one grid beyond memory: time, traffic, and when.

The papers' figures of a problem twice as large as memory, and their time series of bandwidth and
processors, at a larger factor.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
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

__all__ = ["METHODS", "grid_of", "how", "passes"]

PLAIN_STEPS = 2
FULL_FACTOR = 16.0
LEAST_FACTOR, MOST_FACTOR = 1.5, 3.0  # of a grid like that of the paper, over memory
SLOWER_BAR, FASTER_BAR = 20.0, 1.5
PAPER = "temporal blocking on flash"
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


def passes(settings: Settings) -> int:
    """How often the blocked methods pass over the whole grid."""
    return settings.by_size(2, 1, 2)


def how(
    settings: Settings, grid: Grid, blocks: dict[str, Any], full_factor: float
) -> Iterator[str]:
    """Notes: what blocks there are, and what a quick experiment has less of than a full one."""
    yield f"overlapped: depth {blocks['depth']}, blocks of {blocks['block']} cells"
    if settings.size == "quick":
        yield (
            f"--quick: planes of {format_extents(grid.plane)}, blocked methods pass once over"
            f" the grid, at most {grid.factor:g} times {format_bytes(grid.limit_bytes)}; with"
            f" --full twice, {full_factor:g} times {format_bytes(settings.memory_bytes)}"
        )


def measure(settings: Settings) -> Outcome:
    """Plain, overlapped and skewed sweeps on every tier: first the rows that claims are about."""
    timed = Timed("methods", settings)
    notes: list[str] = []
    runs = Runs(settings, timed, notes)
    factor = settings.factor or {"tiny": 4.0, "quick": 2.0, "full": FULL_FACTOR}[settings.size]
    grid = grid_of(settings, factor)
    blocks = grid.blocks(settings.by_size(4, 256, 256))
    steps = settings.steps or passes(settings) * int(blocks["depth"])
    settings.say("in memory")
    memory = {kind: runs.in_memory(grid, min(steps, 16), kind) for kind in ("plain", "tiled")}
    swap, mapped, direct = BLOCKED
    order = (*OURS, direct, PLAIN[0], mapped, swap, ADVISED, *PLAIN[1:])
    tasks = [
        Task(grid, method, PLAIN_STEPS if method in PLAIN else steps, blocks, memory["plain"])
        for method in order
    ]
    shown = [method.name for method in (swap, mapped, ADVISED, direct, *OURS, *PLAIN)]
    rows = sorted(runs.measure(tasks), key=lambda row: shown.index(row.method))
    notes += how(settings, grid, blocks, FULL_FACTOR)
    return timed.outcome(
        rows,
        _findings(rows, memory),
        reference=(
            f"in memory {memory['plain']:.2f} GLUP/s plain and {memory['tiled']:.2f} temporally "
            f"blocked, {runs.reference}; some planes of every answer are compared with plain sweeps"
        ),
        agrees=agree(rows),
        notes=notes,
        details={"in_memory": memory, "series": runs.series},
    )


def _findings(rows: Sequence[BeyondRow], memory: dict[str, float]) -> list[Finding]:
    by_method = {row.method: row for row in rows}
    plain = memory["plain"]
    findings: list[Finding] = []
    blocked = [by_method.get(method.name) for method in BLOCKED]
    swapped, mapped, direct = blocked
    if (worst := by_method.get("plain on swap")) is not None:
        slower = plain / worst.glups
        findings.append(
            Finding(
                f"{PAPER}, figure 11",
                "without temporal blocking swap is hopeless: so many times slower than in memory",
                "53.8 times at twice the memory",
                f"{slower:.0f} times at {worst.factor:g} times the memory",
                slower >= SLOWER_BAR,
            )
        )
    if mapped is not None and direct is not None:
        known = [row for row in reversed(blocked) if row is not None]
        without = "" if swapped is not None else "; swap was not measured"
        order = "direct transfers, then mmap" + (", then swap" if swapped is not None else "")
        times = [plain / row.glups for row in known]
        findings.append(
            Finding(
                f"{PAPER}, figure 11",
                f"with temporal blocking the time is least with {order}",
                "times that in memory: aio 1.51, mmap 1.58, swap 2.22",
                ", ".join(f"{row.tier} {time:.2f}" for row, time in zip(known, times, strict=True))
                + without,
                all(one.seconds < other.seconds for one, other in itertools.pairwise(known)),
            )
        )
        findings.append(
            Finding(
                f"{PAPER}, figures 13 and 14",
                "direct transfers read least, mmap more" + ("" if without else ", swap most"),
                "read/written GiB: aio 110/128, mmap 210/156, swap 601/125",
                ", ".join(
                    f"{row.tier} {row.disk_read_bytes / GIB:.3g}/{row.disk_written_bytes / GIB:.3g}"
                    for row in known
                )
                + without,
                all(
                    less.disk_read_bytes < more.disk_read_bytes
                    for less, more in itertools.pairwise(known)
                ),
            )
        )
    findings += _numbers(by_method, plain)
    ours = by_method.get("skewed on direct")
    if ours is not None and direct is not None:
        faster = ours.glups / direct.glups
        findings.append(
            Finding(
                f"{PAPER}, future work",
                "computing nothing twice should pay: skewed over overlapped, both on direct",
                "named as future work",
                f"{faster:.2f} times as fast; wanted {FASTER_BAR:g}",
                faster >= FASTER_BAR,
            )
        )
    return findings


def _numbers(by_method: Mapping[str, BeyondRow], plain: float) -> list[Finding]:
    """What the paper printed of its grid of twice the memory, judged on such a grid alone."""
    like = {
        name: row for name, row in by_method.items() if LEAST_FACTOR <= row.factor <= MOST_FACTOR
    }
    times = {name: plain / row.glups for name, row in like.items()}
    read = {name: row.disk_read_bytes for name, row in like.items()}
    swap, mapped, direct = (method.name for method in BLOCKED)

    def over_direct(name: str) -> float | None:
        return read[name] / read[direct] if name in read and read.get(direct) else None

    return [
        judged("fig11.swap", times.get(swap)),
        judged("fig11.mmap", times.get(mapped)),
        judged("fig11.direct", times.get(direct)),
        judged("fig11.plain", times.get("plain on swap")),
        judged("fig14.swap", over_direct(swap)),
        judged("fig14.mmap", over_direct(mapped)),
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
