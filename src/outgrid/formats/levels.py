"""Coarser levels of an array: means of pairs along each axis, in Zarr after OME-Zarr 0.5.

    NAME.pyramid/zarr.json          the group, and which level is how coarse
    NAME.pyramid/1/zarr.json        an array of half the cells along each axis
    NAME.pyramid/1/c/0/0/0          its one shard: chunks that are not compressed, and their index
    NAME.pyramid/2/...              of a quarter of the cells, and so on

A chunk has 64 cells along an axis. Of chunks that are not compressed the place in the shard is
known, so planes are written as they come, in order, and few of them are in memory.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.formats.axis import Axis
from outgrid.formats.shard import index_of
from outgrid.formats.source import writing
from outgrid.numbers import is_real
from outgrid.regular import own

__all__ = [
    "COARSEST_CELLS",
    "LEVEL_CELLS",
    "Levels",
    "coarser",
    "halved",
    "level_chunk",
    "level_dtype",
    "level_files",
    "level_shapes",
    "levels_bytes",
    "multiscales",
    "pyramid_of",
    "rounded",
    "stored_level_bytes",
    "whole_chunks",
]

COARSEST_CELLS = 64  # along an axis: no level is made of one that has no more
LEVEL_CELLS = 64  # of a chunk of a coarser level, along an axis
SLAB_BYTES = 1 << 20  # of planes that are written together
BLOCK_CELLS = 1 << 17  # of a plane that are turned into double precision at once
SUFFIX = ".pyramid"


def pyramid_of(name: str) -> str:
    """The folder of the levels of a field, in that of a run."""
    return f"{name}{SUFFIX}"


def level_shapes(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Shapes of all levels, that of the array first."""
    shapes = [shape]
    while max(shapes[-1]) > COARSEST_CELLS:
        shapes.append(tuple(-(-extent // 2) for extent in shapes[-1]))
    return shapes


def level_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Numbers of the coarser levels: single precision; whole and complex ones as they are."""
    return np.dtype(np.float32 if is_real(dtype) else dtype)


def level_chunk(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Cells of a chunk of a level of that shape."""
    return tuple(min(LEVEL_CELLS, extent) for extent in shape)


def whole_chunks(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Extents of the shard of a level: whole chunks along each axis."""
    chunk = level_chunk(shape)
    return tuple(-(-extent // cells) * cells for extent, cells in zip(shape, chunk, strict=True))


def level_files(name: str, shape: tuple[int, ...]) -> list[str]:
    """The shards of the coarser levels of a field, in the folder of a run."""
    key = "/".join(("c", *("0" for _ in shape)))
    return [f"{pyramid_of(name)}/{level}/{key}" for level in range(1, len(level_shapes(shape)))]


def coarser(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Means of pairs along all axes, as they are stored."""
    if dtype.kind not in "iu" or dtype.itemsize < 8:
        return rounded(_halved_along_all(values), dtype)
    # Both halves of 64 bits have exact means in double precision: in parts of 2**-axes.
    high, low = _halved_along_all(values >> 32), _halved_along_all(values & 0xFFFFFFFF)
    whole = (high * 2**values.ndim).astype(dtype) * 2 ** (32 - values.ndim)
    return whole + rounded(low, dtype)


def _halved_along_all(values: NDArray[Any]) -> NDArray[Any]:
    for axis in (*range(1, values.ndim), 0):
        values = halved(values, axis)
    return values


def halved(values: NDArray[Any], axis: int) -> NDArray[Any]:
    """Means of pairs along an axis, in double precision; the last one alone if their number is odd.

    Cells are halved along the last axes first, so that a plane is before the one after it is there.
    """
    before = (slice(None),) * axis
    pairs = values.shape[axis] // 2
    double = np.complex128 if values.dtype.kind == "c" else np.float64
    means = values[(*before, slice(None, None, 2))].astype(double)
    both = (*before, slice(pairs))
    means[both] = (means[both] + values[(*before, slice(1, None, 2))]) / 2
    return means


def rounded(means: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Means as they are stored."""
    return (np.rint(means) if dtype.kind in "biu" else means).astype(dtype)


def multiscales(name: str, axes: Sequence[Axis], levels: int) -> dict[str, Any]:
    """What the group of a pyramid of so many levels says of them, as OME-Zarr 0.5 has it."""
    sets = [
        {
            "path": str(level),
            "coordinateTransformations": [
                {"type": "scale", "scale": [axis.spacing * 2**level for axis in axes]},
                {
                    "type": "translation",
                    "translation": [
                        axis.origin + axis.spacing * (2**level - 1) / 2 for axis in axes
                    ],
                },
            ],
        }
        for level in range(levels)
    ]
    named = [
        {"name": axis.name, "type": "space"} | ({"unit": axis.units} if axis.units else {})
        for axis in axes
    ]
    scales = [{"name": name, "axes": named, "datasets": sets, "type": "mean"}]
    return {"ome": {"version": "0.5", "multiscales": scales}}


def levels_bytes(shape: tuple[int, ...]) -> int:
    """Memory of `Levels`: for each level half a plane in double precision, and planes to write."""
    every = level_shapes(shape)[1:]
    planes = sum(8 * prod(level[1:]) + _slab_bytes(level, 8) for level in every)
    return planes + 4 * 8 * (BLOCK_CELLS + 2 * shape[-1]) if every else 0


def stored_level_bytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Bytes of the files of all coarser levels; a seventh of a large array of single precision."""
    itemsize = level_dtype(dtype).itemsize
    return sum(prod(whole_chunks(level)) * itemsize for level in level_shapes(shape)[1:])


class Levels:
    """The coarser levels of an array that is shown plane by plane, in order.

    `paths` are their files, the finest first; `taken` counts the planes so far.
    """

    def __init__(self, paths: Sequence[Path], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.taken, self._extent = 0, shape[0]
        self._levels = [
            _Level(path, level, level_dtype(dtype))
            for path, level in zip(paths, level_shapes(shape)[1:], strict=True)
        ]

    def take(self, plane: NDArray[Any]) -> None:
        """Take the next plane, of the shape of the array without its first axis.

        Raises StoreError.
        """
        last = self.taken == self._extent - 1
        for level in self._levels:
            made = level.take(plane, last=last)
            if made is None:
                break
            plane = made
        self.taken += 1

    def finish(self) -> None:
        """Write the index of each, durably. Raises StoreError."""
        for level in self._levels:
            level.finish()


class _Level:
    """One level: the half of a plane that waits for its other half, and planes to be written."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.path, self.shape, self.dtype = path, shape, dtype
        self.chunk, self.shard = level_chunk(shape), whole_chunks(shape)
        self.finer = 0
        self.waiting = np.empty(shape[1:])
        together = _planes_together(shape, dtype.itemsize)
        self.slab = np.zeros((together, *self.shard[1:]), dtype)
        self.begun = range(0)  # planes in the slab
        with writing(path), open(path, "wb", opener=own) as file:
            file.truncate(prod(self.shard) * dtype.itemsize)

    def take(self, plane: NDArray[Any], *, last: bool) -> NDArray[Any] | None:
        """Take a plane of the finer level: the one that is made of it, if it is complete."""
        number, second = divmod(self.finer, 2)
        self.finer += 1
        made = self.slab[(number - self.begun.start) % len(self.slab)]
        made = made[tuple(map(slice, self.shape[1:]))]
        for rows, finer in _blocks(plane):
            means = finer
            for axis in range(finer.ndim):
                means = halved(means, axis)
            if second:
                means = (self.waiting[rows] + means) / 2
            if second or last:
                made[rows] = rounded(np.asarray(means, np.float64), self.dtype)
            else:
                self.waiting[rows] = means
        if not second and not last:
            return None
        self.begun = range(self.begun.start, number + 1)
        ends = self.begun.stop in (self.shape[0], self.begun.start + len(self.slab))
        if ends or self.begun.stop % self.chunk[0] == 0:
            self._write()
        return made

    def _write(self) -> None:
        """Write the planes in the slab to their chunks, and begin an empty one."""
        first, count = self.begun.start, len(self.begun)
        chunks = [whole // cells for whole, cells in zip(self.shard, self.chunk, strict=True)]
        nbytes, plane_bytes = (
            prod(cells) * self.dtype.itemsize for cells in (self.chunk, self.chunk[1:])
        )
        inside = first % self.chunk[0] * plane_bytes
        with writing(self.path), open(self.path, "r+b", buffering=0, opener=own) as file:
            for index in product(*map(range, chunks[1:])):
                cells = tuple(
                    slice(k * n, (k + 1) * n) for k, n in zip(index, self.chunk[1:], strict=True)
                )
                number = 0
                for k, n in zip((first // self.chunk[0], *index), chunks, strict=True):
                    number = number * n + k
                content = np.ascontiguousarray(self.slab[(slice(count), *cells)])
                _put(file.fileno(), content, number * nbytes + inside)
        self.begun = range(self.begun.stop, self.begun.stop)

    def finish(self) -> None:
        nbytes = prod(self.chunk) * self.dtype.itemsize
        count = prod(self.shard) // prod(self.chunk)
        index = np.full((count, 2), nbytes, np.uint64)
        index[:, 0] = nbytes * np.arange(count, dtype=np.uint64)
        with writing(self.path), open(self.path, "r+b", buffering=0, opener=own) as file:
            _put(file.fileno(), np.frombuffer(index_of(index), np.uint8), count * nbytes)
            os.fsync(file.fileno())


def _blocks(plane: NDArray[Any]) -> Iterator[tuple[Any, NDArray[Any]]]:
    """Parts of a plane that are turned into double precision at once, and where they go to."""
    if plane.ndim < 2:
        yield ..., plane
        return
    step = 2 * max(1, BLOCK_CELLS // 2 // plane.shape[-1])
    for first in range(0, plane.shape[0], step):
        yield slice(first // 2, (first + step) // 2), plane[first : first + step]


def _planes_together(shape: tuple[int, ...], itemsize: int) -> int:
    """How many planes of a level are written at once; they are of one chunk."""
    plane_bytes = prod(whole_chunks(shape)[1:]) * itemsize
    return max(1, min(level_chunk(shape)[0], SLAB_BYTES // plane_bytes))


def _slab_bytes(shape: tuple[int, ...], itemsize: int) -> int:
    return _planes_together(shape, itemsize) * prod(whole_chunks(shape)[1:]) * itemsize


def _put(file: int, content: NDArray[Any], at: int) -> None:
    left = content.reshape(-1).view(np.uint8).data
    while left:
        count = os.pwrite(file, left, at)
        left, at = left[count:], at + count
