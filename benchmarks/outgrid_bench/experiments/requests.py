"""Every way to move a request: system calls, mapped memory, past the page cache, and our queue.

Methods that go through the page cache are measured on a file that memory holds, and again under a
memory limit of a quarter of the file, in a control group, where one may be made. fio, where it is
installed, makes some of the same requests in the same run.

Where no disks are named and disks can be emulated, the files of several paths lie on 16 mSATA
disks, which one of the papers measured, each a tenth as fast, so that the processor keeps up with
all of them; and the single file of a full run on an ioDrive2, which another paper measured.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import ExecutionError, StoreError
from outgrid.native import Buffer, File, as_array, engines
from outgrid.probe.effort import Effort
from outgrid.probe.scratch import KINDS, NoiseFile, fill_with_noise, noise_file
from outgrid.storage import Transfers
from outgrid_bench.emulation import Asked, parse_disks, refusal
from outgrid_bench.experiments.emulating import on_disks
from outgrid_bench.experiments.figure import look
from outgrid_bench.experiments.moving import Moved, Moving, bytes_at, command, move
from outgrid_bench.experiments.outcome import (
    Experiment,
    Finding,
    Outcome,
    Settings,
    Timed,
    judged,
)
from outgrid_bench.limit import limited
from outgrid_bench.rawio import fio_rate

__all__ = ["REQUESTS", "Batches"]

KIB, MIB = 1 << 10, 1 << 20
RANDOM_BYTES = tuple(4 * KIB << octave for octave in range(12))  # to 8 MiB
QUICK_BYTES = (4 * KIB, 128 * KIB, 512 * KIB, MIB, 4 * MIB)
SEQUENTIAL_BYTES = MIB
QUEUE_BYTES = (4 * KIB, 64 * KIB, MIB)
DEPTHS = (1, 4, 16, 64)
# What a run of the cluster's paper moves at once, by each thread.
APPLICATION_READ, APPLICATION_WRITE = 12 * MIB, 8 * MIB
TICKET_BYTES = 16 * MIB
TICKET_REQUESTS = 128
PATHS = (1, 2, 4, 8, 16)
SLICES_SECONDS = 0.5  # of an emulated disk, which lets bytes pass every 0.1 s
SLOW_BYTES = 64 * MIB
FILE_DISK, PATH_DISKS = "iodrive2", "msata:16/10"
# Whole files of their own, or one file laid over all paths in stripes, as RAID 0 does.
LAYOUTS = {"raw": 0, "stripes of 64 KiB": 64 * KIB, "stripes of 1 MiB": MIB}
WHOLE = 1 << 62  # a stripe that no file is longer than
LEAST_LIMIT_BYTES = 128 * MIB  # an interpreter and its libraries need as much
FIO_BYTES = (4 * KIB, MIB, 4 * MIB)
FIO_ENGINES = {"rw": "sync", "m_sync": "mmap", "queue": "libaio"}


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One method with one kind of request. ``series`` is "below" or "above" memory, "queue",
    "paths", where ``method`` says how files lie on them, or "application"; ``agrees``
    whether the file holds what was read and what was written; ``samples`` are bytes per second, of
    which the rate is the median."""

    series: str
    method: str
    kind: str
    pattern: str
    request_bytes: int
    queue_depth: int
    paths: int
    bytes_per_second: float
    fio_bytes_per_second: float | None
    agrees: bool
    samples: tuple[float, ...]


def measure(settings: Settings) -> Outcome:
    """Plain methods below and above memory, the queue's engines, sizes and depths, all folders."""
    here = bool(settings.labels) or len(settings.folders) > 1 or settings.size == "tiny"
    reason = None if here else refusal()
    emulate = not here and reason is None
    # Samples of quick runs are no longer than the slices of an emulated disk.
    of_file = [parse_disks(FILE_DISK)] if emulate and settings.size == "full" else []
    with on_disks(settings, of_file) as placed:
        timed = Timed("io", placed)
        if reason is not None:
            timed.note(f"{reason}; the disk that is here")
        asked = [parse_disks(PATH_DISKS)] if emulate else []
        each = [parse_disks(label) for label in settings.labels]
        disks = each or [one for one in asked for _ in range(one.count)]
        return _measure(placed, partial(on_disks, settings, asked), disks, timed)


