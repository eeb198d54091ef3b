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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import ExecutionError
from outgrid.execute.gates import Watermarks
from outgrid.plan.model import Plan
from outgrid.plan.program import (
    Advance,
    Commit,
    Get,
    Instruction,
    Mark,
    Move,
    Point,
    Put,
    Receive,
    Send,
    levels,
    opposes,
    program,
    row_updates,
)
from outgrid.plan.schedule.lifetime import dependences
from outgrid.plan.schedule.model import ACROSS, STREAMED, Passage
from outgrid.plan.schedule.rings import Departure
from outgrid.plan.schedule.seam import SeamKey
from outgrid.plan.schedule.share import Share, Shares
from outgrid.plan.schedule.subgrid import common
from outgrid.plan.schedule.trip import Trip, pieces
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
    sent_bytes: int = 0
    received_bytes: int = 0


def count(plan: Plan) -> Count:
    """Totals of a program, without checking it."""
    total = Count()
    for instruction in program(plan):
        match instruction:
            case Get():
                total.gets += 1
                total.read_bytes += instruction.nbytes(plan)
            case Put():
                total.puts += 1
                total.written_bytes += instruction.nbytes(plan)
            case Advance():
                total.advances += 1
                total.row_updates += row_updates(plan, instruction)
            case Commit():
                total.commits += 1
            case Mark():
                pass
            case Send():
                total.sent_bytes += instruction.nbytes(plan)
            case Receive():
                total.received_bytes += instruction.nbytes(plan)
                total.written_bytes += instruction.nbytes(plan)
    return total


def check(plan: Plan, stencil: Stencil, choose: random.Random, closed: bool = False) -> Count:
    """Run the program in an order drawn from ``choose``; raises ExecutionError at a broken rule.

    ``closed`` grids are periodic along the streamed axis.
    """
    return check_ranks((plan,), stencil, choose, closed)[0]


def check_ranks(
    plans: Sequence[Plan], stencil: Stencil, choose: random.Random, closed: bool = False
) -> tuple[Count, ...]:
    """Run the programs of all ranks side by side, as `check` does; messages take their time."""
    post = _Post(len(plans))
    ranks = [_Check(plan, stencil, choose, closed, post, rank) for rank, plan in enumerate(plans)]
    while waiting := [rank for rank in ranks if not rank.ended]:
        choose.shuffle(waiting)
        if not any(rank.turn() for rank in waiting):
            raise ExecutionError("deadlock: " + "; ".join(rank.head() for rank in waiting))
    return tuple(rank.finish() for rank in ranks)


class _Post:
    """What is on its way between ranks, and how far each of them says it has come.

    ``done`` are the updates made, where no two ranks make the same.
    """

    def __init__(self, ranks: int) -> None:
        self.messages: dict[tuple[int, int, str, int, bool], deque[_Message]] = {}
        self.done: dict[tuple[int, int, int], NDArray[np.bool_]] = {}
        self.states = [0] * ranks  # durable as a whole, by rank
        self.commits = [0] * ranks

    def queue(self, source: int, target: int, move: Move) -> deque[_Message]:
        """Planes of one level, or of one ring, from one rank to another, in order."""
        seam = move.seam is not None
        key = source, target, move.field, move.ring if seam else move.level, seam
        return self.messages.setdefault(key, deque())


@dataclass(frozen=True, slots=True)
class _Message:
    """Rows of a plane of the grid, and what they hold."""

    plane: int
    rows: range
    state: int
    tags: Tags


@dataclass(frozen=True, slots=True)
class _Reading:
    """What one step reads, in planes and rows around the updated one."""

    field: str
    version: int
    planes: range
    rows: tuple[int, int]


