"""What a run begins with that others have made: files and arrays, checked before, the same then."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Self

import numpy as np

from outgrid.errors import DefinitionError, StoreError, UsageError
from outgrid.execute.lying import Lying, lying
from outgrid.formats import InputFile, Source, open_input
from outgrid.formats.arrays import InputArray, check_unchanged
from outgrid.formats.objects import is_url
from outgrid.numbers import is_real
from outgrid.stencil.dtypes import casting
from outgrid.stencil.grid import Grid
from outgrid.stencil.labels import check_place
from outgrid.stencil.problem import PREVIOUS, Problem
from outgrid.stencil.series import Series
from outgrid.storage import Uncopied, frames_of, queued
from outgrid.units import format_bytes, format_seconds, nearest_three

__all__ = ["Inputs", "check_inputs", "decoding_told"]

Stamp = tuple[int, int]


class Inputs:
    """The files and arrays that a problem begins with.

    A file is opened once, when it is checked, and is read by the fill, which closes it; one that
    was changed meanwhile is refused.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._opened: dict[int, Source] = {}
        self._stamps: dict[str, Stamp] = {}
        self._lying: dict[int, Lying | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self) -> None:
        """Open every file and compare it with its field. Writes nothing.

        Raises UsageError, also for an array that was changed since the problem was made.
        """
        for name, given in self.problem.initial.items():
            if isinstance(given, InputFile):
                self.source(name)
            elif isinstance(given, Series):
                check_series(self.problem, name, given)
            elif isinstance(given, InputArray):
                check_unchanged(given, self.problem.dtype_of(name.removesuffix(PREVIOUS)), name)

    def told(self) -> tuple[str, ...]:
        """What the files cost that are decoded: bytes, buffers, and seconds by their first piece.

        Raises UsageError and StoreError for files that cannot be read.
        """
        return tuple(
            _cost(name, given, self.source(name))
            for name, given in self.problem.initial.items()
            if isinstance(given, InputFile) and self.source(name).at_once == 1
        )

    def source(self, name: str) -> Source:
        """What the initial values of ``name`` are read from. Raises UsageError."""
        given = self.problem.initial[name]
        assert isinstance(given, InputFile | InputArray)
        if isinstance(given, InputArray):
            return given.open_source()
        if id(given) not in self._opened:
            stamp = _stamp(given.file)
            self._opened[id(given)] = open_initial(self.problem, name)
            self._stamps.setdefault(name, stamp)
        return self._opened[id(given)]

    def lying(self, name: str) -> Lying | None:
        """Where the initial values of ``name`` lie as numbers one behind the other, if they do.

        Raises UsageError.
        """
        given = self.problem.initial[name]
        if not isinstance(given, InputFile):
            return None
        if id(given) not in self._lying:
            self._lying[id(given)] = lying(self.source(name))
        return self._lying[id(given)]

    def places(self, names: Iterable[str]) -> dict[str, Uncopied]:
        """Where levels lie that are read there, as their files are by now. Raises UsageError."""
        found = {name: self.lying(name) for name in names}
        self.check_unchanged()
        return {name: each.place for name, each in found.items() if each is not None}

    def check_unchanged(self) -> None:
        """Raise UsageError where a file is no more what it was when it was opened."""
        for name, stamp in self._stamps.items():
            given = self.problem.initial[name]
            assert isinstance(given, InputFile)
            if _stamp(given.file) != stamp:
                raise UsageError(
                    f"the initial values of {name!r}: {given} changed after it was opened; run "
                    "again when no program writes it"
                )

    def close(self) -> None:
        """Let go of the files."""
        while self._opened:
            self._opened.popitem()[1].close()
        self._stamps.clear()
        self._lying.clear()


def decoding_told(problem: Problem) -> tuple[str, ...]:
    """What reading the files of a problem costs; nothing where one cannot be read.

    What is against such a file is said by `check_inputs`.
    """
    with Inputs(problem) as inputs, suppress(UsageError, StoreError):
        return inputs.told()
    return ()


