"""Coarser levels of the results, made of planes as they leave the window for the last time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from outgrid.comm import Comm
from outgrid.config import RunOptions
from outgrid.durable import make_folder, partial_path, sync_folder
from outgrid.formats import InputFile, open_file
from outgrid.formats.levels import Levels, level_files, stored_level_bytes
from outgrid.formats.source import writing
from outgrid.observe.observer import Noted, Observer, Window
from outgrid.plan.program import Put
from outgrid.runs.run import Run
from outgrid.runs.zarr import pyramid_names
from outgrid.stencil.problem import Problem

__all__ = ["Pyramid"]


class Pyramid(Observer):
    """The levels of each field that evolves, see `formats.levels`.

    Planes of the last state are taken as they leave, as far as they do so whole and in order. What
    is left of them, or of a run that was cut off meanwhile, is read from the results in the end;
    the record says so.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._levels: dict[str, Levels] = {}

    @classmethod
    def watches(cls, problem: Problem, options: RunOptions) -> bool:
        """Where it is asked for."""
        return options.pyramid

    @classmethod
    def files(cls, problem: Problem, options: RunOptions, *, alone: bool = True) -> tuple[str, ...]:
        """The shards of all levels, and what tells of them."""
        every = (pyramid_names(problem, name) for name in _fields(problem))
        return tuple(name for names in every for name in names)

    @classmethod
    def nbytes(cls, problem: Problem) -> int:
        """Bytes of all levels of all fields."""
        fields = (np.dtype(problem.dtype_of(name)) for name in _fields(problem))
        return sum(stored_level_bytes(problem.shape, dtype) for dtype in fields)

    def attach(self, kernel: Any) -> Any:
        """Begin the levels of the last state."""
        for name in _fields(self.run.problem):
            if not self._is_placed(name):
                self._levels[name] = self._begun(name)
        if self._levels:
            self.leaving = self._leaving
        return kernel

    def _paths(self, name: str) -> list[Path]:
        return [self.run.out / file for file in level_files(name, self.run.given.shape)]

    def _is_placed(self, name: str) -> bool:
        """Whether another process has left all levels of a field."""
        return all(path.exists() for path in self._paths(name))

    def _begun(self, name: str) -> Levels:
        paths = [*map(partial_path, self._paths(name))]
        for path in paths:
            make_folder(path.parent)
        problem = self.run.given
        return Levels(paths, problem.shape, np.dtype(problem.dtype_of(name)))

    def _leaving(self, put: Put, window: Window) -> None:
        """Take planes on their way out of the window for the last time."""
        schedule, levels = self.run.plan.schedule, self._levels.get(put.field)
        wanted = put.level == 0 and not put.seam and put.state == schedule.states.count
        if levels is None or not wanted or len(put.there.rows) < self.run.plan.layout.rows:
            return
        for plane in put.there.planes:
            if plane == levels.taken:
                number = plane - put.there.planes.start
                (view,) = window.views(put, slice(number, number + 1))
                levels.take(view.reshape(self.run.given.shape[1:]))

    def place(self, comm: Comm) -> Noted:
        """Read what is left, and give the files their names."""
        warnings = [
            f"planes of {name} from {first} on were read from the result for the coarser "
            "levels, as they leave the window in pieces or out of order"
            for name in _fields(self.run.given)
            if not self._is_placed(name)
            for first in self._finish(name)
        ]
        return Noted(warnings=tuple(warnings))

    def _finish(self, name: str) -> Iterator[int]:
        """Complete the levels of a field; the first plane that had to be read, if any."""
        levels, shape = self._levels.pop(name, None) or self._begun(name), self.run.given.shape
        if levels.taken < shape[0]:
            yield levels.taken
            with closing(open_file(InputFile(str(self.run.out / f"{name}.npy")))) as source:
                for plane in range(levels.taken, shape[0]):
                    levels.take(source.read((range(plane, plane + 1), *map(range, shape[1:])))[0])
        levels.finish()
        for path in self._paths(name):
            with writing(path):
                os.replace(partial_path(path), path)
            sync_folder(path.parent)


def _fields(problem: Problem) -> tuple[str, ...]:
    """Fields that have coarser levels."""
    return tuple(field.name for field in problem.stencil.evolving if not field.temporary)
