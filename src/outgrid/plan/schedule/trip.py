"""Trips: which planes and rows each step updates while a part of the grid is in the window."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TypeVar, overload

import msgspec

Kept = TypeVar("Kept")

RECENT_TRIPS = 8  # kept: a slab asks several times for the same few


class Span(msgspec.Struct, frozen=True):
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

    def at(self, step: int, extent: int, stage: int = 0, first: int = 0) -> range:
        """What a stage of ``step`` covers of planes or rows from ``first`` up to ``extent``."""
        below, above = self.ends(stage)
        low, high = self.low + self.rise * step, self.high + self.fall * step
        return clip(low + below, high + above, extent, first)

    def ends(self, stage: int) -> tuple[int, int]:
        """How much higher both ends of a stage lie."""
        below = self.shifts[stage] if self.shifts else 0
        return below, self.upper[stage] if self.upper else below


class Trip(msgspec.Struct, frozen=True):
    """One passage of a part of the grid through the window, ``depth`` steps deep.

    A sweep is a sequence of trips, numbered by ``part``; ``done`` steps were made before it. Step t
    of the trip updates ``rows`` of ``planes`` at t.
    """

    index: int
    sweep: int
    part: int
    done: int
    depth: int
    planes: Span
    rows: Span


class Trips(Sequence[Trip]):
    """All trips of a run, in order, each made when it is asked for: runs may have very many.

    A sweep of ``depth`` steps has ``parts(depth)``, each of which covers the planes and rows
    ``spans(sweep, part, depth)``. Of the first sweep those before ``begun`` are left out.
    """

    def __init__(
        self,
        depths: Sequence[int],
        parts: Callable[[int], int],
        spans: Callable[[int, int, int], tuple[Span, Span]],
        begun: int = 0,
    ) -> None:
        self._depths, self._spans = depths, spans
        self._recent: dict[int, Trip] = {}
        counts = {depth: parts(depth) for depth in set(depths)}
        self._done = array("q", accumulate(depths, initial=0))
        # The index of part 0 of each sweep, and of one more.
        self._firsts = array("q", accumulate((counts[deep] for deep in depths), initial=-begun))

    def number(self, sweep: int, part: int) -> int:
        """The index of a part of a sweep, below 0 for those that are left out.

        That of part 0 of the sweep after the last is the number of all trips.
        """
        return self._firsts[sweep] + part

    def __len__(self) -> int:
        return max(0, self._firsts[-1])

    @overload
    def __getitem__(self, index: int) -> Trip: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Trip, ...]: ...
    def __getitem__(self, index: int | slice) -> Trip | tuple[Trip, ...]:
        if isinstance(index, int) and (known := self._recent.get(index)) is not None:
            return known
        numbers = range(len(self))[index]
        return self._make(numbers) if isinstance(numbers, int) else tuple(map(self._make, numbers))

    def _make(self, index: int) -> Trip:
        known = self._recent.get(index)
        if known is not None:
            return known
        sweep = bisect_right(self._firsts, index) - 1
        part, depth = index - self._firsts[sweep], self._depths[sweep]
        spans = self._spans(sweep, part, depth)
        trip = Trip(index, sweep, part, self._done[sweep], depth, *spans)
        return remember(self._recent, index, trip)


def remember(recent: dict[int, Kept], index: int, value: Kept) -> Kept:
    """Keep what belongs to a trip beside that of the last few others. Threads may ask at once."""
    for old in list(recent)[: 1 - RECENT_TRIPS]:  # a copy, made in one go
        recent.pop(old, None)
    recent[index] = value
    return value


def mirrored(cells: range, extent: int) -> range:
    """``cells`` of an axis of ``extent`` cells, counted from its other end."""
    return range(extent - cells.stop, extent - cells.start)


def clip(low: int, high: int, extent: int, first: int = 0) -> range:
    """[low, high) as far as it lies in [first, extent)."""
    low = max(first, min(low, extent))
    return range(low, max(low, min(high, extent)))


def pieces(cells: range, extent: int) -> Iterator[range]:
    """``cells`` cut where the first ones of an axis of ``extent`` cells come again."""
    for turn in range(cells.start // extent * extent, cells.stop, extent):
        part = range(max(cells.start, turn), min(cells.stop, turn + extent))
        if part:
            yield part


class Point(msgspec.Struct, frozen=True, order=True):
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
