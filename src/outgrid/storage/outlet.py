"""Where kernels leave what they keep of a step: files that are written from any thread."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from outgrid.errors import StoreError, file_errors
from outgrid.native import Outlet as _Outlet
from outgrid.regular import own

__all__ = ["Outlet"]


class Outlet:
    """Files of a run at ``paths``, numbered in their order; a kernel has its ``address``.

    What is put is collected in blocks, in ``held_bytes`` of memory, and a thread writes those that
    are whole through the page cache. Raises StoreError where a file cannot be opened, or the system
    has no memory or thread for it.
    """

    def __init__(self, paths: Sequence[Path], held_bytes: int) -> None:
        self.paths = tuple(paths)
        opened: list[int] = []
        try:
            for path in paths:
                opened.append(_opened(path))
            self._native = _started(opened, held_bytes)
        except BaseException:
            for file in opened:
                os.close(file)
            raise
        self._files = opened

    @property
    def address(self) -> int:
        """Of the ``struct Outlet`` of kernels."""
        return self._native.address

    def check(self) -> None:
        """Raise StoreError where something could not be written."""
        number, errno = self._native.failure
        if errno:
            raise StoreError("cannot write a snapshot", path=self.paths[number], errno=errno)

    def sync(self) -> None:
        """Wait until all that was put is durable; nothing is put meanwhile. Raises StoreError."""
        self._native.drain()
        self.check()
        for file, path in zip(self._files, self.paths, strict=True):
            try:
                os.fdatasync(file)
            except OSError as error:
                raise StoreError("cannot write", path=path, errno=error.errno) from error

    def close(self) -> None:
        """Let go of the files when all that was put is in them: nothing is put any more."""
        if self._files:
            self._native.drain()
        while self._files:
            os.close(self._files.pop())


def _opened(path: Path) -> int:
    with file_errors("cannot open", path):
        return own(path, os.O_RDWR)


def _started(files: list[int], held_bytes: int) -> _Outlet:
    try:
        return _Outlet(files, held_bytes)
    except OSError as error:
        raise StoreError(f"snapshots: {error.strerror}", errno=error.errno) from error
