"""Intervals of an axis, and the kinds of end that they have.

A trip covers an interval of each axis. At a `Wall` the grid ends: steps cover all up to it. An end
that is to `Lean` moves from step to step, and what it leaves there, or lacks, goes through a seam.
One that is to `Shrink` has a halo of cells that others compute as well, of which steps cover less
and less. What differs between grids, ranks, strips and blocks is which ends they have.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec.structs import replace

from outgrid.plan.schedule.seam import Seam
from outgrid.plan.schedule.skew import UPRIGHT, Halo, Skew
from outgrid.plan.schedule.trip import Span, clip, mirrored

STREAMED, ACROSS = AXES = 0, 1
"""The axes that grids are cut across: planes pass along the one, strips lie along the other."""


class Wall(msgspec.Struct, frozen=True):
    """The grid ends here."""

    seam: ClassVar[Seam | None] = None
    halo: ClassVar[int] = 0  # cells beyond that files of a level hold
    beyond: ClassVar[int] = 0  # of coefficients
    touched: ClassVar[int] = 0  # cells beyond that steps read or write

    def moves(self, *, above: bool) -> tuple[int, Skew]:
        """How far beyond the interval the end begins, and how it moves upwards."""
        del above
        return 0, UPRIGHT

    def edge(self, field: str, version: int) -> int:
        """How far beyond the interval a version is had from files, or left there."""
        del field, version
        return 0


class Lean(msgspec.Struct, frozen=True):
    """What lies beyond goes through a ``seam``, given or ``taken``.

    Who takes it reads ``beyond`` cells of coefficients more.
    """

    seam: Seam
    taken: bool
    beyond: int
    halo: ClassVar[int] = 0

    @property
    def touched(self) -> int:
        """Cells beyond that steps read or write."""
        return self.seam.reach if self.taken else 0

    def moves(self, *, above: bool) -> tuple[int, Skew]:
        """How far beyond the interval the end begins, and how it moves upwards."""
        del above
        return 0, self.seam.moves

    def edge(self, field: str, version: int) -> int:
        """How far beyond the interval a version is had from files, or left there.

        Files of what lies beyond a cut between ranks are elsewhere.
        """
        if self.taken and self.seam.cut is not None:
            return 0
        return self.seam.width(field, version) * (1 if self.taken else -1)


class Shrink(msgspec.Struct, frozen=True):
    """Others compute cells beyond as well, as many as sweeps of ``depth`` steps need.

    Each step covers ``per_step`` of them less, and its stages ``shifts`` more than the last one.
    """

    depth: int
    per_step: int
    halo: int
    shifts: tuple[int, ...]
    seam: ClassVar[Seam | None] = None

    @property
    def beyond(self) -> int:
        """Cells beyond that files of coefficients hold."""
        return self.halo

    @property
    def touched(self) -> int:
        """Cells beyond that steps read or write."""
        return self.halo

    def moves(self, *, above: bool) -> tuple[int, Skew]:
        """How far beyond the interval the end begins, and how it moves upwards."""
        up = 1 if above else -1
        shifts = tuple(up * shift for shift in self.shifts)
        return self.per_step * self.depth, Skew(-up * self.per_step, shifts)

    def edge(self, field: str, version: int) -> int:
        """How far beyond the interval a version is left in files."""
        del field, version
        return 0


End = Wall | Lean | Shrink
WALL = Wall()


class Interval(msgspec.Struct, frozen=True):
    """The ``cells`` of an axis that a trip is about, and what its two ends are.

    The axis has ``extent`` cells: those of the grid, and the first ones again where they come
    round. Amid a ring of ranks, and of blocks of an axis that closes, the last ones are there again
    before the first, from ``first`` on.
    """

    cells: range
    extent: int
    below: End = Wall()
    above: End = Wall()
    first: int = 0

    @property
    def stored(self) -> range:
        """The cells of levels that evolve which files hold for it."""
        return self._with(self.below.halo, self.above.halo)

    @property
    def read(self) -> range:
        """The cells that come from files, those of coefficients among them."""
        return self._with(self.below.beyond, self.above.beyond)

    @property
    def touched(self) -> range:
        """The cells that steps read or write."""
        return self._with(self.below.touched, self.above.touched)

    @property
    def shrinks(self) -> bool:
        """Whether others compute some of what it covers as well."""
        return isinstance(self.below, Shrink) or isinstance(self.above, Shrink)

    def arriving(self, field: str, level: int) -> range:
        """The cells of a level that come from its file."""
        below, above = (end.halo + end.edge(field, level) for end in (self.below, self.above))
        return self._with(below, above)

    def coefficients(self, field: str) -> range:
        """The cells of a coefficient that come from its file: all that steps read of it."""
        below, above = (end.beyond or end.edge(field, 0) for end in (self.below, self.above))
        return self._with(below, above)

    def leaving(self, field: str, version: int) -> range:
        """The cells of a version that go to its file."""
        return self._with(self.below.edge(field, version), self.above.edge(field, version))

    def _with(self, below: int, above: int) -> range:
        """The cells and so many more beyond its ends, as far as the axis goes."""
        return clip(self.cells.start - below, self.cells.stop + above, self.extent, self.first)

    @property
    def span(self) -> Span:
        """What the stages of each step cover."""
        below, rise = self.below.moves(above=False)
        above, fall = self.above.moves(above=True)
        still = (0,) * max(len(rise.shifts), len(fall.shifts))
        low, high = self.cells.start - below, self.cells.stop + above
        shifts = rise.shifts or still, fall.shifts or still
        return Span(low, high, rise.per_step, fall.per_step, *shifts)

    def covered(self, step: int, stage: int = 0) -> range:
        """What a stage of a step covers."""
        return self.span.at(step, self.extent, stage, self.first)

    def mirrored(self) -> Interval:
        """The same, counted from the other end of the axis."""
        cells = mirrored(self.cells, self.extent)
        return replace(self, cells=cells, below=self.above, above=self.below)


def shrinking(cells: range, extent: int, depth: int, halo: Halo, *, ring: bool = False) -> Interval:
    """An interval with a ``halo`` for sweeps of ``depth`` steps wherever the grid goes on.

    Round a ``ring`` it does so everywhere.
    """
    below, above = ring or cells.start > 0, ring or cells.stop < extent
    beyond = halo.per_step, halo.cells(depth) if below or above else 0
    return Interval(
        cells,
        2 * extent if ring else extent,
        Shrink(depth, *beyond, halo.below) if below else WALL,
        Shrink(depth, *beyond, halo.above) if above else WALL,
        -extent if ring else 0,
    )
