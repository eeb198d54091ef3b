"""Transfers between stores and a device: through host memory that the device can reach.

A get is a read into a part of that memory, then a copy to the device; a put the same backwards. A
transfer passes in pieces of whole planes, each through a part; a piece for which no part is free
waits its turn. A store whose own memory the device can reach is copied from and to where it is.
Copies begin after all launches that were made before their transfer, so a plane is neither
overwritten while a kernel reads it nor taken away before it is made.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from outgrid.device import Device, Rectangle
from outgrid.errors import StoreError
from outgrid.seal import UNSEALED, Seal
from outgrid.storage.base import Planes, Store, Wrapping
from outgrid.storage.transfers import Completion, Transfers

__all__ = ["StagedStore", "StagedTransfers"]

TURN_SECONDS = 50e-6  # between two looks at what is being copied


class _Transfer(msgspec.Struct):
    """One get or put; ``pieces`` of it have not ended."""

    ticket: int
    store: Store
    rows: range
    row_stride_bytes: int
    pinned: int  # where plane 0 of the store lies, if the device reaches it
    get: bool
    seal: Seal  # what the store is to hold when a piece is moved
    after: Hashable  # the launches that were made before
    begun: float
    pieces: int = 0
    nbytes: int = 0
    error: StoreError | None = None


class _Piece(msgspec.Struct):
    """Planes of a transfer on their way; ``part`` is the host memory that they pass through."""

    whole: _Transfer
    planes: range
    addresses: NDArray[np.int64]
    part: int = 0  # or where its first plane lies in the store
    copying: Hashable | None = None


class StagedTransfers:
    """The transfers of a run whose window lies on a device; offers what `Transfers` offers.

    ``parts`` pieces of ``part_bytes`` of host memory are allocated. Not for use from several
    threads.
    """

    def __init__(self, inner: Transfers, device: Device, parts: int, part_bytes: int) -> None:
        self.inner, self._device, self._part_bytes = inner, device, part_bytes
        self._parts = [device.allocate_host(part_bytes) for _ in range(parts)]
        self._free = list(self._parts)
        self._waiting: deque[_Piece] = deque()
        self._moving: dict[int, _Piece] = {}  # by the ticket of the transfer of the store
        self._copying: list[_Piece] = []
        self._others: dict[int, int] = {}  # flushes: ticket of the inner transfers, and ours
        self._ended: list[Completion] = []  # and not handed out
        self._under_way = self._last = 0
        self.uploaded_bytes = self.downloaded_bytes = 0

    @property
    def outstanding(self) -> int:
        """Tickets whose completion was not handed out yet."""
        return self._under_way + len(self._others) + len(self._ended)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)  # engine, refusals, statistics

    def move(
        self,
        store: Store,
        planes: range,
        rows: range,
        memory: Planes,
        get: bool,
        seal: Seal,
        pinned: int = 0,
    ) -> int:
        """Start to move a region between ``store`` and the device's memory.

        Plane 0 of a store that the device reaches lies at ``pinned``. The planes are of what
        ``seal`` says, whatever the store is told before their turn comes.
        """
        memory.require_natural(f"{store.name}, on its way between a device and a store,")
        plane_bytes = len(rows) * store.row_bytes
        self._last += 1
        if plane_bytes > self._part_bytes and not pinned:
            raise StoreError(
                f"a plane of {plane_bytes} bytes does not fit the {self._part_bytes} bytes of host "
                "memory that it would pass through",
                path=store.name,
            )
        whole = _Transfer(
            self._last,
            store,
            rows,
            max(store.row_bytes, memory.row_stride_bytes),
            pinned,
            get,
            seal,
            self._device.mark(),
            time.perf_counter(),
        )
        self._under_way += 1
        if pinned:
            whole.pieces = 1
            first = pinned + (planes.start * store.rows_per_plane + rows.start) * store.row_bytes
            self._copy(_Piece(whole, planes, memory.addresses, first))
            return self._last
        step = max(1, min(len(planes), self._part_bytes // plane_bytes))
        for first in range(0, len(planes), step):
            last = min(first + step, len(planes))
            piece = range(planes.start + first, planes.start + last)
            self._waiting.append(_Piece(whole, piece, memory.addresses[first:last]))
            whole.pieces += 1
        self._begin()
        return self._last

    def flush(self, store: Store) -> int:
        """Start making durable what was completely put before."""
        self._last += 1
        self._others[store.flush()] = self._last
        return self._last

    def _begin(self) -> None:
        """Start what waits, as far as there are free parts."""
        while self._waiting and self._free:
            piece = self._waiting.popleft()
            piece.part = self._free.pop()
            if piece.whole.get:
                self._move(piece)
            else:
                self._copy(piece)

    def _move(self, piece: _Piece) -> None:
        whole = piece.whole
        plane_bytes = len(whole.rows) * whole.store.row_bytes
        addresses = piece.part + plane_bytes * np.arange(len(piece.planes), dtype=np.int64)
        whole.store.hold(whole.seal)
        act = whole.store.get if whole.get else whole.store.put
        ticket = act(piece.planes, whole.rows, Planes(addresses, whole.store.row_bytes, self))
        self._moving[ticket] = piece

    def _copy(self, piece: _Piece) -> None:
        whole = piece.whole
        row_bytes, rows = whole.store.row_bytes, len(whole.rows)
        apart = (whole.store.rows_per_plane if whole.pinned else rows) * row_bytes
        rectangles: list[Rectangle] = []
        for number, address in enumerate(piece.addresses.tolist()):
            host = (piece.part + number * apart, row_bytes)
            there = (address, whole.row_stride_bytes)
            to, source = (there, host) if whole.get else (host, there)
            rectangles.append(Rectangle(*to, *source, row_bytes, rows))
        nbytes = len(rectangles) * rows * row_bytes
        if whole.get:
            self.uploaded_bytes += nbytes
            piece.copying = self._device.upload(rectangles, (whole.after,))
        else:
            self.downloaded_bytes += nbytes
            piece.copying = self._device.download(rectangles, (whole.after,))
        self._copying.append(piece)

    def attend(self) -> None:
        """Let pieces go on, while whoever wants completions is busy with something else."""
        if self.outstanding:
            self._ended += self._settle(self.inner.poll())

    def poll(self) -> list[Completion]:
        """What has ended by now."""
        self.attend()
        ended, self._ended = self._ended, []
        return ended

    def wait(self, timeout_seconds: float = float("inf")) -> list[Completion]:
        """At least one completion; none after the timeout, or when no ticket is outstanding."""
        if ended := self.poll():
            return ended
        end = time.monotonic() + timeout_seconds
        while self.outstanding:
            turn = TURN_SECONDS if self._copying else min(1.0, timeout_seconds)
            busy = self._moving or self._others
            completions = self._settle(self.inner.wait(turn) if busy else [])
            if completions or time.monotonic() >= end:
                return completions
            if not busy:
                time.sleep(TURN_SECONDS)
        return []

    def wake(self) -> None:
        """Nobody waits here while somebody else computes."""

    def drain(self) -> list[Completion]:
        """Wait for every outstanding ticket; raises the first failure after all have ended."""
        ended: list[Completion] = []
        while self.outstanding:
            ended += self.wait()
        return [completion.check() for completion in ended]

    def _settle(self, ended: list[Completion]) -> list[Completion]:
        completions: list[Completion] = []
        for completion in ended:
            if completion.ticket in self._others:
                ticket = self._others.pop(completion.ticket)
                completions.append(replace(completion, ticket=ticket))
                continue
            piece = self._moving.pop(completion.ticket)
            piece.whole.nbytes += completion.nbytes
            piece.whole.error = piece.whole.error or completion.error
            if piece.whole.get and completion.error is None:
                self._copy(piece)
            else:
                completions += self._finish(piece)
        for piece in [piece for piece in self._copying if self._device.done(piece.copying)]:
            self._copying.remove(piece)
            if piece.whole.pinned:
                rows = len(piece.planes) * len(piece.whole.rows)
                piece.whole.nbytes += rows * piece.whole.store.row_bytes
            if piece.whole.get or piece.whole.pinned:
                completions += self._finish(piece)
            else:
                self._move(piece)
        self._begin()
        return completions

    def _finish(self, piece: _Piece) -> list[Completion]:
        """The completion of a transfer whose last piece has ended."""
        whole = piece.whole
        if not whole.pinned:
            self._free.append(piece.part)
        whole.pieces -= 1
        if whole.pieces:
            return []
        self._under_way -= 1
        seconds = time.perf_counter() - whole.begun
        return [Completion(whole.ticket, whole.nbytes, seconds, whole.error)]

    def close(self) -> None:
        """Drop what has not begun, wait for what is under way, and give host memory back."""
        self._waiting.clear()
        for piece in self._copying:
            self._device.wait(piece.copying)
        self.inner.close()
        while self._parts:
            self._device.release_host(self._parts.pop())

    def abandon(self) -> None:
        """Let go without waiting, where requests under way do not end."""
        self._parts.clear()  # it may still be written to
        self.inner.abandon()


class StagedStore(Wrapping):
    """A store as the window on a device sees it: regions come and go by `StagedTransfers`.

    Its plane 0 lies at ``pinned`` if the device reaches it.
    """

    def __init__(self, store: Store, transfers: StagedTransfers, pinned: int = 0) -> None:
        super().__init__(store)
        self._transfers, self._pinned = transfers, pinned
        self._seal = UNSEALED

    def hold(self, seal: Seal) -> None:
        """Say it to the other one as each piece is moved that is asked for from now on."""
        self._seal = seal

    def get(self, planes: range, rows: range, into: Planes) -> int:
        """Start to read a region to the device."""
        return self._transfers.move(self._store, planes, rows, into, True, self._seal, self._pinned)

    def put(self, planes: range, rows: range, source: Planes) -> int:
        """Start to write a region from the device."""
        return self._transfers.move(
            self._store, planes, rows, source, False, self._seal, self._pinned
        )

    def flush(self) -> int:
        """Start making durable what was completely put before."""
        return self._transfers.flush(self._store)
