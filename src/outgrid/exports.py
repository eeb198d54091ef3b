"""Results, snapshots and any file of values as files of other formats, streamed."""

from __future__ import annotations

import dataclasses
import json
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from outgrid.errors import UsageError
from outgrid.formats import Box, InputFile, Source, Straight, boxes, open_file
from outgrid.formats.axis import Along, Axis, told_apart
from outgrid.formats.npy import read_header
from outgrid.formats.objects import check_free, fetch, is_url, send
from outgrid.formats.registry import Format, format_of, suffixes, written
from outgrid.formats.sink import Array, Codec, Filing, copy
from outgrid.formats.source import Coords, whole_axes
from outgrid.formats.views import Transposed, Widened
from outgrid.numbers import BFLOAT16
from outgrid.result import TRACES, Result
from outgrid.runs.samples import TRACES_NAME
from outgrid.stencil.labels import tolerance
from outgrid.stencil.symbol import AXES
from outgrid.storage import Joined, queued
from outgrid.units import format_bytes, format_seconds, suggest

__all__ = ["Exported", "convert", "export"]

LEAST_MEMORY_BYTES = 1 << 20
PIECE_BYTES = 64 << 10  # of rows of a field in pieces that are read at once


class Exported(msgspec.Struct, frozen=True):
    """What was written, how fast, and `notes` of what the new file does not tell."""

    path: str | Path
    arrays: tuple[str, ...]
    nbytes: int
    file_bytes: int
    seconds: float
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """In a line."""
        rate = self.nbytes / max(self.seconds, 1e-9) / 1e9
        return (
            f"{self.path}: {', '.join(self.arrays)}, {format_bytes(self.nbytes)} of "
            f"values, {format_bytes(self.file_bytes)} on disk, {format_seconds(self.seconds)}, "
            f"{rate:.3g} GB/s"
        )


def export(
    result: Result,
    to: str | Path,
    *,
    fields: Sequence[str] | None = None,
    chunks: int | Sequence[int] | None = None,
    codec: str = "none",
    shards: bool = True,
    levels: bool = False,
    memory_bytes: int = 256 << 20,
    overwrite: bool = False,
    told: Callable[[int, int], object] | None = None,
    dt: float | None = None,
) -> Exported:
    """Write what a finished run has left into a file of the format that `to` ends in.

    `fields` are names of fields, of snapshots ("snapshot.0"), and "traces", which receivers left;
    or all fields. `dt` is the time of a step in seconds, in place of that of the grid. `chunks`
    are cells along each axis, or one number for all; `codec` is "zstd", "zstd:3", "gzip", ... as
    the format knows them. A Zarr array lies in shards of many chunks, or without `shards` in a file
    for each chunk. `levels` makes a pyramid after OME-Zarr. The record stands beside the arrays, as
    JSON, where the format has attributes. `told(done, total)` hears how many bytes are written.

    `to` may be a URL of an object store: the file is made in a temporary folder and copied there.

    Raises UsageError for what is not there or cannot be stored, StoreError where bytes cannot be
    moved. A file that is not complete is never there under its name.
    """
    if dt is not None and not 0 < dt < float("inf"):
        raise UsageError(f"dt must be a time step in seconds, above 0, not {dt}")
    described = result.described(dt)
    record = {"outgrid": json.dumps(result.record.to_dict())}
    wanted: dict[str, _Wanted] = {}
    for name in fields if fields is not None else result:
        if name not in described:
            raise UsageError(f"the run in {result.out} has no {name!r}{suggest(name, described)}")
        axes, units = described[name]
        traces = name == TRACES and TRACES not in result
        attributes = record | units | (result.source_places if traces else {})
        along = result.places if traces else ()
        wanted[name] = _Wanted(partial(_field, result, name), axes, attributes, along)
    how = _How(chunks, Codec.of(codec), shards, levels, memory_bytes, overwrite, told)
    return how.write(wanted, to)


