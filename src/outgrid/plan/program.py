"""The program: a flat stream of instructions, each with the gate that it waits for.

A gate holds four watermarks. An instruction may start when at least that many advances, gets,
puts and commits *from the start of the program* are complete, whatever the order in which the
later ones finish. Four rules make the gates:

1. an advance needs its planes in the window, and free slots for the planes it touches first;
2. a slot is free when its old plane is out of use and every result held in it is written;
3. rows of sweep p + 1 are read after those of sweep p were written to that place, and a seam after
   the strip before wrote it;
4. a result leaves when its last update is done, and sweep p + 1 writes over state p only after
   state p + 1 is durable as a whole.

Commits also say how far a state is durable that is not complete. A restart goes on from there, as
long as state p is whole; a sweep writes over it no earlier because of them.

The stream is a sequence of trips: of the whole grid, sweep after sweep, or of its strips. Seams are
moved by gets and puts like any rows; a strip reads the seam of a plane before it leaves its own in
the same place.

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
from outgrid.plan.instruction import (
    Advance,
    Commit,
    Gate,
    Get,
    Instruction,
    Move,
    Part,
    Put,
    levels,
    place_rows,
    row_updates,
)
from outgrid.plan.model import Plan, Ring
from outgrid.plan.trip import Trip

__all__ = [
    "Advance",
    "Commit",
    "Gate",
    "Get",
    "Instruction",
    "Move",
    "Part",
    "Put",
    "levels",
    "place_rows",
    "program",
    "row_updates",
]


def program(plan: Plan) -> Iterator[Instruction]:
    """Instructions of the whole run, lazily, in an order that is a valid serial execution."""
    if not plan.depths:
        return iter(())
    return overlapped.lower(plan) if plan.blocks is not None else _Lowering(plan).run()


@dataclass(frozen=True, slots=True)
class _Flow:
    """What enters or leaves the window with one trip, for planes Z with ``Z + lag`` in a slab."""

    field: str
    level: int
    ring: int
    lag: int
    rows: range
    seam: bool
    constant: bool = False

    @property
    def place(self) -> tuple[str, int, bool]:
        """The file, or the seam, that the rows lie in."""
        return self.field, self.ring if self.seam else self.level, self.seam


class _Lowering:
    """State of the lowering: what was emitted so far, and who used each slot and place last."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.trips = plan.trips
        self.rings = {(ring.field, ring.index): ring for ring in plan.rings}
        self.counts = {field: plan.ring_count(field) for field, _ in self.rings}
        self.advanced = self.got = self.put = self.committed = 0
        # Watermark of the gets that slabs 0..i need; those before the first need none.
        self.first_slab = plan.first_slab
        self.got_by_slab = [0] * self.first_slab
        self.states = {sweeps: state for state, sweeps in enumerate(plan.kept, start=1)}
        self.commits: dict[int, tuple[int, int]] = {}  # by state: commits so far, and its planes
        # Watermark of the puts that must end before a slot is used again (rule 2). For each place
        # and trip, how far its planes were written, as pairs of last plane and watermark (rule 3).
        self.slot_put = {key: [0] * ring.planes for key, ring in self.rings.items()}
        self.written: dict[tuple[tuple[str, int, bool], int], list[tuple[int, int]]] = {}
        self.entering: dict[int, tuple[_Flow, ...]] = {}
        self.leaving: dict[int, tuple[_Flow, ...]] = {}
        self.first_trips = [0]
        for depth in plan.depths:
            self.first_trips.append(self.first_trips[-1] + plan.strips.count(depth))
        self.departures = {(each.field, each.level): each for each in plan.departures}
        reach = plan.skew * plan.depth + max(plan.shifts)
        self.longest = plan.planes + max(reach, *(ring.high for ring in plan.rings)) + 1

    def run(self) -> Iterator[Instruction]:
        """Alternate: every get that the window has room for, one advance, its puts, commits."""
        slabs = self.plan.slabs
        for slab in range(self.first_slab, slabs):
            while len(self.got_by_slab) < slabs and self._has_room(len(self.got_by_slab)):
                yield from self._gets(len(self.got_by_slab))
                self.got_by_slab.append(self.got)
            if len(self.got_by_slab) <= slab:
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
        return self.trips[first : -(-stop // plan.pitch_planes)]

    def _planes(self, slab: int, trip: Trip, lag: int, low: int = 0) -> range:
        """The planes Z of a trip, from ``low`` on, with ``Z + lag`` in ``slab``."""
        plan = self.plan
        start = slab * plan.slab_planes - lag - trip.index * plan.pitch_planes
        return range(max(low, start), min(plan.planes, start + plan.slab_planes))

    def _ring(self, field: str, sweep: int, version: int) -> Ring:
        return self.rings[field, (self.plan.base(sweep) + version) % self.counts[field]]

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
        for arrival in plan.arrivals:
            ring = self._ring(arrival.field, trip.sweep, arrival.level)
            rows = plan.arriving(arrival, trip)
            if rows:
                yield _Flow(
                    arrival.field,
                    arrival.level,
                    ring.index,
                    arrival.lead,
                    rows,
                    seam=False,
                    constant=arrival.constant,
                )
        if trip.part > 0:
            for ring, rows in self._seams(trip, trip.rows.low):
                yield _Flow(ring.field, 0, ring.index, ring.low, rows, seam=True)

    def _leaving(self, trip: Trip) -> tuple[_Flow, ...]:
        """What a trip writes: its rows of the last levels, and the seams for the next strip."""
        if trip.index not in self.leaving:
            self.leaving.pop(trip.index - 3, None)
            self.leaving[trip.index] = tuple(self._leave(trip))
        return self.leaving[trip.index]

    def _leave(self, trip: Trip) -> Iterator[_Flow]:
        plan = self.plan
        if trip.sweep + 1 not in self.states:
            return
        for departure in plan.departures:
            ring = self._ring(departure.field, trip.sweep, trip.depth + departure.level)
            rows = plan.leaving(departure, trip)
            if rows:
                lag = departure.lag(trip.depth, plan.skew)
                yield _Flow(departure.field, departure.level, ring.index, lag, rows, seam=False)
        if trip.part < plan.strips.count(trip.depth) - 1:
            for ring, rows in self._seams(trip, trip.rows.high):
                yield _Flow(ring.field, 0, ring.index, ring.high, rows, seam=True)

    def _seams(self, trip: Trip, border: int) -> Iterator[tuple[Ring, range]]:
        for ring in self.rings.values():
            most, least = self.plan.seam(ring, trip.depth)
            rows = self.plan.strips.clip(border - most, border - least)
            if rows:
                yield ring, rows

    def _free_after(self, ring: Ring, stream: int) -> int:
        """Advances after which the slot for plane ``stream`` of the stream is out of use."""
        if stream < ring.planes:
            return 0
        slabs = -(-(stream - ring.planes + ring.high + 1) // self.plan.slab_planes)
        return max(0, slabs - self.first_slab)

    def _written_after(self, flow: _Flow, trip: Trip, last: int) -> int | None:
        """Puts after which planes up to ``last`` of what ``flow`` reads are in their place.

        None if some of these puts were not emitted yet, 0 for what was there before the run.
        """
        if flow.seam:
            sources = range(trip.index - 1, trip.index)
        elif flow.constant or trip.sweep == 0 or last <= self.plan.first_put(trip.sweep - 1):
            return 0
        else:
            departure = self.departures[flow.field, flow.level]
            depth = self.plan.depths[trip.sweep - 1]
            lag = departure.row_lag(depth, self.plan.strips.skew)
            owners = self.plan.strips.owners(depth, lag, flow.rows)
            begin = self.first_trips[trip.sweep - 1]
            sources = range(begin + owners.start, begin + owners.stop)
        put = 0
        for source in sources:
            written = self.written.get((flow.place, source), [])
            index = bisect_left(written, (last, 0))
            if index == len(written):
                return None
            put = max(put, written[index][1])
        return put

    def _arriving(self, slab: int) -> Iterator[tuple[_Flow, Trip, range]]:
        for trip in self._active(slab):
            low = trip.planes.at(0, self.plan.planes).start
            for flow in self._entering(trip):
                planes = self._planes(slab, trip, flow.lag, low)
                if planes:
                    yield flow, trip, planes

    def _has_room(self, slab: int) -> bool:
        """Whether the gets of ``slab`` may follow what was emitted so far (rules 2 and 3)."""
        for flow, trip, planes in self._arriving(slab):
            ring = self.rings[flow.field, flow.ring]
            slots = self._slots(trip, planes.start, planes.stop)
            if self._free_after(ring, slots[-1]) > self.advanced:
                return False
            if self._written_after(flow, trip, planes.stop) is None:
                return False
        return True

    def _gets(self, slab: int) -> Iterator[Get]:
        for flow, trip, planes in self._arriving(slab):
            ring = self.rings[flow.field, flow.ring]
            slots = self._slots(trip, planes.start, planes.stop)
            busy = self.slot_put[flow.field, flow.ring]
            put = max(busy[slot % ring.planes] for slot in slots)
            put = max(put, self._written_after(flow, trip, planes.stop) or 0)
            gate = Gate(advanced=self._free_after(ring, slots[-1]), put=put)
            self.got += 1
            state = 0 if flow.constant else trip.sweep
            yield Get(*self._move(self.got - 1, flow, trip, state, planes), gate=gate)

    def _move(self, index: int, flow: _Flow, trip: Trip, state: int, planes: range) -> Any:
        """The entries that a get and a put have in common."""
        where = (flow.field, flow.level, state, flow.ring, planes.start, planes.stop)
        return index, trip, *where, flow.rows, flow.seam

    def _advance(self, slab: int) -> Advance:
        put = 0
        active = self._active(slab)
        for key, ring in self.rings.items():
            busy = self.slot_put[key]
            for trip in active:
                planes = self._planes(slab, trip, ring.low)
                slots = self._slots(trip, planes.start, planes.stop)
                put = max(put, *(busy[slot % ring.planes] for slot in slots), 0)
        gate = Gate(advanced=self.advanced, got=self.got_by_slab[slab], put=put)
        self.advanced += 1
        return Advance(self.advanced - 1, parts=tuple(self._parts(slab)), gate=gate)

    def _parts(self, slab: int) -> Iterator[Part]:
        plan = self.plan
        for trip in self._active(slab):
            origin = trip.index * plan.pitch_planes
            end = plan.planes + plan.skew * trip.depth + max(plan.shifts)
            first = max(0, slab * plan.slab_planes - origin)
            last = min(end, (slab + 1) * plan.slab_planes - origin)
            if first < last:
                yield Part(trip, first, last)

    def _puts(self, slab: int) -> Iterator[Put | Commit]:
        plan = self.plan
        for trip in self._active(slab):
            low = plan.first_put(trip.sweep)
            for flow in self._leaving(trip):
                planes = self._planes(slab, trip, flow.lag, low)
                if planes:
                    yield self._put(flow, trip, planes)
            yield from self._commits(slab, trip)

    def _commits(self, slab: int, trip: Trip) -> Iterator[Commit]:
        """What may be said to be durable of the state that a trip writes, as far as ``slab``."""
        plan, state = self.plan, self.states.get(trip.sweep + 1)
        if state is None or trip.index + 1 != self.first_trips[trip.sweep + 1]:
            return
        lag = max(d.lag(trip.depth, plan.skew) for d in plan.departures)
        written = (slab + 1) * plan.slab_planes - lag - trip.index * plan.pitch_planes
        written = min(plan.planes, written)
        _, before = self.commits.get(state, (0, plan.first_put(trip.sweep)))
        every = plan.commit_planes
        due = every > 0 and written // every > before // every
        if written > before and (due or written == plan.planes):
            self.committed += 1
            self.commits[state] = self.committed, written
            self.commits.pop(state - 3, None)
            yield Commit(self.committed - 1, state, written, gate=Gate(put=self.put))

    def _put(self, flow: _Flow, trip: Trip, planes: range) -> Put:
        ring = self.rings[flow.field, flow.ring]
        self.put += 1
        busy = self.slot_put[flow.field, flow.ring]
        for slot in self._slots(trip, planes.start, planes.stop):
            busy[slot % ring.planes] = self.put
        key = (flow.place, trip.index)
        if key not in self.written:
            oldest = self.first_trips[max(0, trip.sweep - 1)]
            for stale in [found for found in self.written if found[1] < oldest]:
                del self.written[stale]
            self.written[key] = []
        self.written[key].append((planes.stop, self.put))
        # State 0 is durable from the start. A seam holds nothing that a restart would need.
        state = trip.sweep + 1 if flow.seam else self.states[trip.sweep + 1]
        before = 0 if flow.seam else self.commits.get(state - 1, (0, 0))[0]
        gate = Gate(advanced=self.advanced, committed=before)
        return Put(*self._move(self.put - 1, flow, trip, state, planes), gate=gate)
