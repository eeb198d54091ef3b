"""Streaming: obey a program over real stores, with a kernel that updates what is in the window.

The calling thread starts every get, put and commit as soon as its gate is open, also while another
thread runs the kernel: a slab is asked for when the one that was in its place is written, and not
when the next one is computed. So long as the window holds a slab being read and one being written,
neither side waits for the other.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from outgrid.comm import Comm, Serial
from outgrid.errors import ExecutionError, Stopped, StoreError
from outgrid.execute.exchange import Exchange
from outgrid.execute.gates import Watermarks
from outgrid.execute.stop import Stop
from outgrid.machine import Strain, strain
from outgrid.plan.ending import last_moves
from outgrid.plan.model import Plan
from outgrid.plan.program import (
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
    program,
    row_updates,
)
from outgrid.plan.schedule.seam import SeamKey
from outgrid.runs.seals import Sealing
from outgrid.seal import UNSEALED, Seal
from outgrid.storage import Completion, Planes, Store

TURN_SECONDS = 1.0  # after which a run that waits looks whether it has to stop
PROGRESS_SECONDS = 0.25
POLL_SECONDS = 1e-3  # between two looks for messages of other ranks
SELDOM_SECONDS = 1e-2  # the same while the kernel runs, which wants the processor

StoreKey = tuple[str, int, int]  # field, level, state modulo 2


class Updates(Protocol):
    """Whoever carries out advances on the planes of a window of its kind.

    Where ``apart``, another thread than that which looks after transfers may ask for them.
    """

    @property
    def apart(self) -> bool: ...
    def advance(self, plan: Plan, window: Any, instruction: Advance) -> None: ...


class Places(Protocol):
    """A window: where the rows of a move lie in it, plane by plane."""

    def addresses(self, move: Move) -> NDArray[np.int64]: ...


class Tickets(Protocol):
    """The transfers that the stores were made with."""

    def poll(self) -> list[Completion]: ...
    def wait(self, timeout_seconds: float) -> list[Completion]: ...
    def wake(self) -> None: ...
    def abandon(self) -> None: ...


class Ending(Protocol):
    """Whoever knows whether a run ends early; sweeps are counted from the first one."""

    def seen(self, sweeps: int) -> bytes | None:
        """What this rank says of the end after so many sweeps, which it has computed.

        As many bytes on all ranks, or None on all of them: the run goes on in any case.
        """
        ...

    def ending(self, sweeps: int, seen: Sequence[bytes]) -> Plan | None:
        """The plan to end with, of these sweeps and no others, by what all ranks have seen."""
        ...


W = TypeVar("W", bound=Places)


def _unsealed(_plan: Plan, _move: Move) -> Seal:
    return UNSEALED


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come. Seconds and bytes are those of the sweeps so far.

    Before them the initial values are written: while ``filled``, the share of them that is in
    place, is below 1, seconds and bytes are those of that.
    """

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
    filled: float = 1.0


Listener = Callable[[Progress], None]


@runtime_checkable
class Onlooker(Protocol):
    """A listener that is told in words, too, what a run does."""

    def __call__(self, progress: Progress, /) -> None: ...
    def say(self, text: str) -> None: ...
    def doing(self, what: str) -> AbstractContextManager[None]: ...


def doing(listener: Listener | None, what: str) -> AbstractContextManager[None]:
    """Let a listener, if it is one for words, know what is under way meanwhile."""
    return listener.doing(what) if isinstance(listener, Onlooker) else nullcontext()


def say(listener: Listener | None, *texts: str) -> None:
    """Tell a listener, if it is one for words."""
    if isinstance(listener, Onlooker):
        for text in texts:
            listener.say(text)


# What a run may wait for: data that is read, data that is written, planes of other ranks, and other
# ranks that have not come as far.
CAUSES = ("get", "put", "exchange", "agree")


