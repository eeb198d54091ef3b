"""Streaming: obey a program over real stores, with a kernel that updates what is in the window.

The calling thread runs the kernel. Between slabs, and while it has to wait, it starts every get,
put and commit whose gate is open; the transfers themselves run beside the kernel. So long as the
window holds a slab being read and one being written, neither side waits for the other.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from outgrid.errors import ExecutionError, Stopped, StoreError
from outgrid.execute.gates import Watermarks
from outgrid.execute.kernel import Kernel
from outgrid.execute.stop import Stop
from outgrid.execute.window import Window
from outgrid.plan.model import Plan
from outgrid.plan.program import (
    Advance,
    Commit,
    Gate,
    Get,
    Instruction,
    Move,
    Put,
    place_rows,
    program,
    row_updates,
)
from outgrid.storage import Completion, Planes, Store, Transfers

# A request that takes longer than this has gone missing; a run that waits for it says so.
STUCK_SECONDS = 300.0
TURN_SECONDS = 1.0  # after which a run that waits looks whether it has to stop
PROGRESS_SECONDS = 0.25

StoreKey = tuple[str, int, int]  # field, level, state modulo 2
SeamKey = tuple[str, int]  # field, ring


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come. Seconds and bytes are those of the sweeps so far."""

    sweep: int
    sweeps: int
    slab: int
    slabs: int
    updates_done: int
    updates_total: int
    seconds: float
    read_bytes: int
    written_bytes: int
    wait_seconds: float


@dataclass(slots=True)
class Tally:
    """What the executor measured."""

    seconds: float = 0.0
    compute_seconds: float = 0.0
    wait_seconds: float = 0.0
    read_bytes: int = 0
    written_bytes: int = 0
    row_updates: int = 0
    waits: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])


def stream(
    plan: Plan,
    kernel: Kernel,
    window: Window,
    stores: Mapping[StoreKey, Store],
    transfers: Transfers,
    committed: Callable[[int, int], None],
    progress: Callable[[Progress], None] | None = None,
    leaving: Callable[[Put, Window], None] | None = None,
    instructions: Iterable[Instruction] | None = None,
    tally: Tally | None = None,
    stop: Stop | None = None,
    seams: Mapping[SeamKey, Store] | None = None,
) -> Tally:
    """Run the whole program, counting into ``tally`` (which ``committed`` may look at).

    ``seams`` are the stores of the seams where there are strips.

    ``committed(state, planes)`` is called when that many planes of ``state`` are durable in its
    stores and has to make that known durably, all planes being the whole state; ``leaving`` sees
    each put before it starts. Raises StoreError where a transfer failed, ExecutionError where the
    program cannot go on, and Stopped where ``stop`` asks for it between two slabs.
    """
    run = _Run(plan, kernel, window, stores, transfers, committed, progress, leaving, seams or {})
    run.tally, run.stop = tally or run.tally, stop or run.stop
    return run.obey(program(plan) if instructions is None else instructions)


