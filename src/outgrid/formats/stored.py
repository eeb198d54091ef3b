"""An array in chunks that this process has written, read again by several threads.

zarr-python reads chunks of shards in one thread, at a sixth of the rate of a fast disk.
"""

import os
from collections.abc import Callable
from itertools import product
from math import prod
from threading import local
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import StoreError
from outgrid.formats.chunks import Chunks, memory_of, opened_direct
from outgrid.formats.codecs import most_bytes
from outgrid.formats.source import READERS, Box, Coords, decoding, reading
from outgrid.units import BLOCK_BYTES

__all__ = ["Stored"]


class Stored:
    """What is in the files of a sink that is finished; `decode(content, out)` undoes its codec."""

    def __init__(self, sink: Chunks, decode: Callable[[Any, NDArray[Any]], object]) -> None:
        self._sink, self._decode, self._local = sink, decode, local()
        self.shape, self.dtype, self.chunk = sink.shape, sink.dtype, sink.chunk
        chunk_bytes = prod(self.chunk) * self.dtype.itemsize
        self._most_bytes = most_bytes(chunk_bytes) + 2 * BLOCK_BYTES
        self.decoded_bytes = chunk_bytes + self._most_bytes
        self.at_once = READERS
        self.dims: tuple[str, ...] = ()
        self.coords: Coords = {}

    def read(self, box: Box) -> NDArray[Any]:
        """The values of a box, which are valid until the next call of the same thread."""
        values = self._room(prod(map(len, box))).reshape([*map(len, box)])
        numbers = (
            range(cells.start // n, -(-cells.stop // n))
            for cells, n in zip(box, self.chunk, strict=True)
        )
        for index in product(*numbers):
            here, there = list[slice](), list[slice]()
            for k, n, cells in zip(index, self.chunk, box, strict=True):
                first, last = max(k * n, cells.start), min((k + 1) * n, cells.stop)
                here.append(slice(first - cells.start, last - cells.start))
                there.append(slice(first - k * n, last - k * n))
            values[tuple(here)] = self._whole(index)[tuple(there)]
        return values

    def close(self) -> None:
        """Nothing is open."""

    def _whole(self, index: tuple[int, ...]) -> NDArray[Any]:
        """A chunk, read past the page cache in whole blocks."""
        mine = self._local
        if not hasattr(mine, "whole"):
            mine.whole, mine.content = np.empty(self.chunk, self.dtype), memory_of(self._most_bytes)
        path, offset, nbytes = self._sink.place(index)
        begin = offset // BLOCK_BYTES * BLOCK_BYTES
        end = -(-(offset + nbytes) // BLOCK_BYTES) * BLOCK_BYTES
        with reading(path):
            file = opened_direct(path, os.O_RDONLY)
            try:
                count = os.preadv(file, [mine.content[: end - begin].data], begin)
            finally:
                os.close(file)
        content = mine.content[offset - begin :][:nbytes]
        if count < offset - begin + nbytes:
            raise StoreError("the file ends inside a chunk", path=path, offset=offset)
        with decoding(path):
            self._decode(content, mine.whole)
        return mine.whole

    def _room(self, cells: int) -> NDArray[Any]:
        room: NDArray[Any] | None = getattr(self._local, "room", None)
        if room is None or room.size < cells:
            self._local.room = room = np.empty(cells, self.dtype)
        return room[:cells]
