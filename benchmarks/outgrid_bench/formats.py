"""What results in other formats cost beside plain .npy, in one run that checks the values.

A run leaves a result; the time to make its folder a group of Zarr, and to export it, stands beside
the time of the run. zarr-python reads the result, and a store of the same shard and chunks that it
has written itself, by turns. An export with zstd stands beside a bare loop of the codec over the
same chunks on all cores. Rates are medians of the rounds.
"""

from __future__ import annotations

import importlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import outgrid as og
from outgrid.errors import ExecutionError
from outgrid.parts import leave_group

COST_BAR = 0.03  # of the seconds of a run
CODEC_BAR = 0.8  # of what a bare loop of the codec reaches
FIELD = "u"
CHUNK = 64

Say = Callable[[str], None]


def measure_formats(folder: Path | None, say: Say, *, tiny: bool) -> dict[str, Any]:
    """All figures, JSON-able. Raises ExecutionError where values differ."""
    shape, steps, rounds = ((32, 128, 128), 2, 1) if tiny else ((256, 512, 512), 32, 5)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        out = Path(place) / "heat.run"
        say("a run")
        problem = og.Problem(
            "heat7",
            shape,
            steps=steps,
            dtype="float32",
            parameters={"k": 0.1},
            initial={FIELD: "sin(x/9)*cos(y/7) + sin(z*x)"},
        )
        begin = time.perf_counter()
        result = og.run(problem, memory="256MiB", tier="direct", out=out, progress=False)
        run_seconds = time.perf_counter() - begin
        nbytes = int(np.prod(shape)) * 4
        figures: dict[str, Any] = {
            "bytes": nbytes,
            "load": os.getloadavg()[0],
            "run_seconds": run_seconds,
            "group_seconds": _median(lambda: leave_group(out, result.record), rounds),
        }
        figures["group_share"] = figures["group_seconds"] / run_seconds
        figures["exports"] = [
            _exported(result, name, run_seconds, say) for name in ("h5", "vtkhdf")
        ]
        say("zarr-python reads")
        figures |= _read_by_zarr(result, Path(place), rounds)
        say("an export with zstd")
        figures |= _encoded(result, Path(place), rounds)
        return figures


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
