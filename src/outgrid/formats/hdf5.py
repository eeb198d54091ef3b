"""Data sets of HDF5 files. One that lies in one piece is read without the library."""

from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from outgrid.errors import StoreError, UsageError
from outgrid.formats.input import InputFile, one_of
from outgrid.formats.packing import unpacked
from outgrid.formats.registry import library
from outgrid.formats.source import Sliced, Source, Straight, decoding
from outgrid.regular import check_given

__all__ = ["open_source"]

MOST_CHUNK_BYTES = 256 << 20
_CACHE_BYTES = 32 << 20  # of decoded chunks


def open_source(file: InputFile) -> Source:
    """The data set of that name, or the only one. Raises UsageError and StoreError."""
    h5py: Any = library("h5py", file, "hdf5")
    check_given(file.path)
    with decoding(file.file):
        opened = h5py.File(file.path, "r", rdcc_nbytes=_CACHE_BYTES)
    try:
        with decoding(file.file):
            return _source(h5py, opened, file)
    except BaseException:
        opened.close()
        raise


def _source(h5py: Any, opened: Any, file: InputFile) -> Source:
    names: list[str] = []

    def note(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            names.append(name)

    opened.visititems(note)
    array = opened[one_of(file, names)]
    if array.dtype.kind not in "biuf":
        raise UsageError(f"{file} holds {array.dtype}; fields are plain numbers")
    if array.external or array.is_virtual:
        raise UsageError(f"{file} lies in other files; copy it into one, as h5repack does")
    dims, attributes = _dims(array), dict(array.attrs)
    chunk = tuple(map(int, array.chunks or (*(1 for _ in array.shape[:-1]), array.shape[-1])))
    nbytes = prod(chunk) * array.dtype.itemsize
    if nbytes > MOST_CHUNK_BYTES:
        raise UsageError(
            f"{file} has chunks of {nbytes} bytes, each of which is decoded whole; at most "
            f"{MOST_CHUNK_BYTES} are; store it in smaller chunks"
        )
    offset = array.id.get_offset() if array.chunks is None else None
    if offset is not None:
        source: Source = _straight(file.file, array, offset, dims)
        opened.close()
    else:
        source = Sliced(file.file, array, chunk, opened.close, dims)
    return unpacked(source, attributes, file)


def _straight(path: Path, array: Any, offset: int, dims: tuple[str, ...]) -> Source:
    expected, size = offset + int(array.nbytes), path.stat().st_size
    if size < expected:
        raise StoreError(
            f"its data are promised up to byte {expected}, but the file has {size}", path=path
        )
    return Straight(path, tuple(array.shape), np.dtype(array.dtype), offset, dims)


def _dims(array: Any) -> tuple[str, ...]:
    """Names of the axes, where the scales of all of them have one."""
    scales = [dim[0].name.rpartition("/")[2] if len(dim) else dim.label for dim in array.dims]
    return tuple(scales) if all(scales) else ()
