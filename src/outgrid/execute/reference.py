"""The reference executor: what a kernel does with the planes of a window, in NumPy.

It takes the same call as a compiled kernel (`codegen/templates/cpu/slab.hpp`) and makes its levels
one after the other, with one thread. So everything around a kernel works with it. Expressions are
evaluated as they are written, without fused multiply-adds, and functions are those of NumPy: the
last bits may differ from those of a kernel, but do not depend on the plan.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from outgrid.build.compiler import Library
from outgrid.observe.accumulators import CELLS, add_cells
from outgrid.plan.schedule.lifetime import dependences, ring_count
from outgrid.stencil import expression as ex
from outgrid.stencil.boundary import image
from outgrid.stencil.dtypes import KINDS, is_real
from outgrid.stencil.expression import Access, Constant, Leaf, Parameter, Profile
from outgrid.stencil.problem import Problem

__all__ = ["interpreted", "is_reference"]

REFERENCE = "reference executor"
BATCH_CELLS = 1 << 15  # evaluated at once: intermediate values take some 100 times 8 bytes each
Ranges = tuple[range, range]
Put = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, *[ctypes.c_int64] * 2, ctypes.c_void_p, ctypes.c_int64
)


def interpreted(problem: Problem, note: str) -> Library:
    """What stands in for the library of a kernel; ``note`` says why."""
    name = f"{REFERENCE}, NumPy {np.__version__}"
    return Library(Path(), cast("ctypes.CDLL", _Interpreter(problem)), True, name, note)


def is_reference(compiler: str) -> bool:
    """Whether what a record has in place of a compiler is the reference executor."""
    return compiler.startswith(REFERENCE)


class _Interpreter:
    """The functions of a kernel's library."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        stencil, edges = problem.stencil, problem.edges
        along = dependences(stencil, edges)
        self.shifts: tuple[tuple[int, ...], tuple[int, ...]] = (
            along.skew().shifts,
            along.mirrored().skew().shifts,
        )
        self.counts = {field.name: ring_count(field, stencil) for field in stencil.fields}
        names = [field.name for field in stencil.fields]
        self.first_ring = {
            name: sum(self.counts[before] for before in names[:number])
            for number, name in enumerate(names)
        }
        (z, *y, x) = edges.layers
        self.layers = z, y[0] if y else (0, 0), x

    def outgrid_touch(self, _team: Any, first: Any, nbytes: Any, _threads: Any, _pin: Any) -> int:
        """Write to all of a window."""
        ctypes.memset(first.value, 0, nbytes.value)
        return 0

    def outgrid_advance(self, given: Any) -> int:
        """Make levels ``since`` to ``depth`` of the front positions of a call."""
        slab = given._obj
        for level in range(slab.since, slab.depth + 1):
            for stage in range(len(self.problem.stencil.stages)):
                planes, rows = self._covered(slab, level, stage)
                if planes and rows:
                    _Level(self, slab, level, stage).make(planes, rows)
        return 0

    def _covered(self, slab: Any, level: int, stage: int) -> Ranges:
        """Planes of the grid, and rows, that a stage of a level works on; see `cpu/call.hpp`."""
        stages = len(self.problem.stencil.stages)
        up, across = (
            _int64s(address, 2 * stages) for address in (slab.plane_shifts, slab.row_shifts)
        )
        downward, skew = int(slab.downward), int(slab.skew)
        back = self.shifts[downward][stage] + skew * level
        low = max(0, slab.plane_low + slab.plane_rise * level + int(up[stage]), slab.first - back)
        high = slab.plane_high + slab.plane_fall * level + int(up[stages + stage])
        high = min(slab.planes, high, slab.last - back)
        planes = range(low, high)
        if downward:
            planes = range(slab.planes - high, slab.planes - low)
        if self.problem.ndim == 2:
            return planes, range(slab.rows)
        first = max(0, slab.row_low + slab.row_rise * level + int(across[stage]))
        end = slab.row_high + slab.row_fall * level + int(across[stages + stage])
        return planes, range(first, min(slab.rows, end))


