"""Restarts: what is durable, whether it is all there, and whether it is left alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from outgrid.errors import ExecutionError
from outgrid.plan.program import (
    Instruction,
    Point,
    Put,
    Receive,
)
from outgrid.plan.schedule.model import ACROSS, STREAMED, Schedule
from outgrid.plan.schedule.rings import Departure
from outgrid.plan.schedule.seam import SeamKey
from outgrid.plan.schedule.share import Share, Shares
from outgrid.plan.schedule.subgrid import common
from outgrid.plan.schedule.trip import Trip
from outgrid.testing.tagged import VOID, Tagged, Tags


class Restarts:
    """What a restart needs: what is durable, and that nothing is written over it.

    ``states`` are those that are durable as a whole at each rank.
    """

    def __init__(self, schedule: Schedule, memory: Tagged, states: list[int]) -> None:
        self.schedule, self.memory, self.states = schedule, memory, states
        self.whole = replace(schedule, begin=Point())
        self.trips = self.whole.trips
        self.durable = schedule.begin
        self._resume()

    def _resume(self) -> None:
        """The files as a run left them that had come to where this plan begins.

        What is not read of state 0 is void, to show that it is not.
        """
        schedule, point = self.schedule, self.durable
        if point == Point(0):
            return
        read = [np.zeros((schedule.planes, self.memory.rows), bool) for _ in schedule.arrivals]
        for trip in (trip for trip in schedule.trips if trip.sweep == 0):
            for arrival, seen in zip(schedule.arrivals, read, strict=True):
                box = schedule.passage(trip).arriving(arrival)
                for plane in box.planes:
                    seen[plane % self.memory.planes, self.memory.rows_of_grid(box.rows)] = True
        for arrival, seen in zip(schedule.arrivals, read, strict=True):
            if not arrival.constant:
                self.memory.files[arrival.field, arrival.level, 0][~seen] = VOID
        for departure in schedule.departures:
            self.memory.files[departure.field, departure.level, 1][
                self._there(departure, point)
            ] = 1
        for place, tags in self._seams_of(point):
            place[:] = tags

    def _seams_of(self, point: Point) -> Iterator[tuple[Tags, Tags]]:
        """What a restart at a point reads of seams: (the rows in their place, their tags).

        Those of the strip before it and what is there of its own, and what closes a circle.
        """
        for trip in self._begun(point) if self.memory.seams and point.begun > point.state else ():
            planes = range(point.planes if trip.part == point.part else self.memory.planes)
            for share in Shares(self.whole.passage(trip)).given():
                if trip.part + 1 >= point.part or (share.seam.closes and share.seam.axis == ACROSS):
                    yield from self._share_tags(trip, share, common(share.planes, planes))

    def _share_tags(self, trip: Trip, share: Share, planes: range) -> Iterator[tuple[Tags, Tags]]:
        """What a trip leaves in ``planes`` of a seam: the last versions of a ring made there.

        What lies beyond the cut has not come to the next ones.
        """
        seam, ring, (plane0, row0) = share.seam, share.ring, share.origin
        count, levels = (
            self.memory.counts[ring.field],
            sum(d.field == ring.field for d in self.schedule.departures),
        )
        versions = [v for v in range(1 - levels, trip.depth + 1) if v % count == ring.index]

        def made(cell: int) -> int:
            beyond = cell - share.at if seam.rises else share.at - 1 - cell
            return max(v for v in versions if abs(seam.edge(ring.field, v)) <= beyond)

        along = seam.axis == STREAMED
        for version, cells in groupby(planes if along else share.rows, made):
            alike = [*cells]
            part = range(alike[0], alike[-1] + 1)
            there, across = (part, share.rows) if along else (planes, part)
            for plane in there:
                if not self.memory.exists(ring.field, plane % self.memory.planes):
                    continue
                place = self.memory.seams[share.key][plane - plane0]
                tags = self.memory.tags(trip, plane, across, version)
                yield place[across.start - row0 : across.stop - row0], tags

    def check_overwritten(self, put: Put | Receive) -> None:
        """A restart goes on from the last state that is durable at all ranks."""
        complete, point = min(self.states), self.durable
        if (put.state - complete) % 2 == 0 and not put.seam:
            raise ExecutionError(f"{put} destroys state {complete}, the last durable one")
        here = Point(put.trip.sweep, put.trip.part, put.first + 1)
        if isinstance(put, Put) and not self.schedule.resident and here <= point:
            raise ExecutionError(f"{put} writes over planes below {point}, which are durable")
        if put.seam and self.schedule.commit_planes and point.state < self.schedule.sweeps:
            needed = self._needed_seams(point, put.trip)
            if put.seam in needed:
                raise ExecutionError(f"{put} destroys a seam that a restart at {point} reads")

    def _needed_seams(self, point: Point, writer: Trip) -> set[SeamKey]:
        """What a restart at ``point`` takes from seams, and what is there already of its own."""
        first, keys = self.trips.number(point.state, 0), set[SeamKey]()
        for part in range(point.part):
            given = Shares(self.whole.passage(self.trips[first + part])).given()
            keys |= {
                share.key
                for share in given
                if share.seam.axis == ACROSS and (share.seam.closes or part + 1 == point.part)
            }
        if point.planes and (writer.sweep, writer.part) != (point.state, point.part):
            given = Shares(self.whole.passage(self.trips[first + point.part])).given()
            keys |= {share.key for share in given}
        return keys

    def check_there(self, point: Point, what: Instruction) -> None:
        """Everything up to ``point`` is written."""
        for departure in self.schedule.departures:
            held = self.memory.files[departure.field, departure.level, point.begun % 2]
            if (held[self._there(departure, point)] != point.begun).any():
                raise ExecutionError(f"{what} before all of that is written")
        for place, tags in self._seams_of(point):
            if (place != tags).any():
                raise ExecutionError(f"{what} before its seams are written")

    def _there(self, departure: Departure, point: Point) -> NDArray[np.bool_]:
        """The cells of the last level begun that a run has written when it has come so far."""
        there = self._left(departure, point)
        for plane in range(len(there)):
            there[plane] &= self.memory.exists(departure.field, plane)
        return there

    def _left(self, departure: Departure, point: Point) -> NDArray[np.bool_]:
        """The same for a field that exists in all planes."""
        schedule, begun = self.whole, point.begun
        there = np.zeros((schedule.planes, self.memory.rows), bool)
        if begun == point.state:
            # A restart needs halos, too.
            last = schedule.domain.owned
            needed = (
                schedule.stored.evolving(schedule.depths[begun])
                if begun < schedule.sweeps
                else last
            )
            planes, rows = needed.planes, needed.rows
            there[planes.start : planes.stop, rows.start : rows.stop] = True
            return there
        for trip in self._begun(point):
            box = schedule.passage(trip).leaving(departure)
            end = point.planes if trip.part == point.part else box.planes.stop
            for plane in range(box.planes.start, min(box.planes.stop, end)):
                there[plane % self.memory.planes, self.memory.rows_of_grid(box.rows)] = True
        return there

    def _begun(self, point: Point) -> tuple[Trip, ...]:
        """The trips of the sweep under way at ``point``, up to the one that it names."""
        first = self.trips.number(point.state, 0)
        return self.trips[first : first + point.part + 1]
