"""What every format that is written gives: a file being made, and arrays in it."""

import os
import re
import secrets
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from math import prod
from pathlib import Path
from threading import Event, Lock
from typing import Any, BinaryIO, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from outgrid.durable import make_folder, partial_path, replace_whole
from outgrid.errors import UsageError
from outgrid.formats.axis import Along, Axis
from outgrid.formats.source import (
    Ahead,
    Box,
    Source,
    boxes,
    encoding,
    slices,
    spans,
    whole_axes,
    writing,
)

__all__ = [
    "Array",
    "Codec",
    "Filing",
    "Into",
    "Output",
    "Plain",
    "Sink",
    "Spans",
    "Written",
    "check_bare",
    "copy",
]

WRITERS = 4  # of a file whose numbers lie one behind the other
BOX_BYTES = 8 << 20  # that are still in a cache when they are encoded
CODEC_LEVELS = {"zstd": (-7, 22), "gzip": (0, 9), "blosc": (0, 9)}
BOXES_OF_A_THREAD = 8  # at least, so that threads end at about the same time


class Codec(msgspec.Struct, frozen=True):
    """How chunks are compressed: a name such as "zstd", and a level, if one is wanted."""

    name: str = "none"
    level: int | None = None

    @classmethod
    def of(cls, text: str) -> "Codec":
        """Of a text such as "zstd" or "zstd:3". Raises UsageError for a level that is no number."""
        name, _, level = text.partition(":")
        if level and not level.lstrip("-").isdigit():
            raise UsageError(
                f"the level of codec {text!r} must be a number, as in zstd:3, not {level!r}"
            )
        return cls(name.lower(), int(level) if level else None)

    def refuse(self, known: tuple[str, ...], what: str) -> None:
        """Raise UsageError where it is none of those that a format knows, or its level is not."""
        if self.name not in known:
            raise UsageError(
                f"unknown codec {self.name!r} for {what}; known are {', '.join(known)}"
            )
        if self.level is None:
            return
        if self.name not in CODEC_LEVELS:
            raise UsageError(f"codec {self.name} has no levels; leave :{self.level} out")
        least, most = CODEC_LEVELS[self.name]
        if not least <= self.level <= most:
            raise UsageError(
                f"the level of {self.name} must be within {least} to {most}, not {self.level}"
            )


class Array(msgspec.Struct, frozen=True):
    """An array that is going to be written: what it is, and how it is to be stored.

    `chunks` are cells along each axis, or nothing where the format stores it in one piece; where a
    format has shards, many chunks are in a file unless no `shards` are wanted. What is `along` an
    axis is stored where a format has names.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    axes: tuple[Axis, ...]
    chunks: tuple[int, ...] = ()
    codec: Codec = Codec()
    shards: bool = True
    levels: bool = False
    memory_bytes: int = 256 << 20
    attributes: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    along: tuple[Along, ...] = ()

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes."""
        return tuple(axis.name for axis in self.axes)


class Sink(Protocol):
    """An array in a file being made. Boxes of whole chunks are written once each, in order."""

    @property
    def chunk(self) -> tuple[int, ...]:
        """Cells that are written together, along each axis."""
        ...

    @property
    def at_once(self) -> int:
        """Boxes that may be written at once, by several threads; 1 where order matters."""
        ...

    @property
    def encoded_bytes(self) -> int | None:
        """Memory of a thread that writes, beside the values; None where it grows with the box."""
        ...

    @property
    def offset(self) -> int | None:
        """The first byte of the numbers, where they lie one behind the other in the file."""
        ...

    def write(self, box: Box, values: NDArray[Any]) -> None:
        """Write the values of a box. Raises StoreError."""
        ...


class Output(Protocol):
    """A file being made; it has its name once it is complete."""

    def array(self, array: Array) -> Sink:
        """Make an array in it. Raises UsageError for what the format cannot store."""
        ...

    def commit(self) -> None:
        """Write what is left of it, durably. Raises StoreError."""
        ...

    def close(self) -> None:
        """Let go of the file, complete or not."""
        ...


