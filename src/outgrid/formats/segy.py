"""Seismic volumes and sections in SEG-Y files; the last axis are the samples of a trace."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.formats.input import InputFile
from outgrid.formats.registry import library
from outgrid.formats.source import Sliced, Source, decoding, whole_axes
from outgrid.regular import check_given

__all__ = ["open_source"]


class _Traces:
    """The traces of a file as an array whose last axis are samples."""

    dtype = np.dtype(np.float32)

    def __init__(self, opened: Any, lines: tuple[int, ...]) -> None:
        self.opened, self.lines = opened, lines
        self.shape = (*lines, len(opened.samples))

    def __getitem__(self, box: tuple[slice, ...]) -> NDArray[Any]:
        *lines, samples = box
        numbers = np.arange(int(np.prod(self.lines))).reshape(self.lines)[tuple(lines)]
        values = np.empty((*numbers.shape, samples.stop - samples.start), self.dtype)
        for index in np.ndindex(*numbers.shape):
            values[index] = self.opened.trace.raw[int(numbers[index])][samples]
        return values


def open_source(file: InputFile) -> Source:
    """The traces of a file, by inline and crossline where it has both. Raises StoreError."""
    segyio: Any = library("segyio", file, "seismic")
    check_given(file.path)
    with decoding(file.file):
        try:
            opened = segyio.open(file.path, "r", strict=True)
        except (ValueError, RuntimeError):  # no lines, or not in order: a section
            opened = segyio.open(file.path, "r", strict=False, ignore_geometry=True)
        lines = (opened.tracecount,)
        dims = ("trace", "sample")
        if not opened.unstructured:
            counts = len(opened.ilines), len(opened.xlines)
            ilines_first = opened.sorting == segyio.TraceSortingFormat.INLINE_SORTING
            lines, dims = (
                (counts, ("inline", "crossline", "sample"))
                if ilines_first
                else (counts[::-1], ("crossline", "inline", "sample"))
            )
        traces = _Traces(opened, lines)
    return Sliced(file.file, traces, whole_axes(traces.shape, 1), opened.close, dims)
