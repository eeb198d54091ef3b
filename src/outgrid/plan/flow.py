"""What enters and leaves the window with each trip, and where it lies.

Levels come from files and go to them, what lies at cuts comes from seams and goes there. Whether
that is a get or a put, or between ranks a receive or a send, is what a program adds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, product
from typing import Any

import msgspec

from outgrid.plan.schedule.model import ACROSS, Passage, Schedule
from outgrid.plan.schedule.rings import Arrival, Ring
from outgrid.plan.schedule.seam import SeamKey
from outgrid.plan.schedule.share import Share, Shares
from outgrid.plan.schedule.subgrid import Box, common
from outgrid.plan.schedule.trip import Trip, pieces

RECENT_TRIPS = 3  # whose flows are kept
Place = tuple[str, int, SeamKey | None]


class Flow(msgspec.Struct, frozen=True):
    """What enters or leaves the window with one trip: ``planes`` Z, with ``Z + lag`` in a slab.

    What leaves goes to its place, or to the rank ``peer``, who holds it a ``turn`` on; by front
    position ``until`` at the latest, where nothing of the trip is left to be done. It comes from
    or goes to a file, or to a ``seam``, where plane and row ``origin`` are the first. What enters
    was left there by ``givers``, each a trip and the planes that it leaves, if the run itself left
    it.
    """

    field: str
    level: int
    ring: int
    lag: int
    planes: range
    rows: range
    seam: SeamKey | None = None
    origin: tuple[int, int] = (0, 0)
    givers: tuple[tuple[int, range], ...] = ()
    constant: bool = False
    peer: int | None = None
    turn: int = 0
    until: int | None = None

    @property
    def place(self) -> Place:
        """The file, or the seam, that the rows lie in."""
        return self.field, self.level, self.seam


class Flows:
    """The flows of a schedule's trips, each made when it is asked for."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.trips = schedule, schedule.trips
        self.rings = {(ring.field, ring.index): ring for ring in schedule.rings}
        self.counts = {field: schedule.ring_count(field) for field, _ in self.rings}
        self._departures = {
            (departure.field, departure.level): departure for departure in schedule.departures
        }
        self._entering: dict[int, tuple[Flow, ...]] = {}
        self._leaving: dict[int, tuple[Flow, ...]] = {}

    def passage(self, index: int) -> Passage:
        """What a trip does."""
        return self.schedule.passage(self.trips[index])

    def entering(self, trip: Trip) -> tuple[Flow, ...]:
        """What a trip reads: its rows of every level, and what it takes from seams."""
        if trip.index not in self._entering:
            self._entering.pop(trip.index - RECENT_TRIPS, None)
            self._entering[trip.index] = tuple(self._enter(trip))
        return self._entering[trip.index]

    def _enter(self, trip: Trip) -> Iterator[Flow]:
        schedule, passage = self.schedule, self.passage(trip.index)
        if schedule.resident and trip.sweep > 0:
            return
        for arrival in schedule.arrivals:
            if not arrival.of(trip.depth):
                continue
            ring, box = self.ring(arrival.field, trip, arrival.level), passage.arriving(arrival)
            planes = range(box.planes.start, box.planes.stop + passage.rereads(arrival))
            moved = chain.from_iterable(map(ring.read, pieces(box.rows, schedule.rows)))
            for part, rows in product(ring.present(planes), moved):
                yield Flow(
                    arrival.field,
                    arrival.level,
                    ring.index,
                    arrival.lead,
                    part,
                    rows,
                    givers=tuple(self._writers(arrival, trip, rows)),
                    constant=arrival.constant,
                )
        for share in Shares(passage).taken():
            givers = ((share.giver, share.given),) if share.giver >= 0 else ()
            yield from self._through(share, share.ring.low, givers=givers)

    def _through(self, share: Share, lag: int, **given: Any) -> Iterator[Flow]:
        """What goes through a seam."""
        for planes in share.ring.present(share.planes):
            where = share.ring.field, 0, share.ring.index, lag, planes, share.rows
            yield Flow(*where, share.key, share.origin, **given)

    def _writers(self, arrival: Arrival, trip: Trip, rows: range) -> Iterator[tuple[int, range]]:
        """The trips of the sweep before that leave some ``rows`` of a level, with their planes."""
        schedule, sweep = self.schedule, trip.sweep - 1
        if arrival.constant or sweep < 0:
            return
        departure, depth = self._departures[arrival.field, arrival.level], schedule.depths[sweep]
        first, last = 0, schedule.cutting.trips(depth)
        borders = [seam for seam in schedule.cutting.seams(depth, ACROSS) if not seam.closes]
        if borders and schedule.cutting.closing(depth, ACROSS) is None:
            edge = borders[0].edge(departure.field, depth + departure.level)
            first = (rows.start - edge) // schedule.strips.height
            last = min((rows.stop - 1 - edge) // schedule.strips.height + 1, last)
        for index in range(self.trips.number(sweep, first), self.trips.number(sweep, last)):
            left = (
                self.schedule.passage(self.trips[index]).leaving(departure) if index >= 0 else None
            )
            for part in pieces(left.rows, schedule.rows) if left is not None else ():
                begin = part.start % schedule.rows
                if left is not None and common(range(begin, begin + len(part)), rows):
                    yield index, left.planes
                    break

    def leaving(self, trip: Trip) -> tuple[Flow, ...]:
        """What a trip writes: its rows of the last levels, and what it gives to seams."""
        if trip.index not in self._leaving:
            self._leaving.pop(trip.index - RECENT_TRIPS, None)
            self._leaving[trip.index] = tuple(self._leave(trip))
        return self._leaving[trip.index]

    def _leave(self, trip: Trip) -> Iterator[Flow]:
        schedule, passage = self.schedule, self.passage(trip.index)
        if schedule.states.after(trip.sweep + 1) is None:
            return
        for departure in schedule.departures:
            ring = self.ring(departure.field, trip, trip.depth + departure.level)
            lag, box = departure.lag(trip.depth, schedule.skew.per_step), passage.leaving(departure)
            where = (departure.field, departure.level, ring.index, lag)
            for part, rows in product(ring.present(box.planes), pieces(box.rows, schedule.rows)):
                yield Flow(*where, part, rows)
            for exchange in schedule.exchanged(trip.sweep + 1):
                if not exchange.sent.count:
                    continue
                yield Flow(
                    *where,
                    schedule.domain.streamed(exchange.sent.planes),
                    exchange.sent.rows,
                    peer=exchange.peer,
                    turn=exchange.turn,
                )
            for cut, planes in Shares(passage).returned(departure):
                if not cut.given:
                    yield Flow(*where, planes, schedule.domain.owned.rows, peer=cut.peer)
        for share in Shares(passage).given():
            until = passage.front_end - 1 if share.peer is not None else None
            yield from self._through(share, share.ring.high, peer=share.peer, until=until)

    def sources(self, flow: Flow, planes: range) -> Iterator[tuple[int, int]]:
        """Trips that write what is read of ``planes``: (index, the last end there).

        Plane z of one trip may be plane ``z + planes`` of another one, which leaves it later.
        """
        for index, left in flow.givers:
            for turn in (self.schedule.planes, 0, -self.schedule.planes):
                both = common(range(planes.start + turn, planes.stop + turn), left)
                if both:
                    yield index, both.stop
                    break

    def there(
        self, seam: SeamKey | None, planes: range, rows: range, origin: tuple[int, int] = (0, 0)
    ) -> Box:
        """Where planes and rows of a trip lie in their place: in a file, as the grid counts them.

        What comes round again is there once.
        """
        if seam is None:
            return self.schedule.domain.filed(planes, rows)
        plane, row = origin
        if plane == 0 and planes.start >= self.schedule.planes:
            plane = self.schedule.planes
        return Box(planes, rows).counted_from(plane, row)

    def ring(self, field: str, trip: Trip, version: int) -> Ring:
        """The ring that a version of a trip's sweep is in."""
        base = self.passage(trip.index).base
        return self.rings[field, (base + version) % self.counts[field]]
