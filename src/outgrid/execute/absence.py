"""Where no field exists that exists in a region only, as the table that a kernel reads."""

from __future__ import annotations

from enum import IntEnum
from functools import reduce
from itertools import product

import msgspec
import numpy as np
from numpy.typing import NDArray

from outgrid.plan.layout import ITEM_BYTES, LINE_BYTES
from outgrid.plan.model import Plan
from outgrid.plan.schedule.lifetime import row_unit
from outgrid.stencil.problem import Problem
from outgrid.stencil.recomputed import far_from_faces
from outgrid.stencil.region import KIND_BITS, kinds_of_regions, regional

__all__ = ["NOWHERE_ABSENT", "Absence"]

MOST_PARTS = 32  # of an axis, and MOST_CELLS of the grid: beyond them all cells count as inside
MOST_CELLS = 1 << 12
MOST_FIELDS = 54  # one bit for each


class Remains(IntEnum):
    """Where a window may hold what it held of other cells when new ones come to their place."""

    NOWHERE = 0  # each cell has its own
    PLANES = 1  # other planes have come and gone, with the same rows and columns
    ROWS = 2  # other rows too

    @classmethod
    def of(cls, plan: Plan) -> Remains:
        """That of the window of a plan."""
        schedule = plan.schedule
        if schedule.resident:
            return cls.NOWHERE
        return cls.PLANES if schedule.whole_planes else cls.ROWS


class Absence(msgspec.Struct, frozen=True):
    """The grid cut at the ends of regions, and what is absent in which part.

    A kind of fields is absent in a part where the stencil reads none of them. Columns are cut at
    whole lines, rows between folded ones. ``parts`` are how many there are of planes, rows and
    columns. The ``tables`` are for each kind of remains: cuts, then for each part a bit for each of
    `kinds_of_regions` that is absent there, and from bit KIND_BITS on which fields have to be
    cleared, as in `regional`. The tables after these are for windows in which one plane of +0
    stands for all planes in which a
    field does not exist: nothing is cleared there.
    """

    tables: tuple[NDArray[np.int64], ...] = ()
    parts: tuple[int, int, int] = (0, 0, 0)

    @classmethod
    def of(cls, problem: Problem, whole: Problem | None = None) -> Absence:
        """That of a problem, in the order z, y, x; a grid of two axes has one row.

        A problem on the first planes, rows and columns of a ``whole`` one has its regions.
        """
        if problem.stencil.recomputed:
            return cls._of_recomputed(problem)
        names = [*regional(problem.stencil)]
        regions = (whole or problem).regions
        if not names or len(names) > MOST_FIELDS or not regions.keys() >= {*names}:
            return cls()
        near = {name: [_Box.near(problem, box) for box in regions[name]] for name in names}
        every = [box for boxes in near.values() for box in boxes]
        cuts = [_cuts(problem, axis, every) for axis in range(problem.ndim)]
        lengths = [len(cut) for cut in cuts]
        if max(lengths) > MOST_PARTS or np.prod(lengths) > MOST_CELLS:
            return cls()
        inside = {name: np.any([box.parts(cuts) for box in near[name]], axis=0) for name in names}
        kinds = kinds_of_regions(problem.stencil)
        outside = [~np.any([inside[name] for name in kind], axis=0) for kind in kinds]
        tables: list[NDArray[np.int64]] = []
        across = tuple(range(1, problem.ndim))
        for banded, remains in product((False, True), Remains):
            flags = np.zeros(lengths, np.int64)
            for number, (kind, away) in enumerate(zip(kinds, outside, strict=True)):
                flags |= away.astype(np.int64) << number
                for name in kind:
                    axes = tuple(range(problem.ndim - 1))[:remains]
                    dirty = inside[name].any(axis=axes, keepdims=True) if axes else np.False_
                    if banded:
                        dirty = dirty & inside[name].any(axis=across, keepdims=True)
                    flags |= (away & dirty).astype(np.int64) << KIND_BITS + names.index(name)
            tables.append(_table(cuts, flags))
        return cls(tuple(tables), _parts(lengths))

    @classmethod
    def _of_recomputed(cls, problem: Problem) -> Absence:
        """That of a problem that computes temporaries again: a bit for each stage that does so."""
        far = far_from_faces(problem.stencil, problem.edges, problem.shape)
        if not any(far):
            return cls()
        cuts = [
            sorted({0, *(end for box in far if box for end in _ends(box[axis], extent))})
            for axis, extent in enumerate(problem.shape)
        ]
        lengths = [len(cut) for cut in cuts]
        flags = np.zeros(lengths, np.int64)
        for stage, box in enumerate(far):
            if box:
                within = [
                    [first in part for first in cut] for part, cut in zip(box, cuts, strict=True)
                ]
                flags |= reduce(np.logical_and.outer, within).astype(np.int64) << stage
        return cls((_table(cuts, flags),) * 2 * len(Remains), _parts(lengths))

    def members(self, plan: Plan) -> dict[str, int]:
        """What a call of a kernel has of it."""
        if not self.tables:
            return {}
        names = ("region_planes", "region_rows", "region_columns")
        sizes = zip(names, self.parts, strict=True)
        banded = any(ring.within is not None for ring in plan.schedule.rings)
        chosen = self.tables[banded * len(Remains) + Remains.of(plan)]
        return {"region_parts": chosen.ctypes.data, **dict(sizes)}