class _Level:
    """One stage of one level of a call."""

    def __init__(self, of: _Interpreter, slab: Any, level: int, stage: int) -> None:
        self.of, self.slab, self.level, self.number = of, slab, level, stage
        self.problem, self.stage = of.problem, of.problem.stencil.stages[stage]
        self.names = [field.name for field in self.problem.stencil.fields]
        self.written = [assignment.field for assignment in self.stage.assignments]
        self.now = slab.base + level
        extents = slab.planes, slab.rows, slab.columns
        self.inside = tuple(
            range(low, extent - high)
            for (low, high), extent in zip(of.layers, extents, strict=True)
        )
        names = (*self.problem.stencil.parameters, ex.STEP.name)
        row = slab.parameters + 8 * len(names) * (level - 1)
        numbers: list[float] = _doubles(row, len(names)).tolist()
        self.parameters = dict(zip(names, numbers, strict=True))

    @property
    def columns(self) -> int:
        """Columns of the grid."""
        return self.slab.columns

    def make(self, planes: range, rows: range) -> None:
        """Reduce, then update, batch by batch; then whatever looks at cells."""
        held = max(1, BATCH_CELLS // self.columns)
        for some_rows in _cut(rows, held):
            for some in _cut(planes, max(1, held // len(some_rows))):
                with np.errstate(all="ignore"):
                    self._reduce(some, some_rows)
                    self._update(some, some_rows)
        with np.errstate(all="ignore"):
            self._points(planes, rows)
        if 0 < self.slab.watch <= self.level:
            self._look(planes, rows)
        if self.slab.snapshots:
            self._keep(planes, rows)

    def _update(self, planes: range, rows: range) -> None:
        """Compute what changes before any of it is stored: fields may be updated in place."""
        inside = _both(planes, self.inside[0]), _both(rows, self.inside[1])
        if all(inside):
            leaf = self._leaf(*inside)
            new = [ex.evaluate(one.expression, leaf) for one in self.stage.assignments]
        else:
            new = [None] * len(self.written)
        columns = self.inside[2]
        own = (
            *(
                slice(some.start - of.start, some.stop - of.start)
                for some, of in zip(inside, (planes, rows), strict=True)
            ),
            slice(columns.start, columns.stop),
        )
        for name, values in zip(self.written, new, strict=True):
            if self.of.counts[name] > 1:  # what is not updated is carried on
                cells = self._cells(name, self.now - 1, planes, rows)[...]
                if values is not None:
                    cells[own] = values
                self._cells(name, self.now, planes, rows)[...] = cells
            elif values is not None:
                self._cells(name, self.now, *inside)[..., own[2]] = values

    def _leaf(self, planes: range, rows: range) -> Callable[[Leaf], Any]:
        """The values that inner cells of these planes and rows read."""
        number = np.dtype(self.problem.dtype).type
        places = planes, rows, self.inside[2]
        axes = range(3) if self.problem.ndim == 3 else (0, 2)

        def leaf(node: Leaf) -> Any:
            match node:
                case Constant(value):
                    return number(value)
                case Parameter(name):
                    return number(self.parameters[name])
                case Profile(name, axis):
                    return self._profile(name, axes[axis], places[axes[axis]])
                case Access():
                    return self._read(node, places)

        return leaf

    def _profile(self, name: str, axis: int, places: range) -> NDArray[Any]:
        order = [profile.name for profile in self.problem.stencil.profiles]
        address = int(_int64s(self.slab.profiles, len(order))[order.index(name)])
        dtype = np.dtype(self.problem.dtype)
        address += places.start * dtype.itemsize
        values = np.frombuffer(_memory(address, len(places) * dtype.itemsize), dtype)
        return values.reshape(-1, *(1,) * (2 - axis))

    def _read(self, access: Access, places: tuple[range, range, range]) -> NDArray[Any]:
        offset = (
            access.offset if self.problem.ndim == 3 else (access.offset[0], 0, access.offset[1])
        )
        rules = [self.problem.edges.rule(access.field, axis) for axis in range(self.problem.ndim)]
        if self.problem.ndim == 2:
            rules.insert(1, ("stored", "stored"))
        along = [
            _moved(some, step, inside, rule)
            for some, step, inside, rule in zip(places, offset, self.inside, rules, strict=True)
        ]
        version = self.problem.stencil.version(self.number, access)
        planes, rows, columns = (where for where, _ in along)
        cells = self._memory_of(access.field, self.now + version, planes)
        values = cells.at(rows, columns).astype(self.problem.dtype)
        for axis, (_, signs) in enumerate(along):
            if (signs != 1).any():
                values *= signs.astype(values.dtype).reshape(-1, *(1,) * (2 - axis))
        return values

    def _memory_of(self, name: str, level: int, planes: NDArray[np.int64]) -> _Planes:
        count = self.of.counts[name]
        ring = self.of.first_ring[name] + level % count
        if not self.problem.stencil.field(name).evolving:  # each step may have a ring of its own
            ring += self.slab.ring_step * (level - self.slab.base)
        table = int(_int64s(self.slab.rings + 8 * ring, 1)[0])
        lowest = int(planes.min())
        listed = _int64s(table + 8 * lowest, int(planes.max()) - lowest + 1)
        dtype = np.dtype(self.problem.dtype_of(name))
        addresses = listed[planes - lowest] + self.slab.row_offset * dtype.itemsize
        return _Planes(addresses, dtype, self.slab.row_stride)

    def _cells(self, name: str, level: int, planes: range, rows: range) -> _Box:
        """All columns of planes and rows, to be read and stored."""
        cells = self._memory_of(name, level, np.array(planes))
        return _Box(cells, np.array(rows), np.arange(self.columns))

    def _reduce(self, planes: range, rows: range) -> None:
        slab, before = self.slab, self.problem.stencil.stages[: self.number]
        first = sum(len(stage.reductions) for stage in before)
        planes = _both(_both(planes, self.inside[0]), range(slab.own_z0, slab.own_z1))
        rows = _both(_both(rows, self.inside[1]), range(slab.own_y0, slab.own_y1))
        if not (self.stage.reductions and planes and rows):
            return
        leaf, shape = self._leaf(planes, rows), (len(planes), len(rows), len(self.inside[2]))
        every = len(self.problem.stencil.reductions)
        for number, reduction in enumerate(self.stage.reductions, first):
            values = np.broadcast_to(ex.evaluate(reduction.expression, leaf), shape)
            place = ((self.level - 1) * every + number) * CELLS
            add_cells(reduction.kind, values, _int64s(slab.totals + 8 * place, CELLS))

    def _points(self, planes: range, rows: range) -> None:
        """Sources add to what was just made, then receivers look at it."""
        slab, step = self.slab, self.level - 1
        for n in range(slab.injections):
            amount = _doubles(slab.amounts, slab.injections * (step + 1))[
                slab.injections * step + n
            ]
            for cell, dtype in self._places(slab.injected, n, planes, rows):
                if is_real(dtype.name):
                    cell[...] = (cell[...] + amount.astype(dtype)).astype(dtype)
                else:
                    limits = np.iinfo(dtype)
                    total = float(cell[...].item()) + amount
                    cell[...] = min(max(total, limits.min), limits.max)
        for n in range(slab.receptions):
            samples = _doubles(slab.samples, slab.receptions * (step + 1))
            for cell, _ in self._places(slab.sampled, n, planes, rows):
                samples[slab.receptions * step + n] = cell[...].item()

    def _places(
        self, table: int, n: int, planes: range, rows: range
    ) -> Iterator[tuple[_Box, np.dtype[Any]]]:
        """The cell of a source or receiver wherever it comes among planes and rows."""
        given: list[int] = _int64s(table + 32 * n, 4).tolist()
        field, plane, row, column = given
        name = self.names[field]
        if name not in self.written:
            return
        slab = self.slab
        for z in _turns(plane, slab.period, planes):
            for y in _turns(row, slab.row_period, rows):
                cells = self._memory_of(name, self.now, np.array([z]))
                yield _Box(cells, np.array([y]), np.array([column])), cells.dtype

    def _look(self, planes: range, rows: range) -> None:
        """Note the first value that is not finite; see `look` in `cpu/visits.hpp`."""
        slab, stages = self.slab, len(self.problem.stencil.stages)
        broken = _int64s(slab.broken, 1)
        for field, name in enumerate(self.names):
            if name not in self.written or not is_real(self.problem.dtype_of(name)):
                continue
            cells = self._cells(name, self.now, planes, rows)[...]
            where = np.argwhere(~np.isfinite(cells))
            if not len(where):
                continue
            z, y = (
                np.array(some)[of] % period if period else np.array(some)[of]
                for some, of, period in zip(
                    (planes, rows), where.T[:2], (slab.period, slab.row_period), strict=True
                )
            )
            place = (self.level - 1) * stages + self.number
            place = place * slab.planes + z
            place = place * (slab.row_period or slab.rows) + y
            place = (place * slab.columns + where[:, 2]) * len(self.names) + field
            place = 2 * place + np.isnan(cells[tuple(where.T)])
            broken[0] = min(int(broken[0]), int(place.min()))

    def _keep(self, planes: range, rows: range) -> None:
        """Hand cells of snapshots over, row by row; see `snapshots` in `cpu/visits.hpp`."""
        slab = self.slab
        put = Put(int(_int64s(slab.outlet, 1)[0]))
        count: int = slab.snapshots
        table: list[list[int]] = _int64s(slab.kept, 15 * count).reshape(-1, 15).tolist()
        dtypes = {number: name for name, number in KINDS.items()}
        for field, file, kind, begin, every, offset, *axes in table:
            since = slab.made + self.level - begin
            name: str = self.names[field]
            if name not in self.written or since < 0 or since % every:
                continue
            z, y, x = (range(*axes[n : n + 3]) for n in (0, 3, 6))
            before = since // every * len(z)
            for plane, row in product(
                _both(planes, range(slab.own_z0, slab.own_z1)),
                _both(rows, range(slab.own_y0, slab.own_y1)),
            ):
                own_z = plane % slab.period if slab.period else plane
                own_y = row % slab.row_period if slab.row_period else row
                if own_z not in z or own_y not in y:
                    continue
                cells = self._cells(name, self.now, range(plane, plane + 1), range(row, row + 1))
                values = cells[...][0, 0, x.start : x.stop : x.step].astype(dtypes[kind])
                rows_before = (before + z.index(own_z)) * len(y) + y.index(own_y)
                at = offset + rows_before * len(x) * values.itemsize
                put(slab.outlet, file, at, values.ctypes.data, values.nbytes)


class _Planes:
    """Planes at addresses, as one stretch of memory and the first cell of each in it."""

    def __init__(self, addresses: NDArray[np.int64], dtype: np.dtype[Any], stride: int) -> None:
        self.lowest = int(addresses.min())
        self.starts = (addresses - self.lowest) // dtype.itemsize
        self.dtype, self.stride = dtype, stride

    def flat(
        self, rows: NDArray[np.int64], columns: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The stretch that holds these rows and columns, and the number of each cell in it."""
        first = int(rows.min()) * self.stride
        across = rows[:, None] * self.stride - first + columns
        numbers = self.starts[:, None, None] + across
        nbytes = (int(numbers.max()) + 1) * self.dtype.itemsize
        held = _memory(self.lowest + first * self.dtype.itemsize, nbytes)
        return np.frombuffer(held, self.dtype), numbers

    def at(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[Any]:
        """A copy of these rows and columns."""
        cells, numbers = self.flat(rows, columns)
        return cells[numbers]


class _Box:
    """Cells of some planes, which are read and stored as an array."""

    def __init__(
        self, planes: _Planes, rows: NDArray[np.int64], columns: NDArray[np.int64]
    ) -> None:
        self.planes, self.rows, self.columns = planes, rows, columns

    def __getitem__(self, index: Any) -> NDArray[Any]:
        return self.planes.at(self.rows, self.columns)[index]

    def __setitem__(self, index: Any, values: Any) -> None:
        cells, numbers = self.planes.flat(self.rows, self.columns)
        where = numbers[index]
        cells[where] = np.broadcast_to(values, where.shape)


@lru_cache(maxsize=4096)
def _moved(
    places: range, offset: int, inside: range, rules: tuple[str, str]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where cells read along an axis at an offset, and by what they multiply what they read."""
    images = [image(index + offset, inside, rules) for index in places]
    table = np.array(images, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _both(one: range, other: range) -> range:
    start = max(one.start, other.start)
    return range(start, max(start, min(one.stop, other.stop)))


def _cut(whole: range, length: int) -> Iterator[range]:
    """Parts of a range, of so many at most."""
    for first in range(whole.start, whole.stop, length):
        yield range(first, min(first + length, whole.stop))


def _turns(index: int, period: int, among: range) -> Iterator[int]:
    """Where an index comes, again after every period."""
    if not period:
        yield from (index,) * (index in among)
        return
    yield from (place for place in among if (place - index) % period == 0)


def _memory(address: int, nbytes: int) -> Any:
    return (ctypes.c_char * nbytes).from_address(address)


def _int64s(address: int, count: int) -> NDArray[np.int64]:
    return np.frombuffer(_memory(address, 8 * count), np.int64)


def _doubles(address: int, count: int) -> NDArray[np.float64]:
    return np.frombuffer(_memory(address, 8 * count), np.float64)
