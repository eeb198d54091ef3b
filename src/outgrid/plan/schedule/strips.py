"""Strips: planes too large for the window pass through it in several trips, some rows at a time.

Stage j of step t of strip k owns the rows ``[Y_k, Y_k+1) - (S*t + f_j)``, a parallelogram that
leans towards lower rows as the stream leans along the planes: ``S`` and the shifts ``f_j`` are skew
and shifts of the stencil along the rows. What it reads on lower rows was computed by strip k - 1:
when a plane retires, the rows that the next strip still needs stand in the rings as a staircase,
one contiguous block of rows per ring. They are written as they are to a *seam* and come back, to
the same rows, in the trip of the next strip. Nothing is computed twice; for one symmetric stage a
sweep writes and reads ``2*S*depth`` rows per plane and border more; see `plan.schedule.seam`.

A grid that passes in one piece is one strip of so many rows that it ends beyond the last.

Where the rows close to a circle, the first strip leans inwards at both ends and the last one
outwards: row ``rows + y`` is row y again. What the first one leaves at its lower end, a staircase
that rises inwards, is a seam too, and comes round in the trip of the last.
"""

from __future__ import annotations

import msgspec

from outgrid.plan.schedule.skew import Skew
from outgrid.plan.schedule.trip import Trip


class Strips(msgspec.Struct, frozen=True):
    """How the ``rows`` of a plane are cut into strips of ``height`` rows.

    ``fall`` says how their borders move: so nothing is read at rows that come later, and nothing is
    overwritten that is still read. Steps read and write no more than ``reach`` rows beyond those of
    a strip and their own skew. On a ``circle`` the strips are as many as their height goes into the
    rows; the first begins, and the last ends, with an edge that moves as ``rise`` says. The first
    reaches farther and the last less, by the rows that lie in the window beside what a strip owns.
    Windows begin with a group of ``unit`` rows; heights and skews are such groups.
    """

    rows: int
    height: int
    fall: Skew
    rise: Skew
    reach: int
    circle: bool = False
    unit: int = 1

    def lean(self, depth: int) -> int:
        """Rows by which the last stage of a sweep of ``depth`` steps trails the border."""
        return self.fall.per_step * depth + max(self.fall.shifts)

    def count(self, depth: int) -> int:
        """Strips of a sweep of ``depth`` steps; the first and the last of them do less."""
        return -(-(self.rows + (0 if self.circle else self.lean(depth))) // self.height)

    def beside(self, depth: int) -> int:
        """Rows below those of a strip that its steps reach, or beyond the last one of a circle."""
        steepest = max(self.fall.per_step, self.rise.per_step if self.circle else 0)
        return steepest * depth + self.reach

    def closes(self, depth: int) -> bool:
        """Whether strips go round a circle: what lies beside two borders has to be apart."""
        least = self.beside(depth)
        whole = not self.circle or self.count(depth) < 2
        return whole or (self.height >= least and self.rows >= 2 * least)

    def extent(self, depth: int) -> int:
        """Rows that trips speak of: those of the grid, and the first ones again on a circle."""
        again = self.circle and self.count(depth) > 1
        return self.rows + (self.beside(depth) if again else 0)

    def cells(self, depth: int, strip: int) -> range:
        """The rows of a strip where no step has moved its ends; the last one's may lie beyond."""
        count = self.count(depth)
        low, high = strip * self.height, (strip + 1) * self.height
        if self.circle and count > 1:
            beside = self.beside(depth)
            low = min(low + beside, self.rows) if strip > 0 else 0
            high = min(high + beside, self.rows) if strip + 1 < count else self.rows
        return range(low, high)

    def window_rows(self, depth: int) -> int:
        """Rows of a plane that the window holds for sweeps of up to ``depth`` steps."""
        return min(self.extent(depth), self.height + self.beside(depth))

    def origin(self, trip: Trip, window_rows: int) -> int:
        """The row of the grid in row 0 of the window's planes."""
        lowest = trip.rows.low - self.beside(trip.depth)
        extent, held = (-(-n // self.unit) for n in (self.extent(trip.depth), window_rows))
        return max(0, min(lowest, (extent - held) * self.unit))
