"""What every tier offers: one field's planes, moved between the tier and memory.

A field of shape (nz, ny, nx) has nz planes of ny rows; one of shape (ny, nx) has ny planes of one
row.
"""

import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Protocol, Self

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import DTypeLike, NDArray

from outgrid.folding import Folding
from outgrid.formats.npy import Header
from outgrid.native import Buffer
from outgrid.seal import Seal

__all__ = [
    "NATURAL",
    "FoldedRows",
    "Habits",
    "LaidOut",
    "Layout",
    "Planes",
    "Store",
    "Within",
    "Wrapping",
    "other_planes",
]


class Within(msgspec.Struct, frozen=True):
    """A file that a field is in, with other things, and where its numbers lie there."""

    path: Path
    header: Header


def other_planes(parts: Iterable[range], count: int) -> tuple[range, ...]:
    """The planes of `count` that are in none of some `parts`, which are in order and apart."""
    ends = [0, *(end for part in parts for end in (part.start, part.stop)), count]
    between = map(range, ends[::2], ends[1::2])
    return tuple(planes for planes in between if planes)


FoldedRows = tuple[int, int, int, int, tuple[tuple[int, int], ...]]
"""Rows of a group, bytes of a vector, bytes of a row and from row to row, and which parts of a row
there are, if not all of it, as the compiled module has them."""

NATURAL: FoldedRows = (1, 0, 0, 0, ())  # row after row

FOLDED_ROW_BYTES = 64  # of which rows that are folded are multiples, from row to row
ZEROES_BYTES = 2 << 20  # that rows of +0 are written from


