"""The checksums of a field's rows, in a file beside the field's.

    u.0.npy          the field
    u.0.npy.xxh3     uint64 of shape (planes, rows per plane): XXH3 (64 bits) of every row

The table is a .npy file as well, and no transfer cuts a row, so any program can check a field. The
sums of a run's files are combined (exclusive or) with the key of what they are: one number for all
rows of a state, see `Seal`. A row that was never written has the sum 0, and one that never is, as
its field does not exist there, `ABSENT`: it is made of zeroes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from outgrid.durable import sync_folder
from outgrid.errors import StoreError
from outgrid.formats.npy import HEADER_BYTES, Header, read_header, write_header
from outgrid.native import File
from outgrid.regular import check_own, given, own, read_fully
from outgrid.seal import UNSEALED, Seal
from outgrid.storage.base import Layout

__all__ = ["SUMS_SUFFIX", "Sums", "sums_digest", "sums_path"]

SUMS_SUFFIX = ".xxh3"
ABSENT = np.uint64(0xFFFFFFFFFFFFFFFF)
_ITEM_BYTES = 8


def sums_path(path: Path) -> Path:
    """Where the checksums of the field at `path` are."""
    return path.with_name(path.name + SUMS_SUFFIX)


def sums_digest(path: Path, seal: Seal = UNSEALED, header: Header | None = None) -> str:
    """The checksum of the checksums of the field at `path`: what a record keeps of them.

    The key of `seal` is taken off, so that it is the same for all runs with the same values.
    `header` is that of the field, where it lies in another file.
    """
    header = header or read_header(path)
    nothing = _sum_of_zeroes(header.shape_in_file[-1] * header.dtype.itemsize)
    with open(sums_path(path), "rb", buffering=0, opener=given) as file:
        digest = xxhash.xxh3_64(file.read(HEADER_BYTES))
        while part := file.read(1 << 20):
            whole = len(part) // _ITEM_BYTES * _ITEM_BYTES
            sums = np.frombuffer(part[:whole], np.uint64)
            kept = np.where(sums == ABSENT, nothing, sums ^ np.uint64(seal.key))
            digest.update(kept.tobytes())
            digest.update(part[whole:])
    return digest.hexdigest()


def _sum_of_zeroes(nbytes: int) -> np.uint64:
    return np.uint64(xxhash.xxh3_64_intdigest(bytes(nbytes)))


class Sums:
    """The checksums of one field, read and written a few planes at a time.

    They pass through the page cache: they are some thousandths of the field. Under a memory limit
    little of that stays, so what is needed is asked for when a transfer begins, see `expect`.
    """

    def __init__(self, path: Path, file: File, descriptor: int, layout: Layout) -> None:
        self.path, self.file = path, file
        self._layout = layout
        self._descriptor = descriptor

    @classmethod
    def create(cls, field: Path, layout: Layout) -> Self:
        """A new table, its space reserved, that says of no row that it was written."""
        path = sums_path(field)
        shape = (layout.planes, layout.rows_per_plane)
        try:
            file = File(path, "create", False)
        except OSError as error:
            raise StoreError("cannot create", path=path, errno=error.errno) from error
        try:
            file.reserve(HEADER_BYTES + shape[0] * shape[1] * _ITEM_BYTES)
            write_header(path, shape, np.uint64)
            sync_folder(path.parent)
            return cls(path, file, own(path, os.O_RDWR), layout)
        except BaseException as error:
            file.close()
            path.unlink()
            if not isinstance(error, OSError):
                raise
            raise StoreError("cannot create", path=path, errno=error.errno) from error

    @classmethod
    def open(cls, field: Path, layout: Layout, mode: Literal["r", "rw"]) -> Self:
        """The table of a field that exists. Raises StoreError if it is missing or is another's."""
        path = sums_path(field)
        if mode == "rw":
            check_own(path)
        header = read_header(path)
        shape = (layout.planes, layout.rows_per_plane)
        if (header.shape, header.dtype, header.data_offset) != (shape, np.uint64, HEADER_BYTES):
            raise StoreError(
                f"checksums of type {header.dtype} and shape {header.shape} cannot be those of "
                f"{shape[0]} planes of {shape[1]} rows",
                path=path,
            )
        try:
            flags = (os.O_RDWR if mode == "rw" else os.O_RDONLY) | os.O_CLOEXEC
            return cls(path, File(path, mode, False), os.open(path, flags), layout)
        except OSError as error:
            raise StoreError("cannot open", path=path, errno=error.errno) from error

    def expect(self, planes: range, rows: range) -> None:
        """Have the sums of a region read while its rows are moved.

        Both what is compared and what is written where pages are not written as a whole would
        else wait for the disk, page by page, when the rows are there.
        """
        for offset, part in self._parts(planes, rows):
            with suppress(OSError):  # no more than a wish: who reads is told what is wrong
                nbytes = len(part) * _ITEM_BYTES
                os.posix_fadvise(self._descriptor, offset, nbytes, os.POSIX_FADV_WILLNEED)

    def write(
        self, seal: Seal, planes: range, rows: range, sums: NDArray[np.uint64]
    ) -> StoreError | None:
        """Keep the sums of a region, plane after plane. Returns what went wrong."""
        sums = sums ^ np.uint64(seal.key)
        try:
            for offset, part in self._parts(planes, rows):
                memory = sums[part.start : part.stop].view(np.uint8).data
                done = 0
                while done < len(memory):
                    done += os.pwrite(self._descriptor, memory[done:], offset + done)
        except OSError as error:
            return StoreError("cannot keep checksums", path=self.path, errno=error.errno)
        return None

    def leave_out(self, planes: Iterable[range]) -> None:
        """Say that planes are never written. Raises StoreError where that cannot be kept."""
        for part in planes:
            rows = range(self._layout.rows_per_plane)
            marks = np.full(len(part) * len(rows), ABSENT)
            error = self.write(UNSEALED, part, rows, marks)
            if error is not None:
                raise error

    def leave(self, seal: Seal, planes: range, rows: range) -> None:
        """Keep the sums of a region of zeroes. Raises StoreError where that cannot be kept."""
        nothing = _sum_of_zeroes(self._layout.row_bytes)
        error = self.write(seal, planes, rows, np.full(len(planes) * len(rows), nothing))
        if error is not None:
            raise error

    def compare(
        self, field: Path, seal: Seal, planes: range, rows: range, sums: NDArray[np.uint64]
    ) -> StoreError | None:
        """An error that names what differs from the sums of a region, or None."""
        sums = sums ^ np.uint64(seal.key)
        kept = np.empty_like(sums)
        try:
            for offset, part in self._parts(planes, rows):
                read_fully(self._descriptor, kept[part.start : part.stop], offset, self.path)
        except StoreError as error:
            return error
        except OSError as error:
            return StoreError("cannot read checksums", path=self.path, errno=error.errno)
        wrong = np.flatnonzero(kept != sums)
        if (kept[wrong] == ABSENT).any():
            nothing = _sum_of_zeroes(self._layout.row_bytes) ^ np.uint64(seal.key)
            wrong = np.array([n for n in wrong if (kept[n], sums[n]) != (ABSENT, nothing)], np.intp)
        return self._describe(field, seal, planes, rows, kept, sums, wrong) if len(wrong) else None

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)
        self.file.close()

    def _parts(self, planes: range, rows: range) -> Iterator[tuple[int, range]]:
        """(offset in the file, which sums of a region) of the contiguous pieces of it."""
        per_plane, count = self._layout.rows_per_plane, len(rows)
        first = HEADER_BYTES + (planes.start * per_plane + rows.start) * _ITEM_BYTES
        if count == per_plane:
            yield first, range(len(planes) * count)
            return
        for index in range(len(planes)):
            piece = range(index * count, (index + 1) * count)
            yield first + index * per_plane * _ITEM_BYTES, piece

    def _describe(
        self,
        field: Path,
        seal: Seal,
        planes: range,
        rows: range,
        kept: NDArray[np.uint64],
        computed: NDArray[np.uint64],
        wrong: NDArray[np.int64],
    ) -> StoreError:
        index = int(wrong[0])
        plane, row = planes.start + index // len(rows), rows.start + index % len(rows)
        last = planes.start + int(wrong[-1]) // len(rows)
        place = f"plane {plane}" if plane == last else f"planes {plane}..{last}"
        never = " (never written)" if kept[index] == 0 else ""
        others = np.unique((kept ^ computed)[wrong])
        if seal.run and len(wrong) > 1 and len(others) == 1 and np.all(kept[wrong]):
            what = (
                f"{place} of {self._layout.planes} are intact, but belong to another state: "
                f"{seal.sealed_as(int(others[0]) ^ seal.key)}; files of different times or runs "
                "were mixed"
            )
        else:
            what = (
                f"{place} of {self._layout.planes} did not match the checksums: {len(wrong)} "
                f"rows differ, the first is row {row} of plane {plane}; checksum expected "
                f"{int(kept[index]):016x}{never}, found {int(computed[index]):016x}"
            )
        return StoreError(
            what,
            path=field,
            offset=self._layout.data_offset
            + plane * self._layout.plane_bytes
            + row * self._layout.row_bytes,
            length=self._layout.row_bytes,
        )
