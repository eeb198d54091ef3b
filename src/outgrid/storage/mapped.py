"""The tiers `mmap` and `swap`: fields in mapped files, or in memory that may be swapped out.

Both are moved by copying, by the threads of the queue: a page that is not in memory is brought in
by the system when it is touched, and taken away when the system wants to.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike

from outgrid.errors import StoreError
from outgrid.native import File
from outgrid.storage.base import LaidOut, Layout, Planes
from outgrid.storage.direct import DirectStore
from outgrid.storage.transfers import Transfers
from outgrid.units import format_bytes

__all__ = ["Habits", "MappedStore", "SwapStore"]


@dataclass(frozen=True, slots=True)
class Habits:
    """What the system is told of a mapping.

    `madvise`: "normal", "sequential" or "random" order; "willneed" before what is got, "dontneed"
    after what was moved (memory that may be swapped out is sent there instead). `msync`: what
    follows a put: "none", "async" or "sync". Flushes are synchronous whatever it says.
    """

    madvise: tuple[str, ...] = ()
    msync: str = "none"


class MappedStore(DirectStore):
    """One field as a mapped .npy file, otherwise as `DirectStore` has it; made by `mapped`.

    A device that fails ends the process (SIGBUS) instead of a transfer.
    """

    def mapped(self, habits: Habits) -> Self:
        """This store, its file mapped. Raises StoreError where it cannot be."""
        try:
            self._file.map(habits.madvise, habits.msync)
        except OSError as error:
            self.close()
            raise StoreError(str(error.strerror), path=self.path, errno=error.errno) from error
        return self


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
        return self._transfers.read(self._file, segments, into.owner)

    def put(self, planes: range, rows: range, source: Planes) -> int:
        segments = self._layout.segments(planes, rows, source)
        return self._transfers.write(self._file, segments, source.owner)

    def flush(self) -> int:
        return self._transfers.flush(self._file)

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
