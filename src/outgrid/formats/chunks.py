"""Chunks of a Zarr array that is written: encoded by many threads, and stored past the page cache.

    ARRAY/c/0/0/0    a shard: chunks in the order in which they were encoded | their index | crc32c
    ARRAY/c/0/0/1    ...

zarr-python makes the array; to write it as well takes it several times as long. Each thread
encodes chunks one behind the other in memory of its own, claims room for them in the file, and
writes them there, past the page cache, which would cost several times as much. Where no shards are
wanted each chunk is a file, written in the same way.
"""

import errno
import fcntl
import mmap
import os
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import product
from math import prod
from pathlib import Path
from threading import Lock, local
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from outgrid.durable import make_folder
from outgrid.formats.codecs import Encode, most_bytes
from outgrid.formats.shard import ABSENT, index_of
from outgrid.formats.source import Box, boxes, writing
from outgrid.units import BLOCK_BYTES

__all__ = ["Chunks", "encoded_bytes", "memory_of", "opened_direct", "shard_of"]

SHARD_BYTES = 256 << 20
PIECE_BYTES = 8 << 20  # that are written at once, or less, so that
PIECES_OF_MEMORY = 32  # fit into the memory
LARGE_PAGE_BYTES = 2 << 20

_Index = tuple[int, ...]


