"""Where the arrays of a run lie together, in the two files that one of them becomes the result of.

    SCRATCH/u.0.npy     head | planes of u | of v | frames of snapshot.0 ...    of parity 0
    SCRATCH/u.1.npy     head | planes of u | of v                               of parity 1
    SCRATCH/v.0.npy.xxh3    the checksums of v are in a file of their own, as always

A run that leaves one file writes its arrays to where the library of the format will want them, so
that none is copied in the end. State 0 is in the files of such a parity that the last state is in
those of parity 0, where the snapshots are; one that is resumed with another number of sweeps ends
in the other one, and its snapshots are copied. Where fields are no files there is that of parity 0
alone, into which the last state is copied.
"""

from __future__ import annotations

import errno
import os
from math import prod
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
import numpy as np
from numpy.typing import DTypeLike

from outgrid.durable import partial_path
from outgrid.formats.npy import HEADER_BYTES, reserve_npy
from outgrid.formats.source import writing
from outgrid.regular import own

__all__ = ["Place", "Together", "copy_array", "copy_bytes", "take_copy"]

COPY_BYTES = 4 << 20

Bytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]  # that 64 bits can add to
Place: TypeAlias = tuple[Path, int]
"""A file, and the first byte of what is in it."""


class Together(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first byte of each array, by name, in the files of ``field``, the first of them.

    The files of parity 0 and 1 are so many ``nbytes`` long; of 0 there is none.
    """

    field: str
    offsets: dict[str, Bytes]
    nbytes: tuple[Bytes, Bytes]

    def file(self, scratch: Path, parity: int) -> Path:
        """The working file of a parity."""
        return scratch / f"{self.field}.{parity}.npy"

    def result(self, out: Path) -> Path:
        """The file of the last state, in place."""
        return out / f"{self.field}.npy"

    def frames(self, out: Path, scratch: Path, name: str) -> Place | None:
        """Where the frames of that name begin, in which file; None where they have one apart."""
        if name not in self.offsets:
            return None
        working, result = self.file(scratch, 0), self.result(out)
        there = result if result.exists() and not working.exists() else working
        return there, self.offsets[name]


def take_copy(of: Path, offset: int, path: Path, shape: tuple[int, ...], dtype: DTypeLike) -> None:
    """Copy an array that begins there in a file to the partial file of ``path``, durably.

    Raises StoreError.
    """
    partial = partial_path(path)
    with writing(partial):
        partial.unlink(missing_ok=True)
        reserve_npy(partial, shape, dtype)
    copy_array(of, offset, partial, HEADER_BYTES, shape, dtype)


def copy_array(
    of: Path, begin: int, to: Path, at: int, shape: tuple[int, ...], dtype: DTypeLike
) -> None:
    """Copy an array from where it begins in a file into another one, durably. Raises StoreError."""
    with (
        writing(to),
        open(of, "rb", buffering=0, opener=own) as given,
        open(to, "r+b", buffering=0, opener=own) as taken,
    ):
        nbytes = prod(shape) * np.dtype(dtype).itemsize
        copy_bytes(given.fileno(), begin, taken.fileno(), at, nbytes)
        os.fsync(taken.fileno())


def copy_bytes(of: int, begin: int, to: int, at: int, nbytes: int) -> None:
    """Copy bytes between files, within the kernel where it can. Raises OSError."""
    inside = True
    while nbytes > 0:
        count = 0
        if inside:
            try:
                count = os.copy_file_range(of, to, min(nbytes, 1 << 30), begin, at)
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                    raise
                inside = False
        else:
            part = os.pread(of, min(nbytes, COPY_BYTES), begin)
            count = os.pwrite(to, part, at) if part else 0
        if not count and (not inside or begin >= os.fstat(of).st_size):
            raise OSError(errno.EIO, "the file ends before its data")
        inside = inside and count > 0
        begin, at, nbytes = begin + count, at + count, nbytes - count
