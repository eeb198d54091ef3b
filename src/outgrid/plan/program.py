"""The program: a flat stream of instructions, each with the gate that it waits for.

A gate holds watermarks. An instruction may start when at least that many advances, gets, puts,
commits, sends and receives *from the start of the program* are complete, whatever the order in
which the later ones finish. Four rules make the gates:

1. an advance needs its planes in the window, and free slots for the planes it touches first;
2. a slot is free when its old plane is out of use and every result held in it is written;
3. rows of sweep p + 1 are read after those of sweep p were written to that place, and a seam after
   the strip before wrote it;
4. a result leaves when its last update is done, and sweep p + 1 writes over state p only after
   state p + 1 is durable as a whole; a trip writes over a seam only after the trip before it is.

One of several ranks gives the planes that its neighbours need of a state to them when they leave
the window, and takes theirs into the halo of its files: a put by another rank. A state is durable
when it is so at all ranks. Where ranks leave seams at their cuts, an upright one sends them as
planes retire, and takes what is returned into its files; an inverted one takes seams into places of
their own, when those of the sweep before were read, and reads them from there.

The stream is a sequence of trips: of the whole grid, sweep after sweep, or of its strips. Seams are
moved by gets and puts like any rows.

A commit within a sweep names a point in this sequence, a trip and a plane: all that earlier trips
leave is durable, results and seams, and of this one what it leaves in planes below. A restart makes
this trip again from an inward face at the plane, and all that follow. It reads state p, which stays
whole, the seam that the trip before left, and of its own seam the planes below. So the seams on
both sides of a strip lie in different places, and a place is written over after the commit of the
trip that had to read it. Where no commits are made within sweeps one place serves all borders, as a
strip reads the seam of a plane before it leaves its own.

Instructions come in an order that is itself a valid serial execution, so running them one by one
is correct, and running each as soon as its gate opens is correct and fast.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from outgrid.errors import InfeasiblePlan
from outgrid.plan import blockwise
from outgrid.plan.flow import Flow, Flows, Place
from outgrid.plan.instruction import (
    Advance,
    Commit,
    Gate,
    Get,
    Instruction,
    Mark,
    Move,
    Point,
    Put,
    Receive,
    Send,
    Stretch,
    levels,
    opposes,
    row_updates,
)
from outgrid.plan.model import Plan
from outgrid.plan.receiving import Receiving
from outgrid.plan.schedule.rings import Ring
from outgrid.plan.schedule.trip import Trip

__all__ = [
    "Advance",
    "Commit",
    "Gate",
    "Get",
    "Instruction",
    "Mark",
    "Move",
    "Point",
    "Put",
    "Receive",
    "Send",
    "Stretch",
    "levels",
    "opposes",
    "program",
    "row_updates",
]


# What a slab moves of a level is moved in so many pieces, if these have so many bytes: what comes
# to the place of the first one need not wait for the last one to be written.
PIECES, PIECE_BYTES = 3, 4 << 20


def program(plan: Plan) -> Iterator[Instruction]:
    """Instructions of the whole run, lazily, in an order that is a valid serial execution."""
    schedule = plan.schedule
    if not schedule.depths:
        return iter(())
    if schedule.blocks is not None:
        return blockwise.lower(schedule)
    return _Lowering(plan).run()


class _Lowering:
    """State of the lowering: what was emitted so far, and who used each slot and place last."""

    def __init__(self, plan: Plan) -> None:
        self.plan, schedule = plan, plan.schedule
        self.schedule = schedule
        self.flows = Flows(schedule)
        self.receiving = Receiving(self.flows)
        self.trips, self.rings = self.flows.trips, self.flows.rings
        self.advanced = self.got = self.put = self.committed = self.sent = 0
        self.first_slab = schedule.first_slab
        # Watermarks of the gets that slabs need which are still to be computed, and the next slab.
        self.got_by_slab: dict[int, int] = {}
        self.arrived = self.first_slab
        self._coming: tuple[int, list[tuple[Flow, Trip, range]]] = (self.first_slab - 1, [])
        # Commits so far when all that a trip leaves was durable, of the last two states, and the
        # last point that was named.
        self.durable = {-1: 0}
        self.reached = self.kept = schedule.begin
        # Watermark of the puts that must end before a slot is used again (rule 2). For each place
        # and trip, how far its planes were written, as pairs of last plane and watermark (rule 3).
        self.slot_put = {key: [0] * ring.planes for key, ring in self.rings.items()}
        self.slot_sent = {key: [0] * ring.planes for key, ring in self.rings.items()}
        self.written: dict[tuple[Place, int], list[tuple[int, int]]] = {}
        reach = schedule.skew.per_step * schedule.depth + max(schedule.skew.shifts)
        firsts = {depth: schedule.depths.index(depth) for depth in set(schedule.depths)}
        passages = [self.flows.passage(max(0, self.trips.number(n, 0))) for n in firsts.values()]
        entered = [passage.entering.start for passage in passages]
        self.first_entered = min(schedule.domain.streamed(schedule.stored.planes).start, *entered)
        extent = max(passage.touched.stop for passage in passages)
        self.longest = extent + max(reach, *(ring.high for ring in schedule.rings)) + 1

    def run(self) -> Iterator[Instruction]:
        """Alternate: every get that the window has room for, one advance, its puts, commits."""
        slabs = self.schedule.slabs
        ahead = 4 + self.longest // self.schedule.slab_planes  # more than the window has room for
        for slab in range(self.first_slab, slabs):
            yield from self.receiving.run(self.arrived, self.got, self._durable)
            most = min(slabs, slab + ahead)
            while self.arrived < most and self._has_room(self.arrived):
                yield from self._gets(self.arrived)
                self.got_by_slab[self.arrived] = self.got
                self.arrived += 1
            if self.arrived <= slab:
                raise InfeasiblePlan(
                    f"slab {slab} of {slabs} waits for planes that do not fit a window of "
                    f"{self.plan.memory.window_bytes} bytes; use a depth below "
                    f"{self.schedule.depth}"
                )
            yield self._advance(slab)
            yield from self._puts(slab)

    def _active(self, slab: int) -> tuple[Trip, ...]:
        """Trips that may have planes under the front, or on their way in or out, in ``slab``."""
        schedule = self.schedule
        start, stop = slab * schedule.slab_planes, (slab + 1) * schedule.slab_planes
        first = max(0, (start - self.longest) // schedule.pitch_planes)
        last = -(-(stop - self.first_entered) // schedule.pitch_planes)
        return self.trips[first : max(first, last)]

    def _planes(
        self, slab: int, trip: Trip, lag: int, planes: range, until: int | None = None
    ) -> range:
        """The ``planes`` Z of a trip with ``Z + lag`` in ``slab``, or ``until`` if that is less."""
        schedule = self.schedule
        front = slab * schedule.slab_planes - trip.index * schedule.pitch_planes
        low, high = (
            max(planes.start, front - lag),
            min(planes.stop, front + schedule.slab_planes - lag),
        )
        if until is not None and until < front + schedule.slab_planes:
            high = planes.stop if until >= front else low
        return range(low, high)

    def _moved(self, slab: int, trip: Trip, flow: Flow) -> Iterator[range]:
        """The planes of a flow in ``slab``, cut where the first planes come round again.

        Many bytes are moved in pieces; not those of ranks, who count what comes slab by slab.
        """
        planes = self._planes(slab, trip, flow.lag, flow.planes, flow.until)
        row_bytes = self.plan.layout.of(flow.field).row_bytes
        most = PIECES if self.schedule.subgrid is None else 1
        for part in self.schedule.domain.pieces(planes):
            count = min(most, len(part) * len(flow.rows) * row_bytes // PIECE_BYTES)
            size = -(-len(part) // max(1, count))
            for first in range(part.start, part.stop, size):
                yield range(first, min(first + size, part.stop))

    def _slots(self, ring: Ring, trip: Trip, planes: range) -> range:
        return self.flows.passage(trip.index).places(ring, planes)

    def _free_after(self, ring: Ring, place: int) -> int:
        """Advances after which the slot for a plane of the stream, by its number, is out of use."""
        before = place - ring.planes
        amid = self.first_entered if ring.within is None else 0  # a ring planes begin below 0
        if before < min(0, amid):
            return 0
        stream = self.schedule.plane_at(ring, before)
        slabs = -(-(stream + ring.high + 1) // self.schedule.slab_planes)
        return max(0, slabs - self.first_slab)

    def _there_after(self, flow: Flow, trip: Trip, planes: range) -> tuple[int, int] | None:
        """Puts and receives after which what ``flow`` reads is there, whoever left it.

        None if some of them were not emitted yet.
        """
        written = self._written_after(flow, planes)
        received = self.receiving.after(flow, trip, planes)
        return None if written is None or received is None else (written, received)

    def _written_after(self, flow: Flow, planes: range) -> int | None:
        """Puts after which ``planes`` of what ``flow`` reads are in their place.

        None if some of these puts were not emitted yet, 0 for what was there before the run.
        """
        put = 0
        for source, last in self.flows.sources(flow, planes):
            written = self.written.get((flow.place, source), [])
            index = bisect_left(written, (last, 0))
            if index == len(written):
                return None
            put = max(put, written[index][1])
        return put

    def _arriving(self, slab: int) -> list[tuple[Flow, Trip, range]]:
        """What comes for a slab, which is asked for until there is room for it."""
        if self._coming[0] != slab:
            coming = [
                (flow, trip, planes)
                for trip in self._active(slab)
                for flow in self.flows.entering(trip)
                for planes in self._moved(slab, trip, flow)
            ]
            self._coming = slab, coming
        return self._coming[1]

    def _has_room(self, slab: int) -> bool:
        """Whether the gets of ``slab`` may follow what was emitted so far (rules 2 and 3)."""
        for flow, trip, planes in self._arriving(slab):
            ring = self.rings[flow.field, flow.ring]
            slots = self._slots(ring, trip, planes)
            if self._free_after(ring, slots[-1]) > self.advanced:
                return False
            if self._there_after(flow, trip, planes) is None:
                return False
        return True

    def _durable(self, state: int) -> int | None:
        """Commits after which all of a state is durable; None while there are none."""
        if state == 0:
            return 0
        return self.durable.get(self.trips.number(self.schedule.states.sweeps_until(state), 0) - 1)

    def _gets(self, slab: int) -> Iterator[Get]:
        for flow, trip, planes in self._arriving(slab):
            ring = self.rings[flow.field, flow.ring]
            slots = self._slots(ring, trip, planes)
            written, received = self._there_after(flow, trip, planes) or (0, 0)
            gate = Gate(
                advanced=self._free_after(ring, slots[-1]),
                put=max(written, _latest(self.slot_put[flow.field, flow.ring], slots)),
                sent=_latest(self.slot_sent[flow.field, flow.ring], slots),
                received=received,
            )
            self.got += 1
            self.receiving.read(flow, trip, self.got)
            state = 0 if flow.constant else trip.sweep
            yield Get(*self._move(self.got - 1, flow, trip, state, planes), gate=gate)

    def _move(self, index: int, flow: Flow, trip: Trip, state: int, planes: range) -> Any:
        """The entries that a get and a put have in common."""
        where = (flow.field, flow.level, state, flow.ring, planes.start, planes.stop, flow.rows)
        there = self.flows.there(flow.seam, planes, flow.rows, flow.origin)
        return index, trip, *where, flow.seam, there

    def _advance(self, slab: int) -> Advance:
        put = sent = 0
        active = self._active(slab)
        for key, ring in self.rings.items():
            writing, sending = self.slot_put[key], self.slot_sent[key]
            for trip in active:
                planes = self._planes(slab, trip, ring.low, self.flows.passage(trip.index).touched)
                slots = self._slots(ring, trip, planes)
                put = max(put, _latest(writing, slots))
                sent = max(sent, _latest(sending, slots))
        gate = Gate(advanced=self.advanced, got=self.got_by_slab.pop(slab), put=put, sent=sent)
        self.advanced += 1
        return Advance(self.advanced - 1, parts=tuple(self._parts(slab)), gate=gate)

    def _parts(self, slab: int) -> Iterator[Stretch]:
        schedule = self.schedule
        for trip in self._active(slab):
            origin, passage = trip.index * schedule.pitch_planes, self.flows.passage(trip.index)
            first = max(passage.touched.start, slab * schedule.slab_planes - origin)
            last = min(passage.front_end, (slab + 1) * schedule.slab_planes - origin)
            if first < last:
                yield Stretch(trip, first, last)

    def _puts(self, slab: int) -> Iterator[Put | Send | Commit | Mark]:
        for trip in self._active(slab):
            for flow in self.flows.leaving(trip):
                for planes in self._moved(slab, trip, flow):
                    if flow.peer is None:
                        yield self._put(flow, trip, planes)
                    else:
                        yield from self._sends(flow, trip, planes, flow.peer)
            yield from self._commits(slab, trip)

    def _commits(self, slab: int, trip: Trip) -> Iterator[Commit | Mark]:
        """What may be said to be durable of the state that a trip writes, as far as ``slab``."""
        schedule, state = self.schedule, self.schedule.states.after(trip.sweep + 1)
        if state is None or trip.index in self.durable:
            return
        point = self._point(slab, trip, state)
        if point is None or point <= self.reached:
            return
        if not (schedule.commit_planes or point.state == state):
            return
        self.reached = point
        gate = Gate(advanced=self.advanced, put=self.put, received=self.receiving.landed)
        if point.planes:
            every = schedule.commit_planes
            if self._passed(point) // every == self._passed(self.kept) // every:
                yield Mark(point, gate)
                return
        self.kept = point
        self.committed += 1
        if not point.planes:
            oldest = self.trips.number(schedule.states.sweeps_until(max(0, state - 2)), 0) - 1
            self.durable = {key: at for key, at in self.durable.items() if key >= oldest}
            self.durable[trip.index] = self.committed
        yield Commit(self.committed - 1, point, gate=gate)

    def _passed(self, point: Point) -> int:
        """Planes of all trips of a sweep up to ``point``."""
        return point.part * self.schedule.planes + point.planes

    def _point(self, slab: int, trip: Trip, state: int) -> Point | None:
        """How far all has left that a trip leaves, when a slab is complete.

        None where that is of no use, as an inward face would reach below the grid.
        """
        schedule, passage = self.schedule, self.flows.passage(trip.index)
        front = (slab + 1) * schedule.slab_planes - trip.index * schedule.pitch_planes
        ends = [
            (
                passage.leaving(departure).planes.stop,
                departure.lag(trip.depth, schedule.skew.per_step),
            )
            for departure in schedule.departures
        ]
        # Seams that other ranks take are of no use to a restart, what is returned to them is.
        ends += [
            (flow.planes.stop, flow.lag)
            for flow in self.flows.leaving(trip)
            if (flow.seam is not None) != (flow.peer is not None)
        ]
        under_way = [front - lag for end, lag in ends if front - lag < end]
        if under_way:
            planes = min(under_way)
            return (
                Point(state - 1, trip.part, planes) if planes > schedule.lean(trip.depth) else None
            )
        if trip.part + 1 < schedule.cutting.trips(trip.depth):
            return Point(state - 1, trip.part + 1)
        return Point(state)

    def _sends(self, flow: Flow, trip: Trip, planes: range, peer: int) -> Iterator[Send]:
        """The planes, cut where one message ends and the next begins."""
        begin, slab, first = flow.planes.start, self.schedule.slab_planes, planes.start
        while first < planes.stop:
            low = first - (first - begin) % slab
            piece = range(low, min(low + slab, flow.planes.stop))
            part = range(first, min(planes.stop, piece.stop))
            yield self._send(flow, trip, part, peer, piece)
            first = part.stop

    def _send(self, flow: Flow, trip: Trip, planes: range, peer: int, piece: range) -> Send:
        self.sent += 1
        slots = self._slots(self.rings[flow.field, flow.ring], trip, planes)
        _mark(self.slot_sent[flow.field, flow.ring], slots, self.sent)
        state, gate = self.schedule.states.within(trip.sweep + 1), Gate(advanced=self.advanced)
        move = self._move(self.sent - 1, flow, trip, state, planes)
        return Send(*move, gate=gate, peer=peer, piece=piece, turn=flow.turn)

    def _put(self, flow: Flow, trip: Trip, planes: range) -> Put:
        self.put += 1
        slots = self._slots(self.rings[flow.field, flow.ring], trip, planes)
        _mark(self.slot_put[flow.field, flow.ring], slots, self.put)
        key = (flow.place, trip.index)
        if key not in self.written:
            oldest = self.trips.number(max(0, trip.sweep - 1), 0)
            for stale in [old for old in self.written if old[1] < oldest]:
                del self.written[stale]
            self.written[key] = []
        while self.written[key] and self.written[key][-1][0] >= planes.stop:
            self.written[key].pop()  # other rows of the same planes
        self.written[key].append((planes.stop, self.put))
        state = trip.sweep + 1 if flow.seam else self.schedule.states.within(trip.sweep + 1)
        if flow.seam is None:
            before = self._durable(state - 1)
        else:  # no restart needs what it writes over, where commits are whole states
            before = self.durable.get(trip.index - 1) if self.schedule.commit_planes else 0
        if before is None:
            raise InfeasiblePlan(f"trip {trip.index} passes writes that must be durable before it")
        gate = Gate(advanced=self.advanced, committed=before)
        return Put(*self._move(self.put - 1, flow, trip, state, planes), gate=gate)


def _parts(length: int, slots: range) -> tuple[slice, slice]:
    """Where ``slots`` that follow each other round a ring of that ``length`` lie in it."""
    begin = slots.start % length
    end = begin + min(len(slots), length)
    return slice(begin, end), slice(0, max(0, end - length))


def _latest(watermarks: list[int], slots: range) -> int:
    """The largest watermark of some slots, 0 of none."""
    straight, round_again = _parts(len(watermarks), slots)
    return max(max(watermarks[straight], default=0), max(watermarks[round_again], default=0))


def _mark(watermarks: list[int], slots: range, watermark: int) -> None:
    """Set the watermark of some slots."""
    for part in _parts(len(watermarks), slots):
        watermarks[part] = [watermark] * len(watermarks[part])