@dataclass(slots=True)
class Tally:
    """What the executor measured. ``waited_for`` has seconds by cause, to the very end."""

    seconds: float = 0.0
    compute_seconds: float = 0.0
    wait_seconds: float = 0.0
    processor_seconds: float = 0.0
    compute_processor_seconds: float = 0.0
    strain: Strain = field(default_factory=Strain)
    read_bytes: int = 0
    written_bytes: int = 0
    row_updates: int = 0
    waits: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    sent_bytes: int = 0
    received_bytes: int = 0
    waited_for: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0.0))


def stream(
    plan: Plan,
    kernel: Updates,
    window: W,
    stores: Mapping[StoreKey, Store],
    transfers: Tickets,
    committed: Callable[[Point], None],
    progress: Callable[[Progress], None] | None = None,
    leaving: Callable[[Put, W], None] | None = None,
    instructions: Iterable[Instruction] | None = None,
    tally: Tally | None = None,
    stop: Stop | None = None,
    seams: Mapping[SeamKey, Store] | None = None,
    comm: Comm | None = None,
    until: Ending | None = None,
    seal: Sealing = _unsealed,
) -> Tally:
    """Run the whole program, counting into ``tally`` (which ``committed`` may look at).

    ``comm`` leads to the other ranks, where there are any.

    ``seams`` are the stores of the seams where there are strips. ``seal`` says of what the planes
    of a move are, for the checksums that stores keep.

    ``until`` is asked when sweeps are computed, on all ranks, unless they are all that there are.
    Nothing that comes of the next sweep leaves this rank before that.

    ``committed(point)`` is called when everything up to a point is durable in its stores and has to
    make that known durably; ``leaving`` sees each put before it starts. Raises StoreError where a
    transfer failed, ExecutionError where the program cannot go on, and Stopped where ``stop`` asks
    for it between two slabs.
    """
    run = _Run(
        plan,
        kernel,
        window,
        stores,
        transfers,
        committed,
        progress,
        leaving,
        seams or {},
        tally or Tally(),
        stop or Stop(),
        until,
        comm or Serial(),
        seal,
    )
    try:
        return run.obey(program(plan) if instructions is None else instructions)
    finally:
        run.worker.shutdown()  # an advance that has begun ends before its window goes
        run.exchange.release()


