"""The tier `memory`: a field that stays in DRAM."""

import ctypes
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outgrid.native import Buffer, as_array, fold, put_parts, unfold
from outgrid.storage.base import NATURAL, LaidOut, Layout, NewField, Planes
from outgrid.storage.transfers import Transfers

__all__ = ["MemoryStore", "create"]


class MemoryStore(LaidOut):
    """A C-ordered array of two or three axes as a store; the array itself is used, not a copy.

    Transfers are carried out when they are asked for; flushing does nothing, since nothing here
    outlives the process.
    """

    def __init__(self, name: str, array: NDArray[Any], transfers: Transfers) -> None:
        if not array.flags.c_contiguous:
            raise ValueError(f"field {name!r} is not C-ordered: strides {array.strides}")
        self.name = name
        self.array = array
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype[Any] = array.dtype
        self._layout = Layout.of(array.shape, array.dtype, array.ctypes.data)
        self._transfers = transfers

    @classmethod
    def create(
        cls, name: str, shape: tuple[int, ...], dtype: DTypeLike, transfers: Transfers
    ) -> Self:
        """A store of zeroes, on huge pages where the kernel grants them."""
        layout = Layout.of(shape, dtype, 0)
        array = as_array(
            Buffer(layout.nbytes), dtype, count=layout.nbytes // np.dtype(dtype).itemsize
        )
        return cls(name, array.reshape(shape), transfers)

    def get(self, planes: range, rows: range, into: Planes) -> int:
        return self._copy(planes, rows, into, get=True)

    def put(self, planes: range, rows: range, source: Planes) -> int:
        return self._copy(planes, rows, source, get=False)

    def _copy(self, planes: range, rows: range, memory: Planes, get: bool) -> int:
        segments = self._layout.segments(planes, rows, memory)
        folding, stride = memory.folded(rows, self.row_bytes), memory.row_stride_bytes
        folds = folding != NATURAL

        def copy(_: object = memory.owner) -> int:  # which lives until then
            for stored, address, nbytes in segments.tolist():
                if not get:
                    unfold(address, 0, nbytes, stored, folding)
                    continue
                if memory.parts:
                    put_parts(stored, 0, nbytes, address, folding)
                    continue
                each = self.row_bytes if folds and stride != self.row_bytes else nbytes
                for row in range(nbytes // each if each else 0):
                    ctypes.memmove(address + row * stride, stored + row * each, each)
                fold(address, nbytes, folding)
            return int(segments[:, 2].sum())

        return self._transfers.call(copy)

    def flush(self) -> int:
        return self._transfers.call(lambda: 0)

    def close(self) -> None:
        """Nothing to give back: the array lives as long as somebody holds it."""


def create(new: NewField, transfers: Transfers) -> MemoryStore:
    """A field of zeroes that is called as the file would be; ``sums`` are of files alone."""
    return MemoryStore.create(new.path.stem, new.shape, new.dtype, transfers)
