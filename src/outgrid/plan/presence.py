"""Which parts of a grid have fields that exist in a region only, and what reads them."""

from __future__ import annotations

from functools import reduce
from math import gcd, lcm

import msgspec
import numpy as np
from numpy.typing import NDArray

from outgrid.plan.layout import ITEM_BYTES, LINE_BYTES
from outgrid.plan.schedule.lifetime import ring_count, row_unit
from outgrid.plan.schedule.rings import Bands
from outgrid.stencil.problem import Problem
from outgrid.stencil.region import kept_in_columns, kinds_of_regions, regional
from outgrid.units import BLOCK_BYTES

__all__ = ["Presence", "column_bands", "nearest_rows", "row_bands"]

MOST_PARTS = 32  # of an axis, and MOST_CELLS of the grid: beyond them all cells count as inside
MOST_CELLS = 1 << 12
MOST_FIELDS = 54  # one bit for each
# Rows of a field are kept apart from others where they are at most such a share of all rows, and
# columns as well.
WORTH_KEEPING_APART = 0.75


class Presence(msgspec.Struct, frozen=True):
    """The grid cut at the ends of regions, and what is there in which part.

    ``cuts`` are where the parts of each axis begin. A field is ``near`` in a part if the stencil
    reads it there, and of each of the ``kinds`` of fields, see `kinds_of_regions`, all are absent
    or none. Columns are cut at whole lines, rows between folded ones.
    """

    shape: tuple[int, ...]
    cuts: tuple[tuple[int, ...], ...]
    near: dict[str, NDArray[np.bool_]]
    kinds: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, problem: Problem, whole: Problem | None = None) -> Presence | None:
        """That of a problem; None where all cells count as inside of all regions.

        A problem on the first planes, rows and columns of a ``whole`` one has its regions.
        """
        names = [*regional(problem.stencil)]
        regions = (whole or problem).regions
        if not names or len(names) > MOST_FIELDS or not regions.keys() >= {*names}:
            return None
        boxes = {name: [_Box.near(problem, box) for box in regions[name]] for name in names}
        every = [box for found in boxes.values() for box in found]
        cuts = tuple(_cuts(problem, axis, every) for axis in range(problem.ndim))
        lengths = [len(cut) for cut in cuts]
        if max(lengths) > MOST_PARTS or np.prod(lengths) > MOST_CELLS:
            return None
        near = {name: np.any([box.parts(cuts) for box in boxes[name]], axis=0) for name in names}
        return cls(problem.shape, cuts, near, kinds_of_regions(problem.stencil))

    def absent(self, kind: tuple[str, ...]) -> NDArray[np.bool_]:
        """The parts that have no fields of a kind."""
        return ~np.any([self.near[name] for name in kind], axis=0)

    def along(self, field: str, axis: int) -> list[range]:
        """The indices of an axis at which a field is updated, as others of its kind are."""
        kind = next(kind for kind in self.kinds if field in kind)
        others = tuple(n for n in range(len(self.cuts)) if n != axis)
        there: NDArray[np.bool_] = np.any(~self.absent(kind), axis=others)
        ends = (*self.cuts[axis], self.shape[axis])
        return [range(ends[n], ends[n + 1]) for n in np.flatnonzero(there).tolist()]


