"""Strips: planes too large for the window pass through it in several trips, some rows at a time.

Strip k of a sweep owns the rows ``[Y_k, Y_k+1) - skew*t`` of level t, a parallelogram that leans
towards lower rows by ``skew`` per step, as the stream leans along the planes. What it reads on
lower rows was computed by strip k - 1: when a plane retires, the rows that the next strip still
needs stand in the rings as a staircase, one contiguous block of rows per ring. They are written as
they are to a *seam* and come back, to the same rows, in the trip of the next strip. Nothing is
computed twice; a sweep writes and reads about ``2*skew*depth`` rows per plane and border more.

A grid that passes in one piece is one strip of ``rows + skew*depth`` rows.

Where the rows close to a circle, the first strip leans inwards at both ends and the last one
outwards: row ``rows + y`` is row y again. What the first one leaves at its lower end, a staircase
that rises inwards, is a seam too, and comes round in the trip of the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from outgrid.plan.trip import Span, Trip, Trips, clip


@dataclass(frozen=True, slots=True)
class Strips:
    """How the ``rows`` of a plane are cut into strips of ``height`` rows.

    ``skew`` is the number of rows by which a step leans, the radius along the rows: so nothing is
    read at rows that come later, and nothing is overwritten that is still read. On a ``circle`` the
    strips are as many as their height goes into the rows; the first reaches farther and the last
    less, by the rows that lie in the window beside what a strip owns.
    """

    rows: int
    height: int
    skew: int
    circle: bool = False

    @classmethod
    def whole(cls, rows: int, skew: int, depth: int) -> Strips:
        """One strip, for sweeps of up to ``depth`` steps."""
        return cls(rows, rows + skew * depth, skew)

    def count(self, depth: int) -> int:
        """Strips of a sweep of ``depth`` steps; the first and the last of them do less."""
        return -(-(self.rows + (0 if self.circle else self.skew * depth)) // self.height)

    def beside(self, depth: int) -> int:
        """Rows below those of a strip that its steps reach."""
        return self.skew * (depth + 1)

    def closes(self, depth: int) -> bool:
        """Whether strips go round a circle: what lies beside two borders has to be apart."""
        least = self.beside(depth)
        whole = not self.circle or self.count(depth) < 2
        return whole or (self.height >= least and self.rows >= 2 * least)

    def extent(self, depth: int) -> int:
        """Rows that trips speak of: those of the grid, and the first ones again on a circle."""
        again = self.circle and self.count(depth) > 1
        return self.rows + (self.beside(depth) if again else 0)

    def span(self, depth: int, strip: int) -> Span:
        """The rows of a strip, level by level."""
        low, count, down = strip * self.height, self.count(depth), -self.skew
        if self.circle and count == 1:
            return Span(0, self.rows + self.skew * depth, down, down)
        if not self.circle:
            return Span(low, low + self.height, down, down)
        first, last = strip == 0, strip == count - 1
        low, high = (
            min(low + part * self.height + self.beside(depth), self.rows) for part in (0, 1)
        )
        return Span(
            0 if first else low,
            self.rows if last else high,
            self.skew if first else down,
            self.skew if last else down,
        )

    def trips(self, depth: int, planes: int) -> Trips:
        """The trips of one sweep over ``planes`` planes, in order."""
        whole = Span(0, planes)
        return Trips((depth,), self.count, lambda _, part, depth: (whole, self.span(depth, part)))

    def window_rows(self, depth: int) -> int:
        """Rows of a plane that the window holds for sweeps of up to ``depth`` steps."""
        return min(self.extent(depth), self.height + self.beside(depth))

    def origin(self, trip: Trip, window_rows: int) -> int:
        """The row of the grid in row 0 of the window's planes."""
        lowest = trip.rows.low - self.beside(trip.depth)
        return max(0, min(lowest, self.extent(trip.depth) - window_rows))

    def owned(self, trip: Trip, lag: int, step: int = 0) -> range:
        """The rows of a trip for what trails it by ``lag`` rows, such as those of level ``step``.

        An end that leans the other way has come as far as that level.
        """
        return self._owned(trip.rows, trip.depth, lag, step)

    def _owned(self, rows: Span, depth: int, lag: int, step: int) -> range:
        low = rows.low + (rows.rise * step if rows.rise > 0 else -lag)
        high = rows.high + (rows.fall * step if rows.fall > 0 else -lag)
        return clip(low, high, self.extent(depth))

    def constant(self, trip: Trip, lag: int) -> range:
        """Rows of a coefficient that all steps of a trip read; those of two strips overlap."""
        low, high = trip.rows.low - self.beside(trip.depth), trip.rows.high - lag
        if trip.rows.fall > 0:
            high = self.extent(trip.depth)
        return clip(low, high, self.extent(trip.depth))

    def owners(self, depth: int, lag: int, step: int, rows: range) -> Iterator[int]:
        """Strips of a sweep of ``depth`` steps that own some of ``rows``; see `owned`."""
        first, last = 0, self.count(depth)
        if not self.circle:
            first = (rows.start + lag) // self.height
            last = min((rows.stop - 1 + lag) // self.height + 1, last)
        for strip in range(first, last if rows else first):
            owned = self._owned(self.span(depth, strip), depth, lag, step)
            for part in self.pieces(owned):
                beyond = part.start - part.start % self.rows
                low, high = part.start - beyond, part.stop - beyond
                if max(rows.start, low) < min(rows.stop, high):
                    yield strip
                    break

    def pieces(self, rows: range) -> Iterator[range]:
        """Rows of a trip, cut where the first ones come again."""
        for part in (
            range(rows.start, min(rows.stop, self.rows)),
            range(max(rows.start, self.rows), rows.stop),
        ):
            if part:
                yield part

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

    def beneath(self, trip: Trip, seam: tuple[int, int]) -> range:
        """Rows of a ring that the strip before left to a trip, ``seam`` being (most, least)."""
        most, least = seam
        return self.clip(trip.rows.low - most, trip.rows.low - least) if trip.part else range(0)

    def filled(self, trip: Trip, seam: tuple[int, int]) -> range:
        """Rows of a ring in which there is something once a trip has been at its first version."""
        most, least = seam
        return self.clip(trip.rows.low - most if trip.part else 0, trip.rows.high - least)

    def clip(self, low: int, high: int) -> range:
        """Rows [low, high) that lie in the grid."""
        return clip(low, high, self.rows)