def convert(
    file: InputFile,
    to: str | Path,
    *,
    chunks: int | Sequence[int] | None = None,
    codec: str = "none",
    shards: bool = True,
    levels: bool = False,
    memory_bytes: int = 256 << 20,
    overwrite: bool = False,
    told: Callable[[int, int], object] | None = None,
) -> Exported:
    """Write the array in a file, or in an object store, as another format; see `export`."""
    how = _How(chunks, Codec.of(codec), shards, levels, memory_bytes, overwrite, told)
    with _near(file) as near:
        inside = near.name.strip("/") or near.file.name.partition(".")[0]
        return how.write({inside.rpartition("/")[2]: _Wanted(partial(open_file, near))}, to)


class _Wanted(msgspec.Struct, frozen=True):
    """An array to be written: its values, and what is known of it beside what its file says."""

    open: Callable[[], Source]
    axes: tuple[Axis, ...] = ()
    attributes: Mapping[str, Any] = {}
    along: tuple[Along, ...] = ()


class _How(msgspec.Struct, frozen=True):
    """How arrays are written."""

    chunks: int | Sequence[int] | None
    codec: Codec
    shards: bool
    levels: bool
    memory_bytes: int
    overwrite: bool
    told: Callable[[int, int], object] | None

    def write(self, wanted: Mapping[str, _Wanted], to: str | Path) -> Exported:
        """Write to a file, or to one that is then copied to where a URL says."""
        if not is_url(str(to)):
            return self._file(wanted, Path(to))
        if not self.overwrite:
            check_free(str(to))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / str(to).rstrip("/").rpartition("/")[2]
            exported = self._file(wanted, path)
            send(path, str(to))
            return replace(exported, path=str(to))

    def _file(self, wanted: Mapping[str, _Wanted], path: Path) -> Exported:
        kind = self._format(path, wanted)
        begin, filing = time.perf_counter(), Filing(path, overwrite=self.overwrite)
        opened: dict[str, Source] = {}
        total, done = 0, 0

        def moved(nbytes: int) -> None:
            nonlocal done
            done += nbytes
            if self.told is not None:
                self.told(done, total)

        with ExitStack() as leaving:
            leaving.callback(filing.remove)
            for name, one in wanted.items():
                values = queued(one.open())
                leaving.callback(values.close)
                opened[name] = _widened(values) if ".npy" not in kind.suffixes else values
            total = sum(prod(values.shape) * values.dtype.itemsize for values in opened.values())
            axes = {
                name: (wanted[name].axes or _axes(values), values.shape)
                for name, values in opened.items()
            }
            unknown = (values for name, values in opened.items() if not wanted[name].axes)
            notes = tuple(note for values in unknown for note in _left_out(values))
            apart = told_apart(axes)
            with closing(kind.create_output(filing.partial)) as output:
                for name, values in opened.items():
                    array = self._array(name, wanted[name], values, apart[name])
                    copy(values, output.array(array), self.memory_bytes, moved)
                output.commit()
            filing.place()
        return Exported(path, (*wanted,), done, _size(path), time.perf_counter() - begin, notes)

    def _format(self, path: Path, wanted: Mapping[str, _Wanted]) -> Format:
        """The format of a file that can hold what is wanted in this way."""
        if not path.name.lower().endswith(suffixes()):
            raise UsageError(f"{path} ends in {path.suffix!r}; {written()}")
        kind, names = format_of(path.name), [*wanted]
        if len(names) != 1 and not kind.named:
            raise UsageError(
                f"{path} holds one array, and there are {len(names)}: {', '.join(names)}; choose "
                f"one with --field {names[0] if names else 'NAME'}"
            )
        if self.memory_bytes < LEAST_MEMORY_BYTES:
            raise UsageError(
                f"memory must be at least {LEAST_MEMORY_BYTES} bytes, not {self.memory_bytes}"
            )
        if not self.shards and ".zarr" not in kind.suffixes:
            raise UsageError(f"{path} has no shards; leave unsharded out")
        return kind

    def _array(self, name: str, one: _Wanted, source: Source, axes: tuple[Axis, ...]) -> Array:
        """What a sink is to make of a source."""
        extents, chunks = source.shape, self.chunks
        if isinstance(chunks, int):
            chunks = (chunks,) * len(extents)
        cells = tuple(chunks or ())
        if cells and (len(cells) != len(extents) or min(cells) < 1):
            raise UsageError(
                f"chunks of {cells} cells do not fit {name}, of shape {extents}; give one "
                "number, or one for each axis, of at least 1"
            )
        return Array(
            name,
            extents,
            source.dtype.newbyteorder("="),
            axes,
            tuple(map(min, cells, extents)),
            self.codec,
            self.shards,
            self.levels,
            self.memory_bytes,
            {**one.attributes},
            one.along,
        )


