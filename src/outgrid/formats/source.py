"""What every format gives: an array that is read a box of cells at a time."""

import gzip
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import product
from math import prod
from pathlib import Path
from threading import local
from typing import Any, BinaryIO, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import Error, StoreError, file_errors
from outgrid.regular import given, read_fully
from outgrid.units import format_bytes

__all__ = [
    "Ahead",
    "Box",
    "Coords",
    "Gzipped",
    "Sliced",
    "Source",
    "Straight",
    "View",
    "boxes",
    "cell_of",
    "decoding",
    "encoding",
    "reading",
    "slices",
    "spans",
    "whole_axes",
    "writing",
]

Box = tuple[range, ...]
"""Cells of an array: a range of step 1 for each axis."""

Coords = Mapping[str, NDArray[Any]]

READERS = 8  # of a file whose numbers lie one behind the other


class Source(Protocol):
    """An array in a file, of any size.

    `chunk` is what is read and decoded together: boxes that begin and end at multiples of it read
    nothing twice. `dims` are the names of its axes, if the file says them, and `coords` where cells
    lie along some of them: numbers of shape (extent,), by name. `at_once` threads may read.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """What `read` gives, in any order of bytes."""
        ...

    @property
    def chunk(self) -> tuple[int, ...]:
        """Cells that are decoded together, along each axis."""
        ...

    @property
    def decoded_bytes(self) -> int:
        """Memory that decoding takes, beside what `read` gives; 0 where nothing is decoded."""
        ...

    @property
    def at_once(self) -> int:
        """Boxes that may be read at once, by several threads; 1 where order matters."""
        ...

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes, or nothing."""
        ...

    @property
    def coords(self) -> Coords:
        """Where cells lie along axes, by their names; those that the file tells."""
        ...

    def read(self, box: Box) -> NDArray[Any]:
        """The values of a box, which are valid until the next call of the same thread.

        Raises StoreError where bytes are missing or cannot be read or decoded.
        """
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


@runtime_checkable
class Ahead(Protocol):
    """A source that reads a box while the one before it is in use."""

    def begin(self, box: Box) -> None:
        """Begin to read the box that this thread asks for next."""
        ...


@dataclass(slots=True)
class Straight:
    """Numbers that lie one behind the other in a file, `offset` bytes into it, the last axis first.

    Where other things lie between them, `pitch_bytes` are from one index of the first axis to the
    next. What was read does not stay in the page cache.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    dims: tuple[str, ...] = ()
    pitch_bytes: int = 0
    coords: Coords = field(default_factory=dict[str, NDArray[Any]])
    _descriptor: int = field(init=False)
    _memory: local = field(init=False, default_factory=local)

    def __post_init__(self) -> None:
        if min((self.offset, *self.shape)) < 0:
            raise StoreError(
                f"its header gives shape {self.shape} from byte {self.offset} on; they must be at "
                "least 0",
                path=self.path,
            )
        with reading(self.path):
            self._descriptor = given(self.path, os.O_RDONLY)
        try:
            self._check_size()
            with reading(self.path):  # the system reads ahead of who has begun at the first byte
                os.pread(self._descriptor, 1, 0)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _check_size(self) -> None:
        """Raise StoreError where the file ends before the numbers do."""
        row = prod(self.shape[1:]) * self.dtype.itemsize
        pitch = self.pitch_bytes or row
        planes = prod(self.shape[:1])
        expected = self.offset + (planes - 1) * pitch + row if prod(self.shape) else 0
        with reading(self.path):
            size = os.fstat(self._descriptor).st_size
        if size < expected:
            raise StoreError(
                f"its data must end at byte {expected}, but the file has {size}", path=self.path
            )

    @property
    def chunk(self) -> tuple[int, ...]:
        """Nothing is decoded; rows are read at once."""
        return whole_axes(self.shape, 1)

    @property
    def decoded_bytes(self) -> int:
        """Nothing is decoded."""
        return 0

    @property
    def at_once(self) -> int:
        """Each thread has memory of its own."""
        return READERS

    def read(self, box: Box) -> NDArray[Any]:
        """The values of a box, by one read for each piece of the file that it is made of."""
        extents = tuple(map(len, box))
        values = self._room(prod(extents)).reshape(extents)
        for offset, index in self.pieces(box):
            self._fill(values[(*index, ...)], offset)  # of one number too, a view
        return values

    def pieces(self, box: Box) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The first byte of each piece of the file that a box is made of, and its index there."""
        itemsize = self.dtype.itemsize
        apart = self.pitch_bytes - prod(self.shape[1:]) * itemsize if self.pitch_bytes else 0
        for position, index in spans(self.shape, box, 1 if apart else 0):
            plane = box[0].start + (index[0] if index else 0)
            yield self.offset + position * itemsize + plane * apart, index

    def _fill(self, piece: NDArray[Any], offset: int) -> None:
        with reading(self.path):
            read_fully(self._descriptor, piece.reshape(-1).view(np.uint8), offset, self.path)
            os.posix_fadvise(self._descriptor, offset, piece.nbytes, os.POSIX_FADV_DONTNEED)

    def _room(self, cells: int) -> NDArray[Any]:
        """Memory of this thread for so many values."""
        room: NDArray[Any] | None = getattr(self._memory, "room", None)
        if room is None or room.size < cells:
            try:
                self._memory.room = room = np.empty(cells, self.dtype)
            except MemoryError as error:
                nbytes = format_bytes(cells * self.dtype.itemsize)
                raise StoreError(f"cannot allocate {nbytes} for it", path=self.path) from error
        return room[:cells]

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