def _measure(
    settings: Settings,
    paths_on: Callable[[], AbstractContextManager[Settings]],
    path_disks: Sequence[Asked],
    timed: Timed,
) -> Outcome:
    """``paths_on`` gives folders for the files of several paths, on ``path_disks`` if they are
    known."""
    seconds = settings.by_size(1, 6, 100) / 100
    rounds = settings.by_size(1, 2, 3)
    effort = Effort(file_bytes=settings.by_size(8 * MIB, 512 * MIB, 4096 * MIB))
    rows: list[RequestRow] = []

    def part(name: str, make: Callable[[], list[RequestRow]]) -> None:
        rows.extend(timed.piece(name, list[RequestRow], make))

    def paths() -> list[RequestRow]:
        with paths_on() as placed:
            least = SLICES_SECONDS if placed.labels else 0.0
            return _path_rows(placed, max(seconds, least), rounds, timed.notes)

    with Transfers() as transfers, noise_file(settings.folders[0], effort, transfers) as noise:
        fio = None if settings.size == "tiny" else shutil.which("fio")
        if fio is None:
            timed.note("without fio")
        plain = _Plain(settings, noise, seconds, rounds, fio)
        part("below memory", plain.below)
        part("above memory", lambda: plain.above(timed.notes))
        for engine in engines():
            queue = partial(_queue_rows, timed, engine, noise, seconds, rounds, fio)
            part(f"queue by {engine}", queue)
        part("application", lambda: [_application_row(noise, seconds, rounds)])
    part("paths", paths)
    return timed.outcome(
        rows,
        _findings(rows, settings, path_disks),
        reference="plain system calls and fio on the same file, in the same run",
        agrees=all(row.agrees for row in rows),
        details={"file_bytes": effort.file_bytes},
    )


