"""One kernel, three ways: plain in memory, spatially blocked in memory, out of core.

The grid of the out-of-core run is ``factor`` times its memory limit. The two in-memory runs sweep
parts of that grid: a part of n planes more on each side than it is compared on, for n steps, holds
every value that its core depends on. So they measure the reference and verify the answer at once:
the cores of the parts equal the same planes of the out-of-core result, byte for byte.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from outgrid.bench.measure import OutOfCore, in_memory, out_of_core, same_planes, update_rate
from outgrid.bench.workloads import Workload
from outgrid.machine import describe_machine
from outgrid.units import format_bytes
from outgrid.version import __version__

__all__ = ["Say", "measure"]

Say = Callable[[str], None]


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

    def reference(kind: str, centre: float) -> None:
        say(f"{kind}, in memory, around {centre:.0%} of the grid")
        first, last, start, end = workload.part(centre)
        core = slice(start - first, end - first)
        record, values = in_memory(workload.problem(first, last), kind, place, core)
        rates[kind].append(update_rate(record))
        cores.append((start, values))

    reference("plain", 0.5)
    reference("blocked", 1.0)
    grid = format_bytes(workload.problem().field_bytes)
    limit = format_bytes(workload.memory_bytes)
    say(f"out of core: {grid} under {limit}")
    streamed = out_of_core(workload, place)
    reference("plain", 0.0)
    reference("blocked", 0.25)
    identical = all(same_planes(streamed.result, start, core) for start, core in cores)
    return _figures(workload, rates, streamed, identical)


def _figures(
    workload: Workload, rates: dict[str, list[float]], streamed: OutOfCore, identical: bool
) -> dict[str, Any]:
    plain, blocked = (statistics.median(rates[kind]) for kind in ("plain", "blocked"))
    record, measured = streamed.record, streamed.record.measured
    return {
        "bench": "core",
        "stencil": workload.case.name,
        "dtype": workload.case.dtype,
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
        "limit": streamed.enforced,
        "version": __version__,
        "started": record.started,
        "machine": describe_machine().to_dict(),
        "record": msgspec.to_builtins(record),
    }
