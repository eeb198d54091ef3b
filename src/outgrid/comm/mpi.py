"""Ranks of MPI: mpi4py with whatever MPI it was built for or finds.

A large message moves only while both sides are inside of MPI. A thread therefore looks in now and
then while messages are under way, so that they come and go beside the computing.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from mpi4py import MPI

from outgrid.comm.base import Rows

T = TypeVar("T")

TURN_SECONDS = 1e-3  # between two looks of the thread, and of one who waits


class Mpi:
    """The ranks of MPI's world."""

    def __init__(self) -> None:
        self._comm, self._leaving = MPI.COMM_WORLD.Dup(), MPI.COMM_WORLD.Dup()
        shared = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.rank, self.size, self.local = self._comm.rank, self._comm.size, shared.size
        shared.Free()
        self._tickets: list[int] = []
        self._requests: list[MPI.Request] = []
        self._last = 0
        self._kinds: dict[int, MPI.Datatype] = {}
        _end_all_on_error()
        if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
            threading.Thread(target=self._look_in, daemon=True).start()

    def send(self, peer: int, channel: int, source: Rows) -> int:
        return self._note(self._comm.Isend(self._message(source), peer, channel))

    def receive(self, peer: int, channel: int, into: Rows) -> int:
        return self._note(self._comm.Irecv(self._message(into), peer, channel))

    def agree(self) -> int:
        return self._note(self._comm.Ibarrier())

    def ended(self) -> list[int]:
        if not self._requests:
            return []
        done = MPI.Request.Testsome(self._requests)
        if not done:
            return []
        tickets = [self._tickets[index] for index in done]
        gone = set(done)
        self._tickets = [t for index, t in enumerate(self._tickets) if index not in gone]
        self._requests = [r for index, r in enumerate(self._requests) if index not in gone]
        return tickets

    def share(self, value: T) -> list[T]:
        # Who comes first sleeps: a collective call that waits would keep a core busy.
        arrived = self._comm.Ibarrier()
        _wait(arrived.Test)
        return self._comm.allgather(value)

    def all_leave(self, seconds: float) -> bool:
        end, arrived = time.monotonic() + seconds, self._leaving.Ibarrier()
        _wait(lambda: arrived.Test() or time.monotonic() > end)
        return arrived.Test()

    def abort(self, code: int) -> None:
        self._comm.Abort(code)

    def _note(self, request: MPI.Request) -> int:
        self._last += 1
        self._tickets.append(self._last)
        self._requests.append(request)
        return self._last

    def _message(self, rows: Rows) -> tuple[MPI.buffer, int, MPI.Datatype]:
        memory = MPI.buffer.fromaddress(rows.address, rows.nbytes)
        return memory, rows.rows, self._kind(rows.row_bytes)

    def _kind(self, row_bytes: int) -> MPI.Datatype:
        """One row; counts of rows stay small however large a message is."""
        if row_bytes not in self._kinds:
            self._kinds[row_bytes] = MPI.BYTE.Create_contiguous(row_bytes).Commit()
        return self._kinds[row_bytes]

    def _look_in(self) -> None:
        while not MPI.Is_finalized():
            if self._requests:
                self._comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)
            time.sleep(TURN_SECONDS)


def _end_all_on_error() -> None:
    """A rank that ends with an error of the program takes the others along: they would wait."""
    tell = sys.excepthook

    def end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        tell(kind, error, trace)
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)

    sys.excepthook = end


def _wait(done: Callable[[], bool]) -> None:
    while not done():
        time.sleep(TURN_SECONDS)
