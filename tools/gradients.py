"""A gradient beside Devito's in memory, and one of a shot in 3-D on a grid beyond memory.

python tools/gradients.py --record benchmarks/records/gradients.json --python DEVITO/bin/python

First Devito and we make the gradient of the same misfit by the same scheme, on a grid that fits
memory, in turns; without Devito the record says so. Then the gradient of one shot is made on a grid
of 8 times a memory limit, in a control group of that size, and again with memory for all of it: the
bytes are compared. Takes 4 GiB of memory, 12 GiB of disk and some minutes; --only names a part.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
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
from outgrid.units import parse_bytes
from outgrid_bench.limit import limited

ROOT = Path(__file__).resolve().parent.parent
DEVITO = ROOT / "benchmarks" / "outgrid_bench" / "peers" / "by_devito_gradient.py"
FIND = "import importlib.util as u, sys; sys.exit(u.find_spec('devito') is None)"
ROUNDS = 3


def pulse(steps: int) -> list[float]:
    """A wavelet of Ricker."""
    t = np.arange(steps) - 15.0
    return ((1 - (t / 5) ** 2) * np.exp(-((t / 5) ** 2) / 2)).tolist()


def beside(place: Path, python: Path, size: int, steps: int) -> dict[str, Any]:
    """Devito and we, in turns; medians of seconds of whole gradients, kernels compiled before."""
    row: dict[str, Any] = {"shape": [size, size], "dtype": "float64", "steps": steps}
    if subprocess.run([python, "-c", FIND], check=False).returncode:
        return row | {"note": f"Devito is not installed; {python} -m pip install devito"}
    edge = np.zeros((size, size))
    edge[2:-2, 2:-2] = 1.0
    y, x = np.indices((size, size))
    start = 0.16 * edge
    truth = np.where(np.hypot(y - size / 2, x - size / 2) < size / 8, 0.2, 0.16) * edge
    source = [3 * size // 8, size // 2]
    receivers = [[size // 2, column] for column in range(10, size - 10, 4)]

    def posed(model: np.ndarray) -> og.Problem:
        return og.Problem(
            "wave:4",
            (size, size),
            "float64",
            steps,
            initial={"u": 0.0, "c": model},
            sources=[og.Source("u", source, pulse(steps))],
            receivers=[og.Receiver("u", cell) for cell in receivers],
        )

    given = {"memory": "4GiB", "progress": False}
    observed = og.run(posed(truth), out=place / "data", **given).traces
    names = {name: str(place / f"{name}.npy") for name in ("model", "observed", "answer")}
    np.save(names["model"], start)
    np.save(names["observed"], observed)
    told = {"steps": steps, "source": source, "receivers": receivers, "pulse": pulse(steps)}
    (place / "problem.json").write_text(json.dumps(names | told))
    ours: list[float] = []
    theirs: list[float] = []
    runs: list[float] = []
    made: dict[str, Any] = {}
    for number in range(ROUNDS + 1):
        begin = time.perf_counter()
        og.run(posed(start), out=place / f"forward.{number}", **given)
        between = time.perf_counter()
        out = place / f"gradient.{number}"
        g = og.gradient(
            posed(start), og.LeastSquares(observed), wrt=["c"], out=out, adjoint="history", **given
        )
        end = time.perf_counter()
        command = [str(python), str(DEVITO), str(place / "problem.json")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        made = json.loads(done.stdout)
        if number:  # the first round compiles
            runs.append(between - begin)
            ours.append(end - between)
            theirs.append(made["seconds"])
        slope = np.asarray(g["c"])
        other = np.load(names["answer"]) * edge
        row["value"], row["devito_value"] = g.value, made["value"]
        largest = np.abs(slope).max()
        row["difference"] = float(np.abs(slope - other).max() / largest)
    row |= {
        "devito": made["version"],
        "seconds": statistics.median(ours),
        "forward_seconds": statistics.median(runs),
        "devito_seconds": statistics.median(theirs),
        "load": os.getloadavg()[0],
    }
    return row


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


def inside(size: int, steps: int, limit: str, out: Path) -> None:
    """The data, a run forward and the gradient; print what they took."""
    given = {"memory": limit, "progress": False}
    observed = og.run(shot(size, steps, layer=True), out=out / "data", **given).traces
    begin = time.perf_counter()
    og.run(shot(size, steps, layer=False), out=out / "forward", **given)
    forward = time.perf_counter() - begin
    for name in ("data", "forward"):
        shutil.rmtree(out / name)
    objective, problem = og.LeastSquares(observed), shot(size, steps, layer=False)
    plan = og.plan_gradient(problem, wrt=["c"], objective=objective, out=out / "g", memory=limit)
    begin = time.perf_counter()
    g = og.gradient(problem, objective, wrt=["c"], out=out / "g", **given)
    seconds = time.perf_counter() - begin
    with (out / "g" / "c.npy").open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    told = {
        "value": g.value,
        "digest": digest,
        "strategy": g.adjoint,
        "forward_seconds": forward,
        "seconds": seconds,
        "planned": [str(one) for one in plan.strategies],
        "largest": float(max(np.abs(plane).max() for plane in g["c"])),
    }
    shutil.rmtree(out)
    print(json.dumps(told))


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
    whole = subprocess.run(command, capture_output=True, text=True, check=True)
    other = json.loads(whole.stdout.splitlines()[-1])
    with limited(limit_bytes) as group:
        done = group.run([*program, "--inside", limit, "--folder", str(place / "beyond")])
        row["group"], row["group_peak_bytes"] = group.reason, group.peak_bytes
    if done.returncode:
        raise SystemExit(f"the gradient ended with {done.returncode}")
    row |= json.loads(done.stdout.splitlines()[-1])
    row["over_forward"] = row["seconds"] / row["forward_seconds"]
    same = other["digest"] == row["digest"] and other["value"] == row["value"]
    in_memory = {name: other[name] for name in ("seconds", "forward_seconds", "strategy")}
    return row | {"identical": same, "in_memory": in_memory, "load": os.getloadavg()[0]}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="with Devito")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "gradients")
    parser.add_argument("--record", type=Path, help="JSON file for the rows")
    parser.add_argument("--only", choices=("beside", "beyond"), help="one of the two parts")
    parser.add_argument("--size", type=int, default=448, help="cells of the cube along an axis")
    parser.add_argument("--steps", type=int, default=12, help="of the shot in the cube")
    parser.add_argument("--limit", default="128MiB", help="of memory for the cube")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.inside:
        inside(given.size, given.steps, given.inside, given.folder)
        return 0
    started = datetime.datetime.now(datetime.UTC)
    rows: dict[str, Any] = {}
    if given.record and given.record.exists():
        rows = json.loads(given.record.read_text())
    with tempfile.TemporaryDirectory(dir=given.folder) as place:
        for name in ("beside", "beyond"):
            if given.only not in (None, name):
                continue
            (Path(place) / name).mkdir()
            if name == "beside":
                row = beside(Path(place) / name, given.python, 400, 300)
            else:
                row = beyond(Path(place) / name, given.size, given.steps, given.limit, "6GiB")
            rows[name] = row | {"origin": origin(started)}
            print(json.dumps({name: row}, indent=2), flush=True)
            if given.record:
                write_record(given.record, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
