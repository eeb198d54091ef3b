"""Arrays of Zarr stores, of version 2 or 3, by zarr-python."""

import base64
import struct
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import StoreError, UsageError
from outgrid.formats.axis import Axis, coordinates
from outgrid.formats.chunks import Chunks, encoded_bytes, shard_of
from outgrid.formats.codecs import decoder, encoder
from outgrid.formats.input import InputFile, check_numbers, one_of
from outgrid.formats.levels import (
    LEVEL_CELLS,
    coarser,
    level_dtype,
    level_shapes,
    multiscales,
)
from outgrid.formats.packing import absent, unpacked
from outgrid.formats.registry import library
from outgrid.formats.shard import stored_chunks
from outgrid.formats.sink import Array, Output, Sink, copy
from outgrid.formats.source import Box, Sliced, Source, View, decoding, encoding, whole_axes
from outgrid.formats.stored import Stored
from outgrid.formats.views import bits_as_numbers

__all__ = ["create_output", "open_source"]


def open_source(file: InputFile) -> Source:
    """The array of that name in the store, or the only one. Raises UsageError and StoreError."""
    zarr: Any = library("zarr", file, "zarr")
    if not file.file.is_dir():
        there = (
            ("is not a folder; Zarr stores are folders") if file.file.exists() else "does not exist"
        )
        raise StoreError(f"the store {there}", path=file.path)
    with decoding(file.file):
        opened, beside = zarr.open(file.path, mode="r"), {}
        if isinstance(opened, zarr.Group):
            arrays = {
                name: item
                for name, item in opened.members(max_depth=None)
                if isinstance(item, zarr.Array)
            }
            name = one_of(file, [*arrays], _fields(arrays))
            opened, inside = arrays[name], name.rpartition("/")[0]
            beside = {dim: arrays.get(f"{inside}/{dim}".lstrip("/")) for dim in _dims(opened)}
        elif file.name:
            raise UsageError(f"{file.path} is one array and contains no {file.name!r}")
        attributes = dict(opened.attrs)
        chunk = tuple(map(int, opened.chunks))
        # Version 2 may say nothing of what is read where no chunk is: that is 0.
        filled_with = 0 if opened.fill_value is None else opened.fill_value
        there, whole = _stored(opened, file.file), int(opened.nchunks)
        if isinstance(attributes.get("_FillValue"), str) and opened.dtype.kind == "f":
            attributes["_FillValue"] = _float_of(attributes["_FillValue"])
        if _marks_with_fill_value(opened):
            attributes.setdefault("_FillValue", opened.fill_value)
        extents = dict(zip(_dims(opened), opened.shape, strict=False))
        coords = {
            dim: np.asarray(array[...])
            for dim, array in beside.items()
            if array is not None and array.shape == (extents[dim],)
        }
    unwritten = absent(there, whole, filled_with, file)
    check_numbers(file, opened.dtype)
    source = Sliced(file.file, opened, chunk, lambda: None, _dims(opened), coords)
    return unpacked(bits_as_numbers(source, attributes), attributes, file, unwritten)


