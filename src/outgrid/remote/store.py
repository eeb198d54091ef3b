"""The tier `remote`: fields in the memory of other nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outgrid.errors import StoreError
from outgrid.native import Backing, File, MpiWindow
from outgrid.storage.base import Layout, Planes
from outgrid.storage.direct import DirectStore
from outgrid.storage.swap import HeldStore
from outgrid.storage.transfers import Transfers
from outgrid.units import format_bytes

__all__ = ["KeptRemoteStore", "RemoteSpace", "RemoteStore"]

Cut = Callable[[int, int], NDArray[np.int64]]


class RemoteSpace:
    """`nbytes` of borrowed memory, handed out from the beginning.

    `cut(first, last)` says where the bytes of such a part lie: int64 of shape (n, 3), bytes, rank
    and displacement in that rank's window.
    """

    def __init__(self, window: MpiWindow, nbytes: int, cut: Cut) -> None:
        self._window, self._cut = window, cut
        self.nbytes, self.used_bytes = nbytes, 0

    def take(self, name: str, nbytes: int) -> Backing:
        """The next `nbytes`. Raises StoreError where they are not left."""
        first, last = self.used_bytes, self.used_bytes + nbytes
        if last > self.nbytes:
            raise StoreError(
                f"{name!r} needs {format_bytes(nbytes)} of remote memory; "
                f"{format_bytes(self.nbytes - first)} of {format_bytes(self.nbytes)} are free"
            )
        self.used_bytes = last
        return self._window.backing(name, self._cut(first, last))


class RemoteStore(HeldStore):
    """One field in the memory of other nodes, moved by one-sided get and put.

    A transfer has ended when its bytes are there (or here). Nothing outlives the nodes' processes.
    """

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        transfers: Transfers,
        space: RemoteSpace,
    ) -> None:
        backing = space.take(name, Layout.of(shape, dtype, 0).nbytes)
        super().__init__(name, shape, dtype, transfers, File.of_backing(backing))


class KeptRemoteStore(DirectStore):
    """A field in remote memory, with a file into which everything is put as well.

    It is got from remote memory; the file is what a later process goes on from.
    """

    _remote: RemoteStore | None = None

    def beside(self, remote: RemoteStore) -> Self:
        """This store, its planes in `remote` from now on."""
        self._remote = remote
        return self

    def get(self, planes: range, rows: range, into: Planes) -> int:
        if self._remote is None:
            return super().get(planes, rows, into)
        return self._remote.get(planes, rows, into)

    def put(self, planes: range, rows: range, source: Planes) -> int:
        kept = super().put(planes, rows, source)
        if self._remote is None:
            return kept
        return self._transfers.join(self._remote.put(planes, rows, source), kept)

    def close(self) -> None:
        if self._remote is not None:
            self._remote.close()
        super().close()
