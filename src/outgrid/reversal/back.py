"""Runs back in time: from what an objective says of the end to the beginning."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from outgrid import api
from outgrid.durable import partial_path, replace_whole
from outgrid.formats.npy import HEADER_BYTES, reserve_npy
from outgrid.result import Result
from outgrid.reversal.cuts import Piece
from outgrid.reversal.objective import Cotangents, array_of
from outgrid.reversal.progress import Progress
from outgrid.reversal.task import History, Task
from outgrid.stencil.reverse import SOURCES, Reverse

__all__ = ["Back"]


class Back(msgspec.Struct, dict=True):
    """The way back of a gradient, as far as its `progress` says, with the derivatives of the
    objective. `kept` is the history of the last steps, where the run forward has kept it."""

    task: Task
    progress: Progress
    bars: Cotangents
    kept: History | None

    @cached_property
    def residual(self) -> NDArray[np.float64]:
        """Derivatives by what receivers saw, a row for each step."""
        given = self.bars.traces
        return np.zeros((self.task.problem.steps, 0)) if given is None else array_of(given)

    def go(self, first: int, last: int, lengths: Sequence[int], begin: Result) -> None:
        """Go back from step `last` to `first`, of which `begin` is the state."""
        if self.progress.low <= first:
            return
        if not lengths:
            self._through(first, last, begin)
            return
        task = self.task
        starts = task.cuts.starts(first, last, lengths[0])
        ends, states = (*starts[1:], last), [begin]
        for low, high in zip(starts, ends[:-1], strict=False):
            *_, state = task.runs(low, high, states[-1], f"state.{high}")
            states.append(state)
        self.through_all(starts, ends, lengths[1:], states)
        task.remove(*(f"state.{start}" for start in starts[1:]))

    def through_all(
        self,
        starts: Sequence[int],
        ends: Sequence[int],
        lengths: Sequence[int],
        states: Sequence[Result],
    ) -> None:
        """Go back through spans of steps, the last one first, with the state at each start."""
        for low, high, state in zip(
            reversed(starts), reversed(ends), reversed(states), strict=False
        ):
            self.go(low, high, lengths, state)

    def _through(self, first: int, last: int, begin: Result) -> None:
        """Go back through a span of steps of which the history is there, or is made."""
        task, name = self.task, f"history.{first}"
        history = self.kept if self.kept is not None and self.kept.first == first else None
        if history is None:
            made = task.runs(first, last, begin, name, task.watched) if task.kept else ()
            history = History(first, begin, tuple(run.out for run in made))
        for piece in task.cuts.pieces(first, last):
            if piece.low < self.progress.low:
                self._run(piece, history)
        if history is self.kept:
            task.spend(history)
        task.remove(name, *(f"{name}.{low}" for low, _ in task.cuts.parts(first, last)))

    def _run(self, piece: Piece, history: History) -> None:
        task, progress = self.task, self.progress
        before = api.open_run(task.out / progress.before) if progress.before else None
        begun = task.begun(before)
        name = f"back.{piece.low}"
        there = (task.out / name).exists()  # and reads the files with what is added
        begun |= {of: str(path) for of, path in self._added(piece.high, begun, there)}
        before_all = np.zeros((int(piece.low == 0), self.residual.shape[1]))
        seen = self.residual[max(0, piece.low - 1) : piece.high]
        residual = np.concatenate([before_all, seen])
        one, posed = task.problem_back(piece, begun, residual, self.bars.reductions, history)
        made = task.run(posed, name)
        self._take_numbers(one, piece, made)
        former, progress.before, progress.low = progress.before, name, piece.low
        progress.write(task)
        if former:
            task.remove(former)
        if task.comm.rank == 0:
            for path in task.out.glob(f"added.{piece.high}.*.npy"):
                path.unlink()

    def _take_numbers(self, one: Reverse, piece: Piece, made: Result) -> None:
        """Take over what receivers and reductions of a run back in time have seen."""
        numbers, problem = self.progress.numbers, self.task.problem
        reductions = made.reductions
        for turn, low in enumerate(piece.firsts):
            if numbers.get(SOURCES):
                seen = made.traces[turn].reshape(piece.chunk, len(problem.sources))
                numbers[SOURCES][low : low + piece.chunk] = seen.tolist()
            for name, (of, step) in one.summed.items():
                numbers[of][low + step] += float(reductions[name][turn])

    def _added(self, step: int, begun: dict[str, Any], there: bool) -> Iterator[tuple[str, Path]]:
        """Files of the cotangents with what the objective adds to them after a step.

        They are made unless they are ``there``.
        """
        problem = self.task.problem
        added: dict[str, list[tuple[tuple[range, ...], Any]]] = {}
        whole = tuple(map(range, problem.shape))
        if step == problem.steps:
            for field, values in self.bars.final.items():
                added.setdefault(field, []).append((whole, array_of(values)))
            for receiver, value in zip(problem.receivers, self.residual[step - 1], strict=False):
                for cell, weight in self.task.corners(receiver):
                    place = tuple(range(index, index + 1) for index in cell)
                    alone = np.full([1] * problem.ndim, weight * value)
                    added.setdefault(receiver.field, []).append((place, alone))
        for snapshot, values in zip(problem.snapshots, self.bars.snapshots, strict=False):
            if values is not None and step >= snapshot.begin:
                number, rest = divmod(step - snapshot.begin, snapshot.every)
                cells = snapshot.cells(problem.shape)
                if not rest:
                    frame = array_of(values)[number].reshape([len(along) for along in cells])
                    added.setdefault(snapshot.field, []).append((cells, frame))
        for field, parts in added.items():
            name = self.task.names.cotangents[field]
            path = self.task.out / f"added.{step}.{name}.npy"
            if self.task.comm.rank == 0 and not (there and path.exists()):
                before = array_of(begun[name]) if name in begun else None
                partial = partial_path(path)
                into = np.lib.format.open_memmap(partial, "w+", problem.dtype, problem.shape)
                for plane in problem.interior[
                    0
                ]:  # of zeroes, which take no space, where nothing is
                    if before is not None:
                        into[plane] = before[plane]
                    for cells, values in parts:
                        self._add(into[plane], plane, cells, values)
                into.flush()
                replace_whole(partial, path)
            self.task.comm.share(None)
            yield name, path

    def _add(self, into: NDArray[Any], plane: int, cells: tuple[range, ...], values: Any) -> None:
        """Add a plane of a part of the grid, as far as it is updated."""
        if plane not in cells[0]:
            return
        part, index = np.asarray(values[cells[0].index(plane)], float), list[Any]()
        for axis, (along, inside) in enumerate(
            zip(cells[1:], self.task.problem.interior[1:], strict=True)
        ):
            mine = [place for place, cell in enumerate(along) if cell in inside]
            part = part.take(mine, axis=axis)
            index.append([along[place] for place in mine])
        into[np.ix_(*index)] += part

    def finish(self) -> dict[str, Any]:
        """Leave the arrays of the gradient in its folder; numbers, and profiles, by name."""
        task, problem = self.task, self.task.problem
        end = api.open_run(task.out / self.progress.before)
        profiles = {profile.name: profile.axis for profile in problem.stencil.profiles}
        numbers: dict[str, Any] = {}
        for name in task.wrt:
            if name in self.progress.numbers:
                values = np.array(self.progress.numbers[name]).reshape(problem.steps, -1)
                numbers[name] = values if name == SOURCES else values[:, 0]
                if name != SOURCES and not isinstance(problem.parameters[name], tuple):
                    numbers[name] = math.fsum(values[:, 0].tolist())
            elif name in profiles:
                numbers[name] = _along(end[task.names.gradients[name]], profiles[name])
            elif task.comm.rank == 0:
                self._leave(end, task.cotangents(name), task.out / f"{name}.npy")
        task.comm.share(None)
        return numbers

    def _leave(self, end: Result, names: Sequence[str], path: Path) -> None:
        """Leave the sum of some fields; one that is in a file of its own stays in that."""
        problem, parts = self.task.problem, [end[name] for name in names]
        path.unlink(missing_ok=True)
        if len(names) == 1 and names[0] not in end.record.pieces:
            with suppress(OSError):  # between file systems, or of one that has no links
                os.link(end.path(names[0]), path)
                # What makes it a part of a group of Zarr is of its run, of which no more is read.
                os.truncate(path, HEADER_BYTES + math.prod(problem.shape) * problem.item_bytes)
                return
        reserve_npy(path, problem.shape, problem.dtype)
        into = np.memmap(path, problem.dtype, "r+", HEADER_BYTES, problem.shape)
        for plane in range(problem.shape[0]):
            into[plane] = sum((part[plane] for part in parts[1:]), parts[0][plane])
        into.flush()


def _along(field: Any, axis: int) -> NDArray[np.float64]:
    """The sums of a field over all axes but one, plane by plane."""
    extents = field.shape
    sums = np.zeros(extents[axis])
    for plane in range(extents[0]):
        values = np.asarray(field[plane], float)
        if axis == 0:
            sums[plane] = values.sum()
        else:
            others = tuple(other for other in range(values.ndim) if other != axis - 1)
            sums += values.sum(axis=others)
    return sums