def _stored(opened: Any, store: Path) -> int:
    """How many of its chunks are there. Those in shards are in the index of their shard or not."""
    if opened.shards is None:
        return int(opened.nchunks_initialized)
    (codec,) = opened.metadata.codecs
    sums = sum(type(each).__name__ == "Crc32cCodec" for each in codec.index_codecs)
    counts = tuple(n // cells for n, cells in zip(opened.shards, opened.chunks, strict=True))
    grid = tuple(-(-n // cells) for n, cells in zip(opened.shape, opened.chunks, strict=True))
    there = 0
    for at in np.ndindex(*(-(-n // count) for n, count in zip(grid, counts, strict=True))):
        chunks = stored_chunks(
            store / opened.path / opened.metadata.encode_chunk_key(at),
            counts,
            at_start=codec.index_location.value == "start",
            more_bytes=4 * sums,
        )
        # The last shards have entries of chunks that lie outside of the array.
        inside = (slice(n - k * count) for n, k, count in zip(grid, at, counts, strict=True))
        there += int(np.count_nonzero(chunks[tuple(inside)]))
    return there


def _marks_with_fill_value(array: Any) -> bool:
    """Whether its fill value is a marker of missing values, as xarray has it in version 2.

    0 too, which is also what zarr-python takes where nobody says one: xarray shows no value there.
    """
    named = array.metadata.zarr_format == 2 and "_ARRAY_DIMENSIONS" in array.attrs
    return named and array.fill_value is not None


def _float_of(text: str) -> float:
    """The marker of missing values as xarray writes it: a double, the lowest byte first, base64."""
    (value,) = struct.unpack("<d", base64.b64decode(text, validate=True))
    return value


def _fields(arrays: dict[str, Any]) -> list[str]:
    """The names of those that are no coordinates of others, or all if there are none."""
    beside = set[str]()
    for name, array in arrays.items():
        folder, _, own = name.rpartition("/")
        along = str(array.attrs.get("coordinates", "")).split()
        beside |= {f"{folder}/{other}".lstrip("/") for other in along}
        beside |= {name} if _dims(array) == (own,) else set()
    return [name for name in arrays if name not in beside] or [*arrays]


def _dims(array: Any) -> tuple[str, ...]:
    """Names of the axes, where all of them have one."""
    named = getattr(array.metadata, "dimension_names", None)
    named = named or array.attrs.get("_ARRAY_DIMENSIONS", ())
    return tuple(map(str, named)) if all(named) else ()


def create_output(path: Path) -> Output:
    """A Zarr store of version 3: a group of arrays, or of pyramids of them after OME-Zarr 0.5."""
    zarr: Any = library("zarr", path.stem, "zarr")
    return _Store(zarr, path)


class _Store:
    """A store being made."""

    def __init__(self, zarr: Any, path: Path) -> None:
        self.zarr, self.path = zarr, path
        with encoding(path):
            said = {"Conventions": "CF-1.8"}
            self.group = zarr.open_group(path, mode="w-", zarr_format=3, attributes=said)
        self.pyramids: list[Array] = []
        self.arrays: list[Array] = []
        self.written: dict[str, Chunks] = {}

    def array(self, array: Array) -> Sink:
        """An array of the group; the finest of a pyramid where `levels` are asked for."""
        name = f"{array.name}/0" if array.levels else array.name
        if array.levels:
            chunk = prod(_level_chunk(array)) * level_dtype(array.dtype).itemsize
            needed = encoded_bytes(chunk, array.memory_bytes) + chunk * _finer_share(array)
            if needed > array.memory_bytes:
                raise UsageError(
                    f"coarser levels of {array.name} take {needed} bytes of memory, above the "
                    f"limit of {array.memory_bytes}; choose smaller chunks or give more memory"
                )
            self.pyramids.append(array)
        else:
            self.arrays.append(array)
        made = self._made(name, array, array.shape, array.dtype, array.chunks)
        return self._sink(made, array, array.memory_bytes)

    def _sink(self, made: Any, array: Array, memory_bytes: int) -> Chunks:
        sink = Chunks(
            self.path / made.path,
            tuple(map(int, made.shape)),
            np.dtype(made.dtype).newbyteorder("<"),
            tuple(map(int, made.chunks)),
            tuple(map(int, made.shards)) if made.shards else None,
            encoder(array.codec, self.path.stem),
            memory_bytes,
        )
        self.written[made.path] = sink
        return sink

    def _made(
        self,
        name: str,
        array: Array,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        cells: tuple[int, ...],
    ) -> Any:
        array.codec.refuse(("none", "zstd", "gzip", "blosc"), "Zarr")
        level = {} if array.codec.level is None else {"level": array.codec.level}
        codecs: Any = self.zarr.codecs
        compressors = {
            "none": lambda: None,
            "zstd": lambda: codecs.ZstdCodec(**level),
            "gzip": lambda: codecs.GzipCodec(**level),
            "blosc": lambda: codecs.BloscCodec(
                cname="zstd",
                shuffle="shuffle",
                typesize=dtype.itemsize,
                **{f"c{key}": value for key, value in level.items()},
            ),
        }[array.codec.name]()
        attributes = dict(array.attributes)
        if array.along:
            attributes["coordinates"] = " ".join(beside.name for beside in array.along)
        chunk = tuple(max(1, n) for n in map(min, cells or whole_axes(shape, 2), shape))
        with encoding(self.path):
            return self.group.create_array(
                name,
                shape=shape,
                dtype=dtype,
                chunks=chunk,
                shards=shard_of(shape, chunk, dtype.itemsize) if array.shards else None,
                compressors=compressors,
                dimension_names=array.dims,
                attributes=attributes,
                config={"write_empty_chunks": True},  # one that is not there is taken for unwritten
            )

    def commit(self) -> None:
        """Write what is left of all arrays, and the coarser levels of each pyramid."""
        self._finish()
        self._coordinates()
        for array in self.pyramids:
            self._coarsen(array)
            self._finish()

    def _coordinates(self) -> None:
        """Write where cells of arrays lie, and what is along their axes (CF 5)."""
        names = {array.name for array in self.arrays}
        known = coordinates((array.axes, array.shape, array.along) for array in self.arrays)
        for name, at in known.items():
            if name not in names:
                shape, dtype, said = at.values.shape, at.values.dtype, dict(at.attributes)
                array = Array(name, shape, dtype, (Axis(at.dim),), shards=False, attributes=said)
                made = self._made(name, array, shape, dtype, shape)
                with encoding(self.path):
                    made[...] = at.values

    def _finish(self) -> None:
        for sink in self.written.values():
            sink.finish()

    def _coarsen(self, array: Array) -> None:
        """Levels of half the cells along each axis, of means, down to `COARSEST_CELLS`."""
        shapes = level_shapes(array.shape)
        dtype = level_dtype(array.dtype)
        decode = decoder(array.codec, self.path.stem)
        for level, shape in enumerate(shapes[1:], 1):
            finer = Stored(self.written[f"{array.name}/{level - 1}"], decode)
            cells = _level_chunk(array)
            made = self._made(f"{array.name}/{level}", array, shape, dtype, cells)
            source = _Halved(finer, shape, dtype)
            # What is halved takes memory beside what is written, as many times its own.
            memory, times = array.memory_bytes - 2 * source.decoded_bytes, _finer_share(array)
            sink = self._sink(made, array, memory)
            row = prod((*sink.chunk[:-1], shape[-1])) * dtype.itemsize
            threads = max(1, min(sink.at_once, memory // (sink.encoded_bytes + times * row)))
            encoded = threads * sink.encoded_bytes
            share = encoded + (memory - encoded) // times
            copy(source, sink, share + 2 * source.decoded_bytes)
            self._finish()
        with encoding(self.path):
            self.group[array.name].attrs.update(multiscales(array.name, array.axes, len(shapes)))

    def close(self) -> None:
        """Let go of files, complete or not."""
        for sink in self.written.values():
            sink.close()


def _level_chunk(array: Array) -> tuple[int, ...]:
    """Chunks of coarser levels."""
    cells = array.chunks or (LEVEL_CELLS,) * len(array.shape)
    return tuple(min(LEVEL_CELLS, *sizes) for sizes in zip(cells, array.shape, strict=True))


def _finer_share(array: Array) -> int:
    """How many times what `copy` counts for a cell are in memory where it is halved on the way.

    That is 8 cells of the finer level for one, and planes of them in double precision.
    """
    coarse = level_dtype(array.dtype).itemsize
    return 1 + -(-8 * 2 * array.dtype.itemsize // coarse)


class _Halved(View):
    """An array of half the cells along each axis: means of pairs, the last one alone if odd."""

    def __init__(self, source: Source, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        super().__init__(source)
        self._shape, self._dtype = shape, dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    @property
    def chunk(self) -> tuple[int, ...]:
        return tuple(max(1, cells // 2) for cells in self.source.chunk)

    def read(self, box: Box) -> NDArray[Any]:
        there = tuple(
            range(2 * cells.start, min(2 * cells.stop, extent))
            for cells, extent in zip(box, self.source.shape, strict=True)
        )
        finer = self.source.read(there)
        means = np.empty(tuple(map(len, box)), self.dtype)
        for at in range(len(means)):  # in double precision a plane at a time
            means[at] = coarser(finer[2 * at : 2 * at + 2], self.dtype)[0]
        return means