class _Run(Generic[W]):
    def __init__(
        self,
        plan: Plan,
        kernel: Updates,
        window: W,
        stores: Mapping[StoreKey, Store],
        transfers: Tickets,
        committed: Callable[[Point], None],
        progress: Callable[[Progress], None] | None,
        leaving: Callable[[Put, W], None] | None,
        seams: Mapping[SeamKey, Store],
        tally: Tally,
        stop: Stop,
        until: Ending | None,
        comm: Comm,
        seal: Sealing,
    ) -> None:
        self.seal = seal
        self.plan, self.kernel, self.window = plan, kernel, window
        self.stores, self.seams, self.transfers = stores, seams, transfers
        self.committed, self.progress, self.leaving = committed, progress, leaving
        self.marks = Watermarks()
        self.tally, self.stop, self.until = tally, stop, until
        self.slabs = plan.schedule.slabs  # counted once: it goes through all trips
        self.slowest_seconds = 0.0  # of a slab, with waiting
        self.stopping = False
        self.settled = 0 if until is not None else plan.sweeps  # a sweep known to come
        # How far everything is written, and how far that is known durably.
        self.reached = self.kept = plan.schedule.begin
        self.ahead: deque[Mark] = deque()
        self.unflushed: set[SeamKey] = set()
        self.origin = plan.schedule.stored.planes.start, plan.schedule.stored.rows.start
        self.exchange = Exchange(plan, window.addresses, comm)
        self.coming: Iterator[Instruction] = iter(())
        self.next_advance: Advance | None = None
        self.agreeing: Commit | None = None  # other ranks have not all come as far
        self.gets: deque[Get] = deque()
        self.puts: deque[Put] = deque()
        self.commits: deque[Commit] = deque()
        self.flying: dict[int, tuple[Move, Store]] = {}
        self.flushing: dict[int, Store] = {}
        self.worker = futures.ThreadPoolExecutor(1, "outgrid-kernel")
        self.work: futures.Future[tuple[float, float]] | None = None  # of the kernel
        self.begun = threading.Event()  # by the thread of the kernel
        self.flushed = False  # all of the first commit, which is still to be made known
        self.started = self.reported = time.perf_counter()
        self.busy_before, self.strain_before = time.process_time(), strain()

    def obey(self, instructions: Iterable[Instruction]) -> Tally:
        """Queue transfers as they come; advance as soon as the gate of an advance is open."""
        self.coming = iter(instructions)
        self._read_on()
        while (advance := self.next_advance) is not None:
            ending = self._ending(advance)
            if ending is not None:
                self._end(ending)
                break
            self._advance(advance)
        else:
            self.settled = self.plan.sweeps
        while self._unfinished:
            self._wait_for("put" if self.flying or self.flushing else "agree")
        self.tally.sent_bytes = self.exchange.sent_bytes
        self.tally.received_bytes = self.exchange.received_bytes
        self._look_at_clocks()
        return self.tally

    def _read_on(self) -> None:
        """Queue what comes up to the next advance."""
        for instruction in self.coming:
            match instruction:
                case Get():
                    self.gets.append(instruction)
                case Put():
                    self.puts.append(instruction)
                case Commit():
                    self.commits.append(instruction)
                case Mark():
                    self.ahead.append(instruction)
                case Send() | Receive():
                    self.exchange.queue(instruction)
                case Advance():
                    self.next_advance = instruction
                    return
        self.next_advance = None

    def _look_at_clocks(self) -> None:
        self.tally.seconds = time.perf_counter() - self.started
        self.tally.processor_seconds = time.process_time() - self.busy_before
        self.tally.strain = strain().since(self.strain_before)

    def _ending(self, advance: Advance) -> Plan | None:
        """The plan to end with before an advance, if it is the first one behind some sweep."""
        begun = min((part.trip.sweep for part in advance.parts), default=0)
        while self.until is not None and self.settled < begun:
            sweeps = self.settled + 1
            seen = self.until.seen(sweeps)
            ending = self.until.ending(sweeps, self._tell(seen)) if seen is not None else None
            if ending is not None:
                return ending
            self.settled = sweeps
        return None

    def _tell(self, seen: bytes) -> list[bytes]:
        """Tell all ranks what was seen; what they have seen, when all have come as far."""
        self.exchange.tell(seen)
        while self.exchange.telling:
            self._wait_for("agree")
        return self.exchange.told

    def _end(self, ending: Plan) -> None:
        """Let go of what belongs to later sweeps, and take the last state out of the window.

        Sweeps of a grid that is streamed overlap: of later ones planes are on their way in and
        out. Their files are those that the state before the last one was in.
        """
        last, self.settled = ending.schedule.states.count, ending.sweeps
        self.gets.clear()
        self.exchange.end(ending.sweeps)
        self.puts = deque(put for put in self.puts if put.state <= last and not put.seam)
        self.commits = deque(each for each in self.commits if each.point.state <= last)
        if ending.schedule.resident and self.plan.schedule.states.after(ending.sweeps) is None:
            for each in last_moves(ending):
                if isinstance(each, Put):
                    self.puts.append(each)
                else:
                    self.commits.append(each)
        self.plan, self.slabs = ending, ending.schedule.slabs

    @property
    def _unfinished(self) -> bool:
        queued = self.gets or self.puts or self.commits or self.exchange.pending
        return bool(queued or self.flying or self.flushing or self.agreeing)

    def _wait_for(self, cause: str) -> None:
        """Wait, and count it as waiting for ``cause``."""
        begin = time.perf_counter()
        self._wait()
        self.tally.waited_for[cause] += time.perf_counter() - begin

    def _cause(self, gate: Gate) -> str:
        """What of `CAUSES` an instruction waits for, perhaps by way of others."""
        if self.marks.got.count < gate.got:
            return self._cause(self.gets[0].gate) if self._closed(self.gets) else "get"
        if self.marks.committed.count < gate.committed:
            return "agree" if self.agreeing else "put"
        if self.marks.put.count < gate.put:
            return self._cause(self.puts[0].gate) if self._closed(self.puts) else "put"
        return "exchange"

    def _closed(self, queue: deque[Get] | deque[Put]) -> bool:
        return bool(queue) and not self.marks.open(queue[0].gate)

    def _advance(self, advance: Advance) -> None:
        self._stop_if_due()
        self._settle(self.transfers.poll())
        self._settle_messages()
        if not self.marks.open(advance.gate):
            self._start_all()  # what leaves in a message makes room at once
        waiting = time.perf_counter()
        while not self.marks.open(advance.gate):
            self._wait_for(self._cause(advance.gate))
        begin = time.perf_counter()
        seconds, busy = self._compute(advance)
        end = time.perf_counter()
        # Updates are dealt out evenly, so this thread makes as many as any other.
        self.tally.compute_processor_seconds += self.plan.threads * busy
        self.slowest_seconds = max(self.slowest_seconds, end - waiting)
        self.tally.wait_seconds += begin - waiting
        self.tally.compute_seconds += seconds
        self.tally.row_updates += row_updates(self.plan, advance)
        self.marks.advanced.complete(advance.index)
        if self.progress is not None and end - self.reported > PROGRESS_SECONDS:
            self.reported = end
            self.progress(self._progress(advance))

    def _compute(self, advance: Advance) -> tuple[float, float]:
        """Run the kernel, and look after transfers meanwhile; its seconds, and those of a thread.

        Commits wait until it has ended: they look at what it changes.
        """
        if not (self.kernel.apart and self._unfinished):
            self._start_all()
            taken = self._timed(advance)
            self._read_on()
            return taken
        self.work = work = self.worker.submit(self._timed, advance)
        work.add_done_callback(lambda _: self.transfers.wake())
        self.begun.wait()  # and keeps the interpreter until it is in the kernel
        self.begun.clear()
        self._start_all()
        self._read_on()
        self._start_all()
        while not work.done():
            self._attend(SELDOM_SECONDS if self.exchange.moving else TURN_SECONDS)
        self.work = None
        if self.flushed:
            self._commit()
        return work.result()

    def _timed(self, advance: Advance) -> tuple[float, float]:
        self.begun.set()
        begin, busy = time.perf_counter(), time.thread_time()
        self.kernel.advance(self.plan, self.window, advance)
        return time.perf_counter() - begin, time.thread_time() - busy

    def _wait(self) -> None:
        """Start what may start, then wait for a transfer to end."""
        self._start_all()
        if self.exchange.moving:
            self._stop_if_due()
            self._attend(POLL_SECONDS)
            return
        if not self.flying and not self.flushing:
            heads = [queue[0] for queue in (self.gets, self.puts, self.commits) if queue]
            waits = "; ".join(f"{head} waits for {self.marks.missing(head.gate)}" for head in heads)
            raise ExecutionError(f"the program cannot go on: {waits or 'nothing is under way'}")
        while not (done := self.transfers.wait(TURN_SECONDS)):
            self._stop_if_due()
        self._settle(done)
        self._start_all()

    def _attend(self, seconds: float) -> None:
        """Wait so long for transfers, or for the kernel; start what may start then."""
        if self.flying or self.flushing:
            self._settle(self.transfers.wait(seconds))
        elif self.work is not None:
            futures.wait((self.work,), seconds)
        else:
            time.sleep(seconds)
        self._settle_messages()
        self._start_all()

    def _settle_messages(self) -> None:
        for receive in self.exchange.ended():
            self._start(receive)
        if self.agreeing is not None and self.exchange.agreed:
            self.marks.committed.complete(self.agreeing.index)
            self.agreeing = None

    def _stop_if_due(self) -> None:
        reason = self.stop.due(2 * self.slowest_seconds)
        if reason is not None and not self.stopping:
            self.stopping = True
            with doing(self.progress, "stopping, what is made is kept"):
                self._keep_what_is_there()
            raise Stopped(f"stopped by {reason}")

    def _keep_what_is_there(self) -> None:
        """Let what is under way end, and commit as much of the state being written as is there."""
        self.gets.clear()
        self._start_all()
        while self.flying or self.flushing:
            self._wait()
        if self.reached > self.kept:
            self.commits.clear()
            self.commits.append(Commit(self.marks.committed.count, self.reached, Gate()))
            while self.commits:
                self._wait()

    def _start_all(self) -> None:
        while self.gets and self.marks.open(self.gets[0].gate):
            self._start(self.gets.popleft())
        while self.puts and self.marks.open(self.puts[0].gate):
            put = self.puts.popleft()
            if self.leaving is not None:
                self.leaving(put, self.window)
            self._start(put)
        while self.ahead and self.marks.open(self.ahead[0].gate):
            self.reached = self.ahead.popleft().point
        self.exchange.start(self.marks, self.settled)
        if not self.commits or self.flushing or self.flushed or self.agreeing:
            return
        known = self.plan.schedule.states.sweeps_until(self.commits[0].point.state) <= self.settled
        if known and self.marks.open(self.commits[0].gate):
            self._flush(self.commits[0])

    def _start(self, move: Move) -> None:
        store = (
            self.seams[move.seam]
            if move.seam is not None
            else self.stores[move.field, move.level, move.state % 2]
        )
        if isinstance(move, Receive):
            memory = self.exchange.source(move)
        else:
            stride = self.plan.layout.of(move.field).row_stride_bytes
            memory = Planes(self.window.addresses(move), stride, self.window)
        store.hold(self.seal(self.plan, move))
        act = store.get if isinstance(move, Get) else store.put
        there = move.there
        if move.seam is None:
            there = there.counted_from(*self.origin)
        planes = there.planes
        if planes.step < 0:
            planes, memory = planes[::-1], replace(memory, addresses=memory.addresses[::-1])
        self.flying[act(planes, there.rows, memory)] = (move, store)

    def _flush(self, commit: Commit) -> None:
        """Make what was written to the files of a state durable, all of them at once.

        So are seams where a restart may need them.
        """
        state = commit.point.begun % 2
        stores = [
            self.stores[each.field, each.level, state] for each in self.plan.schedule.departures
        ]
        if self.plan.schedule.commit_planes:
            stores += [self.seams[key] for key in sorted(self.unflushed)]
            self.unflushed.clear()
        for store in stores:
            self.flushing[store.flush()] = store

    def _settle(self, done: Iterable[Completion]) -> None:
        for completion in done:
            if completion.ticket in self.flushing:
                store = self.flushing.pop(completion.ticket)
                _check(completion, store, "flush")
                self.flushed = not self.flushing
                if self.flushed and self.work is None:
                    self._commit()
            elif completion.ticket in self.flying:
                move, store = self.flying.pop(completion.ticket)
                self._settle_move(completion, move, store)

    def _commit(self) -> None:
        """Make known that the first commit is durable, and tell other ranks."""
        self.flushed = False
        commit = self.commits.popleft()
        self._look_at_clocks()
        self.committed(commit.point)
        self.kept = commit.point
        self.agreeing = commit
        self.exchange.agree()
        self._settle_messages()

    def _settle_move(self, completion: Completion, move: Move, store: Store) -> None:
        _check(completion, store, _words(move))
        moved = move.nbytes(self.plan)
        if isinstance(move, Get):
            self.tally.read_bytes += moved
            self.marks.got.complete(move.index)
            return
        self.tally.written_bytes += moved
        if isinstance(move, Receive):
            self.exchange.written(move)
            self.marks.received.complete(move.index)
        else:
            if move.seam is not None:
                self.unflushed.add(move.seam)
            self.marks.put.complete(move.index)

    def _progress(self, advance: Advance) -> Progress:
        plan, tally = self.plan, self.tally
        share = tally.row_updates / max(1, plan.schedule.row_updates)
        return Progress(
            sweep=advance.parts[-1].trip.sweep if advance.parts else plan.sweeps - 1,
            sweeps=plan.sweeps,
            slab=advance.index,
            slabs=self.slabs,
            updates_done=round(share * plan.work.updates),
            updates_total=plan.work.updates,
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
