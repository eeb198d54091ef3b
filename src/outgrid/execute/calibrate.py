"""Measuring a kernel for the plan: a few seconds, once per kernel, width of rows and threads.

The kernel runs on noise in a window of its own whose rows are as long as the problem's, since a
tile's place in the caches hangs on them; the number of rows and planes is cut to a few hundred MiB.
"""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from outgrid.build.compiler import cache_folder
from outgrid.config import RunOptions
from outgrid.execute.kernel import Kernel
from outgrid.execute.window import Window
from outgrid.machine import Machine
from outgrid.plan.calibration import Calibration, Sample
from outgrid.plan.model import Plan
from outgrid.plan.planner import plan
from outgrid.plan.program import Advance, program
from outgrid.plan.tiling import tile_slope
from outgrid.stencil.problem import Problem

LEVELS = {2: (8, 16, 24, 32, 48, 64), 3: (2, 4, 6, 8, 12, 16, 24, 32)}  # by dimensions
FRONTS = {2: (4, 8, 16), 3: (2, 4, 8)}
MOST_ROWS = 256
MOST_PLANES = 512
REPETITIONS = 2


def calibrate(
    problem: Problem, options: RunOptions, machine: Machine, kernel: Kernel, room_bytes: int
) -> Calibration | None:
    """Rates of the plain sweep and of diamonds; None where ``room_bytes`` hold too little."""
    small = _small(problem, room_bytes)
    if small is None:
        return None
    window: Window | None = None
    found: list[Sample] = []

    def measure(levels: int, planes: int) -> float:
        nonlocal window
        chosen = _plan(small, options, machine, levels, planes)
        if window is None:
            window = Window(chosen)
            window.fill(np.random.default_rng(0))
        own = Kernel(kernel.library, small.parameter_table(chosen.depth))
        rate = max(_rate(chosen, window, own) for _ in range(REPETITIONS))
        found.append(Sample(levels, planes, rate))
        return rate

    fronts = FRONTS[problem.ndim]
    measure(1, fronts[0])
    reach = small.shape[0] // (2 * max(1, problem.stencil.radius[0]))
    levels = [n for n in LEVELS[problem.ndim] if n <= reach] or [1]
    middle = fronts[len(fronts) // 2]
    best = max(levels, key=lambda n: measure(n, middle))
    for planes in fronts:
        if planes != middle:
            measure(best, planes)
    if window is not None:
        window.release()
    return Calibration(tuple(found))


def known(path: Path) -> Calibration | None:
    """The calibration kept at ``path``, None where there is none of this form."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Calibration)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def keep(calibration: Calibration, path: Path) -> None:
    """Keep a calibration for the next plan; whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_bytes(msgspec.json.encode(calibration))
    os.replace(partial, path)


def calibration_path(problem: Problem, threads: int, source: str, processor: str) -> Path:
    """Where a calibration is kept: its name digests all that decides the rates.

    ``source`` is the text of the kernel, ``processor`` names the machine and the compiler.
    """
    parts = (source, processor, str(threads), str(problem.shape[1:]), problem.dtype)
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    return cache_folder() / "calibrations" / f"{digest}.json"


def _small(problem: Problem, room_bytes: int) -> Problem | None:
    """The problem on a grid that fits ``room_bytes``, with rows of the same length."""
    stencil = problem.stencil
    rings = sum(3 if field.evolving else 1 for field in stencil.fields)
    rows = (min(problem.shape[1], MOST_ROWS),) if problem.ndim == 3 else ()
    shape = (*rows, problem.shape[-1])
    planes = room_bytes // (rings * problem.item_bytes * int(np.prod(shape)))
    planes = min(planes, MOST_PLANES, max(problem.shape[0], 2 * stencil.radius[0] + 1))
    if planes < 8 * stencil.radius[0] + 8:
        return None
    zeros = {field.name: 0.0 for field in stencil.fields}
    values = {name: problem.parameter(name, 0) for name in stencil.parameters}
    return Problem(stencil, (planes, *shape), problem.dtype, 1, values, "frozen", zeros)


def _plan(small: Problem, options: RunOptions, machine: Machine, levels: int, planes: int) -> Plan:
    """A resident plan of one sweep, two diamonds deep."""
    slope = tile_slope(small.stencil, small.dtype).per_step
    depth = 2 * levels if levels > 1 else 1
    own = RunOptions(
        memory_bytes=1 << 60,
        tier="memory",
        depth=depth,
        scheme="plain" if depth == 1 else "skewed",
        tile_rows=2 * slope * levels if depth > 1 else None,
        tile_planes=planes,
        threads=options.threads,
    )
    data = small.to_dict() | {"steps": depth}
    chosen = plan(Problem.from_dict(data), own, machine, 0)
    return replace(chosen, slab_planes=chosen.pitch_planes)


def _rate(chosen: Plan, window: Window, kernel: Kernel) -> float:
    begin = time.perf_counter()
    for instruction in program(chosen):
        if isinstance(instruction, Advance):
            kernel.advance(chosen, window, instruction)
    return chosen.updates / (time.perf_counter() - begin)