def _cost(name: str, file: InputFile, source: Source) -> str:
    """What it costs to decode all values of a file that is decoded by a library or as a stream."""
    piece = tuple(map(range, map(min, source.chunk, source.shape)))
    begin = time.perf_counter()
    source.read(piece)
    seconds = time.perf_counter() - begin
    whole, part = prod(source.shape), max(1, prod(map(len, piece)))
    paths = file.file.rglob("*") if file.file.is_dir() else (file.file,)
    stored = sum(path.stat().st_size for path in paths if path.is_file())
    buffers = max(source.decoded_bytes, part * source.dtype.itemsize)
    return (
        f"{name} is decoded from {file}: {format_bytes(whole * source.dtype.itemsize)} of values, "
        f"the file has {format_bytes(stored)}; in pieces of {format_bytes(buffers)}, "
        f"{format_seconds(seconds * whole / part)} of decoding by the first of them"
    )


def check_inputs(problem: Problem) -> None:
    """Compare every file and array of initial values with its field. Raises UsageError."""
    with Inputs(problem) as inputs:
        inputs.check()


def check_series(problem: Problem, name: str, series: Series) -> None:
    """Raise UsageError where files do not hold what the steps of a problem read."""
    given = series.paths, name, problem.shape, problem.dtype_of(name)
    count = len(frames_of(*given, series.lacks(problem.ndim)))
    for step in (0, problem.steps - 1) if problem.steps else ():
        if not 0 <= series.number(step) < count:
            raise UsageError(
                f"the series of {name!r} has the frames 0..{count - 1}, and step {step} reads frame"
                f" {series.number(step)}"
            )


def open_initial(problem: Problem, name: str) -> Source:
    """The file that the initial values of ``name`` are read from, which has to be one.

    Raises UsageError where it has another shape than the grid, or a type that NumPy does not
    convert to that of the field within the same kind, or without any loss to whole numbers;
    StoreError where it cannot be read.
    """
    file, target = problem.initial[name], np.dtype(problem.dtype_of(name.removesuffix(PREVIOUS)))
    assert isinstance(file, InputFile)
    try:
        if is_url(file.path):
            raise UsageError(
                f"{file} is in an object store, and runs read local files only; copy it first: "
                f"outgrid import {file} --to {file.file.name.partition('.')[0]}.npy"
            )
        if not file.file.exists():
            near = [
                sibling.name
                for sibling in file.file.parent.glob("*")
                if InputFile.named_by(sibling.name)
            ]
            hint = f"; did you mean {nearest_three(file.file.name, sorted(near))}?" if near else ""
            raise UsageError(f"{file} does not exist{hint}")
        source = open_input(file, problem.shape)
        try:
            _check_grid(problem, name, file, source)
        except UsageError:
            source.close()
            raise
        if np.can_cast(source.dtype, target, casting(target)):
            return queued(source)
        source.close()
        lost = "its kind" if is_real(target) else "numbers"
        raise UsageError(
            f"{file} holds {source.dtype}, which does not convert to {target} without losing "
            f"{lost}; save it as {target}"
        )
    except (StoreError, UsageError) as error:
        raise UsageError(f"the initial values of {name!r}: {error}") from error


def _check_grid(problem: Problem, name: str, file: InputFile, source: Source) -> None:
    """Raise UsageError where axes of a file are those of the grid in another order, or its
    coordinates lie elsewhere."""
    grid, dims = problem.grid or Grid(), source.dims
    names = [axis.name for axis in grid.axes(problem.ndim)]
    if sorted(dims) == sorted(names) and [*dims] != names and not file.transpose:
        axes = tuple(dims.index(axis) for axis in names)
        raise UsageError(
            f"{file} has the axes {', '.join(dims)}, the grid has {', '.join(names)}; "
            f"InputFile(..., transpose={axes}) would transpose it, reading "
            f"{prod(source.shape[:-1])} rows one by one"
        )
    if problem.grid is None or not file.coordinates:
        return
    try:
        whole = grid.axes(problem.ndim, name.removesuffix(PREVIOUS))
        for dim, axis in zip(dims, whole, strict=False):
            if dim in source.coords:
                leave_out = "InputFile(..., coordinates=False)"
                check_place(f"of {file}", dim, source.coords[dim], axis, leave_out)
    except DefinitionError as error:
        raise UsageError(str(error)) from error


def _stamp(path: Path) -> Stamp:
    """What changes when a file is written, or any file of a folder; nothing where it is gone."""
    count = mark = 0
    for status in _states(path):
        mark = hash((mark, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
        count += 1
    return count, mark


def _states(path: Path) -> Iterator[os.stat_result]:
    with suppress(OSError):
        yield path.stat()
        if path.is_dir():
            for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
                yield from _states(Path(entry.path))
