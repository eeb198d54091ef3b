"""What is measured: stencils, their data, and grids that are a multiple of a memory limit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from outgrid import Problem
from outgrid.errors import UsageError
from outgrid.parts import AXES, Stencil, resolve
from outgrid.units import parse_bytes, suggest
from outgrid_bench import mask

__all__ = ["CASES", "CORE_PLANES", "Case", "Workload", "choose", "recorded", "workload"]

CORE_PLANES = 8  # planes of a part that are compared
MOST_STEPS = {2: 256, 3: 72}
LEAST_STEPS = 8
# What a run needs beside its window, and how many planes the window of a deep sweep holds.
FIXED_BYTES = 64 << 20
WINDOW_PLANES = 112
ROWS_PER_PLANE = 64  # rows of a 2-D grid that take the place of one plane of a 3-D grid
# In memory, by dimensions, the most bytes of one field: with its second copy far beyond any cache.
REFERENCE_BYTES = {2: 1 << 29, 3: 1 << 30}
REFERENCE_STATE_BYTES = 4 << 30  # of all fields together
REFERENCE_EXTENT = 512  # of a cube
SWEEP_SECONDS = 35


@dataclass(frozen=True)
class Case:
    """A stencil in one precision. ``source`` is what a job file calls it.

    ``expected_glups`` only decides how many steps are made; ``memory`` is the usual limit.
    ``parameters`` and ``values`` (formulas of fields) keep it stable; NOISE in one stands for
    values that are neither zero nor smooth, and so is every other field, or a velocity if it is
    never updated. ``boundary`` is the rule of all faces, and reaches ``layer`` cells into the grid.
    """

    name: str
    dtype: str
    source: str
    expected_glups: float
    ndim: int = 3
    memory: str = "1GiB"
    parameters: Mapping[str, float] = field(default_factory=dict[str, float], hash=False)
    values: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    boundary: str | Mapping[str, Any] = field(default="frozen", hash=False)
    layer: int = 0  # cells before a face in which its rules hold
    dtypes: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)  # of some fields

    @property
    def spelling(self) -> str:
        """What ``--only`` takes."""
        return f"{self.name}:{self.dtype}"

    @cached_property
    def stencil(self) -> Stencil:
        """The stencil, in the dimensions in which it is measured."""
        path, function, _ = self.source.rpartition(".py:")
        if function and not Path(f"{path}.py").is_file():
            raise UsageError(
                f"{self.name} is measured by an example, {self.source}, which is not installed:"
                " measure it in a checkout of the source"
            )
        return resolve(self.source).trace(self.ndim)

    @property
    def item_bytes(self) -> int:
        """Bytes of one value."""
        return np.dtype(self.dtype).itemsize

    @cached_property
    def cell_bytes(self) -> int:
        """Bytes of the state of a cell: evolving levels and coefficients."""
        types = (
            (field.levels, self.dtypes.get(field.name, self.dtype)) for field in self.stencil.fields
        )
        return sum(levels * np.dtype(dtype).itemsize for levels, dtype in types)

    def initial(self, first: int = 0) -> dict[str, str]:
        """Formulas of the fields on planes first, first + 1, ... of the whole grid."""
        rough = noise(self.ndim, first)
        usual = {True: rough, False: velocity(self.ndim, first)}
        return {
            member.name: self.values.get(member.name, usual[member.evolving]).replace(
                NOISE, f"({rough})"
            )
            for member in self.stencil.fields
        }


def noise(ndim: int, first: int = 0) -> str:
    """Values that are neither zero nor smooth and differ from plane to plane.

    A product of functions of single axes, so that filling a grid costs one product per cell.
    """
    if ndim == 2:
        return f"sin(12.9898*x + 0.5)*cos(37.719*(y + {first}) + 78.233)"
    return f"sin(12.9898*x + 0.5)*(sin(78.233*y) + cos(37.719*(z + {first})))"


def velocity(ndim: int, first: int = 0) -> str:
    """A squared velocity that varies over the grid, below the stability limit of order 8."""
    if ndim == 2:
        return f"0.1 + 0.02*sin(0.013*x)*cos(0.021*(y + {first}))"
    return f"0.1 + 0.02*sin(0.013*x + 0.017*y)*cos(0.021*(z + {first}))"


NOISE = "NOISE"
MASK = Path(mask.__file__)
EXAMPLES = Path(__file__).parents[2] / "examples"
HEAT = {"k": 0.1}
SPOTS = {"u": f"0.6 + 0.2 * {NOISE}", "v": f"0.2 + 0.1 * {NOISE}"}
LATTICE = {f"f{number}": f"0.0005 * {NOISE}" for number in range(19)} | {"kind": "0"}
LAYER = 20
MATCHED = {"kind": "matched", "width": LAYER, "courant": 0.4, "frequency": 0.05}
MEMORIES = {f"{name}_{axis}": "0" for name in ("slope", "bend") for axis in AXES}
CASES: tuple[Case, ...] = (
    Case("heat7", "float64", "heat7", 2.5, parameters=HEAT),
    Case("heat7", "float32", "heat7", 6.0, parameters=HEAT),
    Case("box27", "float64", "box27", 2.2),
    Case("wave:8", "float32", "wave:8", 1.3),
    Case("heat5", "float64", "heat5", 6.0, 2, parameters=HEAT),
    Case("heat5", "float32", "heat5", 12.0, 2, parameters=HEAT),
    Case("mask3", "float32", f"{MASK}:mask3", 7.0, 2, "256MiB"),
    Case("mask15", "float32", f"{MASK}:mask15", 0.45, 2, "128MiB"),
    Case(
        "shallow", "float32", "shallow_water", 4.5, 2, parameters={"g": 1.0, "dt": 1.0, "dx": 1.0}
    ),
    Case("gray_scott", "float32", f"{EXAMPLES}/gray_scott.py:gray_scott", 4.0, 2, values=SPOTS),
    Case(
        "acoustic",
        "float32",
        "acoustic_pml:4",
        0.8,
        memory="512MiB",
        values=MEMORIES,
        boundary=MATCHED,
        layer=LAYER,
    ),
    Case(
        "elastic",
        "float32",
        f"{EXAMPLES}/elastic.py:elastic4",
        0.3,
        memory="512MiB",
        parameters={f"taper_{axis}": 0.999 for axis in AXES},
    ),
    Case("maxwell", "float64", f"{EXAMPLES}/maxwell_cavity.py:cavity", 2.0, 2),
    Case("himeno", "float32", f"{EXAMPLES}/himeno.py:himeno", 0.5, memory="512MiB"),
    Case(
        "perona", "float32", f"{EXAMPLES}/perona_malik.py:perona_malik", 0.35, parameters={"k": 1.0}
    ),
    Case(
        "lbm19",
        "float64",
        f"{EXAMPLES}/lid_cavity.py:lattice",
        0.06,
        memory="512MiB",
        parameters={"even": 1.2, "odd": 0.9, "lid": 0.1},
        values=LATTICE,
        dtypes={"kind": "uint8"},
    ),
)


def choose(text: str) -> Case:
    """The case meant by "heat7", "heat7:float32" or "wave:8:float32".

    Without a type the first one listed is meant. Raises UsageError with the nearest name.
    """
    for case in CASES:
        if text in (case.spelling, case.name):
            return case
    spellings = [case.spelling for case in CASES]
    raise UsageError(f"no measured stencil is called {text!r}{suggest(text, spellings)}")


@dataclass(frozen=True, slots=True)
class Workload:
    """One case on planes of shape ``plane``: rows and columns, or only columns in 2-D.

    Its grid is so long that the state of the problem is ``factor`` times the memory limit. Planes
    pass along an ``axis``, or along the one that the plan chooses.
    """

    case: Case
    memory_bytes: int
    factor: float
    plane: tuple[int, ...]
    steps: int
    axis: str = ""

    @property
    def way(self) -> str:
        """The axis that is asked for, in words."""
        return f", along {self.axis}" if self.axis else ""

    @property
    def plane_bytes(self) -> int:
        """Bytes of the state of one plane."""
        return math.prod(self.plane) * self.case.cell_bytes

    @property
    def planes(self) -> int:
        """Planes of the grid."""
        return round(self.factor * self.memory_bytes / self.plane_bytes)

    @property
    def state_bytes(self) -> int:
        """Bytes of the state of the grid."""
        return self.planes * self.plane_bytes

    @property
    def reach(self) -> int:
        """Planes by which a value depends on others after all steps."""
        return self.steps * self.case.stencil.radius[0] + self.case.layer

    def problem(self, first: int = 0, last: int | None = None) -> Problem:
        """Planes [first, last) of the grid, with the values that they begin with."""
        planes = (self.planes if last is None else last) - first
        return self._problem((planes, *self.plane), first, self.steps)

    def reference(self, steps: int) -> Problem:
        """The problem on the grid on which rates in memory are measured."""
        return self._problem(self.reference_shape, 0, steps)

    def resident(self, steps: int) -> Problem:
        """The problem on a grid of about as many cells, with planes of this workload."""
        return self._problem(self._in_memory(self.plane), 0, steps)

    def _problem(self, shape: tuple[int, ...], first: int, steps: int) -> Problem:
        case = self.case
        return Problem(
            case.stencil,
            shape,
            case.dtype,
            steps,
            case.parameters,
            case.boundary,
            case.initial(first),
            dtypes=case.dtypes,
        )

    def part(self, centre: float) -> tuple[int, int, int, int]:
        """(first, last, core first, core last) of a part around ``centre``, 0..1 of the grid.

        The core depends on nothing outside of the part, whose ends are those of the grid or as far
        away as values travel in all steps.
        """
        core = min(CORE_PLANES, self.planes)
        start = round(centre * (self.planes - core))
        first, last = start - self.reach, start + core + self.reach
        return max(0, first), min(self.planes, last), start, start + core

    @property
    def reference_shape(self) -> tuple[int, ...]:
        """The grid on which rates in memory are measured: a cube where it is three-dimensional.

        At most twice as large as the memory limit, so that small workloads have small references.
        """
        if self.case.stencil.ndim == 2:
            return self._in_memory(self.plane)
        return self._in_memory(tuple(min(n, REFERENCE_EXTENT) for n in self.plane))

    def _in_memory(self, plane: tuple[int, ...]) -> tuple[int, ...]:
        """So many of these planes as are measured in memory."""
        ndim = self.case.stencil.ndim
        field_bytes = min(REFERENCE_BYTES[ndim], 2 * self.memory_bytes)
        most = min(
            field_bytes // self.case.item_bytes, REFERENCE_STATE_BYTES // self.case.cell_bytes
        )
        least = 4 * self.case.stencil.radius[0] + 4
        planes = min(most // math.prod(plane), REFERENCE_EXTENT if ndim == 3 else most)
        return (max(least, planes), *plane)


def workload(
    case: Case,
    memory: str | int | None = None,
    factor: float = 8,
    plane: tuple[int, ...] | None = None,
    steps: int | None = None,
    axis: str = "",
) -> Workload:
    """A workload that takes less than two minutes on two cores.

    Planes are as large as leaves room for deep sweeps. Raises UsageError where the limit is below
    what any run needs or ``plane`` has the wrong number of axes.
    """
    memory_bytes = parse_bytes(case.memory if memory is None else memory)
    if memory_bytes < FIXED_BYTES + (32 << 20):
        raise UsageError(f"a limit of {memory_bytes} bytes leaves no window; 128MiB does")
    if factor <= 0:
        raise UsageError(f"the factor {factor:g} is not above 0")
    ndim = case.stencil.ndim
    shape = plane or usual_plane(case, memory_bytes)
    if len(shape) != ndim - 1:
        wanted = "ROWSxCOLUMNS" if ndim == 3 else "COLUMNS"
        raise UsageError(f"a plane of {case.name} is {wanted}, not {'x'.join(map(str, shape))}")
    if steps is None:
        cells = factor * memory_bytes / case.cell_bytes
        affordable = round(SWEEP_SECONDS * case.expected_glups * 1e9 / cells)
        steps = min(MOST_STEPS[ndim], max(LEAST_STEPS, affordable))
    return Workload(case, memory_bytes, factor, shape, steps, axis)


# The grids of a whole record: what a case is measured on out of core, and how often.
# (case, plane, memory limit, factors, steps), of steps so many that there are several sweeps, where
# few planes fit: the arrival of the first slab and the departure of the last one are then a small
# part of a run.
RECORDED: tuple[tuple[str, tuple[int, ...], str, tuple[float, ...], int], ...] = (
    ("heat7:float64", (1024, 1024), "1GiB", (1, 4, 8, 16), 72),
    ("heat7:float64", (512, 512), "512MiB", (16,), 96),
    ("heat7:float64", (2048, 4096), "256MiB", (32,), 32),  # in strips: few planes fit
    ("heat7:float32", (1024, 1024), "512MiB", (1, 4, 8, 16), 72),
    ("box27:float64", (512, 512), "512MiB", (1, 4, 8, 16), 48),
    ("wave:8:float32", (512, 512), "512MiB", (1, 4, 8, 16), 56),
    ("wave:8:float32", (1024, 1024), "1GiB", (8,), 42),
    ("wave:8:float32", (512, 512), "1GiB", (8,), 56),
    ("heat5:float64", (8192,), "256MiB", (1, 4, 8, 16), 192),
    ("heat5:float32", (16384,), "256MiB", (1, 4, 8, 16), 192),
    ("mask3:float32", (16384,), "256MiB", (4,), 192),
    ("mask15:float32", (4096,), "128MiB", (1, 4, 8, 16), 8),
    ("shallow:float32", (8192,), "256MiB", (4,), 128),
    ("gray_scott:float32", (8192,), "256MiB", (4,), 128),
    ("acoustic:float32", (256, 256), "512MiB", (4,), 96),
    ("elastic:float32", (256, 256), "512MiB", (4,), 96),
    ("maxwell:float64", (8192,), "256MiB", (4,), 128),
    ("himeno:float32", (256, 256), "512MiB", (4,), 96),
    ("perona:float32", (512, 512), "256MiB", (4,), 48),
    ("lbm19:float64", (128, 128), "512MiB", (4,), 72),
)
# Axes along which some of these pass as well.
ALSO_ALONG: dict[tuple[str, tuple[int, ...]], tuple[str, ...]] = {
    ("heat7:float64", (2048, 4096)): ("x",)
}


def recorded(factors: tuple[float, ...] | None = None) -> tuple[Workload, ...]:
    """The workloads of a whole record, those with one of ``factors`` where given."""
    return tuple(
        workload(choose(name), memory, factor, plane, steps, axis)
        for name, plane, memory, measured, steps in RECORDED
        for factor in measured
        if factors is None or factor in factors
        for axis in ("", *ALSO_ALONG.get((name, plane), ()))
    )


def usual_plane(case: Case, memory_bytes: int) -> tuple[int, ...]:
    """A plane of powers of two of which the window holds enough for deep sweeps."""
    cells = (memory_bytes - FIXED_BYTES) // WINDOW_PLANES // case.cell_bytes
    if case.stencil.ndim == 2:
        return (power_of_two(cells // ROWS_PER_PLANE),)
    side = power_of_two(math.isqrt(cells))
    return (min(side, 1024), min(side, 1024))


def power_of_two(bound: int) -> int:
    """The largest power of two up to ``bound``, at least 64."""
    return max(64, 1 << (max(1, bound).bit_length() - 1))