class Written(msgspec.Struct):
    """A sink that a function writes, box by box."""

    chunk: tuple[int, ...]
    put: Callable[[Box, NDArray[Any]], object]
    at_once: int = 1
    encoded_bytes: int | None = None
    offset: int | None = None

    def write(self, box: Box, values: NDArray[Any]) -> None:
        """Write the values of a box."""
        self.put(box, values)


class Into(msgspec.Struct):
    """A sink that is an array of a library, which is written by slices: the twin of `Sliced`."""

    path: Path
    array: Any
    chunk: tuple[int, ...]
    at_once: int = 1
    encoded_bytes: int | None = None
    offset: int | None = None

    def write(self, box: Box, values: NDArray[Any]) -> None:
        """Write the values of a box, encoded by the library."""
        with encoding(self.path):
            self.array[slices(box)] = values


class Spans(msgspec.Struct, frozen=True):
    """A sink of numbers that lie one behind the other in a file: the twin of `Straight`.

    They begin `offset` bytes into it, and are written without a library.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    at_once: int = WRITERS
    encoded_bytes: int | None = None

    @property
    def chunk(self) -> tuple[int, ...]:
        """Rows, each of which is a span of the file."""
        return whole_axes(self.shape, 1)

    def write(self, box: Box, values: NDArray[Any]) -> None:
        """Write the values of a box of whole rows, by one call for each span."""
        values = np.ascontiguousarray(values, self.dtype)
        for position, index in spans(self.shape, box):
            at = self.offset + position * self.dtype.itemsize
            self._put(values[index].reshape(-1).view(np.uint8).data, at)

    def _put(self, content: memoryview, at: int) -> None:
        with writing(self.path):
            file = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                while content:
                    count = os.pwrite(file, content, at)
                    content, at = content[count:], at + count
            finally:
                os.close(file)


class Plain:
    """A file of one array: a head, and the numbers behind it."""

    def __init__(self, path: Path, head: Callable[[Array], bytes]) -> None:
        self.path, self.head = path, head
        self.file: BinaryIO | None = None

    def array(self, array: Array) -> Sink:
        """Write the head; values follow one behind the other."""
        check_bare(array, self.path)
        if self.file is not None:
            raise UsageError(f"{self.path.stem} holds one array; choose a field")
        head = self.head(array)
        with writing(self.path):
            self.file = self.path.open("xb", buffering=0)
            self.file.write(head)
        return Spans(self.path, array.shape, array.dtype, len(head))

    def commit(self) -> None:
        """Wait until all is on disk."""
        if self.file is not None:
            with writing(self.path):
                os.fsync(self.file.fileno())

    def close(self) -> None:
        """Close the file."""
        if self.file is not None:
            self.file.close()


def check_bare(array: Array, path: Path) -> None:
    """Raise UsageError where an array is to be stored in a way that a format does not know."""
    for key, wanted in (
        ("chunks", array.chunks),
        ("codec", array.codec.name != "none"),
        ("levels", array.levels),
    ):
        if wanted:
            raise UsageError(f"{path.stem} is stored without chunks; leave {key} out")


class Filing:
    """A new file, or folder, that is complete or not there: made beside its name, then renamed.

    Whatever a process is killed in, under the name is the old one or the new one. It is made in a
    folder of a name that nobody else gives, so that no file of others is in its place; what a
    process that was killed left in such a folder goes with the next. One process at a time may
    write a file.
    """

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        if os.path.lexists(path) and not overwrite:
            raise UsageError(
                f"{path} exists and is not overwritten; remove it, or give --overwrite"
            )
        if not path.parent.is_dir():
            raise UsageError(f"cannot write {path.name}: {path.parent} is not a folder")
        folder = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
        self.path, self.partial = path, partial_path(folder / path.name)
        for left in self._left():
            shutil.rmtree(left)
        make_folder(folder)

    def _left(self) -> list[Path]:
        """The folders that processes that were killed have left, with nothing else in them."""
        named = re.compile(re.escape(self.path.name) + r"\.[0-9a-f]{16}\.new")
        return [
            place
            for place in self.path.parent.iterdir()
            if named.fullmatch(place.name)
            and place.is_dir()
            and not place.is_symlink()
            and {entry.name for entry in place.iterdir()} <= {self.partial.name}
        ]

    def remove(self) -> None:
        """Remove what was made of it."""
        shutil.rmtree(self.partial.parent, ignore_errors=True)

    def place(self) -> None:
        """Give it its name, durably; what had it goes after that. Raises StoreError."""
        replace_whole(self.partial, self.path)
        self.remove()


def copy(
    source: Source, sink: Sink, memory_bytes: int, told: Callable[[int], object] | None = None
) -> None:
    """Write all of a source, in boxes of whole chunks of the sink that fit the memory.

    Each of several threads reads, encodes and writes boxes, as many threads as the sink takes and
    the memory holds. A source that is read by one at a time is read in order, and what was read is
    copied, as it is valid until the next is. `told(nbytes)` hears of each box. Raises UsageError
    where chunks do not fit, StoreError.
    """
    available = memory_bytes - 2 * source.decoded_bytes
    beside = sink.encoded_bytes
    # A box as it was read, as it is written, and what a codec makes of it.
    ahead = source if isinstance(source, Ahead) else None
    times = 4 if beside is None else 1 + (source.at_once == 1)
    times += ahead is not None
    cell_bytes = times * source.dtype.itemsize
    chunk = tuple(map(min, sink.chunk, source.shape))

    def needed(cells: int) -> int:
        return cells * cell_bytes + (beside or 0)

    least = max(1, prod(chunk))
    if needed(least) > available:
        raise UsageError(
            f"chunks of {sink.chunk} take {needed(least) + 2 * source.decoded_bytes} bytes of "
            f"memory, above the limit of {memory_bytes}; choose smaller chunks or give more memory"
        )
    rows = prod((*chunk[:-1], source.shape[-1]))  # which lie one behind the other in most files
    if needed(rows) <= available:
        least = max(1, rows)
    threads = max(1, min(sink.at_once, available // needed(least)))
    fitting = (available // threads - (beside or 0)) // cell_bytes
    share = min(fitting, prod(source.shape) // (threads * BOXES_OF_A_THREAD))
    if ahead is not None:  # nothing is decoded twice, however small boxes are
        share = min(share, BOX_BYTES // source.dtype.itemsize)
    every = boxes([*map(range, source.shape)], chunk, max(least, share))
    in_turn, telling, stopped = Lock(), Lock(), Event()

    def work() -> None:
        # Memory that is taken anew for each box would have to be mapped anew, which takes longer
        # than the copy.
        space = np.empty(0, source.dtype)
        following: Box | None = None
        while not stopped.is_set():
            with in_turn:
                box = following or next(every, None)
                if box is None:
                    return
                values = source.read(box) if source.at_once == 1 else None
                if values is not None and threads > 1:
                    if space.size < values.size:
                        space = np.empty(values.size, values.dtype)
                    copied = space[: values.size].reshape(values.shape)
                    copied[...] = values
                    values = copied
            if values is None:
                values = source.read(box)
            if ahead is not None:
                with in_turn:
                    following = next(every, None)
                if following is not None:
                    ahead.begin(following)
            sink.write(box, values)
            if told is not None:
                with telling:
                    told(values.nbytes)

    with ThreadPoolExecutor(threads, "outgrid-copy") as workers:
        try:
            for ended in as_completed([workers.submit(work) for _ in range(threads)]):
                ended.result()
        finally:
            stopped.set()
