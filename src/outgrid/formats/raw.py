"""Bare numbers: their type and shape are given by whoever names the file."""

from math import prod
from pathlib import Path

import numpy as np

from outgrid.errors import StoreError, UsageError
from outgrid.formats.input import InputFile
from outgrid.formats.sink import Output, Plain
from outgrid.formats.source import Source, Straight, reading

__all__ = ["create_output", "open_source"]


def open_source(file: InputFile) -> Source:
    """The numbers from `file.offset` on, of `file.dtype` and `file.shape`.

    Raises UsageError for a type that is none of plain numbers, StoreError where the file has fewer
    bytes, or more, than the shape says.
    """
    try:
        dtype = np.dtype(file.dtype)
    except TypeError as error:
        raise UsageError(f"{file}: unknown dtype {file.dtype!r}") from error
    if dtype.kind not in "biufc":
        raise UsageError(f"{file}: dtype {file.dtype!r} must be a type of plain numbers")
    if file.offset < 0 or any(extent < 0 for extent in file.shape):
        raise UsageError(f"{file}: shape {file.shape} and offset {file.offset} must be at least 0")
    shape = file.shape[::-1] if file.order == "F" else file.shape
    with reading(file.file):
        size = file.file.stat().st_size
    expected = file.offset + prod(shape) * dtype.itemsize
    if size != expected:
        raise StoreError(
            f"shape {file.shape} of {dtype} from byte {file.offset} on is a file of {expected} "
            f"bytes, but the file has {size}",
            path=file.path,
        )
    return Straight(file.file, shape, dtype, file.offset)


def create_output(path: Path) -> Output:
    """A file of nothing but the numbers, the last index fastest."""
    return Plain(path, lambda _: b"")
