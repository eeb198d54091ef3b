"""The in-cache ceiling: how fast a kernel is where memory plays no part.

The kernel that a run would use updates a box of cells again and again, one box per core; the cells
around the box are only read. So no time goes into the fixed layer of a grid, which in a grid as
small as a cache would be most of it. What temporal blocking can reach at best is this rate.

Rows of as many planes at once are updated as is fastest, in cells that make up most of a grid:
masks are +0, and the box is between the absorbing layers of planes and rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from outgrid import Machine, Plan, Problem
from outgrid.config import RunOptions
from outgrid.parts import (
    FRONT_PLANES,
    Kernel,
    Stencil,
    Tile,
    Window,
    accesses,
    folding_of,
    load_kernel,
    mask_fields,
    plan,
    ring_count,
    row_groups,
    vector_bytes,
)
from outgrid.units import parse_bytes
from outgrid_bench.workloads import Case

__all__ = ["around", "ceiling", "ceiling_box", "footprint_lines", "level_bytes"]

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


def footprint_lines(stencil: Stencil, planes: int, rows: int, absent: Container[str] = ()) -> int:
    """Rows of cells, of all rings, that updates of ``planes`` times ``rows`` rows touch.

    A star does not touch the corners between its arms. In 2-D a plane is one row. Fields that are
    ``absent`` there are not touched.
    """
    reach = stencil.radius[0], stencil.radius[1] if stencil.ndim == 3 else 0
    total = 0
    for field in (one for one in stencil.fields if one.name not in absent):
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


def ceiling_box(problem: Problem, nbytes: int) -> tuple[int, ...]:
    """The box of updated cells, of rows of whole grids in x, that touches ``nbytes`` at most.

    The one with most cells in long rows; the smallest there is where none fits. The stencil, the
    type and the regions are those of the ``problem``, whose shape has no effect.
    """
    stencil = problem.stencil
    radius = stencil.radius[-1]

    def worth(box: tuple[int, ...]) -> float:
        columns = box[-1]
        return math.prod(box[:-1]) * (columns - 2 * radius) * columns / (columns + ROW_START_CELLS)

    fitting = list(_boxes(problem, int(FILL * nbytes)))
    return max(fitting, key=worth, default=_least(stencil))


def _least(stencil: Stencil) -> tuple[int, ...]:
    return (HEIGHTS[0], *([1] * (stencil.ndim - 2)), COLUMNS[0])


def _boxes(problem: Problem, nbytes: int) -> Iterator[tuple[int, ...]]:
    stencil, absent = problem.stencil, problem.regions
    for columns in COLUMNS:
        lines = nbytes // (columns * np.dtype(problem.dtype).itemsize)
        for planes in HEIGHTS:
            if stencil.ndim == 2:
                if footprint_lines(stencil, planes, 1, absent) <= lines:
                    yield planes, columns
                continue
            rows = 1
            while footprint_lines(stencil, planes, 2 * rows, absent) <= lines:
                rows *= 2
            if footprint_lines(stencil, planes, rows, absent) <= lines:
                yield planes, rows, columns


def around(case: Case, box: tuple[int, ...] | None = None) -> tuple[Problem, tuple[range, ...]]:
    """A problem whose cells of a ``box`` are updated, and the planes and rows of the box in it.

    The box is as far from the faces as the stencil reads, and where there are absorbing layers, as
    far from these; but for the faces of rows, which are whole. Left out, it is the smallest.
    """
    stencil = case.stencil
    box = box or _least(stencil)
    margin = [case.layer + 2 * r if case.layer else r for r in stencil.radius[:-1]]
    shape = (*(n + 2 * m for n, m in zip(box[:-1], margin, strict=True)), box[-1])
    zeros = {field.name: 0.0 for field in stencil.fields}
    posed = Problem(
        stencil,
        shape,
        case.dtype,
        1,
        case.parameters,
        case.boundary,
        zeros,
        dtypes=case.dtypes,
    )
    return posed, tuple(range(m, m + n) for n, m in zip(box[:-1], margin, strict=True))


def ceiling(case: Case, machine: Machine, level: int) -> tuple[float, tuple[int, ...]]:
    """1e9 updates per second of all cores on boxes in cache ``level``, and the shape of one."""
    box = ceiling_box(around(case)[0], level_bytes(machine, level))
    problem, (planes, *others) = around(case, box)
    problem = problem.folding(folding_of(problem, vector_bytes()))
    rows = others[0] if others else range(1)
    kernel = Kernel.of(load_kernel(problem).library, problem, CALL_STEPS)
    resident = _resident(problem, machine)
    groups = row_groups(problem.stencil, problem.dtype, problem.edges, problem.dtypes)
    plans = [
        replace(resident, tile=Tile("level", 0, max(FRONT_PLANES, group), group=group))
        for group in groups
    ]
    windows = [Window(resident) for _ in range(machine.cores)]
    zero = {*mask_fields(problem.stencil, problem.dtype), *problem.regions}
    for window in windows:
        # Below the stability limit of every case: nothing grows, nothing turns subnormal.
        window.fill(np.random.default_rng(0), zero, below=0.1)

    def work(chosen: Plan, window: Window, steps: int) -> None:
        for first in range(0, steps, CALL_STEPS):
            kernel.repeat(chosen, window, min(CALL_STEPS, steps - first), planes, rows)

    with ThreadPoolExecutor(machine.cores) as pool:

        def seconds(chosen: Plan, steps: int) -> float:
            begin = time.perf_counter()
            for done in [pool.submit(work, chosen, window, steps) for window in windows]:
                done.result()
            return time.perf_counter() - begin

        steps = 16
        while (taken := seconds(plans[0], steps)) < SECONDS / 4:
            steps *= 4
        steps = max(1, round(steps * SECONDS / taken))
        fastest = min(seconds(chosen, steps) for _ in range(REPETITIONS) for chosen in plans)
    for window in windows:
        window.release()
    per_core = math.prod(box[:-1]) * (box[-1] - 2 * problem.stencil.radius[-1]) * steps
    return machine.cores * per_core / fastest / 1e9, box


def _resident(problem: Problem, machine: Machine) -> Plan:
    options = RunOptions(memory_bytes=1 << 40, tier="memory", threads=1)
    return plan(problem, options, machine, 0)
