"""Strips: planes too large for the window pass through it in several trips, some rows at a time.

Strip k of a sweep owns the rows ``[Y_k, Y_k+1) - skew*t`` of level t, a parallelogram that leans
towards lower rows by ``skew`` per step, as the stream leans along the planes. What it reads on
lower rows was computed by strip k - 1: when a plane retires, the rows that the next strip still
needs stand in the rings as a staircase, one contiguous block of rows per ring. They are written as
they are to a *seam* and come back, to the same rows, in the trip of the next strip. Nothing is
computed twice; a sweep writes and reads about ``2*skew*depth`` rows per plane and border more.

A grid that passes in one piece is one strip of ``rows + skew*depth`` rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from outgrid.plan.trip import Span, Trip, clip


@dataclass(frozen=True, slots=True)
class Strips:
    """How the ``rows`` of a plane are cut into strips of ``height`` rows.

    ``skew`` is the number of rows by which a step leans, the radius along the rows: so nothing is
    read at rows that come later, and nothing is overwritten that is still read.
    """

    rows: int
    height: int
    skew: int

    @classmethod
    def whole(cls, rows: int, skew: int, depth: int) -> Strips:
        """One strip, for sweeps of up to ``depth`` steps."""
        return cls(rows, rows + skew * depth, skew)

    def count(self, depth: int) -> int:
        """Strips of a sweep of ``depth`` steps; the first and the last of them do less."""
        return -(-(self.rows + self.skew * depth) // self.height)

    def trips(self, depths: tuple[int, ...], planes: int) -> tuple[Trip, ...]:
        """All trips of a run over ``planes`` planes, in order."""
        found: list[Trip] = []
        whole = Span(0, planes)
        for sweep, depth in enumerate(depths):
            for strip in range(self.count(depth)):
                low = strip * self.height
                rows = Span(low, low + self.height, -self.skew, -self.skew)
                found.append(Trip(len(found), sweep, strip, depth, whole, rows))
        return tuple(found)

    def window_rows(self, depth: int) -> int:
        """Rows of a plane that the window holds for sweeps of up to ``depth`` steps."""
        return min(self.rows, self.height + self.skew * (depth + 1))

    def origin(self, trip: Trip, window_rows: int) -> int:
        """The row of the grid in row 0 of the window's planes."""
        lowest = trip.rows.low - self.skew * (trip.depth + 1)
        return max(0, min(lowest, self.rows - window_rows))

    def owned(self, trip: Trip, lag: int) -> range:
        """The rows of a trip for what trails it by ``lag`` rows: ``skew*t`` for level t."""
        return self.clip(trip.rows.low - lag, trip.rows.high - lag)

    def constant(self, trip: Trip, lag: int) -> range:
        """Rows of a coefficient that all steps of a trip read; those of two strips overlap."""
        return self.clip(trip.rows.low - self.skew * (trip.depth + 1), trip.rows.high - lag)

    def owners(self, depth: int, lag: int, rows: range) -> range:
        """Strips of a sweep of ``depth`` steps that own some of ``rows`` for a ``lag``."""
        if not rows:
            return range(0)
        first, last = rows.start + lag, rows.stop - 1 + lag
        return range(first // self.height, min(last // self.height + 1, self.count(depth)))

    def seam(self, depth: int, leads: Mapping[int, int], rings: int, index: int) -> tuple[int, int]:
        """(most, least) rows below the border of two strips between which a ring holds a seam.

        Version v of a field stays in the rows below the border until version ``v + rings``
        overwrites it ``skew*rings`` rows lower; the strip above the border reads it there.
        ``leads`` are the lags of the versions that arrive, 0 and -1.
        """
        versions = [v for v in range(min(leads, default=depth), depth) if v % rings == index]
        if not versions:
            return 0, 0
        least = leads.get(versions[0], self.skew * versions[0])
        most = min(self.skew * (versions[-1] + rings), self.skew * (depth + 1))
        return max(most, least), least

    def clip(self, low: int, high: int) -> range:
        """Rows [low, high) that lie in the grid."""
        return clip(low, high, self.rows)
