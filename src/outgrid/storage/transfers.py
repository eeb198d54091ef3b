"""The one place where the transfers of a run are started and their completions come out."""

import math
import os
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import EBADMSG, ENODATA
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from outgrid import native
from outgrid.errors import ExecutionError, StoreError, UsageError
from outgrid.storage.base import NATURAL, FoldedRows
from outgrid.units import nearest

__all__ = ["Completion", "Transfers"]


# A request that takes longer than this has gone missing; whoever waits for it is told. A flush may
# take longer: it writes all that the system has gathered.
STUCK_SECONDS = 300.0
LOOKS = 10  # in that time, at the requests of transfers that take longer as a whole

FLUSHING = "flushing"

Moved = Callable[[NDArray[np.uint64]], StoreError | None]


_NOTHING = np.empty((0, 3), np.int64)
_abandoned: list[object] = []  # the memory of transfers that nobody waits for any more


class Completion(msgspec.Struct, frozen=True):
    """A ticket that has ended.

    `nbytes` were asked for and moved, in `seconds` from the first request to the last. `error` is
    None, or says which request failed and why; other parts of that transfer may have moved.
    """

    ticket: int
    nbytes: int
    seconds: float
    error: StoreError | None = None

    def check(self) -> Self:
        """This completion; raises `error` if there is one."""
        if self.error is not None:
            raise self.error
        return self


class _Joined:
    """Several transfers under one ticket, the last of them, which ends when all of them have."""

    def __init__(self) -> None:
        self._followers: dict[int, int] = {}  # whose part a ticket is
        self._awaited: dict[int, tuple[int, int]] = {}  # parts under way, bytes of the others

    def join(self, tickets: Sequence[int]) -> int:
        """The ticket of them all; each may be joined of others itself."""
        last, parts = tickets[-1], 0
        for ticket in tickets:
            parts += self._awaited.pop(ticket, (1, 0))[0]
            if ticket != last:
                members = [part for part, leader in self._followers.items() if leader == ticket]
                self._followers |= dict.fromkeys((*members, ticket), last)
        self._awaited[last] = parts, 0
        return last

    def of(self, ticket: int) -> int:
        """The ticket that one which has ended is a part of."""
        return self._followers.pop(ticket, ticket)

    def ended(self, ticket: int, nbytes: int) -> int | None:
        """Bytes of all parts of a ticket; None where others than this one are under way."""
        parts, before = self._awaited.pop(ticket, (1, 0))
        if parts > 1:
            self._awaited[ticket] = parts - 1, before + nbytes
            return None
        return before + nbytes


