"""Products of a matrix in files with vectors in memory: read, then multiply, both at once."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.comm.base import Comm
from outgrid.comm.serial import Serial
from outgrid.errors import InfeasiblePlan, UsageError
from outgrid.matrix.chunks import Chunk, cut, open_parts, open_striped
from outgrid.matrix.onto import Upload
from outgrid.matrix.sources import Bytes, Source, chunk_memory, congruent, open_source
from outgrid.matrix.stages import Event, ahead, applied, in_turns
from outgrid.units import format_bytes

__all__ = ["DEFAULT_CHUNK_BYTES", "StreamedMatrix"]

DEFAULT_CHUNK_BYTES = 64 << 20
BUFFERS = 2  # one is read into while the other is multiplied
QUEUE_BYTES = 8 << 20  # of a file's transfers, for ragged ends
CONVERTED_BYTES = 4 << 20  # of a chunk at a time, where its type is not that of the vector

Array = NDArray[Any]
Copy = Callable[["Block"], "Block"]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Rows of the matrix in memory, of shape (len(rows), columns)."""

    rows: range
    values: Array


class StreamedMatrix:
    """A dense matrix in .npy files, of whose rows never more than `memory_bytes` are in memory.

    Chunks of at most `chunk_bytes` are read by `method` ("direct", "pread", "mmap") and multiplied
    by NumPy's BLAS, with `overlap` at the same time. Several paths hold rows that follow each
    other, and are read at once; with `stripe_bytes` they hold one file together, in stripes. Of
    several ranks of `comm` each reads and multiplies a part of the chunks, and has all of the
    product. Memory that two chunks of each file leave over keeps the first rows
    from one product to the next. `events`, where it is given, gets what each stage did. `copies`
    are stages between reading and multiplying, functions that return the same rows in another
    memory; each takes its own two buffers in turns. With `onto` rows are multiplied on its device,
    and nothing is kept from one product to the next.

    Products come in one order of summation whatever the speed of the disk: the same bits each time,
    for one chunk size. Those of the transpose are summed over ranks in their order, and have the
    same bits for as many ranks.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        memory_bytes: int,
        *,
        method: str = "direct",
        chunk_bytes: int = DEFAULT_CHUNK_BYTES,
        overlap: bool = True,
        stripe_bytes: int = 0,
        comm: Comm | None = None,
        copies: Sequence[Copy] = (),
        onto: Upload | None = None,
        events: list[Event] | None = None,
    ) -> None:
        """Raises UsageError for files that are no matrix, InfeasiblePlan where two rows of each
        file are more than the memory limit, StoreError where a file cannot be read."""
        self._parts = (open_striped(paths, stripe_bytes),) if stripe_bytes else open_parts(paths)
        first = self._parts[0]
        self.dtype: np.dtype[Any] = first.dtype
        self._stored = (sum(part.shape[0] for part in self._parts), first.shape[1])
        self._transposed = first.transposed
        self._memory_bytes = memory_bytes
        self._overlap, self._events, self._onto = overlap, events, onto
        self._copies = tuple(copies) if onto is None else (*copies, self._upload)
        self._comm = comm or Serial()
        room = self._room(memory_bytes)
        self.chunk_bytes = max(first.row_bytes, min(chunk_bytes, room))
        self._chunks = mine(
            [cut(part, self.chunk_bytes) for part in self._parts], self._comm.rank, self._comm.size
        )
        if onto is not None:
            onto.expect(max((chunks[0].nbytes for chunks in self._chunks if chunks), default=0))
        self._sources = [open_source(method, part) for part in self._parts]
        weakref.finalize(self, _close, self._sources)
        self._in_place = method == "mmap"  # the product reads the file's own pages
        self._buffers = [self._memory_of(chunks) for chunks in self._chunks]
        self._kept: dict[Chunk, Array] = {}
        self._to_keep = self._choose_kept()

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        rows, columns = self._stored
        return (columns, rows) if self._transposed else (rows, columns)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._stored[0] * self._stored[1] * self.dtype.itemsize

    @property
    def kept_bytes(self) -> int:
        """Of those, what stays in memory between products."""
        return sum(chunk.nbytes for chunk in self._to_keep)

    def matmat(self, right: Array) -> Array:
        """The matrix times `right`, of shape (columns,) or (columns, n), read once for all n."""
        return self._product(right, self._transposed)

    def rmatmat(self, right: Array) -> Array:
        """The conjugate transpose of the matrix times `right`, of shape (rows,) or (rows, n)."""
        if self.dtype.kind == "c":
            return self._product(right.conj(), not self._transposed).conj()
        return self._product(right, not self._transposed)

    def _product(self, right: Array, by_columns: bool) -> Array:
        rows, columns = self._stored
        inner, outer = (rows, columns) if by_columns else (columns, rows)
        if right.shape[:1] != (inner,):
            raise UsageError(
                f"a matrix of shape {self.shape} times an array of shape {right.shape}: the first "
                f"axis must be {inner}"
            )
        dtype = np.result_type(self.dtype, right.dtype)
        onto, arrays = self._onto, np if self._onto is None else self._onto.arrays
        right = right.astype(dtype, copy=False)
        factor = right if onto is None else onto.bring(right)
        result = arrays.zeros((outer, *right.shape[1:]), dtype)

        def multiply(block: Block) -> range:
            for values, rows in _converted(block, dtype):
                if by_columns:
                    arrays.add(result, values.T @ factor[rows.start : rows.stop], out=result)
                else:
                    arrays.matmul(values, factor, out=result[rows.start : rows.stop])
            if onto is not None:
                onto.finish()
            return block.rows

        for _ in applied("multiply", multiply, self._blocks(), self._events):
            pass
        return self._joined(result if onto is None else onto.fetch(result), by_columns)

    def _joined(self, result: Array, by_columns: bool) -> Array:
        """What all ranks made of a product."""
        if self._comm.size == 1:
            return result
        if by_columns:
            return reduce(np.add, self._comm.share(result))
        rows = [chunk.rows for chunks in self._chunks for chunk in chunks]
        for parts in self._comm.share([(part, result[part.start : part.stop]) for part in rows]):
            for part, values in parts:
                result[part.start : part.stop] = values
        return result

    def _upload(self, block: Block) -> Block:
        return block if self._onto is None else Block(block.rows, self._onto.copy(block.values))

    def _blocks(self) -> Generator[Block]:
        """All rows, file by file in turns; copies are made of what all files give."""
        streams = [self._stream(index) for index in range(len(self._parts))]
        blocks = in_turns(streams) if len(streams) > 1 else streams[0]
        for copy in self._copies:
            blocks = applied(copy.__name__.lstrip("_"), copy, blocks, self._events)
            if self._overlap:
                blocks = ahead(blocks, BUFFERS)
        return blocks

    def _stream(self, index: int) -> Generator[Block]:
        name = f"read {index + 1}" if len(self._parts) > 1 else "read"
        read, numbers = partial(self._read, index), range(len(self._chunks[index]))
        blocks = applied(name, read, (number for number in numbers), self._events)
        return ahead(blocks, BUFFERS) if self._overlap else blocks

    def _read(self, index: int, number: int) -> Block:
        part, source, chunks = self._parts[index], self._sources[index], self._chunks[index]
        chunk = chunks[number]
        values = self._kept.get(chunk)
        if values is None:
            memory = source.read(chunk, self._memory_for(index, number, chunk))
            values = memory.view(part.dtype).reshape(-1, part.shape[1])
            if chunk in self._to_keep:
                self._kept[chunk] = values
        if self._overlap and number + 1 < len(chunks):
            source.start(chunks[number + 1])
        return Block(chunk.rows, values)

    def _memory_for(self, index: int, number: int, chunk: Chunk) -> Bytes:
        if self._in_place:
            return np.empty(0, np.uint8)
        if chunk in self._to_keep:
            return congruent(chunk_memory(chunk.nbytes), chunk)
        return congruent(self._buffers[index][number % BUFFERS], chunk)

    def _memory_of(self, chunks: Sequence[Chunk]) -> list[Bytes]:
        if self._in_place or not chunks:
            return []
        count = min(BUFFERS, len(chunks))
        take = chunk_memory if self._onto is None else self._onto.memory
        return [take(chunks[0].nbytes) for _ in range(count)]

    def _room(self, memory_bytes: int) -> int:
        """What one chunk may take, so that the chunks under way of all files fit the limit."""
        files, row = len(self._parts), self._parts[0].row_bytes
        under_way = BUFFERS * (files + len(self._copies))
        room = (memory_bytes - files * QUEUE_BYTES) // under_way
        if room < row:
            needed = under_way * row + files * QUEUE_BYTES
            raise InfeasiblePlan(
                f"{format_bytes(memory_bytes)} are too small for two rows of each of {files} "
                f"files, which need {format_bytes(needed)}"
            )
        return room

    def _choose_kept(self) -> frozenset[Chunk]:
        """The first chunks of each file, in turns, as far as the limit allows."""
        if self._in_place or self._onto is not None:
            return frozenset()
        taken = sum(memory.nbytes for memories in self._buffers for memory in memories)
        left = self._memory_bytes - taken - len(self._parts) * QUEUE_BYTES
        kept: list[Chunk] = []
        longest = max(map(len, self._chunks))
        for number in range(longest):
            for chunks in self._chunks:
                if number < len(chunks) and chunks[number].nbytes + 2 * 4096 <= left:
                    kept.append(chunks[number])
                    left -= chunks[number].nbytes + 2 * 4096
        return frozenset(kept)


def mine(files: Sequence[tuple[Chunk, ...]], rank: int, size: int) -> list[tuple[Chunk, ...]]:
    """The chunks of one of so many ranks: as many bytes for all, one behind the other, so that of
    as many files as ranks each has its own."""
    total, done = sum(chunk.nbytes for chunks in files for chunk in chunks), 0
    left: list[tuple[Chunk, ...]] = []
    for chunks in files:
        kept: list[Chunk] = []
        for chunk in chunks:
            if (2 * done + chunk.nbytes) * size // (2 * total) == rank:
                kept.append(chunk)
            done += chunk.nbytes
        left.append(tuple(kept))
    return left


def _converted(block: Block, dtype: np.dtype[Any]) -> Generator[tuple[Array, range]]:
    """The block as `dtype`; where that is another type, few rows at a time, to save memory."""
    if block.values.dtype == dtype:
        yield block.values, block.rows
        return
    step = max(1, CONVERTED_BYTES // max(1, block.values.shape[1] * dtype.itemsize))
    for start in range(0, len(block.rows), step):
        yield block.values[start : start + step].astype(dtype), block.rows[start : start + step]


def _close(sources: Sequence[Source]) -> None:
    for source in sources:
        source.close()
