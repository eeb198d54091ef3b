"""STREAM beyond memory: copy, scale, add and triad over arrays in swap, in mapped files, or direct.

The loops are those of McCalpin's benchmark, with OpenMP. In memory that is swapped, and in mapped
files, they run over whole arrays; the direct way brings in parts past the page cache while the
parts before them are computed. Every program runs in a process of its own under a real limit of
memory, checks its arrays at the end and prints its times.
"""

from __future__ import annotations

import ctypes
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import ExecutionError
from outgrid.machine import describe_machine
from outgrid.native import Buffer, as_array
from outgrid.storage import DirectStore, Planes, Transfers
from outgrid_bench.experiments.figure import look
from outgrid_bench.experiments.outcome import Experiment, Finding, Outcome, Settings, Timed
from outgrid_bench.limit import limited
from outgrid_bench.openmp import built_with_openmp

__all__ = ["STREAM"]

SOURCE = r"""
#include <cstdint>

// target = first + factor * second, with what an operation of STREAM needs of it.
extern "C" void outgrid_stream(int operation, double* __restrict target,
                               const double* __restrict first, const double* __restrict second,
                               std::int64_t count, double factor, int threads) {
#pragma omp parallel num_threads(threads)
  switch (operation) {
    case 0:
#pragma omp for schedule(static)
      for (std::int64_t i = 0; i < count; ++i) target[i] = first[i];
      break;
    case 1:
#pragma omp for schedule(static)
      for (std::int64_t i = 0; i < count; ++i) target[i] = factor * first[i];
      break;
    case 2:
#pragma omp for schedule(static)
      for (std::int64_t i = 0; i < count; ++i) target[i] = first[i] + second[i];
      break;
    default:
#pragma omp for schedule(static)
      for (std::int64_t i = 0; i < count; ++i) target[i] = first[i] + factor * second[i];
  }
}
"""
FACTOR = 3.0
# (name, target, sources) in terms of arrays a, b, c; bytes per element are 8 times the arrays.
OPERATIONS = (
    ("copy", 2, (0,)),
    ("scale", 1, (2,)),
    ("add", 2, (0, 1)),
    ("triad", 0, (1, 2)),
)
BEGIN = (1.0, 2.0, 0.0)
ARRAYS = 3
ROW = 1 << 15  # elements of a row of a file: 256 KiB
PART_ROWS = 32
SLOTS = 3  # one is read, one is computed, one is written
LEAST_LIMIT_BYTES = 128 << 20
WAYS = ("swap", "mmap", "direct")
PAPER = "bus flash beyond memory, STREAM"


@dataclass(frozen=True, slots=True)
class Task:
    """``rows`` of each array, in ``folder``; ``rounds`` of all four operations."""

    way: str
    folder: str
    rows: int
    threads: int
    rounds: int


@dataclass(frozen=True, slots=True)
class StreamRow:
    """One operation. ``factor`` is the bytes of all arrays over the limit, 0 in memory;
    ``slower`` the time over that in memory with as many threads."""

    operation: str
    way: str
    threads: int
    factor: float
    arrays_bytes: int
    bytes_per_second: float
    slower: float
    agrees: bool
    samples: tuple[float, ...]


def measure(settings: Settings) -> Outcome:
    """In memory, then every way at every factor, on one core and on all."""
    timed = Timed("stream", settings)
    notes: list[str] = []
    with limited(LEAST_LIMIT_BYTES) as tried:
        enforced = tried.enforced
    limit = settings.limit_bytes
    factors = {"tiny": (0.02,), "quick": (0.5, 2.0), "full": (0.5, 1.0, 2.0, 4.0)}[settings.size]
    rounds = settings.by_size(1, 1, 3)
    cores = describe_machine().cores
    rows: list[StreamRow] = []
    for threads in dict.fromkeys((1, cores)):
        settings.say(f"STREAM in memory, threads: {threads}")
        base = _rows(_begin(settings, "swap", limit, 0.3, threads, 3, notes), "memory", 0, {})
        rows += base
        memory = {row.operation: row.bytes_per_second for row in base}
        for factor in factors:
            for way in WAYS:
                if way == "swap" and not settings.with_swap:
                    text = "swap was left out: --with-swap allows a swap file to be made"
                    notes += [] if text in notes else [text]
                    continue
                if timed.left < 0:
                    text = "no time was left for all ways, factors and threads; --full has it"
                    notes += [] if text in notes else [text]
                    continue
                settings.say(f"STREAM by {way}, {factor:g} times the limit, threads: {threads}")
                begun = _begin(settings, way, limit, factor, threads, rounds, notes)
                rows += _rows(begun, way, factor, memory)
    return timed.outcome(
        rows,
        _findings(rows) if enforced else (),
        reference="the same loops over arrays in memory, with as many threads",
        agrees=all(row.agrees for row in rows),
        notes=notes,
    )


