"""One kernel, three ways: plain in memory, spatially blocked in memory, out of core.

The grid of the out-of-core run is ``factor`` times its memory limit. The two in-memory runs sweep
parts of that grid: a part of n planes more on each side than it is compared on, for n steps, holds
every value that its core depends on. So they measure the reference and verify the answer at once:
the cores of the parts equal the same planes of the out-of-core result, byte for byte.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from outgrid import pipeline
from outgrid.bench.limit import memory_limit
from outgrid.config import RunOptions
from outgrid.errors import ExecutionError
from outgrid.machine import describe_machine
from outgrid.record import Record, read_record
from outgrid.stencil.problem import Problem
from outgrid.units import format_bytes, parse_bytes
from outgrid.version import __version__

CORE_PLANES = 8
BLOCK_ROWS = 32
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Workload:
    """What is measured: ``heat7`` in float64 on planes of ``rows`` x ``columns``."""

    memory_bytes: int
    factor: float
    rows: int
    columns: int
    steps: int

    @property
    def planes(self) -> int:
        """Planes that make the field ``factor`` times the memory limit."""
        return round(self.factor * self.memory_bytes / (8 * self.rows * self.columns))

    def problem(self, first: int = 0, last: int | None = None) -> Problem:
        """Planes [first, last) of the grid, with the values that they begin with."""
        planes = (self.planes if last is None else last) - first
        return Problem(
            "heat7",
            (planes, self.rows, self.columns),
            "float64",
            self.steps,
            {"k": 0.1},
            "frozen",
            {"u": noise(first)},
        )

    def part(self, centre: float) -> tuple[int, int, int, int]:
        """(first, last, core first, core last) of a part around ``centre``, 0..1 of the grid."""
        start = round(centre * (self.planes - CORE_PLANES))
        first, last = start - self.steps, start + CORE_PLANES + self.steps
        return max(0, first), min(self.planes, last), start, start + CORE_PLANES


def noise(first: int) -> str:
    """Values at planes first, first + 1, ... of the whole grid: neither zero nor smooth."""
    return f"sin(12.9898*x + 78.233*y + 37.719*(z + {first}))"


def quick_workload(memory: str = "1GiB", factor: float = 8) -> Workload:
    """Planes of 1024 x 1024 under 1 GiB: about two minutes on two cores."""
    return Workload(parse_bytes(memory), factor, rows=1024, columns=1024, steps=72)


def measure(workload: Workload, folder: Path | None, say: Say) -> dict[str, Any]:
    """Run all three, alternating the order, and return figures, ratios and the machine."""
    place = Path(tempfile.mkdtemp(prefix="outgrid-bench-", dir=folder))
    try:
        return _measure(workload, place, say)
    finally:
        shutil.rmtree(place)


def _measure(workload: Workload, place: Path, say: Say) -> dict[str, Any]:
    rates: dict[str, list[float]] = {"plain": [], "blocked": []}
    cores: list[tuple[int, np.ndarray]] = []

    def in_memory(kind: str, centre: float) -> None:
        say(f"{kind}, in memory, around {centre:.0%} of the grid")
        first, last, start, end = workload.part(centre)
        record, core = _in_memory(workload.problem(first, last), kind, place, start - first)
        rates[kind].append(record.measured.updates / record.measured.compute_seconds / 1e9)
        cores.append((start, core[: end - start]))

    in_memory("plain", 0.5)
    in_memory("blocked", 1.0)
    grid = format_bytes(workload.problem().field_bytes)
    limit = format_bytes(workload.memory_bytes)
    say(f"out of core: {grid} under {limit}")
    record, result, enforced = _out_of_core(workload, place)
    in_memory("plain", 0.0)
    in_memory("blocked", 0.25)
    identical = all(
        np.load(result, mmap_mode="r")[start : start + len(core)].tobytes() == core.tobytes()
        for start, core in cores
    )
    return _figures(workload, rates, record, identical, enforced)


def _in_memory(problem: Problem, kind: str, place: Path, core: int) -> tuple[Record, np.ndarray]:
    """The record of a resident run, one step per sweep, and the planes from ``core`` on."""
    field_bytes = problem.field_bytes
    options = RunOptions.of(
        memory=3 * field_bytes + (1 << 30),
        out=place / "part",
        tier="memory",
        scheme="plain",
        tile_rows=BLOCK_ROWS if kind == "blocked" else None,
    )
    result = pipeline.run(problem, options)
    planes = np.array(result["u"][core : core + CORE_PLANES])
    shutil.rmtree(place / "part")
    return result.record, planes


def _out_of_core(workload: Workload, place: Path) -> tuple[Record, Path, str]:
    """Run the job in a process of its own, under a memory limit where one can be set."""
    problem = workload.problem()
    job = place / "job.toml"
    job.write_text(
        f"""[problem]
stencil = "heat7"
shape = {list(problem.shape)}
dtype = "float64"
steps = {workload.steps}
boundary = "frozen"
parameters = {{ k = 0.1 }}
initial = {{ u = "{noise(0)}" }}

[run]
memory = {workload.memory_bytes}
tier = "direct"
"""
    )
    out = place / "whole"
    command = [sys.executable, "-m", "outgrid", "run", str(job), "--out", str(out)]
    with memory_limit(workload.memory_bytes) as limited:
        done = limited.run([*command, "--json"])
        enforced = limited.reason
    if done.returncode != 0:
        raise ExecutionError(f"the out-of-core run ended with exit code {done.returncode}")
    return read_record(out), out / "u.npy", enforced


def _figures(
    workload: Workload,
    rates: dict[str, list[float]],
    record: Record,
    identical: bool,
    enforced: str,
) -> dict[str, Any]:
    plain, blocked = (statistics.median(rates[kind]) for kind in ("plain", "blocked"))
    measured = record.measured
    return {
        "bench": "core",
        "stencil": "heat7",
        "dtype": "float64",
        "shape": list(workload.problem().shape),
        "steps": workload.steps,
        "memory_limit_bytes": workload.memory_bytes,
        "factor": workload.factor,
        "plain_glups": plain,
        "plain_samples": rates["plain"],
        "blocked_glups": blocked,
        "blocked_samples": rates["blocked"],
        "outofcore_glups": measured.glups,
        "outofcore_over_plain": measured.glups / plain,
        "outofcore_over_blocked": measured.glups / blocked,
        "wait_share": measured.wait_seconds / measured.seconds,
        "io_over_ideal": measured.io_over_ideal,
        "peak_memory_over_limit": measured.peak_memory_over_limit,
        "prediction_error": record.prediction_error,
        "identical": identical,
        "limit": enforced,
        "version": __version__,
        "started": record.started,
        "machine": describe_machine().to_dict(),
        "record": msgspec.to_builtins(record),
    }
