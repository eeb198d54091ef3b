"""Arrays beyond local memory for programs that know nothing of stores: paging by the process.

Such an array is an ordinary NumPy array. Its pages, megabytes each, come from a file or from the
memory of other nodes when they are touched, and go back when others need their place. The kernel
hands page faults to threads of this process (userfaultfd), which never take the interpreter's lock.
"""

import atexit
import errno
import math
import os
import weakref
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outgrid import native
from outgrid.errors import StoreError, UsageError
from outgrid.formats.npy import HEADER_BYTES, header_bytes, read_header
from outgrid.regular import check_given
from outgrid.units import parse_bytes

__all__ = ["PAGE_BYTES", "Pager", "paged"]

PAGE_BYTES = 8 << 20


class Pager:
    """Arrays of which at most `local` bytes are in memory at once, all of them together.

    `page` is the unit that comes and goes (a size; a multiple of 4 KiB); `local` includes the
    frames through which pages are moved. `ahead` pages are read ahead where pages are asked for in
    ascending order; `threads` move pages. With `track_writes` pages that were only read are dropped
    instead of being written back; `track_writes=False` counts every page as written, as systems
    without write protection have to.

    An array is for use by any number of threads. A page that cannot be brought in ends the
    process with a bus error, after a line on standard error that says why. A process that is forked
    from this one does not have the array, and letting go of it there does nothing.

    Raises StoreError where the kernel does not let this process page, UsageError for sizes that do
    not fit together.
    """

    def __init__(
        self,
        local: str | int,
        *,
        page: str | int = PAGE_BYTES,
        ahead: int = 1,
        threads: int = 2,
        track_writes: bool = True,
    ) -> None:
        try:
            with _refusals():
                self._pager = native.Pager(
                    parse_bytes(local), parse_bytes(page), ahead, threads, track_writes
                )
        except ValueError as error:
            raise UsageError(f"a pager with {local} of local memory: {error}") from error
        self._memory: weakref.WeakSet[native.PagedMemory] = weakref.WeakSet()
        _open.add(self._pager)

    @property
    def page_bytes(self) -> int:
        """Bytes of a page."""
        return self._pager.page_bytes

    @property
    def resident_limit(self) -> int:
        """Pages that may be in memory at once; the frames beside them fill up `local`."""
        return self._pager.resident_limit

    @property
    def serves_system_calls(self) -> bool:
        """Whether system calls may be given memory that is away.

        Where the kernel lets this process page in user mode alone, a read(2) into such an array
        ends with EFAULT: touch or copy it first.
        """
        return self._pager.serves_kernel

    def open(self, path: str | os.PathLike[str], mode: Literal["r", "r+"] = "r") -> NDArray[Any]:
        """The array in a .npy file, of any number of axes; mode "r+" lets it be changed.

        Changes are in the file after `flush` or when the array is gone. Raises StoreError and
        UsageError as `read_header` does.
        """
        header = read_header(path)
        if mode not in ("r", "r+"):
            raise UsageError(f'a paged file is opened as "r" or "r+", not {mode!r}')
        file = _opened(path, "r" if mode == "r" else "rw")
        backing = native.Backing.of_file(file, header.data_offset, header.nbytes)
        return self.array(
            backing,
            header.shape,
            header.dtype,
            fortran_order=header.fortran_order,
            writable=mode == "r+",
        )

    def create(
        self, path: str | os.PathLike[str], shape: int | tuple[int, ...], dtype: DTypeLike
    ) -> NDArray[Any]:
        """An array of zeroes in a new .npy file, its space reserved where the file system can.

        Raises StoreError where the file exists, cannot be made, or has not the space.
        """
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        nbytes = math.prod(extents) * np.dtype(dtype).itemsize
        file = _opened(path, "create")
        try:
            file.reserve(HEADER_BYTES + nbytes)
            with open(path, "r+b") as begun:
                begun.write(header_bytes(extents, dtype))
        except OSError as error:
            Path(path).unlink(missing_ok=True)
            raise StoreError("cannot create", path=path, errno=error.errno) from error
        backing = native.Backing.of_file(file, HEADER_BYTES, nbytes)
        return self.array(backing, extents, dtype, blank=True)

    def array(
        self,
        backing: native.Backing,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        *,
        fortran_order: bool = False,
        writable: bool = True,
        blank: bool = False,
        keep: bool = True,
    ) -> NDArray[Any]:
        """An array on the bytes of `backing`.

        `blank` says that they are zeroes, which need not be fetched; `keep`, that changes have to
        be written back even when the array is gone. Raises StoreError where the memory cannot be
        mapped.
        """
        if math.prod(shape) == 0:
            return np.empty(shape, dtype)
        with _refusals():
            memory = self._pager.map(backing, writable, blank, keep)
        self._memory.add(memory)
        values = np.frombuffer(memoryview(memory), dtype)
        return values.reshape(shape, order="F" if fortran_order else "C")

    def flush(self) -> None:
        """Write back what was changed, and make it durable. Raises StoreError.

        Once a file could not be made durable it never is said to be: what was written may be lost.
        """
        with _refusals():
            self._pager.flush()

    def statistics(self) -> native.PagerStatistics:
        """Faults, pages and bytes so far."""
        return self._pager.statistics()

    def close(self) -> None:
        """Write back what was changed and give the memory back.

        Raises UsageError while an array still uses it, StoreError as `flush` does.
        """
        self.flush()
        for memory in list(self._memory):
            try:
                with _refusals():
                    memory.release()
            except BufferError as error:
                raise UsageError(f"the pager cannot be closed: {error}") from error
        _open.discard(self._pager)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if raised[0] is None:
            self.close()


def paged(
    path: str | os.PathLike[str],
    mode: Literal["r", "r+", "w+"] = "r",
    *,
    local: str | int = "1GiB",
    page: str | int = PAGE_BYTES,
    shape: int | tuple[int, ...] = (),
    dtype: DTypeLike = "float64",
) -> NDArray[Any]:
    """A .npy file as a NumPy array of which at most `local` bytes are in memory.

    Modes are those of `np.memmap`: "r" and "r+" open a file, "w+" creates one of `shape` and
    `dtype`. Unlike there, memory is bounded, transfers pass the page cache, and pages are `page`
    bytes. For several arrays with one bound, and for `flush`, make a `Pager`.
    """
    pager = Pager(local, page=page)
    return pager.create(path, shape, dtype) if mode == "w+" else pager.open(path, mode)


@contextmanager
def _refusals() -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(str(error.strerror), path=error.filename, errno=error.errno) from error


def _opened(path: str | os.PathLike[str], mode: Literal["r", "rw", "create"]) -> native.File:
    if mode != "create":
        check_given(path)
    try:
        return native.File(path, mode, True)
    except FileExistsError as error:
        raise StoreError(
            "the file exists and is not overwritten", path=path, errno=errno.EEXIST
        ) from error
    except OSError as error:
        raise StoreError("cannot open", path=path, errno=error.errno) from error


_open: weakref.WeakSet[native.Pager] = weakref.WeakSet()


@atexit.register
def _flush_all() -> None:
    """Arrays that live until the interpreter ends are written back then."""
    with ExitStack() as stack:  # all of them, whichever fail
        for pager in _open:
            stack.callback(pager.flush)
