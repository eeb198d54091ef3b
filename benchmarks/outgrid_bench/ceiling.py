"""The in-cache ceiling: how fast a kernel is where memory plays no part.

The kernel that a run would use updates a box of cells again and again, one box per core; the cells
around the box are only read. So no time goes into the fixed layer of a grid, which in a grid as
small as a cache would be most of it. What temporal blocking can reach at best is this rate.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np

from outgrid import Machine, Plan, Problem
from outgrid.config import RunOptions
from outgrid.parts import (
    FRONT_PLANES,
    Kernel,
    Stencil,
    Tile,
    Window,
    accesses,
    build,
    find_compiler,
    generate,
    plan,
    ring_count,
)
from outgrid.units import parse_bytes
from outgrid_bench.workloads import Case

__all__ = ["ceiling", "ceiling_box", "footprint_lines", "level_bytes"]

L1_SIZE = Path("/sys/devices/system/cpu/cpu0/cache/index0/size")  # such as "48K"
ASSUMED_L1_BYTES = 32 << 10
FILL = 0.7  # share of a cache that what is touched takes
COLUMNS = (64, 128, 256, 512, 1024, 2048)
HEIGHTS = (4, 8, 16, 32, 64, 128, 256, 512)  # planes of a box: whole steps of the kernel
ROW_START_CELLS = 64  # what beginning a row costs, in cells
CALL_STEPS = 4096  # so many that calling the kernel costs nothing
SECONDS = 0.25
REPETITIONS = 3


def level_bytes(machine: Machine, level: int) -> int:
    """Bytes of cache per core that a box may fill; of a shared L3 no more than 8 times L2."""
    if level == 1:
        try:
            return parse_bytes(L1_SIZE.read_text().strip() + "iB")
        except OSError:
            return ASSUMED_L1_BYTES
    if level == 2:
        return machine.l2_bytes
    return min(machine.l3_bytes // machine.cores, 8 * machine.l2_bytes)


def footprint_lines(stencil: Stencil, planes: int, rows: int) -> int:
    """Rows of cells, of all rings, that updates of ``planes`` times ``rows`` rows touch.

    A star does not touch the corners between its arms. In 2-D a plane is one row.
    """
    reach = stencil.radius[0], stencil.radius[1] if stencil.ndim == 3 else 0
    total = 0
    for field in stencil.fields:
        touched = np.zeros((planes + 2 * reach[0], rows + 2 * reach[1]), dtype=bool)
        for dz, dy in _row_offsets(stencil, field.name):
            z, y = reach[0] + dz, reach[1] + dy
            touched[z : z + planes, y : y + rows] = True
        total += ring_count(field, stencil) * int(touched.sum())
    return total


def _row_offsets(stencil: Stencil, name: str) -> set[tuple[int, int]]:
    """Offsets (plane, row) at which the field is read or written."""
    offsets = {(0, 0)}
    for assignment in stencil.assignments:
        for access in accesses(assignment.expression):
            if access.field == name:
                offsets.add((access.offset[0], access.offset[1] if stencil.ndim == 3 else 0))
    return offsets


def ceiling_box(case: Case, nbytes: int) -> tuple[int, ...]:
    """The box of updated cells, of rows of whole grids in x, that touches ``nbytes`` at most.

    The one with most cells in long rows; the smallest there is where none fits.
    """
    stencil = case.stencil
    radius = stencil.radius[-1]

    def worth(box: tuple[int, ...]) -> float:
        columns = box[-1]
        return math.prod(box[:-1]) * (columns - 2 * radius) * columns / (columns + ROW_START_CELLS)

    fitting = list(_boxes(case, int(FILL * nbytes)))
    least = (HEIGHTS[0], *([1] * (stencil.ndim - 2)), COLUMNS[0])
    return max(fitting, key=worth, default=least)


def _boxes(case: Case, nbytes: int) -> Iterator[tuple[int, ...]]:
    stencil = case.stencil
    for columns in COLUMNS:
        lines = nbytes // (columns * case.item_bytes)
        for planes in HEIGHTS:
            if stencil.ndim == 2:
                if footprint_lines(stencil, planes, 1) <= lines:
                    yield planes, columns
                continue
            rows = 1
            while footprint_lines(stencil, planes, 2 * rows) <= lines:
                rows *= 2
            if footprint_lines(stencil, planes, rows) <= lines:
                yield planes, rows, columns


def ceiling(case: Case, machine: Machine, level: int) -> tuple[float, tuple[int, ...]]:
    """1e9 updates per second of all cores on boxes in cache ``level``, and the shape of one."""
    box = ceiling_box(case, level_bytes(machine, level))
    radius = case.stencil.radius
    shape = (*(n + 2 * r for n, r in zip(box[:-1], radius[:-1], strict=True)), box[-1])
    zeros = {field.name: 0.0 for field in case.stencil.fields}
    # All cells are in the layers of faces that absorb, if the stencil has any.
    layers = {profile.name: 0.0 for profile in case.stencil.given_profiles}
    problem = Problem(
        case.stencil, shape, case.dtype, 1, {**layers, **case.parameters}, "frozen", zeros
    )
    library = build(generate(case.stencil, case.dtype), find_compiler())
    kernel = Kernel.of(library, problem, CALL_STEPS)
    chosen = _resident(problem, machine)
    windows = [Window(chosen) for _ in range(machine.cores)]
    _fill(chosen, windows)
    planes = range(radius[0], radius[0] + box[0])
    rows = range(radius[1], radius[1] + box[1]) if len(box) == 3 else range(1)

    def work(window: Window, steps: int) -> None:
        for first in range(0, steps, CALL_STEPS):
            kernel.repeat(chosen, window, min(CALL_STEPS, steps - first), planes, rows)

    with ThreadPoolExecutor(machine.cores) as pool:

        def seconds(steps: int) -> float:
            begin = time.perf_counter()
            for done in [pool.submit(work, window, steps) for window in windows]:
                done.result()
            return time.perf_counter() - begin

        steps = 16
        while (taken := seconds(steps)) < SECONDS / 4:
            steps *= 4
        steps = max(1, round(steps * SECONDS / taken))
        fastest = min(seconds(steps) for _ in range(REPETITIONS))
    for window in windows:
        window.release()
    per_core = math.prod(box[:-1]) * (box[-1] - 2 * radius[-1]) * steps
    return machine.cores * per_core / fastest / 1e9, box


def _resident(problem: Problem, machine: Machine) -> Plan:
    options = RunOptions(memory_bytes=1 << 40, tier="memory", threads=1)
    return replace(plan(problem, options, machine, 0), tile=Tile("level", 0, FRONT_PLANES))


def _fill(chosen: Plan, windows: list[Window]) -> None:
    """Numbers below the stability limit of every case: nothing grows, nothing turns subnormal."""
    numbers = (
        np.random.default_rng(0).random(chosen.schedule.shape[1:]).astype(chosen.work.dtype) / 10
    )
    for window in windows:
        for ring in chosen.schedule.rings:
            for values in window.slots(ring.field, ring.index):
                values[...] = numbers.reshape(values.shape)
