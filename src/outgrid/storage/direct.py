"""The tier `direct`: a field in a .npy file, moved past the page cache."""

import errno
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import DTypeLike

from outgrid.durable import sync_folder
from outgrid.errors import StoreError, UsageError
from outgrid.formats.npy import (
    HEADER_BYTES,
    Header,
    check_written,
    read_header,
    write_header,
)
from outgrid.native import File
from outgrid.regular import check_given, check_own, own
from outgrid.seal import UNSEALED, Seal
from outgrid.storage.base import Habits, LaidOut, Layout, NewField, Planes, Within, other_planes
from outgrid.storage.sums import Sums, sums_path
from outgrid.storage.transfers import Transfers
from outgrid.units import format_bytes

__all__ = ["DirectStore", "Within", "takes_direct"]


class DirectStore(LaidOut):
    """One field as a .npy file; see `Store` for the moving of planes.

    Planes and rows are those of the file. In one of Fortran order, which only runs make that ask
    for it, a plane is one index of the last axis, and a row one of the last two.

    `direct` is False where the file system has no transfers past the page cache: then all of them
    go through it. `reserved` is False where space could not be set aside, or was not asked for.
    """

    def __init__(
        self,
        path: Path,
        file: File,
        transfers: Transfers,
        *,
        reserved: bool,
        sums: Literal["r", "rw", "create"] | None = None,
        header: Header | None = None,
    ) -> None:
        header = header or read_header(path)
        if header.fortran_order and len(header.shape) > 1 and sums is None:
            raise UsageError(
                f"{path} is in Fortran order; save it again with np.ascontiguousarray(...)"
            )
        if len(header.shape) not in (2, 3):
            raise UsageError(f"{path} has shape {header.shape}; a field has 2 or 3 axes")
        self.path = path
        self.name = path.stem
        self.shape = shape = header.shape_in_file
        self.dtype: np.dtype[Any] = header.dtype
        self.reserved = reserved
        self.direct = file.direct
        self._layout = Layout.of(shape, header.dtype, header.data_offset)
        self._empty = np.zeros(self._layout.planes, bool)  # planes that a new file was made with
        self._file = file
        self._transfers = transfers
        self._seal = UNSEALED
        self._sums: Sums | None = None
        if sums is not None:
            create = sums == "create"
            self._sums = (
                Sums.create(path, self._layout) if create else Sums.open(path, self._layout, sums)
            )

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        shape: tuple[int, ...],
        dtype: DTypeLike,
        transfers: Transfers,
        *,
        reserve: bool = True,
        overwrite: bool = False,
        direct: bool = True,
        sums: bool = False,
        absent: tuple[range, ...] = (),
        file_bytes: int = 0,
        holes: tuple[range, ...] = (),
        fortran: bool = False,
    ) -> Self:
        """A new file of zeroes, its space reserved, so that the disk cannot fill up later.

        Where it is to hold other things behind the field, it is of `file_bytes`. No space is
        reserved for `holes`, ranges of bytes in order, nor for `absent` planes: these are never
        written.

        With `sums` the checksum of every row that is written is kept in a file beside it. `shape`
        is that of the file's memory, and its header gives it the other way round where the file is
        to be in `fortran` order.

        Raises StoreError where the file exists already (unless `overwrite`), where the disk has not
        the space (saying how much it needs and has), or where the file cannot be made; what was
        made by then is removed.
        """
        path = Path(path)
        layout = Layout.of(shape, dtype, HEADER_BYTES)
        nbytes = max(HEADER_BYTES + layout.nbytes, file_bytes)
        pitch, begin = layout.plane_bytes, layout.data_offset
        absent_bytes = (range(begin + pitch * p.start, begin + pitch * p.stop) for p in absent)
        holes = (*holes, *absent_bytes)
        needed = nbytes - sum(map(len, holes))
        file = _new_file(path, direct, overwrite)
        try:
            if reserve:
                _require_space(path, needed)
                reserved = _reserve_other(path, holes, nbytes) if holes else file.reserve(nbytes)
            else:
                os.truncate(path, nbytes)
                reserved = False
            write_header(path, shape, dtype, fortran=fortran)
            sync_folder(path.parent)
            kept = "create" if sums else None
            header = read_header(path, 0)
            store = cls(path, file, transfers, reserved=reserved, sums=kept, header=header)
            store.leave_out(absent)
            store._empty[:] = True
            return store
        except BaseException as error:
            file.close()
            with suppress(OSError):
                path.unlink()
            if not isinstance(error, OSError) or isinstance(error, StoreError):
                raise
            if error.errno == errno.ENOSPC:
                raise _no_space(path, needed) from error
            raise StoreError("cannot create", path=path, errno=error.errno) from error

    @classmethod
    def create_as(cls, new: NewField, transfers: Transfers, *, direct: bool = True) -> Self:
        """The new field that is described so. Raises StoreError as `create` does."""
        if new.within is not None:
            return cls._new_within(new, transfers, new.within, direct)
        return cls.create(
            new.path,
            new.shape,
            new.dtype,
            transfers,
            direct=direct,
            sums=new.sums,
            overwrite=new.overwrite,
            absent=new.absent,
            fortran=new.fortran,
        )

    @classmethod
    def _new_within(cls, new: NewField, transfers: Transfers, within: Within, direct: bool) -> Self:
        """A new field in a file that was made for several, with space for all of them."""
        check_own(within.path)
        file = _opened(within.path, "rw", direct)
        try:
            sums = "create" if new.sums else None
            store = cls(new.path, file, transfers, reserved=True, sums=sums, header=within.header)
        except BaseException:
            file.close()
            raise
        store.path = within.path
        store.leave_out(new.absent)
        store._empty[:] = True
        return store

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        transfers: Transfers,
        mode: Literal["r", "rw"] = "r",
        *,
        direct: bool = True,
        sums: bool = False,
        within: Within | None = None,
    ) -> Self:
        """An existing .npy file of two or three axes; `mode` "rw" allows `put`.

        A field that is `within` another file has its checksums beside the `path` it would have.

        With `sums` what is read is compared with the checksums in the file beside it: a transfer
        whose rows are not what was written there ends with a StoreError.

        Raises StoreError where it cannot be opened or is shorter or longer than its header says,
        UsageError where it is no such file.
        """
        path, there = Path(path), Path(path) if within is None else within.path
        (check_own if mode == "rw" else check_given)(there)
        file = _opened(there, mode, direct)
        header = None if within is None else within.header
        try:
            if sums and within is None:
                check_written(path, read_header(path))
            kept = mode if sums else None
            store = cls(path, file, transfers, reserved=False, sums=kept, header=header)
            store.path = there
            return store
        except BaseException:
            file.close()
            raise

    def leave_out(self, planes: tuple[range, ...]) -> None:
        """Note that ``planes`` of zeroes are never written."""
        if self._sums is not None:
            self._sums.leave_out(planes)

    def leave(self, planes: range, rows: range) -> bool:
        """Whether a region holds zeroes, which the file was made of; with their checksums, then."""
        empty = bool(self._empty[planes.start : planes.stop].all())
        if empty and self._sums is not None:
            self._sums.leave(self._seal, planes, rows)
        return empty

    def hold(self, seal: Seal) -> None:
        """Say of what the planes are that are moved from now on: their checksums are of that."""
        self._seal = seal

    def get(self, planes: range, rows: range, into: Planes) -> int:
        segments, sums = self._layout.segments(planes, rows, into), self._sums
        folding = into.folded(rows, self.row_bytes)
        if sums is None or not len(rows):
            return self._transfers.read(self._file, segments, into.owner, folding=folding)
        sums.expect(planes, rows)
        check = partial(sums.compare, self.path, self._seal, planes, rows)
        return self._transfers.read(
            self._file, segments, into.owner, self.row_bytes, check, folding
        )

    def put(self, planes: range, rows: range, source: Planes) -> int:
        segments, sums = self._layout.put_segments(planes, rows, source), self._sums
        folding = source.folded(rows, self.row_bytes)
        self._empty[planes.start : planes.stop] = False
        if sums is None or not len(rows):
            return self._transfers.write(self._file, segments, source.owner, folding=folding)
        sums.expect(planes, rows)
        keep = partial(sums.write, self._seal, planes, rows)
        return self._transfers.write(
            self._file, segments, source.owner, self.row_bytes, keep, folding
        )

    def flush(self) -> int:
        if self._sums is None:
            return self._transfers.flush(self._file)
        return self._transfers.flush(self._file, self._sums.file)

    def close(self) -> None:
        """Let go of the file; transfers under way still end."""
        self._file.close()
        if self._sums is not None:
            self._sums.close()


