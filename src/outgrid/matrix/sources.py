"""Three ways to get a chunk of a file into memory: mapped, by system calls, past the page cache."""

from __future__ import annotations

import mmap
import os
from collections import deque
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import StoreError, UsageError, file_errors
from outgrid.matrix.chunks import Chunk, Part
from outgrid.native import BLOCK_BYTES, Buffer, File, as_array
from outgrid.regular import check_given, given, read_fully
from outgrid.storage.transfers import Transfers
from outgrid.units import suggest

__all__ = ["SOURCES", "Source", "chunk_memory", "congruent", "open_source"]

Bytes = NDArray[np.uint8]

IN_USE = 2  # chunks: one that is multiplied, and the one after it


class Source(Protocol):
    """Reads chunks of one file, from one thread at a time."""

    def read(self, chunk: Chunk, into: Bytes) -> NDArray[Any]:
        """The bytes of `chunk`: in `into`, or where the source has them anyway."""
        ...

    def start(self, chunk: Chunk) -> None:
        """Say that `chunk` will be read next."""
        ...

    def close(self) -> None: ...


class MappedSource:
    """The file as memory: the product itself causes the pages to be read, without a copy."""

    def __init__(self, part: Part) -> None:
        with open(part.path, "rb", opener=given) as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._descriptor = os.dup(file.fileno())
        self._map.madvise(mmap.MADV_SEQUENTIAL)
        self._used: deque[Chunk] = deque()

    def read(self, chunk: Chunk, into: Bytes) -> NDArray[Any]:
        self._used.append(chunk)
        while len(self._used) > IN_USE:
            self._forget(self._used.popleft())
        return np.frombuffer(self._map, np.uint8, chunk.nbytes, chunk.offset)

    def start(self, chunk: Chunk) -> None:
        begin = chunk.offset // mmap.PAGESIZE * mmap.PAGESIZE
        self._map.madvise(mmap.MADV_WILLNEED, begin, chunk.offset + chunk.nbytes - begin)

    def _forget(self, chunk: Chunk) -> None:
        """Pages that were read count as memory of the process until they are given up."""
        begin = -(-chunk.offset // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (chunk.offset + chunk.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if end > begin:
            self._map.madvise(mmap.MADV_DONTNEED, begin, end - begin)
            os.posix_fadvise(self._descriptor, begin, end - begin, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        os.close(self._descriptor)


class PreadSource:
    """System calls through the page cache, which is told to forget what was read."""

    def __init__(self, part: Part) -> None:
        self._path = part.path
        self._descriptor = given(part.path, os.O_RDONLY)

    def read(self, chunk: Chunk, into: Bytes) -> NDArray[Any]:
        read_fully(self._descriptor, into[: chunk.nbytes].data, chunk.offset, self._path)
        os.posix_fadvise(self._descriptor, chunk.offset, chunk.nbytes, os.POSIX_FADV_DONTNEED)
        return into

    def start(self, chunk: Chunk) -> None:
        """The call itself waits for what it reads."""

    def close(self) -> None:
        os.close(self._descriptor)


class DirectSource:
    """The queue of the runs: requests in flight, past the page cache, to all parts at once."""

    def __init__(self, part: Part) -> None:
        files = [_opened(path) for path in part.paths]
        self._file = files[0] if len(files) == 1 else File.striped(files, part.stripe_bytes)
        self._transfers = Transfers()

    def read(self, chunk: Chunk, into: Bytes) -> NDArray[Any]:
        segment = np.array([[chunk.offset, into.ctypes.data, chunk.nbytes]], np.int64)
        self._transfers.read(self._file, segment, into)
        self._transfers.drain()
        return into

    def start(self, chunk: Chunk) -> None:
        """Nothing reads ahead of its own accord here."""

    def close(self) -> None:
        self._transfers.close()
        self._file.close()


def _opened(path: Path) -> File:
    check_given(path)
    try:
        return File(path, "r")
    except OSError as error:
        raise StoreError("cannot open", path=path, errno=error.errno) from error


SOURCES: dict[str, type[MappedSource] | type[PreadSource] | type[DirectSource]] = {
    "direct": DirectSource,
    "pread": PreadSource,
    "mmap": MappedSource,
}


def open_source(method: str, part: Part) -> Source:
    """Raises UsageError for a method that is unknown or reads no stripes, StoreError where a file
    cannot be opened."""
    if method not in SOURCES:
        known = ", ".join(SOURCES)
        raise UsageError(
            f"unknown method {method!r} to read{suggest(method, SOURCES)}; known: {known}"
        )
    if part.stripe_bytes and method != "direct":
        raise UsageError(f"a matrix in stripes needs method 'direct', not {method!r}")
    with file_errors("cannot open", part.path):
        return SOURCES[method](part)


def chunk_memory(nbytes: int) -> Bytes:
    """Memory for a chunk of up to `nbytes`, with room to begin like it within a block.

    It is touched here: getting a page from the system takes longer than reading one.
    """
    memory = as_array(Buffer(nbytes + BLOCK_BYTES), np.uint8)
    memory[:: mmap.PAGESIZE] = 0
    return memory


def congruent(memory: Bytes, chunk: Chunk) -> Bytes:
    """The part of `memory` that lies in its block as `chunk` lies in the file: no byte is copied
    on its way."""
    begin = (chunk.offset - memory.ctypes.data) % BLOCK_BYTES
    return memory[begin : begin + chunk.nbytes]
