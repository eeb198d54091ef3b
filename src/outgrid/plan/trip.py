"""Trips: which planes and rows each step updates while a part of the grid is in the window."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """Planes or rows [low, high) at step 0, whose ends move by ``rise`` and ``fall`` per step.

    Step t covers ``[low + rise*t, high + fall*t)`` as far as that lies in the grid. Both slopes are
    negative for a strip that leans towards lower rows; a block whose halo shrinks has a positive
    ``rise`` and a negative ``fall``. Where there are ``shifts``, both ends of stage j lie
    ``shifts[j]`` higher, or the upper one by ``upper[j]`` where these differ.
    """

    low: int
    high: int
    rise: int = 0
    fall: int = 0
    shifts: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()

    def at(self, step: int, extent: int, stage: int = 0) -> range:
        """What a stage of ``step`` covers of a grid of ``extent`` planes or rows."""
        below, above = self.ends(stage)
        low, high = self.low + self.rise * step, self.high + self.fall * step
        return clip(low + below, high + above, extent)

    def ends(self, stage: int) -> tuple[int, int]:
        """How much higher both ends of a stage lie."""
        below = self.shifts[stage] if self.shifts else 0
        return below, self.upper[stage] if self.upper else below


@dataclass(frozen=True, slots=True)
class Trip:
    """One passage of a part of the grid through the window, ``depth`` steps deep.

    A sweep is a sequence of trips, numbered by ``part``. Step t of the trip updates ``rows`` of
    ``planes`` at t.
    """

    index: int
    sweep: int
    part: int
    depth: int
    planes: Span
    rows: Span


def mirrored(cells: range, extent: int) -> range:
    """``cells`` of an axis of ``extent`` cells, counted from its other end."""
    return range(extent - cells.stop, extent - cells.start)


def clip(low: int, high: int, extent: int) -> range:
    """[low, high) as far as it lies in [0, extent)."""
    low = max(0, min(low, extent))
    return range(low, max(low, min(high, extent)))


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """Where a restart goes on: everything that the trips before it leave is there.

    That is all of ``state``, and of the sweep after it what its first ``part`` trips leave, and the
    next one in its planes below ``planes``.
    """

    state: int = 0
    part: int = 0
    planes: int = 0

    @property
    def begun(self) -> int:
        """The last state of which anything is there."""
        return self.state + (self.part > 0 or self.planes > 0)
