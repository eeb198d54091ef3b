"""Arrays of Zarr stores, of version 2 or 3, by zarr-python."""

from typing import Any

from outgrid.errors import StoreError, UsageError
from outgrid.formats.input import InputFile, one_of
from outgrid.formats.packing import unpacked
from outgrid.formats.registry import library
from outgrid.formats.source import Sliced, Source, decoding

__all__ = ["open_source"]


def open_source(file: InputFile) -> Source:
    """The array of that name in the store, or the only one. Raises UsageError and StoreError."""
    zarr: Any = library("zarr", file, "zarr")
    if not file.file.is_dir():
        there = "is no folder, as Zarr stores are" if file.file.exists() else "does not exist"
        raise StoreError(f"the store {there}", path=file.path)
    with decoding(file.file):
        opened = zarr.open(file.path, mode="r")
        if isinstance(opened, zarr.Group):
            arrays = {
                name: item
                for name, item in opened.members(max_depth=None)
                if isinstance(item, zarr.Array)
            }
            opened = arrays[one_of(file, [*arrays])]
        elif file.name:
            raise UsageError(f"{file.path} is one array, and has no {file.name!r} in it")
        attributes, metadata = dict(opened.attrs), opened.metadata
        chunk = tuple(map(int, opened.chunks))
    if opened.dtype.kind not in "biuf":
        raise UsageError(f"{file} holds {opened.dtype}; fields are plain numbers")
    named = getattr(metadata, "dimension_names", None) or attributes.get("_ARRAY_DIMENSIONS", ())
    dims = tuple(map(str, named)) if all(named) else ()
    return unpacked(Sliced(file.file, opened, chunk, lambda: None, dims), attributes, file)
