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
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import ExecutionError
from outgrid.machine import describe_machine
from outgrid.native import Buffer, as_array
from outgrid.storage import DirectStore, Planes, Transfers
from outgrid_bench.experiments.figure import look
from outgrid_bench.experiments.outcome import Experiment, Finding, Outcome, Settings, Timed, judged
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
MEMORY = "memory"  # beside them
NO_DISKS = (
    "one disk: --emulate iodrive2-deep/2 --emulate sata-deep/2 sets swap on both kinds of flash of "
    "the paper beside each other"
)
# Arrays over memory: 34 and 110 GB on 32 GiB, and some that memory holds.
BELOW_FACTOR, SWAP_FACTOR, LARGE_FACTOR = 0.5, 1.0, 3.2
SATA, BUS = "sata", "iodrive2"


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
    """One operation, on a ``disk`` that is emulated, or on the one that is here. ``factor`` is the
    bytes of all arrays over the limit, 0 in memory; ``slower`` the time over that in memory with as
    many threads."""

    operation: str
    way: str
    disk: str
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
    with limited(LEAST_LIMIT_BYTES) as tried:
        enforced = tried.enforced
    factors = {
        "tiny": (0.02,),
        "quick": (SWAP_FACTOR, BELOW_FACTOR, LARGE_FACTOR),
        "full": (SWAP_FACTOR, BELOW_FACTOR, 2.0, LARGE_FACTOR),
    }[settings.size]
    disks = list(zip(settings.labels or ("",), settings.folders, strict=False))
    if not settings.labels:
        timed.note(NO_DISKS)
    rounds = settings.by_size(1, 1, 3)
    cores = describe_machine().cores
    rows: list[StreamRow] = []
    for threads in dict.fromkeys((cores, 1)):  # what the paper prints comes first
        within = f"STREAM in memory, threads: {threads}"
        base = _part(timed, within, disks[0], MEMORY, 0.3, threads, 3, {})
        rows += base
        memory = {row.operation: row.bytes_per_second for row in base}
        for factor in factors:
            for way, (label, folder) in product(WAYS, disks):
                if way == "swap" and factor > SWAP_FACTOR:
                    continue  # hours, as the paper found
                printed = (way, factor, threads) == ("swap", SWAP_FACTOR, cores)
                if label.startswith(SATA) and not printed:
                    continue
                if way == "swap" and not settings.with_swap:
                    timed.note("swap was left out: --with-swap allows a swap file to be made")
                    continue
                where = f"{way} on {label}" if label else way
                told = f"STREAM by {where}, {factor:g} times the limit, threads: {threads}"
                if timed.left < 0 and told not in timed:
                    timed.note("no time was left for all ways, factors and threads; --full has it")
                    continue
                disk = label, folder
                rows += _part(timed, told, disk, way, factor, threads, rounds, memory)
    return timed.outcome(
        rows,
        _findings(rows) if enforced else (),
        reference="the same loops over arrays in memory, with as many threads",
        agrees=all(row.agrees for row in rows),
    )


def _part(
    timed: Timed,
    name: str,
    disk: tuple[str, Path],
    way: str,
    factor: float,
    threads: int,
    rounds: int,
    memory: dict[str, float],
) -> list[StreamRow]:
    """One program, in a folder on a disk with that label."""
    label, folder = disk

    def made() -> list[StreamRow]:
        timed.settings.say(name)
        begun = _begin(timed, folder, way, factor, threads, rounds)
        return _rows(begun, way, 0 if way == MEMORY else factor, memory, label)

    return timed.piece(name, list[StreamRow], made)


def _begin(
    timed: Timed, disk: Path, way: str, factor: float, threads: int, rounds: int
) -> tuple[Task, dict[str, Any]]:
    """Run one task in a process under the limit; with its times."""
    limit = timed.settings.limit_bytes
    count = max(PART_ROWS * SLOTS, round(factor * limit / (ARRAYS * ROW * 8)))
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="outgrid-bench-", dir=disk))
        task = Task(way, folder, count, threads, rounds)
        swap = ARRAYS * count * ROW * 8 + (64 << 20) if way == "swap" and factor > 0.4 else 0
        inside = stack.enter_context(limited(limit, swap, Path(folder) if swap else None))
        timed.note(inside.reason)
        begin = f"from {__name__} import main; main()"
        done = inside.run([sys.executable, "-c", begin, json.dumps(asdict(task))])
        if done.returncode:
            raise ExecutionError(f"STREAM by {way} ended with exit code {done.returncode}")
        return task, json.loads(done.stdout)


def _rows(
    begun: tuple[Task, dict[str, Any]],
    way: str,
    factor: float,
    memory: dict[str, float],
    disk: str = "",
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
                disk,
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

    def slower(way: str, disk: str, factor: float, threads: int) -> float | None:
        """Time of all four operations over that in memory, as the paper has it."""
        every = [
            (row.bytes_per_second, row.slower, row.arrays_bytes)
            for row in rows
            if (row.way, row.factor, row.threads) == (way, factor, threads)
            and (not row.disk or row.disk.startswith(disk))
        ]
        if not every:
            return None
        here = sum(1 / rate for rate, _, _ in every)
        return here / sum(1 / (rate * ratio) for rate, ratio, _ in every)

    def ratio(over: float | None, under: float | None) -> float | None:
        return None if over is None or under is None else over / under

    sata, bus = (slower("swap", disk, SWAP_FACTOR, cores) for disk in (SATA, BUS))
    mapped = slower("mmap", BUS, SWAP_FACTOR, cores)
    large = slower("mmap", BUS, LARGE_FACTOR, cores)
    direct = slower("direct", BUS, LARGE_FACTOR, cores)
    emulated = any(row.disk for row in rows)
    return [
        judged("stream.sata", sata if emulated else None),
        judged("stream.bus", bus if emulated else None),
        judged("stream.second", ratio(sata, bus) if emulated else None),
        judged("stream.below", slower("mmap", BUS, BELOW_FACTOR, cores)),
        judged("stream.above", large),
        judged("stream.mapped", ratio(bus, mapped)),
        judged("stream.cores", ratio(large, slower("mmap", BUS, LARGE_FACTOR, 1))),
        judged("stream.ours", ratio(large, direct)),
    ]


def draw(outcome: Outcome, figure: Any) -> None:
    """Triad and copy by way and factor, time over that in memory."""
    operations = [name for name, _, _ in OPERATIONS]
    panels = figure.subplots(1, len(operations), sharey=True)
    for axes, operation in zip(panels, operations, strict=True):
        rows = [r for r in outcome.rows if r["operation"] == operation and r["way"] != "memory"]
        ways = dict.fromkeys((row["way"], row["disk"]) for row in rows)
        for number, (way, disk) in enumerate(ways):
            for threads, style in zip(
                sorted({row["threads"] for row in rows}), (":", "-"), strict=False
            ):
                mine = [
                    r for r in rows if (r["way"], r["disk"], r["threads"]) == (way, disk, threads)
                ]
                mine.sort(key=lambda row: row["factor"])
                if mine:
                    axes.plot(
                        [row["factor"] for row in mine],
                        [row["slower"] for row in mine],
                        linestyle=style,
                        label=f"{way}{' on ' if disk else ''}{disk}, threads: {threads}",
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
