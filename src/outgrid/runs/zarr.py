"""The folder of a run as a group of Zarr, of version 3, beside its .npy files and without a copy.

    OUT/zarr.json       the group: all metadata, and the record
    OUT/u.npy           the planes, and behind them an index of them: also the one shard of `u`
    OUT/u/zarr.json     the array
    OUT/u/c/0/0/0       another name of u.npy (a hard link)
    OUT/z/zarr.json     where the cells along z lie
    OUT/z/c/0           and these numbers
    OUT/u.pyramid/      where levels were asked for, see `formats.levels`: level 0 is u.npy again

Shards of a field that ranks have left in pieces are the pieces, where all are of one size, so that
each rank owns whole shards. Every file here follows from the record: what a process that was cut
off has left of them is written again.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from outgrid.axes import in_fortran_order
from outgrid.durable import make_folder, remove_folder, sync_all
from outgrid.errors import StoreError
from outgrid.formats.axis import coordinates, told_apart
from outgrid.formats.levels import (
    level_chunk,
    level_dtype,
    level_files,
    level_shapes,
    multiscales,
    pyramid_of,
    whole_chunks,
)
from outgrid.formats.npy import bare_npy
from outgrid.formats.shard import ABSENT, chunk_of, index_of
from outgrid.formats.views import BITS_OF
from outgrid.numbers import BFLOAT16
from outgrid.record import Record
from outgrid.regular import own
from outgrid.stencil.meaning import described
from outgrid.stencil.problem import PREVIOUS, Problem
from outgrid.stencil.snapshot import snapshots_by_file

__all__ = ["ZARR_NAME", "begun", "leave_group", "names_of", "pyramid_names", "remove"]

ZARR_NAME = "zarr.json"
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class _Shard(msgspec.Struct, frozen=True):
    """A file that is shard number ``at`` of an array along each axis, of so many ``chunks``.

    ``skipped`` are the planes and rows at its beginning that are no part of the shard: where they
    are known, each chunk is in a plane of its own.
    """

    file: str
    at: tuple[int, ...]
    chunks: int
    skipped: tuple[int, int] | None = None

    @property
    def key(self) -> str:
        """The name of the shard in the folder of its array."""
        return "/".join(("c", *map(str, self.at)))


class _Stored(msgspec.Struct, frozen=True):
    """An array of the group, of shards in files, or a coordinate whose values are given.

    Chunks of one in Fortran order lie so in the file.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    shard: tuple[int, ...]
    chunk: tuple[int, ...]
    shards: tuple[_Shard, ...]
    dims: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    values: NDArray[np.float64] | None = None
    fortran: bool = False

    @property
    def metadata(self) -> dict[str, Any]:
        """The content of its zarr.json."""
        bits = self.dtype.name == BFLOAT16  # which zarr-python does not know
        numbers = {"name": "bytes", "configuration": {"endian": "little"}}
        axes = [*range(len(self.shape))]
        turned = {"name": "transpose", "configuration": {"order": axes[::-1]}}
        index = {
            "chunk_shape": self.chunk,
            "codecs": [turned, numbers] if self.fortran else [numbers],
            "index_codecs": [numbers, {"name": "crc32c"}],
            "index_location": "end",
        }
        sharded = {"name": "sharding_indexed", "configuration": index}
        shard = tuple(max(1, extent) for extent in self.shard or self.shape)
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": self.shape,
            "data_type": "uint16" if bits else self.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shard}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": "NaN" if self.dtype.kind == "f" else 0,
            "codecs": [sharded if self.chunk else numbers],
            "attributes": {**self.attributes, **({BITS_OF: BFLOAT16} if bits else {})},
            "dimension_names": self.dims,
            "storage_transformers": [],
        }

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are made for it."""
        values = [f"{self.name}/{shard.key}" for shard in self.shards]
        values += [f"{self.name}/c/0"] if self.values is not None else []
        return (f"{self.name}/{ZARR_NAME}", *values)


def names_of(problem: Problem, fields: Iterable[str]) -> tuple[str, ...]:
    """The files that a run of one process is going to make here, of fields of these names."""
    every = _described(problem, _whole(problem, fields, problem.steps))
    return (ZARR_NAME, *(name for array in every for name in array.files))


def pyramid_names(problem: Problem, field: str) -> list[str]:
    """The files of the pyramid of a field: its levels, the field itself as the finest, the rest."""
    folder, shape = pyramid_of(field), problem.shape
    levels = [f"{folder}/{level}/{ZARR_NAME}" for level in range(len(level_shapes(shape)))]
    finest = f"{folder}/0/" + "/".join(("c", *("0" for _ in shape)))
    return [*level_files(field, shape), *levels, finest, f"{folder}/{ZARR_NAME}"]


def leave_group(out: Path, record: Record) -> Record:
    """Make the folder of a finished run a group, durably; the record that names its files.

    Where the file system gives files no second name, the record warns that it is none. Raises
    StoreError.
    """
    problem = Problem.from_dict(record.problem)
    steps = record.parts[-1].last_step if record.parts else problem.steps
    alone = () if record.pieces else tuple(record.files)
    order = in_fortran_order(int(record.planned.get("transposed", 0)))
    arrays = [*_in_pieces(problem, record), *_whole(problem, alone, steps, order)]
    every = _described(problem, arrays)
    coarser = [name for name in alone if pyramid_names(problem, name)[-1] in record.left]
    finest = [array for array in every if array.name in coarser]
    every += [level for array in finest for level in _levels(array)]
    made = (ZARR_NAME, *(name for array in every for name in array.files))
    made = tuple(name for name in made if name not in record.left)
    named = msgspec.structs.replace(record, left=(*record.left, *made))
    try:
        _write(out, every, named, _groups(problem, finest))
    except StoreError:
        raise
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise StoreError("cannot write", path=out, errno=error.errno) from error
        text = (
            f"{out} is not a Zarr group: its file system has no hard links "
            f"({os.strerror(error.errno or 0)}); outgrid export writes one elsewhere"
        )
        return msgspec.structs.replace(named, warnings=(*record.warnings, text))
    return named


def begun(out: Path, problem: Problem, fields: Iterable[str]) -> tuple[Path, ...]:
    """What a process that was cut off in `leave_group` has left, of fields of these names."""
    paths = [out / ZARR_NAME]
    for folder in _folders(out, problem, fields):
        paths += [folder / ZARR_NAME, *sorted((folder / "c").rglob("*"))]
    return tuple(path for path in paths if path.is_file())


def remove(out: Path, problem: Problem, fields: Iterable[str]) -> None:
    """Remove these files, and their folders. The planes of results stay under their first name."""
    names = [*fields]
    for path in begun(out, problem, names):
        path.unlink()
    for folder in _folders(out, problem, names):
        inside = sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True)
        for directory in (*inside, folder):
            remove_folder(directory)


def _folders(out: Path, problem: Problem, fields: Iterable[str]) -> Iterator[Path]:
    """The folders of arrays that are there."""
    names = (Path(name).parts for name in names_of(problem, fields))
    every = dict.fromkeys(out / parts[0] for parts in names if len(parts) > 1)
    return (folder for folder in every if folder.is_dir() and not folder.is_symlink())


def _whole(
    problem: Problem, fields: Iterable[str], steps: int, fortran: bool = False
) -> Iterator[_Stored]:
    """Fields that are one file each, and the snapshots, if there are any all in one order."""
    shapes = {
        name: (problem.shape, problem.dtype_of(name.removesuffix(PREVIOUS))) for name in fields
    }
    for file, snapshot in snapshots_by_file(problem.snapshots).items():
        shapes[Path(file).stem] = (
            snapshot.shape(problem.shape, steps),
            problem.dtype_kept(snapshot),
        )
    for name, (shape, kind) in shapes.items():
        dtype = np.dtype(kind)
        chunk = chunk_of(shape[::-1] if fortran else shape, dtype.itemsize)
        chunk = chunk[::-1] if fortran else chunk
        count = prod(shape) // prod(chunk)
        shards = (_Shard(f"{name}.npy", (0,) * len(shape), count),) if count else ()
        yield _Stored(name, shape, dtype, shape, chunk, shards, fortran=fortran)


def _in_pieces(problem: Problem, record: Record) -> Iterator[_Stored]:
    """The fields that ranks have left, where the parts of all of them are of one size."""
    shape = problem.shape
    for name, pieces in record.pieces.items():
        planes = pieces[0].high - pieces[0].low
        rows = pieces[0].high_row - pieces[0].low_row
        if not all(
            piece.low % planes == 0
            and piece.high == min(shape[0], piece.low + planes)
            and piece.low_row % rows == 0
            and piece.high_row == piece.low_row + rows
            for piece in pieces
        ):
            continue
        dtype = np.dtype(problem.dtype_of(name.removesuffix(PREVIOUS)))
        across = (rows, shape[-1])[3 - len(shape) :]
        shards = tuple(
            _Shard(
                piece.file,
                (piece.low // planes, *(piece.low_row // rows, 0)[3 - len(shape) :]),
                piece.high - piece.low,
                (piece.low - piece.first, piece.low_row - piece.first_row),
            )
            for piece in pieces
        )
        yield _Stored(name, shape, dtype, (planes, *across), (1, *across), shards)


def _described(problem: Problem, arrays: Iterable[_Stored]) -> list[_Stored]:
    """Arrays with what is said of them, and their coordinates."""
    stored = {array.name: array for array in arrays}
    snapshots = {Path(file).stem for file in snapshots_by_file(problem.snapshots)}
    said = described(problem, [name for name in stored if name not in snapshots])
    apart = told_apart({name: (said[name][0], array.shape) for name, array in stored.items()})
    every = [
        replace(array, dims=tuple(axis.name for axis in apart[name]), attributes=said[name][1])
        for name, array in stored.items()
    ]
    beside = coordinates((apart[name], array.shape, ()) for name, array in stored.items())
    return every + [
        _Stored(
            name, at.values.shape, at.values.dtype, (), (), (), (at.dim,), at.attributes, at.values
        )
        for name, at in beside.items()
    ]


def _levels(array: _Stored) -> Iterator[_Stored]:
    """All levels of an array: the finest is the array itself."""
    folder = pyramid_of(array.name)
    yield replace(array, name=f"{folder}/0")
    for level, shape in enumerate(level_shapes(array.shape)[1:], 1):
        yield replace(
            array,
            name=f"{folder}/{level}",
            shape=shape,
            dtype=level_dtype(array.dtype),
            shard=whole_chunks(shape),
            chunk=level_chunk(shape),
            shards=(),
        )


def _groups(problem: Problem, finest: Sequence[_Stored]) -> dict[str, dict[str, Any]]:
    """What is said of the pyramids of fields, by the names of their folders."""
    count = len(level_shapes(problem.shape))
    said = described(problem, [array.name for array in finest])
    groups: dict[str, dict[str, Any]] = {}
    for array in finest:
        named = zip(said[array.name][0], array.dims, strict=True)
        axes = [replace(axis, name=dim) for axis, dim in named]
        groups[pyramid_of(array.name)] = {
            "zarr_format": 3,
            "node_type": "group",
            "attributes": multiscales(array.name, axes, count),
        }
    return groups


def _write(
    out: Path, every: list[_Stored], record: Record, pyramids: Mapping[str, dict[str, Any]]
) -> None:
    for array in every:
        for shard in array.shards:
            _index(out, array, shard)
    for array in every:
        folder = out / array.name
        for name in array.files:
            make_folder((out / name).parent)
        _put(folder / ZARR_NAME, _json(array.metadata))
        if array.values is not None:
            _put(folder / "c/0", array.values.astype("<f8").tobytes())
    said = json.dumps(record.to_dict())
    group: dict[str, Any] = {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {"Conventions": "CF-1.8", "outgrid": said},
        "consolidated_metadata": {
            "kind": "inline",
            "must_understand": False,
            "metadata": {array.name: array.metadata for array in every} | {**pyramids},
        },
    }
    for name, said in pyramids.items():
        _put(out / name / ZARR_NAME, _json(said))
    _put(out / ZARR_NAME, _json(group))
    files = [out / name for array in every for name in array.files]
    files += [out / ZARR_NAME, *(out / name / ZARR_NAME for name in pyramids)]
    sync_all(files, [out, *(path.parent for path in files)])


def _index(out: Path, array: _Stored, shard: _Shard) -> None:
    """Write the index behind the planes of a file, and give it the name of a shard."""
    path = out / shard.file
    header = bare_npy(path)
    nbytes = prod(array.chunk) * array.dtype.itemsize
    count = prod(array.shard) // prod(array.chunk)
    row_bytes = header.shape[-1] * array.dtype.itemsize
    plane_bytes = prod(header.shape[1:]) * array.dtype.itemsize
    planes, rows = shard.skipped or (0, 0)
    first = header.data_offset + planes * plane_bytes + rows * row_bytes
    chunks = np.full((count, 2), ABSENT, np.uint64)
    pitch = plane_bytes if shard.skipped is not None else nbytes
    chunks[: shard.chunks, 0] = first + pitch * np.arange(shard.chunks, dtype=np.uint64)
    chunks[: shard.chunks, 1] = nbytes
    index, end = index_of(chunks), header.data_offset + header.nbytes
    with open(path, "r+b", buffering=0, opener=own) as file:
        os.pwrite(file.fileno(), index, end)
    name = out / array.name / shard.key
    make_folder(name.parent)
    name.unlink(missing_ok=True)
    os.link(path, name)


def _put(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)


def _json(content: object) -> bytes:
    return json.dumps(content, indent=1).encode() + b"\n"
