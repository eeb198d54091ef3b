"""A matrix in one file, in several, or in stripes over several, cut into chunks of whole rows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from outgrid.errors import StoreError, UsageError
from outgrid.formats.npy import read_header
from outgrid.native import BLOCK_BYTES

__all__ = [
    "Chunk",
    "Part",
    "check_stripe",
    "cut",
    "open_parts",
    "open_striped",
    "stripe_mark",
    "striped_bytes",
]

MARK, MARK_BYTES = "\noutgrid: ", 128


class Part(msgspec.Struct, frozen=True):
    """Rows from `first_row` on, as they lie in a file.

    `shape` is that of the file's memory: a file in Fortran order is the transposed matrix in C
    order. A file in stripes of `stripe_bytes` lies over `paths`; else there is one.
    """

    paths: tuple[Path, ...]
    first_row: int
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    data_offset: int
    transposed: bool
    stripe_bytes: int = 0

    @property
    def path(self) -> Path:
        """Where it begins."""
        return self.paths[0]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.shape[1] * self.dtype.itemsize


class Chunk(msgspec.Struct, frozen=True):
    """`rows` of the whole matrix, `nbytes` of a file from `offset` on."""

    rows: range
    offset: int
    nbytes: int


def open_parts(paths: Sequence[str | os.PathLike[str]]) -> tuple[Part, ...]:
    """The parts of a matrix whose rows are spread over several files, in their order.

    Raises UsageError where a file is no matrix or the files do not fit each other, StoreError where
    one cannot be read.
    """
    parts: list[Part] = []
    first_row = 0
    for given in paths:
        path = Path(given)
        header = read_header(path)
        if len(header.shape) != 2:
            raise UsageError(f"{path} has shape {header.shape}; a matrix has 2 axes")
        transposed = header.fortran_order
        rows, columns = header.shape[::-1] if transposed else header.shape
        shape = rows, columns
        parts.append(Part((path,), first_row, shape, header.dtype, header.data_offset, transposed))
        first_row += rows
    if not parts:
        raise UsageError("a matrix needs at least one file")
    for part in parts[1:]:
        _check_fit(parts[0], part)
    return tuple(parts)


def open_striped(paths: Sequence[str | os.PathLike[str]], stripe_bytes: int) -> Part:
    """The matrix of one .npy file that lies in stripes over `paths`.

    Bytes [k*stripe, (k + 1)*stripe) are in path k mod n, one behind the other, as `stripe` and
    RAID 0 have them, and then a mark. Raises UsageError where that is no matrix or a mark tells of
    another stripe, order or number of paths, StoreError where one cannot be read.
    """
    places = tuple(Path(path) for path in paths)
    if len(places) < 2:
        raise UsageError(f"stripes need several paths; {len(places)} given")
    check_stripe(stripe_bytes)
    for number, place in enumerate(places):
        _check_mark(place, stripe_mark(stripe_bytes, number, len(places)))
    header = read_header(places[0], 0)
    if len(header.shape) != 2:
        raise UsageError(f"{places[0]} has shape {header.shape}; a matrix has 2 axes")
    rows, columns = header.shape[::-1] if header.fortran_order else header.shape
    nbytes = header.data_offset + rows * columns * header.dtype.itemsize
    for place, wanted in zip(places, striped_bytes(nbytes, len(places), stripe_bytes), strict=True):
        try:
            size = place.stat().st_size
        except OSError as error:
            raise StoreError("cannot read", path=place, errno=error.errno) from error
        if size != wanted + MARK_BYTES:
            raise UsageError(
                f"{place} has {size} bytes; of {nbytes} in stripes of {stripe_bytes} over "
                f"{len(places)} paths it would have {wanted} and {MARK_BYTES} of its mark: lay the "
                "matrix out again"
            )
    return Part(
        places,
        0,
        (rows, columns),
        header.dtype,
        header.data_offset,
        header.fortran_order,
        stripe_bytes,
    )


def stripe_mark(stripe_bytes: int, number: int, parts: int) -> bytes:
    """What ends a part of a file in stripes: lengths alone do not tell one stripe from another."""
    text = f"{MARK}part {number + 1} of {parts} in stripes of {stripe_bytes} bytes"
    return text.encode().ljust(MARK_BYTES - 1) + b"\n"


def _check_mark(place: Path, wanted: bytes) -> None:
    """Raises UsageError for a part that does not end with this mark."""
    try:
        with open(place, "rb") as file:
            file.seek(max(0, place.stat().st_size - MARK_BYTES))
            mark = file.read()
    except OSError as error:
        raise StoreError("cannot read", path=place, errno=error.errno) from error
    if mark == wanted:
        return
    there, here = (
        text.decode(errors="replace").strip().removeprefix(MARK.strip() + " ")
        for text in (mark, wanted)
    )
    if not mark.startswith(MARK.encode()):
        there = "no part that og.stripe wrote"
    raise UsageError(
        f"{place} is {there}, not {here}: give the paths in the order and with the stripe that "
        "og.stripe wrote them with"
    )


def check_stripe(stripe_bytes: int) -> None:
    """Raises UsageError for a stripe that direct transfers cannot have."""
    if stripe_bytes < BLOCK_BYTES or stripe_bytes % BLOCK_BYTES:
        raise UsageError(f"stripe must be a multiple of {BLOCK_BYTES} bytes, not {stripe_bytes}")


def striped_bytes(nbytes: int, parts: int, stripe_bytes: int) -> list[int]:
    """What each part holds of a file of so many bytes."""
    rows, rest = divmod(nbytes, parts * stripe_bytes)
    return [
        rows * stripe_bytes + min(stripe_bytes, max(0, rest - part * stripe_bytes))
        for part in range(parts)
    ]


def _check_fit(first: Part, part: Part) -> None:
    if part.transposed or first.transposed:
        raise UsageError(
            f"{part.path if part.transposed else first.path} is in Fortran order: a matrix in "
            "several files must be in C order; save it so"
        )
    if part.dtype != first.dtype or part.shape[1] != first.shape[1]:
        raise UsageError(
            f"{part.path} has {part.shape[1]} columns of {part.dtype}, {first.path} has "
            f"{first.shape[1]} of {first.dtype}: they cannot be parts of one matrix"
        )


def cut(part: Part, chunk_bytes: int) -> tuple[Chunk, ...]:
    """Chunks of whole rows of at most `chunk_bytes`, of one row where it is larger.

    Rows of no columns are in none.
    """
    step = max(1, chunk_bytes // max(1, part.row_bytes))
    return tuple(
        Chunk(
            range(part.first_row + start, part.first_row + stop),
            part.data_offset + start * part.row_bytes,
            (stop - start) * part.row_bytes,
        )
        for start in range(0, part.shape[0] if part.row_bytes else 0, step)
        for stop in (min(start + step, part.shape[0]),)
    )
