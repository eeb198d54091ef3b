"""The program: a flat stream of instructions, each with the gate that it waits for.

A gate holds four watermarks. An instruction may start when at least that many advances, gets,
puts and commits *from the start of the program* are complete, whatever the order in which the
later ones finish. Four rules make the gates:

1. an advance needs its planes in the window, and free slots for the planes it touches first;
2. a slot is free when its old plane is out of use and every result held in it is written;
3. a plane of sweep p + 1 is read after the plane of sweep p was written to that place;
4. a result leaves when its last update is done, and sweep p + 1 writes over state p only after
   state p + 1 is durable.

Instructions come in an order that is itself a valid serial execution, so running them one by one
is correct, and running each as soon as its gate opens is correct and fast.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from outgrid.errors import InfeasiblePlan
from outgrid.plan.model import Arrival, Departure, Plan, Ring


@dataclass(frozen=True, slots=True)
class Gate:
    """Numbers of leading instructions of each kind that must be complete."""

    advanced: int = 0
    got: int = 0
    put: int = 0
    committed: int = 0


@dataclass(frozen=True, slots=True)
class Get:
    """Read planes [first, last) of a field's ``level`` in ``state`` into a ring."""

    index: int
    sweep: int
    field: str
    level: int
    state: int
    ring: int
    first: int
    last: int
    gate: Gate


@dataclass(frozen=True, slots=True)
class Part:
    """The share of one sweep in an advance: its own front positions [first, last)."""

    sweep: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Advance:
    """Move the front over one slab: all levels of every sweep that is under it."""

    index: int
    parts: tuple[Part, ...]
    gate: Gate


@dataclass(frozen=True, slots=True)
class Put:
    """Write planes [first, last) of a field's ``level`` from a ring; they are part of ``state``."""

    index: int
    sweep: int
    field: str
    level: int
    state: int
    ring: int
    first: int
    last: int
    gate: Gate


@dataclass(frozen=True, slots=True)
class Commit:
    """Flush what was written and say, durably, that ``state`` is complete."""

    index: int
    state: int
    gate: Gate


Instruction = Get | Advance | Put | Commit


def levels(plan: Plan, advance: Advance) -> Iterator[tuple[int, int, int, int, int]]:
    """(sweep, step, stage, first, last) of the planes that an advance updates, in order."""
    for part in advance.parts:
        for step in range(1, plan.depths[part.sweep] + 1):
            for stage, shift in enumerate(plan.shifts):
                back = shift + plan.skew * step
                first, last = max(0, part.first - back), min(plan.planes, part.last - back)
                if first < last:
                    yield part.sweep, step, stage, first, last


def plane_updates(plan: Plan, advance: Advance) -> int:
    """Planes times steps that one advance begins to update."""
    return sum(last - first for _, _, stage, first, last in levels(plan, advance) if stage == 0)


def program(plan: Plan) -> Iterator[Instruction]:
    """Instructions of the whole run, lazily, in an order that is a valid serial execution."""
    return _Lowering(plan).run() if plan.depths else iter(())