def _begin(
    settings: Settings,
    way: str,
    limit: int,
    factor: float,
    threads: int,
    rounds: int,
    notes: list[str],
) -> tuple[Task, dict[str, Any]]:
    """Run one task in a process under the limit; with its times."""
    count = max(PART_ROWS * SLOTS, round(factor * limit / (ARRAYS * ROW * 8)))
    with ExitStack() as stack:
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="outgrid-bench-", dir=settings.folders[0])
        )
        task = Task(way, folder, count, threads, rounds)
        swap = ARRAYS * count * ROW * 8 + (64 << 20) if way == "swap" and factor > 0.4 else 0
        inside = stack.enter_context(limited(limit, swap, Path(folder) if swap else None))
        if inside.reason not in notes:
            notes.append(inside.reason)
        begin = f"from {__name__} import main; main()"
        done = inside.run([sys.executable, "-c", begin, json.dumps(asdict(task))])
        if done.returncode:
            raise ExecutionError(f"STREAM by {way} ended with exit code {done.returncode}")
        return task, json.loads(done.stdout)


def _rows(
    begun: tuple[Task, dict[str, Any]], way: str, factor: float, memory: dict[str, float]
) -> list[StreamRow]:
    task, told = begun
    rows: list[StreamRow] = []
    for name, _, sources in OPERATIONS:
        nbytes = 8 * (1 + len(sources)) * task.rows * ROW
        rates = [nbytes / seconds for seconds in told["seconds"][name]]
        rate = statistics.median(rates)
        rows.append(
            StreamRow(
                name,
                way,
                task.threads,
                factor,
                8 * ARRAYS * task.rows * ROW,
                rate,
                memory.get(name, rate) / rate,
                told["agrees"],
                tuple(rates),
            )
        )
    return rows


@cache
def _library() -> ctypes.CDLL:
    library = built_with_openmp(SOURCE)
    pointer = ctypes.c_void_p
    library.outgrid_stream.argtypes = [
        ctypes.c_int,
        *[pointer] * 3,
        ctypes.c_int64,
        ctypes.c_double,
        ctypes.c_int,
    ]
    return library


def _compute(index: int, target: int, sources: Sequence[int], count: int, threads: int) -> None:
    first, second = sources[0], sources[-1]
    _library().outgrid_stream(index, target, first, second, count, FACTOR, threads)


class _Whole:
    """Arrays that lie in memory or in mapped files as a whole."""

    def __init__(self, task: Task) -> None:
        self.task = task
        shape = (task.rows, ROW)
        if task.way == "mmap":
            self.arrays: list[NDArray[np.float64]] = [
                np.lib.format.open_memmap(Path(task.folder) / name, "w+", np.float64, shape)
                for name in ("a.npy", "b.npy", "c.npy")
            ]
        else:
            nbytes = task.rows * ROW * 8
            # Huge pages would be taken apart on their way to swap.
            self.arrays = [
                as_array(Buffer(nbytes, huge_pages=False), np.float64, count=task.rows * ROW)
                for _ in range(ARRAYS)
            ]
        for array, value in zip(self.arrays, BEGIN, strict=True):
            array[...] = value

    def run(self, index: int) -> None:
        """One operation."""
        _, target, sources = OPERATIONS[index]
        address = [array.ctypes.data for array in self.arrays]
        _compute(
            index,
            address[target],
            [address[source] for source in sources],
            self.task.rows * ROW,
            self.task.threads,
        )

    def range(self, array: int) -> tuple[float, float]:
        """The least and the largest element."""
        return float(self.arrays[array].min()), float(self.arrays[array].max())

    def close(self) -> None:
        """Nothing is open."""


