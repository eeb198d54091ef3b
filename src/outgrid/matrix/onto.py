"""Rows of a matrix on a device, where its own BLAS multiplies them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.device import Device, Rectangle, bytes_at
from outgrid.matrix.sources import chunk_memory
from outgrid.native import BLOCK_BYTES

__all__ = ["Upload"]

BUFFERS = 2  # one is copied to while the other is multiplied


class Upload:
    """The memory that chunks are read into, their copies to ``device``, and the products there.

    With ``pinned`` they are read into memory that the device can reach, else into any memory.
    Copies are as large as the chunks that were told with `expect`.
    """

    def __init__(self, device: Device, *, pinned: bool = True) -> None:
        self.arrays: Any = device.arrays
        self._device, self._pinned = device, pinned
        self._host: list[int] = []
        self._there: list[int] = []
        self._count = self._largest = 0

    def expect(self, nbytes: int) -> None:
        """Chunks of up to ``nbytes`` will be copied; none is being copied now."""
        if nbytes > self._largest:
            self._largest = nbytes
            self._release_there()

    def memory(self, nbytes: int) -> NDArray[np.uint8]:
        """Memory for a chunk of up to ``nbytes``, with room to begin like it within a block."""
        if not self._pinned:
            return chunk_memory(nbytes)
        address = self._device.allocate_host(nbytes + BLOCK_BYTES)
        self._host.append(address)
        return bytes_at(address, nbytes + BLOCK_BYTES)

    def copy(self, values: NDArray[Any]) -> Any:
        """The same rows on the device, in one of two places in turns."""
        if not self._there:
            self._there = [self._device.allocate(self._largest) for _ in range(BUFFERS)]
        address = self._there[self._count % BUFFERS]
        self._count += 1
        line = Rectangle(
            address, values.nbytes, values.ctypes.data, values.nbytes, values.nbytes, rows=1
        )
        self._device.wait(self._device.upload([line], ()))
        return self._device.array(address, values.shape, values.dtype)

    def bring(self, values: NDArray[Any]) -> Any:
        """A vector on the device."""
        return self._device.bring(values)

    def fetch(self, values: Any) -> NDArray[Any]:
        """A product, once it is made, in the memory of the process."""
        return self._device.fetch(values)

    def finish(self) -> None:
        """Wait for what is being multiplied: its rows may go then."""
        self._device.finish()

    def release(self) -> None:
        """Give all memory back."""
        self._release_there()
        while self._host:
            self._device.release_host(self._host.pop())

    def _release_there(self) -> None:
        while self._there:
            self._device.release(self._there.pop())
