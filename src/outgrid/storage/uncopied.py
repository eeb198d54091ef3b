"""Levels that a run begins with and reads in the files of others, where they lie there.

Such a file is never written, and has to stay as it is as long as the run reads it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

import msgspec
import numpy as np

from outgrid.errors import StoreError, UsageError, file_errors
from outgrid.formats.npy import Header
from outgrid.native import File
from outgrid.regular import given
from outgrid.seal import UNSEALED, Seal
from outgrid.storage.base import Planes, Store, Wrapping
from outgrid.storage.direct import DirectStore
from outgrid.storage.transfers import Transfers

__all__ = ["BegunStore", "GivenStore", "Uncopied"]


class Uncopied(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a level lies in a file of others: its first byte is ``offset`` bytes into it.

    The file had ``nbytes`` and was ``written_ns`` after 1970 when the run began. The checksums
    beside it are of the ``seal``, where there is one.
    """

    path: str
    offset: int
    nbytes: int
    written_ns: int
    seal: Seal | None = None

    @classmethod
    def of(cls, path: Path, offset: int, seal: Seal | None = None) -> Self:
        """A level in a file as it is now. Raises OSError."""
        status = path.stat()
        return cls(os.path.abspath(path), offset, status.st_size, status.st_mtime_ns, seal)

    @property
    def meant(self) -> bool:
        """Whether this may be said of a file, where a manifest may have been changed."""
        return (
            Path(self.path).is_absolute()
            and "\0" not in self.path
            and (0 <= self.offset <= self.nbytes)
        )

    def check_unchanged(self, name: str, descriptor: int | None = None) -> None:
        """Raise UsageError where the file is not what it was when the run began.

        That is the one of its name, or the one that is open already, whatever its name is now.
        """
        try:
            status = os.stat(self.path if descriptor is None else descriptor)
        except OSError as error:
            happened = f"cannot be read any more ({error.strerror})"
        else:
            if (status.st_size, status.st_mtime_ns) == (self.nbytes, self.written_ns):
                return
            happened = "changed after the run had begun"
        raise UsageError(
            f"the run reads {name} where it lies, in {self.path}, and that file {happened}; put it "
            "back with the time at which it was written, or begin the run again in another folder"
        )

    def header(self, shape: tuple[int, ...], dtype: str) -> Header:
        """What such a file may not say itself."""
        return Header(shape, np.dtype(dtype), False, self.offset)


class GivenStore(DirectStore):
    """A level in a file of others. Rows that are read are compared with checksums, if any."""

    _place: Uncopied
    _descriptor: int

    @classmethod
    def at(
        cls, place: Uncopied, name: str, shape: tuple[int, ...], dtype: str, transfers: Transfers
    ) -> Self:
        """The level in a file that is as it was. Raises UsageError, StoreError."""
        path, header = Path(place.path), place.header(shape, dtype)
        place.check_unchanged(name)
        if place.offset + header.nbytes > place.nbytes:
            raise StoreError(f"is too short to hold {name}", path=path)
        with file_errors("cannot open", path):
            descriptor = given(path, os.O_RDONLY)
            try:
                file = File(path, "r", True)
            except BaseException:
                os.close(descriptor)
                raise
        try:
            sums = "r" if place.seal is not None else None
            store = cls(path, file, transfers, reserved=False, sums=sums, header=header)
        except BaseException:
            file.close()
            os.close(descriptor)
            raise
        store.name, store._place, store._descriptor = name, place, descriptor
        store._seal = place.seal or UNSEALED
        return store

    def check_unchanged(self) -> None:
        """Raise UsageError where the file that is read is not what it was."""
        self._place.check_unchanged(self.name, self._descriptor)

    def hold(self, seal: Seal) -> None:
        """What a file holds is not for the run to say."""

    def put(self, planes: range, rows: range, source: Planes) -> int:
        raise NotImplementedError("files of others are only read")

    def flush(self) -> int:
        return self._transfers.call(lambda: 0)

    def close(self) -> None:
        """Let go of the file; transfers under way still end."""
        super().close()
        os.close(self._descriptor)


class BegunStore(Wrapping):
    """A level that begins in a file of others: what is held of ``step`` is read there, all else in
    the store of the run."""

    def __init__(self, store: Store, given: Store, step: int) -> None:
        super().__init__(store)
        self._given, self._step, self._begins = given, step, False

    def hold(self, seal: Seal) -> None:
        """The step that a seal is of says in which store the planes are."""
        self._begins = seal.step == self._step
        super().hold(seal)

    def get(self, planes: range, rows: range, into: Planes) -> int:
        store = self._given if self._begins else self._store
        return store.get(planes, rows, into)

    def put(self, planes: range, rows: range, source: Planes) -> int:
        if self._begins:
            raise NotImplementedError("a run does not write what it begins with")
        return self._store.put(planes, rows, source)

    def flush(self) -> int:
        return self._store.flush()

    def close(self) -> None:
        """Close both."""
        self._given.close()
        super().close()
