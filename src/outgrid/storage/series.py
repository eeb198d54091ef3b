"""A coefficient that changes with every step: of files that others made, read where they lie."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from outgrid.errors import StoreError, UsageError
from outgrid.formats.npy import Header, read_header
from outgrid.native import File, fold
from outgrid.regular import check_given
from outgrid.seal import Seal
from outgrid.storage.base import LaidOut, Layout, Planes
from outgrid.storage.direct import DirectStore
from outgrid.storage.transfers import Transfers
from outgrid.storage.uncopied import Uncopied

KEPT_FILES = 2  # sweeps read their frames in turns where they overlap

__all__ = ["Frame", "SeriesStore", "Stamps", "check_stamps", "frames_of", "read_frame", "stamps_of"]

Stamps = tuple[tuple[int, int], ...]
"""Bytes and time of writing, in ns after 1970, of each file of a series."""


class Frame(msgspec.Struct, frozen=True):
    """An array in a .npy file, at the place that its header says; there may be more in the file."""

    path: Path
    header: Header


def frames_of(
    paths: Sequence[str],
    name: str,
    shape: tuple[int, ...],
    dtype: str,
    lacks: int | None = None,
) -> tuple[Frame, ...]:
    """All frames of a series ``name`` of arrays of ``shape``, of which they may lack an axis.

    Raises UsageError, StoreError.
    """
    whole = lacks is None
    shape = tuple(extent for axis, extent in enumerate(shape) if axis != lacks)
    return tuple(frame for path in paths for frame in _frames(path, name, shape, dtype, whole))


def _frames(
    path: str, name: str, shape: tuple[int, ...], dtype: str, whole: bool
) -> Iterator[Frame]:
    subject = f"the series of {name!r}: {path}"
    if not Path(path).exists():
        raise UsageError(f"{subject} does not exist")
    header = read_header(path)
    frames = header.shape[: len(header.shape) - len(shape)]
    if header.shape[len(frames) :] != shape or len(frames) > 1 or header.fortran_order:
        order = ", in Fortran order" if header.fortran_order else ""
        raise UsageError(
            f"{subject} holds an array of shape {header.shape}{order}; "
            f"the {'grid' if whole else 'face'} has {shape}, and a"
            " file of several frames one axis more in front"
        )
    if not whole and not np.can_cast(header.dtype, dtype, "same_kind"):
        raise UsageError(f"{subject} holds {header.dtype}, which is no {dtype}; save it as {dtype}")
    if whole and header.dtype != dtype:
        raise UsageError(
            f"{subject} holds {header.dtype} and is read as {dtype}; give the problem"
            f' dtypes={{"{name}": "{header.dtype}"}}, or save it as {dtype}'
        )
    one = replace(header, shape=shape)
    for number in range(frames[0] if frames else 1):
        yield Frame(Path(path), replace(one, data_offset=header.data_offset + number * one.nbytes))


def stamps_of(paths: Sequence[str]) -> Stamps:
    """What changes when one of the files of a series is written. Raises StoreError."""
    try:
        every = [Uncopied.of(Path(path), 0) for path in paths]
    except OSError as error:
        raise StoreError("cannot read", path=error.filename, errno=error.errno) from error
    return tuple((one.nbytes, one.written_ns) for one in every)


def check_stamps(name: str, paths: Sequence[str], stamps: Stamps) -> None:
    """Raise UsageError where a file of the series ``name`` is not what it was when a run began."""
    for path, stamp in zip(paths, stamps, strict=False):
        Uncopied(path, 0, *stamp).check_unchanged(name)


def read_frame(frame: Frame, planes: range | None = None) -> NDArray[Any]:
    """All values of a frame, or some planes of it. Raises StoreError."""
    header = frame.header
    shape = header.shape if planes is None else (len(planes), *header.shape[1:])
    first = planes.start * prod(shape[1:]) if planes is not None else 0
    check_given(frame.path)
    try:
        offset = header.data_offset + first * header.dtype.itemsize
        values = np.fromfile(frame.path, header.dtype, prod(shape), offset=offset)
    except OSError as error:
        raise StoreError("cannot read", path=frame.path, errno=error.errno) from error
    if len(values) != prod(shape):
        raise StoreError("is shorter than its header says", path=frame.path)
    return values.reshape(shape)


class SeriesStore(LaidOut):
    """Planes of the frame that is ``held``: the seal of what is moved says for which sweep it is.

    ``frames`` are those that are read, by the step that the sweep begins with; ``shape`` and
    ``dtype`` are those of the part of the grid that begins at plane and row ``origin``. What frames
    lack, the axis ``lacks``, is filled in where planes are read.
    """

    def __init__(
        self,
        name: str,
        frames: Mapping[int, Frame],
        shape: tuple[int, ...],
        origin: tuple[int, int],
        transfers: Transfers,
        dtype: np.dtype[Any],
        lacks: int | None = None,
    ) -> None:
        self.name, self.shape, self._frames = name, shape, frames
        self.dtype = dtype
        self._layout = Layout.of(shape, self.dtype, 0)
        self._origin, self._transfers, self._lacks = origin, transfers, lacks
        self._files: dict[Path, File] = {}  # the last ones held
        self._held: DirectStore | None = None
        self._frame: Frame | None = None

    def hold(self, seal: Seal) -> None:
        """Take the frame of the sweep that a seal is of."""
        self._frame = frame = self._frames[seal.step]
        path = frame.path
        if self._lacks is not None:
            return
        file = self._files.pop(path, None) or _opened(path)
        self._files[path] = file
        while len(self._files) > KEPT_FILES:  # transfers under way keep theirs open
            del self._files[next(iter(self._files))]
        self._held = DirectStore(path, file, self._transfers, reserved=False, header=frame.header)

    def get(self, planes: range, rows: range, into: Planes) -> int:
        plane, row = self._origin
        planes = range(planes.start + plane, planes.stop + plane)
        rows = range(rows.start + row, rows.stop + row)
        if self._held is not None:
            return self._held.get(planes, rows, into)
        into.require_whole_rows(self.name)
        folding = into.folded(rows, self.row_bytes)
        try:
            cells = self._filled(planes, rows)
        except StoreError as error:
            return self._transfers.fail(error)
        stride, nbytes = into.row_stride_bytes, self.row_bytes
        shape, strides = cells.shape[1:], (stride, self.dtype.itemsize)

        def fill(_: object = into.owner) -> int:  # which lives until then
            for address, part in zip(into.addresses.tolist(), cells, strict=True):
                memory: Any = (ctypes.c_char * ((len(rows) - 1) * stride + nbytes)).from_address(
                    address
                )
                np.ndarray(shape, self.dtype, memory, 0, strides)[...] = part
                fold(address, len(rows) * nbytes, folding)
            return len(planes) * len(rows) * nbytes

        return self._transfers.call(fill)

    def _filled(self, planes: range, rows: range) -> NDArray[Any]:
        """Rows of planes of the frame that is held, along an axis that it lacks all alike."""
        assert self._frame is not None
        lacks = self._lacks if self._lacks is not None else -1
        held = read_frame(self._frame, None if lacks == 0 else planes)
        held = np.expand_dims(held, lacks)
        if len(self.shape) == 2:
            held = held[:, None]
        elif lacks != 1:
            held = held[:, rows.start : rows.stop]
        return np.broadcast_to(held, (len(planes), len(rows), self.shape[-1]))

    def put(self, planes: range, rows: range, source: Planes) -> int:
        raise NotImplementedError("a series is only read")

    def flush(self) -> int:
        return self._transfers.call(lambda: 0)

    def close(self) -> None:
        """Let go of the files; transfers under way still end."""
        while self._files:
            self._files.popitem()[1].close()


def _opened(path: Path) -> File:
    """A file of others, to be read. Raises StoreError."""
    check_given(path)
    try:
        return File(path, "r", True)
    except OSError as error:
        raise StoreError("cannot open", path=path, errno=error.errno) from error
