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
from collections.abc import Sequence

import msgspec
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
    Put,
    Receive,
    Send,
    opposes,
    program,
    row_updates,
)
from outgrid.stencil.model import Stencil
from outgrid.testing.restarts import Restarts
from outgrid.testing.steps import Steps
from outgrid.testing.tagged import VOID, Tagged, Tags


class Count(msgspec.Struct):
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


class _Message(msgspec.Struct, frozen=True):
    """Rows of a plane of the grid, and what they hold."""

    plane: int
    rows: range
    state: int
    tags: Tags


class _Check:
    """One rank that obeys its program, and what of it is under way."""

    def __init__(
        self,
        plan: Plan,
        stencil: Stencil,
        choose: random.Random,
        closed: bool,
        post: _Post,
        rank: int,
    ) -> None:
        self.plan, self.choose = plan, choose
        self.schedule = schedule = plan.schedule
        self.post, self.rank = post, rank
        self.marks = Watermarks()
        self.total = Count()
        self.memory = Tagged(schedule)
        self.restarts = Restarts(schedule, self.memory, post.states)
        shared = schedule.domain.subgrid.seams
        self.steps = Steps(plan, stencil, self.memory, post.done if shared else {}, closed)
        self.stream = program(plan)
        self.queues: dict[type, deque[Instruction]] = {
            kind: deque() for kind in (Get, Advance, Put, Commit, Send, Receive, Mark)
        }
        self.flying: list[tuple[Move, list[Tags]]] = []
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
            self.flying = [other for other in self.flying if other is not entry]
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
            for other, _ in self.flying[: [begun for begun, _ in self.flying].index(move)]
        )
        return len(queue) >= move.last - move.first and not any(before)

    def finish(self) -> Count:
        """The totals, with all steps made."""
        wanted, self.total.row_updates = self.schedule.row_updates, self.steps.row_updates
        if self.total.row_updates != wanted:
            raise ExecutionError(f"{self.total.row_updates} row updates instead of {wanted}")
        return self.total

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
                self.steps.advance(instruction)
                self.total.advances += 1
                self.marks.advanced.complete(instruction.index)
            case Commit():
                self._commit(instruction)
            case Mark():
                if instruction.point > self.restarts.durable:
                    self.restarts.check_there(instruction.point, instruction)
            case Send():
                self._check_source(instruction)
                self.flying.append((instruction, [h.copy() for h in self.memory.held(instruction)]))
                queue = self.post.queue(self.rank, instruction.peer, instruction)
                where = instruction.rows, instruction.state
                queue.extend(
                    _Message(self.memory.of_grid(plane), *where, held.copy())
                    for plane, held in zip(
                        range(instruction.first, instruction.last),
                        self.memory.held(instruction),
                        strict=True,
                    )
                )
            case Receive():
                self.restarts.check_overwritten(instruction)
                for place in self.memory.place(instruction):
                    place[:] = VOID
                self.flying.append((instruction, []))

    def _start_get(self, get: Get) -> None:
        places = self.memory.place(get)
        planes = range(get.first, get.last)
        for plane, place, held in zip(planes, places, self.memory.held(get), strict=True):
            if get.seam and (place == VOID).any():
                raise ExecutionError(f"{get} reads a seam of plane {plane} that is not written")
            if not get.seam and (place != get.state).any():
                raise ExecutionError(f"{get} reads plane {plane} of state {place.min()}")
            held[:] = VOID
        self.flying.append((get, [place.copy() for place in places]))

    def _start_put(self, put: Put) -> None:
        self.restarts.check_overwritten(put)
        self._check_source(put)
        for place in self.memory.place(put):
            place[:] = VOID
        self.flying.append((put, [held.copy() for held in self.memory.held(put)]))

    def _check_source(self, put: Put | Send) -> None:
        version = put.trip.depth + put.level
        for plane, held in zip(range(put.first, put.last), self.memory.held(put), strict=True):
            wanted = self.memory.tags(put.trip, plane, put.rows, version)
            if (held == VOID).any() or not (put.seam or (held == wanted).all()):
                raise ExecutionError(
                    f"{put} finds {self.memory.name(int(held[0]))} for plane {plane}"
                )

    def _end(self, move: Move, begun: list[Tags]) -> None:
        moved = move.nbytes(self.plan)
        if isinstance(move, Send):
            if any((a != b).any() for a, b in zip(self.memory.held(move), begun, strict=True)):
                raise ExecutionError(f"planes were updated during {move}")
            self.total.sent_bytes += moved
            self.marks.sent.complete(move.index)
            return
        if isinstance(move, Receive):
            self._end_receive(move, moved)
            return
        places, planes = self.memory.place(move), range(move.first, move.last)
        if isinstance(move, Get):
            held = self.memory.held(move)
            for plane, place, slot, before in zip(planes, places, held, begun, strict=True):
                if (place != before).any():
                    raise ExecutionError(f"{move} was overtaken by a write to plane {plane}")
                if (slot != VOID).any():
                    raise ExecutionError(f"slot of plane {plane} was touched during {move}")
                read = self.memory.tags(move.trip, plane, move.rows, move.level)
                slot[:] = before if move.seam else read
            self.total.gets += 1
            self.total.read_bytes += moved
            self.marks.got.complete(move.index)
        else:
            held = self.memory.held(move)
            for plane, place, slot, before in zip(planes, places, held, begun, strict=True):
                if (slot != before).any():
                    raise ExecutionError(f"plane {plane} was updated during {move}")
                place[:] = before if move.seam else move.state
            self.total.puts += 1
            self.total.written_bytes += moved
            self.marks.put.complete(move.index)

    def _end_receive(self, move: Receive, moved: int) -> None:
        queue = self.post.queue(move.peer, self.rank, move)
        wanted = list(zip(range(move.first, move.last), self.memory.place(move), strict=True))
        for at, place in reversed(wanted) if opposes(self.schedule, move.peer) else wanted:
            came, plane = queue.popleft(), self.memory.of_grid(at)
            if (came.plane, came.rows, came.state) != (plane, move.rows, move.state):
                raise ExecutionError(f"{move} finds {came}")
            if (place != VOID).any():
                raise ExecutionError(f"plane {plane} was written during {move}")
            place[:] = came.tags if move.seam else move.state
        self.total.received_bytes += moved
        self.total.written_bytes += moved
        self.marks.received.complete(move.index)

    def _commit(self, commit: Commit) -> None:
        self.restarts.check_there(commit.point, commit)
        if commit.point <= self.restarts.durable:
            raise ExecutionError(f"{commit} after {self.restarts.durable}")
        self.restarts.durable = commit.point
        self.post.states[self.rank] = commit.point.state
        self.post.commits[self.rank] += 1
        self.total.commits += 1
        self.said.append(commit)
