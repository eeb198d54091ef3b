"""What results in other formats cost beside plain .npy, in one run that checks the values.

A run leaves a result; the time to make its folder a group of Zarr, or one file, and to export it,
stands beside the time of the run, the median of several. Files that lie in one piece are read in
turns with the `.npy` file. zarr-python reads the result, and a store of the same shard and chunks
that it has written itself, by turns, both from a page cache that was filled by reading. An export
with zstd stands beside a bare loop of the codec over the same chunks on all cores, and beside the
same reads, chunks, codec and files by hand, without this package: durable ones, and ones that are
left to the page cache, which no disk bounds. Ratios are medians of those of
the rounds, in each of which everything is done once. What is many times as large as a limit goes
through all these ways in a control group of that limit, see `outgrid_bench.paths`.
"""

from __future__ import annotations

import importlib
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import outgrid as og
from outgrid.errors import ExecutionError
from outgrid.formats import InputFile, boxes, open_file
from outgrid.parts import leave_file, leave_group, take_apart
from outgrid_bench.paths import measure_paths

COST_BAR = 0.03  # of the seconds of a run
READ_BAR = 0.95  # of the rate of .npy
CODEC_BAR = 0.8  # of what a bare loop of the codec reaches
FIELD = "u"
CHUNK = 64
SLAB_CELLS = 2 << 20
PARTS = ("rates", "paths")
TIMES = 16  # that a field is as large as the limit
ROUNDS, RUNS, ENCODINGS = 9, 3, 5
SYNCED_AT_ONCE = 8
CONTROL = "another .npy"  # what its ratio is below 1 says how much the others may be
DATA_OFFSET = 4096  # of a result

Say = Callable[[str], None]


