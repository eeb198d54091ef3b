"""Regions of any shape to and from the memory that ranks lend.

They are cut, and shared out among who waits for them and a few threads: within a host a transfer is
a copy, and one processor alone does not reach the rate of memory; between hosts the transfer goes
on while the caller computes, which MPI itself does not promise.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import StoreError
from outgrid.native import MpiWindow

__all__ = ["Moving", "moving"]


SHARE_BYTES = 2 << 20  # what a thread moves at a time
MOST_THREADS = 4

Pieces = NDArray[np.int64]  # of shape (n, 4): rank, displacement there, offset here, bytes


class Moving:
    """A transfer in `shares`, each of which `move` moves. It keeps the memory that it needs."""

    def __init__(self, move: Callable[[Pieces], None], shares: Sequence[Pieces]) -> None:
        self._move, self._left = move, deque(shares)
        self._helpers: list[Future[None]] = []

    def start(self, spared: int = 0) -> Self:
        """Let as many threads move it as there is work for, less those `spared`."""
        count = min(len(self._left), _thread_count()) - spared
        self._helpers = [_threads().submit(self._work) for _ in range(count)]
        return self

    def wait(self) -> None:
        """Return when its bytes are where they belong; moves what no thread has begun.

        Raises StoreError where MPI refuses, or the memory is gone.
        """
        try:
            try:
                self._work()
            finally:
                ended = [helper.exception() for helper in self._helpers]
            for error in filter(None, ended):
                raise error
        except OSError as error:
            raise StoreError(f"remote memory: {error.strerror}", errno=error.errno) from error
        finally:
            self._left.clear()
            self._helpers = []

    def _work(self) -> None:
        while True:
            try:
                share = self._left.popleft()
            except IndexError:
                return
            self._move(share)


def moving(window: MpiWindow, pieces: Pieces, local: NDArray[Any], put: bool) -> Moving:
    """The transfer of `pieces` to or from the local array."""

    def move(share: Pieces) -> None:
        window.move(put, share, local.ctypes.data)

    return Moving(move, _deal(pieces))


@cache
def _thread_count() -> int:
    return min(MOST_THREADS, len(os.sched_getaffinity(0)))


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_thread_count(), "outgrid-moving")


def _deal(pieces: Pieces) -> list[Pieces]:
    """Pieces in shares of ``SHARE_BYTES``, cut where a share ends."""
    ends = np.cumsum(pieces[:, 3])
    if not len(ends) or ends[-1] <= SHARE_BYTES:
        return [pieces]
    begins = ends - pieces[:, 3]
    first, last = begins // SHARE_BYTES, -(-ends // SHARE_BYTES)
    counts = last - first
    piece = np.repeat(np.arange(len(pieces)), counts)
    share = np.arange(len(piece)) - np.repeat(np.cumsum(counts) - counts, counts) + first[piece]
    low = np.maximum(begins[piece], share * SHARE_BYTES)
    high = np.minimum(ends[piece], (share + 1) * SHARE_BYTES)
    cut = pieces[piece]
    cut[:, 1:3] += (low - begins[piece])[:, None]
    cut[:, 3] = high - low
    return np.split(cut, np.flatnonzero(np.diff(share)) + 1)
