"""Regions of any shape to and from the memory that ranks lend.

Small pieces go together, as one message of derived types for each rank. Large ones are cut and
shared out among a few threads: within a host MPI copies in the thread that calls it, and one
processor alone does not reach the rate of memory; between hosts the transfer goes on while the
caller computes, which MPI itself does not promise.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from outgrid.errors import StoreError

__all__ = ["Moving", "start_moving"]


# Pieces as long as this go one by one: one derived type of them was half as fast.
WHOLE_BYTES = 64 << 10
# What one thread moves at a time, if there is as much for each of two.
SHARE_BYTES = 4 << 20
MOST_THREADS = 4

Piece = tuple[int, int, int, int]  # rank, displacement there, offset here, bytes


class Moving:
    """A transfer under way. `wait` returns when its bytes are where they belong."""

    def __init__(
        self,
        window: MPI.Win,
        requests: Sequence[MPI.Request] = (),
        ranks: Sequence[int] = (),
        shares: Sequence[Future[None]] = (),
    ) -> None:
        self._window, self._ranks = window, ranks
        self._requests, self._shares = list(requests), list(shares)

    def wait(self) -> None:
        """Raises StoreError where MPI refuses."""
        try:
            MPI.Request.Waitall(self._requests)
            for rank in self._ranks:  # what was put has left with its request, and is there now
                self._window.Flush(rank)
            failed = [share.exception() for share in self._shares]  # all have ended now
            for error in filter(None, failed):
                raise error
        except MPI.Exception as error:
            raise StoreError(f"remote memory: {error.Get_error_string()}") from error
        finally:
            self._requests, self._shares = [], []


def start_moving(
    window: MPI.Win, pieces: NDArray[np.int64], local: NDArray[Any], put: bool
) -> Moving:
    """Begin to move `pieces`, int64 of shape (n, 4): rank, displacement there, offset in the local
    array, bytes.
    """
    plain = window.Put if put else window.Get
    lengths = pieces[:, 3]

    def whole(piece: Piece) -> None:
        rank, there, here, nbytes = piece
        part = MPI.buffer.fromaddress(local.ctypes.data + here, nbytes)
        plain([part, nbytes, MPI.BYTE], rank, there)

    def share(taken: Sequence[Piece]) -> None:
        for piece in taken:
            whole(piece)
        for rank in {piece[0] for piece in taken}:
            window.Flush(rank)

    if lengths.min(initial=WHOLE_BYTES) >= WHOLE_BYTES and lengths.sum() >= 2 * SHARE_BYTES:
        return Moving(window, shares=[_threads().submit(share, taken) for taken in _deal(pieces)])
    reach = int((pieces[:, 2] + lengths).max(initial=0))  # more than its bytes in a view
    memory = MPI.buffer.fromaddress(local.ctypes.data, reach)
    move = window.Rput if put else window.Rget
    requests: list[MPI.Request] = []
    ranks = [int(rank) for rank in np.unique(pieces[:, 0])]
    try:
        for rank in ranks:
            mine = pieces[pieces[:, 0] == rank]
            if mine[:, 3].min() >= WHOLE_BYTES:
                for piece in mine.tolist():
                    whole(piece)
                continue
            here = MPI.BYTE.Create_hindexed(mine[:, 3].tolist(), mine[:, 2].tolist()).Commit()
            there = MPI.BYTE.Create_hindexed(mine[:, 3].tolist(), mine[:, 1].tolist()).Commit()
            requests.append(move([memory, 1, here], rank, [0, 1, there]))
            here.Free()
            there.Free()
    except MPI.Exception as error:
        raise StoreError(f"remote memory: {error.Get_error_string()}") from error
    return Moving(window, requests, ranks)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(MOST_THREADS, len(os.sched_getaffinity(0))), "outgrid-moving")


def _deal(pieces: NDArray[np.int64]) -> list[list[Piece]]:
    """Pieces in shares of about ``SHARE_BYTES``, long ones cut."""
    shares: list[list[Piece]] = [[]]
    room = SHARE_BYTES
    for rank, there, here, nbytes in pieces.tolist():
        done = 0
        while done < nbytes:
            if room == 0:
                shares.append([])
                room = SHARE_BYTES
            count = min(room, nbytes - done)
            shares[-1].append((rank, there + done, here + done, count))
            done += count
            room -= count
    return shares