class Planes(msgspec.Struct, frozen=True, eq=False):
    """The memory of some planes.

    `addresses`, int64 of shape (planes,): where the first of the rows asked for begins, plane by
    plane. Rows of a plane follow each other every `row_stride_bytes`. The memory is that of
    `owner`, which lives until transfers from or to these planes have ended, whoever lets go of it.
    With a `folding` the rows of a plane lie folded from its address on; those of a store never do.

    Only rows in the ranges `kept`, counted from the first one, in order and apart, may be other
    than +0, unless that is None. The others need not be read here when the planes are put.

    Of a row only the ``parts``, bytes [first, end) in order and apart, lie here, where there are
    any. Its other bytes are 0 in a store. Rows then follow each other at a stride below that of
    whole ones, at which no part of a row meets one of another.
    """

    addresses: NDArray[np.int64]
    row_stride_bytes: int
    owner: object
    folding: Folding | None = None
    kept: tuple[range, ...] | None = None
    parts: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, array: NDArray[Any], rows: range | None = None) -> Self:
        """The planes of an array of shape (planes, rows, x) or (planes, x), contiguous along x.

        With `rows`, the addresses are those of row `rows.start`.
        """
        if array.size and array.strides[-1] != array.itemsize and array.shape[-1] > 1:
            raise ValueError(f"rows of the array are not contiguous: strides {array.strides}")
        row_stride_bytes = array.strides[1] if array.ndim == 3 else 0
        first = array.ctypes.data + (rows.start * row_stride_bytes if rows else 0)
        addresses = first + array.strides[0] * np.arange(array.shape[0], dtype=np.int64)
        return cls(addresses, row_stride_bytes, array)

    def part(self, which: slice) -> Self:
        """Some of them."""
        return replace(self, addresses=self.addresses[which])

    def from_row(self, skipped: int, count: int) -> Self:
        """The `count` rows of the same planes behind `skipped` ones."""
        kept = self.kept
        if kept is not None:
            ends = ((part.start - skipped, part.stop - skipped) for part in kept)
            kept = tuple(range(max(0, a), min(b, count)) for a, b in ends if b > 0 and a < count)
        if self.folding is not None and skipped % self.folding.rows:
            raise ValueError(f"row {skipped} is within a group of {self.folding.rows}")
        addresses = self.addresses + skipped * self.row_stride_bytes
        return replace(self, addresses=addresses, kept=kept)

    def folded(self, rows: range, row_bytes: int) -> FoldedRows:
        """How ``rows`` of so many bytes lie here. Raises ValueError where they cannot lie so.

        They begin with a group of folded rows, and end with one or with the last row of the grid:
        memory of the last group that is beyond them is written over when they are got.
        """
        folding, stride = self.folding, self.row_stride_bytes
        if self.parts:
            return 1, 0, row_bytes, stride, self.parts
        if folding is None:
            return NATURAL
        if stride % FOLDED_ROW_BYTES or stride % (folding.vector_bytes // folding.rows):
            raise ValueError(
                f"rows cannot be folded with a stride of {stride}: it is no multiple of "
                f"{FOLDED_ROW_BYTES} bytes and of a part in {folding.rows} of a vector of "
                f"{folding.vector_bytes}"
            )
        if rows and rows.start % folding.rows:
            raise ValueError(
                f"rows {rows.start}..{rows.stop} do not begin with a group of {folding.rows} that "
                "are folded"
            )
        return folding.rows, folding.vector_bytes, row_bytes, stride, ()

    def require_natural(self, name: str) -> None:
        """Raise ValueError where rows lie otherwise, for the store of that name, which cannot."""
        self.require_whole_rows(name)
        if self.folding is not None:
            raise ValueError(
                f"{name} is moved in a way that does not fold rows: its planes cannot lie in "
                f"groups of {self.folding.rows} folded rows"
            )

    def require_whole_rows(self, name: str) -> None:
        """Raise ValueError where rows lie in parts, for the store of that name, which cannot."""
        if self.parts:
            raise ValueError(f"{name} is moved in whole rows, not in parts of them: {self.parts}")


@cache
def _zeroes() -> Buffer:
    """Memory that is never written to: all of it is the one huge page of zeroes of the system."""
    return Buffer(ZEROES_BYTES)


class Habits(msgspec.Struct, frozen=True):
    """What the system is told of a mapping.

    `madvise`: "normal", "sequential" or "random" order; "willneed" before what is got, "dontneed"
    after what was moved (memory that may be swapped out is sent there instead). `msync`: what
    follows a put: "none", "async" or "sync". Flushes are synchronous whatever it says.
    """

    madvise: tuple[str, ...] = ()
    msync: str = "none"


class NewField(msgspec.Struct, frozen=True):
    """A field of zeroes that is to be made: the file `path`, or what is called so in its place.

    Of what is kept in files: `sums` asks for the checksum of every row, in a file beside it, and
    `overwrite` for a file that is there to be replaced. `absent` planes are never written: they
    stay 0, and take no space where a file system keeps none for them. One that is `within` another
    file, which is there, has its checksums beside the `path` that it would have. One of `fortran`
    order is `shape` as it lies in the file, which says that its axes are the other way round.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: DTypeLike
    habits: Habits = Habits()
    sums: bool = False
    overwrite: bool = False
    absent: tuple[range, ...] = ()
    within: Within | None = None
    fortran: bool = False


class Store(Protocol):
    """One field's bytes in a tier.

    `get` and `put` start to move rows `rows` of planes `planes` (ranges of step 1) and return a
    ticket; the memory belongs to the store until the ticket's completion comes out of the Transfers
    that the store was made with. Tickets end in any order: whoever needs an order waits. `flush`
    makes durable what was completely put before it. Nothing is checked against transfers under way:
    overlapping ones are the caller's error. `hold` says of what the planes are that are moved from
    then on, for the checksums of stores that keep them. `leave` says that a region holds the zeroes
    that the field was made of: True where it needs no `put` for that.

    `shape` and `dtype` are the field's; sizes are in bytes.
    """

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def planes(self) -> int: ...
    @property
    def rows_per_plane(self) -> int: ...
    @property
    def plane_bytes(self) -> int: ...
    @property
    def row_bytes(self) -> int: ...

    def hold(self, seal: Seal) -> None: ...
    def get(self, planes: range, rows: range, into: Planes) -> int: ...
    def put(self, planes: range, rows: range, source: Planes) -> int: ...
    def leave(self, planes: range, rows: range) -> bool: ...
    def flush(self) -> int: ...
    def close(self) -> None: ...


class Layout(msgspec.Struct, frozen=True):
    """Where the rows of a field lie in a tier: `data_offset` is the position of the first byte."""

    planes: int
    rows_per_plane: int
    row_bytes: int
    data_offset: int

    @classmethod
    def of(cls, shape: tuple[int, ...], dtype: DTypeLike, data_offset: int) -> Self:
        """The layout of a C-ordered array of two or three axes."""
        if len(shape) not in (2, 3):
            raise ValueError(f"a field has 2 or 3 axes, not shape {shape}")
        return cls(
            planes=shape[0],
            rows_per_plane=math.prod(shape[1:-1]),
            row_bytes=shape[-1] * np.dtype(dtype).itemsize,
            data_offset=data_offset,
        )

    @property
    def plane_bytes(self) -> int:
        return self.rows_per_plane * self.row_bytes

    @property
    def nbytes(self) -> int:
        return self.planes * self.plane_bytes

    def segments(self, planes: range, rows: range, memory: Planes) -> NDArray[np.int64]:
        """The contiguous pieces of a region, int64 of shape (n, 3): position, address, bytes.

        Pieces are sorted by position: one per plane where its rows are contiguous in memory, or lie
        folded or in parts there, else one per row. Raises ValueError for a region outside the
        field, or that cannot lie folded as the memory asks for.
        """
        self._check(planes, rows, memory)
        folds = memory.folded(rows, self.row_bytes) != NATURAL
        starts = self.data_offset + self.plane_bytes * np.arange(
            planes.start, planes.stop, dtype=np.int64
        )
        starts += rows.start * self.row_bytes
        if memory.row_stride_bytes == self.row_bytes or len(rows) == 1 or folds:
            pieces = np.empty((len(planes), 3), np.int64)
            pieces[:, 0] = starts
            pieces[:, 1] = memory.addresses
            pieces[:, 2] = len(rows) * self.row_bytes
            return pieces
        row = np.arange(len(rows), dtype=np.int64)
        pieces = np.empty((len(planes), len(rows), 3), np.int64)
        pieces[:, :, 0] = starts[:, None] + self.row_bytes * row
        pieces[:, :, 1] = memory.addresses[:, None] + memory.row_stride_bytes * row
        pieces[:, :, 2] = self.row_bytes
        return pieces.reshape(-1, 3)

    def put_segments(self, planes: range, rows: range, memory: Planes) -> NDArray[np.int64]:
        """The same for a put: rows that are +0 come from memory that all of them share.

        That is a huge page of zeroes, which a device takes in one piece. Memory that is not kept
        has a page of 4 KiB for every few rows.
        """
        whole = self.segments(planes, rows, memory)
        unit = memory.folding.rows if memory.folding is not None else 1
        most = ZEROES_BYTES // max(self.row_bytes, memory.row_stride_bytes) // unit * unit
        if memory.kept is None or not most or len(whole) != len(planes):
            return whole
        parts = [(part, True) for part in memory.kept]
        for gap in other_planes(memory.kept, len(rows)):
            firsts = range(gap.start, gap.stop, most)
            parts += [(range(first, min(first + most, gap.stop)), False) for first in firsts]
        parts.sort(key=lambda part: part[0].start)
        pieces = np.empty((len(planes), len(parts), 3), np.int64)
        for number, (part, kept) in enumerate(parts):
            offset_bytes = part.start * self.row_bytes
            pieces[:, number, 0] = whole[:, 0] + offset_bytes
            ahead = part.start * memory.row_stride_bytes
            pieces[:, number, 1] = whole[:, 1] + ahead if kept else _zeroes().address
            pieces[:, number, 2] = len(part) * self.row_bytes
        return pieces.reshape(-1, 3)

    def _check(self, planes: range, rows: range, memory: Planes) -> None:
        for axis, part, extent in (
            ("planes", planes, self.planes),
            ("rows", rows, self.rows_per_plane),
        ):
            if part.step != 1 or part.start < 0 or part.stop > extent or part.stop < part.start:
                raise ValueError(f"{axis} {part} requested of a field with {extent}")
        if memory.addresses.shape != (len(planes),) or memory.addresses.dtype != np.int64:
            raise ValueError(
                f"{len(planes)} planes need as many int64 addresses, not "
                f"{memory.addresses.dtype} of shape {memory.addresses.shape}"
            )
        overlap = memory.row_stride_bytes < self.row_bytes and not memory.parts
        if len(planes) and len(rows) > 1 and overlap:
            raise ValueError(
                f"rows of {self.row_bytes} bytes overlap at a stride of {memory.row_stride_bytes}"
            )


class LaidOut:
    """The sizes of a store whose rows lie as `_layout` says."""

    _layout: Layout

    def hold(self, seal: Seal) -> None:
        """Nothing here is kept with checksums."""

    def leave(self, planes: range, rows: range) -> bool:
        """Zeroes are put like other values."""
        return False

    @property
    def planes(self) -> int:
        return self._layout.planes

    @property
    def rows_per_plane(self) -> int:
        return self._layout.rows_per_plane

    @property
    def plane_bytes(self) -> int:
        return self._layout.plane_bytes

    @property
    def row_bytes(self) -> int:
        return self._layout.row_bytes


class Wrapping:
    """A store that is another one but for how its planes are moved."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def leave(self, planes: range, rows: range) -> bool:
        """Zeroes are put like other values."""
        return False

    @property
    def name(self) -> str:
        return self._store.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self._store.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._store.dtype

    @property
    def planes(self) -> int:
        return self._store.planes

    @property
    def rows_per_plane(self) -> int:
        return self._store.rows_per_plane

    @property
    def plane_bytes(self) -> int:
        return self._store.plane_bytes

    @property
    def row_bytes(self) -> int:
        return self._store.row_bytes

    def hold(self, seal: Seal) -> None:
        """Say it to the other one."""
        self._store.hold(seal)

    def close(self) -> None:
        """Close the other one."""
        self._store.close()
