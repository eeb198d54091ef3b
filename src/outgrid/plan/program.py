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
from dataclasses import dataclass
from typing import Any

from outgrid.errors import InfeasiblePlan
from outgrid.plan import overlapped
from outgrid.plan.border import Border
from outgrid.plan.instruction import (
    Advance,
    Commit,
    Gate,
    Get,
    Instruction,
    Mark,
    Move,
    Part,
    Point,
    Put,
    Receive,
    Send,
    levels,
    opposes,
    place_planes,
    place_rows,
    row_updates,
    seam_place,
)
from outgrid.plan.model import Plan, Ring
from outgrid.plan.subgrid import Exchanged
from outgrid.plan.trip import Trip

__all__ = [
    "Advance",
    "Commit",
    "Gate",
    "Get",
    "Instruction",
    "Mark",
    "Move",
    "Part",
    "Point",
    "Put",
    "Receive",
    "Send",
    "levels",
    "opposes",
    "place_planes",
    "place_rows",
    "program",
    "row_updates",
    "seam_place",
]


def program(plan: Plan) -> Iterator[Instruction]:
    """Instructions of the whole run, lazily, in an order that is a valid serial execution."""
    if not plan.depths:
        return iter(())
    return overlapped.lower(plan) if plan.blocks is not None else _Lowering(plan).run()


_Place = tuple[str, int, int | None]


@dataclass(frozen=True, slots=True)
class _Flow:
    """What enters or leaves the window with one trip: ``planes`` Z, with ``Z + lag`` in a slab.

    What leaves goes to its place, or to the rank ``peer``; by front position ``until`` at the
    latest, where nothing of the trip is left to be done.
    """

    field: str
    level: int
    ring: int
    lag: int
    planes: range
    rows: range
    border: int | None = None
    constant: bool = False
    peer: int | None = None
    until: int | None = None

    @property
    def seam(self) -> bool:
        """Whether it goes through a seam, at a border."""
        return self.border is not None

    @property
    def place(self) -> _Place:
        """The file, or the seam, that the rows lie in."""
        return self.field, self.ring if self.seam else self.level, self.border


@dataclass(frozen=True, slots=True)
class _Incoming:
    """Planes of a (field, level) that come from ``peer``, before plane ``due`` is read."""

    due: int
    peer: int
    level: tuple[str, int]
    planes: range
    rows: range