class _Plain:
    """Requests one after the other by plain means."""

    def __init__(
        self, settings: Settings, noise: NoiseFile, seconds: float, rounds: int, fio: str | None
    ) -> None:
        self.settings, self.noise, self.seconds, self.rounds = settings, noise, seconds, rounds
        self.fio = fio

    def below(self) -> list[RequestRow]:
        """The file in memory, where the method uses memory."""
        self.settings.say("a file that memory holds")
        for _ in range(2):
            move(self._moving("rw", False, False, SEQUENTIAL_BYTES))
        movings = self._movings()
        rounds = [[move(moving) for moving in movings] for _ in range(self.rounds)]
        rows = self._rows("below", movings, rounds)
        _drop_pages(self.noise)
        return rows

    def above(self, notes: list[str]) -> list[RequestRow]:
        """The file four times the memory that its pages may take."""
        limit = max(LEAST_LIMIT_BYTES, self.noise.nbytes // 4)
        self.settings.say(f"the same file under a limit of {limit // MIB} MiB")
        movings = [moving for moving in self._movings() if moving.method != "direct"]
        with limited(limit) as inside:
            if not inside.enforced:
                notes.append(inside.reason)
                return []
            rounds: list[list[Moved]] = []
            for _ in range(self.rounds):
                done = inside.run(command(movings))
                if done.returncode:
                    raise ExecutionError(f"requests under a limit ended with {done.returncode}")
                rounds.append([Moved(**load) for load in json.loads(done.stdout)])
        return self._rows("above", movings, rounds)

    def _movings(self) -> list[Moving]:
        sizes = RANDOM_BYTES if self.settings.size == "full" else QUICK_BYTES
        return [
            self._moving(method, writes, random, request)
            for request, random in [(SEQUENTIAL_BYTES, False), *((n, True) for n in sizes)]
            for method, writes in (
                ("rw", False),
                ("rw", True),
                ("m_sync", False),
                ("m_sync", True),
                ("m_async", False),
                ("m_async", True),
                ("direct", False),
                ("direct", True),
            )
        ]

    def _moving(self, method: str, writes: bool, random: bool, request: int) -> Moving:
        return Moving(
            str(self.noise.path), method, writes, random, request, self.noise.nbytes, self.seconds
        )

    @staticmethod
    def _by_fio(moving: Moving) -> bool:
        """Whether fio makes the same: it takes a second for each."""
        return (
            moving.method in FIO_ENGINES and not moving.writes and moving.request_bytes in FIO_BYTES
        )

    def _rows(
        self, series: str, movings: Sequence[Moving], rounds: Sequence[Sequence[Moved]]
    ) -> list[RequestRow]:
        rows: list[RequestRow] = []
        for index, moving in enumerate(movings):
            rates = [moved[index].bytes_per_second for moved in rounds]
            fio = None
            if self.fio and series == "below" and self._by_fio(moving):
                fio = fio_rate(self.fio, moving, FIO_ENGINES[moving.method], 1, direct=False)
            rows.append(
                RequestRow(
                    series,
                    moving.method,
                    "write" if moving.writes else "read",
                    "random" if moving.random else "sequential",
                    moving.request_bytes,
                    1,
                    1,
                    statistics.median(rates),
                    fio,
                    all(moved[index].agrees for moved in rounds),
                    tuple(rates),
                )
            )
        return rows


def _queue_rows(
    timed: Timed, engine: str, noise: NoiseFile, seconds: float, rounds: int, fio: str | None
) -> list[RequestRow]:
    """An engine of the queue with requests at places of chance, and as many under way."""
    rows: list[RequestRow] = []
    timed.settings.say(f"the queue by {engine}")
    depths = DEPTHS[: timed.settings.by_size(1, len(DEPTHS), len(DEPTHS))]
    for request, depth in product(QUEUE_BYTES, depths):
        try:
            transfers = Transfers(engine, depth=depth, request_bytes=request)
        except StoreError as error:
            timed.note(str(error))
            continue
        with transfers:
            batches = Batches(transfers, [noise], request)
            for kind in KINDS:
                rates = [batches.rate(kind, seconds) for _ in range(rounds)]
                beside = None
                if fio and kind == "read" and engine == engines()[0]:
                    moving = Moving(
                        str(noise.path), "", False, True, request, noise.nbytes, seconds
                    )
                    beside = fio_rate(fio, moving, FIO_ENGINES["queue"], depth, True)
                right = batches.agree()
                rows.append(_row("queue", engine, kind, request, rates, right, depth, fio=beside))
    return rows


def _path_rows(
    settings: Settings, seconds: float, rounds: int, notes: list[str]
) -> list[RequestRow]:
    """Large requests in order from 1, 2, 4 ... paths at once, as separate files and striped."""
    folders = settings.folders
    most = settings.by_size(2, max(4, len(folders)), max(16, len(folders)))
    counts = [count for count in PATHS if count <= most]
    if len(folders) < most:
        notes.append(f"paths: {most} files in {len(folders)} folders, so some share a disk")
    settings.say(f"up to {most} paths, whole and striped")
    # Slow disks take a second for as much, and are filled one after the other.
    most_bytes = SLOW_BYTES if settings.labels else 1024 * MIB
    effort = Effort(file_bytes=settings.by_size(8 * MIB, min(256 * MIB, most_bytes), most_bytes))
    rows: list[RequestRow] = []
    with ExitStack() as stack:
        transfers = stack.enter_context(Transfers())
        noises = [
            stack.enter_context(noise_file(folders[path % len(folders)], effort, transfers))
            for path in range(most)
        ]
        for count in counts:
            samples: dict[tuple[str, str], list[float]] = {}
            agrees: dict[str, bool] = {}
            for turn in range(rounds):
                for layout, stripe in [*LAYOUTS.items()][:: -1 if turn % 2 else 1]:
                    if count == 1 and stripe:
                        continue
                    some = noises[:count]
                    if stripe:
                        whole = File.striped([noise.file for noise in some], stripe)
                        some = [NoiseFile(some[0].path, whole, count * effort.file_bytes)]
                    with Transfers(depth=16 * count) as mine:
                        batches = Batches(mine, some, 2 * MIB, random=False, slots=2 * count)
                        for kind in ("read", "write"):
                            rate = batches.rate(kind, seconds)
                            samples.setdefault((layout, kind), []).append(rate)
                        if turn == rounds - 1:
                            parts = [noise.path for noise in noises[:count]] if stripe else ()
                            agrees[layout] = batches.agree(parts, stripe or WHOLE)
            rows += [
                _row("paths", layout, kind, 2 * MIB, rates, agrees[layout], 16, count)
                for (layout, kind), rates in samples.items()
            ]
    return rows


def _application_row(noise: NoiseFile, seconds: float, rounds: int) -> RequestRow:
    """Reads of 12 MiB and writes of 8 MiB in turns, as a run of blocks makes them."""
    with Transfers() as transfers:
        most = noise.nbytes // 4
        reads = Batches(transfers, [noise], min(APPLICATION_READ, most), random=False)
        writes = Batches(transfers, [noise], min(APPLICATION_WRITE, most), random=False)
        rates: list[float] = []
        for _ in range(rounds):
            pair = (reads.rate("read", seconds / 2), writes.rate("write", seconds / 2))
            rates.append(2 / sum(1 / rate for rate in pair))
        right = reads.agree() and writes.agree()
        engine = transfers.engine
    return _row("application", engine, "mixed", APPLICATION_READ, rates, right, 16)


def _row(
    series: str,
    method: str,
    kind: str,
    request: int,
    rates: Sequence[float],
    agrees: bool,
    depth: int,
    paths: int = 1,
    *,
    fio: float | None = None,
) -> RequestRow:
    """A row of the queue's: at places of chance, or in order beyond the series "queue"."""
    return RequestRow(
        series,
        method,
        kind,
        "random" if series == "queue" else "sequential",
        request,
        depth,
        paths,
        statistics.median(rates),
        fio,
        agrees,
        tuple(rates),
    )


class Batches:
    """Tickets of many requests, two of them under way, so that the queue is never empty."""

    def __init__(
        self,
        transfers: Transfers,
        noises: Sequence[NoiseFile],
        request_bytes: int,
        random: bool = True,
        slots: int | None = None,
    ) -> None:
        self._transfers, self._noises, self._request = transfers, noises, request_bytes
        self._random = np.random.default_rng(7) if random else None
        places = min(noise.nbytes for noise in noises) // request_bytes
        self._places = places
        size = max(1, min(TICKET_REQUESTS, TICKET_BYTES // request_bytes, places // 2))
        self._size = size
        self._slots = slots or 2 * len(noises)
        self._memory = Buffer(self._slots * size * request_bytes)
        fill_with_noise(self._memory)
        self._turn = 0

    def rate(self, kind: str, seconds: float) -> float:
        """Bytes per second of reading, writing, or both in turns ("mixed") for about so long."""
        begin, moved = time.perf_counter(), 0
        free = list(range(self._slots))
        under_way: dict[int, int] = {}
        while True:
            while free and (not moved or time.perf_counter() < begin + seconds):
                slot = free.pop(0)
                under_way[self._start(kind, slot)] = slot
            if not under_way:
                return moved / (time.perf_counter() - begin)
            for completion in self._transfers.wait():
                moved += completion.check().nbytes
                free.append(under_way.pop(completion.ticket))

    def agree(self, parts: Sequence[Path] = (), stripe: int = WHOLE) -> bool:
        """Whether a ticket that is written is what the next one reads, and lies in the file, or in
        ``parts`` in stripes."""
        count, right = len(self._noises), True
        for number, noise in enumerate(self._noises):
            places = self._next_places()
            for kind, slot in (("write", number), ("read", number + count)):
                self._move(kind, slot, places)
                for completion in self._transfers.drain():
                    completion.check()
            memory = as_array(self._memory, np.uint8).reshape(self._slots, self._size, -1)
            written, read = (memory[slot, : len(places)] for slot in (number, number + count))
            right &= np.array_equal(written, read)
            for place, request in zip(places, written, strict=True):
                content = _plainly(
                    parts or [noise.path], stripe, place * self._request, request.size
                )
                right &= content == request.tobytes()
        return right

    def _start(self, kind: str, slot: int) -> int:
        if kind == "mixed":
            kind = "write" if self._turn % 2 else "read"
        return self._move(kind, slot, self._next_places())

    def _next_places(self) -> NDArray[np.int64]:
        self._turn += 1
        if self._random is None:
            first = (self._turn - 1) * self._size % (self._places - self._size + 1)
            return np.arange(first, first + self._size)
        # Sorted, as the queue takes them: still one request here and one there.
        return np.unique(self._random.integers(0, self._places, self._size))

    def _move(self, kind: str, slot: int, places: NDArray[np.int64]) -> int:
        noise = self._noises[slot % len(self._noises)]
        segments = np.empty((len(places), 3), np.int64)
        segments[:, 0] = places * self._request
        segments[:, 1] = (
            self._memory.address + (slot * self._size + np.arange(len(places))) * self._request
        )
        segments[:, 2] = self._request
        start = self._transfers.write if kind == "write" else self._transfers.read
        return start(noise.file, segments, self._memory)


def _plainly(parts: Sequence[Path], stripe: int, offset: int, nbytes: int) -> bytes:
    """Bytes of a file that lies in stripes over ``parts``, by plain system calls."""
    content = b""
    for place in range(offset - offset % stripe, offset + nbytes, stripe):
        begin, end = max(place, offset), min(place + stripe, offset + nbytes)
        row, part = divmod(place // stripe, len(parts))
        content += bytes_at(parts[part], row * stripe + begin - place, end - begin)
    return content


def _drop_pages(noise: NoiseFile) -> None:
    with open(noise.path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _findings(
    rows: Sequence[RequestRow], settings: Settings, path_disks: Sequence[Asked]
) -> list[Finding]:
    def rate(series: str, method: str, kind: str, pattern: str, request: int) -> float | None:
        for row in rows:
            if (row.series, row.method, row.kind, row.pattern, row.request_bytes) == (
                series,
                method,
                kind,
                pattern,
                request,
            ):
                return row.bytes_per_second / MIB
        return None

    def over(
        above: tuple[str, str, str, str, int], below: tuple[str, str, str, str, int]
    ) -> float | None:
        more, less = rate(*above), rate(*below)
        return None if more is None or less is None else more / less

    def best(method: str) -> float | None:
        rates = [rate("below", method, "write", "random", size) for size in RANDOM_BYTES]
        known = [value for value in rates if value is not None]
        return max(known, default=None)

    later, sync = best("m_async"), best("m_sync")
    every = [rate("above", "m_sync", "read", "random", size) for size in RANDOM_BYTES[:-1]]
    mapped = [value for value in every if value is not None]
    device = [
        value
        for size in RANDOM_BYTES
        if (value := rate("below", "direct", "read", "random", size)) is not None
    ]
    read = rate("below", "m_sync", "read", "random", 512 * KIB)
    values = {
        "async.write": None if later is None or sync is None else later / sync,
        "async.read": over(
            ("below", "m_async", "read", "random", 512 * KIB),
            ("below", "m_sync", "read", "random", 512 * KIB),
        ),
        "mapped.read": None if read is None or not device else read / max(device),
        "beyond.random": over(
            ("above", "m_sync", "read", "random", 4 * MIB),
            ("above", "rw", "read", "random", 4 * MIB),
        ),
        "beyond.flat": max(mapped) / min(mapped) if mapped else None,
        "beyond.order": over(
            ("above", "m_sync", "read", "sequential", MIB),
            ("above", "m_sync", "read", "random", MIB),
        ),
        "beyond.async": over(
            ("above", "m_async", "write", "sequential", MIB),
            ("above", "m_sync", "write", "sequential", MIB),
        ),
    }
    return [
        *(judged(key, value) for key, value in values.items()),
        *_path_findings(rows, settings, path_disks),
    ]


def _path_findings(
    rows: Sequence[RequestRow], settings: Settings, disks: Sequence[Asked]
) -> list[Finding]:
    """Striping against separate paths, scaling, and what a GB/s costs."""
    reads = {
        (row.method, row.paths): row.bytes_per_second / 1e9
        for row in rows
        if row.series == "paths" and row.kind == "read"
    }
    most = max(paths for _, paths in reads)
    best = max(reads.values())
    spent = ((settings.price, "costs", ""), (settings.watts, "takes", " W"))
    told = [f"{verb} {value / best:.3g}{unit}" for value, verb, unit in spent if value is not None]
    slides = "flash to GPU"
    return [
        *_shares_of_rated(rows, disks, most),
        Finding(
            f"{slides}, hardware",
            "many cheap disks give bandwidth for little money and power",
            "16 of 260-300 USD and 0.2 W for 7.69 GB/s: about 580 USD and 0.4 W for a GB/s",
            f"a GB/s {' and '.join(told)}"
            if told
            else f"{best:.2f} GB/s; --price and --watts tell the rest",
            None,
        ),
    ]


def _shares_of_rated(
    rows: Sequence[RequestRow], disks: Sequence[Asked], most: int
) -> list[Finding]:
    """All disks at once over what they are rated at, where that is known and each path has one."""
    keys = (
        "read.scaling",
        "read.raw",
        "read.stripes",
        "read.small",
        "write.stripes",
        "write.best",
    )
    if len(disks) != most or most < PATHS[-1]:
        return [judged(key, None) for key in keys]
    rates = {
        (row.method, row.kind): row.bytes_per_second
        for row in rows
        if row.series == "paths" and row.paths == most
    }
    read = sum(one.disk.read_bytes for one in disks)
    write = sum(one.disk.write_bytes for one in disks)
    raw, small, large = LAYOUTS
    alone = next(
        row.bytes_per_second
        for row in rows
        if (row.series, row.kind, row.paths) == ("paths", "read", 1)
    )
    values = (
        rates[raw, "read"] / alone,
        rates[raw, "read"] / read,
        rates[large, "read"] / read,
        rates[raw, "read"] / rates[small, "read"],
        rates[large, "write"] / write,
        rates[large, "write"] / rates[raw, "write"],
    )
    return [judged(key, value) for key, value in zip(keys, values, strict=True)]


def draw(outcome: Outcome, figure: Any) -> None:
    """Rate by size of request: below memory, above memory, by the queue's depth; by paths."""
    figure.set_size_inches(14, 7.5)
    axes = figure.subplots(2, 4)
    for line, kind in enumerate(("read", "write")):
        for column, series in enumerate(("below", "above")):
            _draw_sizes(axes[line, column], outcome, series, kind)
        _draw_depths(axes[line, 2], outcome, kind)
        _draw_paths(axes[line, 3], outcome, kind)


def _draw_sizes(axes: Any, outcome: Outcome, series: str, kind: str) -> None:
    rows = [r for r in outcome.rows if (r["series"], r["kind"]) == (series, kind)]
    for number, method in enumerate(("rw", "m_sync", "m_async", "direct")):
        mine = [r for r in rows if r["method"] == method]
        random = [r for r in mine if r["pattern"] == "random"]
        in_order = [r for r in mine if r["pattern"] == "sequential"]
        for some, style, label in ((random, "-", method), (in_order, "", None)):
            axes.plot(
                [r["request_bytes"] / KIB for r in some],
                [r["bytes_per_second"] / MIB for r in some],
                linestyle=style,
                label=label if some else None,
                markersize=5 if style else 11,
                **look(number),
            )
    axes.set_title(f"{kind}, file {series} memory (large: in order)", fontsize="small")
    _size_axes(axes, bool(rows))


def _draw_depths(axes: Any, outcome: Outcome, kind: str) -> None:
    rows = [r for r in outcome.rows if r["series"] == "queue"]
    engines_drawn = list(dict.fromkeys(r["method"] for r in rows))
    shown = [(kind, 16, "-", "16 under way"), (kind, 1, ":", "1 under way")]
    if kind == "write":
        shown.append(("mixed", 16, "--", "16, reads and writes"))
    for which, depth, style, words in shown:
        for number, engine in enumerate(engines_drawn):
            wanted = (engine, which, depth)
            mine = [r for r in rows if (r["method"], r["kind"], r["queue_depth"]) == wanted]
            axes.plot(
                [r["request_bytes"] / KIB for r in mine],
                [r["bytes_per_second"] / MIB for r in mine],
                linestyle=style,
                label=engine if style == "-" else None,
                **look(number),
            )
        axes.plot([], [], color="0.4", linestyle=style, label=words)
    axes.set_title(f"{kind}, the queue of runs, random, direct", fontsize="small")
    _size_axes(axes, bool(rows))


def _draw_paths(axes: Any, outcome: Outcome, kind: str) -> None:
    rows = [r for r in outcome.rows if (r["series"], r["kind"]) == ("paths", kind)]
    for number, layout in enumerate(LAYOUTS):
        mine = [r for r in rows if r["method"] == layout]
        axes.plot(
            [r["paths"] for r in mine],
            [r["bytes_per_second"] / 1e9 for r in mine],
            label=layout,
            **look(number),
        )
    axes.set_title(f"{kind}, several paths, 2 MiB in order", fontsize="small")
    axes.set_xscale("log", base=2)
    counts = sorted({r["paths"] for r in rows})
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_xlabel("paths at once")
    axes.set_ylabel("GB/s")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small")


def _size_axes(axes: Any, drawn: bool) -> None:
    axes.set_xlabel("request, KiB")
    axes.set_ylabel("MiB/s")
    axes.grid(alpha=0.3)
    if drawn:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.legend(fontsize="x-small")
    else:
        axes.text(0.5, 0.5, "not measured here", ha="center", transform=axes.transAxes)


REQUESTS = Experiment(
    "io", "every way to move requests, by size, depth, pattern and folder", measure, draw
)
