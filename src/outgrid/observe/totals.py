"""What a process, or one of several ranks, has found of the reductions, as exact totals in a file.

A sum over the grid is a whole number, which does not depend on how the grid is cut; so each rank
keeps its part of that number for every step, and at the end the parts are added up and rounded
once. The file has a row for each step of the run: a total for each reduction and their XXH3. Rows
are written again where steps are made again, with the same content.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from outgrid.errors import StoreError
from outgrid.observe.accumulators import CELLS, Table, added, nothing
from outgrid.regular import own, read_fully
from outgrid.seal import Seal

ROWS_AT_ONCE = 256
DIGEST_BYTES = 8


class Totals:
    """The file of one rank of a ``run``, for reductions of these ``kinds``; made where missing."""

    def __init__(self, path: Path, run: str, kinds: tuple[str, ...]) -> None:
        self.path, self.run, self.kinds = path, run, kinds
        self._row_bytes = len(kinds) * CELLS * 8
        try:
            self._file = own(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise self._failure("cannot open", error) from error

    def write(self, done: int, table: Table) -> None:
        """Keep the totals of the steps after ``done`` steps: (steps, reductions, cells)."""
        rows = enumerate((row.tobytes() for row in np.ascontiguousarray(table, np.int64)), done + 1)
        content = b"".join(row + self._digest(row, step) for step, row in rows)
        offset = done * (self._row_bytes + DIGEST_BYTES)
        try:
            while content:
                written = os.pwrite(self._file, content, offset)
                content, offset = content[written:], offset + written
        except OSError as error:
            raise self._failure("cannot write", error) from error

    def sync(self) -> None:
        """Make what was written durable."""
        try:
            os.fsync(self._file)
        except OSError as error:
            raise self._failure("cannot make durable", error) from error

    def read(self, steps: range) -> Table:
        """The totals of these steps, counted from 0. Raises StoreError where they are not whole."""
        size = self._row_bytes + DIGEST_BYTES
        content = bytearray(len(steps) * size)
        missing = "reductions of some steps are missing"
        try:
            read_fully(self._file, content, steps.start * size, self.path, missing)
        except OSError as error:
            raise self._failure("cannot read", error) from error
        table: NDArray[np.int64] = np.zeros((len(steps), len(self.kinds), CELLS), np.int64)
        for number in range(len(steps)):
            row = bytes(content[number * size : (number + 1) * size])
            step = steps.start + number + 1
            if self._digest(row[:-DIGEST_BYTES], step) != row[-DIGEST_BYTES:]:
                raise StoreError(
                    f"the reductions of step {step} do not match their checksum, or belong to "
                    "another run",
                    path=self.path,
                )
            table[number] = np.frombuffer(row[:-DIGEST_BYTES], np.int64).reshape(table.shape[1:])
        return table

    def _digest(self, row: bytes, step: int) -> bytes:
        sealed = xxhash.xxh3_64_intdigest(row) ^ Seal(self.run, "totals", step).key
        return sealed.to_bytes(DIGEST_BYTES, "big")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _failure(self, what: str, error: OSError) -> StoreError:
        if isinstance(error, StoreError):
            return error
        return StoreError(f"{what} reductions", path=self.path, errno=error.errno)


def joined(
    shares: Sequence[tuple[Path, str]], kinds: tuple[str, ...], steps: int
) -> Iterator[Table]:
    """The totals of all ranks together, for so many steps, some at once."""
    with ExitStack() as stack:
        files: list[Totals] = []
        for path, run in shares:
            files.append(Totals(path, run, kinds))
            stack.callback(files[-1].close)
        for first in range(0, steps, ROWS_AT_ONCE):
            few = range(first, min(first + ROWS_AT_ONCE, steps))
            table = nothing(kinds, len(few))
            for file in files:
                table = added(kinds, table, file.read(few))
            yield table