class Gzipped(Straight):
    """The same in a file that is compressed as a whole: boxes are best read in order.

    To go back is to decompress it from its start.
    """

    _file: BinaryIO | None = None
    _stream: gzip.GzipFile | None = None

    def _check_size(self) -> None:
        """How much a file holds is seen when it is decompressed."""

    @property
    def chunk(self) -> tuple[int, ...]:
        """Planes, so that boxes follow one another in the file."""
        return whole_axes(self.shape, 2)

    @property
    def at_once(self) -> int:
        """In order."""
        return 1

    def _fill(self, piece: NDArray[Any], offset: int) -> None:
        with decoding(self.path):
            stream = self._stream
            if stream is None:
                self._file = os.fdopen(self._descriptor, "rb", closefd=False)
                self._stream = stream = gzip.GzipFile(fileobj=self._file)
            stream.seek(offset)
            memory, done = piece.data.cast("B"), 0
            while done < len(memory):
                count = stream.readinto(memory[done:])
                if not count:
                    raise StoreError("the file ends before its data", path=self.path)
                done += count
            if offset + done == self.offset + prod(self.shape) * self.dtype.itemsize:
                while stream.read(len(memory)):  # its sum stands behind all of it
                    pass

    def close(self) -> None:
        """Close the file."""
        for file in (self._stream, self._file):
            if file is not None:
                file.close()
        super().close()


@dataclass(slots=True)
class Sliced:
    """An array of a library that is read by slices: `array[z0:z1, y0:y1, x0:x1]` gives NumPy's.

    `closing` lets go of what it belongs to.
    """

    path: Path
    array: Any
    chunk: tuple[int, ...]
    closing: Callable[[], object]
    dims: tuple[str, ...] = ()
    coords: Coords = field(default_factory=dict[str, NDArray[Any]])

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents."""
        return tuple(map(int, self.array.shape))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its type of numbers."""
        return np.dtype(self.array.dtype)

    @property
    def decoded_bytes(self) -> int:
        """Bytes of a chunk."""
        return prod(self.chunk) * self.dtype.itemsize

    @property
    def at_once(self) -> int:
        """Not all libraries may be called by several threads."""
        return 1

    def read(self, box: Box) -> NDArray[Any]:
        """The values of a box, decoded by the library."""
        with decoding(self.path):
            return np.asarray(self.array[slices(box)])

    def close(self) -> None:
        """Close the file."""
        self.array = None
        self.closing()