def _new_file(path: Path, direct: bool, overwrite: bool) -> File:
    """A new file, in place of one that is there where that is to be overwritten."""
    try:
        if overwrite:
            # A new file under the old name: whoever has the old one open keeps it.
            path.unlink(missing_ok=True)
            sums_path(path).unlink(missing_ok=True)
        return File(path, "create", direct)
    except FileExistsError as error:
        raise StoreError(
            "the file exists and is not overwritten; remove it or give overwrite",
            path=path,
            errno=errno.EEXIST,
        ) from error
    except OSError as error:
        raise StoreError("cannot create", path=path, errno=error.errno) from error


def takes_direct(folder: Path) -> bool:
    """Whether files in a folder can be direct, as far as a file without a name tells."""
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError:  # the file system has no such files, or what else is wrong is told elsewhere
        return True
    try:
        return File(f"/proc/self/fd/{descriptor}", "rw", True).direct
    except OSError:
        return True
    finally:
        os.close(descriptor)


def _opened(path: Path, mode: Literal["r", "rw"], direct: bool) -> File:
    """The file at a path."""
    try:
        return File(path, mode, direct)
    except OSError as error:
        raise StoreError("cannot open", path=path, errno=error.errno) from error


def _reserve_other(path: Path, holes: tuple[range, ...], nbytes: int) -> bool:
    """Make a file of so many bytes, with space for all but `holes`; whether it is there."""
    os.truncate(path, nbytes)
    descriptor = own(path, os.O_RDWR)
    try:
        for there in other_planes(holes, nbytes):
            os.posix_fallocate(descriptor, there.start, len(there))
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        return False
    finally:
        os.close(descriptor)
    return True


def _require_space(path: Path, nbytes: int) -> None:
    status = os.statvfs(path)
    if status.f_bavail * status.f_frsize < nbytes:
        raise _no_space(path, nbytes)


def _no_space(path: Path, nbytes: int) -> StoreError:
    status = os.statvfs(path.parent)
    free = status.f_bavail * status.f_frsize
    return StoreError(
        f"the disk has too little free space: {format_bytes(nbytes)} needed, "
        f"{format_bytes(free)} free "
        f"({nbytes} and {free} bytes)",
        path=path,
        errno=errno.ENOSPC,
    )


def create(new: NewField, transfers: Transfers) -> DirectStore:
    """A new file of zeroes; there is nothing to tell the system of it."""
    return DirectStore.create_as(new, transfers)


def reopen(
    path: Path, transfers: Transfers, habits: Habits, within: Within | None = None
) -> DirectStore:
    """The field in a file, to be read and written."""
    return DirectStore.open(path, transfers, "rw", sums=True, within=within)
