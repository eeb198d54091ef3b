"""Counting: obey a program without moving a byte, and check every promise that it makes.

Rows of slots, files and seams carry tags (sweep, plane, row, version) instead of values. I/O starts
and ends in any order that the gates allow, as drawn from ``choose``; a place is void while it is
being written. Every update checks the tag of everything it reads, every put that its source stays
what it is until the write ends, and every write that the state it destroys is not the last durable
one.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import ExecutionError
from outgrid.execute.gates import Watermarks
from outgrid.plan.lifetime import dependences
from outgrid.plan.model import Plan
from outgrid.plan.program import (
    Advance,
    Commit,
    Get,
    Instruction,
    Move,
    Put,
    levels,
    place_rows,
    program,
    row_updates,
)
from outgrid.plan.trip import Trip
from outgrid.stencil.model import Stencil

VOID = -9  # neither a tag nor a state

Tags = NDArray[np.int64]


@dataclass(slots=True)
class Count:
    """What a program moves and updates. ``row_updates`` counts rows of planes times steps."""

    gets: int = 0
    puts: int = 0
    advances: int = 0
    commits: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    row_updates: int = 0


def count(plan: Plan) -> Count:
    """Totals of a program, without checking it."""
    total = Count()
    for instruction in program(plan):
        match instruction:
            case Get():
                total.gets += 1
                total.read_bytes += instruction.count * plan.layout.row_bytes
            case Put():
                total.puts += 1
                total.written_bytes += instruction.count * plan.layout.row_bytes
            case Advance():
                total.advances += 1
                total.row_updates += row_updates(plan, instruction)
            case Commit():
                total.commits += 1
    return total


def check(plan: Plan, stencil: Stencil, choose: random.Random) -> Count:
    """Run the program in an order drawn from ``choose``; raises ExecutionError at a broken rule."""
    return _Check(plan, stencil, choose).run()


@dataclass(frozen=True, slots=True)
class _Reading:
    """What one step reads, in planes and rows around the updated one."""

    field: str
    version: int
    planes: range
    rows: tuple[int, int]


class _Check:
    def __init__(self, plan: Plan, stencil: Stencil, choose: random.Random) -> None:
        self.plan, self.choose = plan, choose
        self.readings = _readings(stencil)
        self.evolving = {field.name for field in stencil.evolving}
        self.written = [
            [assignment.field for assignment in stage.assignments] for stage in stencil.stages
        ]
        self.marks = Watermarks()
        self.total = Count()
        self.rows = plan.layout.rows
        self.rings = {(ring.field, ring.index): ring for ring in plan.rings}
        self.slots: dict[tuple[str, int], Tags] = {
            key: np.full((ring.planes, plan.layout.window_rows), VOID, np.int64)
            for key, ring in self.rings.items()
        }
        # State held by each place of the two files of every level; VOID while it is written.
        self.files: dict[tuple[str, int, int], Tags] = {}
        for arrival in plan.arrivals:
            for parity in (0, 1):
                state = 0 if parity == 0 else -1
                held = np.full((plan.planes, self.rows), state, np.int64)
                self.files[arrival.field, arrival.level, parity] = held
        self.seams: dict[tuple[str, int], Tags] = {
            key: np.full(shape[:2], VOID, np.int64) for key, shape in plan.seams.items()
        }
        self.durable = (0, plan.planes)  # a state, and its planes
        self._resume()
        self.stream = program(plan)
        self.queues: dict[type, deque[Instruction]] = {
            kind: deque() for kind in (Get, Advance, Put, Commit)
        }
        self.flying: list[tuple[Move, list[Tags]]] = []
        self.done: dict[tuple[int, int, int], NDArray[np.bool_]] = {}

    def run(self) -> Count:
        """Draw one possible action after another until nothing is left."""
        self._pull()
        while self.flying or any(self.queues.values()):
            actions = [
                queue for queue in self.queues.values() if queue and self.marks.open(queue[0].gate)
            ]
            pick = self.choose.randrange(len(actions) + len(self.flying) or 1)
            if pick < len(actions):
                self._start(actions[pick].popleft())
            elif self.flying:
                self._end(*self.flying.pop(self.choose.randrange(len(self.flying))))
            else:
                heads = [queue[0] for queue in self.queues.values() if queue]
                raise ExecutionError(f"deadlock: {heads[0]} waits for {self._missing(heads[0])}")
            self._pull()
        wanted = self.plan.row_updates
        if self.total.row_updates != wanted:
            raise ExecutionError(f"{self.total.row_updates} row updates instead of {wanted}")
        return self.total

    def _resume(self) -> None:
        """The files as a run left them that had come to ``begin_planes`` of state 1."""
        begin = self.plan.begin_planes
        if begin:
            first = self.plan.trips[0].planes.low
            self.durable = (1, begin)
            for departure in self.plan.departures:
                self.files[departure.field, departure.level, 0][:first] = VOID
                self.files[departure.field, departure.level, 1][:begin] = 1

    def _missing(self, instruction: Instruction) -> str:
        return self.marks.missing(instruction.gate)

    def _pull(self) -> None:
        """Keep the program visible up to a few advances beyond the current one."""
        while len(self.queues[Advance]) < 3:
            instruction = next(self.stream, None)
            if instruction is None:
                return
            self.queues[type(instruction)].append(instruction)

    def _start(self, instruction: Instruction) -> None:
        match instruction:
            case Get():
                self._start_get(instruction)
            case Put():
                self._start_put(instruction)
            case Advance():
                self._advance(instruction)
            case Commit():
                self._commit(instruction)

    def _held(self, move: Move) -> list[Tags]:
        """The rows of a move in the window, plane by plane."""
        return [
            self._slot(move.field, move.ring, move.trip, plane, move.rows)
            for plane in range(move.first, move.last)
        ]

    def _slot(self, field: str, index: int, trip: Trip, plane: int, rows: range) -> Tags:
        slots = self.slots[field, index]
        origin = self.plan.row_origin(trip)
        slot = slots[(self.plan.slot_origin(trip) + plane) % len(slots)]
        if rows.start < origin or rows.stop > origin + len(slot):
            raise ExecutionError(f"rows {rows} of plane {plane} are outside the window in {trip}")
        return slot[rows.start - origin : rows.stop - origin]

    def _place(self, move: Move) -> list[Tags]:
        """The rows of a move in their file or seam, plane by plane."""
        store = (
            self.seams[move.field, move.ring]
            if move.seam
            else self.files[move.field, move.level, move.state % 2]
        )
        rows = place_rows(self.plan, move)
        return [store[plane, rows.start : rows.stop] for plane in range(move.first, move.last)]

    def _start_get(self, get: Get) -> None:
        places = self._place(get)
        planes = range(get.first, get.last)
        for plane, place, held in zip(planes, places, self._held(get), strict=True):
            if get.seam and (place == VOID).any():
                raise ExecutionError(f"{get} reads a seam of plane {plane} that is not written")
            if not get.seam and (place != get.state).any():
                raise ExecutionError(f"{get} reads plane {plane} of state {place.min()}")
            held[:] = VOID
        self.flying.append((get, [place.copy() for place in places]))

    def _start_put(self, put: Put) -> None:
        state, planes = self.durable
        complete = state if planes == self.plan.planes else state - 1
        if not put.seam and (put.state - complete) % 2 == 0:
            raise ExecutionError(f"{put} destroys state {complete}, the last durable one")
        if not put.seam and put.state == state and put.first < planes:
            raise ExecutionError(f"{put} writes over planes below {planes}, which are durable")
        self._check_source(put)
        for place in self._place(put):
            place[:] = VOID
        self.flying.append((put, [held.copy() for held in self._held(put)]))

    def _check_source(self, put: Put) -> None:
        version = put.trip.depth + put.level
        for plane, held in zip(range(put.first, put.last), self._held(put), strict=True):
            wanted = self._tags(put.trip, plane, put.rows, version)
            if (held == VOID).any() or not (put.seam or (held == wanted).all()):
                raise ExecutionError(f"{put} finds {self._name(int(held[0]))} for plane {plane}")

    def _end(self, move: Move, begun: list[Tags]) -> None:
        moved = move.count * self.plan.layout.row_bytes
        places, planes = self._place(move), range(move.first, move.last)
        if isinstance(move, Get):
            held = self._held(move)
            for plane, place, slot, before in zip(planes, places, held, begun, strict=True):
                if (place != before).any():
                    raise ExecutionError(f"{move} was overtaken by a write to plane {plane}")
                if (slot != VOID).any():
                    raise ExecutionError(f"slot of plane {plane} was touched during {move}")
                read = self._tags(move.trip, plane, move.rows, move.level)
                slot[:] = before if move.seam else read
            self.total.gets += 1
            self.total.read_bytes += moved
            self.marks.got.complete(move.index)
        else:
            held = self._held(move)
            for plane, place, slot, before in zip(planes, places, held, begun, strict=True):
                if (slot != before).any():
                    raise ExecutionError(f"plane {plane} was updated during {move}")
                place[:] = before if move.seam else move.state
            self.total.puts += 1
            self.total.written_bytes += moved
            self.marks.put.complete(move.index)

    def _commit(self, commit: Commit) -> None:
        for departure in self.plan.departures:
            held = self.files[departure.field, departure.level, commit.state % 2]
            if (held[: commit.planes] != commit.state).any():
                raise ExecutionError(f"{commit} before all of that is written")
        if (commit.state, commit.planes) <= self.durable:
            raise ExecutionError(f"{commit} after {self.durable}")
        self.durable = (commit.state, commit.planes)
        self.total.commits += 1
        self.marks.committed.complete(commit.index)

    def _advance(self, advance: Advance) -> None:
        for trip, step, stage, planes, rows in levels(self.plan, advance):
            for plane in planes:
                self._update(trip, step, stage, plane, rows)
        self.total.advances += 1
        self.marks.advanced.complete(advance.index)

    def _update(self, trip: Trip, step: int, stage: int, plane: int, rows: range) -> None:
        done = self.done.get((trip.sweep, step, stage))
        if done is None:
            done = np.zeros((self.plan.planes, self.rows), bool)
            self.done[trip.sweep, step, stage] = done
        if self.plan.blocks is None and done[plane, rows.start : rows.stop].any():
            raise ExecutionError(f"plane {plane} of sweep {trip.sweep} is updated twice to {step}")
        done[plane, rows.start : rows.stop] = True
        self._check_reads(trip, step, stage, plane, rows)
        for field in self.written[stage]:
            slot = self._version(field, trip, step, plane, rows)
            slot[:] = self._tags(trip, plane, rows, step)
        self.total.row_updates += len(rows) if stage == 0 else 0

    def _version(self, field: str, trip: Trip, version: int, plane: int, rows: range) -> Tags:
        index = (self.plan.base(trip.sweep) + version) % self.plan.ring_count(field)
        return self._slot(field, index, trip, plane, rows)

    def _check_reads(self, trip: Trip, step: int, stage: int, plane: int, rows: range) -> None:
        for read in self.readings[stage]:
            evolving = read.field in self.evolving
            version = step + read.version if evolving else 0
            reached = range(
                max(0, rows.start + read.rows[0]), min(self.rows, rows.stop + read.rows[1])
            )
            for offset in read.planes:
                at = plane + offset
                if not 0 <= at < self.plan.planes:
                    continue
                found = self._version(read.field, trip, version, at, reached)
                wrong = found != self._tags(trip, at, reached, version, evolving=evolving)
                if wrong.any():
                    row = int(np.argmax(wrong))
                    raise ExecutionError(
                        f"the update of plane {plane} to {step} in sweep {trip.sweep} reads "
                        f"{self._name(int(found[row]))} of {read.field} at plane {at}, row "
                        f"{reached[row]}, instead of version {version}"
                    )

    def _tags(
        self, trip: Trip, plane: int, rows: range, version: int, *, evolving: bool = True
    ) -> Tags:
        """The tags of rows of a plane; a resident value keeps one name through all sweeps."""
        sweep = trip.sweep
        if self.plan.resident:
            version = version + sum(self.plan.depths[:sweep]) if evolving else version
            sweep = 0
        tall = sum(self.plan.depths) + 3
        first = ((sweep * self.plan.planes + plane) * self.rows + rows.start) * tall + version + 1
        return first + tall * np.arange(len(rows), dtype=np.int64)

    def _name(self, tag: int) -> str:
        if tag == VOID:
            return "nothing"
        place, version = divmod(tag, sum(self.plan.depths) + 3)
        plane, row = divmod(place, self.rows)
        sweep, plane = divmod(plane, self.plan.planes)
        return f"sweep {sweep} plane {plane} row {row} version {version - 1}"


def _readings(stencil: Stencil) -> list[list[_Reading]]:
    """What each stage reads."""
    along = dependences(stencil).readings
    across = dependences(stencil, axis=1).readings if stencil.ndim == 3 else along
    found: list[list[_Reading]] = [[] for _ in stencil.stages]
    for one, other in zip(along, across, strict=True):
        rows = (other.low, other.high) if stencil.ndim == 3 else (0, 0)
        planes = range(one.low, one.high + 1)
        found[one.reader].append(_Reading(one.field, one.version, planes, rows))
    return found
