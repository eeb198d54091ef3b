"""An array of a file in another way: one of several, with other axes, or on another grid."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.formats.source import Box, Coords, Source, View, boxes
from outgrid.numbers import BFLOAT16, number_type

__all__ = ["BITS_OF", "Picked", "Resampled", "Transposed", "Widened", "bits_as_numbers"]

BITS_OF = "bits_of"
"""The attribute of an array of bits, where a format lacks the type of numbers that it names."""

PIECE_BYTES = 1 << 20


class Picked(View):
    """The array at one index of the first axes of another."""

    def __init__(self, source: Source, index: tuple[int, ...]) -> None:
        super().__init__(source)
        self.index = index

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the axes that are left."""
        return self.source.shape[len(self.index) :]

    @property
    def chunk(self) -> tuple[int, ...]:
        """What is decoded together of the axes that are left."""
        return self.source.chunk[len(self.index) :]

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes that are left."""
        return self.source.dims[len(self.index) :]

    def read(self, box: Box) -> NDArray[Any]:
        """The values of a box of the axes that are left."""
        first = tuple(range(number, number + 1) for number in self.index)
        return self.source.read((*first, *box))[(0,) * len(self.index)]


class Transposed(View):
    """An array whose axes are those of another in another order, as in `np.transpose`."""

    def __init__(self, source: Source, axes: tuple[int, ...]) -> None:
        super().__init__(source)
        self.axes = axes

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents in the new order."""
        return tuple(self.source.shape[axis] for axis in self.axes)

    @property
    def chunk(self) -> tuple[int, ...]:
        """What is read together, in the new order: boxes of whole rows of the file are best."""
        return tuple(self.source.chunk[axis] for axis in self.axes)

    @property
    def dims(self) -> tuple[str, ...]:
        """Names in the new order."""
        return tuple(self.source.dims[axis] for axis in self.axes) if self.source.dims else ()

    def read(self, box: Box) -> NDArray[Any]:
        """The values of a box, in the new order."""
        there = [range(0)] * len(box)
        for axis, cells in zip(self.axes, box, strict=True):
            there[axis] = cells
        return self.source.read(tuple(there)).transpose(self.axes)


def bits_as_numbers(source: Source, attributes: Mapping[str, Any]) -> Source:
    """The numbers whose bits a source has, if its attributes say so. Raises UsageError."""
    return _Numbers(source) if attributes.get(BITS_OF) == BFLOAT16 else source


class _Numbers(View):
    """The numbers of bfloat16 whose bits an array has."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._dtype = number_type(BFLOAT16)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    def read(self, box: Box) -> NDArray[Any]:
        return self.source.read(box).astype(np.uint16, copy=False).view(self._dtype)


class Widened(View):
    """An array of bfloat16 as one of float32, which holds the same numbers."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Single precision."""
        return np.dtype(np.float32)

    def read(self, box: Box) -> NDArray[Any]:
        """The values of a box."""
        return self.source.read(box).astype(np.float32)


class Resampled(View):
    """Values of an array between its cells, linear along each axis, in double precision.

    Cell k of n of the grid lies at k (m - 1)/(n - 1) of the m cells of the file; a file of one cell
    has that value everywhere.
    """

    def __init__(self, source: Source, onto: tuple[int, ...]) -> None:
        super().__init__(source)
        self.onto = onto

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the grid."""
        return self.onto

    @property
    def dtype(self) -> np.dtype[Any]:
        """Fractions, in double precision."""
        return np.dtype(np.float64)

    @property
    def coords(self) -> Coords:
        """Where the cells of the grid lie between those of the file."""
        every = zip(self.source.dims, self.source.shape, self.onto, strict=False)
        return {
            dim: np.interp(np.linspace(0, theirs - 1, mine), np.arange(theirs), values)
            for dim, theirs, mine in every
            if (values := self.source.coords.get(dim)) is not None and values.dtype.kind in "iuf"
        }

    @property
    def chunk(self) -> tuple[int, ...]:
        """Cells that read about a chunk of the file."""
        pairs = zip(self.source.chunk, self.onto, self.source.shape, strict=True)
        return tuple(max(1, cells * mine // theirs) for cells, mine, theirs in pairs)

    @property
    def decoded_bytes(self) -> int:
        """Memory to decode a chunk of the file, and for rows of it that are very long."""
        around = self._around_bytes(1)
        return self.source.decoded_bytes + (around if around > PIECE_BYTES else 0)

    def _piece(self) -> int:
        """Rows of the grid whose surroundings in the file are of about `PIECE_BYTES`."""
        return max(1, min(prod(self.onto[:-1]), PIECE_BYTES // self._around_bytes(1)))

    def _around_bytes(self, rows: int) -> int:
        """Bytes, in double precision, of what is read and made for so many rows that follow."""
        wider = prod(
            max(1.0, theirs / mine)
            for theirs, mine in zip(self.source.shape[:-1], self.onto[:-1], strict=True)
        )
        corners = 2 ** (len(self.onto) - 1)
        around = self.source.shape[-1] * (rows * wider + corners) + 2 * rows * self.onto[-1]
        return 8 * int(around)

    def read(self, box: Box) -> NDArray[Any]:
        """The values of a box of the grid, which do not depend on the box.

        A file may have many more cells there: they are read and passed over a few rows at a time.
        """
        if self._around_bytes(prod(map(len, box[:-1]))) <= PIECE_BYTES:
            return self._between(box)
        values = np.empty(tuple(map(len, box)))
        corner = tuple(cells.start for cells in box)
        for rows in boxes(box[:-1], self.chunk[:-1], self._piece()):
            piece = (*rows, box[-1])
            values[
                tuple(
                    slice(cells.start - first, cells.stop - first)
                    for cells, first in zip(piece, corner, strict=True)
                )
            ] = self._between(piece)
        return values

    def _between(self, box: Box) -> NDArray[Any]:
        places = [self._places(axis, cells) for axis, cells in enumerate(box)]
        there = tuple(range(int(low[0]), int(high[-1]) + 1) for low, high, _ in places)
        values = self.source.read(there).astype(np.float64)
        for axis, ((low, high, share), cells) in enumerate(zip(places, there, strict=True)):
            below = np.take(values, low - cells.start, axis)
            above = np.take(values, high - cells.start, axis)
            weight = share.reshape(-1, *(1,) * (len(box) - 1 - axis))
            values = below + (above - below) * weight
        return values

    def _places(self, axis: int, cells: range) -> tuple[Any, Any, NDArray[np.float64]]:
        """For each cell the two of the file that it lies between, and how far from the first."""
        mine, theirs = self.onto[axis], self.source.shape[axis]
        scaled = np.arange(cells.start, cells.stop, dtype=np.int64) * (theirs - 1)
        low, rest = np.divmod(scaled, max(1, mine - 1))
        high = np.minimum(low + (rest > 0), theirs - 1)
        return low, high, rest / max(1, mine - 1)