def measure_formats(
    folder: Path | None,
    say: Say,
    *,
    tiny: bool,
    limit_bytes: int = 256 << 20,
    only: Collection[str] = PARTS,
) -> dict[str, Any]:
    """All figures, JSON-able, or those of some PARTS. Raises ExecutionError where values differ."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        figures: dict[str, Any] = {}
        if "rates" in only:
            figures |= _measure_rates(Path(place), say, tiny=tiny)
        if "paths" in only:
            times = 0.1 if tiny else TIMES
            figures["paths"] = measure_paths(Path(place), limit_bytes, times, say, few=tiny)
        return figures


def _measure_rates(place: Path, say: Say, *, tiny: bool) -> dict[str, Any]:
    shape, steps, rounds = ((32, 128, 128), 2, 1) if tiny else ((256, 512, 512), 32, ROUNDS)
    out = place / "heat.run"
    problem = og.Problem(
        "heat7",
        shape,
        steps=steps,
        dtype="float32",
        parameters={"k": 0.1},
        initial={FIELD: "sin(x/9)*cos(y/7) + sin(z*x)"},
    )

    def run() -> og.Result:
        say("a run")
        return og.run(
            problem, memory="256MiB", tier="direct", out=out, progress=False, overwrite=True
        )

    results = [run() for _ in range(min(rounds, RUNS))]
    result = results[-1]
    measured = [result.record.measured for result in results]
    run_seconds = statistics.median(each.seconds + each.fill_seconds for each in measured)
    nbytes = int(np.prod(shape)) * 4
    figures: dict[str, Any] = {
        "bytes": nbytes,
        "load": os.getloadavg()[0],
        "run_seconds": run_seconds,
        "group_seconds": _median(lambda: leave_group(out, result.record), rounds),
    }
    figures["group_share"] = figures["group_seconds"] / run_seconds
    figures["exports"] = [_exported(result, name, run_seconds, say) for name in ("h5", "vtkhdf")]
    say("one file")
    figures["files"] = [
        _left_in(result, f"heat.{suffix}", rounds, run_seconds) for suffix in ("h5", "vtkhdf", "nc")
    ]
    say("files in one piece are read")
    figures["straight"] = _read_straight(result, place, rounds)
    say("zarr-python reads")
    figures |= _read_by_zarr(result, place, rounds)
    say("an export with zstd")
    figures |= _encoded(result, place, min(rounds, ENCODINGS))
    shutil.rmtree(out)
    return figures


def _in_turns(
    acts: Mapping[str, Callable[[], object]], rounds: int, ready: Callable[[str], object]
) -> dict[str, list[float]]:
    """Seconds of each act in each round, each time another one first, behind a round that warms up.

    `ready(name)` comes before an act and is not timed.
    """
    seconds: dict[str, list[float]] = {name: [] for name in acts}
    for number in range(rounds + 1):
        first = number % len(acts)
        for name in (*acts,)[first:] + (*acts,)[:first]:
            ready(name)
            seconds[name].append(_median(acts[name], 1))
    return {name: times[1:] for name, times in seconds.items()}


def _ratio(reference: list[float], seconds: list[float]) -> float:
    """How many times as fast as a reference something is: the median of the rounds."""
    pairs = zip(reference, seconds, strict=True)
    return statistics.median(one / other for one, other in pairs)


def _left_in(result: og.Result, file: str, rounds: int, run_seconds: float) -> dict[str, Any]:
    """What it costs a run to leave its field in one file, which is then taken apart again."""
    problem, seconds = og.Problem.from_dict(result.record.problem), list[float]()
    for _ in range(rounds):
        begin = time.perf_counter()
        record = leave_file(result.out, result.record, file)
        seconds.append(time.perf_counter() - begin)
        there = np.asarray(og.Result(result.out, record)[FIELD])
        take_apart(result.out, file, f"{FIELD}.npy", problem)
        _check(there, result, result.out / file)
    leave_group(result.out, result.record)
    median = statistics.median(seconds)
    return {"file": file, "seconds": median, "share": median / run_seconds}


def _read_straight(result: og.Result, place: Path, rounds: int) -> dict[str, float]:
    """The rate of `.npy` in bytes per second, and those of other files over it."""
    bare: dict[str, Any] = {"shape": result[FIELD].shape, "dtype": str(result[FIELD].dtype)}
    files = {
        name: InputFile(str(og.export(result, place / f"{number}.npy").path))
        for number, name in enumerate(("npy", CONTROL))
    }
    for suffix in ("raw", "h5", "nc", "tif", "nii"):
        to = og.export(result, place / f"in.{suffix}").path
        files[suffix] = InputFile(str(to), **(bare if suffix == "raw" else {}))
    acts = {name: partial(_read_all, file) for name, file in files.items()}
    seconds = _in_turns(acts, rounds, lambda name: _forget(files[name].file))
    for file in files.values():
        file.file.unlink()
    nbytes = int(np.prod(result[FIELD].shape)) * result[FIELD].dtype.itemsize
    over = {name: _ratio(seconds["npy"], times) for name, times in seconds.items() if name != "npy"}
    return {"npy_bytes_per_second": nbytes / statistics.median(seconds["npy"]), **over}


def _read_all(file: InputFile) -> None:
    """Read all of a file, planes at a time."""
    source = open_file(file)
    for box in boxes([*map(range, source.shape)], source.chunk, SLAB_CELLS):
        source.read(box)
    source.close()


def _forget(path: Path) -> None:
    """Take a file out of the page cache."""
    with path.open("rb") as stored:
        os.fsync(stored.fileno())
        os.posix_fadvise(stored.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _exported(result: og.Result, suffix: str, run_seconds: float, say: Say) -> dict[str, Any]:
    """The second pass that a file in one piece takes."""
    say(f"an export to {suffix}")
    to = result.out.parent / f"{FIELD}.{suffix}"
    exported = og.export(result, to)
    h5py: Any = importlib.import_module("h5py")
    with h5py.File(to) as file:
        _check(file[f"VTKHDF/PointData/{FIELD}" if suffix == "vtkhdf" else FIELD], result, to)
    to.unlink()
    return {"to": suffix, "seconds": exported.seconds, "share": exported.seconds / run_seconds}


def _read_by_zarr(result: og.Result, place: Path, rounds: int) -> dict[str, float]:
    zarr: Any = importlib.import_module("zarr")
    mine = zarr.open(result.out, mode="r")[FIELD]
    _check(mine, result, result.out)
    theirs = zarr.create_array(
        place / "theirs.zarr",
        shape=mine.shape,
        dtype=mine.dtype,
        chunks=mine.chunks,
        shards=mine.shards,
        compressors=None,
    )
    theirs[...] = result[FIELD]
    key = "/".join(("c", *("0" for _ in mine.shape)))
    for path in (result.path(FIELD), place / "theirs.zarr" / key):
        _forget(path)
    slabs = [slice(first, first + 16) for first in range(0, mine.shape[0], 16)]

    def read(array: Any) -> None:
        for slab in slabs:
            array[slab]

    acts = {"mine": partial(read, mine), "theirs": partial(read, theirs)}
    seconds = _in_turns(acts, rounds, lambda _: None)
    shutil.rmtree(place / "theirs.zarr")
    return {
        "zarr_bytes_per_second": mine.nbytes / statistics.median(seconds["mine"]),
        "zarr_over_own": _ratio(seconds["theirs"], seconds["mine"]),
    }


def _encoded(result: og.Result, place: Path, rounds: int) -> dict[str, float]:
    numcodecs: Any = importlib.import_module("numcodecs")
    values = np.asarray(result[FIELD])
    cores = len(os.sched_getaffinity(0))
    corners = product(*(range(0, extent, CHUNK) for extent in values.shape))
    chunks = [
        np.ascontiguousarray(values[tuple(slice(at, at + CHUNK) for at in corner)])
        for corner in corners
    ]

    def encode_bytes(chunk: Any) -> bytes:
        return numcodecs.Zstd(level=1).encode(chunk)

    def encode(chunk: Any) -> int:
        return len(encode_bytes(chunk))

    def loop() -> None:
        with ThreadPoolExecutor(cores) as threads:
            sum(threads.map(encode, chunks))

    to, by_hand = place / "u.zarr", place / "hand"

    def ready(_: str) -> None:
        for folder in (to, by_hand):
            shutil.rmtree(folder, ignore_errors=True)

    acts: dict[str, Callable[[], object]] = {
        "codec": loop,
        "hand": lambda: _encode_by_hand(result, by_hand, encode_bytes, cores),
        "cached": lambda: _encode_by_hand(result, by_hand, encode_bytes, cores, durable=False),
        "export": lambda: og.export(result, to, chunks=CHUNK, codec="zstd:1"),
    }
    seconds = _in_turns(acts, rounds, ready)
    og.export(result, to, chunks=CHUNK, codec="zstd:1", overwrite=True)
    zarr: Any = importlib.import_module("zarr")
    _check(zarr.open(to, mode="r")[FIELD], result, to)
    ready("")
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    return {
        "codec_bytes_per_second": values.nbytes / medians["codec"],
        "hand_bytes_per_second": values.nbytes / medians["hand"],
        "export_bytes_per_second": values.nbytes / medians["export"],
        "export_over_codec": _ratio(seconds["codec"], seconds["export"]),
        "export_over_hand": _ratio(seconds["hand"], seconds["export"]),
        "hand_over_codec": _ratio(seconds["codec"], seconds["hand"]),
        "cached_over_codec": _ratio(seconds["codec"], seconds["cached"]),
    }


def _encode_by_hand(
    result: og.Result,
    folder: Path,
    encode: Callable[[Any], bytes],
    threads: int,
    *,
    durable: bool = True,
) -> None:
    """What an export does, by system calls, NumPy and the codec alone: files of chunks.

    Those that are to be `durable` are synced by other threads while the next ones are made.
    """
    shape, dtype = result[FIELD].shape, result[FIELD].dtype
    folder.mkdir()
    source = os.open(result.path(FIELD), os.O_RDONLY)
    corners = iter([*product(range(0, shape[0], CHUNK), range(0, shape[1], CHUNK))])
    taking, row_bytes = threading.Lock(), shape[2] * dtype.itemsize
    syncing = ThreadPoolExecutor(SYNCED_AT_ONCE)

    def work() -> None:
        box = np.empty((CHUNK, CHUNK, shape[2]), dtype)
        while True:
            with taking:
                corner = next(corners, None)
            if corner is None:
                return
            z, y = corner
            planes = min(CHUNK, shape[0] - z)
            for plane in range(planes):
                at = DATA_OFFSET + ((z + plane) * shape[1] + y) * row_bytes
                os.preadv(source, [box[plane]], at)
            for x in range(0, shape[2], CHUNK):
                path = folder / f"{z}.{y}.{x}"
                with path.open("wb", buffering=0) as file:
                    file.write(encode(np.ascontiguousarray(box[:planes, :, x : x + CHUNK])))
                if durable:
                    syncing.submit(_sync, path)

    with ThreadPoolExecutor(threads) as workers:
        for ended in [workers.submit(work) for _ in range(threads)]:
            ended.result()
    os.close(source)
    syncing.shutdown()


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _median(act: Callable[[], object], rounds: int) -> float:
    seconds: list[float] = []
    for _ in range(rounds):
        begin = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def _check(array: Any, result: og.Result, where: Path) -> None:
    """Raise ExecutionError where the values of a file are not those of the result."""
    for first in range(0, array.shape[0], 16):
        part = slice(first, first + 16)
        if not np.array_equal(array[part], result[FIELD][part]):
            raise ExecutionError(f"{where} does not hold the values of the run")
