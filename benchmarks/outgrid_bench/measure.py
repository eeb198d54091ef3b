"""Single measurements: a run in memory, a run out of core, and the comparison of their answers."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from outgrid import Problem, Record, pipeline
from outgrid.config import RunOptions
from outgrid.errors import ExecutionError
from outgrid.parts import calibration, load_kernel
from outgrid.probe.profile import known_machine
from outgrid.record import read_record
from outgrid_bench.limit import limited
from outgrid_bench.workloads import Workload

__all__ = [
    "BLOCK_ROWS",
    "OutOfCore",
    "in_memory",
    "out_of_core",
    "same_bytes",
    "same_planes",
    "update_rate",
]

BLOCK_ROWS = 32
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"scheme": "plain"},
    "blocked": {"scheme": "plain", "tile_rows": BLOCK_ROWS},
    "tiled": {"scheme": "skewed"},
}


def in_memory(
    problem: Problem,
    kind: str,
    place: Path,
    planes: slice = slice(None),
    threads: int | None = None,
) -> tuple[Record, np.ndarray]:
    """The record of a resident run and ``planes`` of its first field.

    ``kind`` is "plain" (one step per sweep), "blocked" (the same in blocks of rows) or "tiled"
    (temporally blocked).
    """
    folder = place / f"in-memory-{kind}"
    levels = sum(3 if field.evolving else 1 for field in problem.stencil.fields)
    options = RunOptions.of(
        memory=levels * problem.field_bytes * 5 // 4 + (1 << 30),
        out=folder,
        tier="memory",
        slab_planes=problem.shape[0],  # in one piece: nothing is read or written beside the kernel
        threads=threads,
        **KINDS[kind],
    )
    if kind == "tiled":
        calibrated(problem, options)
    result = pipeline.run(problem, options)
    values = np.array(result[problem.stencil.fields[0].name][planes])
    shutil.rmtree(folder)
    return result.record, values


def calibrated(problem: Problem, options: RunOptions) -> None:
    """Have the kernel measured, as a long run does before it plans, also for a short one."""
    machine = known_machine(options.out)
    for form in pipeline.forms(problem, options)[:1]:
        calibration(form, options, machine, load_kernel(form))


def update_rate(record: Record) -> float:
    """1e9 updates per second while the kernel ran: what a resident run is judged by."""
    return record.measured.updates / record.measured.compute_seconds / 1e9


@dataclass(frozen=True, slots=True)
class OutOfCore:
    """A finished run: its record, the file of its first field, and how the limit was enforced."""

    record: Record
    result: Path
    enforced: str


def out_of_core(workload: Workload, place: Path) -> OutOfCore:
    """Run the job in a process of its own, under a memory limit where one can be set.

    Raises ExecutionError where the run fails.
    """
    job, out = place / "job.toml", place / "whole"
    job.write_text(_job(workload))
    options = RunOptions.of(
        memory=workload.memory_bytes, out=out, tier="direct", stream_axis=workload.axis or "auto"
    )
    calibrated(workload.problem(), options)
    command = [sys.executable, "-m", "outgrid", "run", str(job), "--out", str(out)]
    with limited(workload.memory_bytes) as group:
        done = group.run([*command, "--json"])
        enforced = group.reason
    if done.returncode != 0:
        raise ExecutionError(f"the out-of-core run ended with exit code {done.returncode}")
    record = read_record(out)
    return OutOfCore(record, out / f"{workload.case.stencil.fields[0].name}.npy", enforced)


def _job(workload: Workload) -> str:
    case, problem = workload.case, workload.problem()
    parameters = ", ".join(f"{name} = {value}" for name, value in case.parameters.items())
    initial, dtypes = (
        ", ".join(f"{name} = {json.dumps(text)}" for name, text in given.items())
        for given in (case.initial(), case.dtypes)
    )
    boundary = json.dumps(case.boundary)
    if not isinstance(case.boundary, str):
        rules = (f"{name} = {json.dumps(value)}" for name, value in case.boundary.items())
        boundary = f"{{ {', '.join(rules)} }}"
    return f"""[problem]
stencil = {json.dumps(case.source)}
shape = {list(problem.shape)}
dtype = "{case.dtype}"
dtypes = {{ {dtypes} }}
steps = {workload.steps}
boundary = {boundary}
parameters = {{ {parameters} }}
initial = {{ {initial} }}

[run]
memory = {workload.memory_bytes}
tier = "direct"
stream_axis = "{workload.axis or "auto"}"
"""


def same_planes(result: Path, start: int, core: np.ndarray) -> bool:
    """Whether planes from ``start`` on in the file ``result`` equal ``core`` byte for byte."""
    return same_bytes(np.load(result, mmap_mode="r")[start : start + len(core)], core)


def same_bytes(values: np.ndarray, answer: np.ndarray) -> bool:
    """Whether two arrays are equal byte for byte, compared by planes so that memory stays small."""
    return values.shape == answer.shape and all(
        plane.tobytes() == expected.tobytes()
        for plane, expected in zip(values, answer, strict=True)
    )
