"""The program of blocks: one after the other, each with its halo, out of files.

A block is read whole and written whole, and one pair of buffers serves all blocks, so most of its
steps run without I/O beside them. Its halves overlap with the transfers: the first step begins on
the first half while the second is being read, and the first half leaves while the last step works
on the second.

No block needs anything that another one makes in the same sweep: a restart goes on after the last
block that is durable.

One of several ranks has the blocks of what it owns. What a neighbour holds of a block is sent when
it leaves the window, and what a neighbour sends goes into the halo of the files: a block whose halo
reaches over a cut waits for that, the others do not. Both sides know the order of each other's
blocks, which are of one size.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from msgspec.structs import replace

from outgrid.plan.instruction import (
    Advance,
    Commit,
    Gate,
    Get,
    Instruction,
    Mark,
    Point,
    Put,
    Receive,
    Send,
    Stretch,
)
from outgrid.plan.schedule.interval import ACROSS, STREAMED
from outgrid.plan.schedule.model import Passage, Schedule
from outgrid.plan.schedule.subgrid import Box, Exchanged
from outgrid.plan.schedule.trip import Trip, pieces


def lower(schedule: Schedule) -> Iterator[Instruction]:
    """Instructions of the whole run, lazily, in an order that is a valid serial execution."""
    return _Lowering(schedule).run()


def _halves(passage: Passage) -> list[range]:
    """The planes of a block that leave the window together."""
    core = passage.intervals[STREAMED].cells
    middle = (core.start + core.stop) // 2
    if passage.trip.depth == 1:
        return [core]
    return [half for half in (range(core.start, middle), range(middle, core.stop)) if half]


def _messages(schedule: Schedule, planes: range, rows: range, held: Box) -> Iterator[Box]:
    """What leaves a block and is ``held`` by another rank as well, a slab in each message."""
    both = Box(planes, rows).common(held)
    for first in both.planes[:: schedule.slab_planes] if both.rows else ():
        last = min(both.planes.stop, first + schedule.slab_planes)
        yield Box(range(first, last), both.rows)


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
        self.sent = self.received = 0
        # What came of the state that a sweep reads, and comes of the next: where, until when.
        self.landed: list[tuple[Box, int]] = []
        self.landing: list[tuple[Box, int]] = []

    def run(self) -> Iterator[Instruction]:
        """Trip after trip; a commit after the last one of a sweep, and after some of the others."""
        schedule = self.schedule
        every = schedule.commit_planes
        kept = schedule.begin.part * schedule.planes  # of the trips of this sweep, all together
        for trip in schedule.trips:
            if trip.part == 0:
                yield from self._receives(trip)
            yield from self._trip(trip)
            gate = Gate(put=self.put, received=self.received)
            passed = (trip.part + 1) * schedule.planes
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
        along = schedule.passage(trip).intervals[STREAMED]
        held, core = along.read, along.cells
        middle = (held.start + held.stop) // 2
        begun, puts, sent = self.advanced, dict(self.put_of_ring), self.sent
        halves = [part for part in (range(held.start, middle), range(middle, held.stop)) if part]
        got: list[int] = []
        for part in halves:
            yield from self._gets(trip, part, begun, puts, sent)
            got.append(self.got)
        # A front that has passed everything, and those at which a half is read, or is final.
        lags = [
            departure.lag(trip.depth, schedule.skew.per_step) for departure in schedule.departures
        ]
        end = held.stop + schedule.skew.per_step * trip.depth + max(schedule.skew.shifts) + 1
        written = max(puts.values())
        first = (core.start + core.stop) // 2
        free = written, sent
        come = max(held.start, middle - max(arrival.lead for arrival in schedule.arrivals))
        yield self._advance(trip, 1, 1, held.start, come, got[0], free)
        yield self._advance(trip, 1, 1, come, end, got[-1], free)
        if trip.depth == 1:
            yield from self._leave(trip, core)
            return
        if trip.depth > 2:
            yield self._advance(trip, 2, trip.depth - 1, held.start, end, got[-1], free)
        cut = first + max(lags)
        yield self._advance(trip, trip.depth, trip.depth, held.start, cut, got[-1], free)
        yield from self._leave(trip, range(core.start, first))
        yield self._advance(trip, trip.depth, trip.depth, cut, end, got[-1], free)
        yield from self._leave(trip, range(first, core.stop))

    def _gets(
        self,
        trip: Trip,
        planes: range,
        advanced: int,
        puts: dict[tuple[str, int], int],
        sent: int,
    ) -> Iterator[Get]:
        """Reads of a block may begin when the block before no longer needs the ring."""
        domain, rows = self.schedule.domain, self.schedule.passage(trip).intervals[ACROSS].read
        read = Box(planes, rows)
        received = max((last for box, last in self.landed if box.common(read).count), default=0)
        parts = [*product(domain.pieces(planes), pieces(rows, domain.rows))]
        for arrival, (planes, rows) in product(self.schedule.arrivals, parts):
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
                there=domain.filed(planes, rows),
                gate=Gate(
                    advanced=advanced,
                    put=put,
                    sent=sent,
                    received=0 if arrival.constant else received,
                ),
            )

    def _advance(
        self,
        trip: Trip,
        since: int,
        until: int,
        first: int,
        last: int,
        got: int,
        free: tuple[int, int],
    ) -> Advance:
        """Steps since..until on the positions [first, last) of a front.

        The window is ``free`` after so many (puts, sends) of the block before.
        """
        self.advanced += 1
        put, sent = free
        gate = Gate(advanced=self.advanced - 1, got=got, put=put, sent=sent)
        return Advance(self.advanced - 1, (Stretch(trip, first, last, since, until),), gate)

    def _leave(self, trip: Trip, planes: range) -> Iterator[Put | Send]:
        """A half goes to the files, and to the ranks that hold some of it."""
        rows = self.schedule.passage(trip).intervals[ACROSS].cells
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
            for exchange in self.schedule.exchanged(trip.sweep + 1):
                for box in _messages(self.schedule, planes, rows, exchange.sent):
                    self.sent += 1
                    yield Send(
                        self.sent - 1,
                        trip,
                        departure.field,
                        departure.level,
                        trip.sweep + 1,
                        ring,
                        box.planes.start,
                        box.planes.stop,
                        box.rows,
                        seam=None,
                        there=box,
                        gate=Gate(advanced=self.advanced),
                        peer=exchange.peer,
                        piece=box.planes,
                        turn=exchange.turn,
                    )

    def _receives(self, trip: Trip) -> Iterator[Receive]:
        """What others send of the state that a sweep makes, in the order in which it leaves them.

        It goes over the state before the last one, when the last one is durable everywhere.
        """
        schedule, state = self.schedule, trip.sweep + 1
        self.landed, self.landing = self.landing, []
        for exchange in schedule.exchanged(state):
            other, turn = _of_rank(schedule, exchange.peer), exchange.turn * schedule.planes
            given = exchange.received.counted_from(turn, 0)  # as the other one counts
            for passage in other.sweep(trip.depth):
                rows = passage.intervals[ACROSS].cells
                for half in _halves(passage):
                    for box in _messages(schedule, half, rows, given):
                        yield from self._message(trip, exchange, box.counted_from(-turn, 0))
            self.landing.append((exchange.received, self.received))

    def _message(self, trip: Trip, exchange: Exchanged, box: Box) -> Iterator[Receive]:
        for departure in self.schedule.departures:
            self.received += 1
            yield Receive(
                self.received - 1,
                trip,
                departure.field,
                departure.level,
                trip.sweep + 1,
                -1,
                box.planes.start,
                box.planes.stop,
                box.rows,
                seam=None,
                there=box,
                gate=Gate(committed=self.commit_of_sweeps),
                peer=exchange.peer,
                turn=exchange.turn,
            )


def _of_rank(schedule: Schedule, rank: int) -> Schedule:
    """The schedule of another rank, whose blocks have the same size."""
    assert schedule.subgrid is not None
    assert schedule.blocks is not None
    subgrid = schedule.subgrid.of(rank)
    return replace(schedule, subgrid=subgrid, blocks=replace(schedule.blocks, owned=subgrid.ends))