def row_bands(problem: Problem) -> dict[str, Bands]:
    """The rows of fields that exist in some only, where those alone are to be read and kept.

    That is so of fields that are updated in place: what others have in fixed layers is copied from
    level to level. Of planes that move straight between file and window whole blocks are read.
    """
    stencil = problem.stencil
    if problem.ndim != 3 or problem.transposed or problem.edges.periodic(1) or stencil.recomputed:
        return {}
    presence = Presence.of(problem)
    if presence is None:
        return {}
    bands: dict[str, Bands] = {}
    for name in presence.near:
        if ring_count(stencil.field(name), stencil) > 1:
            continue
        row_bytes, rows, unit = problem.row_bytes(name), problem.shape[1], row_unit(stencil)
        if row_bytes % LINE_BYTES == 0 and rows * row_bytes % BLOCK_BYTES == 0:
            unit = lcm(unit, BLOCK_BYTES // gcd(BLOCK_BYTES, row_bytes))
        kept = _in_units(presence.along(name, 1), unit, rows)
        if sum(end - first for first, end in kept) <= WORTH_KEEPING_APART * rows:
            bands[name] = kept
    return bands


def column_bands(problem: Problem) -> tuple[dict[str, Bands], int]:
    """The columns of fields that exist in some only, where those alone are to be kept.

    With them the cells from row to row. That is so of all fields that `kept_in_columns` has or of
    none: of such that are updated in place, and that nobody looks at but the updates.
    """
    stencil, columns = problem.stencil, problem.shape[-1]
    names = kept_in_columns(stencil, problem.edges)
    seen = (*problem.sources, *problem.receivers, *problem.snapshots)
    if not names or problem.transposed or names & {one.field for one in seen}:
        return {}, columns
    presence = Presence.of(problem)
    if presence is None or any(ring_count(stencil.field(name), stencil) > 1 for name in names):
        return {}, columns
    parts = {name: presence.along(name, 2) for name in sorted(names)}
    bands = {name: _in_units(there, 1, columns) for name, there in parts.items()}
    boxes = (box[2] for name in names for box in problem.regions[name])
    filled = _in_units(sorted(boxes, key=lambda part: part.start), 1, columns)
    (alike, *others), reach = {*bands.values()}, stencil.radius[2]
    apart = columns if others else nearest_rows(alike, filled, reach, columns, problem.dtype)
    return (bands, apart) if apart <= WORTH_KEEPING_APART * columns else ({}, columns)


def nearest_rows(bands: Bands, filled: Bands, reach: int, columns: int, dtype: str) -> int:
    """The fewest cells from row to row at which rows lie in whole lines, kept in ``bands`` alone.

    Rows are longer than that: what one has in a band lies between the bands of others. A cell up to
    ``reach`` beyond a band is read as well, where another row may have a cell of its own: one that
    is +0, as all are that are not ``filled``.
    """
    line = LINE_BYTES // ITEM_BYTES[dtype]
    whole = -(-columns // line)
    lines = {n for first, end in bands for n in range(first // line, -(-end // line))}
    cells = {at for first, end in filled for at in range(first, end)}
    beyond = {at for first, _ in bands if first for at in range(first - reach, first)}
    beyond |= {at for _, end in bands if end < columns for at in range(end, end + reach)}
    beyond -= {at for first, end in bands for at in range(first, end)}

    def fits(apart: int) -> bool:
        held, stride = {at % apart for at in lines}, apart * line
        there = {at % stride for at in cells}
        return len(held) == len(lines) and there.isdisjoint(at % stride for at in beyond)

    return line * next(filter(fits, range(len(lines), whole)), whole)


def _in_units(parts: list[range], unit: int, extent: int) -> Bands:
    """Parts of an axis, in order, made wider to whole units; those that meet are one."""
    wide: list[tuple[int, int]] = []
    for part in parts:
        first, end = part.start // unit * unit, min(extent, -(-part.stop // unit) * unit)
        if wide and first <= wide[-1][1]:
            first, _ = wide.pop()
        wide.append((first, end))
    return tuple(wide)


class _Box(msgspec.Struct, frozen=True):
    """Cells from which a stencil may read those of a box of a region, by axis."""

    extents: tuple[int, ...]
    along: tuple[tuple[range, ...], ...]

    @classmethod
    def near(cls, problem: Problem, box: tuple[range, ...]) -> _Box:
        """Those of a problem."""
        along = (_near(problem, part, axis) for axis, part in enumerate(box))
        return cls(problem.shape, tuple(tuple(ranges) for ranges in along))

    def parts(self, cuts: tuple[tuple[int, ...], ...]) -> NDArray[np.bool_]:
        """Which parts of the grid have some of them."""
        touched = [
            np.any([[False] * len(cut), *(_touched(p, cut, extent) for p in ranges)], axis=0)
            for ranges, cut, extent in zip(self.along, cuts, self.extents, strict=True)
        ]
        return reduce(np.logical_and.outer, touched)


def _cuts(problem: Problem, axis: int, boxes: list[_Box]) -> tuple[int, ...]:
    """Where an axis is cut, 0 included."""
    ends = {end for box in boxes for part in box.along[axis] for end in (part.start, part.stop)}
    whole = LINE_BYTES // ITEM_BYTES[problem.dtype] if axis + 1 == problem.ndim else 1
    if problem.ndim == 3 and axis == 1:
        whole = row_unit(problem.stencil)
    ends = {cut for end in ends for cut in (end // whole * whole, -(-end // whole) * whole)}
    return tuple(sorted({0, *(end for end in ends if 0 < end < problem.shape[axis])}))


def _near(problem: Problem, part: range, axis: int) -> list[range]:
    """The indices at which a stencil may read those of a region; round a circle in two parts."""
    extent, radius = problem.shape[axis], problem.stencil.radius[axis]
    low, high = part.start - radius, part.stop + radius
    turns = (-extent, 0, extent) if problem.edges.periodic(axis) else (0,)
    both = (range(max(0, low + turn), min(extent, high + turn)) for turn in turns)
    return [one for one in both if one]


def _touched(part: range, cuts: tuple[int, ...], extent: int) -> list[bool]:
    """Which parts of an axis have some of a range."""
    ends = [*cuts[1:], extent]
    return [first < part.stop and part.start < end for first, end in zip(cuts, ends, strict=True)]
