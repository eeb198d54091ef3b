"""Ranks that are threads of one process: messages are copied, when and in which order chance wills.

For tests. A message is copied some turns after both sides have asked for it; until then its memory
must stay as it is, which is checked.
"""

from __future__ import annotations

import ctypes
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from outgrid.comm.base import Rows

T = TypeVar("T")


class _Group(msgspec.Struct):
    size: int
    choose: random.Random
    lock: threading.Condition = msgspec.field(default_factory=threading.Condition)
    sent: dict[tuple[int, int, int], deque[tuple[int, Rows, bytes]]] = msgspec.field(
        default_factory=dict[tuple[int, int, int], deque[tuple[int, Rows, bytes]]]
    )
    wanted: dict[tuple[int, int, int], deque[tuple[int, Rows]]] = msgspec.field(
        default_factory=dict[tuple[int, int, int], deque[tuple[int, Rows]]]
    )
    ended: list[list[int]] = msgspec.field(default_factory=list[list[int]])
    agreed: list[deque[int]] = msgspec.field(default_factory=list[deque[int]])
    values: list[dict[int, Any]] = msgspec.field(default_factory=list[dict[int, Any]])
    aborted: int | None = None


class Aborted(BaseException):
    """Another rank has ended the group."""


R = TypeVar("R")


def in_threads(act: Callable[[Threads], R], count: int, choose: random.Random) -> list[R]:
    """What ``act`` returns for each of ``count`` ranks, each in a thread of its own.

    Raises the first error of one of them, which ends all others.
    """
    comms = Threads.group(count, choose)
    results: dict[int, R] = {}
    errors: list[BaseException] = []

    def work(comm: Threads) -> None:
        try:
            results[comm.rank] = act(comm)
        except BaseException as error:
            errors.append(error)
            comm.abort(1)

    threads = [threading.Thread(target=work, args=(comm,)) for comm in comms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((error for error in errors if not isinstance(error, Aborted)), errors[0])
    return [results[rank] for rank in range(count)]


class Threads:
    """One rank of a group of threads; `group` makes all of them."""

    def __init__(self, group: _Group, rank: int) -> None:
        self._group = group
        self.rank, self.size, self.local = rank, group.size, group.size
        self._tickets = self._shared = 0

    @classmethod
    def group(cls, size: int, choose: random.Random) -> list[Threads]:
        """Ranks 0 to ``size`` - 1; ``choose`` draws when messages arrive."""
        shared = _Group(size, choose)
        shared.ended = [[] for _ in range(size)]
        shared.agreed = [deque() for _ in range(size)]
        return [cls(shared, rank) for rank in range(size)]

    def send(self, peer: int, channel: int, source: Rows) -> int:
        with self._group.lock:
            queue = self._group.sent.setdefault((self.rank, peer, channel), deque())
            queue.append((self._ticket(), source, _bytes(source)))
            return self._tickets

    def receive(self, peer: int, channel: int, into: Rows) -> int:
        with self._group.lock:
            queue = self._group.wanted.setdefault((peer, self.rank, channel), deque())
            queue.append((self._ticket(), into))
            return self._tickets

    def agree(self) -> int:
        with self._group.lock:
            self._group.agreed[self.rank].append(self._ticket())
            if all(self._group.agreed):
                for rank, waiting in enumerate(self._group.agreed):
                    self._group.ended[rank].append(waiting.popleft())
            return self._tickets

    def ended(self) -> list[int]:
        group = self._group
        with group.lock:
            self._check()
            ready = [key for key, queue in group.sent.items() if queue and group.wanted.get(key)]
            for key in ready:
                if group.choose.random() < 0.5:
                    self._deliver(key)
            tickets, group.ended[self.rank] = group.ended[self.rank], []
            return tickets

    def share(self, value: T) -> list[T]:
        group = self._group
        with group.lock:
            while len(group.values) <= self._shared:
                group.values.append({})
            given = group.values[self._shared]
            given[self.rank] = value
            self._shared += 1
            group.lock.notify_all()
            while len(given) < group.size:
                self._check()
                group.lock.wait(0.1)
            return [given[rank] for rank in range(group.size)]

    def all_leave(self, seconds: float) -> bool:
        return False  # errors of a thread end the others

    def abort(self, code: int) -> None:
        self._group.aborted = code

    def _check(self) -> None:
        if self._group.aborted is not None:
            raise Aborted(self._group.aborted)
        time.sleep(0)

    def _ticket(self) -> int:
        self._check()
        self._tickets += 1
        return self._tickets

    def _deliver(self, key: tuple[int, int, int]) -> None:
        ticket, source, begun = self._group.sent[key].popleft()
        wanted, into = self._group.wanted[key].popleft()
        if source.nbytes != into.nbytes:
            raise ValueError(f"{source.nbytes} bytes were sent and {into.nbytes} received on {key}")
        if _bytes(source) != begun:
            raise ValueError(f"the memory of a message on {key} was changed before it was received")
        ctypes.memmove(into.address, begun, into.nbytes)
        self._group.ended[key[0]].append(ticket)
        self._group.ended[key[1]].append(wanted)


def _bytes(rows: Rows) -> bytes:
    return ctypes.string_at(rows.address, rows.nbytes)
