"""What results in other formats cost beside plain .npy, in one run that checks the values.

A run leaves a result; the time to make its folder a group of Zarr, or one file, and to export it,
stands beside the time of the run. Files that lie in one piece are read in turns with the `.npy`
file. zarr-python reads the result, and a store of the same shard and chunks that it has written
itself, by turns. An export with zstd stands beside a bare loop of the codec over the same chunks on
all cores. Rates are medians of the rounds. What is many times as large as a limit goes through all
these ways in a control group of that limit, see `outgrid_bench.paths`.
"""

from __future__ import annotations

import importlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
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
    shape, steps, rounds = ((32, 128, 128), 2, 1) if tiny else ((256, 512, 512), 32, 3)
    out = place / "heat.run"
    say("a run")
    problem = og.Problem(
        "heat7",
        shape,
        steps=steps,
        dtype="float32",
        parameters={"k": 0.1},
        initial={FIELD: "sin(x/9)*cos(y/7) + sin(z*x)"},
    )
    result = og.run(problem, memory="256MiB", tier="direct", out=out, progress=False)
    run_seconds = result.record.measured.seconds + result.record.measured.fill_seconds
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
    figures |= _encoded(result, place, rounds)
    shutil.rmtree(out)
    return figures


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
    files = {"npy": InputFile(str(og.export(result, place / "in.npy").path))}
    for suffix in ("raw", "h5", "nc", "tif", "nii"):
        to = og.export(result, place / f"in.{suffix}").path
        files[suffix] = InputFile(str(to), **(bare if suffix == "raw" else {}))
    seconds: dict[str, list[float]] = {name: [] for name in files}
    for number in range(rounds + 1):  # the first one warms up
        for name in (*files,) if number % 2 else (*files,)[::-1]:
            seconds[name].append(_read_seconds(files[name]))
    for file in files.values():
        file.file.unlink()
    medians = {name: statistics.median(times[min(1, rounds) :]) for name, times in seconds.items()}
    nbytes = int(np.prod(result[FIELD].shape)) * result[FIELD].dtype.itemsize
    rates = {name: nbytes / median for name, median in medians.items()}
    over = {name: rate / rates["npy"] for name, rate in rates.items() if name != "npy"}
    return {"npy_bytes_per_second": rates["npy"], **over}


def _read_seconds(file: InputFile) -> float:
    """Seconds to read all of a file, planes at a time, past what is cached."""
    with file.file.open("rb") as stored:
        os.fsync(stored.fileno())
        os.posix_fadvise(stored.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    source = open_file(file)
    begin = time.perf_counter()
    for box in boxes([*map(range, source.shape)], source.chunk, SLAB_CELLS):
        source.read(box)
    seconds = time.perf_counter() - begin
    source.close()
    return seconds


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
    every = {"mine": mine, "theirs": theirs}
    slabs = [slice(first, first + 16) for first in range(0, mine.shape[0], 16)]
    seconds: dict[str, list[float]] = {name: [] for name in every}
    for number in range(rounds + 1):  # the first one warms up
        for name in (*every,) if number % 2 else (*every,)[::-1]:
            begin = time.perf_counter()
            for slab in slabs:
                every[name][slab]
            seconds[name].append(time.perf_counter() - begin)
    shutil.rmtree(place / "theirs.zarr")
    rates = {name: mine.nbytes / statistics.median(times[1:]) for name, times in seconds.items()}
    return {
        "zarr_bytes_per_second": rates["mine"],
        "zarr_over_own": rates["mine"] / rates["theirs"],
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

    def encode(chunk: Any) -> int:
        return len(numcodecs.Zstd(level=1).encode(chunk))

    def loop() -> None:
        with ThreadPoolExecutor(cores) as threads:
            sum(threads.map(encode, chunks))

    to = place / "u.zarr"
    bare, exported = list[float](), list[float]()
    for _ in range(rounds + 1):
        bare.append(_median(loop, 1))
        shutil.rmtree(to, ignore_errors=True)
        written = og.export(result, to, chunks=CHUNK, codec="zstd:1")
        exported.append(written.seconds)
    zarr: Any = importlib.import_module("zarr")
    _check(zarr.open(to, mode="r")[FIELD], result, to)
    seconds = statistics.median(bare[1:]), statistics.median(exported[1:])
    return {
        "codec_bytes_per_second": values.nbytes / seconds[0],
        "export_bytes_per_second": values.nbytes / seconds[1],
        "export_over_codec": seconds[0] / seconds[1],
    }


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
