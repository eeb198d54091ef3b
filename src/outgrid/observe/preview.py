"""Small pictures of a run: the first field after each sweep, sampled while it leaves the window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outgrid.comm import Comm
from outgrid.config import RunOptions
from outgrid.durable import partial_path
from outgrid.errors import StoreError, UsageError
from outgrid.formats.npy import HEADER_BYTES, cut_npy, header_bytes, read_header
from outgrid.observe.observer import Noted, Observer, Window
from outgrid.plan.instruction import Point
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
    plane of a 3-D one. One frame for each state, written to the file when it is complete; of very
    many states some are left out. The header counts the frames of what is durable, so a run that is
    resumed goes on behind them. A sweep that was cut in two by a stop has no frame.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        plan, self._path = run.plan, partial_path(run.out / PREVIEW_NAME)
        height, width = plan.schedule.shape[-2:]
        self.stride = max(1, -(-max(height, width) // max(1, run.options.preview)))
        self._shape = (-(-height // self.stride), -(-width // self.stride))
        self._spacing = max(1, -(-run.whole.steps // MOST_FRAMES))  # steps from frame to frame
        self._frames: dict[int, NDArray[np.float32]] = {}
        self._left: dict[int, int] = {}
        self._written: list[int] = []  # states whose frames no header counts yet
        self._count = 0

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
            self._make("xb")
            self.initial = self._initial
        return manifest

    def go_on(self) -> None:
        """Add to the frames of an earlier process; to none where they had another size."""
        if not self._plan.schedule.departures or self._final.exists():
            return
        try:
            header = read_header(self._path, 0)
        except (StoreError, UsageError):
            header = None
        if header is None or header.shape[1:] != self._shape or header.dtype != np.float32:
            self._make("wb")
        else:
            self._count = header.shape[0]
            self.leaving = self._leaving

    def _make(self, mode: str) -> None:
        try:
            with open(self._path, mode, opener=own) as file:
                file.write(header_bytes((0, *self._shape), np.float32))
        except OSError as error:
            raise self._failure(error) from error
        self.leaving = self._leaving

    @property
    def _plan(self) -> Plan:
        return self.run.plan

    @property
    def _final(self) -> Path:
        return self.run.out / PREVIEW_NAME

    @property
    def _field(self) -> str:
        return self._plan.schedule.departures[0].field

    def _initial(
        self, arrival: Arrival, planes: range, rows: range, cells: NDArray[np.generic]
    ) -> None:
        """Look at a block on its way into the store."""
        if arrival.field == self._field and arrival.level == 0:
            self._take(0, planes, rows, lambda which: list(cells[which]))

    def _leaving(self, put: Put, window: Window) -> None:
        """Look at planes on their way out of the window."""
        wanted = put.field == self._field and put.level == 0 and not put.seam
        if wanted and self._kept(put.state):
            there = put.there
            self._take(put.state, there.planes, there.rows, lambda which: window.views(put, which))

    def _kept(self, state: int) -> bool:
        """Whether a state is the first one after a whole number of spacings."""
        schedule, done = self._plan.schedule, self.run.done
        before, after = (
            done + sum(schedule.depths[: schedule.states.sweeps_until(each)])
            for each in (state - 1, state)
        )
        return before // self._spacing < after // self._spacing

    def _take(
        self,
        state: int,
        planes: range,
        rows: range,
        planes_of: Callable[[slice], Sequence[NDArray[np.generic]]],
    ) -> None:
        """Sample ``rows`` of ``planes``; only those that the frame shows are looked at."""
        frame = self._frames.setdefault(state, np.zeros(self._shape, np.float32))
        left = self._left.setdefault(state, self._plan.schedule.planes * self._plan.layout.rows)
        if len(self._plan.schedule.shape) == 2:
            row = -(-planes.start // self.stride)
            which = slice(row * self.stride - planes.start, None, self.stride)
            for number, plane in enumerate(planes_of(which)):
                frame[row + number] = plane.reshape(-1)[:: self.stride]
        elif self._plan.schedule.planes // 2 in planes:
            shown = range(-(-rows.start // self.stride), -(-rows.stop // self.stride))
            first = shown.start * self.stride - rows.start
            middle = self._plan.schedule.planes // 2 - planes.start
            (plane,) = planes_of(slice(middle, middle + 1))
            frame[shown.start : shown.stop] = plane[first :: self.stride, :: self.stride]
        self._left[state] = left - len(planes) * len(rows)
        if self._left[state] == 0:
            self._write(state, self._frames.pop(state))

    def _write(self, state: int, frame: NDArray[np.float32]) -> None:
        """Write a frame behind the others."""
        place = HEADER_BYTES + (self._count + len(self._written)) * frame.nbytes
        try:
            with open(self._path, "r+b", opener=own) as file:
                file.seek(place)
                file.write(frame.tobytes())
        except OSError as error:
            raise self._failure(error) from error
        self._written.append(state)
        if not self._plan.outlives:
            self._counted(state)

    def committed(self, point: Point) -> None:
        """Count the frames of states that are durable."""
        if self.leaving is not None:
            self._counted(point.state)

    def _counted(self, state: int) -> None:
        """Count the frames of states up to one in the header."""
        self._count += sum(each <= state for each in self._written)
        self._written = [each for each in self._written if each > state]
        try:
            with open(self._path, "r+b", opener=own) as file:
                file.write(header_bytes((self._count, *self._shape), np.float32))
        except OSError as error:
            raise self._failure(error) from error

    def place(self, comm: Comm) -> Noted:
        """Leave the frames of a finished run under their name."""
        if self.leaving is not None:
            shape = (self._count, *self._shape)
            try:
                cut_npy(self._path, shape, np.float32, self._final)
            except OSError as error:
                raise self._failure(error) from error
            self.leaving = None
        return Noted(preview=PREVIEW_NAME if self._final.exists() else None)

    def _failure(self, error: OSError) -> StoreError:
        if isinstance(error, StoreError):
            return error
        return StoreError("cannot write the preview", path=self._path, errno=error.errno)