class _Check:
    def __init__(
        self,
        plan: Plan,
        stencil: Stencil,
        choose: random.Random,
        closed: bool,
        post: _Post,
        rank: int,
    ) -> None:
        self.plan, self.choose, self.closed = plan, choose, closed
        self.schedule = schedule = plan.schedule
        self.post, self.rank = post, rank
        self.readings = _readings(stencil, schedule.domain.downward)
        self.evolving = {field.name for field in stencil.evolving}
        self.written = [
            [assignment.field for assignment in stage.assignments] for stage in stencil.stages
        ]
        self.marks = Watermarks()
        self.total = Count()
        self.departures = schedule.departures
        self.planes, self.rows = schedule.planes, schedule.rows
        self.tall = sum(schedule.depths) + 3  # versions that a row may have
        self.counts = {ring.field: schedule.ring_count(ring.field) for ring in schedule.rings}
        self.passages: dict[int, Passage] = {}
        self.grid_rows: dict[range, Tags] = {}
        self.rings = {(ring.field, ring.index): ring for ring in schedule.rings}
        self.slots: dict[tuple[str, int], Tags] = {
            key: np.full((ring.planes, schedule.window_rows), VOID, np.int64)
            for key, ring in self.rings.items()
        }
        # State held by each place of the two files of every level; VOID while it is written.
        self.files: dict[tuple[str, int, int], Tags] = {}
        for arrival in schedule.arrivals:
            for parity in (0, 1):
                state = 0 if parity == 0 else -1
                held = np.full((schedule.planes, self.rows), VOID, np.int64)
                of = (
                    schedule.stored.held(schedule.depth)
                    if arrival.constant
                    else schedule.stored.evolving(schedule.depth)
                )
                stored, rows = of.planes, of.rows
                held[stored.start : stored.stop, rows.start : rows.stop] = state
                self.files[arrival.field, arrival.level, parity] = held
        self.seams: dict[SeamKey, Tags] = {
            key: np.full(shape[:2], VOID, np.int64) for key, shape in schedule.places.items()
        }
        self.whole = replace(schedule, begin=Point())
        self.trips = self.whole.trips
        self.durable = schedule.begin
        self._resume()
        self.stream = program(plan)
        self.queues: dict[type, deque[Instruction]] = {
            kind: deque() for kind in (Get, Advance, Put, Commit, Send, Receive, Mark)
        }
        self.flying: list[tuple[Move, list[Tags]]] = []
        seams = schedule.subgrid is not None and schedule.subgrid.seams
        self.done: dict[tuple[int, int, int], NDArray[np.bool_]] = post.done if seams else {}
        self.said: deque[Commit] = deque()  # which other ranks have not all said yet
        self._pull()

    @property
    def ended(self) -> bool:
        """Whether nothing is left to be done."""
        return not (self.flying or self.said or any(self.queues.values()))

    def turn(self) -> bool:
        """One of the actions that are possible; False where none is."""
        heard = self._hear()
        actions = [
            queue for queue in self.queues.values() if queue and self.marks.open(queue[0].gate)
        ]
        flying = [entry for entry in self.flying if self._may_end(entry[0])]
        if not actions and not flying:
            return heard
        pick = self.choose.randrange(len(actions) + len(flying))
        if pick < len(actions):
            self._start(actions[pick].popleft())
        else:
            entry = flying[self.choose.randrange(len(flying))]
            self.flying = [each for each in self.flying if each is not entry]
            self._end(*entry)
        self._pull()
        return True

    def head(self) -> str:
        """What cannot go on."""
        heads = [queue[0] for queue in self.queues.values() if queue]
        if not heads:
            return f"rank {self.rank} waits for {self.flying or self.said}"
        return f"{heads[0]} waits for {self._missing(heads[0])}"

    def _hear(self) -> bool:
        """Commits that all ranks have made are done."""
        heard = False
        while self.said and min(self.post.commits) > self.said[0].index:
            self.marks.committed.complete(self.said.popleft().index)
            heard = True
        return heard

    def _may_end(self, move: Move) -> bool:
        """A receive ends when all of its planes were sent; planes come in order."""
        if not isinstance(move, Receive):
            return True
        queue = self.post.queue(move.peer, self.rank, move)
        before = (
            isinstance(other, Receive) and self.post.queue(other.peer, self.rank, other) is queue
            for other, _ in self.flying[: [each for each, _ in self.flying].index(move)]
        )
        return len(queue) >= move.last - move.first and not any(before)

    def finish(self) -> Count:
        """The totals, with all steps made."""
        wanted = self.schedule.row_updates
        if self.total.row_updates != wanted:
            raise ExecutionError(f"{self.total.row_updates} row updates instead of {wanted}")
        return self.total

    def _resume(self) -> None:
        """The files as a run left them that had come to where this plan begins.

        What is not read of state 0 is void, to show that it is not.
        """
        schedule, point = self.schedule, self.durable
        if point == Point(0):
            return
        read = [np.zeros((schedule.planes, self.rows), bool) for _ in schedule.arrivals]
        for trip in (trip for trip in schedule.trips if trip.sweep == 0):
            for arrival, seen in zip(schedule.arrivals, read, strict=True):
                box = schedule.passage(trip).arriving(arrival)
                for part in pieces(box.rows, self.rows):
                    first = part.start % self.rows
                    seen[box.planes.start : box.planes.stop, first : first + len(part)] = True
        for arrival, seen in zip(schedule.arrivals, read, strict=True):
            if not arrival.constant:
                self.files[arrival.field, arrival.level, 0][~seen] = VOID
        for departure in schedule.departures:
            self.files[departure.field, departure.level, 1][self._there(departure, point)] = 1
        for place, tags in self._seams_of(point):
            place[:] = tags

    def _seams_of(self, point: Point) -> Iterator[tuple[Tags, Tags]]:
        """What a restart at a point reads of seams: (the rows in their place, their tags).

        Those of the strip before it and what is there of its own, and what closes a circle.
        """
        for trip in self._begun(point) if self.seams and point.begun > point.state else ():
            planes = range(point.planes if trip.part == point.part else self.planes)
            for share in Shares(self.whole.passage(trip)).given():
                if trip.part + 1 >= point.part or (share.seam.closes and share.seam.axis == ACROSS):
                    yield from self._share_tags(trip, share, common(share.planes, planes))

    def _share_tags(self, trip: Trip, share: Share, planes: range) -> Iterator[tuple[Tags, Tags]]:
        """What a trip leaves in ``planes`` of a seam: the last versions of a ring made there.

        What lies beyond the cut has not come to the next ones.
        """
        seam, ring, (plane0, row0) = share.seam, share.ring, share.origin
        count, levels = self.counts[ring.field], sum(d.field == ring.field for d in self.departures)
        versions = [v for v in range(1 - levels, trip.depth + 1) if v % count == ring.index]

        def made(cell: int) -> int:
            beyond = cell - share.at if seam.rises else share.at - 1 - cell
            return max(v for v in versions if abs(seam.edge(ring.field, v)) <= beyond)

        along = seam.axis == STREAMED
        for version, cells in groupby(planes if along else share.rows, made):
            found = [*cells]
            part = range(found[0], found[-1] + 1)
            there, across = (part, share.rows) if along else (planes, part)
            for plane in there:
                place = self.seams[share.key][plane - plane0]
                tags = self._tags(trip, plane, across, version)
                yield place[across.start - row0 : across.stop - row0], tags

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
            case Mark():
                if instruction.point > self.durable:
                    self._check_there(instruction.point, instruction)
            case Send():
                self._check_source(instruction)
                self.flying.append((instruction, [h.copy() for h in self._held(instruction)]))
                queue = self.post.queue(self.rank, instruction.peer, instruction)
                where = instruction.rows, instruction.state
                queue.extend(
                    _Message(self._of_grid(plane), *where, held.copy())
                    for plane, held in zip(
                        range(instruction.first, instruction.last),
                        self._held(instruction),
                        strict=True,
                    )
                )
            case Receive():
                self._check_overwritten(instruction)
                for place in self._place(instruction):
                    place[:] = VOID
                self.flying.append((instruction, []))

    def _held(self, move: Move) -> list[Tags]:
        """The rows of a move in the window, plane by plane."""
        return [
            self._slot(move.field, move.ring, move.trip, plane, move.rows)
            for plane in range(move.first, move.last)
        ]

    def _slot(self, field: str, index: int, trip: Trip, plane: int, rows: range) -> Tags:
        slots, passage = self.slots[field, index], self._passage(trip)
        origin = passage.row_origin
        slot = slots[(passage.slot_origin + plane) % len(slots)]
        if rows.start < origin or rows.stop > origin + len(slot):
            raise ExecutionError(f"rows {rows} of plane {plane} are outside the window in {trip}")
        return slot[rows.start - origin : rows.stop - origin]

    def _passage(self, trip: Trip) -> Passage:
        passage = self.passages.get(trip.index)
        if passage is None:
            passage = self.passages[trip.index] = self.schedule.passage(trip)
        return passage

    def _rows_of_grid(self, rows: range) -> Tags:
        """Rows of a trip as the grid counts them: on a circle the first ones come again."""
        found = self.grid_rows.get(rows)
        if found is None:
            found = np.arange(rows.start, rows.stop, dtype=np.int64) % self.rows
            self.grid_rows[rows] = found
        return found

    def _of_grid(self, plane: int) -> int:
        """A plane of the stream as the grid counts it."""
        return self.planes - 1 - plane if self.schedule.domain.downward else plane

    def _place(self, move: Move) -> list[Tags]:
        """The rows of a move in their file or seam, plane by plane."""
        store = (
            self.seams[move.seam]
            if move.seam is not None
            else self.files[move.field, move.level, move.state % 2]
        )
        rows = move.there.rows
        return [store[plane, rows.start : rows.stop] for plane in move.there.planes]

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

    def _check_overwritten(self, put: Put | Receive) -> None:
        """A restart goes on from the last state that is durable at all ranks."""
        complete, point = min(self.post.states), self.durable
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
        first, found = self.trips.number(point.state, 0), set[SeamKey]()
        for part in range(point.part):
            given = Shares(self.whole.passage(self.trips[first + part])).given()
            found |= {
                share.key
                for share in given
                if share.seam.axis == ACROSS and (share.seam.closes or part + 1 == point.part)
            }
        if point.planes and (writer.sweep, writer.part) != (point.state, point.part):
            given = Shares(self.whole.passage(self.trips[first + point.part])).given()
            found |= {share.key for share in given}
        return found

    def _start_put(self, put: Put) -> None:
        self._check_overwritten(put)
        self._check_source(put)
        for place in self._place(put):
            place[:] = VOID
        self.flying.append((put, [held.copy() for held in self._held(put)]))

    def _check_source(self, put: Put | Send) -> None:
        version = put.trip.depth + put.level
        for plane, held in zip(range(put.first, put.last), self._held(put), strict=True):
            wanted = self._tags(put.trip, plane, put.rows, version)
            if (held == VOID).any() or not (put.seam or (held == wanted).all()):
                raise ExecutionError(f"{put} finds {self._name(int(held[0]))} for plane {plane}")

    def _end(self, move: Move, begun: list[Tags]) -> None:
        moved = move.nbytes(self.plan)
        if isinstance(move, Send):
            if any((a != b).any() for a, b in zip(self._held(move), begun, strict=True)):
                raise ExecutionError(f"planes were updated during {move}")
            self.total.sent_bytes += moved
            self.marks.sent.complete(move.index)
            return
        if isinstance(move, Receive):
            self._end_receive(move, moved)
            return
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

    def _end_receive(self, move: Receive, moved: int) -> None:
        queue = self.post.queue(move.peer, self.rank, move)
        wanted = list(zip(range(move.first, move.last), self._place(move), strict=True))
        for at, place in reversed(wanted) if opposes(self.schedule, move.peer) else wanted:
            came, plane = queue.popleft(), self._of_grid(at)
            if (came.plane, came.rows, came.state) != (plane, move.rows, move.state):
                raise ExecutionError(f"{move} finds {came}")
            if (place != VOID).any():
                raise ExecutionError(f"plane {plane} was written during {move}")
            place[:] = came.tags if move.seam else move.state
        self.total.received_bytes += moved
        self.total.written_bytes += moved
        self.marks.received.complete(move.index)

    def _commit(self, commit: Commit) -> None:
        self._check_there(commit.point, commit)
        if commit.point <= self.durable:
            raise ExecutionError(f"{commit} after {self.durable}")
        self.durable = commit.point
        self.post.states[self.rank] = commit.point.state
        self.post.commits[self.rank] += 1
        self.total.commits += 1
        self.said.append(commit)

    def _check_there(self, point: Point, what: Instruction) -> None:
        """Everything up to ``point`` is written."""
        for departure in self.schedule.departures:
            held = self.files[departure.field, departure.level, point.begun % 2]
            if (held[self._there(departure, point)] != point.begun).any():
                raise ExecutionError(f"{what} before all of that is written")
        for place, tags in self._seams_of(point):
            if (place != tags).any():
                raise ExecutionError(f"{what} before its seams are written")

    def _there(self, each: Departure, point: Point) -> NDArray[np.bool_]:
        """The cells of the last level begun that a run has written when it has come so far."""
        schedule, begun = self.whole, point.begun
        there = np.zeros((schedule.planes, self.rows), bool)
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
            box = schedule.passage(trip).leaving(each)
            end = point.planes if trip.part == point.part else box.planes.stop
            for plane in range(box.planes.start, min(box.planes.stop, end)):
                there[plane % self.planes, self._rows_of_grid(box.rows)] = True
        return there

    def _begun(self, point: Point) -> tuple[Trip, ...]:
        """The trips of the sweep under way at ``point``, up to the one that it names."""
        first = self.trips.number(point.state, 0)
        return self.trips[first : first + point.part + 1]

    def _advance(self, advance: Advance) -> None:
        for trip, step, stage, planes, rows in levels(self.plan, advance):
            for plane in planes:
                self._update(trip, step, stage, plane, rows)
        self.total.advances += 1
        self.marks.advanced.complete(advance.index)

    def _update(self, trip: Trip, step: int, stage: int, plane: int, rows: range) -> None:
        done = self.done.get((trip.sweep, step, stage))
        if done is None:
            done = np.zeros((self.planes, self.rows), bool)
            self.done[trip.sweep, step, stage] = done
        at, there = self._of_grid(plane % self.planes), self._rows_of_grid(rows)
        if self.schedule.blocks is None and done[at, there].any():
            raise ExecutionError(f"plane {at} of sweep {trip.sweep} is updated twice to {step}")
        done[at, there] = True
        self._check_reads(trip, step, stage, plane, rows)
        for field in self.written[stage]:
            slot = self._version(field, trip, step, plane, rows)
            slot[:] = self._tags(trip, plane, rows, step)
        self.total.row_updates += len(rows) if stage == 0 else 0

    def _version(self, field: str, trip: Trip, version: int, plane: int, rows: range) -> Tags:
        index = (self._passage(trip).base + version) % self.counts[field]
        return self._slot(field, index, trip, plane, rows)

    def _check_reads(self, trip: Trip, step: int, stage: int, plane: int, rows: range) -> None:
        passage = self._passage(trip)
        (most, last), (closes, turns) = passage.extents, passage.periods
        for read in self.readings[stage]:
            evolving = read.field in self.evolving
            version = step + read.version if evolving else 0
            reached = range(rows.start + read.rows[0], rows.stop + read.rows[1])
            if turns and not (reached.start >= 0 and reached.stop <= last):
                raise ExecutionError(
                    f"the update of rows {rows} to {step} in sweep {trip.sweep} reads rows "
                    f"{reached}, which do not come round"
                )
            reached = range(max(0, reached.start), min(last, reached.stop))
            for offset in read.planes:
                at = plane + offset
                if not 0 <= at < most:
                    if closes:
                        raise ExecutionError(
                            f"the update of plane {plane} to {step} in sweep {trip.sweep} reads "
                            f"plane {at}, which does not come round"
                        )
                    if not self.closed:
                        continue  # a mirror's image, which lies no farther off
                    at %= self.planes
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
        if self.schedule.resident:
            version = version + sum(self.schedule.depths[:sweep]) if evolving else version
            sweep = 0
        plane = self._of_grid(plane % self.planes)
        first = (sweep * self.planes + plane) * self.rows * self.tall + version + 1
        return first + self.tall * self._rows_of_grid(rows)

    def _name(self, tag: int) -> str:
        if tag == VOID:
            return "nothing"
        place, version = divmod(tag, self.tall)
        plane, row = divmod(place, self.rows)
        sweep, plane = divmod(plane, self.planes)
        return f"sweep {sweep} plane {plane} row {row} version {version - 1}"


def _readings(stencil: Stencil, downward: bool) -> list[list[_Reading]]:
    """What each stage reads, on planes as the stream counts them."""
    found = dependences(stencil)
    along = (found.mirrored() if downward else found).readings
    across = dependences(stencil, axis=1).readings if stencil.ndim == 3 else along
    each: list[list[_Reading]] = [[] for _ in stencil.stages]
    for one, other in zip(along, across, strict=True):
        rows = (other.low, other.high) if stencil.ndim == 3 else (0, 0)
        planes = range(one.low, one.high + 1)
        each[one.reader].append(_Reading(one.field, one.version, planes, rows))
    return each