class _Box(msgspec.Struct, frozen=True):
    """Cells from which a stencil may read those of a box of a region, by axis."""

    extents: tuple[int, ...]
    along: tuple[tuple[range, ...], ...]

    @classmethod
    def near(cls, problem: Problem, box: tuple[range, ...]) -> _Box:
        """Those of a problem."""
        along = (_near(problem, part, axis) for axis, part in enumerate(box))
        return cls(problem.shape, tuple(tuple(ranges) for ranges in along))

    def parts(self, cuts: list[list[int]]) -> NDArray[np.bool_]:
        """Which parts of the grid have some of them."""
        touched = [
            np.any([[False] * len(cut), *(_touched(p, cut, extent) for p in ranges)], axis=0)
            for ranges, cut, extent in zip(self.along, cuts, self.extents, strict=True)
        ]
        return reduce(np.logical_and.outer, touched)


def _cuts(problem: Problem, axis: int, boxes: list[_Box]) -> list[int]:
    """Where an axis is cut, 0 included."""
    ends = {end for box in boxes for part in box.along[axis] for end in (part.start, part.stop)}
    whole = LINE_BYTES // ITEM_BYTES[problem.dtype] if axis + 1 == problem.ndim else 1
    if problem.ndim == 3 and axis == 1:
        whole = row_unit(problem.stencil)
    ends = {cut for end in ends for cut in (end // whole * whole, -(-end // whole) * whole)}
    return sorted({0, *(end for end in ends if 0 < end < problem.shape[axis])})


def _near(problem: Problem, part: range, axis: int) -> list[range]:
    """The indices at which a stencil may read those of a region; round a circle in two parts."""
    extent, radius = problem.shape[axis], problem.stencil.radius[axis]
    low, high = part.start - radius, part.stop + radius
    turns = (-extent, 0, extent) if problem.edges.periodic(axis) else (0,)
    both = (range(max(0, low + turn), min(extent, high + turn)) for turn in turns)
    return [one for one in both if one]


def _ends(part: range, extent: int) -> list[int]:
    """The ends of a range that lie within an axis."""
    return [end for end in (part.start, part.stop) if 0 < end < extent]


def _parts(lengths: list[int]) -> tuple[int, int, int]:
    """How many parts there are of planes, rows and columns."""
    planes, *rows, columns = lengths
    return planes, rows[0] if rows else 1, columns


def _table(cuts: list[list[int]], flags: NDArray[np.int64]) -> NDArray[np.int64]:
    """What a kernel reads: where each axis is cut, then the flags of the parts."""
    table = [*map(np.asarray, cuts), flags.ravel()]
    if len(cuts) == 2:
        table.insert(1, np.zeros(1))
    return np.concatenate(table).astype(np.int64)


def _touched(part: range, cuts: list[int], extent: int) -> list[bool]:
    """Which parts of an axis have some of a range."""
    ends = [*cuts[1:], extent]
    return [first < part.stop and part.start < end for first, end in zip(cuts, ends, strict=True)]


NOWHERE_ABSENT = Absence()
