"""Numbers in one piece of a file, read by queues past the page cache."""

from threading import Lock, local
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.formats.source import Box, Straight, View, reading
from outgrid.native import Buffer, File, as_array
from outgrid.storage.transfers import Transfers

__all__ = ["Queued"]

STAGING_BYTES = 1 << 20  # of a thread, for blocks that are read in part


class Queued(View):
    """The same numbers: each thread has a queue, which reads all pieces of a box at once.

    That keeps a disk busy where a box has many small pieces, and a processor copies none of them.
    """

    def __init__(self, source: Straight) -> None:
        super().__init__(source)
        self._straight = source
        with reading(source.path):
            self._file = File(source.path, "r")
        self._lanes: list[_Lane] = []
        self._lock, self._local = Lock(), local()

    def read(self, box: Box) -> NDArray[Any]:
        """The values of a box, which are valid until the next call of the same thread."""
        lane: _Lane | None = getattr(self._local, "lane", None)
        if lane is None:
            lane = self._local.lane = _Lane()
            with self._lock:
                self._lanes.append(lane)
        return lane.read(self._straight, self._file, box)

    def close(self) -> None:
        """Let go of the file, and of the queues."""
        for lane in self._lanes:
            lane.transfers.close()
        self._file.close()
        super().close()


class _Lane:
    """What a thread has of its own: a queue, and memory that it reads into."""

    def __init__(self) -> None:
        self.transfers = Transfers(staging_bytes=STAGING_BYTES)
        self.memory: Buffer | None = None

    def read(self, source: Straight, file: File, box: Box) -> NDArray[Any]:
        extents = tuple(map(len, box))
        nbytes = int(np.prod(extents)) * source.dtype.itemsize
        if not nbytes:
            return np.empty(extents, source.dtype)
        if self.memory is None or self.memory.nbytes < nbytes:
            self.memory = Buffer(nbytes)
        cells = nbytes // source.dtype.itemsize
        values = as_array(self.memory, source.dtype, count=cells).reshape(extents)
        segments = [
            (offset, values[index].ctypes.data, values[index].nbytes)
            for offset, index in source.pieces(box)
        ]
        self.transfers.read(file, np.array(segments, np.int64), self.memory)
        self.transfers.drain()
        return values
