"""Images and volumes in TIFF files; pages are planes. What lies in one piece is read straight."""

from pathlib import Path
from typing import Any

import numpy as np

from outgrid.errors import UsageError
from outgrid.formats.input import InputFile, check_numbers
from outgrid.formats.registry import library
from outgrid.formats.sink import Array, Output, Sink, Spans, check_bare
from outgrid.formats.source import Sliced, Source, Straight, decoding, encoding
from outgrid.regular import check_given

__all__ = ["create_output", "open_source"]


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
        shapes = ", ".join(str(image.shape) for image in opened.series)
        raise UsageError(f"{file} has images of different kinds, {shapes}; store one kind per file")
    series = opened.series[0]
    dtype = np.dtype(series.dtype)
    check_numbers(file, dtype)
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


def create_output(path: Path) -> Output:
    """A BigTIFF file of one volume, whose pages are planes."""
    return _Pages(library("tifffile", path.stem, "image"), path)


class _Pages:
    """A file being made."""

    def __init__(self, tifffile: Any, path: Path) -> None:
        self.tifffile, self.path = tifffile, path
        self.written = False

    def array(self, array: Array) -> Sink:
        """The pages of the file."""
        check_bare(array, self.path)
        if self.written:
            raise UsageError(f"{self.path.stem} holds one array; choose a field")
        with encoding(self.path):
            values = self.tifffile.memmap(
                self.path,
                shape=array.shape,
                dtype=array.dtype,
                bigtiff=True,
                photometric="minisblack",
            )
        self.written = True
        return Spans(self.path, array.shape, array.dtype, values.offset)

    def commit(self) -> None:
        """All is in the file; who places it waits until it is on disk."""

    def close(self) -> None:
        """Nothing is open between two writes."""
