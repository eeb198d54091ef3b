"""The program of blocks: one after the other, each with its halo, out of files.

A block is read whole and written whole, and one pair of buffers serves all blocks, so most of its
steps run without I/O beside them. Its halves overlap with the transfers: the first step begins on
the first half while the second is being read, and the first half leaves while the last step works
on the second.

No block needs anything that another one makes in the same sweep: a restart goes on after the last
block that is durable.
"""

from __future__ import annotations

from collections.abc import Iterator

from outgrid.plan.instruction import (
    Advance,
    Commit,
    Gate,
    Get,
    Instruction,
    Mark,
    Point,
    Put,
    Stretch,
)
from outgrid.plan.schedule.model import Schedule
from outgrid.plan.schedule.subgrid import Box
from outgrid.plan.schedule.trip import Trip


def lower(schedule: Schedule) -> Iterator[Instruction]:
    """Instructions of the whole run, lazily, in an order that is a valid serial execution."""
    return _Lowering(schedule).run()


class _Lowering:
    """What was emitted so far, as the numbers that gates compare with."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.counts = {ring.field: schedule.ring_count(ring.field) for ring in schedule.rings}
        self.advanced = self.got = self.put = 0
        self.put_of_sweeps = 0  # watermark of the puts of all sweeps before
        self.committed = 0
        self.commit_of_sweeps = 0  # and of their commits
        self.put_of_ring = {(ring.field, ring.index): 0 for ring in schedule.rings}

    def run(self) -> Iterator[Instruction]:
        """Trip after trip; a commit after the last one of a sweep, and after some of the others."""
        schedule = self.schedule
        every = schedule.commit_planes
        kept = schedule.begin.part * schedule.planes  # of the trips of this sweep, all together
        for trip in schedule.trips:
            yield from self._trip(trip)
            gate, passed = Gate(put=self.put), (trip.part + 1) * schedule.planes
            last = trip.part + 1 == schedule.cutting.trips(trip.depth)
            point = Point(trip.sweep + 1) if last else Point(trip.sweep, trip.part + 1)
            if last or (every and passed // every > kept // every):
                self.committed += 1
                kept = 0 if last else passed
                yield Commit(self.committed - 1, point, gate)
            elif every:
                yield Mark(point, gate)
            if last:
                self.put_of_sweeps, self.commit_of_sweeps = self.put, self.committed

    def _trip(self, trip: Trip) -> Iterator[Instruction]:
        schedule = self.schedule
        held = schedule.passage(trip).covered(0).planes
        middle = (held.start + held.stop) // 2
        begun, puts = self.advanced, dict(self.put_of_ring)
        halves = [part for part in (range(held.start, middle), range(middle, held.stop)) if part]
        got: list[int] = []
        for part in halves:
            yield from self._gets(trip, part, begun, puts)
            got.append(self.got)
        # A front that has passed everything, and those at which a half is read, or is final.
        lags = [
            departure.lag(trip.depth, schedule.skew.per_step) for departure in schedule.departures
        ]
        core = schedule.passage(trip).covered(trip.depth).planes
        end = held.stop + schedule.skew.per_step * trip.depth + max(schedule.skew.shifts) + 1
        written = max(puts.values())
        first = (core.start + core.stop) // 2
        yield self._advance(trip, 1, 1, 0, middle, got[0], written)
        if trip.depth == 1:
            yield self._advance(trip, 1, 1, middle, end, got[-1], written)
            yield from self._puts(trip, core)
            return
        yield self._advance(trip, 1, 1, middle, end, got[-1], written)
        if trip.depth > 2:
            yield self._advance(trip, 2, trip.depth - 1, 0, end, got[-1], written)
        cut = first + max(lags)
        yield self._advance(trip, trip.depth, trip.depth, 0, cut, got[-1], written)
        yield from self._puts(trip, range(core.start, first))
        yield self._advance(trip, trip.depth, trip.depth, cut, end, got[-1], written)
        yield from self._puts(trip, range(first, core.stop))

    def _gets(
        self, trip: Trip, planes: range, advanced: int, puts: dict[tuple[str, int], int]
    ) -> Iterator[Get]:
        """Reads of a block may begin when the block before no longer needs the ring."""
        rows = self.schedule.passage(trip).covered(0).rows
        for arrival in self.schedule.arrivals:
            ring = arrival.level % self.counts[arrival.field]
            put = puts[arrival.field, ring]
            if not arrival.constant:
                put = max(put, self.put_of_sweeps)
            self.got += 1
            yield Get(
                self.got - 1,
                trip,
                arrival.field,
                arrival.level,
                0 if arrival.constant else trip.sweep,
                ring,
                planes.start,
                planes.stop,
                rows,
                seam=None,
                there=Box(planes, rows),
                gate=Gate(advanced=advanced, put=put),
            )

    def _advance(
        self, trip: Trip, since: int, until: int, first: int, last: int, got: int, put: int
    ) -> Advance:
        """Steps since..until on the positions [first, last) of a front."""
        self.advanced += 1
        gate = Gate(advanced=self.advanced - 1, got=got, put=put)
        return Advance(self.advanced - 1, (Stretch(trip, first, last, since, until),), gate)

    def _puts(self, trip: Trip, planes: range) -> Iterator[Put]:
        rows = self.schedule.passage(trip).covered(trip.depth).rows
        for departure in self.schedule.departures if planes else ():
            version = trip.depth + departure.level
            ring = version % self.counts[departure.field]
            self.put += 1
            self.put_of_ring[departure.field, ring] = self.put
            yield Put(
                self.put - 1,
                trip,
                departure.field,
                departure.level,
                trip.sweep + 1,
                ring,
                planes.start,
                planes.stop,
                rows,
                seam=None,
                there=Box(planes, rows),
                gate=Gate(advanced=self.advanced, committed=self.commit_of_sweeps),
            )