class Transfers:
    """Up to `depth` requests of `request_bytes` under way at once, for all stores of a run.

    `engine` is "io_uring", "aio", "threads", or "auto" for the first of them that the kernel
    grants; `self.engine` says which was taken and `self.refusals` why better ones were not.
    `staging_bytes` bounds the memory through which ragged ends are copied.

    Stores start transfers with `read`, `write`, `flush`, `call` and `fail`, each of which returns a
    ticket at once; whoever runs the stores collects the tickets with `poll` and `wait`. Not for use
    from several threads.

    Raises UsageError for an engine that this build does not know, StoreError where the kernel
    refuses the engine asked for.
    """

    def __init__(
        self,
        engine: str = "auto",
        *,
        depth: int = 16,
        request_bytes: int = 2 << 20,
        staging_bytes: int = 4 << 20,
    ) -> None:
        known = native.engines()
        if engine != "auto" and engine not in known:
            close = nearest(engine, known)
            hint = f"; did you mean {close!r}?" if close else ""
            raise UsageError(f"no engine {engine!r} in this build, which has {known}{hint}")
        try:
            self._queue = native.Queue(engine, depth, request_bytes, staging_bytes)
        except OSError as error:
            raise StoreError(f"engine {engine!r}: {error.strerror}", errno=error.errno) from error
        self._under_way: dict[int, tuple[str, native.File, NDArray[Any], object]] = {}
        self._waited_seconds = 0.0  # since something ended
        self._requests = 0  # that had ended at the last look
        self._failures: dict[int, StoreError] = {}
        self._moved: dict[int, Moved] = {}
        self._joined = _Joined()
        # The collector frees what it finds together in any order: the memory before the queue.
        self._let_go = weakref.finalize(self, _close, self._queue, self._under_way)
        self._let_go.atexit = False

    @property
    def engine(self) -> str:
        """The engine that was taken."""
        return self._queue.engine

    @property
    def refusals(self) -> tuple[str, ...]:
        """Engines that "auto" would have preferred, each with the reason why it was not taken."""
        absent = [
            f"{name}: not in this build" for name in ("io_uring",) if name not in native.engines()
        ]
        return (*absent, *self._queue.refusals)

    @property
    def staging_bytes(self) -> int:
        """Memory set aside for ragged ends, in bytes."""
        return self._queue.staging_bytes

    @property
    def outstanding(self) -> int:
        """Tickets whose completion was not handed out yet."""
        return self._queue.outstanding

    def read(
        self,
        file: native.File,
        segments: NDArray[Any],
        owner: object,
        row_bytes: int = 0,
        moved: Moved | None = None,
        folding: FoldedRows = NATURAL,
    ) -> int:
        """Start reading `segments`, int64 of shape (n, 3): file offset, address, bytes.

        Their memory is that of `owner`, which is kept until the transfer has ended. With
        `row_bytes` their rows are summed up, and before the completion is handed out `moved` gets
        the sums, uint64; the error that it returns becomes that of the transfer. With a `folding`
        the rows lie folded in memory, though not in the file.
        """
        ticket = self._queue.submit_read(file, segments, row_bytes, folding)
        return self._note(ticket, "reading", file, segments, owner, moved)

    def read_packed(
        self,
        file: native.File,
        segments: NDArray[Any],
        planes: NDArray[np.int64],
        owner: object,
        folding: FoldedRows = NATURAL,
    ) -> int:
        """Start reading packed planes, and unpack them when all have come.

        ``planes``, int64 of shape (n, 8): the address to which the packed bytes of a plane are
        read, which may be in the memory of the plane itself; how many they are; their checksum;
        the address of the plane; rows, bytes of a row and from row to row, bytes of an item.
        """
        ticket = self._queue.submit_read_packed(file, segments, planes, folding)
        return self._note(ticket, "reading", file, segments, owner, None)

    def write(
        self,
        file: native.File,
        segments: NDArray[Any],
        owner: object,
        row_bytes: int = 0,
        moved: Moved | None = None,
        folding: FoldedRows = NATURAL,
    ) -> int:
        """Start writing `segments`; see `read`."""
        ticket = self._queue.submit_write(file, segments, row_bytes, folding)
        return self._note(ticket, "writing", file, segments, owner, moved)

    def flush(self, *files: native.File) -> int:
        """Start making durable what was completely written to `files` before this call.

        One ticket, which ends when all of them are durable.
        """
        tickets = [self._queue.submit_flush(file) for file in files]
        for ticket, file in zip(tickets, files, strict=True):
            self._under_way[ticket] = FLUSHING, file, _NOTHING, None
        return self._joined.join(tickets)

    def join(self, *tickets: int) -> int:
        """One ticket, the last of those given, which ends when all of them have ended."""
        return self._joined.join(tickets)

    def call(self, action: Callable[[], int]) -> int:
        """Carry out `action`, which moves bytes in memory and returns how many."""
        return self._queue.submit_complete(action())

    def fail(self, error: StoreError) -> int:
        """A ticket that ends with `error`."""
        ticket = self._queue.submit_complete(0)
        self._failures[ticket] = error
        return ticket

    def poll(self) -> list[Completion]:
        """What has ended by now."""
        return self._complete_all(self._ended(0.0))

    def wait(self, timeout_seconds: float = math.inf) -> list[Completion]:
        """At least one completion; none after the timeout, or when no ticket is outstanding.

        Raises ExecutionError where no request of a transfer ended for ``STUCK_SECONDS`` and not all
        that are under way are flushes, or a thread that moves bytes failed. Nothing more can be
        expected then, and nothing is waited for any more.
        """
        left = timeout_seconds
        while True:
            begin = time.monotonic()
            ended = self._ended(min(left, STUCK_SECONDS / LOOKS))
            seconds = time.monotonic() - begin
            left -= seconds
            patient = ended or self._only_flushes or self._moves()
            self._waited_seconds = 0.0 if patient else self._waited_seconds + seconds
            completions = self._complete_all(ended)
            if completions or not self.outstanding:
                return completions
            if self._waited_seconds >= STUCK_SECONDS:
                words = f"no transfer ended for {STUCK_SECONDS:g} s; {self._words()}"
                self.abandon()  # else letting go would wait for them as well
                raise ExecutionError(words)
            if left <= 0:
                return []

    def wake(self) -> None:
        """Let whoever waits go on, or the next one who would; for any thread.

        It is handed a completion of a ticket that nobody knows.
        """
        with suppress(ValueError):  # the queue is closed: nobody waits any more
            self._queue.submit_complete(0)

    def drain(self) -> list[Completion]:
        """Wait for every outstanding ticket; raises the first failure after all have ended."""
        ended: list[Completion] = []
        while self.outstanding:
            ended += self.wait()
        return [completion.check() for completion in ended]

    def statistics(self) -> native.Statistics:
        """Bytes and requests moved through files so far."""
        return self._queue.statistics()

    def close(self) -> None:
        """Drop tickets that have not begun and wait for those under way, but not for ever."""
        self._let_go()

    def abandon(self) -> None:
        """Let go without waiting, where requests under way do not end: `close` returns at once.

        The memory that they name may still be written: it is kept as long as the process lives.
        """
        _abandoned.append(self._under_way)
        self._queue.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ended(self, timeout_seconds: float) -> list[native.Completion]:
        """What the queue hands out; ExecutionError where one of its threads failed."""
        try:
            return self._queue.wait(timeout_seconds)
        except RuntimeError as error:
            self.abandon()
            raise ExecutionError(str(error)) from error

    @property
    def _only_flushes(self) -> bool:
        """Whether nothing is under way but flushes."""
        return {act for act, *_ in self._under_way.values()} == {FLUSHING}

    def _moves(self) -> bool:
        """Whether requests have ended since the last look."""
        moved, before = self._queue.statistics(), self._requests
        self._requests = moved.read_requests + moved.write_requests
        return self._requests != before

    def _words(self) -> str:
        """What is under way, each with its place."""
        requests: list[str] = []
        for act, file, segments, _ in self._under_way.values():
            size = f" {int(segments[:, 2].sum())} bytes" if len(segments) else ""
            place = f", offset {int(segments[0, 0])}" if len(segments) else ""
            requests.append(f"{act}{size} (file {file.path}{place})")
        return "under way: " + ", ".join(requests)

    def _note(
        self,
        ticket: int,
        act: str,
        file: native.File,
        segments: NDArray[Any],
        owner: object,
        moved: Moved | None,
    ) -> int:
        self._under_way[ticket] = act, file, segments, owner
        if moved is not None:
            self._moved[ticket] = moved
        return ticket

    def _complete_all(self, ended: list[native.Completion]) -> list[Completion]:
        completions = (self._complete(end) for end in ended)
        return [completion for completion in completions if completion is not None]

    def _complete(self, ended: native.Completion) -> Completion | None:
        """The completion; None for a part of a ticket that is not the last to end."""
        self._under_way.pop(ended.ticket, None)
        ticket = self._joined.of(ended.ticket)
        moved = self._moved.pop(ended.ticket, None)
        error = _failure(ended) if ended.errno else None
        if error is None and moved is not None:
            error = moved(np.frombuffer(ended.sums, np.uint64))
        if error is not None:
            self._failures.setdefault(ticket, error)
        nbytes = self._joined.ended(ticket, ended.nbytes)
        if nbytes is None:
            return None
        return Completion(ticket, nbytes, ended.seconds, self._failures.pop(ticket, None))


def _close(queue: native.Queue, under_way: object) -> None:
    """Close a queue; the memory of what does not end is kept."""
    if not queue.close(STUCK_SECONDS):
        _abandoned.append(under_way)


def _failure(ended: native.Completion) -> StoreError:
    if ended.errno == ENODATA:
        return StoreError(
            f"the file ends inside a read, at {os.path.getsize(ended.path)} bytes",
            path=ended.path,
            offset=ended.offset,
            length=ended.length,
        )
    if ended.errno == EBADMSG:
        return StoreError(
            "packed planes are not what was written: the disk or the memory is faulty; resume the "
            "run, which packs them again",
            path=ended.path,
        )
    return StoreError(
        "the transfer failed",
        path=ended.path,
        offset=ended.offset,
        length=ended.length,
        errno=ended.errno,
    )
