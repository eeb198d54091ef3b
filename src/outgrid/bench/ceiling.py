"""The in-cache ceiling: how fast a kernel is where memory plays no part.

The kernel that a run would use sweeps a grid that fits one level of cache, plainly, again and
again, one grid per core. Only interior cells count as updates, so shapes are chosen in which they
dominate. What temporal blocking can reach at best is this rate.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

from outgrid.bench.workloads import Case
from outgrid.build.compiler import build, find_compiler
from outgrid.codegen.kernel import generate
from outgrid.config import RunOptions
from outgrid.execute.kernel import Kernel
from outgrid.execute.window import Window
from outgrid.machine import Machine
from outgrid.plan.model import Plan, Tile
from outgrid.plan.planner import plan
from outgrid.plan.program import Advance, program
from outgrid.stencil.problem import Problem
from outgrid.units import parse_bytes

__all__ = ["ceiling", "ceiling_shape", "level_bytes"]

L1_SIZE = Path("/sys/devices/system/cpu/cpu0/cache/index0/size")  # such as "48K"
ASSUMED_L1_BYTES = 32 << 10
FILL = 0.7  # share of a cache that the grid takes
COLUMNS = (64, 128, 256, 512, 1024, 2048)
ROW_START_CELLS = 64  # what beginning a row costs, in cells
SECONDS = 0.25
REPETITIONS = 3
PLANES_PER_STEP = 2


def level_bytes(machine: Machine, level: int) -> int:
    """Bytes of cache per core that a grid may fill; of a shared L3 no more than 8 times L2."""
    if level == 1:
        try:
            return parse_bytes(L1_SIZE.read_text().strip() + "iB")
        except OSError:
            return ASSUMED_L1_BYTES
    if level == 2:
        return machine.l2_bytes
    return min(machine.l3_bytes // machine.cores, 8 * machine.l2_bytes)


def ceiling_shape(case: Case, nbytes: int) -> tuple[int, ...]:
    """The grid whose rings fit ``nbytes`` with many interior cells and long rows of them."""
    stencil = case.stencil
    rings = sum(2 if field.evolving else 1 for field in stencil.fields)
    cells = int(FILL * nbytes) // (rings * case.item_bytes)

    def worth(shape: tuple[int, ...]) -> float:
        inner = (extent - 2 * r for extent, r in zip(shape, stencil.radius, strict=True))
        return math.prod(inner) * shape[-1] / (shape[-1] + ROW_START_CELLS)

    return max(_shapes(stencil.ndim, cells, stencil.radius), key=worth)


def _shapes(ndim: int, cells: int, radius: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    least = [2 * r + 2 for r in radius]
    yield (*least[:-1], max(least[-1], 64))
    for columns in COLUMNS:
        lines = cells // columns
        if ndim == 2:
            if lines >= least[0]:
                yield lines, columns
            continue
        for planes in range(least[0], math.isqrt(lines) + 1, PLANES_PER_STEP):
            yield planes, max(least[1], lines // planes), columns


def ceiling(case: Case, machine: Machine, level: int) -> tuple[float, tuple[int, ...]]:
    """1e9 updates per second of all cores on grids in cache ``level``, and the shape of one."""
    shape = ceiling_shape(case, level_bytes(machine, level))
    zeros = {field.name: 0.0 for field in case.stencil.fields}
    problem = Problem(case.stencil, shape, case.dtype, 1, case.parameters, "frozen", zeros)
    library = build(generate(case.stencil, case.dtype), find_compiler())
    windows = [Window(_level_order(problem, machine, 1)) for _ in range(machine.cores)]
    _fill(_level_order(problem, machine, 1), windows)
    with ThreadPoolExecutor(machine.cores) as pool:

        def seconds(steps: int) -> float:
            chosen = _level_order(problem, machine, steps)
            kernel = Kernel(library, problem.parameter_table(steps))
            begin = time.perf_counter()
            for done in [pool.submit(_advance, chosen, kernel, window) for window in windows]:
                done.result()
            return time.perf_counter() - begin

        steps = 16
        while (taken := seconds(steps)) < SECONDS / 4:
            steps *= 4
        steps = max(1, round(steps * SECONDS / taken))
        fastest = min(seconds(steps) for _ in range(REPETITIONS))
    for window in windows:
        window.release()
    per_core = math.prod(len(inside) for inside in problem.interior) * steps
    return machine.cores * per_core / fastest / 1e9, shape


def _level_order(problem: Problem, machine: Machine, steps: int) -> Plan:
    """One thread, one sweep of all steps over a resident grid, level after level."""
    whole = Problem.from_dict(problem.to_dict() | {"steps": steps})
    options = RunOptions(memory_bytes=1 << 40, tier="memory", depth=steps, threads=1)
    chosen = plan(whole, options, machine, 0)
    return replace(
        chosen,
        tile=Tile("level", 0, PLANES_PER_STEP),
        slab_planes=problem.shape[0] + chosen.skew * steps + max(chosen.shifts) + 1,
    )


def _fill(chosen: Plan, windows: list[Window]) -> None:
    """Numbers below the stability limit of every case: nothing grows, nothing turns subnormal."""
    numbers = np.random.default_rng(0).random(chosen.shape[1:]).astype(chosen.dtype) / 10
    for window in windows:
        for ring in chosen.rings:
            for values in window.views(ring.field, ring.index, 0, 0, chosen.planes):
                values[...] = numbers.reshape(values.shape)


def _advance(chosen: Plan, kernel: Kernel, window: Window) -> None:
    for instruction in program(chosen):
        if isinstance(instruction, Advance):
            kernel.advance(chosen, window, instruction)