class _Run:
    def __init__(
        self,
        plan: Plan,
        kernel: Kernel,
        window: Window,
        stores: Mapping[StoreKey, Store],
        transfers: Transfers,
        committed: Callable[[int, int], None],
        progress: Callable[[Progress], None] | None,
        leaving: Callable[[Put, Window], None] | None,
        seams: Mapping[SeamKey, Store],
    ) -> None:
        self.plan, self.kernel, self.window = plan, kernel, window
        self.stores, self.seams, self.transfers = stores, seams, transfers
        self.committed, self.progress, self.leaving = committed, progress, leaving
        self.marks = Watermarks()
        self.tally, self.stop = Tally(), Stop()
        self.slowest_seconds = 0.0  # of a slab, with waiting
        self.stopping = False
        # How far each level of a state has left, and what was committed last.
        self.leaves: dict[tuple[int, str, int], int] = {}
        self.last_commit = (0, plan.planes)
        self.gets: deque[Get] = deque()
        self.puts: deque[Put] = deque()
        self.commits: deque[Commit] = deque()
        self.flying: dict[int, tuple[Move, Store]] = {}
        self.flushing: dict[int, Store] = {}
        self.started = self.reported = time.perf_counter()

    def obey(self, instructions: Iterable[Instruction]) -> Tally:
        """Queue transfers as they come; advance as soon as the gate of an advance is open."""
        for instruction in instructions:
            match instruction:
                case Get():
                    self.gets.append(instruction)
                case Put():
                    self.puts.append(instruction)
                case Commit():
                    self.commits.append(instruction)
                case Advance():
                    self._advance(instruction)
        while self.gets or self.puts or self.commits or self.flying or self.flushing:
            self._wait()
        self.tally.seconds = time.perf_counter() - self.started
        return self.tally

    def _advance(self, advance: Advance) -> None:
        self._stop_if_due()
        self._settle(self.transfers.poll())
        self._start_all()
        waiting = time.perf_counter()
        while not self.marks.open(advance.gate):
            self._wait()
        begin = time.perf_counter()
        self.kernel.advance(self.plan, self.window, advance)
        end = time.perf_counter()
        self.slowest_seconds = max(self.slowest_seconds, end - waiting)
        self.tally.wait_seconds += begin - waiting
        self.tally.compute_seconds += end - begin
        self.tally.row_updates += row_updates(self.plan, advance)
        self.marks.advanced.complete(advance.index)
        if self.progress is not None and end - self.reported > PROGRESS_SECONDS:
            self.reported = end
            self.progress(self._progress(advance))

    def _wait(self) -> None:
        """Start what may start, then wait for a transfer to end."""
        self._start_all()
        if not self.flying and not self.flushing:
            heads = [queue[0] for queue in (self.gets, self.puts, self.commits) if queue]
            waits = "; ".join(f"{head} waits for {self.marks.missing(head.gate)}" for head in heads)
            raise ExecutionError(f"the program cannot go on: {waits or 'nothing is under way'}")
        waited = 0.0
        while not (done := self.transfers.wait(min(TURN_SECONDS, STUCK_SECONDS - waited))):
            self._stop_if_due()
            waited += TURN_SECONDS
            if waited >= STUCK_SECONDS:
                self.transfers.abandon()  # else letting go would wait for them as well
                raise ExecutionError(f"no transfer ended for {waited:g} s; {self._under_way()}")
        self._settle(done)
        self._start_all()

    def _stop_if_due(self) -> None:
        reason = self.stop.due(2 * self.slowest_seconds)
        if reason is not None and not self.stopping:
            self.stopping = True
            self._keep_what_is_there()
            raise Stopped(f"stopped by {reason}")

    def _keep_what_is_there(self) -> None:
        """Let what is under way end, and commit as much of the state being written as is there."""
        self.gets.clear()
        while self.flying or self.flushing:
            self._wait()
        if self.plan.commit_planes and self.leaves:
            state = max(state for state, _, _ in self.leaves)
            keys = [(state, each.field, each.level) for each in self.plan.departures]
            planes = min(self.leaves.get(key, 0) for key in keys)
            if (state, planes) > self.last_commit and planes:
                gate = Gate(put=self.marks.put.count)
                self.commits.clear()
                self.commits.append(Commit(self.marks.committed.count, state, planes, gate))
                while self.commits:
                    self._wait()

    def _under_way(self) -> str:
        """The transfers under way, each with its file."""
        words = [f"{_words(move)} ({store.name})" for move, store in self.flying.values()]
        words += [f"flushing {store.name}" for store in self.flushing.values()]
        return "under way: " + ", ".join(words)

    def _start_all(self) -> None:
        while self.gets and self.marks.open(self.gets[0].gate):
            self._start(self.gets.popleft())
        while self.puts and self.marks.open(self.puts[0].gate):
            put = self.puts.popleft()
            if self.leaving is not None:
                self.leaving(put, self.window)
            if not put.seam:
                self.leaves[put.state, put.field, put.level] = put.last
            self._start(put)
        if self.commits and not self.flushing and self.marks.open(self.commits[0].gate):
            self._flush(self.commits[0])

    def _start(self, move: Move) -> None:
        store = (
            self.seams[move.field, move.ring]
            if move.seam
            else self.stores[move.field, move.level, move.state % 2]
        )
        planes = Planes(self.window.addresses(move), self.plan.layout.row_stride_bytes)
        act = store.get if isinstance(move, Get) else store.put
        rows = place_rows(self.plan, move)
        self.flying[act(range(move.first, move.last), rows, planes)] = (move, store)

    def _flush(self, commit: Commit) -> None:
        """Make what was written to the files of a state durable, all of them at once."""
        for departure in self.plan.departures:
            store = self.stores[departure.field, departure.level, commit.state % 2]
            self.flushing[store.flush()] = store

    def _settle(self, done: Iterable[Completion]) -> None:
        for completion in done:
            if completion.ticket in self.flushing:
                store = self.flushing.pop(completion.ticket)
                _check(completion, store, "flush")
                if not self.flushing:
                    commit = self.commits.popleft()
                    self.tally.seconds = time.perf_counter() - self.started
                    self.committed(commit.state, commit.planes)
                    self.last_commit = commit.state, commit.planes
                    self.marks.committed.complete(commit.index)
            elif completion.ticket in self.flying:
                move, store = self.flying.pop(completion.ticket)
                self._settle_move(completion, move, store)

    def _settle_move(self, completion: Completion, move: Move, store: Store) -> None:
        moved = move.count * self.plan.layout.row_bytes
        if isinstance(move, Get):
            _check(completion, store, _words(move))
            self.tally.read_bytes += moved
            self.marks.got.complete(move.index)
        else:
            _check(completion, store, _words(move))
            self.tally.written_bytes += moved
            self.marks.put.complete(move.index)

    def _progress(self, advance: Advance) -> Progress:
        plan, tally = self.plan, self.tally
        share = tally.row_updates / max(1, plan.row_updates)
        return Progress(
            sweep=advance.parts[-1].trip.sweep if advance.parts else plan.sweeps - 1,
            sweeps=plan.sweeps,
            slab=advance.index,
            slabs=plan.slabs,
            updates_done=round(share * plan.updates),
            updates_total=plan.updates,
            seconds=self.reported - self.started,
            read_bytes=tally.read_bytes,
            written_bytes=tally.written_bytes,
            wait_seconds=tally.wait_seconds,
        )


def _words(move: Move) -> str:
    act = "reading" if isinstance(move, Get) else "writing"
    what = f"the seam of {move.field}" if move.seam else move.field
    return f"{act} planes {move.first}..{move.last} of {what} in sweep {move.trip.sweep}"


def _check(completion: Completion, store: Store, what: str) -> None:
    if completion.error is not None:
        error = completion.error
        raise StoreError(
            f"{what}: {error.what}",
            path=error.path or store.name,
            offset=error.offset,
            length=error.length,
            errno=error.errno,
        ) from error
