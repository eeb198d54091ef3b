"""A field that lies in several .npy files, read like one array."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from outgrid.errors import StoreError, UsageError, file_errors
from outgrid.formats.npy import Header, read_header
from outgrid.regular import given, read_fully
from outgrid.seal import Seal
from outgrid.storage.base import Layout, Within
from outgrid.storage.sums import Sums

__all__ = ["Joined", "Piece"]


class Piece(msgspec.Struct, frozen=True):
    """``planes`` and ``rows`` of a field, in a file that begins at ``first`` (plane, row) of it.

    In 2-D a plane is one row. With a ``seal``, rows that are read are compared with the checksums
    beside the file, which are of that. One that is ``within`` another file has its checksums beside
    the ``path`` that it would have.
    """

    path: Path
    first: tuple[int, int]
    planes: range
    rows: range
    seal: Seal | None = None
    within: Within | None = None

    @property
    def file(self) -> Path:
        """The file that it is in."""
        return self.path if self.within is None else self.within.path


class Joined:
    """A field of shape ``shape`` in pieces: slices are read when they are asked for.

    ``joined[z]``, ``joined[a:b:c, 3]``: the first index is a number or a slice, the others are any
    that NumPy takes; ``np.asarray(joined)`` reads all of it. Raises StoreError for files that are
    missing, differ in what they hold, or leave planes out.
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = tuple(pieces)
        self._headers = [_header(piece) for piece in self._pieces]
        first = self._headers[0]
        for piece, header in zip(self._pieces, self._headers, strict=True):
            _check_holds(piece, header)
            kind = len(header.shape), header.shape[-1], header.dtype
            if kind != (len(first.shape), first.shape[-1], first.dtype):
                raise StoreError(
                    f"rows of {header.shape[-1]} values of {header.dtype} in {len(header.shape)}-D "
                    f"do not go with others of {first.shape[-1]} of {first.dtype} in "
                    f"{len(first.shape)}-D",
                    path=piece.file,
                )
        planes = max(piece.planes.stop for piece in self._pieces)
        rows = max(piece.rows.stop for piece in self._pieces)
        there = sum(len(piece.planes) * len(piece.rows) for piece in self._pieces)
        if there != planes * rows:
            raise StoreError(
                f"the pieces have {there} rows of {planes} planes of {rows} rows: some pieces "
                "are missing or given twice",
                path=self._pieces[0].file,
            )
        self.shape: tuple[int, ...] = (planes, *[rows][: len(first.shape) - 2], first.shape[-1])
        self.dtype: np.dtype[Any] = first.dtype

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files."""
        return tuple(piece.file for piece in self._pieces)

    @property
    def ndim(self) -> int:
        """2 or 3."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> NDArray[Any]:
        parts = cast("tuple[Any, ...]", index) if isinstance(index, tuple) else (index,)
        if not parts or parts[0] is Ellipsis:
            return self.read(range(len(self)))[parts if parts else ...]
        if isinstance(parts[0], slice):
            planes = range(*parts[0].indices(len(self)))
            values = np.empty((len(planes), *self.shape[1:]), self.dtype)
            for at, plane in enumerate(planes):
                values[at] = self.read(range(plane, plane + 1))[0]
            return values[(slice(None), *parts[1:])]
        plane = int(parts[0])
        if not -len(self) <= plane < len(self):
            raise IndexError(f"plane {plane} of {len(self)}")
        plane %= len(self)
        return self.read(range(plane, plane + 1))[(0, *parts[1:])]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        values = self.read(range(len(self)))
        return values if dtype is None else values.astype(dtype)

    def read(self, planes: range, rows: range | None = None) -> NDArray[Any]:
        """``planes``, or some rows of each, as an array of their own."""
        across = self.shape[1] if self.ndim == 3 else 1
        rows = range(across) if rows is None else rows
        values = np.empty((len(planes), len(rows), self.shape[-1]), self.dtype)
        for piece, header in zip(self._pieces, self._headers, strict=True):
            z0, z1 = max(planes.start, piece.planes.start), min(planes.stop, piece.planes.stop)
            y0, y1 = max(rows.start, piece.rows.start), min(rows.stop, piece.rows.stop)
            if z0 < z1 and y0 < y1:
                into = values[z0 - planes.start : z1 - planes.start]
                into = into[:, y0 - rows.start : y1 - rows.start]
                _read(piece, header, range(z0, z1), range(y0, y1), into)
        return values if self.ndim == 3 else values[:, 0]


def _header(piece: Piece) -> Header:
    if piece.within is not None:
        return piece.within.header
    with file_errors("cannot open", piece.path):
        header = read_header(piece.path)
    if header.fortran_order and len(header.shape) > 1:
        raise UsageError(f"{piece.path} is in Fortran order: it is no piece of a field")
    return header


def _check_holds(piece: Piece, header: Header) -> None:
    """Raise StoreError where a file does not hold the whole of its piece."""
    extents = header.shape[0], math.prod(header.shape[1:-1])
    for what, wanted, first, extent in zip(
        ("planes", "rows"), (piece.planes, piece.rows), piece.first, extents, strict=True
    ):
        if wanted.start < first or wanted.stop > first + extent:
            raise StoreError(
                f"{what} {wanted.start}..{wanted.stop} were requested of a file that contains "
                f"{first}..{first + extent}",
                path=piece.file,
            )


def _read(
    piece: Piece, header: Header, planes: range, rows: range, into: NDArray[np.generic]
) -> None:
    row_bytes = header.shape[-1] * header.dtype.itemsize
    across = math.prod(header.shape[1:-1])
    sums = None
    if piece.seal is not None:
        sums = Sums.open(piece.path, Layout.of(header.shape, header.dtype, header.data_offset), "r")
    try:
        with open(piece.file, "rb", buffering=0, opener=given) as file:
            for at, plane in enumerate(planes):
                first_plane, first_row = piece.first
                row = (plane - first_plane) * across + rows.start - first_row
                offset = row * row_bytes
                begin, nbytes = header.data_offset + offset, into[at].nbytes
                read_fully(
                    file.fileno(), into[at].reshape(-1).view(np.uint8).data, begin, piece.file
                )
                # What was read once is not going to be read again soon.
                os.posix_fadvise(file.fileno(), begin, nbytes, os.POSIX_FADV_DONTNEED)
                if sums is not None and piece.seal is not None:
                    digests = np.array(
                        [xxhash.xxh3_64_intdigest(row) for row in into[at]], np.uint64
                    )
                    there = range(plane - first_plane, plane - first_plane + 1)
                    within = range(rows.start - first_row, rows.stop - first_row)
                    error = sums.compare(piece.file, piece.seal, there, within, digests)
                    if error is not None:
                        raise error
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError("cannot read", path=piece.file, errno=error.errno) from error
    finally:
        if sums is not None:
            sums.close()
