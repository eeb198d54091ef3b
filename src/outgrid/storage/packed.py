"""A field that is only read, whose whole planes come packed from a file of their own.

The file is a copy that can be made again at any time: nothing in it outlives the process, and its
index, with the checksum of every plane, is in memory alone.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from outgrid.native import BLOCK_BYTES, File
from outgrid.storage.base import Planes, Store, Wrapping
from outgrid.storage.transfers import Transfers

__all__ = ["MARGIN_BYTES", "PACKED_ITEMS", "Index", "PackedStore", "packed_room", "whole_blocks"]

PACKED_ITEMS = (4, 8)  # bytes of the numbers that can be packed
# Between the end of a plane and that of its packed bytes in the same memory: both blocks are whole.
MARGIN_BYTES = 2 * BLOCK_BYTES
WORTH_PACKING = 0.9  # of its bytes, that a plane must be packed into


Count = TypeVar("Count", int, NDArray[np.int64])


def whole_blocks(nbytes: Count) -> Count:
    """The bytes of the blocks that so many bytes take."""
    return -(-nbytes // BLOCK_BYTES) * BLOCK_BYTES


def packed_room(plane_bytes: int) -> int:
    """Into fewer bytes a plane is packed, or not at all."""
    return max(0, min(int(WORTH_PACKING * plane_bytes), plane_bytes - MARGIN_BYTES))


class Index(msgspec.Struct, frozen=True):
    """Where packed planes are: int64 of shape (planes,).

    ``nbytes`` is 0 for planes that are not packed; others begin at ``offsets``, in whole blocks.
    """

    offsets: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    sums: NDArray[np.uint64]

    @property
    def file_bytes(self) -> NDArray[np.int64]:
        """What each plane takes in the file."""
        return whole_blocks(self.nbytes)


class PackedStore(Wrapping):
    """A ``store`` of which whole planes are read from ``file`` where the ``index`` has them.

    Both use ``transfers``. Parts of planes, and planes that are not packed, are read from the store
    itself. A read of packed planes that are not what was packed ends with a StoreError.
    """

    def __init__(self, store: Store, file: File, index: Index, transfers: Transfers) -> None:
        super().__init__(store)
        self._file, self._index, self._transfers = file, index, transfers
        self._alignment = max(1, file.memory_alignment)

    def get(self, planes: range, rows: range, into: Planes) -> int:
        """Start to read a region."""
        if len(rows) < self.rows_per_plane:
            return self._store.get(planes, rows, into)
        tickets: list[int] = []
        done = 0
        for packed, run in groupby(planes, lambda plane: self._index.nbytes[plane] > 0):
            part = [*run]
            there = range(part[0], part[-1] + 1)
            at = replace(into, addresses=into.addresses[done : done + len(part)])
            done += len(part)
            get = self._packed if packed else self._store.get
            tickets.append(get(there, rows, at))
        return self._transfers.join(*tickets) if tickets else self._store.get(planes, rows, into)

    def _packed(self, planes: range, rows: range, into: Planes) -> int:
        into.require_whole_rows(self.name)
        index, part = self._index, slice(planes.start, planes.stop)
        folding = into.folded(rows, self.row_bytes)
        stride = into.row_stride_bytes if len(rows) > 1 else self.row_bytes
        ends = into.addresses + (len(rows) - 1) * stride + self.row_bytes
        nbytes = index.file_bytes[part]
        starts = (ends - nbytes) // self._alignment * self._alignment
        segments = np.stack([index.offsets[part], starts, nbytes], axis=1)
        unpacked = np.empty((len(planes), 8), np.int64)
        unpacked[:, 0], unpacked[:, 1] = starts, index.nbytes[part]
        unpacked[:, 2], unpacked[:, 3] = index.sums[part].view(np.int64), into.addresses
        unpacked[:, 4:] = len(rows), self.row_bytes, stride, self.dtype.itemsize
        return self._transfers.read_packed(self._file, segments, unpacked, into.owner, folding)

    def put(self, planes: range, rows: range, source: Planes) -> int:
        """Nothing: such a field is only read. Raises ValueError."""
        raise ValueError(f"{self.name} is read only: it is kept packed")

    def flush(self) -> int:
        """Make durable what the other one was given before."""
        return self._store.flush()

    def close(self) -> None:
        """Close both."""
        self._file.close()
        super().close()


def index_of(counts: list[tuple[int, int]]) -> Index:
    """The index of planes of so many packed bytes and such sums, one after the other."""
    nbytes: NDArray[Any] = np.array([count for count, _ in counts], np.int64)
    sums = np.array([total for _, total in counts], np.uint64)
    index = Index(np.zeros(len(counts), np.int64), nbytes, sums)
    return replace(index, offsets=np.cumsum(index.file_bytes) - index.file_bytes)
