"""A coefficient that changes with every step: of files that others made, read where they lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from outgrid.errors import StoreError, UsageError
from outgrid.formats.npy import Header, read_header
from outgrid.native import File
from outgrid.regular import check_given
from outgrid.seal import Seal
from outgrid.storage.base import LaidOut, Layout, Planes
from outgrid.storage.direct import DirectStore
from outgrid.storage.transfers import Transfers

__all__ = ["Frame", "SeriesStore", "frames_of"]


@dataclass(frozen=True, slots=True)
class Frame:
    """An array in a .npy file, at the place that its header says; there may be more in the file."""

    path: Path
    header: Header


def frames_of(
    paths: Sequence[str], name: str, shape: tuple[int, ...], dtype: str
) -> tuple[Frame, ...]:
    """All frames of a series ``name`` of arrays of ``shape``. Raises UsageError, StoreError."""
    return tuple(frame for path in paths for frame in _frames(path, name, shape, dtype))


def _frames(path: str, name: str, shape: tuple[int, ...], dtype: str) -> Iterator[Frame]:
    subject = f"the series of {name!r}: {path}"
    if not Path(path).exists():
        raise UsageError(f"{subject} does not exist")
    header = read_header(path)
    frames = header.shape[: len(header.shape) - len(shape)]
    if header.shape[len(frames) :] != shape or len(frames) > 1 or header.fortran_order:
        order = ", in Fortran order" if header.fortran_order else ""
        raise UsageError(
            f"{subject} holds an array of shape {header.shape}{order}; the grid has {shape}, and a"
            " file of several frames one axis more in front"
        )
    if header.dtype != dtype:
        raise UsageError(
            f"{subject} holds {header.dtype} and is read as {dtype}; give the problem"
            f' dtypes={{"{name}": "{header.dtype}"}}, or save it as {dtype}'
        )
    one = replace(header, shape=shape)
    for number in range(frames[0] if frames else 1):
        yield Frame(Path(path), replace(one, data_offset=header.data_offset + number * one.nbytes))


class SeriesStore(LaidOut):
    """Planes of the frame that is ``held``: the seal of what is moved says for which sweep it is.

    ``frames`` are those that are read, by the step that the sweep begins with; ``shape`` is that of
    the part of the grid that begins at plane and row ``origin``.
    """

    def __init__(
        self,
        name: str,
        frames: Mapping[int, Frame],
        shape: tuple[int, ...],
        origin: tuple[int, int],
        transfers: Transfers,
    ) -> None:
        self.name, self.shape, self._frames = name, shape, frames
        self.dtype: np.dtype[Any] = next(iter(frames.values())).header.dtype
        self._layout = Layout.of(shape, self.dtype, 0)
        self._origin, self._transfers = origin, transfers
        self._files: dict[Path, File] = {}
        self._held: DirectStore | None = None

    def hold(self, seal: Seal) -> None:
        """Take the frame of the sweep that a seal is of."""
        frame = self._frames[seal.step]
        path = frame.path
        if path not in self._files:
            check_given(path)
            try:
                self._files[path] = File(path, "r", True)
            except OSError as error:
                raise StoreError("cannot open", path=path, errno=error.errno) from error
        self._held = DirectStore(
            path, self._files[path], self._transfers, reserved=False, header=frame.header
        )

    def get(self, planes: range, rows: range, into: Planes) -> int:
        assert self._held is not None
        plane, row = self._origin
        return self._held.get(
            range(planes.start + plane, planes.stop + plane),
            range(rows.start + row, rows.stop + row),
            into,
        )

    def put(self, planes: range, rows: range, source: Planes) -> int:
        raise NotImplementedError("a series is only read")

    def flush(self) -> int:
        return self._transfers.call(lambda: 0)

    def close(self) -> None:
        """Let go of the files; transfers under way still end."""
        for file in self._files.values():
            file.close()