def shard_of(shape: tuple[int, ...], chunk: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Cells of a shard: whole chunks of at most `SHARD_BYTES`, or one, the last axes first."""
    pairs = zip(shape, chunk, strict=True)
    whole = [range(-(-max(1, extent) // cells) * cells) for extent, cells in pairs]
    most = max(prod(chunk), SHARD_BYTES // itemsize)
    return tuple(map(len, next(boxes(whole, chunk, most))))


def encoded_bytes(chunk_bytes: int, memory_bytes: int) -> int:
    """Memory of a thread: a chunk, what a codec makes of it, what is written and will be."""
    return chunk_bytes + most_bytes(chunk_bytes) + 2 * _piece_bytes(chunk_bytes, memory_bytes)


def _piece_bytes(chunk_bytes: int, memory_bytes: int) -> int:
    return max(most_bytes(chunk_bytes), min(PIECE_BYTES, memory_bytes // PIECES_OF_MEMORY))


class _File(msgspec.Struct):
    """A file being written: where its chunks are, how many are not there yet, where it ends.

    `claimed` are its bytes in whole blocks, of which the last one may be used in part.
    """

    at: _Index
    path: Path
    descriptor: int
    chunks: NDArray[np.uint64]
    missing: int
    claimed: int = 0
    end: int = 0


class _Worker(msgspec.Struct):
    """The memory of a thread: one chunk, and those that it has encoded for a file.

    `begun` are their numbers in the file, and the bytes of the memory that are theirs. The `other`
    memory is what is being written meanwhile.
    """

    whole: NDArray[Any]
    memory: NDArray[np.uint8]
    file: _File | None = None
    used: int = 0
    begun: list[tuple[int, int, int]] = msgspec.field(default_factory=list[tuple[int, int, int]])
    other: NDArray[np.uint8] | None = None
    writing: Future[None] | None = None


class Chunks:
    """The sink of an array in chunks of some cells each, in shards or in a file for each."""

    def __init__(
        self,
        folder: Path,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        chunk: tuple[int, ...],
        shard: tuple[int, ...] | None,
        encode: Encode,
        memory_bytes: int,
    ) -> None:
        self.folder, self.shape, self.dtype, self.chunk = folder, shape, dtype, chunk
        self.encode = encode
        self.offset: int | None = None
        self.at_once = len(os.sched_getaffinity(0)) + 1  # one may wait for a disk
        self._count = tuple(-(-n // cells) for n, cells in zip(shape, chunk, strict=True))
        self._together = tuple(n // cells for n, cells in zip(shard or chunk, chunk, strict=True))
        self._indexed = shard is not None
        chunk_bytes = prod(chunk) * dtype.itemsize
        self._most_bytes = most_bytes(chunk_bytes)
        self._piece_bytes = _piece_bytes(chunk_bytes, memory_bytes)
        self.encoded_bytes = encoded_bytes(chunk_bytes, memory_bytes)
        self._lock, self._local = Lock(), local()
        self._workers: list[_Worker] = []
        self._files: dict[_Index, _File] = {}
        self._indices: dict[_Index, NDArray[np.uint64]] = {}
        self._writers = ThreadPoolExecutor(self.at_once, "outgrid-write")

    def write(self, box: Box, values: NDArray[Any]) -> None:
        """Encode the values of a box of whole chunks, those at the end of an axis padded with 0.

        They are in the file when others of this thread follow, or with `finish`.
        """
        worker = self._worker()
        numbers = (
            range(cells.start // extent, -(-cells.stop // extent))
            for cells, extent in zip(box, self.chunk, strict=True)
        )
        for index in product(*numbers):
            first = [
                k * n - cells.start for k, n, cells in zip(index, self.chunk, box, strict=True)
            ]
            part = values[tuple(slice(at, at + n) for at, n in zip(first, self.chunk, strict=True))]
            whole = part
            if not self._is_whole(part):
                whole = worker.whole
                if part.shape != self.chunk:
                    whole[...] = 0
                _copy_rows(whole[tuple(map(slice, part.shape))], part)
            self._encode(worker, index, whole)

    def _is_whole(self, part: NDArray[Any]) -> bool:
        """Whether a codec can take a chunk from where it lies."""
        whole = part.shape == self.chunk and part.dtype == self.dtype
        return whole and part.flags.c_contiguous

    def finish(self) -> None:
        """Write what is left, and the index of each shard. Raises StoreError."""
        for worker in self._workers:
            self._flush(worker)
        for worker in self._workers:
            _ended(worker)
        self._workers.clear()
        self._local = local()
        for file in [*self._files.values()]:
            self._complete(file)

    def close(self) -> None:
        """Let go of files that are not complete."""
        self._writers.shutdown()
        while self._files:
            os.close(self._files.popitem()[1].descriptor)

    def _worker(self) -> _Worker:
        worker: _Worker | None = getattr(self._local, "worker", None)
        if worker is None:
            worker = _Worker(np.empty(self.chunk, self.dtype), memory_of(self._piece_bytes))
            self._local.worker = worker
            with self._lock:
                self._workers.append(worker)
        return worker

    def _encode(self, worker: _Worker, index: _Index, whole: NDArray[Any]) -> None:
        """Encode a chunk for its file; those before it are written if there is no room."""
        at, number = self._within(index)
        file = self._file(at)
        if worker.file is not file or worker.used + self._most_bytes > worker.memory.size:
            self._flush(worker)
            worker.file = file
        count = self.encode(whole, worker.memory[worker.used :])
        worker.begun.append((number, worker.used, count))
        worker.used += count

    def place(self, index: _Index) -> tuple[Path, int, int]:
        """Where a chunk is that was written: its file, its first byte there, its bytes."""
        at, number = self._within(index)
        path = self._path(at)
        if not self._indexed:
            with writing(path):
                return path, 0, path.stat().st_size
        offset, nbytes = self._indices[at][number]
        return path, int(offset), int(nbytes)

    def _within(self, index: _Index) -> tuple[_Index, int]:
        """The file of a chunk, by its place in the grid of shards, and its number there."""
        number = 0
        for k, n in zip(index, self._together, strict=True):
            number = number * n + k % n
        return tuple(k // n for k, n in zip(index, self._together, strict=True)), number

    def _path(self, at: _Index) -> Path:
        return self.folder / "c" / "/".join(map(str, at))

    def _file(self, at: _Index) -> _File:
        """The file at a place of the grid of shards; it is made where it is new."""
        with self._lock:
            file = self._files.get(at)
            if file is None:
                path = self._path(at)
                make_folder(path.parent)
                chunks = np.full((prod(self._together), 2), ABSENT, np.uint64)
                missing = prod(
                    min(n, count - k * n)
                    for k, n, count in zip(at, self._together, self._count, strict=True)
                )
                with writing(path):
                    descriptor = opened_direct(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                file = self._files[at] = _File(at, path, descriptor, chunks, missing)
            return file

    def _flush(self, worker: _Worker) -> None:
        """Begin to write what a thread has of a file, when what it wrote before is there."""
        _ended(worker)
        if worker.file is None or not worker.used:
            return
        memory, used, begun = worker.memory, worker.used, [*worker.begun]
        worker.writing = self._writers.submit(self._store, worker.file, memory, used, begun)
        other = worker.other if worker.other is not None else memory_of(self._piece_bytes)
        worker.memory, worker.other = other, memory
        worker.file, worker.used = None, 0
        worker.begun.clear()

    def _store(
        self, file: _File, memory: NDArray[np.uint8], used: int, begun: list[tuple[int, int, int]]
    ) -> None:
        """Write encoded chunks to a file, and complete it if nothing else is missing."""
        blocks = _whole_blocks(used)
        with self._lock:
            at, file.claimed = file.claimed, file.claimed + blocks
        with writing(file.path):
            left, end = memory.data[:blocks], at
            while left:
                count = os.pwrite(file.descriptor, left, end)
                left, end = left[count:], end + count
        with self._lock:
            file.end = max(file.end, at + used)
            for number, begin, nbytes in begun:
                file.chunks[number] = at + begin, nbytes
            file.missing -= len(begun)
            complete = file.missing == 0
        if complete:
            self._complete(file)

    def _complete(self, file: _File) -> None:
        """Cut a file off where it ends, and write its index there."""
        with self._lock:
            del self._files[file.at]
        with writing(file.path):
            try:
                flags = fcntl.fcntl(file.descriptor, fcntl.F_GETFL)
                fcntl.fcntl(file.descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
                os.ftruncate(file.descriptor, file.end)
                if self._indexed:
                    os.pwrite(file.descriptor, index_of(file.chunks), file.end)
                    self._indices[file.at] = file.chunks
            finally:
                os.close(file.descriptor)


def _ended(worker: _Worker) -> None:
    """Wait until what a thread has begun to write is there. Raises StoreError."""
    if worker.writing is not None:
        worker.writing.result()
        worker.writing = None


def opened_direct(path: Path, flags: int) -> int:
    """A file that is moved past the page cache, where its file system can do that."""
    try:
        return os.open(path, flags | os.O_CLOEXEC | os.O_DIRECT, 0o666)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return os.open(path, flags | os.O_CLOEXEC, 0o666)


def _copy_rows(to: NDArray[Any], of: NDArray[Any]) -> None:
    """Copy numbers of rows that lie in one piece each, as bytes where none is to be converted."""
    if to.dtype == of.dtype and to.strides[-1] == of.strides[-1] == of.itemsize:
        row = np.dtype((np.void, of.shape[-1] * of.itemsize))
        to, of = to.view(row), of.view(row)
    to[...] = of


def memory_of(nbytes: int) -> NDArray[np.uint8]:
    """Memory of whole blocks that begins at a large page, of which it is made where there are any.

    It is of this process alone: memory that could be shared is made of small pages.
    """
    nbytes = _whole_blocks(nbytes)
    made = mmap.mmap(-1, nbytes + LARGE_PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    made.madvise(mmap.MADV_HUGEPAGE)
    room = np.frombuffer(made, np.uint8)
    return room[-room.ctypes.data % LARGE_PAGE_BYTES :][:nbytes]


def _whole_blocks(nbytes: int) -> int:
    return -(-nbytes // BLOCK_BYTES) * BLOCK_BYTES
