"""A dense matrix times a vector, the matrix streamed from storage: by which way, how much at once.

The matrix is written past the page cache and its pages are dropped before each product, so that all
bytes come from the disk. References in the same run: what the disk gives the queue of runs, and
what BLAS makes of rows that are in memory.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid import device as devices
from outgrid.device import Device
from outgrid.native import Buffer, as_array
from outgrid.parts import (
    SOURCES,
    Event,
    StreamedMatrix,
    Upload,
    generate_cuda,
    lay_out,
    lookup,
)
from outgrid.probe.effort import Effort
from outgrid.probe.scratch import Flow, noise_file
from outgrid.storage import DirectStore, Planes, Transfers
from outgrid_bench.experiments.figure import look
from outgrid_bench.experiments.outcome import Experiment, Finding, Outcome, Settings, Timed, judged

__all__ = ["MATVEC", "Case", "Products"]

COLUMNS = 17_500  # 140 000 bytes a row: the chunks below are whole rows
CHUNKS = (35_000_000, 70_000_000, 140_000_000, 280_000_000, 560_000_000)
SIZES = (280_000_000, 560_000_000, 1_120_000_000)
USUAL_CHUNK = 70_000_000
TIMELINE_CHUNK = 140_000_000
FILES = (1, 2, 4)
DISTINCT_ROWS = 128
TOLERANCE = 1e-9  # of the largest element of the product


@dataclass(frozen=True, slots=True)
class MatvecRow:
    """Products with one way of reading. ``series`` says which of the figure's panels it is for;
    ``samples`` are bytes per second of single products, of which the rate is the median."""

    series: str
    method: str
    matrix_bytes: int
    chunk_bytes: int
    paths: int
    overlap: bool
    bytes_per_second: float
    over_disk: float
    multiply_share: float
    agrees: bool
    samples: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Case:
    series: str
    method: str
    chunk_bytes: int
    overlap: bool
    pinned: bool | None = None  # memory that a GPU is fed from; None: the processor multiplies

    @property
    def name(self) -> str:
        """The method, and what it feeds."""
        if self.pinned is None:
            return self.method
        return f"{self.method}, gpu, {'pinned' if self.pinned else 'pageable'}"


def measure(settings: Settings) -> Outcome:
    """Products by every method, with several chunks, sizes and numbers of files."""
    timed = Timed("matvec", settings)
    scale = settings.by_size(1000, 1, 1)
    columns = COLUMNS // settings.by_size(25, 1, 1)
    sizes = [size // scale for size in SIZES]
    if settings.size == "full":
        sizes += [2 * sizes[-1], max(4 * sizes[-1], 8 * settings.memory_bytes)]
    chunks = [chunk // scale for chunk in CHUNKS]
    usual = USUAL_CHUNK // scale
    rounds = settings.by_size(1, 2, 5)
    disk = timed.piece("the disk alone", float, lambda: _disk_rate(settings))
    bench = Products(settings, timed, columns, disk, rounds)
    gpu = (True, False) if bench.device is not None else ()
    rows: list[MatvecRow] = []
    for size in sizes:
        cases = [Case("size", method, usual, True) for method in SOURCES]
        cases += [Case("size", "direct", usual, True, pinned) for pinned in gpu]
        if size == sizes[2]:
            cases += [
                Case("chunk", method, chunk, overlap)
                for method in SOURCES
                for chunk in chunks
                for overlap in ((True, False) if method == "direct" else (True,))
            ]
            cases += [
                Case("chunk", "direct", chunk, overlap, pinned)
                for chunk in chunks
                for overlap in (True, False)
                for pinned in gpu
            ]
        rows += bench.products(size, 1, cases)
    for files in FILES:
        rows += bench.products(sizes[2], files, [Case("paths", "direct", usual, True)])
    timeline = timed.piece(
        "timeline", dict[str, Any], lambda: bench.timeline(sizes[2], TIMELINE_CHUNK // scale)
    )
    return timed.outcome(
        rows,
        [*_findings(rows, bench.blas, disk), *_gpu_findings(rows)],
        reference=(
            f"the disk gives {disk / 1e9:.2f} GB/s to the queue of runs; BLAS multiplies rows in "
            f"memory at {bench.blas / 1e9:.2f} GB/s"
        ),
        agrees=all(row.agrees for row in rows),
        notes=[f"folders: {len(settings.folders)}; more files than that share a disk"],
        details={"disk": disk, "blas": bench.blas, "timeline": timeline},
    )


class Products:
    """Matrices that are written when they are needed and removed afterwards."""

    def __init__(
        self, settings: Settings, timed: Timed, columns: int, disk: float, rounds: int
    ) -> None:
        self.settings, self.timed, self.columns = settings, timed, columns
        self.disk, self.rounds = disk, rounds
        random = np.random.default_rng(1)
        self.pattern = random.standard_normal((DISTINCT_ROWS, columns))
        self.vector = random.standard_normal(columns)
        self.blas = timed.piece("BLAS alone", float, self._blas_rate)
        self.device: Device | None = None
        if settings.device == "gpu":  # before anything is written
            source = generate_cuda(lookup("heat7").trace(3), "float64")
            self.device = devices.open_device("gpu", source)

    def products(
        self, nbytes: int, files: int, cases: Sequence[Case], stripe: int = 0
    ) -> list[MatvecRow]:
        """Each case several times, in turns; of one matrix in stripes over as many files."""
        name = f"matrix of {nbytes} bytes, {files} files, stripe {stripe}, {cases[0].series}"
        return self.timed.piece(
            name, list[MatvecRow], lambda: self._products(nbytes, files, cases, stripe)
        )

    def _products(
        self, nbytes: int, files: int, cases: Sequence[Case], stripe: int
    ) -> list[MatvecRow]:
        self.settings.say(f"matrix of {nbytes / 1e6:g} MB, files: {files}")
        with self._matrix(nbytes, files, stripe) as (paths, expected):
            samples: dict[Case, list[float]] = {case: [] for case in cases}
            shares: dict[Case, list[float]] = {case: [] for case in cases}
            agrees = dict.fromkeys(cases, True)
            for turn in self.timed.rounds(self.rounds):
                for case in cases[:: -1 if turn % 2 else 1]:
                    result, seconds, events = self._product(paths, case, stripe)
                    samples[case].append(len(expected) * self.columns * 8 / seconds)
                    shares[case].append(_seconds(events, "multiply") / seconds)
                    error = np.abs(result - expected).max() / np.abs(expected).max()
                    agrees[case] &= bool(error < TOLERANCE)
            return [
                MatvecRow(
                    case.series,
                    case.name,
                    nbytes,
                    case.chunk_bytes,
                    files,
                    case.overlap,
                    statistics.median(rates),
                    statistics.median(rates) / self.disk,
                    statistics.median(shares[case]),
                    agrees[case],
                    tuple(rates),
                )
                for case, rates in samples.items()
            ]

    def timeline(self, nbytes: int, chunk_bytes: int) -> dict[str, Any]:
        """What each stage did when, with and without overlap: (stage, begin, end) in seconds."""
        lines: dict[str, Any] = {}
        with self._matrix(nbytes, 1) as (paths, _):
            for name, overlap in (("one after the other", False), ("overlapped", True)):
                _, _, events = self._product(paths, Case("", "direct", chunk_bytes, overlap))
                begin = min(event.begin for event in events)
                lines[name] = [(e.stage, e.begin - begin, e.end - begin) for e in events]
        return lines

    def _product(
        self, paths: Sequence[Path], case: Case, stripe: int = 0
    ) -> tuple[NDArray[Any], float, list[Event]]:
        events: list[Event] = []
        for path in paths:
            _drop_pages(path)
        onto = None
        if self.device is not None and case.pinned is not None:
            onto = Upload(self.device, pinned=case.pinned)
        matrix = StreamedMatrix(
            paths,
            # Two chunks of each file and no room to keep one: every byte is read.
            (2 if onto is None else 4) * len(paths) * (case.chunk_bytes + (8 << 20)),
            method=case.method,
            chunk_bytes=case.chunk_bytes,
            overlap=case.overlap,
            stripe_bytes=stripe,
            onto=onto,
            events=events,
        )
        begin = time.perf_counter()
        result = matrix.matmat(self.vector)
        seconds = time.perf_counter() - begin
        if onto is not None:
            onto.release()
        return result, seconds, events

    @contextmanager
    def _matrix(
        self, nbytes: int, files: int, stripe: int = 0
    ) -> Generator[tuple[list[Path], NDArray[np.float64]]]:
        """Files of the matrix, spread over the folders, and its product with the vector.

        Row i is row i modulo the pattern's, times 1 + i / rows: no two rows are alike.
        """
        rows = max(files, nbytes // (8 * self.columns))
        factors = 1 + np.arange(rows) / rows
        expected = factors * (self.pattern @ self.vector)[np.arange(rows) % DISTINCT_ROWS]
        places = [
            Path(tempfile.mkdtemp(prefix="outgrid-bench-", dir=folder))
            for folder in self.settings.folders
        ]
        paths: list[Path] = []
        try:
            if stripe:
                whole = places[0] / "whole.npy"
                paths.append(whole)
                self._write(whole, np.arange(rows), factors)
                parts = [places[n % len(places)] / f"part-{n}" for n in range(files)]
                paths += parts
                lay_out(whole, parts, stripe)
                yield parts, expected
                return
            for part in np.array_split(np.arange(rows), files):
                paths.append(places[len(paths) % len(places)] / f"part-{len(paths)}.npy")
                self._write(paths[-1], part, factors)
            yield paths, expected
        finally:
            for path in paths:
                path.unlink(missing_ok=True)
            for place in places:
                place.rmdir()

    def _write(self, path: Path, rows: NDArray[np.intp], factors: NDArray[np.float64]) -> None:
        with Transfers() as transfers:
            shape = (len(rows), self.columns)
            store = DirectStore.create(path, shape, "float64", transfers)
            memory = Buffer(DISTINCT_ROWS * self.columns * 8)
            strip = as_array(memory, np.float64).reshape(DISTINCT_ROWS, self.columns)
            for start in range(0, len(rows), DISTINCT_ROWS):
                part = rows[start : start + DISTINCT_ROWS]
                np.multiply(
                    self.pattern[part % DISTINCT_ROWS],
                    factors[part, None],
                    out=strip[: len(part)],
                )
                planes = range(start, start + len(part))
                store.put(planes, range(1), Planes.of(strip[: len(part)]))
                transfers.drain()
            store.flush()
            transfers.drain()
            store.close()

    def _blas_rate(self) -> float:
        block = np.tile(self.pattern, (8, 1))
        rates: list[float] = []
        for _ in range(5):
            begin = time.perf_counter()
            np.matmul(block, self.vector)
            rates.append(block.nbytes / (time.perf_counter() - begin))
        return statistics.median(rates)


def _drop_pages(path: Path) -> None:
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _disk_rate(settings: Settings) -> float:
    effort = Effort(
        file_bytes=settings.by_size(4 << 20, 512 << 20, 2 << 30),
        transfer_seconds=settings.by_size(1, 50, 200) / 100,
    )
    with Transfers() as transfers, noise_file(settings.folders[0], effort, transfers) as noise:
        flow = Flow(transfers, effort)
        rates = [flow.move(noise, "read", effort.transfer_seconds) for _ in range(3)]
        flow.release()
    return statistics.median(rates)


def _seconds(events: Sequence[Event], stage: str) -> float:
    return sum(event.end - event.begin for event in events if event.stage == stage)


def _findings(rows: Sequence[MatvecRow], blas: float, disk: float) -> list[Finding]:
    sizes = sorted({row.matrix_bytes for row in rows})

    def rate(series: str, **wanted: Any) -> float:
        return next(
            row.bytes_per_second
            for row in rows
            if row.series == series and all(getattr(row, k) == v for k, v in wanted.items())
        )

    large = rate("size", method="mmap", matrix_bytes=sizes[-1])
    large /= rate("size", method="pread", matrix_bytes=sizes[-1])
    small = rate("size", method="mmap", matrix_bytes=sizes[0])
    small /= rate("size", method="pread", matrix_bytes=sizes[0])
    chunked = [row for row in rows if row.series == "chunk" and row.overlap]
    chunks = sorted({row.chunk_bytes for row in chunked})
    by_chunk = {row.chunk_bytes: row.bytes_per_second for row in chunked if row.method == "direct"}
    gains = [
        rate("chunk", method="direct", chunk_bytes=chunk, overlap=True)
        / rate("chunk", method="direct", chunk_bytes=chunk, overlap=False)
        for chunk in chunks
    ]
    return [
        judged("mmap.large", large),
        judged("mmap.small", small),
        judged("chunk.best", max(by_chunk[chunk] for chunk in chunks[:2]) / max(by_chunk.values())),
        judged("matvec.overlap", max(gains) / (1 + disk / blas)),
    ]


def _gpu_findings(rows: Sequence[MatvecRow]) -> list[Finding]:
    """What a GPU changes: pinned memory, and whether it pays."""
    chunked = [row for row in rows if row.series == "chunk" and row.overlap]

    def rates(method: str) -> dict[int, float]:
        return {r.chunk_bytes: r.bytes_per_second for r in chunked if r.method == method}

    here, pinned, pageable = (
        rates(f"direct{where}") for where in ("", ", gpu, pinned", ", gpu, pageable")
    )
    if not pinned:
        return [judged(key, None, "no GPU") for key in ("pinned", "gpu.slower", "gpu.share")]
    shares = [row.multiply_share for row in chunked if row.method.endswith("pinned")]
    return [
        judged("pinned", max(pinned[chunk] / pageable[chunk] for chunk in pinned)),
        judged("gpu.slower", max(here.values()) / max(pinned.values())),
        judged("gpu.share", min(shares)),
    ]


def draw(outcome: Outcome, figure: Any) -> None:
    """Rates by chunk, by size and by files, and the timeline."""
    grid = figure.subplots(2, 2)
    disk = outcome.details["disk"] / 1e9
    for axes, series, key, scale, label in (
        (grid[0, 0], "chunk", "chunk_bytes", 1e6, "chunk, MB"),
        (grid[0, 1], "size", "matrix_bytes", 1e9, "matrix, GB"),
        (grid[1, 0], "paths", "paths", 1, "files read at once"),
    ):
        rows = [row for row in outcome.rows if row["series"] == series]
        for number, method in enumerate(dict.fromkeys(row["method"] for row in rows)):
            for overlap, style in ((True, "-"), (False, ":")):
                mine = [r for r in rows if r["method"] == method and r["overlap"] == overlap]
                if not mine:
                    continue
                name = method if overlap else f"{method}, no overlap"
                axes.plot(
                    [row[key] / scale for row in mine],
                    [row["bytes_per_second"] / 1e9 for row in mine],
                    linestyle=style,
                    label=name,
                    **look(number),
                )
        axes.axhline(disk, color="0.4", linewidth=1, linestyle=":", label="disk alone")
        axes.set_xscale("log", base=2)
        values = sorted({row[key] / scale for row in rows})
        axes.set_xticks(values, [f"{value:.3g}" for value in values])
        axes.set_ylim(0, 1.5 * axes.get_ylim()[1])  # room for the legend above the lines
        axes.set_xlabel(label)
        axes.set_ylabel("GB/s of the matrix")
        axes.legend(fontsize="x-small", ncols=2, loc="upper left")
    grid[0, 0].set_title("by chunk")
    grid[0, 1].set_title("by size of the matrix")
    grid[1, 0].set_title("by files on the folders given")
    _draw_timeline(grid[1, 1], outcome.details["timeline"])


def _draw_timeline(axes: Any, timeline: dict[str, Any]) -> None:
    names: list[str] = []
    for name, events in timeline.items():
        for row, stage in enumerate(("read", "multiply")):
            bars = [(begin, end - begin) for kind, begin, end in events if kind == stage]
            axes.broken_barh(bars, (-(len(names)), 0.8), color=f"C{row}", edgecolor="white")
            names.append(f"{stage}\n{name}" if row == 0 else stage)
    axes.set_yticks([0.4 - index for index in range(len(names))], names, fontsize="x-small")
    axes.set_xlabel("seconds")
    axes.set_title("timeline, direct reading")


MATVEC = Experiment(
    "matvec",
    "a dense matrix times a vector, streamed from storage: methods, chunks, files, overlap",
    measure,
    draw,
)
