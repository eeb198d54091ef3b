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
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, Protocol, runtime_checkable

import msgspec

from outgrid.comm import Comm, Serial
from outgrid.errors import ExecutionError, Stopped
from outgrid.execute.commits import Commits
from outgrid.execute.exchange import Exchange
from outgrid.execute.gates import Watermarks
from outgrid.execute.moves import Hierarchy, Moves, W
from outgrid.execute.stop import Stop
from outgrid.execute.tally import Tally
from outgrid.machine import strain
from outgrid.native import PROMPT_SLICE, set_slice
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
from outgrid.runs.reading import Reading
from outgrid.storage import Completion

TURN_SECONDS = 1.0  # after which a run that waits looks whether it has to stop
PROGRESS_SECONDS = 0.25
POLL_SECONDS = 1e-3  # between two looks for messages of other ranks
SELDOM_SECONDS = 1e-2  # the same while the kernel runs, which wants the processor


class Updates(Protocol):
    """Whoever carries out advances on the planes of a window of its kind.

    Where ``apart``, another thread than that which looks after transfers may ask for them.
    """

    @property
    def apart(self) -> bool: ...
    def advance(self, plan: Plan, window: Any, instruction: Advance) -> None: ...


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


class Progress(msgspec.Struct, frozen=True):
    """How far a run has come. Seconds and bytes are those of the sweeps so far.

    ``processor_seconds`` are those of all threads of the process.

    Before them the initial values are written: while the run is ``filling``, the share ``filled``
    of them is in place, and seconds and bytes are those of that.
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
    processor_seconds: float
    filling: bool = False
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


@runtime_checkable
class SweepListener(Protocol):
    """A listener that hears of every sweep that is complete, with what a run says of itself."""

    def swept(self, reading: Reading, /) -> None: ...


class Callbacks(msgspec.Struct, Generic[W], frozen=True):
    """Who hears of a run, and when.

    ``committed(point)`` is called when everything up to a point is durable in its stores and has to
    make that known durably; ``leaving`` sees each put before it starts, with the window, and
    ``arriving`` each get when it has ended.

    ``live`` hears what ``progress`` hears, and no words; ``swept`` of every sweep that is complete.

    ``until`` is asked when sweeps are computed, on all ranks, unless they are all that there are.
    Nothing that comes of the next sweep leaves this rank before that.
    """

    committed: Callable[[Point], None]
    progress: Listener | None = None
    live: Listener | None = None
    swept: Listener | None = None
    leaving: Callable[[Put, W], None] | None = None
    until: Ending | None = None
    arriving: Callable[[Get, W], None] | None = None


def stream(
    plan: Plan,
    kernel: Updates,
    hierarchy: Hierarchy[W],
    callbacks: Callbacks[W],
    *,
    instructions: Iterable[Instruction] | None = None,
    tally: Tally | None = None,
    stop: Stop | None = None,
    comm: Comm | None = None,
) -> Tally:
    """Run the whole program, counting into ``tally`` (which ``callbacks`` may look at).

    ``comm`` leads to the other ranks, where there are any; ``instructions`` are obeyed in place of
    the program. Raises StoreError where a transfer failed, ExecutionError where the program cannot
    go on, and Stopped where ``stop`` asks for it between two slabs.
    """
    run = _Run(
        plan, kernel, hierarchy, callbacks, tally or Tally(), stop or Stop(), comm or Serial()
    )
    slice_before = set_slice(PROMPT_SLICE)  # transfers that wait for this thread hold up kernels
    try:
        return run.obey(program(plan) if instructions is None else instructions)
    finally:
        set_slice(slice_before)
        run.worker.pool.shutdown()  # an advance that has begun ends before its window goes
        run.exchange.release()


class _KernelThread:
    """The thread in which a kernel runs while another one looks after transfers."""

    def __init__(self, kernel: Updates, window: Any) -> None:
        self.kernel, self.window = kernel, window
        # Not in short slices, as the thread that looks after transfers.
        self.pool = futures.ThreadPoolExecutor(1, "outgrid-kernel", set_slice, (0,))
        self.work: futures.Future[tuple[float, float]] | None = None
        self.begun = threading.Event()

    def begin(self, plan: Plan, advance: Advance, ended: Callable[[], None]) -> None:
        """Begin an advance; ``ended`` is called in its thread."""
        self.begun.clear()
        self.work = self.pool.submit(self.timed, plan, advance)
        self.work.add_done_callback(lambda _: ended())
        self.begun.wait()  # and keeps the interpreter until it is in the kernel

    def timed(self, plan: Plan, advance: Advance) -> tuple[float, float]:
        """Make an advance; its seconds, and those of the processor in this thread."""
        self.begun.set()
        begin, busy = time.perf_counter(), time.thread_time()
        self.kernel.advance(plan, self.window, advance)
        return time.perf_counter() - begin, time.thread_time() - busy

    @property
    def running(self) -> bool:
        """Whether an advance has begun and not ended."""
        return self.work is not None and not self.work.done()

    @property
    def idle(self) -> bool:
        """Whether no advance is to be ended."""
        return self.work is None

    def wait(self, seconds: float) -> None:
        """Wait so long for the end of an advance; sleep where there is none."""
        if self.work is not None:
            futures.wait((self.work,), seconds)
        else:
            time.sleep(seconds)

    def end(self) -> Callable[[], tuple[float, float]]:
        """Take an advance that has ended; what is returned gives its seconds, or raises."""
        assert self.work is not None
        work, self.work = self.work, None
        return work.result


class _Run(Generic[W]):
    def __init__(
        self,
        plan: Plan,
        kernel: Updates,
        hierarchy: Hierarchy[W],
        callbacks: Callbacks[W],
        tally: Tally,
        stop: Stop,
        comm: Comm,
    ) -> None:
        self.plan, self.kernel, self.window = plan, kernel, hierarchy.window
        self.worker = _KernelThread(kernel, self.window)
        self.transfers, self.callbacks = hierarchy.transfers, callbacks
        self.tally, self.stop = tally, stop
        self.slabs = plan.schedule.slabs  # counted once: it goes through all trips
        self.slowest_seconds = 0.0  # of a slab, with waiting
        self.stopping = False
        self.sweep = 0  # the last one of which something was made
        self.swept = 0  # sweeps that were told of
        self.settled = 0 if callbacks.until is not None else plan.sweeps  # a sweep known to come
        self.marks, self.moves = Watermarks(), Moves(plan, hierarchy)
        self.exchange = Exchange(plan, self.window.addresses, comm)
        self.commits = Commits(
            plan.schedule.begin, hierarchy, self.exchange, self.marks, self._committed
        )
        self.coming: Iterator[Instruction] = iter(())
        self.next_advance: Advance | None = None
        self.gets: deque[Get] = deque()
        self.puts: deque[Put] = deque()
        self.started = self.reported = time.perf_counter()
        self.busy_before, self.strain_before = time.process_time(), strain()

    def obey(self, instructions: Iterable[Instruction]) -> Tally:
        """Queue transfers as they come; advance as soon as the gate of an advance is open."""
        self.coming = iter(instructions)
        self._read_on()
        while (advance := self.next_advance) is not None:
            self._tell_of_sweeps(advance)
            ending = self._ending(advance)
            if ending is not None:
                self._end(ending)
                break
            self._advance(advance)
        else:
            self.settled = self.plan.sweeps
        self._tell_of_sweeps(None)
        while self._unfinished:
            self._wait_for("put" if self._transferring else "agree")
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
                    self.commits.queue.append(instruction)
                case Mark():
                    self.commits.ahead.append(instruction)
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

    def _committed(self, point: Point) -> None:
        self._look_at_clocks()
        self.callbacks.committed(point)

    def _ending(self, advance: Advance) -> Plan | None:
        """The plan to end with before an advance, if it is the first one behind some sweep."""
        until = self.callbacks.until
        begun = min((part.trip.sweep for part in advance.parts), default=0)
        while until is not None and self.settled < begun:
            sweeps = self.settled + 1
            seen = until.seen(sweeps)
            ending = until.ending(sweeps, self._tell(seen)) if seen is not None else None
            if ending is not None:
                return ending
            self.settled = sweeps
        return None

    def _tell_of_sweeps(self, coming: Advance | None) -> None:
        """Say which sweeps are complete before an advance, or when none comes."""
        swept = self.callbacks.swept
        if swept is None:
            return
        complete = self.plan.sweeps
        if coming is not None:
            complete = min((part.trip.sweep for part in coming.parts), default=0)
        while self.swept < complete:
            self.swept += 1
            swept(self._progress(self.swept, coming.index if coming is not None else self.slabs))

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
        self.commits.queue = deque(
            commit for commit in self.commits.queue if commit.point.state <= last
        )
        if ending.schedule.resident and self.plan.schedule.states.after(ending.sweeps) is None:
            for instruction in last_moves(ending):
                if isinstance(instruction, Put):
                    self.puts.append(instruction)
                else:
                    self.commits.queue.append(instruction)
        self.plan, self.slabs = ending, ending.schedule.slabs

    @property
    def _transferring(self) -> bool:
        return bool(self.moves.under_way or self.commits.transferring)

    @property
    def _unfinished(self) -> bool:
        queued = self.gets or self.puts or self.exchange.pending or self.commits.pending
        return bool(queued or self.moves.under_way)

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
            return "agree" if self.commits.agreeing else "put"
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
        if advance.parts:
            self.sweep = advance.parts[-1].trip.sweep
        if end - self.reported > PROGRESS_SECONDS:
            self.reported = end
            progress = self._progress(self.sweep, advance.index)
            for listener in (self.callbacks.live, self.callbacks.progress):
                if listener is not None:
                    listener(progress)

    def _compute(self, advance: Advance) -> tuple[float, float]:
        """Run the kernel, and look after transfers meanwhile; its seconds, and those of a thread.

        Commits wait until it has ended: they look at what it changes.
        """
        if not (self.kernel.apart and self._unfinished):
            self._start_all()
            taken = self.worker.timed(self.plan, advance)
            self._read_on()
            return taken
        self.worker.begin(self.plan, advance, self.transfers.wake)
        self._start_all()
        self._read_on()
        self._start_all()
        while self.worker.running:
            self._attend(SELDOM_SECONDS if self.exchange.moving else TURN_SECONDS)
        result = self.worker.end()
        self._finish_commit()
        return result()

    def _wait(self) -> None:
        """Start what may start, then wait for a transfer to end."""
        self._start_all()
        if self.exchange.moving:
            self._stop_if_due()
            self._attend(POLL_SECONDS)
            return
        if not self._transferring:
            heads = [queue[0] for queue in (self.gets, self.puts, self.commits.queue) if queue]
            waits = "; ".join(f"{head} waits for {self.marks.missing(head.gate)}" for head in heads)
            raise ExecutionError(f"the program is stuck: {waits or 'nothing is under way'}")
        while not (done := self.transfers.wait(TURN_SECONDS)):
            self._stop_if_due()
        self._settle(done)
        self._start_all()

    def _attend(self, seconds: float) -> None:
        """Wait so long for transfers, or for the kernel; start what may start then."""
        if self._transferring:
            self._settle(self.transfers.wait(seconds))
        else:
            self.worker.wait(seconds)
        self._settle_messages()
        self._start_all()

    def _settle_messages(self) -> None:
        for receive in self.exchange.ended():
            self.moves.start(self.plan, receive, self.exchange.source(receive))
        self.commits.agree()

    def _finish_commit(self) -> None:
        if self.commits.flushed:
            self.commits.finish()
            self._settle_messages()

    def _stop_if_due(self) -> None:
        reason = self.stop.due(2 * self.slowest_seconds)
        if reason is not None and not self.stopping:
            self.stopping = True
            with doing(self.callbacks.progress, "stopping; the steps so far are kept"):
                self._keep_what_is_there()
            raise Stopped(f"stopped by {reason}")

    def _keep_what_is_there(self) -> None:
        """Let what is under way end, and commit as much of the state being written as is there."""
        self.gets.clear()
        self._start_all()
        while self._transferring:
            self._wait()
        if self.commits.only_reached():
            while self.commits.queue:
                self._wait()

    def _start_all(self) -> None:
        while self.gets and self.marks.open(self.gets[0].gate):
            self.moves.start(self.plan, self.gets.popleft())
        while self.puts and self.marks.open(self.puts[0].gate):
            put = self.puts.popleft()
            if self.callbacks.leaving is not None:
                self.callbacks.leaving(put, self.window)
            self.moves.start(self.plan, put)
        self.exchange.start(self.marks, self.settled)
        self.commits.start(self.plan, self.settled)

    def _settle(self, done: Iterable[Completion]) -> None:
        for completion in done:
            ended = self.moves.end(completion)
            if ended is not None:
                self._settle_move(*ended)
                continue
            self.commits.end(completion)
            if self.worker.idle:
                self._finish_commit()

    def _settle_move(self, move: Move, moved: int) -> None:
        if isinstance(move, Get):
            if self.callbacks.arriving is not None:
                self.callbacks.arriving(move, self.window)
            self.tally.read_bytes += moved
            self.marks.got.complete(move.index)
            return
        self.tally.written_bytes += moved
        if isinstance(move, Receive):
            self.exchange.written(move)
            self.marks.received.complete(move.index)
        else:
            self.commits.written(self.plan, move, moved)
            self.marks.put.complete(move.index)

    def _progress(self, sweep: int, slab: int) -> Progress:
        plan, tally = self.plan, self.tally
        share = tally.row_updates / max(1, plan.schedule.row_updates)
        return Progress(
            sweep=sweep,
            sweeps=plan.sweeps,
            slab=slab,
            slabs=self.slabs,
            updates_done=round(share * plan.work.updates),
            updates_total=plan.work.updates,
            seconds=time.perf_counter() - self.started,
            read_bytes=tally.read_bytes,
            written_bytes=tally.written_bytes,
            wait_seconds=tally.wait_seconds,
            processor_seconds=time.process_time() - self.busy_before,
        )
