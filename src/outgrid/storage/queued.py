"""Numbers in one piece of a file, read by queues past the page cache."""

from math import prod
from threading import Lock, local
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.formats.source import Box, Source, Straight, View, reading
from outgrid.native import BLOCK_BYTES, Buffer, File, as_array
from outgrid.storage.transfers import Transfers

__all__ = ["queued"]

STAGING_BYTES = 1 << 20  # of a thread, for blocks that are read in part


def queued(source: Source) -> Source:
    """A file that is read by queues, where its numbers lie in one piece; else as it was."""
    return Queued(source) if type(source) is Straight else source


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

    def begin(self, box: Box) -> None:
        """Begin to read the box that this thread asks for next."""
        self._lane().begin(self._straight, self._file, box)

    def read(self, box: Box) -> NDArray[Any]:
        """The values of a box, which are valid until the next call of the same thread."""
        return self._lane().read(self._straight, self._file, box)

    def _lane(self) -> "_Lane":
        lane: _Lane | None = getattr(self._local, "lane", None)
        if lane is None:
            lane = self._local.lane = _Lane()
            with self._lock:
                self._lanes.append(lane)
        return lane

    def close(self) -> None:
        """Let go of the file, and of the queues."""
        for lane in self._lanes:
            lane.transfers.close()
        self._file.close()
        super().close()


class _Lane:
    """What a thread has of its own: a queue, memory that it reads into, and that of the box before.

    What it has begun to read is a box and its values. Memory begins as far behind a block as the
    values do in the file: then whole blocks are moved to where they belong, wherever a head ends.
    """

    def __init__(self) -> None:
        self.transfers = Transfers(staging_bytes=STAGING_BYTES)
        self.memory: Buffer | None = None
        self.other: Buffer | None = None
        self.begun: tuple[Box, NDArray[Any]] | None = None

    def begin(self, source: Straight, file: File, box: Box) -> None:
        self.memory, self.other = self.other, self.memory
        self._begin(source, file, box)

    def read(self, source: Straight, file: File, box: Box) -> NDArray[Any]:
        if self.begun is None or self.begun[0] != box:
            self.transfers.drain()
            self._begin(source, file, box)
        assert self.begun is not None
        values, self.begun = self.begun[1], None
        self.transfers.drain()
        return values

    def _begin(self, source: Straight, file: File, box: Box) -> None:
        extents = tuple(map(len, box))
        cells = prod(extents)
        pieces = [*source.pieces(box)] if cells else []
        behind = pieces[0][0] % BLOCK_BYTES if pieces else 0
        behind -= behind % source.dtype.itemsize
        nbytes = cells * source.dtype.itemsize + BLOCK_BYTES
        if self.memory is None or self.memory.nbytes < nbytes:
            self.memory = Buffer(nbytes)
        room = as_array(self.memory, np.uint8)[behind:]
        values = room[: nbytes - BLOCK_BYTES].view(source.dtype).reshape(extents)
        runs = ((offset, values[(*index, ...)]) for offset, index in pieces)  # views, even of one
        segments = [(offset, run.ctypes.data, run.nbytes) for offset, run in runs]
        places = np.array(segments, np.int64).reshape(-1, 3)
        self.transfers.read(file, places, self.memory)
        self.begun = box, values
