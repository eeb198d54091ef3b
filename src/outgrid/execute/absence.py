"""Where no field exists that exists in a region only, as the table that a kernel reads."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import reduce
from itertools import product

import msgspec
import numpy as np
from numpy.typing import NDArray

from outgrid.plan.model import Plan
from outgrid.plan.presence import Presence
from outgrid.stencil.problem import Problem
from outgrid.stencil.recomputed import far_from_faces
from outgrid.stencil.region import KIND_BITS

__all__ = ["NOWHERE_ABSENT", "Absence"]


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
        presence = Presence.of(problem, whole)
        if presence is None:
            return cls()
        cuts, inside, kinds = presence.cuts, presence.near, presence.kinds
        lengths, names = [len(cut) for cut in cuts], [*inside]
        outside = [presence.absent(kind) for kind in kinds]
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


def _ends(part: range, extent: int) -> list[int]:
    """The ends of a range that lie within an axis."""
    return [end for end in (part.start, part.stop) if 0 < end < extent]


def _parts(lengths: list[int]) -> tuple[int, int, int]:
    """How many parts there are of planes, rows and columns."""
    planes, *rows, columns = lengths
    return planes, rows[0] if rows else 1, columns


def _table(cuts: Sequence[Sequence[int]], flags: NDArray[np.int64]) -> NDArray[np.int64]:
    """What a kernel reads: where each axis is cut, then the flags of the parts."""
    table = [*map(np.asarray, cuts), flags.ravel()]
    if len(cuts) == 2:
        table.insert(1, np.zeros(1))
    return np.concatenate(table).astype(np.int64)


NOWHERE_ABSENT = Absence()
