"""The tier `swap`: fields in memory that may be swapped out.

They are moved by copying, by the threads of the queue, as those of mapped files are.
"""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from outgrid.errors import StoreError
from outgrid.native import File
from outgrid.storage.base import Habits, LaidOut, Layout, NewField, Planes
from outgrid.storage.transfers import Transfers
from outgrid.units import format_bytes

__all__ = ["HeldStore", "SwapStore", "create"]


class HeldStore(LaidOut):
    """One field that is nothing but its bytes, in memory of any kind behind a `native.File`.

    Flushing means nothing, since nothing here outlives the process.
    """

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        transfers: Transfers,
        file: File,
    ) -> None:
        self.name = name
        self.shape: tuple[int, ...] = shape
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self._layout = Layout.of(shape, dtype, 0)
        self._transfers = transfers
        self._file = file

    def get(self, planes: range, rows: range, into: Planes) -> int:
        segments = self._layout.segments(planes, rows, into)
        folding = into.folded(rows, self.row_bytes)
        return self._transfers.read(self._file, segments, into.owner, folding=folding)

    def put(self, planes: range, rows: range, source: Planes) -> int:
        segments = self._layout.segments(planes, rows, source)
        folding = source.folded(rows, self.row_bytes)
        return self._transfers.write(self._file, segments, source.owner, folding=folding)

    def flush(self) -> int:
        return self._transfers.flush(self._file)

    @property
    def nbytes(self) -> int:
        """Bytes of the field."""
        return self._layout.nbytes

    @property
    def address(self) -> int:
        """Where plane 0 lies in the memory of the process; 0 where it is not there."""
        return self._file.address

    def close(self) -> None:
        """Give the memory back; transfers under way still end."""
        self._file.close()


class SwapStore(HeldStore):
    """One field of zeroes in anonymous memory, which the system may swap out."""

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        transfers: Transfers,
        habits: Habits | None = None,
    ) -> None:
        nbytes = Layout.of(shape, dtype, 0).nbytes
        try:
            file = File.anonymous(name, nbytes, habits.madvise if habits is not None else ())
        except OSError as error:
            raise StoreError(
                f"no memory for {format_bytes(nbytes)} of field {name!r}", errno=error.errno
            ) from error
        super().__init__(name, shape, dtype, transfers, file)


def create(new: NewField, transfers: Transfers) -> SwapStore:
    """A field of zeroes that is called as the file would be."""
    return SwapStore(new.path.stem, new.shape, new.dtype, transfers, new.habits)
