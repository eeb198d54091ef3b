"""A matrix in one file or several, cut into chunks of whole rows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from outgrid.errors import UsageError
from outgrid.formats.npy import read_header

__all__ = ["Chunk", "Part", "cut", "open_parts"]


@dataclass(frozen=True, slots=True)
class Part:
    """Rows from `first_row` on, as they lie in a file.

    `shape` is that of the file's memory: a file in Fortran order is the transposed matrix in C
    order.
    """

    path: Path
    first_row: int
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    data_offset: int
    transposed: bool

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.shape[1] * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Chunk:
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
        part = Part(path, first_row, (rows, columns), header.dtype, header.data_offset, transposed)
        parts.append(part)
        first_row += rows
    if not parts:
        raise UsageError("a matrix needs at least one file")
    for part in parts[1:]:
        _check_fit(parts[0], part)
    return tuple(parts)


def _check_fit(first: Part, part: Part) -> None:
    if part.transposed or first.transposed:
        raise UsageError(
            f"{part.path if part.transposed else first.path} is in Fortran order: a matrix in "
            "several files is cut by rows; save them in C order"
        )
    if part.dtype != first.dtype or part.shape[1] != first.shape[1]:
        raise UsageError(
            f"{part.path} has {part.shape[1]} columns of {part.dtype}, {first.path} has "
            f"{first.shape[1]} of {first.dtype}: they cannot be parts of one matrix"
        )


def cut(part: Part, chunk_bytes: int) -> tuple[Chunk, ...]:
    """Chunks of whole rows of at most `chunk_bytes`, of one row where it is larger."""
    step = max(1, chunk_bytes // max(1, part.row_bytes))
    return tuple(
        Chunk(
            range(part.first_row + start, part.first_row + stop),
            part.data_offset + start * part.row_bytes,
            (stop - start) * part.row_bytes,
        )
        for start in range(0, part.shape[0], step)
        for stop in (min(start + step, part.shape[0]),)
    )
