"""A gradient beside those of others in memory, and one of a shot in 3-D on a grid beyond memory.

python tools/gradients.py --record benchmarks/records/gradients.json --python PEERS/bin/python

First what `outgrid bench peers --only gradient` measures: Devito, Deepwave, JAX and we make the
gradient of the same misfit by the same scheme, on a grid that fits memory, in turns. Then the
gradient of one shot is made on a grid of 8 times a memory limit, in a control group of that size,
by each strategy, and again with memory for all of it: the bytes are compared. Then steps forward
and back are timed by the processor, and runs that keep a history beside runs that keep none, with
what the disk takes for as many bytes. Takes 6 GiB of memory, 20 GiB of disk and some minutes;
--only names a part.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import math
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from origin import origin, write_record

import outgrid as og
from outgrid.reversal.task import Task
from outgrid.storage import Planes, SeriesStore
from outgrid.units import parse_bytes
from outgrid_bench.limit import limited
from outgrid_bench.peers.gradients import measure_gradients

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 3
PARTS = "beside", "beyond", "traces", "back", "histories"


def shot(size: int, steps: int, *, layer: bool) -> og.Problem:
    """Waves of one source in a cube, of float32, over a faster layer or without it."""
    middle = size // 2
    c = f"where(z > {middle + 4}, 0.2, 0.12)" if layer else 0.12
    return og.Problem(
        "wave:4",
        (size, size, size),
        "float32",
        steps,
        initial={"u": f"exp(-((z-{middle})**2 + (y-{middle})**2 + (x-{middle})**2) / 6)", "c": c},
        receivers=[og.Receiver("u", (middle - 2, middle, middle + n)) for n in range(-16, 17, 4)],
    )


class Reads:
    """While it is entered, what is read of histories is noted: pieces of a file, in their order."""

    def __enter__(self) -> Reads:
        self.spans: dict[tuple[str, int, int], list[tuple[range, range, int]]] = {}
        self.get, noted = SeriesStore.get, self.spans

        def get(store: SeriesStore, planes: range, rows: range, into: Planes) -> int:
            frame = store._held
            assert frame is not None
            key = str(frame.path), frame._layout.data_offset, id(store)
            nbytes = len(planes) * len(rows) * frame.row_bytes
            noted.setdefault(key, []).append((planes, rows, nbytes))
            return self.get(store, planes, rows, into)

        SeriesStore.get = get  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        SeriesStore.get = self.get  # type: ignore[method-assign]

    def told(self) -> dict[str, Any]:
        """How many frames were read, each from its first plane to its last, in what pieces.

        In strips the planes come again, with rows above those before.
        """
        ordered, sizes = 0, list[int]()
        for pieces in self.spans.values():
            follow = zip(pieces[1:], pieces, strict=False)
            ordered += all(
                here.start == before.stop
                or (here.start < before.start and rows.start > rows_before.start)
                for (here, rows, _), (before, rows_before, _) in follow
            )
            sizes += [nbytes for _, _, nbytes in pieces]
        return {
            "frames": len(self.spans),
            "frames_in_order": ordered,
            "pieces": len(sizes),
            "median_piece_bytes": statistics.median(sizes),
            "least_piece_bytes": min(sizes),
        }


WAYS: dict[str, dict[str, Any]] = {
    "history": {"adjoint": "history"},
    "recompute": {"adjoint": "recompute"},
    "recompute_every_4_float16": {"adjoint": "recompute", "every": 4, "history": "float16"},
}


class Runs:
    """While it is entered, the runs that gradients are made of are noted."""

    def __enter__(self) -> Runs:
        self.made: list[dict[str, Any]] = []
        self.run, noted = Task.run, self.made

        def run(task: Task, problem: og.Problem, name: str) -> og.Result:
            begin = time.perf_counter()
            result = self.run(task, problem, name)
            noted.append({"run": name} | taken(result, time.perf_counter() - begin))
            return result

        Task.run = run  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Task.run = self.run  # type: ignore[method-assign]

    def sum(self, key: str) -> float:
        """Of what all runs took."""
        return sum(run[key] for run in self.made)


def taken(result: og.Result, seconds: float) -> dict[str, Any]:
    """What a run took: seconds in all, in sweeps and before them; bytes that moved, operations."""
    one = result.record.measured
    moved = one.read_bytes + one.written_bytes + one.snapshot_bytes
    return {
        "seconds": seconds,
        "sweep_seconds": one.seconds,
        "fill_seconds": one.fill_seconds,
        "update_processor_seconds": one.compute_processor_seconds,
        "moved_bytes": moved + one.fill_read_bytes + one.fill_written_bytes,
        "operations": one.flops,
    }


def inside(size: int, steps: int, limit: str, out: Path, names: list[str] | None) -> None:
    """The data, a run forward and gradients; print what they took."""
    given = {"memory": limit, "progress": False}
    observed = og.run(shot(size, steps, layer=True), out=out / "data", **given).traces
    shutil.rmtree(out / "data")
    forward: list[dict[str, Any]] = []
    for _ in range(ROUNDS):  # the first one may compile, and is seldom the median
        begin = time.perf_counter()
        made = og.run(shot(size, steps, layer=False), out=out / "forward", **given)
        forward.append(taken(made, time.perf_counter() - begin))
        shutil.rmtree(out / "forward")
    forward.sort(key=lambda one: one["seconds"])
    told: dict[str, Any] = {"forward": forward[ROUNDS // 2]}
    objective, problem = og.LeastSquares(observed), shot(size, steps, layer=False)
    asked = {"wrt": ["c"], "memory": limit}
    plan = og.plan_gradient(problem, objective=objective, out=out / "g", **asked)
    told["planned"] = [str(one) for one in plan.strategies]
    for name, way in WAYS.items() if names is None else ((name, WAYS[name]) for name in names):
        begin = time.perf_counter()
        with Reads() as reads, Runs() as runs:
            g = og.gradient(problem, objective, wrt=["c"], out=out / name, **way, **given)
        seconds = time.perf_counter() - begin
        with (out / name / "c.npy").open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        told[name] = {
            "value": g.value,
            "digest": digest,
            "seconds": seconds,
            "over_forward": seconds / told["forward"]["seconds"],
            "bytes_over_forward": runs.sum("moved_bytes") / told["forward"]["moved_bytes"],
            "operations_over_forward": runs.sum("operations") / told["forward"]["operations"],
            "runs": runs.made,
            "history_reads": reads.told(),
        }
        if "every" not in way:
            np.save(out / "slice.npy", np.array(g["c"][:, size // 2]))
        shutil.rmtree(out / name)
    print(json.dumps(told))


def in_group(command: list[str], limit_bytes: int) -> dict[str, Any]:
    """What a program prints last, as JSON, in a control group of so much memory."""
    with limited(limit_bytes) as group:
        done = group.run(command)
        told = {"group": group.reason, "group_peak_bytes": group.peak_bytes}
    if done.returncode:
        raise SystemExit(f"the gradient ended with {done.returncode}: {done.stderr}")
    return told | json.loads(done.stdout.splitlines()[-1])


def draw(values: np.ndarray, path: Path) -> None:
    """A gradient in the plane through the source: down to the right, along x."""
    from matplotlib import pyplot

    middle, far = len(values) // 2, 40
    near = values[middle - far : middle + far, middle - far : middle + far]
    figure, axes = pyplot.subplots(figsize=(4.6, 3.6), layout="constrained")
    largest = np.quantile(np.abs(near), 0.995)
    shown = axes.imshow(
        near, cmap="RdBu", vmin=-largest, vmax=largest, extent=(-far, far, far, -far)
    )
    axes.axhline(4, color="black", linestyle=":", linewidth=1)
    axes.plot(range(-16, 17, 4), [-2] * 9, "kv", markersize=4)
    axes.plot([0], [0], "k*")
    axes.set(xlabel="x from the source, cells", ylabel="depth below it")
    figure.colorbar(shown, label="gradient by c")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=90)


def beyond(place: Path, size: int, steps: int, limit: str, enough: str) -> dict[str, Any]:
    """The gradient of a shot in a control group, and with memory for all of it."""
    limit_bytes = parse_bytes(limit)
    shared = ["--size", str(size), "--steps", str(steps)]
    program = [sys.executable, str(Path(__file__).resolve()), *shared]
    row: dict[str, Any] = {
        "shape": [size] * 3,
        "dtype": "float32",
        "steps": steps,
        "limit_bytes": limit_bytes,
        "state_over_limit": 3 * 4 * size**3 / limit_bytes,
    }
    # First, so that kernels are compiled: the compiler takes more than the limit.
    command = [*program, "--inside", enough, "--folder", str(place / "memory")]
    command += ["--way", "history", "--way", "recompute_every_4_float16"]
    whole = subprocess.run(command, capture_output=True, text=True, check=True)
    other = json.loads(whole.stdout.splitlines()[-1])
    row |= in_group([*program, "--inside", limit, "--folder", str(place / "beyond")], limit_bytes)
    row["write_bandwidth"] = bandwidth(place / "bandwidth", 1 << 30)
    draw(np.load(place / "beyond" / "slice.npy"), ROOT / "build" / "shot.png")
    rounded = "recompute_every_4_float16"
    exact = [row["history"], row["recompute"], other["history"]]
    alike = [{(one["digest"], one["value"]) for one in exact}]
    alike.append({(one[rounded]["digest"], one[rounded]["value"]) for one in (row, other)})
    same = all(len(one) == 1 for one in alike)
    return row | {"identical": same, "in_memory": other, "load": os.getloadavg()[0]}


def line(steps: int) -> og.Problem:
    """Waves in two dimensions, seen by 4000 receivers."""
    places = [(row, column) for row in range(4, 64, 3) for column in range(50, 250)]
    return og.Problem(
        "wave:4",
        (68, 300),
        "float32",
        steps,
        initial={"u": "exp(-((y-34)**2 + (x-150)**2) / 6)", "c": 0.12},
        receivers=[og.Receiver("u", place) for place in places],
    )


def seen(observed: Path, limit: str, out: Path) -> None:
    """The gradient of a misfit of traces that are in a file; print what it is."""
    begin, misfit = time.perf_counter(), og.LeastSquares(observed)
    steps = np.load(observed, mmap_mode="r").shape[0]
    with Runs() as runs:
        g = og.gradient(
            line(steps), misfit, wrt=["c"], out=out, adjoint="history", memory=limit, progress=False
        )
    told = {"seconds": time.perf_counter() - begin, "runs": len(runs.made), "value": g.value}
    digest = hashlib.sha256(np.array(g["c"]).tobytes()).hexdigest()
    print(json.dumps(told | {"digest": digest}))


def traces(place: Path, steps: int, limit: str, enough: str) -> dict[str, Any]:
    """Traces beyond memory, observed and computed, in a control group; and with memory for them."""
    limit_bytes, observed = parse_bytes(limit), place / "observed.npy"
    shape, rng = (steps, len(line(1).receivers)), np.random.default_rng(0)
    into = np.lib.format.open_memmap(observed, "w+", float, shape)
    for step in range(steps):
        into[step] = 1e-3 * rng.normal(size=shape[1])
    into.flush()
    program = [sys.executable, str(Path(__file__).resolve()), "--observed", str(observed)]
    command = [*program, "--inside", enough, "--folder", str(place / "memory")]
    whole = subprocess.run(command, capture_output=True, text=True, check=True)
    row: dict[str, Any] = {
        "traces_bytes": into.nbytes,
        "limit_bytes": limit_bytes,
        "traces_over_limit": into.nbytes / limit_bytes,
        "in_memory": json.loads(whole.stdout.splitlines()[-1]),
    }
    row |= in_group([*program, "--inside", limit, "--folder", str(place / "beyond")], limit_bytes)
    same = [row[name] == row["in_memory"][name] for name in ("value", "digest")]
    return row | {"identical": all(same), "load": os.getloadavg()[0]}


def back(place: Path, size: int, steps: int) -> dict[str, Any]:
    """Processor seconds of updates forward and back, by one thread, with the disk beside it."""
    row: dict[str, Any] = {"shape": [size] * 3, "dtype": "float32", "steps": steps}
    forward = shot(size, steps, layer=False)
    turned = og.adjoint(forward, wrt=["c"])
    state = np.random.default_rng(0).random((size,) * 3, dtype=np.float32)
    np.save(place / "state.npy", state)
    begun = {name: og.Series(place / "state.npy", 0, 0) for name in turned.states}
    begun |= {field.name: 0.1 for field in turned.stencil.lasting} | {"c": 0.12}
    posed = og.Problem(
        turned.stencil, [size] * 3, "float32", steps, None, turned.boundary, initial=begun
    )
    for name, problem in (("forward", forward), ("back", posed)):
        for depth in (4, steps):
            best = math.inf
            for turn in range(ROUNDS + 2):
                out = place / f"{name}.{depth}.{turn}"
                given = {"threads": 1, "memory": "2GiB", "tier": "direct", "depth": depth}
                measured = og.run(problem, out=out, progress=False, **given).record.measured
                shutil.rmtree(out)
                best = min(best, measured.compute_processor_seconds)
                row[f"{name}_operations"] = measured.flops // measured.updates
            row[f"{name}_seconds_{depth}"] = best
    for depth in (4, steps):
        times = row[f"back_seconds_{depth}"] / row[f"forward_seconds_{depth}"]
        more = row["back_operations"] / row["forward_operations"]
        row |= {f"times_{depth}": times, f"times_by_operation_{depth}": times / more}
    return row | {"load": os.getloadavg()[0]}


def bandwidth(path: Path, nbytes: int) -> float:
    """Bytes per second of direct writes of 4 MiB each, up to what is durable."""
    piece = mmap.mmap(-1, 4 << 20)
    piece.write(os.urandom(4 << 20))
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_DIRECT, 0o600)
    begin = time.perf_counter()
    for at in range(0, nbytes, 4 << 20):
        os.pwrite(file, piece, at)
    os.fsync(file)
    seconds = time.perf_counter() - begin
    os.close(file)
    path.unlink()
    return nbytes / seconds


def histories(place: Path, size: int, steps: int, memory: str) -> dict[str, Any]:
    """Runs that keep a history beside one that keeps none, in turns; medians."""
    row: dict[str, Any] = {"shape": [size] * 3, "steps": steps, "memory": memory}
    kinds = {
        "none": [],
        "every_4_float16": [og.History("u", every=4, dtype="float16")],
        "every_1_float32": [og.History("u")],
    }
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    rates: list[float] = []
    for turn in range(ROUNDS + 3):
        rates.append(bandwidth(place / "bandwidth", 1 << 30))
        for name, kept in kinds.items():
            problem, out = shot(size, steps, layer=False).replace(snapshots=kept), place / name
            begin = time.perf_counter()
            measured = og.run(problem, out=out, memory=memory, progress=False).record.measured
            if turn:  # the first one compiles
                seconds[name].append(time.perf_counter() - begin)
            row[f"{name}_bytes"] = measured.snapshot_bytes
            shutil.rmtree(out)
    rate = statistics.median(rates)
    alone = statistics.median(seconds["none"])
    row |= {"write_bandwidth": rate, "seconds": alone}
    for name in [name for name in kinds if name != "none"]:
        taken = statistics.median(seconds[name])
        row[name] = {
            "seconds": taken,
            "over_none": taken / alone,
            "bytes_over_bandwidth": row[f"{name}_bytes"] / rate,
            "times_of_that": (taken - alone) / (row[f"{name}_bytes"] / rate),
        }
    return row | {"load": os.getloadavg()[0]}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="with the others")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "gradients")
    parser.add_argument("--record", type=Path, help="JSON file for the rows")
    parser.add_argument("--only", choices=PARTS, help="one of the parts")
    parser.add_argument("--size", type=int, default=564, help="cells of the cube along an axis")
    parser.add_argument("--steps", type=int, default=48, help="of the shot in the cube")
    parser.add_argument("--limit", default="256MiB", help="of memory for the cube")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--way", action="append", help=argparse.SUPPRESS)
    parser.add_argument("--observed", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.observed:
        seen(given.observed, given.inside, given.folder / "g")
        return 0
    if given.inside:
        inside(given.size, given.steps, given.inside, given.folder, given.way)
        return 0
    started = datetime.datetime.now(datetime.UTC)
    rows: dict[str, Any] = {}
    if given.record and given.record.exists():
        rows = json.loads(given.record.read_text())
    with tempfile.TemporaryDirectory(dir=given.folder) as place:
        for name in PARTS:
            if given.only not in (None, name):
                continue
            part = Path(place) / name
            part.mkdir()
            if name == "beside":
                made = measure_gradients(given.python, part, lambda _: None, 400, 300)
                row = {"rows": [one.to_dict() for one in made], "load": os.getloadavg()[0]}
            elif name == "beyond":
                row = beyond(part, given.size, given.steps, given.limit, "6GiB")
            elif name == "traces":
                row = traces(part, 4400, "128MiB", "4GiB")
            elif name == "back":
                row = back(part, 192, 16)
            else:
                row = histories(part, 384, 24, "256MiB")
            rows[name] = row | {"origin": origin(started)}
            print(json.dumps({name: row}, indent=2), flush=True)
            if given.record:
                write_record(given.record, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