class _Parts:
    """Arrays in files, of which a few parts are in memory."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.transfers = Transfers()
        self.stores = [
            DirectStore.create(
                Path(task.folder) / f"{name}.npy", (task.rows, ROW), "float64", self.transfers
            )
            for name in "abc"
        ]
        self.parts = [
            range(start, min(start + PART_ROWS, task.rows))
            for start in range(0, task.rows, PART_ROWS)
        ]
        shape = (SLOTS, ARRAYS, PART_ROWS, ROW)
        self.memory = as_array(Buffer(8 * int(np.prod(shape))), np.float64).reshape(shape)
        for array, value in enumerate(BEGIN):
            self.memory[0, array] = value
            for part in self.parts:
                self._put(array, part, 0)
                self.transfers.drain()

    def run(self, index: int) -> None:
        """One operation: a part is read, another computed, a third written, all at once."""
        _, target, sources = OPERATIONS[index]
        ended: set[int] = set()
        reads: dict[int, list[int]] = {}
        writes: dict[int, int] = {}

        def wait(tickets: Sequence[int]) -> None:
            while not ended.issuperset(tickets):
                ended.update(done.check().ticket for done in self.transfers.wait())

        def read(number: int) -> None:
            if number < len(self.parts):
                slot = number % SLOTS
                wait([writes[slot]] if slot in writes else [])
                reads[number] = [self._get(source, self.parts[number], slot) for source in sources]

        for number in range(SLOTS - 1):
            read(number)
        for number, part in enumerate(self.parts):
            slot = number % SLOTS
            wait(reads.pop(number))
            address = [self.memory[slot, array].ctypes.data for array in range(ARRAYS)]
            _compute(
                index,
                address[target],
                [address[source] for source in sources],
                len(part) * ROW,
                self.task.threads,
            )
            writes[slot] = self._put(target, part, slot)
            read(number + SLOTS - 1)
        wait(list(writes.values()))

    def range(self, array: int) -> tuple[float, float]:
        """The least and the largest element."""
        least, most = np.inf, -np.inf
        for part in self.parts:
            self._get(array, part, 0)
            self.transfers.drain()
            values = self.memory[0, array, : len(part)]
            least, most = min(least, float(values.min())), max(most, float(values.max()))
        return least, most

    def close(self) -> None:
        """Let go of the files."""
        self.transfers.close()
        for store in self.stores:
            store.close()

    def _planes(self, array: int, part: range, slot: int) -> Planes:
        return Planes.of(self.memory[slot, array, : len(part)])

    def _get(self, array: int, part: range, slot: int) -> int:
        return self.stores[array].get(part, range(1), self._planes(array, part, slot))

    def _put(self, array: int, part: range, slot: int) -> int:
        return self.stores[array].put(part, range(1), self._planes(array, part, slot))


def main() -> None:
    """What a process of `_begin` runs."""
    task = Task(**json.loads(sys.argv[1]))
    arrays = _Parts(task) if task.way == "direct" else _Whole(task)
    seconds: dict[str, list[float]] = {name: [] for name, _, _ in OPERATIONS}
    expected = list(BEGIN)
    for _ in range(task.rounds):
        for index, (name, target, sources) in enumerate(OPERATIONS):
            begin = time.perf_counter()
            arrays.run(index)
            seconds[name].append(time.perf_counter() - begin)
            first, second = expected[sources[0]], expected[sources[-1]]
            results = (first, FACTOR * first, first + second, first + FACTOR * second)
            expected[target] = results[index]
    agrees = all(arrays.range(array) == (value, value) for array, value in enumerate(expected))
    arrays.close()
    sys.stdout.write(json.dumps({"seconds": seconds, "agrees": agrees}))


def _findings(rows: Sequence[StreamRow]) -> list[Finding]:
    cores = max(row.threads for row in rows)
    largest = max(row.factor for row in rows)

    def slower(way: str, threads: int) -> float | None:
        for row in rows:
            if (row.operation, row.way, row.threads, row.factor) == (
                "triad",
                way,
                threads,
                largest,
            ):
                return row.slower
        return None

    swap, mapped, direct = (slower(way, cores) for way in WAYS)
    findings: list[Finding] = []
    if mapped is not None and direct is not None:
        told = f"mmap {mapped:.0f} times, direct {direct:.0f} times"
        if swap is not None:
            told += f", swap {swap:.0f} times"
        findings.append(
            Finding(
                PAPER,
                "beyond memory STREAM by mmap loses less than by swap",
                "swap on PCIe flash 52 times slower at 34 GB on 32 GiB, mmap 24.3 at 110 GB",
                f"triad at {largest:g} times the limit, times slower than in memory: {told}",
                None if swap is None else mapped < swap,
            )
        )
    one = slower("mmap", 1)
    if one is not None and mapped is not None and cores > 1:
        findings.append(
            Finding(
                PAPER,
                "many cores suffer more than one",
                "more with 16 cores",
                f"triad by mmap: one core {one:.0f} times slower than in memory, all {mapped:.0f}",
                mapped > one,
            )
        )
    return findings


def draw(outcome: Outcome, figure: Any) -> None:
    """Triad and copy by way and factor, time over that in memory."""
    operations = [name for name, _, _ in OPERATIONS]
    panels = figure.subplots(1, len(operations), sharey=True)
    for axes, operation in zip(panels, operations, strict=True):
        rows = [r for r in outcome.rows if r["operation"] == operation and r["way"] != "memory"]
        for number, way in enumerate(WAYS):
            for threads, style in zip(
                sorted({row["threads"] for row in rows}), (":", "-"), strict=False
            ):
                mine = [r for r in rows if (r["way"], r["threads"]) == (way, threads)]
                if mine:
                    axes.plot(
                        [row["factor"] for row in mine],
                        [row["slower"] for row in mine],
                        linestyle=style,
                        label=f"{way}, threads: {threads}",
                        **look(number),
                    )
        axes.set_yscale("log")
        axes.set_xscale("log", base=2)
        factors = sorted({row["factor"] for row in rows})
        axes.set_xticks(factors, [f"{factor:g}" for factor in factors])
        axes.set_title(operation)
        axes.set_xlabel("arrays over memory limit")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("time over that in memory")
    panels[0].legend(fontsize="x-small")


STREAM = Experiment(
    "stream", "STREAM over arrays beyond memory, by swap, mmap and direct", measure, draw
)
