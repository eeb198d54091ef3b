"""Shares: what a trip leaves in seams, ring by ring, and what it finds there."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from outgrid.plan.schedule.interval import ACROSS, STREAMED
from outgrid.plan.schedule.model import Passage
from outgrid.plan.schedule.rings import Departure, Ring
from outgrid.plan.schedule.seam import Cut, Seam, SeamKey, Stair
from outgrid.plan.schedule.trip import clip


class Share(msgspec.Struct, frozen=True):
    """What a ring gives to a ``seam``, or takes from it: rows of planes, as the trip counts them.

    The cut is ``at`` a cell of the seam's axis. They lie in the place ``key``, where plane and row
    ``origin`` are the first. What is taken
    was left by trip ``giver`` in its planes ``given``; what is given to ``peer``, or taken from it,
    goes through a message.
    """

    seam: Seam
    at: int
    ring: Ring
    planes: range
    rows: range
    key: SeamKey
    origin: tuple[int, int]
    giver: int = -1
    given: range = range(0)
    peer: int | None = None

    @property
    def count(self) -> int:
        """Rows of all planes together."""
        return len(self.planes) * len(self.rows)


class Shares:
    """What the trip of a ``passage`` gives to seams, and takes from them."""

    def __init__(self, passage: Passage) -> None:
        self.passage, self.schedule, self.trip = passage, passage.of, passage.trip

    def returned(self, departure: Departure) -> Iterator[tuple[Cut, range]]:
        """Planes of a level that go over cuts between ranks to where their files are."""
        version = self.trip.depth + departure.level
        for seam, cut in self.schedule.cutting.between_ranks(self.trip.depth):
            yield cut, seam.cells(0, abs(seam.edge(departure.field, version)), cut.at)

    def given(self) -> Iterator[Share]:
        """What the trip leaves in seams, ring by ring."""
        if not self.schedule.resident:
            yield from self._at_cuts(given=True)
            yield from self._across(given=True)
            yield from self._round(given=True)

    def taken(self) -> Iterator[Share]:
        """What it finds there."""
        if not self.schedule.resident:
            yield from self._across(given=False)
            yield from self._round(given=False)
            yield from self._at_cuts(given=False)

    def _at_cuts(self, *, given: bool) -> Iterator[Share]:
        """What goes over cuts between ranks."""
        for seam, cut in self.schedule.cutting.between_ranks(self.trip.depth):
            for stair in seam.stairs if cut.given == given else ():
                planes = seam.cells(stair.low, stair.high, cut.at)
                what = seam, cut.at, self._ring(stair), planes, self.schedule.domain.owned.rows
                yield Share(*what, self._key(seam, stair), (planes.start, 0), peer=cut.peer)

    def _across(self, *, given: bool) -> Iterator[Share]:
        """What goes from strip to strip, and from the first one of a circle to the last."""
        closing = self.schedule.cutting.closing(self.trip.depth, STREAMED)
        for above in (1, 0) if given else (0, 1):
            rows = self.passage.intervals[ACROSS]
            seam = (rows.above if above else rows.below).seam
            # The strip below a border gives, but where a circle closes.
            if seam is None or given != (bool(above) != seam.closes):
                continue
            at = (self.trip.rows.low, self.trip.rows.high)[above]
            for stair in seam.stairs:
                cells = seam.cells(stair.low, stair.high, at)
                rows = clip(cells.start, cells.stop, self.passage.extents[ACROSS])
                # Planes that come round get their last steps then.
                turn = closing.stair(stair.field, stair.index).high if closing is not None else 0
                left = range(max(turn, self.passage.put_from), turn + self.schedule.planes)
                ring, where = self._ring(stair), (self._key(seam, stair, above), (0, cells.start))
                if rows and given:
                    yield Share(seam, at, ring, left, rows, *where)
                elif rows:
                    giver = self.trip.index - (self.trip.part if seam.closes else 1)
                    begun = self.schedule.begin.planes if giver == 0 else 0
                    left = range(max(turn, begun), turn + self.schedule.planes)
                    yield Share(seam, at, ring, self.passage.entering, rows, *where, giver, left)

    def _round(self, *, given: bool) -> Iterator[Share]:
        """What the first planes leave for when they come round again, at the end of the trip.

        Beside the trip's own rows those that it has got from other strips.
        """
        seam = self.schedule.cutting.closing(self.trip.depth, STREAMED)
        if seam is None:
            return
        got = [*self._across(given=False)]
        at = 0 if given else self.schedule.planes
        for stair in seam.stairs:
            ring, begun = self._ring(stair), self.passage.put_from
            boxes = [(range(stair.low), share.rows) for share in got if share.ring is ring]
            boxes.append((range(stair.low, stair.high), self._filled(stair)))
            for planes, rows in boxes:
                first = max(planes.start, begun) if given else planes.start
                there = range(at + first, at + planes.stop)
                where = self._key(seam, stair), (at, self.passage.row_origin)
                if there and rows:
                    left = range(begun, stair.high)
                    yield Share(seam, at, ring, there, rows, *where, self.trip.index, left)

    def _filled(self, stair: Stair) -> range:
        """Rows of a ring in which there is something once its first version is made."""
        interval, rows = self.passage.intervals[ACROSS], self.trip.rows
        below, above, low, high = interval.below.seam, interval.above.seam, rows.low, rows.high
        if below is not None:
            here = below.stair(stair.field, stair.index)
            low = below.cells(here.low, here.high, low).start
        if above is not None:
            here = above.stair(stair.field, stair.index)
            high = above.cells(here.low, here.high, high).stop
        return clip(low, high, self.passage.extents[ACROSS])

    def _key(self, seam: Seam, stair: Stair, above: int = 0) -> SeamKey:
        place = self.schedule.seam_places.number(seam, self.trip.part + above)
        return SeamKey(stair.field, stair.index, seam.depth, place)

    def _ring(self, stair: Stair) -> Ring:
        return self.schedule.ring_of[stair.field, stair.index]
