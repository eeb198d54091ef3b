"""Small pictures of a run: the first field after each sweep, sampled while it leaves the window."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from outgrid.comm import Comm
from outgrid.config import RunOptions
from outgrid.durable import partial_path
from outgrid.errors import StoreError
from outgrid.formats.npy import header_bytes
from outgrid.observe.observer import Noted, Observer, Window
from outgrid.plan.model import Plan
from outgrid.plan.program import Put
from outgrid.plan.schedule.rings import Arrival
from outgrid.regular import own
from outgrid.runs.group import Durable
from outgrid.runs.manifest import Manifest
from outgrid.runs.run import Run
from outgrid.stencil.problem import Problem

PREVIEW_NAME = "preview.npy"
MOST_FRAMES = 240


class Preview(Observer):
    """Frames of shape (height, width), float32: every n-th cell of a 2-D field, or of the middle
    plane of a 3-D one. One frame for each state, each written to the file when it is complete; of
    very many states only every k-th is kept. A run that is resumed has none.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        plan, self._path = run.plan, partial_path(run.out / PREVIEW_NAME)
        height, width = plan.schedule.shape[-2:]
        self.stride = max(1, -(-max(height, width) // max(1, run.options.preview)))
        self._shape = (-(-height // self.stride), -(-width // self.stride))
        self._keep_every = max(1, -(-plan.schedule.states.count // MOST_FRAMES))
        self._frames: dict[int, NDArray[np.float32]] = {}
        self._left: dict[int, int] = {}
        self.steps: list[int] = []

    @classmethod
    def watches(cls, problem: Problem, options: RunOptions) -> bool:
        """Where it is asked for."""
        return bool(options.preview)

    @classmethod
    def files(cls, problem: Problem, options: RunOptions, *, alone: bool = True) -> tuple[str, ...]:
        """Its frames."""
        return (PREVIEW_NAME,)

    def begin(self, manifest: Manifest, durable: Durable | None) -> Manifest:
        """Make the file, and look on from now."""
        if self._plan.schedule.departures:
            try:
                with self._path.open("xb") as file:
                    file.write(header_bytes((0, *self._shape), np.float32))
            except OSError as error:
                raise self._failure(error) from error
            self.initial, self.leaving = self._initial, self._leaving
        return manifest

    @property
    def _plan(self) -> Plan:
        return self.run.plan

    @property
    def _field(self) -> str:
        return self._plan.schedule.departures[0].field

    def _initial(
        self, arrival: Arrival, planes: range, rows: range, cells: NDArray[np.generic]
    ) -> None:
        """Look at a block on its way into the store."""
        if arrival.field == self._field and arrival.level == 0:
            self._take(0, planes, rows, lambda plane: cells[plane - planes.start])

    def _leaving(self, put: Put, window: Window) -> None:
        """Look at planes on their way out of the window."""
        wanted = put.field == self._field and put.level == 0 and not put.seam
        if wanted and put.state % self._keep_every == 0:
            planes = put.there.planes

            def plane_of(plane: int) -> NDArray[np.generic]:
                first = put.first + plane - planes.start
                (view,) = window.views(replace(put, first=first, last=first + 1))
                return view

            self._take(put.state, planes, put.there.rows, plane_of)

    def _take(
        self,
        state: int,
        planes: range,
        rows: range,
        plane_of: Callable[[int], NDArray[np.generic]],
    ) -> None:
        """Sample ``rows`` of ``planes``; only those that the frame shows are looked at."""
        frame = self._frames.setdefault(state, np.zeros(self._shape, np.float32))
        left = self._left.setdefault(state, self._plan.schedule.planes * self._plan.layout.rows)
        if len(self._plan.schedule.shape) == 2:
            for row in range(-(-planes.start // self.stride), -(-planes.stop // self.stride)):
                frame[row] = plane_of(row * self.stride).reshape(-1)[:: self.stride]
        elif self._plan.schedule.planes // 2 in planes:
            shown = range(-(-rows.start // self.stride), -(-rows.stop // self.stride))
            first = shown.start * self.stride - rows.start
            seen = plane_of(self._plan.schedule.planes // 2)[first :: self.stride, :: self.stride]
            frame[shown.start : shown.stop] = seen
        self._left[state] = left - len(planes) * len(rows)
        if self._left[state] == 0:
            self._write(state, self._frames.pop(state))

    def _write(self, state: int, frame: NDArray[np.float32]) -> None:
        """Append a frame, then count it in the header."""
        try:
            with open(self._path, "r+b", opener=own) as file:
                file.seek(0, os.SEEK_END)
                file.write(frame.tobytes())
                self.steps.append(
                    sum(
                        self._plan.schedule.depths[: self._plan.schedule.states.sweeps_until(state)]
                    )
                )
                file.seek(0)
                file.write(header_bytes((len(self.steps), *self._shape), np.float32))
        except OSError as error:
            raise self._failure(error) from error

    def place(self, comm: Comm) -> Noted:
        """Leave the frames of a finished run under their name."""
        if self.leaving is None:
            return Noted()
        try:
            os.replace(self._path, self.run.out / PREVIEW_NAME)
        except OSError as error:
            raise self._failure(error) from error
        return Noted(preview=PREVIEW_NAME)

    def _failure(self, error: OSError) -> StoreError:
        if isinstance(error, StoreError):
            return error
        return StoreError("cannot write the preview", path=self._path, errno=error.errno)