@contextmanager
def _near(file: InputFile) -> Generator[InputFile]:
    """A file, or a copy of one in an object store."""
    if not is_url(file.path):
        yield file
        return
    with tempfile.TemporaryDirectory() as folder:
        yield dataclasses.replace(file, path=str(fetch(file.path, Path(folder))))


def _widened(source: Source) -> Source:
    """A file in a type that other formats know."""
    return Widened(source) if source.dtype.name == BFLOAT16 else source


def _axes(source: Source) -> tuple[Axis, ...]:
    """The axes of a file, where its cells lie evenly along them."""
    known = ("time", *AXES)
    others = (f"axis_{number}" for number in range(len(source.shape) - len(known)))
    dims = source.dims or (*others, *known)[-len(source.shape) :]
    return tuple(_even(dim, source.coords.get(dim)) or Axis(dim) for dim in dims)


def _even(dim: str, values: NDArray[Any] | None) -> Axis | None:
    """The axis whose cells lie at these coordinates; None where they are not even."""
    if values is None or values.dtype.kind not in "iuf" or not len(values):
        return None
    first, last = float(values[0]), float(values[-1])
    axis = Axis(dim, first, (last - first) / (len(values) - 1) if len(values) > 1 else 1.0)
    apart = abs(values.astype(np.float64) - axis.values(len(values)))
    return axis if axis.spacing and (apart <= tolerance(axis.spacing, values)).all() else None


def _left_out(source: Source) -> tuple[str, ...]:
    """What is told of coordinates of a file that do not go with its values."""
    return tuple(
        f"coordinates {dim} are not evenly spaced numbers and are left out; cells along it have "
        "the coordinates 0, 1, 2, ..."
        for dim, values in source.coords.items()
        if dim in source.dims and _even(dim, values) is None
    )


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(file.stat().st_size for file in files if file.is_file())


def _field(result: Result, name: str) -> Source:
    """A field, a snapshot, or what receivers saw: a trace is a row."""
    if name == TRACES and name not in result:
        return Transposed(open_file(InputFile(str(result.out / TRACES_NAME))), (1, 0))
    field = result.get(name)
    if isinstance(field, Joined):
        return _Pieces(field)
    path = result.path(name) if name in result else result.out / result.record.frames_file(name)
    header = result.header(name)
    if header is not None:
        return Straight(path, header.shape, header.dtype, header.data_offset)
    order = "F" if read_header(path).fortran_order else "C"
    return open_file(InputFile(str(path), order=order))


class _Pieces(msgspec.Struct, frozen=True):
    """A field that ranks have left in pieces."""

    joined: Joined
    dims: tuple[str, ...] = ()
    coords: Coords = msgspec.field(default_factory=dict[str, NDArray[Any]])

    @property
    def shape(self) -> tuple[int, ...]:
        return self.joined.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.joined.dtype

    @property
    def chunk(self) -> tuple[int, ...]:
        return whole_axes(self.shape, 1)

    @property
    def decoded_bytes(self) -> int:
        """A few whole rows, of which a box may have a part."""
        return self._rows * self._row_bytes

    @property
    def _row_bytes(self) -> int:
        return self.shape[-1] * self.dtype.itemsize

    @property
    def _rows(self) -> int:
        return max(1, PIECE_BYTES // self._row_bytes)

    @property
    def at_once(self) -> int:
        return 1

    def read(self, box: Box) -> NDArray[Any]:
        values = np.empty(tuple(map(len, box)), self.dtype)
        *across, cells = box
        for part in boxes(across, (1,) * len(across), self._rows):
            within = (
                slice(some.start - whole.start, some.stop - whole.start)
                for some, whole in zip(part, across, strict=True)
            )
            read = self.joined.read(*part)
            values[tuple(within)] = read[..., cells.start : cells.stop]
        return values

    def close(self) -> None:
        pass
