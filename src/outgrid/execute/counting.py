"""Counting: obey a program without moving a byte, and check every promise that it makes.

Slots and file places carry tags (sweep, plane, version) instead of values. I/O starts and ends in
any order that the gates allow, as drawn from ``choose``; a place is void while it is being
written. Every update checks the tag of everything it reads, every put that its source stays what
it is until the write ends, and every write that the state it destroys is not the last durable one.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from outgrid.errors import ExecutionError
from outgrid.execute.gates import Watermarks
from outgrid.plan.lifetime import Dependences
from outgrid.plan.model import Plan
from outgrid.plan.program import (
    Advance,
    Commit,
    Get,
    Instruction,
    Put,
    levels,
    plane_updates,
    program,
)

Tag = tuple[int, int, int]  # sweep, plane, version


@dataclass(slots=True)
class Count:
    """What a program moves and updates. ``plane_updates`` counts planes times steps."""

    gets: int = 0
    puts: int = 0
    advances: int = 0
    commits: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    plane_updates: int = 0


def count(plan: Plan) -> Count:
    """Totals of a program, without checking it."""
    total = Count()
    for instruction in program(plan):
        match instruction:
            case Get():
                total.gets += 1
                total.read_bytes += (instruction.last - instruction.first) * plan.plane_bytes
            case Put():
                total.puts += 1
                total.written_bytes += (instruction.last - instruction.first) * plan.plane_bytes
            case Advance():
                total.advances += 1
                total.plane_updates += plane_updates(plan, instruction)
            case Commit():
                total.commits += 1
    return total


def check(plan: Plan, found: Dependences, choose: random.Random) -> Count:
    """Run the program in an order drawn from ``choose``; raises ExecutionError at a broken rule."""
    return _Check(plan, found, choose).run()


class _Check:
    def __init__(self, plan: Plan, found: Dependences, choose: random.Random) -> None:
        self.plan, self.found, self.choose = plan, found, choose
        self.marks = Watermarks()
        self.total = Count()
        self.slots: dict[tuple[str, int], list[Tag | None]] = {
            (ring.field, ring.index): [None] * ring.planes for ring in plan.rings
        }
        # State held by each place of the two files of every level; None while it is written.
        self.files: dict[tuple[str, int, int], list[int | None]] = {}
        for arrival in plan.arrivals:
            for parity in (0, 1):
                state = 0 if parity == 0 else -1
                self.files[arrival.field, arrival.level, parity] = [state] * plan.planes
        self.durable = 0
        self.stream = program(plan)
        self.queues: dict[type, deque[Instruction]] = {
            kind: deque() for kind in (Get, Advance, Put, Commit)
        }
        self.flying: list[Get | Put] = []
        self.done: set[tuple[int, int, int, int]] = set()

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
                self._end(self.flying.pop(self.choose.randrange(len(self.flying))))
            else:
                heads = [queue[0] for queue in self.queues.values() if queue]
                raise ExecutionError(f"deadlock: {heads[0]} waits for {self._missing(heads[0])}")
            self._pull()
        wanted = self.plan.planes * sum(self.plan.depths)
        if self.total.plane_updates != wanted:
            raise ExecutionError(f"{self.total.plane_updates} plane updates instead of {wanted}")
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
                self._advance(instruction)
            case Commit():
                self._commit(instruction)

    def _cells(self, move: Get | Put) -> Iterator[tuple[int, int]]:
        ring = self.plan.ring(move.field, move.ring)
        origin = self.plan.slot_origin(move.sweep)
        for plane in range(move.first, move.last):
            yield plane, (origin + plane) % ring.planes

    def _start_get(self, get: Get) -> None:
        source = self.files[get.field, get.level, get.state % 2]
        slots = self.slots[get.field, get.ring]
        for plane, slot in self._cells(get):
            if source[plane] != get.state:
                raise ExecutionError(f"{get} reads plane {plane} of state {source[plane]}")
            slots[slot] = None
        self.flying.append(get)

    def _start_put(self, put: Put) -> None:
        target = self.files[put.field, put.level, put.state % 2]
        if not self.plan.resident and self.durable < put.state - 1:
            raise ExecutionError(f"{put} destroys state {self.durable}, the last durable one")
        self._check_source(put)
        for plane, _ in self._cells(put):
            target[plane] = None
        self.flying.append(put)

    def _check_source(self, put: Put) -> None:
        slots = self.slots[put.field, put.ring]
        version = self.plan.depths[put.sweep] + put.level
        for plane, slot in self._cells(put):
            if not self._is(slots[slot], put.sweep, plane, version, evolving=True):
                raise ExecutionError(f"{put} finds {slots[slot]} for plane {plane}")

    def _end(self, move: Get | Put) -> None:
        moved = (move.last - move.first) * self.plan.plane_bytes
        if isinstance(move, Get):
            source = self.files[move.field, move.level, move.state % 2]
            slots = self.slots[move.field, move.ring]
            for plane, slot in self._cells(move):
                if source[plane] != move.state:
                    raise ExecutionError(f"{move} was overtaken by a write to plane {plane}")
                if slots[slot] is not None:
                    raise ExecutionError(f"slot of plane {plane} was touched during {move}")
                slots[slot] = (move.sweep, plane, move.level)
            self.total.gets += 1
            self.total.read_bytes += moved
            self.marks.got.complete(move.index)
        else:
            self._check_source(move)
            target = self.files[move.field, move.level, move.state % 2]
            for plane, _ in self._cells(move):
                target[plane] = move.state
            self.total.puts += 1
            self.total.written_bytes += moved
            self.marks.put.complete(move.index)

    def _commit(self, commit: Commit) -> None:
        for departure in self.plan.departures:
            held = self.files[departure.field, departure.level, commit.state % 2]
            if any(state != commit.state for state in held):
                raise ExecutionError(f"{commit} before all of state {commit.state} is written")
        if commit.state <= self.durable:
            raise ExecutionError(f"{commit} after state {self.durable}")
        self.durable = commit.state
        self.total.commits += 1
        self.marks.committed.complete(commit.index)

    def _advance(self, advance: Advance) -> None:
        for sweep, step, stage, first, last in levels(self.plan, advance):
            for plane in range(first, last):
                self._update(sweep, step, stage, plane)
        self.total.advances += 1
        self.marks.advanced.complete(advance.index)

    def _update(self, sweep: int, step: int, stage: int, plane: int) -> None:
        if (sweep, step, stage, plane) in self.done:
            raise ExecutionError(f"plane {plane} of sweep {sweep} is updated twice to {step}")
        self.done.add((sweep, step, stage, plane))
        self._check_reads(sweep, step, stage, plane)
        for write in self.found.writings:
            if write.writer == stage:
                slots, slot = self._slot(write.field, sweep, step, plane)
                slots[slot] = (sweep, plane, step)
        self.total.plane_updates += stage == 0

    def _slot(
        self, field: str, sweep: int, version: int, plane: int
    ) -> tuple[list[Tag | None], int]:
        index = (self.plan.base(sweep) + version) % self.plan.ring_count(field)
        slots = self.slots[field, index]
        origin = self.plan.slot_origin(sweep)
        return slots, (origin + plane) % len(slots)

    def _check_reads(self, sweep: int, step: int, stage: int, plane: int) -> None:
        written = {write.field for write in self.found.writings}
        for read in self.found.readings:
            if read.reader != stage:
                continue
            for offset in range(read.low, read.high + 1):
                at = plane + offset
                if not 0 <= at < self.plan.planes:
                    continue
                version = step + read.version if read.field in written else 0
                slots, slot = self._slot(read.field, sweep, version, at)
                evolving = read.field in written
                if not self._is(slots[slot], sweep, at, version, evolving=evolving):
                    raise ExecutionError(
                        f"the update of plane {plane} to {step} in sweep {sweep} reads "
                        f"{slots[slot]} of {read.field} at plane {at} instead of version {version}"
                    )

    def _is(self, tag: Tag | None, sweep: int, plane: int, version: int, *, evolving: bool) -> bool:
        """Whether a tag is the wanted value, under any name that it has."""
        if tag is None or not self.plan.resident:
            return tag == (sweep, plane, version)
        if not evolving:
            return tag[1] == plane
        # A resident value keeps the name that an earlier sweep gave it.
        return (sum(self.plan.depths[: tag[0]]) + tag[2], tag[1]) == (
            sum(self.plan.depths[:sweep]) + version,
            plane,
        )