class View:
    """Another way to see a source: all that the source says of itself, but what a view changes."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents."""
        return self.source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """What `read` gives."""
        return self.source.dtype

    @property
    def chunk(self) -> tuple[int, ...]:
        """Cells that are decoded together, along each axis."""
        return self.source.chunk

    @property
    def decoded_bytes(self) -> int:
        """Memory to decode a chunk of the file."""
        return self.source.decoded_bytes

    @property
    def at_once(self) -> int:
        """Boxes that may be read at once."""
        return self.source.at_once

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes, or nothing."""
        return self.source.dims

    @property
    def coords(self) -> Coords:
        """Where cells lie along axes, by their names."""
        return self.source.coords

    def close(self) -> None:
        """Let go of the file."""
        self.source.close()


def whole_axes(shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    """A chunk that has the last `count` axes whole, and one index of each of the others."""
    return (*(1 for _ in shape[:-count]), *shape[-count:])


def spans(
    shape: tuple[int, ...], box: Box, least: int = 0
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The runs of cells that a box is made of, where cells lie one behind the other.

    These are the number of the first cell and the index of the run within the box: of the first
    axes, `least` of them or more.
    """
    whole = len(box)  # axes from this one on are whole
    while whole and len(box[whole - 1]) == shape[whole - 1]:
        whole -= 1
    apart = max(whole - 1, least)
    strides = [prod(shape[axis + 1 :]) for axis in range(len(box))]
    first = sum(cells.start * stride for cells, stride in zip(box, strides, strict=True))
    for index in np.ndindex(*map(len, box[:apart])):
        yield first + sum(k * stride for k, stride in zip(index, strides, strict=False)), index


def slices(box: Box) -> tuple[slice, ...]:
    """A box as what arrays are indexed with."""
    return tuple(slice(cells.start, cells.stop) for cells in box)


def cell_of(found: NDArray[np.bool_], box: Box) -> tuple[int, ...]:
    """The first cell of a box of which something was found; it must be of one."""
    inside = np.unravel_index(int(found.argmax()), found.shape)
    return tuple(cells.start + int(k) for k, cells in zip(inside, box, strict=True))


def boxes(axes: Sequence[range], chunk: Sequence[int], cells: int) -> Iterator[Box]:
    """Boxes of at most so many cells that cover some axes, in order.

    They end at multiples of a `chunk`, as far as a chunk has no more than `cells`.
    """
    if not all(axes):
        return
    steps = [min(length, len(axis)) for length, axis in zip(chunk, axes, strict=True)]
    for k in range(len(steps)):
        if prod(steps) > cells:
            steps[k] = max(1, cells // prod(steps[k + 1 :]))
    for k in reversed(range(len(steps))):
        others = prod(steps) // steps[k]
        steps[k] = min(len(axes[k]), max(1, cells // others // steps[k]) * steps[k])
        if steps[k] < len(axes[k]):
            break
    yield from product(*(_cut(axis, step) for axis, step in zip(axes, steps, strict=True)))


def _cut(cells: range, step: int) -> Iterator[range]:
    """Pieces of a range that end at multiples of `step`, or all of it where it is no longer."""
    if len(cells) <= step:
        yield cells
        return
    first = cells.start
    while first < cells.stop:
        last = min(first - first % step + step, cells.stop)
        yield range(first, last)
        first = last


def reading(path: Path) -> AbstractContextManager[None, bool | None]:
    """Turn what the system says of a file into StoreError."""
    return file_errors("cannot read", path)


def writing(path: Path) -> AbstractContextManager[None, bool | None]:
    """Turn what the system says of a file that is being written into StoreError."""
    return file_errors("cannot write", path)


@contextmanager
def decoding(path: Path, failed: str = "cannot be read") -> Generator[None]:
    """Turn what a library says of a file that it cannot read, of whatever type, into StoreError."""
    try:
        yield
    except Error:
        raise
    except MemoryError as error:
        raise StoreError("no memory to decode it", path=path) from error
    except Exception as error:  # libraries of formats raise errors of any kind
        said = str(error).strip() or type(error).__name__
        raise StoreError(f"{failed}: {said}", path=path) from error


def encoding(path: Path) -> AbstractContextManager[None]:
    """The same of a file that it cannot write."""
    return decoding(path, "cannot be written")
