"""What results in other formats cost beside plain .npy, in one run that checks the values.

A run leaves a result; the time to make its folder a group of Zarr, or one file, and to export it,
stands beside the time of the run, the median of several. Files that lie in one piece are read in
turns with the `.npy` file. zarr-python reads the result, and two stores of the same shard and
chunks that it has written itself, by turns, all from a page cache that was filled by reading.

Exports with zstd are of fields as runs leave them, smooth ones and noise. Each stands beside a bare
loop of the codec over the same chunks on all cores, as programs call it and with memory that is
there for what it makes, beside the same reads, chunks, codec and writes in a loop by hand, and
beside that loop without the codec, which moves as many bytes: no export is faster than that. So
that it is told what an export costs where a disk is faster, the seconds of processors stand beside
those of the clock. Ratios are medians of those of the rounds, in each of which everything is done
once.

What is many times as large as a limit goes through all these ways in a control group of that limit,
see `outgrid_bench.paths`.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import random
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
from outgrid.formats import Ahead, InputFile, boxes, open_file
from outgrid.formats.codecs import encoder
from outgrid.formats.sink import Codec
from outgrid.native import BLOCK_BYTES, Buffer, File, Queue, as_array
from outgrid.parts import leave_file, leave_group, take_apart
from outgrid.storage import queued
from outgrid_bench.paths import measure_paths

COST_BAR = 0.03  # of the seconds of a run
READ_BAR = 0.95  # of the rate of .npy
CODEC_BAR = 0.8  # of what a bare loop of the codec reaches
FIELD = "u"
CHUNK = 64
SLAB_CELLS = 2 << 20
PARTS = ("rates", "exports", "runs", "paths")
TIMES = 16  # that a field is as large as the limit
ROUNDS, RUNS, ENCODINGS, RUNS_IN_TURNS = 7, 3, 7, 7
PIECE_BYTES = 8 << 20  # that the loop by hand writes together
CONTROL = "another"  # of the same kind: what its ratio is below 1 says how much others may be
DATA_OFFSET = 4096  # of a result
HEAT: dict[str, Any] = {"stencil": "heat7", "parameters": {"k": 0.1}}
ENCODED: dict[str, dict[str, Any]] = {
    "heat": HEAT | {"initial": {FIELD: "sin(x/9)*cos(y/7)*sin(z/11)"}},
    "wave": {  # a pulse that has spread over a part of a medium at rest
        "stencil": "wave:4",
        "initial": {FIELD: "1 + exp(-((x-{0})**2 + (y-{0})**2 + (z-{0})**2)/{0})", "c": 0.2},
    },
    "noise": HEAT | {"initial": {FIELD: "sin(x/9)*cos(y/7) + sin(z*x)"}},
}
STEPS = 64  # of the field that is exported

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
        if "exports" in only:
            figures["encoded"] = {
                name: _measure_export(Path(place), how, say, tiny=tiny)
                for name, how in ENCODED.items()
            }
        if "runs" in only:
            figures["runs"] = _measure_runs(Path(place), say, tiny=tiny)
        if "paths" in only:
            times = 0.1 if tiny else TIMES
            figures["paths"] = measure_paths(Path(place), limit_bytes, times, say, few=tiny)
        return figures


def _measure_rates(place: Path, say: Say, *, tiny: bool) -> dict[str, Any]:
    shape, steps, rounds = ((32, 128, 128), 2, 1) if tiny else ((512, 512, 512), 16, ROUNDS)
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
    figures["straight"] = _read_straight(result, place, 2 * rounds)
    say("zarr-python reads")
    figures |= _read_by_zarr(result, place, rounds)
    shutil.rmtree(out)
    return figures


def _measure_export(place: Path, how: dict[str, Any], say: Say, *, tiny: bool) -> dict[str, Any]:
    """An export with zstd of what a run leaves, beside the codec and the same work by hand."""
    edge, steps, rounds = (64, 2, 1) if tiny else (512, STEPS, ENCODINGS)
    initial = {key: _at(value, edge // 2) for key, value in how["initial"].items()}
    given: dict[str, Any] = how | {"initial": initial}
    problem = og.Problem(shape=(edge,) * 3, dtype="float32", steps=steps, **given)
    say(f"a run of {how['stencil']}")
    out = place / "encoded.run"
    result = og.run(problem, memory="512MiB", tier="direct", out=out, progress=False)
    say("its export with zstd")
    figures = {"load": os.getloadavg()[0], **_encoded(result, place, rounds)}
    shutil.rmtree(out)
    return figures


def _at(value: Any, middle: int) -> Any:
    return value.format(middle) if isinstance(value, str) else value


def _measure_runs(place: Path, say: Say, *, tiny: bool) -> dict[str, Any]:
    """Whole runs of several fields with snapshots, by where the results are left, in turns."""
    shape, rounds = ((16, 64, 64), 1) if tiny else ((256, 512, 512), RUNS_IN_TURNS)
    steps, kept = 16, [og.Snapshot(FIELD, every=4)]

    @og.stencil
    def coupled(u: Any, v: Any, w: Any, *, k: Any) -> Any:
        change = {f: k * og.laplacian(f) for f in (u, v, w)}
        return {u: u + change[u] + k * v, v: v + change[v] - k * u, w: w + change[w] + k * u}

    initial = {FIELD: "sin(x/9)*cos(y/7)", "v": "sin(x/9)", "w": "cos(y/5) + z"}
    given: dict[str, Any] = {"dtype": "float32", "parameters": {"k": 0.01}, "initial": initial}
    problem = og.Problem(coupled, shape, steps=steps, snapshots=kept, **given)
    found: dict[str, dict[str, bytes]] = {}

    def run(name: str) -> None:
        result = og.run(problem, memory="256MiB", tier="direct", out=place / name, progress=False)
        if name not in found:  # the round that warms up
            arrays = {**result, **{f"snapshot.{n}": a for n, a in enumerate(result.snapshots)}}
            found[name] = {key: _digest(array) for key, array in arrays.items()}

    def ready(_: str) -> None:
        for left in place.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        os.sync()

    say("runs of three fields with snapshots")
    files = {suffix: f"run.{suffix}" for suffix in ("h5", "vtkhdf", "nc")}
    names = {"folder": "folder.run", CONTROL: f"{CONTROL}.run", **files}
    acts = {name: partial(run, file) for name, file in names.items()}
    seconds = _in_turns(acts, rounds, ready)
    if any(values != found[names["folder"]] for values in found.values()):
        raise ExecutionError("the runs differ in what they have left")
    ready("")
    return {
        "bytes": 3 * int(np.prod(shape)) * 4,
        "load": os.getloadavg()[0],
        "seconds": statistics.median(seconds["folder"]),
        "over_folder": {
            name: 1 / _ratio(seconds["folder"], times)
            for name, times in seconds.items()
            if name != "folder"
        },
    }


def _digest(array: Any) -> bytes:
    """A number that tells arrays apart, of a file that may be larger than memory."""
    digest = hashlib.blake2b(digest_size=16)
    for plane in array:
        digest.update(np.asarray(plane).tobytes())
    return digest.digest()


def _in_turns(
    acts: Mapping[str, Callable[[], object]], rounds: int, ready: Callable[[str], object]
) -> dict[str, list[float]]:
    """Seconds of each act in each round, in any order, behind a round that warms up.

    So none follows the same one each time. `ready(name)` comes before an act and is not timed.
    """
    seconds: dict[str, list[float]] = {name: [] for name in acts}
    for number in range(rounds + 1):
        for name in random.Random(number).sample([*acts], len(acts)):
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
    """Read all of a file as a run does that begins with it, planes at a time."""
    source = queued(open_file(file))
    every = [*boxes([*map(range, source.shape)], source.chunk, SLAB_CELLS)]
    for box, following in zip(every, (*every[1:], None), strict=True):
        source.read(box)
        if following is not None and isinstance(source, Ahead):
            source.begin(following)
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
    theirs: dict[str, Any] = {}
    for name in ("theirs", CONTROL):
        theirs[name] = zarr.create_array(
            place / f"{name}.zarr",
            shape=mine.shape,
            dtype=mine.dtype,
            chunks=mine.chunks,
            shards=mine.shards,
            compressors=None,
        )
        theirs[name][...] = result[FIELD]
    key = "/".join(("c", *("0" for _ in mine.shape)))
    for path in (result.path(FIELD), *(place / f"{name}.zarr" / key for name in theirs)):
        _forget(path)
    slabs = [slice(first, first + 16) for first in range(0, mine.shape[0], 16)]

    def read(array: Any) -> None:
        for slab in slabs:
            array[slab]

    arrays = {"mine": mine, **theirs}
    acts = {name: partial(read, array) for name, array in arrays.items()}
    seconds = _in_turns(acts, 2 * rounds, lambda _: None)
    for name in theirs:
        shutil.rmtree(place / f"{name}.zarr")
    return {
        "zarr_control": _ratio(seconds["theirs"], seconds[CONTROL]),
        "zarr_bytes_per_second": mine.nbytes / statistics.median(seconds["mine"]),
        "zarr_over_own": _ratio(seconds["theirs"], seconds["mine"]),
    }


def _encoded(result: og.Result, place: Path, rounds: int) -> dict[str, float]:
    numcodecs: Any = importlib.import_module("numcodecs")
    values = np.asarray(result[FIELD])
    corners = product(*(range(0, extent, CHUNK) for extent in values.shape))
    chunks = [
        np.ascontiguousarray(values[tuple(slice(at, at + CHUNK) for at in corner)])
        for corner in corners
    ]
    encode: Callable[[Any], bytes] = numcodecs.Zstd(level=1).encode

    into, own = encoder(Codec("zstd", 1), place), threading.local()

    def size(chunk: Any) -> int:
        return len(encode(chunk))

    def size_there(chunk: Any) -> int:
        if not hasattr(own, "room"):
            own.room = np.empty(2 * chunk.nbytes, np.uint8)
        return into(chunk, own.room)

    def loop(size: Callable[[Any], int]) -> int:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
            return sum(threads.map(size, chunks))

    kept = loop(size) / values.nbytes

    def cut(chunk: Any) -> Any:
        return chunk.reshape(-1).view(np.uint8)[: int(kept * chunk.nbytes)]

    to, by_hand = place / "u.zarr", place / "hand"
    how: dict[str, Any] = {"fields": [FIELD], "chunks": CHUNK, "codec": "zstd:1"}

    def ready(_: str) -> None:
        shutil.rmtree(to, ignore_errors=True)
        by_hand.unlink(missing_ok=True)
        _forget(result.path(FIELD))

    acts: dict[str, Callable[[], object]] = {
        "codec": lambda: loop(size),
        "codec_in_place": lambda: loop(size_there),
        "hand": lambda: _encode_by_hand(result, by_hand, encode),
        "moved": lambda: _encode_by_hand(result, by_hand, cut),
        "export": partial(og.export, result, to, **how),
    }
    spent: dict[str, list[float]] = {name: [] for name in acts}

    def counted(name: str) -> None:
        begin = time.process_time()
        acts[name]()
        spent[name].append(time.process_time() - begin)

    seconds = _in_turns({name: partial(counted, name) for name in acts}, rounds, ready)
    og.export(result, to, **how, overwrite=True)
    zarr: Any = importlib.import_module("zarr")
    _check(zarr.open(to, mode="r")[FIELD], result, to)
    ready("")
    figures = {"encoded_share": kept}
    for name in acts:
        figures[f"{name}_bytes_per_second"] = values.nbytes / statistics.median(seconds[name])
        if name != "codec":
            figures[f"{name}_over_codec"] = _ratio(seconds["codec"], seconds[name])
            work = spent[name][1:]
            figures[f"{name}_over_codec_of_processors"] = _ratio(spent["codec"][1:], work)
    return figures | {"export_over_hand": _ratio(seconds["hand"], seconds["export"])}


def _encode_by_hand(result: og.Result, path: Path, encode: Callable[[Any], Any]) -> None:
    """What an export does in its most plain form: chunks behind one another in one durable file.

    Read by a queue for each thread and written past the page cache, where nothing else is faster.
    """
    shape, dtype = result[FIELD].shape, result[FIELD].dtype
    corners = iter([*product(range(0, shape[0], CHUNK), range(0, shape[1], CHUNK))])
    source, row_bytes = File(result.path(FIELD)), shape[2] * dtype.itemsize
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o666)
    taking, end = threading.Lock(), 0

    def write(piece: Any, used: int) -> None:
        nonlocal end
        blocks = -(-used // BLOCK_BYTES) * BLOCK_BYTES
        with taking:
            at, end = end, end + blocks
        if os.pwrite(target, piece[:blocks], at) < blocks:
            raise ExecutionError(f"{path} took less than was written")

    def work() -> None:
        queue, memory = Queue(), [Buffer(CHUNK * CHUNK * row_bytes), Buffer(PIECE_BYTES)]
        box = as_array(memory[0], dtype).reshape(CHUNK, CHUNK, shape[2])
        piece, used = as_array(memory[1], np.uint8), 0
        while True:
            with taking:
                corner = next(corners, None)
            if corner is None:
                break
            z, y = corner
            planes, rows = min(CHUNK, shape[0] - z), min(CHUNK, shape[1] - y)
            segments = [
                (
                    DATA_OFFSET + ((z + k) * shape[1] + y) * row_bytes,
                    box[k].ctypes.data,
                    rows * row_bytes,
                )
                for k in range(planes)
            ]
            queue.submit_read(source, np.array(segments, np.int64))
            if any(ended.errno for ended in queue.wait()):
                raise ExecutionError(f"{result.path(FIELD)} cannot be read")
            for x in range(0, shape[2], CHUNK):
                chunk = np.ascontiguousarray(box[:planes, :rows, x : x + CHUNK])
                content = np.frombuffer(encode(chunk), np.uint8)
                if used + content.size > PIECE_BYTES:
                    write(piece, used)
                    used = 0
                piece[used : used + content.size] = content
                used += content.size
        write(piece, used)
        queue.close()

    threads = 2 * len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(threads) as workers:
        for ended in [workers.submit(work) for _ in range(threads)]:
            ended.result()
    source.close()
    os.fsync(target)
    os.close(target)


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