class _Lowering:
    """State of the lowering: what was emitted so far, and who used each slot and place last."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rings = {(ring.field, ring.index): ring for ring in plan.rings}
        self.counts = {field: plan.ring_count(field) for field, _ in self.rings}
        self.advanced = self.got = self.put = self.committed = 0
        self.got_by_slab: list[int] = []  # watermark of the gets that slabs 0..i need
        # Watermark of the puts that must end before a slot is used again (rule 2). For each level
        # and state, how far its planes were written, as pairs of last plane and watermark (rule 3).
        self.slot_put = {key: [0] * ring.planes for key, ring in self.rings.items()}
        self.file_put: dict[tuple[str, int, int], list[tuple[int, int]]] = {}

    def run(self) -> Iterator[Instruction]:
        """Alternate: every get that the window has room for, one advance, its puts, commits."""
        for slab in range(self.plan.slabs):
            while len(self.got_by_slab) < self.plan.slabs and self._has_room(len(self.got_by_slab)):
                yield from self._gets(len(self.got_by_slab))
                self.got_by_slab.append(self.got)
            if len(self.got_by_slab) <= slab:
                raise InfeasiblePlan(
                    f"slab {slab} of {self.plan.slabs} waits for planes that a window of "
                    f"{self.plan.window_bytes} bytes has no room for; a depth lower than "
                    f"{self.plan.depth} fits"
                )
            yield self._advance(slab)
            yield from self._puts(slab)

    def _under(self, slab: int, lag: int) -> Iterator[tuple[int, int, int]]:
        """(sweep, first, last) of the planes Z with ``Z + lag`` in ``slab``."""
        plan = self.plan
        start, stop = slab * plan.slab_planes - lag, (slab + 1) * plan.slab_planes - lag
        for sweep in range(max(0, start // plan.pitch_planes), plan.sweeps):
            origin = sweep * plan.pitch_planes
            if origin >= stop:
                return
            first, last = max(0, start - origin), min(plan.planes, stop - origin)
            if first < last:
                yield sweep, first, last

    def _ring(self, field: str, sweep: int, version: int) -> Ring:
        return self.rings[field, (self.plan.base(sweep) + version) % self.counts[field]]

    def _slots(self, sweep: int, first: int, last: int) -> range:
        origin = self.plan.slot_origin(sweep)
        return range(origin + first, origin + last)

    def _arriving(self, slab: int) -> Iterator[tuple[Arrival, Ring, int, int, int]]:
        for arrival in self.plan.arrivals:
            for sweep, first, last in self._under(slab, arrival.lead):
                if not (self.plan.resident and sweep > 0):
                    ring = self._ring(arrival.field, sweep, arrival.level)
                    yield arrival, ring, sweep, first, last

    def _free_after(self, ring: Ring, stream: int) -> int:
        """Advances after which the slot for plane ``stream`` of the stream is out of use."""
        if stream < ring.planes:
            return 0
        return -(-(stream - ring.planes + ring.high + 1) // self.plan.slab_planes)

    def _written_after(self, arrival: Arrival, state: int, last: int) -> int | None:
        """Puts after which planes up to ``last`` of a state are in the file, if they are known."""
        written = self.file_put.get((arrival.field, arrival.level, state), [])
        index = bisect_left(written, (last, 0))
        return written[index][1] if index < len(written) else None

    def _has_room(self, slab: int) -> bool:
        """Whether the gets of ``slab`` may follow what was emitted so far (rules 2 and 3)."""
        for arrival, ring, sweep, first, last in self._arriving(slab):
            if self._free_after(ring, self._slots(sweep, first, last)[-1]) > self.advanced:
                return False
            unwritten = sweep > 0 and self._written_after(arrival, sweep, last) is None
            if unwritten and not arrival.constant:
                return False
        return True

    def _gets(self, slab: int) -> Iterator[Get]:
        for arrival, ring, sweep, first, last in self._arriving(slab):
            slots = self._slots(sweep, first, last)
            busy = self.slot_put[ring.field, ring.index]
            put = max(busy[slot % ring.planes] for slot in slots)
            if not arrival.constant and sweep > 0:
                put = max(put, self._written_after(arrival, sweep, last) or 0)
            self.got += 1
            yield Get(
                index=self.got - 1,
                sweep=sweep,
                field=arrival.field,
                level=arrival.level,
                state=0 if arrival.constant else sweep,
                ring=ring.index,
                first=first,
                last=last,
                gate=Gate(advanced=self._free_after(ring, slots[-1]), put=put),
            )

    def _advance(self, slab: int) -> Advance:
        put = 0
        for key, ring in self.rings.items():
            for sweep, first, last in self._under(slab, ring.low):
                slots = self._slots(sweep, first, last)
                put = max(put, *(self.slot_put[key][slot % ring.planes] for slot in slots))
        self.advanced += 1
        gate = Gate(advanced=slab, got=self.got_by_slab[slab], put=put)
        return Advance(index=slab, parts=tuple(self._parts(slab)), gate=gate)

    def _active(self, slab: int) -> range:
        """Sweeps that may have planes of any level under the front in ``slab``."""
        plan = self.plan
        start, stop = slab * plan.slab_planes, (slab + 1) * plan.slab_planes
        longest = plan.planes + plan.skew * plan.depth + max(plan.shifts)
        first = max(0, (start - longest) // plan.pitch_planes)
        return range(first, min(plan.sweeps, -(-stop // plan.pitch_planes)))

    def _parts(self, slab: int) -> Iterator[Part]:
        plan = self.plan
        for sweep in self._active(slab):
            origin = sweep * plan.pitch_planes
            end = plan.planes + plan.skew * plan.depths[sweep] + max(plan.shifts)
            first = max(0, slab * plan.slab_planes - origin)
            last = min(end, (slab + 1) * plan.slab_planes - origin)
            if first < last:
                yield Part(sweep, first, last)

    def _puts(self, slab: int) -> Iterator[Put | Commit]:
        plan = self.plan
        for sweep in self._active(slab):
            if plan.resident and sweep < plan.sweeps - 1:
                continue
            lags = [d.lag(plan.depths[sweep], plan.skew) for d in plan.departures]
            for departure, lag in zip(plan.departures, lags, strict=True):
                for found, first, last in self._under(slab, lag):
                    if found == sweep:
                        yield self._put(departure, sweep, first, last)
            final = sweep * plan.pitch_planes + plan.planes - 1 + max(lags)
            if final // plan.slab_planes == slab:
                self.committed += 1
                yield Commit(self.committed - 1, state=sweep + 1, gate=Gate(put=self.put))

    def _put(self, departure: Departure, sweep: int, first: int, last: int) -> Put:
        plan = self.plan
        ring = self._ring(departure.field, sweep, plan.depths[sweep] + departure.level)
        self.put += 1
        busy = self.slot_put[ring.field, ring.index]
        for slot in self._slots(sweep, first, last):
            busy[slot % ring.planes] = self.put
        written = self.file_put.setdefault((departure.field, departure.level, sweep + 1), [])
        written.append((last, self.put))
        self.file_put.pop((departure.field, departure.level, sweep - 2), None)
        return Put(
            index=self.put - 1,
            sweep=sweep,
            field=departure.field,
            level=departure.level,
            state=sweep + 1,
            ring=ring.index,
            first=first,
            last=last,
            gate=Gate(advanced=self.advanced, committed=0 if plan.resident else sweep),
        )
