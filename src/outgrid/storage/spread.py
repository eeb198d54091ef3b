"""Fields spread over several folders or devices: striped, or each on a part of a raw device."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec
from numpy.typing import DTypeLike

from outgrid.errors import StoreError
from outgrid.formats.npy import HEADER_BYTES, check_written, read_header, write_header
from outgrid.native import File
from outgrid.regular import check_own
from outgrid.storage.base import Layout
from outgrid.storage.direct import DirectStore
from outgrid.storage.transfers import Transfers
from outgrid.units import format_bytes

__all__ = ["Parts", "SpreadStore", "device_bytes", "is_device", "require_device"]


class Parts(msgspec.Struct, frozen=True):
    """Where the image of a .npy file lies: (file or device, first byte) of each part.

    Bytes [k*stripe, (k + 1)*stripe) are in part k mod n, one behind the other. One part needs no
    stripe.
    """

    places: tuple[tuple[Path, int], ...]
    stripe_bytes: int = 0

    def part_bytes(self, nbytes: int) -> int:
        """Bytes of the largest part of `nbytes`, in whole stripes."""
        if len(self.places) == 1:
            return nbytes
        return -(-nbytes // (self.stripe_bytes * len(self.places))) * self.stripe_bytes


class SpreadStore(DirectStore):
    """One field in several parts, otherwise as `DirectStore` has it.

    `path` names the field; nothing but its checksums is there. It is no file that others could
    open: results are copied out of it.
    """

    @classmethod
    def make(
        cls,
        path: Path,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        transfers: Transfers,
        parts: Parts,
        *,
        sums: bool = False,
    ) -> "SpreadStore":
        """A new field, its space reserved: files are made, devices must be large enough.

        Raises StoreError where that fails; files that were made by then are removed.
        """
        nbytes = parts.part_bytes(HEADER_BYTES + Layout.of(shape, dtype, HEADER_BYTES).nbytes)
        made: list[Path] = []
        files: list[File] = []
        reserved = True
        try:
            for place, base in parts.places:
                if is_device(place):
                    require_device(place, base + nbytes)
                    files.append(File(place, "rw", True, base))
                else:
                    files.append(File(place, "create", True, base))
                    made.append(place)
                    reserved &= files[-1].reserve(base + nbytes)
            first, base = parts.places[0]
            write_header(first, shape, dtype, base)
            return cls._of(path, files, transfers, parts, reserved, "create" if sums else None)
        except BaseException as error:
            for file in files:
                file.close()
            for place in made:
                with suppress(OSError):
                    place.unlink()
            if not isinstance(error, OSError) or isinstance(error, StoreError):
                raise
            raise StoreError(
                f"cannot make a part of {format_bytes(nbytes)}",
                path=error.filename,
                errno=error.errno,
            ) from error

    @classmethod
    def reopen(
        cls,
        path: Path,
        transfers: Transfers,
        parts: Parts,
        mode: Literal["r", "rw"] = "r",
        *,
        sums: bool = False,
    ) -> "SpreadStore":
        """A field that exists; see `DirectStore.open`."""
        files: list[File] = []
        try:
            for place, base in parts.places:
                if not is_device(place):
                    check_own(place)
                files.append(File(place, mode, True, base))
            if sums:
                first, base = parts.places[0]
                check_written(first, read_header(first, base), base)
            return cls._of(path, files, transfers, parts, False, mode if sums else None)
        except BaseException as error:
            for file in files:
                file.close()
            if not isinstance(error, OSError) or isinstance(error, StoreError):
                raise
            raise StoreError("cannot open", path=error.filename, errno=error.errno) from error

    @classmethod
    def _of(
        cls,
        path: Path,
        files: list[File],
        transfers: Transfers,
        parts: Parts,
        reserved: bool,
        sums: Literal["r", "rw", "create"] | None,
    ) -> "SpreadStore":
        whole = files[0] if len(files) == 1 else File.striped(files, parts.stripe_bytes)
        first, base = parts.places[0]
        return cls(
            path,
            whole,
            transfers,
            reserved=reserved,
            sums=sums,
            header=read_header(first, base),
        )


def is_device(path: Path) -> bool:
    """Whether `path` is a block device."""
    try:
        return stat.S_ISBLK(path.stat().st_mode)
    except OSError:
        return False


def device_bytes(path: Path) -> int:
    """Size of a block device. Raises StoreError where it cannot be opened."""
    try:
        descriptor: Any = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.lseek(descriptor, 0, os.SEEK_END)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StoreError("cannot open the device", path=path, errno=error.errno) from error


def require_device(path: Path, nbytes: int) -> None:
    """Raise StoreError for a block device of fewer bytes."""
    size_bytes = device_bytes(path)
    if size_bytes < nbytes:
        raise StoreError(
            f"the device has {format_bytes(size_bytes)} and the run needs "
            f"{format_bytes(nbytes)} there",
            path=path,
            errno=errno.ENOSPC,
        )
