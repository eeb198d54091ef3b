"""The ladder from cache to disk: how long one access takes, and how many bytes a second there are.

In memory one core reads: loads that depend on each other for the latency, sums for the bandwidth.
Files are read by requests of 4 KiB at places of chance, one after the other, for the latency; the
bandwidth is that of large requests in their order, from the page cache one after the other, from
the disk through the queue of runs. The best round counts: others on the machine only slow one down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outgrid.machine import describe_machine
from outgrid.native import Buffer
from outgrid.probe.effort import Effort
from outgrid.probe.scratch import Flow, NoiseFile, noise_file
from outgrid.storage import Transfers
from outgrid_bench.experiments.figure import look
from outgrid_bench.experiments.moving import Moving, chase_seconds, move, read_rate
from outgrid_bench.experiments.outcome import Experiment, Finding, Outcome, Settings, Timed, judged

__all__ = ["LADDER"]

SMALLEST_SET_BYTES = 16 << 10
PAGE_BYTES = 4096
LARGE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class LadderRow:
    """One rung. ``set_bytes`` is the working set in memory, the file's size for files."""

    rung: str
    place: str
    set_bytes: int
    seconds_per_access: float
    bytes_per_second: float
    latency_samples: tuple[float, ...]
    bandwidth_samples: tuple[float, ...]


def measure(settings: Settings) -> Outcome:
    """Working sets from 16 KiB to beyond the last cache, the page cache, and every folder."""
    timed = Timed("ladder", settings)
    rounds = settings.by_size(1, 3, 5)
    rows = _memory_rows(settings, rounds)
    for index, folder in enumerate(settings.folders):
        settings.say(f"files in {folder}")
        effort = Effort(
            file_bytes=settings.by_size(4 << 20, 1 << 30, 4 << 30),
            transfer_seconds=settings.by_size(5, 500, 1000) / 1000,
        )
        with Transfers() as transfers, noise_file(folder, effort, transfers) as noise:
            if index == 0:
                rows.append(_page_cache_row(noise, effort, rounds))
            rows.append(_disk_row(folder, noise, effort, transfers, rounds))
    return timed.outcome(
        rows,
        _findings(rows),
        reference="every rung beside all others, in one run",
        agrees=all(row.seconds_per_access > 0 and row.bytes_per_second > 0 for row in rows),
    )


def _memory_rows(settings: Settings, rounds: int) -> list[LadderRow]:
    machine = describe_machine()
    largest = settings.by_size(1 << 20, 512 << 20, 2 << 30)
    caches = {1: 48 << 10, 2: machine.l2_bytes, 3: machine.l3_bytes}
    loads = settings.by_size(10_000, 1_000_000, 4_000_000)
    memory = Buffer(largest)
    rows: list[LadderRow] = []
    for octave in range(int(math.log2(largest // SMALLEST_SET_BYTES)) + 1):
        size = SMALLEST_SET_BYTES << octave
        settings.say(f"a working set of {size >> 10} KiB")
        # Far fewer loads than lines would see only a part of a large set.
        latency = [chase_seconds(memory, size, loads) for _ in range(rounds)]
        rates = [read_rate(memory, size, 200 * loads) for _ in range(rounds)]
        rows.append(_row(_level(size, caches), "memory", size, latency, rates))
    memory.release()
    return rows


def _level(size: int, caches: dict[int, int]) -> str:
    for level, nbytes in caches.items():
        if size <= nbytes * 3 // 4:
            return f"L{level}"
    return "DRAM"


def _page_cache_row(noise: NoiseFile, effort: Effort, rounds: int) -> LadderRow:
    def moving(request: int, random: bool) -> Moving:
        return Moving(
            str(noise.path), "rw", False, random, request, noise.nbytes, effort.transfer_seconds
        )

    move(moving(LARGE_BYTES, random=False))  # the first pass brings the file into the cache
    move(moving(LARGE_BYTES, random=False))
    latency = [move(moving(PAGE_BYTES, random=True)).request_seconds for _ in range(rounds)]
    rates = [move(moving(LARGE_BYTES, random=False)).bytes_per_second for _ in range(rounds)]
    return _row("page cache", str(noise.path.parent.parent), noise.nbytes, latency, rates)


def _disk_row(
    folder: Path, noise: NoiseFile, effort: Effort, transfers: Transfers, rounds: int
) -> LadderRow:
    small = Moving(
        str(noise.path), "direct", False, True, PAGE_BYTES, noise.nbytes, effort.transfer_seconds
    )
    flow = Flow(transfers, effort)
    latency = [move(small).request_seconds for _ in range(rounds)]
    rates = [flow.move(noise, "read", effort.transfer_seconds) for _ in range(rounds)]
    flow.release()
    return _row("disk", str(folder), noise.nbytes, latency, rates)


def _row(rung: str, place: str, size: int, latency: list[float], rates: list[float]) -> LadderRow:
    return LadderRow(
        rung,
        place,
        size,
        min(latency),
        max(rates),
        tuple(latency),
        tuple(rates),
    )


def _findings(rows: list[LadderRow]) -> list[Finding]:
    memory = [row for row in rows if row.place == "memory"]
    deepest, disk = memory[-1], next(row for row in rows if row.rung == "disk")
    ratio = disk.seconds_per_access / deepest.seconds_per_access
    rates = deepest.bytes_per_second / disk.bytes_per_second
    return [
        judged("ladder.latency", ratio, f"{ratio:.0f}, and {rates:.1f} in bandwidth"),
    ]


def draw(outcome: Outcome, figure: Any) -> None:
    """Latency and bandwidth over the size of the working set, both on logarithmic axes."""
    left, right = figure.subplots(1, 2)
    for axes, key, scale, label in (
        (left, "seconds_per_access", 1e9, "nanoseconds for one access"),
        (right, "bytes_per_second", 1e-9, "GB/s"),
    ):
        memory = [row for row in outcome.rows if row["place"] == "memory"]
        axes.plot(
            [row["set_bytes"] for row in memory],
            [row[key] * scale for row in memory],
            label="one core, working set in memory",
            **look(0),
        )
        others = [row for row in outcome.rows if row["place"] != "memory"]
        for number, row in enumerate(others):
            axes.plot(
                [row["set_bytes"]],
                [row[key] * scale],
                linestyle="",
                markersize=9,
                label=row["rung"]
                if row["rung"] != "disk"
                else f"disk at {Path(row['place']).name}",
                **look(1 + number),
            )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        sizes = [SMALLEST_SET_BYTES << place for place in range(0, 20, 4)]
        axes.set_xticks(sizes, [_size(size) for size in sizes])
        axes.set_xlabel("working set or file")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    left.set_title("latency")
    right.set_title("bandwidth")


def _size(nbytes: int) -> str:
    """A power of two in the unit that it is said in."""
    unit = "KMG"[(nbytes.bit_length() - 1) // 10 - 1]
    return f"{nbytes >> 10 * ('KMG'.index(unit) + 1)} {unit}iB"


LADDER = Experiment(
    "ladder", "latency and bandwidth of caches, memory, page cache and every folder", measure, draw
)
