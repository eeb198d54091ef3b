"""What a gradient is of, checked, and the runs that it is made of."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from outgrid import api
from outgrid.comm import Comm, world
from outgrid.config import RunOptions
from outgrid.durable import partial_path, replace_whole
from outgrid.errors import StoreError, UsageError
from outgrid.formats.npy import read_header
from outgrid.machine import limit_on_memory
from outgrid.observe.finite import not_finite
from outgrid.plan.tables import traced_bytes
from outgrid.record import RECORD_NAME
from outgrid.result import Result
from outgrid.reversal.cuts import Cuts, Piece
from outgrid.reversal.levels import write_level
from outgrid.reversal.objective import (
    Objective,
    check,
    check_kind,
    reduced,
    snapshots_of,
)
from outgrid.reversal.support import check_options, check_supported, checked_wrt
from outgrid.runs.verify import verify
from outgrid.stencil.adjoint_names import AdjointNames
from outgrid.stencil.history import History as OneHistory
from outgrid.stencil.model import Stencil
from outgrid.stencil.points import Receiver, Source
from outgrid.stencil.problem import PREVIOUS, Problem
from outgrid.stencil.region import plain
from outgrid.stencil.reverse import SOURCES, Reverse, reverse
from outgrid.stencil.series import Series
from outgrid.stencil.snapshot import Snapshot

__all__ = ["COEFFICIENT", "SOURCES", "History", "Task"]

COEFFICIENT = "coefficient"

TRACES_SHARE = 1 / 8
"""Of the memory, for what the receivers of a run see, or residuals add in a run back in time."""


class History(msgspec.Struct, frozen=True):
    """States of a forward run from step `first` on, as a run back in time reads them.

    `begin` is the run that left the state at `first`, and what it had before; `runs` the folders of
    those that kept the others, one after the other, `offset` snapshots behind those of the problem.
    """

    first: int
    begin: Result
    runs: tuple[Path, ...]
    offset: int = 0


class Task(msgspec.Struct, frozen=True, dict=True):
    """The gradient of a `problem` by what `wrt` names, of an `objective`, made in the folder `out`,
    of every `every`-th state, rounded to the type `history`."""

    problem: Problem
    objective: Objective
    wrt: tuple[str, ...]
    out: Path
    cuts: Cuts
    every: int
    history: str
    options: Mapping[str, Any]

    @classmethod
    def checked(
        cls,
        problem: Problem,
        objective: Objective,
        wrt: Sequence[str],
        out: Path,
        chunk: int | None,
        every: int,
        history: str,
        options: Mapping[str, Any],
    ) -> Task:
        """Raises UsageError for what a gradient is not made of."""
        check_options(options)
        named = checked_wrt(wrt, problem)
        chunk = every if chunk is None else chunk
        check_supported(problem, chunk, every)
        check_kind(objective)
        check(objective, problem)
        looked_at = [problem.snapshots[number] for number in snapshots_of(objective, problem)]
        added = {
            step
            for snapshot in looked_at
            for step in range(snapshot.begin, problem.steps + 1, snapshot.every)
        }
        chunk = min(chunk, problem.steps)
        traced = [*problem.receivers, *(problem.sources if SOURCES in named else ())]
        longest = _longest(traced_bytes(traced), problem.steps, chunk, options)
        cuts = Cuts(problem.steps, chunk, tuple(sorted(added)), longest, every)
        given = {"progress": False, **options}
        task = cls(problem, objective, named, out, cuts, every, history, given)
        problem.replace(snapshots=task.watched)  # which says what types it keeps
        before = [name for name, after in task.back(chunk, 0).states.values() if after < 0]
        if every > 1 and before:
            raise UsageError(
                f"derivatives read {before[0] + PREVIOUS}, and with every = {every} the state "
                "before one that is kept is not: give every = 1"
            )
        return task

    @property
    def reduced(self) -> tuple[str, ...]:
        """The reductions that the objective depends on."""
        return reduced(self.objective)

    @property
    def comm(self) -> Comm:
        """The ranks that make it together."""
        return world()

    @cached_property
    def names(self) -> AdjointNames:
        """What cotangents and gradients are called in runs back in time."""
        return AdjointNames(self.problem.stencil)

    @cached_property
    def kept(self) -> tuple[str, ...]:
        """The fields whose states derivatives read."""
        one = self.back(self.cuts.chunk, 0)
        return tuple(sorted({name for name, _ in one.states.values()}))

    def back(self, chunk: int, phase: int) -> Reverse:
        """So many steps back in time; the first is `phase` steps after a state that is kept."""
        alike, asked = self.cuts.chunk == 1, (self.wrt, self.reduced, self.every, phase)
        return reverse(self.problem, chunk, *asked, alike=alike)

    def coefficient(self, name: str) -> Path:
        """The file of a coefficient that was written for all runs to read."""
        return self.out / f"{COEFFICIENT}.{name}.npy"

    def begins(self, name: str) -> Any:
        """What runs are given as the initial values of a field."""
        path = self.coefficient(name)
        return str(path) if path.exists() else self.problem.initial[name]

    def run(self, problem: Problem, name: str) -> Result:
        """Make a run, or go on with it; in a folder of that name.

        What an earlier process has left is compared with its checksums. Raises StoreError.
        """
        out = self.out / name
        there = (out / RECORD_NAME).exists()
        made = api.run(problem, out=out, resume=True, **self.options)
        errors = verify(out).errors if there and self.comm.rank == 0 else ()
        damaged = self.comm.share(str(errors[0]) if errors else "")[0]
        if damaged:
            raise StoreError(f"{damaged}; remove the folder {out}, and resume the gradient")
        return made

    def runs(
        self,
        first: int,
        last: int,
        begin: Result,
        name: str,
        snapshots: Sequence[Snapshot] = (),
        *,
        anew: bool = False,
        spent: bool = False,
    ) -> Iterator[Result]:
        """Runs that make the steps from `first` to `last`, each from what the one before left.

        Also the first one: files are read in less time than formulas are evaluated again. The last
        one has that name. Those before stay if `snapshots`, counted from `first`, are
        taken, else they go; where the last one is there, it is all that is needed, but `anew`.
        Those whose history is `spent` are as they were left.
        """
        spans, state = [*self.cuts.parts(first, last)], begin
        if spent:
            for low, high in spans:
                yield api.open_run(self.out / (name if high == last else f"{name}.{low}"))
            return
        if len(spans) > 1 and not (anew or snapshots) and (self.out / name / RECORD_NAME).exists():
            yield api.open_run(self.out / name)
            return
        for low, high in spans:
            taken = [snapshot.after(low - first) for snapshot in snapshots]
            posed = self.part(low, high, state, taken)
            made = self.run(posed, name if high == last else f"{name}.{low}")
            yield made
            if low > first and not snapshots:
                self.remove(state.out.name)
            state = made

    def check_finite(self, forward: Result) -> None:
        """Raise UsageError where a run has filled a coefficient with NaN or infinite values.

        The run back multiplies them by cotangents, which are 0 in fixed layers.
        """
        for coefficient in self.problem.stencil.coefficients:
            says = not_finite(coefficient.name)
            if any(warning.startswith(says) for warning in forward.record.warnings):
                raise UsageError(
                    f"{coefficient.name!r} holds values that are NaN or infinite; a gradient reads "
                    "coefficients in fixed layers as well: give finite values there, such as 0"
                )

    def remove(self, *names: str) -> None:
        """Remove runs that are not needed any more."""
        self.comm.share(None)
        if self.comm.rank == 0:
            for name in names:
                shutil.rmtree(self.out / name, ignore_errors=True)
        self.comm.share(None)

    def file(self, result: Result, name: str) -> Path:
        """The file of a field of a run; where ranks have left pieces, they are joined in one."""
        if name not in result.record.pieces:
            return result.path(name)
        path = result.out / f"joined.{name}.npy"
        if self.comm.rank == 0 and not path.exists():
            field, partial = result[name], partial_path(path)
            into = np.lib.format.open_memmap(partial, "w+", field.dtype, field.shape)
            for plane in range(field.shape[0]):
                into[plane] = field[plane]
            into.flush()
            replace_whole(partial, path)
        self.comm.share(None)
        return path

    def part(
        self,
        first: int,
        last: int,
        state: Result | None = None,
        snapshots: Sequence[Snapshot] = (),
    ) -> Problem:
        """The steps from `first` up to `last`, beginning with what a run left."""
        problem, cut = self.problem, slice(first, last)
        initial: dict[str, Any] = dict(problem.initial)
        initial |= {one.name: self.begins(one.name) for one in problem.stencil.coefficients}
        for lasting in problem.stencil.lasting:
            for name in (lasting.name, lasting.name + PREVIOUS)[: lasting.levels]:
                if state is not None:
                    initial[name] = str(self.file(state, name))
        given: dict[str, Any] = {
            name: value[cut] if isinstance(value, tuple) else value
            for name, value in problem.parameters.items()
        }
        given |= {name: problem.profile_values(name) for name in problem.profiles}
        return Problem(
            problem.stencil,
            problem.shape,
            problem.dtype,
            last - first,
            given,
            problem.boundary,
            initial,
            problem.first_step + first,
            [source.after(first).ending(last - first) for source in problem.sources],
            problem.receivers,
            snapshots,
            dtypes=problem.dtypes,
            grid=problem.grid,
            regions={name: plain(region) for name, region in problem.regions.items()},
        )

    def _regions(self, rule: Stencil) -> dict[str, Any]:
        """Where fields of a run back exist: coefficients, and what gradients are made of, as the
        fields that they belong to."""
        names = {field.name for field in rule.fields if not field.temporary}
        made = {**self.names.gradients, **self.names.cotangents}
        return {
            name: plain(region)
            for of, region in self.problem.regions.items()
            for name in (of, made.get(of), made.get(of + PREVIOUS))
            if name in names
        }

    @property
    def watched(self) -> tuple[Snapshot, ...]:
        """What keeps the history of a run."""
        kept = (OneHistory(name, self.every, self.history) for name in self.kept)
        return tuple(one.snapshot for one in kept)

    def dtype_kept(self, name: str) -> str:
        """The type that the states of a field are kept in."""
        return self.problem.dtype_of(name) if self.history == "same" else self.history

    def _rounded(self, path: Path, name: str) -> Path:
        """The file of a state, in the type that a history has; it is made where there is none."""
        dtype = self.dtype_kept(name)
        if dtype == self.problem.dtype_of(name):
            return path
        rounded = path.with_name(f"{path.stem}.{dtype}.npy")
        if self.comm.rank == 0:
            initial = {**self.problem.initial, name: str(path)}
            dtypes = {**self.problem.dtypes, name: dtype}
            kept = self.problem.replace(initial=initial, dtypes=dtypes, snapshots=())
            write_level(kept, name, rounded, self.options)
        self.comm.share(None)
        return rounded

    def spend(self, history: History) -> None:
        """Give the disk back what a history took that a run has gone back through.

        Its files stay, of zeroes that take no space: the folders of runs are whole for readers.
        """
        self.comm.share(None)
        if self.comm.rank == 0:
            for path in (path for name in self.kept for path in self._frames(history, name)):
                header = read_header(path)
                os.truncate(path, header.data_offset)
                os.truncate(path, header.data_offset + header.nbytes)
        self.comm.share(None)

    def _frames(self, history: History, of: str) -> list[Path]:
        """The files of the states of a field."""
        name = f"snapshot.{history.offset + self.kept.index(of)}.npy"
        return [run / name for run in history.runs]

    def problem_back(
        self,
        piece: Piece,
        begun: Mapping[str, Any],
        residual: np.ndarray,
        weights: Mapping[str, Sequence[float]],
        history: History | int,
    ) -> tuple[Reverse, Problem]:
        """The run of a piece back in time, from the cotangents and gradients that are `begun`.

        `residual` has a row for each of its steps, and in front one for the step before them.
        Without a `history`, of which the step is given where it would begin, series of files that
        are not there stand for it: for plans.
        """
        problem = self.problem
        first = history if isinstance(history, int) else history.first
        one = self.back(piece.chunk, (piece.low - first) % self.every)
        rule, firsts = one.stencil, piece.firsts
        initial: dict[str, Any] = {made.name: 0.0 for made in rule.fields if not made.temporary}
        initial |= {made.name + PREVIOUS: 0.0 for made in rule.lasting if made.levels == 2}
        dtypes: dict[str, str] = {}
        for coefficient in problem.stencil.coefficients:
            if coefficient.name in initial:
                initial[coefficient.name] = self.begins(coefficient.name)
                dtypes[coefficient.name] = problem.dtype_of(coefficient.name)
        for name, (of, after) in one.states.items():
            initial[name] = self._states(of, firsts, after, history)
            dtypes[name] = self.dtype_kept(of)
        initial |= begun
        sources: list[Source] = []
        for number, receiver in enumerate(problem.receivers):
            # What the step before the first of each turn left has its residual at the end of that.
            for step in range(-1, piece.chunk - 1 if residual.size else -1):
                values = [float(residual[low + step + 1 - piece.low, number]) for low in firsts]
                written = one.written(receiver.field, step)
                sources += [
                    Source(written, cell, tuple(weight * value for value in values))
                    for cell, weight in self.corners(receiver)
                ]
        receivers = [
            Receiver(one.written(source.field, step), source.position)
            for step in range(piece.chunk)
            for source in problem.sources
            if SOURCES in self.wrt
        ]
        return one, Problem(
            rule,
            problem.shape,
            problem.dtype,
            len(firsts),
            one.parameters(problem, firsts, weights),
            one.boundary,
            initial,
            sources=sources,
            receivers=receivers,
            dtypes=dtypes,
            grid=problem.grid and replace(problem.grid, fields={}),
            regions=self._regions(rule),
        )

    def corners(self, receiver: Receiver) -> Iterator[tuple[tuple[int, ...], float]]:
        """The cells that a receiver reads, as far as they are updated, with their weights."""
        for cell, weight in receiver.corners:
            inside = zip(cell, self.problem.interior, strict=True)
            if all(index in along for index, along in inside):
                yield cell, weight

    def begun(self, before: Result | None) -> dict[str, Any]:
        """What cotangents and gradients begin with: as later steps left them."""
        if before is None:
            return {}
        return {name: str(self.file(before, name)) for name in before}

    def cotangents(self, name: str) -> tuple[str, ...]:
        """What the gradient by a field is the sum of."""
        if not self.problem.stencil.field(name.removesuffix(PREVIOUS)).evolving:
            return (self.names.gradients[name],)
        past, bars = name + PREVIOUS, self.names.cotangents
        both = past in self.problem.alike  # one value begins both levels
        return (bars[name], bars[past]) if both else (bars[name],)

    def _states(self, of: str, firsts: range, after: int, history: History | int) -> Series:
        step = firsts.step // self.every if len(firsts) > 1 else 0
        first = history if isinstance(history, int) else history.first
        number = (firsts[0] + after - first) // self.every
        if isinstance(history, int):
            return Series("history.npy", number, step)
        begin = [of + PREVIOUS, of] if self.problem.stencil.field(of).levels == 2 else [of]
        number += len(begin) - 1
        # Frames in front of the first one that is read need not be there.
        unread = min(len(begin), number + min(0, step * (len(firsts) - 1)))
        paths = [self._rounded(self.file(history.begin, name), of) for name in begin[unread:]]
        kept = [path for path in self._frames(history, of) if read_header(path).shape[0]]
        return Series((*paths, *kept), number - unread, step)


def _longest(step_bytes: int, steps: int, chunk: int, options: Mapping[str, Any]) -> int | None:
    """The most steps of a run, so that its traces, of `step_bytes` each, take little of the memory.

    Of the least that a rank has: all of them cut runs at the same steps.
    """
    comm = world()
    memory = limit_on_memory(options.get("memory"), comm.local)
    limit_bytes = min(comm.share(RunOptions.of(memory=memory).memory_bytes))
    most = int(limit_bytes * TRACES_SHARE) // max(1, step_bytes)
    return None if most >= steps else max(1, most // chunk) * chunk
