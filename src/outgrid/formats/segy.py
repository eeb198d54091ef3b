"""Seismic volumes and sections in SEG-Y files; the last axis are the samples of a trace."""

from collections.abc import Callable
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import UsageError
from outgrid.formats.input import InputFile
from outgrid.formats.registry import library
from outgrid.formats.sink import Array, Output, Sink, Written, check_bare
from outgrid.formats.source import Box, Sliced, Source, decoding, encoding, whole_axes
from outgrid.regular import check_given

__all__ = ["create_output", "open_source"]

MOST_SAMPLES = 32767
MOST_MICROSECONDS = 32767
_DEPTHS = ("z", "depth")


class _Traces:
    """The traces of a file as an array whose last axis are samples."""

    dtype = np.dtype(np.float32)

    def __init__(self, opened: Any, lines: tuple[int, ...]) -> None:
        self.opened, self.lines = opened, lines
        self.shape = (*lines, len(opened.samples))

    def __getitem__(self, box: tuple[slice, ...]) -> NDArray[Any]:
        *lines, samples = box
        numbers = [range(extent)[wanted] for extent, wanted in zip(self.lines, lines, strict=True)]
        values = np.empty((*map(len, numbers), samples.stop - samples.start), self.dtype)
        for index, line in zip(np.ndindex(*values.shape[:-1]), product(*numbers), strict=True):
            trace = int(np.ravel_multi_index(line, self.lines))
            values[index] = self.opened.trace.raw[trace][samples]
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
        counts = () if opened.unstructured else (len(opened.ilines), len(opened.xlines))
        if counts and prod(counts) == opened.tracecount:
            ilines_first = opened.sorting == segyio.TraceSortingFormat.INLINE_SORTING
            lines, dims = (
                (counts, ("inline", "crossline", "sample"))
                if ilines_first
                else (counts[::-1], ("crossline", "inline", "sample"))
            )
        traces = _Traces(opened, lines)
    return Sliced(file.file, traces, whole_axes(traces.shape, 1), opened.close, dims)


def create_output(path: Path) -> Output:
    """A file of traces, one for each receiver, of IEEE numbers in single precision (revision 1)."""
    return _Shots(library("segyio", path.stem, "seismic"), path)


class _Shots:
    """A file being made."""

    def __init__(self, segyio: Any, path: Path) -> None:
        self.segyio, self.path = segyio, path
        self.file: Any = None

    def array(self, array: Array) -> Sink:
        """The traces of the file, with the places of receivers and source in their headers."""
        check_bare(array, self.path)
        interval = self._microseconds(array)
        spec = self.segyio.spec()
        spec.format, spec.tracecount = 5, array.shape[0]
        spec.samples = np.arange(array.shape[1]) * (interval / 1000)
        with decoding(self.path):
            self.file = self.segyio.create(str(self.path), spec)
            self.file.text[0] = self.segyio.tools.create_text_header(
                {1: "Traces of receivers, written by outgrid", 2: "Amplitudes in IEEE float"}
            )
            self.file.bin.update(hdt=interval, hns=array.shape[1], format=5, tsort=-1, rev=0x0100)
        header = self._header(array, interval)

        def put(box: Box, values: NDArray[Any]) -> None:
            with decoding(self.path):
                for number, trace in zip(
                    box[0], np.ascontiguousarray(values, np.float32), strict=True
                ):
                    self.file.header[number] = header(number)
                    self.file.trace[number] = trace

        return Written(whole_axes(array.shape, 1), put)

    def _microseconds(self, array: Array) -> int:
        """The time between two samples. Raises UsageError for what is no set of traces."""
        name = self.path.stem
        axis = array.axes[-1]
        if self.file is not None or len(array.shape) != 2 or axis.name not in ("step", "time"):
            raise UsageError(
                f"{name} files hold the traces of receivers; choose them with --field traces"
            )
        if axis.name != "time":
            raise UsageError(
                f"{name} needs the time between two samples; give it in seconds, as in --dt "
                "0.002, or to the grid, og.Grid(dt=0.002)"
            )
        interval = axis.spacing * 1e6
        if (
            not 1 <= round(interval) <= MOST_MICROSECONDS
            or abs(round(interval) - interval) > 1e-6 * interval
        ):
            raise UsageError(
                f"{name} stores the time between two samples as whole microseconds from 1 to "
                f"{MOST_MICROSECONDS}, and a step takes {interval:g}; give another one with --dt"
            )
        if array.shape[1] > MOST_SAMPLES:
            raise UsageError(
                f"{name} stores at most {MOST_SAMPLES} samples of a trace, and there are "
                f"{array.shape[1]}; write them as .nc or .h5"
            )
        return round(interval)

    def _header(self, array: Array, interval: int) -> Callable[[int], dict[int, int]]:
        """What is said before a trace, by its number."""
        fields: Any = self.segyio.TraceField
        receivers = {
            coordinate.name.removeprefix("receiver_"): coordinate.values
            for coordinate in array.along
        }
        source = {
            name: float(array.attributes[f"source_{name}"])
            for name in receivers
            if f"source_{name}" in array.attributes
        }
        # From the slowest axis to the fastest: depth, then y, then x.
        depth = next((n for n in receivers if n in _DEPTHS), None)
        if depth is None and len(receivers) == 3:
            depth = next(iter(receivers))
        across = [name for name in receivers if name != depth]
        numbers = [*(abs(v) for values in receivers.values() for v in values)]
        largest = max([*numbers, *map(abs, source.values()), 1.0])
        scale = max(1, min(10**4, 10 ** int(np.floor(np.log10((2**31 - 1) / largest)))))
        if largest * scale > 2**31 - 1:
            raise UsageError(f"{self.path.stem} cannot store the coordinate {largest:g}")

        def scaled(value: float) -> int:
            return round(value * scale)

        def header(number: int) -> dict[int, int]:
            said = {
                fields.TRACE_SEQUENCE_LINE: number + 1,
                fields.TRACE_SEQUENCE_FILE: number + 1,
                fields.FieldRecord: 1,
                fields.TraceNumber: number + 1,
                fields.TraceIdentificationCode: 1,
                fields.TRACE_SAMPLE_COUNT: array.shape[1],
                fields.TRACE_SAMPLE_INTERVAL: interval,
                fields.DelayRecordingTime: round(array.axes[-1].origin * 1000),
                fields.CoordinateUnits: 1,
                fields.SourceGroupScalar: -scale,
                fields.ElevationScalar: -scale,
            }
            for name, group, shot in zip(
                across[::-1],
                (fields.GroupX, fields.GroupY),
                (fields.SourceX, fields.SourceY),
                strict=False,
            ):
                said[group] = scaled(receivers[name][number])
                if name in source:
                    said[shot] = scaled(source[name])
            if depth is not None:
                said[fields.ReceiverGroupElevation] = -scaled(receivers[depth][number])
                if depth in source:
                    said[fields.SourceDepth] = scaled(source[depth])
            if source:
                apart = [receivers[name][number] - source[name] for name in across]
                said[fields.offset] = round(float(np.hypot.reduce([0.0, *apart])))
            return said

        return header

    def commit(self) -> None:
        """Write what the library still holds."""
        if self.file is not None:
            with encoding(self.path):
                self.file.flush()

    def close(self) -> None:
        """Close the file."""
        if self.file is not None:
            self.file.close()