class _Lowering:
    """State of the lowering: what was emitted so far, and who used each slot and place last."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.trips = plan.trips
        self.rings = {(ring.field, ring.index): ring for ring in plan.rings}
        self.counts = {field: plan.ring_count(field) for field, _ in self.rings}
        self.advanced = self.got = self.put = self.committed = self.sent = self.received = 0
        self.first_slab = plan.first_slab
        # Watermarks of the gets that slabs need which are still to be computed, and the next slab.
        self.got_by_slab: dict[int, int] = {}
        self.arrived = self.first_slab
        # Commits so far when all that a trip leaves was durable, of the last two states, and the
        # last point that was named.
        self.durable = {-1: 0}
        self.reached = self.kept = plan.begin
        # Watermark of the puts that must end before a slot is used again (rule 2). For each place
        # and trip, how far its planes were written, as pairs of last plane and watermark (rule 3).
        self.slot_put = {key: [0] * ring.planes for key, ring in self.rings.items()}
        self.slot_sent = {key: [0] * ring.planes for key, ring in self.rings.items()}
        # By sweep, and border where seams are taken: pairs of first plane and watermark of what is
        # received before it, planes rising.
        self.halos: dict[tuple[int, int | None], list[tuple[int, int]]] = {}
        self.expected = 1  # the next state to be received
        self.landed = 0  # watermark of what is received of states
        # How many seams were asked for, sweep after sweep, and the watermarks of the gets that read
        # those at each border last.
        self.asked = 0
        self.seam_got: dict[tuple[int, int], int] = {}
        self.written: dict[tuple[_Place, int], list[tuple[int, int]]] = {}
        self.entering: dict[int, tuple[_Flow, ...]] = {}
        self.leaving: dict[int, tuple[_Flow, ...]] = {}
        self.departures = {(each.field, each.level): each for each in plan.departures}
        reach = plan.skew * plan.depth + max(plan.shifts)
        firsts = {depth: plan.depths.index(depth) for depth in set(plan.depths)}
        each = [self.trips[max(0, self.trips.number(sweep, 0))] for sweep in firsts.values()]
        entered = [plan.entering(trip).start for trip in each]
        self.first_entered = min(plan.streamed(plan.stored).start, *entered)
        extent = max(plan.touched(trip).stop for trip in each)
        self.longest = extent + max(reach, *(ring.high for ring in plan.rings)) + 1

    def run(self) -> Iterator[Instruction]:
        """Alternate: every get that the window has room for, one advance, its puts, commits."""
        slabs = self.plan.slabs
        ahead = 4 + self.longest // self.plan.slab_planes  # more than the window has room for
        for slab in range(self.first_slab, slabs):
            yield from self._receives()
            most = min(slabs, slab + ahead)
            while self.arrived < most and self._has_room(self.arrived):
                yield from self._gets(self.arrived)
                self.got_by_slab[self.arrived] = self.got
                self.arrived += 1
            if self.arrived <= slab:
                raise InfeasiblePlan(
                    f"slab {slab} of {slabs} waits for planes that a window of "
                    f"{self.plan.window_bytes} bytes has no room for; a depth lower than "
                    f"{self.plan.depth} fits"
                )
            yield self._advance(slab)
            yield from self._puts(slab)

    def _active(self, slab: int) -> tuple[Trip, ...]:
        """Trips that may have planes under the front, or on their way in or out, in ``slab``."""
        plan = self.plan
        start, stop = slab * plan.slab_planes, (slab + 1) * plan.slab_planes
        first = max(0, (start - self.longest) // plan.pitch_planes)
        last = -(-(stop - self.first_entered) // plan.pitch_planes)
        return self.trips[first : max(first, last)]

    def _planes(
        self, slab: int, trip: Trip, lag: int, planes: range, until: int | None = None
    ) -> range:
        """The ``planes`` Z of a trip with ``Z + lag`` in ``slab``, or ``until`` if that is less."""
        plan = self.plan
        front = slab * plan.slab_planes - trip.index * plan.pitch_planes
        low, high = max(planes.start, front - lag), min(planes.stop, front + plan.slab_planes - lag)
        if until is not None and until < front + plan.slab_planes:
            high = planes.stop if until >= front else low
        return range(low, high)

    def _moved(self, slab: int, trip: Trip, flow: _Flow) -> Iterator[range]:
        """The planes of a flow in ``slab``, cut where the first planes come round again."""
        planes = self._planes(slab, trip, flow.lag, flow.planes, flow.until)
        end = self.plan.planes
        for part in (
            range(planes.start, min(planes.stop, end)),
            range(max(planes.start, end), planes.stop),
        ):
            if part:
                yield part

    def _ring(self, field: str, trip: Trip, version: int) -> Ring:
        return self.rings[field, (self.plan.base(trip) + version) % self.counts[field]]

    def _slots(self, trip: Trip, first: int, last: int) -> range:
        origin = self.plan.slot_origin(trip)
        return range(origin + first, origin + last)

    def _entering(self, trip: Trip) -> tuple[_Flow, ...]:
        """What a trip reads: its rows of every level, and the seams that the strip before left."""
        if trip.index not in self.entering:
            self.entering.pop(trip.index - 3, None)
            self.entering[trip.index] = tuple(self._enter(trip))
        return self.entering[trip.index]

    def _enter(self, trip: Trip) -> Iterator[_Flow]:
        plan = self.plan
        if plan.resident and trip.sweep > 0:
            return
        entering, wrap = plan.entering(trip), plan.wrap(trip.depth)
        for arrival in plan.arrivals:
            ring = self._ring(arrival.field, trip, arrival.level)
            rows, arriving = plan.arriving(arrival, trip), plan.arriving_planes(arrival, trip)
            # What is resident is still there when it comes round.
            again = wrap.again(arrival.field) if wrap is not None and not plan.resident else 0
            for part in plan.strips.pieces(rows):
                yield _Flow(
                    arrival.field,
                    arrival.level,
                    ring.index,
                    arrival.lead,
                    range(arriving.start, arriving.stop + again),
                    part,
                    constant=arrival.constant,
                )
        if trip.part > 0:
            for ring, rows in self._seams(trip, trip.rows.low):
                yield _Flow(ring.field, 0, ring.index, ring.low, entering, rows, trip.part)
        last = plan.strips.count(trip.depth) - 1
        if trip.part == last:
            for ring, rows in self._turned(trip, plan.layout.rows):
                yield _Flow(ring.field, 0, ring.index, ring.low, entering, rows, last + 1)
        for ring, planes, rows in plan.left(trip):
            again = range(plan.planes + planes.start, plan.planes + planes.stop)
            yield _Flow(ring.field, 0, ring.index, ring.low, again, rows, 0)
        for border in plan.cuts(trip.depth) if not plan.upright else ():
            for ring, planes in self._stairs(border):
                rows, side = plan.owned_rows, int(border.above)
                yield _Flow(ring.field, 0, ring.index, ring.low, planes, rows, side)

    def _stairs(self, border: Border) -> Iterator[tuple[Ring, range]]:
        """What lies at a border, by ring."""
        for stair in border.seams:
            yield self.rings[stair.field, stair.index], range(stair.low, stair.high)

    def _leaving(self, trip: Trip) -> tuple[_Flow, ...]:
        """What a trip writes: its rows of the last levels, and the seams for the next strip."""
        if trip.index not in self.leaving:
            self.leaving.pop(trip.index - 3, None)
            self.leaving[trip.index] = tuple(self._leave(trip))
        return self.leaving[trip.index]

    def _leave(self, trip: Trip) -> Iterator[_Flow]:
        plan = self.plan
        if plan.state_after(trip.sweep + 1) is None:
            return
        cuts = plan.cuts(trip.depth)
        for number, departure in enumerate(plan.departures):
            ring = self._ring(departure.field, trip, trip.depth + departure.level)
            lag = departure.lag(trip.depth, plan.skew)
            planes = plan.put_planes(departure, trip)
            where = (departure.field, departure.level, ring.index, lag)
            for rows in plan.strips.pieces(plan.leaving(departure, trip)):
                yield _Flow(*where, planes, rows)
            for each in self._exchanged(trip.sweep + 1):
                sent = plan.streamed(each.sent.planes)
                yield _Flow(*where, sent, each.sent.rows, peer=each.peer)
            for border in cuts if not plan.upright else ():
                returned = range(*border.returned[number])
                yield _Flow(*where, returned, plan.owned_rows, peer=border.peer)
        for border in cuts if plan.upright else ():
            until = plan.front_end(trip) - 1
            for ring, planes in self._stairs(border):
                where = (ring.field, 0, ring.index, ring.high, planes, plan.owned_rows)
                yield _Flow(*where, int(border.above), peer=border.peer, until=until)
        wrap, last = plan.wrap(trip.depth), plan.strips.count(trip.depth) - 1
        borders = [(trip.part + 1, self._seams(trip, trip.rows.high))] if trip.part < last else []
        borders += [(last + 1, self._turned(trip, 0))] if trip.part == 0 else []
        for border, left in borders:
            for ring, rows in left:
                # The first ones get their last steps when they come round.
                turn = wrap.turn(ring.field, ring.index) if wrap is not None else 0
                planes = range(max(turn, plan.put_from(trip)), turn + plan.planes)
                yield _Flow(ring.field, 0, ring.index, ring.high, planes, rows, border)
        for ring, planes, rows in plan.left(trip):
            left = range(max(planes.start, plan.put_from(trip)), planes.stop)
            yield _Flow(ring.field, 0, ring.index, ring.high, left, rows, 0)

    def _exchanged(self, sweep: int) -> tuple[Exchanged, ...]:
        """What goes between ranks before ``sweep``; nothing after the last one."""
        subgrid = self.plan.subgrid
        if subgrid is None or subgrid.seams or sweep >= self.plan.sweeps:
            return ()
        return tuple(subgrid.exchanged(self.plan.depths[sweep]))

    def _seams(self, trip: Trip, border: int) -> Iterator[tuple[Ring, range]]:
        for ring in self.rings.values():
            most, least = self.plan.seam(ring, trip.depth)
            rows = self.plan.strips.clip(border - most, border - least)
            if rows:
                yield ring, rows

    def _turned(self, trip: Trip, origin: int) -> Iterator[tuple[Ring, range]]:
        """What comes round in strips, with the first row at ``origin``."""
        turn = self.plan.turn(trip.depth)
        for stair in turn.seams if turn is not None else ():
            if rows := range(origin + stair.low, origin + stair.high):
                yield self.rings[stair.field, stair.index], rows

    def _free_after(self, ring: Ring, stream: int) -> int:
        """Advances after which the slot for plane ``stream`` of the stream is out of use."""
        if stream < ring.planes:
            return 0
        slabs = -(-(stream - ring.planes + ring.high + 1) // self.plan.slab_planes)
        return max(0, slabs - self.first_slab)

    def _written_after(self, flow: _Flow, trip: Trip, planes: range) -> int | None:
        """Puts after which ``planes`` of what ``flow`` reads are in their place.

        None if some of these puts were not emitted yet, 0 for what was there before the run.
        """
        put = 0
        for source, first, last in self._sources(flow, trip, planes):
            if last > first:
                written = self.written.get((flow.place, source), [])
                index = bisect_left(written, (last, 0))
                if index == len(written):
                    return None
                put = max(put, written[index][1])
        return put

    def _sources(self, flow: _Flow, trip: Trip, planes: range) -> Iterator[tuple[int, int, int]]:
        """Trips that write what is read of ``planes``: (index, their first plane, the last end)."""
        plan, last, wrap = self.plan, planes.stop, self.plan.wrap(trip.depth)
        if flow.seam and plan.borders:
            return  # these are received
        # What closes a circle is of the first strip.
        apart = trip.part if flow.border == plan.strips.count(trip.depth) else 1
        if wrap is not None and flow.seam and not flow.border:
            yield trip.index, plan.put_from(trip), last - plan.planes
        elif wrap is not None and flow.seam:
            turn = wrap.turn(flow.field, flow.ring)
            again = plan.planes + min(last, turn) if planes.start < turn else last
            yield trip.index - apart, turn, again
        elif flow.seam:
            source = trip.index - apart
            if source >= 0:
                yield source, plan.put_from(self.trips[source]), last
        elif not flow.constant and trip.sweep > 0:
            departure = self.departures[flow.field, flow.level]
            depth, last = plan.depths[trip.sweep - 1], min(last, plan.streamed(plan.owned).stop)
            turn = departure.first(depth, plan.face) if plan.wraps else 0
            if planes.start < turn:  # these leave last
                last = plan.planes + min(last, turn)
            lag = departure.row_lag(depth, plan.strips.fall)
            rise = departure.row_first(depth, plan.strips.rise)
            for owner in plan.strips.owners(depth, lag, rise, flow.rows):
                index = self.trips.number(trip.sweep - 1, owner)
                if index >= 0:
                    source = self.trips[index]
                    left = plan.put_planes(departure, source)
                    yield source.index, left.start, min(last, left.stop)

    def _arriving(self, slab: int) -> Iterator[tuple[_Flow, Trip, range]]:
        for trip in self._active(slab):
            for flow in self._entering(trip):
                for planes in self._moved(slab, trip, flow):
                    yield flow, trip, planes

    def _has_room(self, slab: int) -> bool:
        """Whether the gets of ``slab`` may follow what was emitted so far (rules 2 and 3)."""
        for flow, trip, planes in self._arriving(slab):
            ring = self.rings[flow.field, flow.ring]
            slots = self._slots(trip, planes.start, planes.stop)
            if self._free_after(ring, slots[-1]) > self.advanced:
                return False
            if self._written_after(flow, trip, planes) is None:
                return False
            if self._received_after(flow, trip, planes) is None:
                return False
        return True

    def _received_after(self, flow: _Flow, trip: Trip, planes: range) -> int | None:
        """Receives after which what others own of ``planes`` is in its place.

        None where they were not emitted yet.
        """
        first = trip.sweep == 0 and not flow.seam
        if self.plan.subgrid is None or flow.constant or first:
            return 0
        taken = self.halos.get((trip.sweep, flow.border))
        if taken is None:
            return None
        index = bisect_left(taken, (planes.stop, 0))
        return taken[index - 1][1] if index else 0

    def _receives(self) -> Iterator[Receive]:
        """What neighbours send, as early as there is room for it in its place."""
        yield from self._receive_seams()
        yield from self._receive_state()

    def _receive_state(self) -> Iterator[Receive]:
        """What neighbours send of the next state, as early as its files may be written to.

        The state before the last one is in them: it was read, and is not needed by a restart.
        """
        plan, state = self.plan, self.expected
        last = plan.sweeps if plan.borders else plan.sweeps - 1  # which none goes on from
        if state > last or not self._is_read(state - 2):
            return
        committed = self._durable(state - 1)
        if committed is None:
            return
        self.expected += 1
        self.halos.pop((state - 2, None), None)
        taken = self.halos.setdefault((state, None), [])
        trip, gate = self.trips[state - 1], Gate(committed=committed, got=self.got)
        for each in self._incoming(state):
            self.received += 1
            where = (*each.level, state, -1, each.planes.start, each.planes.stop, each.rows, None)
            yield Receive(self.received - 1, trip, *where, gate, each.peer)
            taken.append((each.due, self.received))
            self.landed = self.received

    def _receive_seams(self) -> Iterator[Receive]:
        """The seams of a sweep, in the order in which they are read.

        Each goes to where that of the sweep before was, and waits until that was read.
        """
        while taken := self._taken(self.asked):
            trip, border, before = taken
            got = 0
            if before is not None:
                if self._last_slab(before, border) >= self.arrived:
                    return
                got = self.seam_got.pop((before.sweep, int(border.above)))
            self.asked += 1
            for ring, planes in self._stairs(border):
                for part in self._in_slabs(planes, opposite=True):
                    self.received += 1
                    side, rows = int(border.above), self.plan.owned_rows
                    where = (ring.field, 0, trip.sweep + 1, ring.index, part.start, part.stop)
                    gate, number = Gate(got=got), self.received - 1
                    yield Receive(number, trip, *where, rows, side, gate, border.peer)
            due = min(planes.start for _, planes in self._stairs(border))
            self.halos.pop((trip.sweep - 2, int(border.above)), None)
            self.halos[trip.sweep, int(border.above)] = [(due, self.received)]

    def _taken(self, number: int) -> tuple[Trip, Border, Trip | None] | None:
        """The trip and the border of a seam that is taken, and the trip before.

        None where no more are.
        """
        plan = self.plan
        sides = [each for each in plan.cuts(plan.depths[0]) if each.seams and not plan.upright]
        sweep = number // len(sides) if sides else plan.sweeps
        if sweep >= plan.sweeps:
            return None
        trip, above = self.trips[sweep], sides[number % len(sides)].above
        border = next(each for each in plan.cuts(trip.depth) if each.above == above)
        return trip, border, self.trips[sweep - 1] if sweep else None

    def _last_slab(self, trip: Trip, at: Border) -> int:
        """The slab whose gets are the last ones of the seam of a trip, at the side of ``at``."""
        border = next(each for each in self.plan.cuts(trip.depth) if each.above == at.above)
        last = max(planes.stop - 1 + ring.low for ring, planes in self._stairs(border))
        return (trip.index * self.plan.pitch_planes + last) // self.plan.slab_planes

    def _in_slabs(self, planes: range, *, opposite: bool = False) -> list[range]:
        """Planes in messages of a slab, as they are sent: from the first on, or from the last."""
        slab = self.plan.slab_planes
        if opposite:
            ends = range(planes.stop, planes.start, -slab)
            return [range(max(planes.start, end - slab), end) for end in ends]
        starts = range(planes.start, planes.stop, slab)
        return [range(first, min(first + slab, planes.stop)) for first in starts]

    def _incoming(self, state: int) -> list[_Incoming]:
        """What is received of a state, in the order of its planes.

        Those of a neighbour come in the order in which it streams. Where that is the opposite one,
        all of them are there when the last one is: the first plane that is needed.
        """
        plan, found = self.plan, list[_Incoming]()
        for each in self._exchanged(state):
            planes = plan.streamed(each.received.planes)
            opposite = opposes(plan, each.peer)
            for part in self._in_slabs(planes, opposite=opposite):
                due = planes.start if opposite else part.start
                for departure in plan.departures:
                    level = departure.field, departure.level
                    found.append(_Incoming(due, each.peer, level, part, each.received.rows))
        for border in plan.cuts(plan.depths[state - 1]) if plan.upright else ():
            for departure, ends in zip(plan.departures, border.returned, strict=True):
                for part in self._in_slabs(range(*ends), opposite=True):
                    level, rows = (departure.field, departure.level), plan.owned_rows
                    found.append(_Incoming(ends[0], border.peer, level, part, rows))
        return sorted(found, key=lambda one: (one.due, one.peer))

    def _durable(self, state: int) -> int | None:
        """Commits after which all of a state is durable; None while there are none."""
        if state == 0:
            return 0
        return self.durable.get(self.trips.number(self.plan.sweeps_until(state), 0) - 1)

    def _is_read(self, sweep: int) -> bool:
        """Whether all gets of a sweep were emitted."""
        if sweep < 0:
            return True
        trip = self.trips[sweep]
        lead = max(arrival.lead for arrival in self.plan.arrivals)
        last = self.plan.entering(trip).stop - 1 + lead + trip.index * self.plan.pitch_planes
        return self.arrived > last // self.plan.slab_planes

    def _gets(self, slab: int) -> Iterator[Get]:
        for flow, trip, planes in self._arriving(slab):
            ring = self.rings[flow.field, flow.ring]
            slots = self._slots(trip, planes.start, planes.stop)
            busy = self.slot_put[flow.field, flow.ring]
            put = max(busy[slot % ring.planes] for slot in slots)
            put = max(put, self._written_after(flow, trip, planes) or 0)
            busy = self.slot_sent[flow.field, flow.ring]
            gate = Gate(
                advanced=self._free_after(ring, slots[-1]),
                put=put,
                sent=max(busy[slot % ring.planes] for slot in slots),
                received=self._received_after(flow, trip, planes) or 0,
            )
            self.got += 1
            if flow.border is not None and self.plan.borders:
                self.seam_got[trip.sweep, flow.border] = self.got
            state = 0 if flow.constant else trip.sweep
            yield Get(*self._move(self.got - 1, flow, trip, state, planes), gate=gate)

    def _move(self, index: int, flow: _Flow, trip: Trip, state: int, planes: range) -> Any:
        """The entries that a get and a put have in common."""
        where = (flow.field, flow.level, state, flow.ring, planes.start, planes.stop)
        return index, trip, *where, flow.rows, flow.border

    def _advance(self, slab: int) -> Advance:
        put = sent = 0
        active = self._active(slab)
        for key, ring in self.rings.items():
            writing, sending = self.slot_put[key], self.slot_sent[key]
            for trip in active:
                planes = self._planes(slab, trip, ring.low, self.plan.touched(trip))
                slots = self._slots(trip, planes.start, planes.stop)
                put = max(put, *(writing[slot % ring.planes] for slot in slots), 0)
                sent = max(sent, *(sending[slot % ring.planes] for slot in slots), 0)
        gate = Gate(advanced=self.advanced, got=self.got_by_slab.pop(slab), put=put, sent=sent)
        self.advanced += 1
        return Advance(self.advanced - 1, parts=tuple(self._parts(slab)), gate=gate)

    def _parts(self, slab: int) -> Iterator[Part]:
        plan = self.plan
        for trip in self._active(slab):
            origin = trip.index * plan.pitch_planes
            first = max(plan.touched(trip).start, slab * plan.slab_planes - origin)
            last = min(plan.front_end(trip), (slab + 1) * plan.slab_planes - origin)
            if first < last:
                yield Part(trip, first, last)

    def _puts(self, slab: int) -> Iterator[Put | Send | Commit | Mark]:
        for trip in self._active(slab):
            for flow in self._leaving(trip):
                for planes in self._moved(slab, trip, flow):
                    if flow.peer is None:
                        yield self._put(flow, trip, planes)
                    else:
                        yield from self._sends(flow, trip, planes, flow.peer)
            yield from self._commits(slab, trip)

    def _commits(self, slab: int, trip: Trip) -> Iterator[Commit | Mark]:
        """What may be said to be durable of the state that a trip writes, as far as ``slab``."""
        plan, state = self.plan, self.plan.state_after(trip.sweep + 1)
        if state is None or trip.index in self.durable:
            return
        point = self._point(slab, trip, state)
        if point is None or point <= self.reached:
            return
        if not (plan.commit_planes or point.state == state):
            return
        self.reached = point
        gate = Gate(advanced=self.advanced, put=self.put, received=self.landed)
        if point.planes:
            every = plan.commit_planes
            if self._passed(point) // every == self._passed(self.kept) // every:
                yield Mark(point, gate)
                return
        self.kept = point
        self.committed += 1
        if not point.planes:
            oldest = self.trips.number(plan.sweeps_until(max(0, state - 2)), 0) - 1
            self.durable = {key: at for key, at in self.durable.items() if key >= oldest}
            self.durable[trip.index] = self.committed
        yield Commit(self.committed - 1, point, gate=gate)

    def _passed(self, point: Point) -> int:
        """Planes of all trips of a sweep up to ``point``."""
        return point.part * self.plan.planes + point.planes

    def _point(self, slab: int, trip: Trip, state: int) -> Point | None:
        """How far all has left that a trip leaves, when a slab is complete.

        None where that is of no use, as an inward face would reach below the grid.
        """
        plan = self.plan
        front = (slab + 1) * plan.slab_planes - trip.index * plan.pitch_planes
        ends = [
            (plan.put_planes(d, trip).stop, d.lag(trip.depth, plan.skew)) for d in plan.departures
        ]
        # Seams that other ranks take are of no use to a restart, what is returned to them is.
        ends += [
            (flow.planes.stop, flow.lag)
            for flow in self._leaving(trip)
            if flow.seam != (flow.peer is not None)
        ]
        under_way = [front - lag for end, lag in ends if front - lag < end]
        if under_way:
            planes = min(under_way)
            return Point(state - 1, trip.part, planes) if planes > plan.lean(trip.depth) else None
        if trip.part + 1 < plan.parts(trip.depth):
            return Point(state - 1, trip.part + 1)
        return Point(state)

    def _sends(self, flow: _Flow, trip: Trip, planes: range, peer: int) -> Iterator[Send]:
        """The planes, cut where one message ends and the next begins."""
        begin, slab, first = flow.planes.start, self.plan.slab_planes, planes.start
        while first < planes.stop:
            low = first - (first - begin) % slab
            piece = range(low, min(low + slab, flow.planes.stop))
            part = range(first, min(planes.stop, piece.stop))
            yield self._send(flow, trip, part, peer, piece)
            first = part.stop

    def _send(self, flow: _Flow, trip: Trip, planes: range, peer: int, piece: range) -> Send:
        ring = self.rings[flow.field, flow.ring]
        self.sent += 1
        busy = self.slot_sent[flow.field, flow.ring]
        for slot in self._slots(trip, planes.start, planes.stop):
            busy[slot % ring.planes] = self.sent
        state, gate = self.plan.states_in(trip.sweep + 1), Gate(advanced=self.advanced)
        move = self._move(self.sent - 1, flow, trip, state, planes)
        return Send(*move, gate=gate, peer=peer, piece=piece)

    def _put(self, flow: _Flow, trip: Trip, planes: range) -> Put:
        ring = self.rings[flow.field, flow.ring]
        self.put += 1
        busy = self.slot_put[flow.field, flow.ring]
        for slot in self._slots(trip, planes.start, planes.stop):
            busy[slot % ring.planes] = self.put
        key = (flow.place, trip.index)
        if key not in self.written:
            oldest = self.trips.number(max(0, trip.sweep - 1), 0)
            for stale in [found for found in self.written if found[1] < oldest]:
                del self.written[stale]
            self.written[key] = []
        while self.written[key] and self.written[key][-1][0] >= planes.stop:
            self.written[key].pop()  # other rows of the same planes
        self.written[key].append((planes.stop, self.put))
        state = trip.sweep + 1 if flow.seam else self.plan.states_in(trip.sweep + 1)
        if not flow.seam:
            before = self._durable(state - 1)
        else:  # no restart needs what it writes over, where commits are whole states
            before = self.durable.get(trip.index - 1) if self.plan.commit_planes else 0
        if before is None:
            raise InfeasiblePlan(f"trip {trip.index} overtakes what has to be durable before it")
        gate = Gate(advanced=self.advanced, committed=before)
        return Put(*self._move(self.put - 1, flow, trip, state, planes), gate=gate)
