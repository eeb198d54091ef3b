"""Images and volumes in TIFF files; pages are planes. What lies in one piece is read straight."""

from typing import Any

import numpy as np

from outgrid.errors import UsageError
from outgrid.formats.input import InputFile
from outgrid.formats.registry import library
from outgrid.formats.source import Sliced, Source, Straight, decoding
from outgrid.regular import check_given

__all__ = ["open_source"]


def open_source(file: InputFile) -> Source:
    """The first series of pages of one shape. Raises UsageError and StoreError."""
    tifffile: Any = library("tifffile", file, "image")
    check_given(file.path)
    with decoding(file.file):
        opened = tifffile.TiffFile(file.path)
    try:
        with decoding(file.file):
            return _source(opened, file)
    except BaseException:
        opened.close()
        raise


def _source(opened: Any, file: InputFile) -> Source:
    if len(opened.series) != 1:
        shapes = ", ".join(str(each.shape) for each in opened.series)
        raise UsageError(f"{file} has images of several kinds, {shapes}; keep one in a file")
    series = opened.series[0]
    dtype = np.dtype(series.dtype)
    if dtype.kind not in "biuf":
        raise UsageError(f"{file} holds {dtype}; fields are plain numbers")
    dims = tuple(series.axes.lower())
    if series.dataoffset is not None:
        source = Straight(
            file.file, series.shape, dtype.newbyteorder(opened.byteorder), series.dataoffset, dims
        )
        opened.close()
        return source
    zarr: Any = library("zarr", f"{file}, which is compressed,", "image")
    array = zarr.open(series.aszarr(), mode="r")
    if isinstance(array, zarr.Group):  # levels of a pyramid, the first of them the finest
        array = array["0"]
    return Sliced(file.file, array, tuple(map(int, array.chunks)), opened.close, dims)
