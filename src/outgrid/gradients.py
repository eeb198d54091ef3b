"""Gradients of an objective by what a problem was given: runs forward, and runs back in time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from outgrid.errors import UsageError
from outgrid.fields import FieldArray
from outgrid.formats.axis import Axis
from outgrid.formats.npy import map_npy
from outgrid.result import Result
from outgrid.reversal.back import Back
from outgrid.reversal.coefficients import write_coefficients
from outgrid.reversal.ending import going_on
from outgrid.reversal.objective import (
    Cotangents,
    LeastSquares,
    Objective,
    Seen,
    Total,
    check_values,
    said,
)
from outgrid.reversal.progress import NAME, begun, new
from outgrid.reversal.strategy import GradientPlan, longest_back, plan_of
from outgrid.reversal.task import History, Task
from outgrid.reversal.traces import NAME as TRACES
from outgrid.reversal.traces import Traces
from outgrid.stencil.meaning import described
from outgrid.stencil.problem import Problem
from outgrid.stencil.reverse import Reverse, reverse
from outgrid.units import suggest

__all__ = [
    "Cotangents",
    "Derivatives",
    "GradientPlan",
    "LeastSquares",
    "Objective",
    "Seen",
    "Total",
    "adjoint",
    "gradient",
    "plan_gradient",
]

RUNS = re.compile(r"(state|history|back)(\.\d+)+")
"""Folders of the runs that a gradient is made of."""

ADDED = re.compile(r"added\.\d+\..+\.npy")
"""Files of cotangents with what an objective adds."""


@dataclass(frozen=True, slots=True)
class Derivatives(Mapping[str, Any]):
    """A gradient: `g["c"]` by a field is an array on disk that draws itself, like a field of a
    result; by a parameter a number or an array of one per step, by a profile an array along its
    axis, by "sources" an array of (steps, sources).

    `value` is that of the objective, None where it has none; `adjoint` the strategy that was taken.
    `axes` says where the cells of the `fields` lie.
    """

    value: float | None
    out: Path
    numbers: Mapping[str, Any]
    fields: tuple[str, ...]
    adjoint: str
    axes: Mapping[str, tuple[Axis, ...]] = field(default_factory=dict[str, tuple[Axis, ...]])

    def __getitem__(self, name: str) -> Any:
        if name in self.numbers:
            return self.numbers[name]
        if name not in self.fields:
            raise UsageError(
                f"the gradient was not computed for {name!r}{suggest(name, list(self))}"
            )
        array, meaning = map_npy(self.out / f"{name}.npy"), (self.axes.get(name, ()), "")
        return FieldArray.of(array, f"gradient by {name}", lambda: meaning)

    def __iter__(self) -> Iterator[str]:
        return iter((*self.fields, *self.numbers))

    def __len__(self) -> int:
        return len(self.fields) + len(self.numbers)


def gradient(
    problem: Problem,
    objective: Objective,
    *,
    wrt: Sequence[str],
    out: str | Path,
    adjoint: str = "auto",
    chunk: int | None = None,
    every: int = 1,
    history: str = "same",
    resume: bool = False,
    **options: Any,
) -> Derivatives:
    """The derivatives of an objective by fields, parameters and sources of a problem.

    `wrt` names coefficients ("c"), fields that are updated ("u", "u.previous": their initial
    values), parameters, profiles, and "sources": all values of all sources. In fixed layers the
    gradient by a field is 0. `objective` is a LeastSquares, a Total, Cotangents, or a function of
    `Seen` that returns a value and Cotangents; see `Objective` for its attributes. Runs lie in the
    folder `out` while they are needed, and the arrays of the gradient at the end; it must not
    exist, or with `resume` hold the same gradient, which then goes on.

    `adjoint` "history" keeps the states of all steps on disk, "recompute" those of as many at a
    time as fit there, "multistage" those of still fewer; what is not kept is made again. All give
    the same bytes. "auto" takes the fastest that fits the disk. `chunk` steps go back in time in
    one step of the runs back, which make as many of these in a sweep as the plan says. Of every
    `every`-th step alone a state is kept; those between are taken to be the last one kept, which
    makes a gradient that is not exact, and which derivatives that read the level before a state do
    not support. `chunk` is a multiple of `every`, which it is if left out.
    Nor is it exact where states are rounded to a shorter type as they are kept, `history`
    "float16", "bfloat16" or "float32".

    `options` are those of `og.run`, but for those of one run such as `stop_after` and `overwrite`;
    `on_sweep` is called after each sweep of each run. Ctrl-C, and the end of a Slurm job, stop the
    gradient so that `resume` continues it. Raises DefinitionError for a stencil without
    derivatives, UsageError for what does not fit, InfeasiblePlan where the disk has no room, and
    what `og.run` raises.
    """
    task = Task.checked(problem, objective, wrt, Path(out), chunk, every, history, options)
    check_values(objective, problem)
    with going_on(
        task.out / NAME, f"og.gradient(..., out={str(out)!r}, resume=True) continues the gradient"
    ):
        return _made_or_continued(task, adjoint, resume=resume)


def _made_or_continued(task: Task, adjoint: str, *, resume: bool) -> Derivatives:
    problem, objective = task.problem, task.objective
    progress = begun(task) if resume else None
    if progress is None:
        if task.out.exists() and not resume:
            raise UsageError(
                f"{task.out} exists; give another folder for out, or resume=True to continue"
            )
        chosen = plan_of(task, adjoint).chosen
        task.comm.share(None)  # all have looked
        progress = new(task, chosen.lengths, chosen.name)
    task = replace(task, cuts=replace(task.cuts, longest=progress.longest))
    if progress.done:
        return _made(task, progress.value, progress.numbers, progress.strategy)
    write_coefficients(task)
    starts = task.cuts.starts(0, problem.steps, (*progress.lengths, problem.steps)[0])
    states, kept, seen = _forward(task, starts, len(progress.lengths), progress.low)
    progress.value, bars = said(objective, seen)
    back = Back(task, progress, bars, kept)
    back.through_all(starts, (*starts[1:], problem.steps), progress.lengths[1:], states)
    progress.numbers = {name: np.asarray(one).tolist() for name, one in back.finish().items()}
    progress.done = True
    progress.write(task)
    return _made(task, progress.value, progress.numbers, progress.strategy)


def _made(
    task: Task, value: float | None, numbers: Mapping[str, Any], strategy: str
) -> Derivatives:
    """What is in place; the runs that it was made of go, and nothing else in the folder."""
    task.remove(*(path.name for path in task.out.iterdir() if RUNS.fullmatch(path.name)))
    if task.comm.rank == 0:
        added = (path for path in task.out.iterdir() if ADDED.fullmatch(path.name))
        written = (task.coefficient(one.name) for one in task.problem.stencil.coefficients)
        for path in (*added, *written, task.out / TRACES):
            path.unlink(missing_ok=True)
    given = {
        name: one if isinstance(one, float) else np.array(one) for name, one in numbers.items()
    }
    fields = tuple(name for name in task.wrt if name not in numbers)
    axes = axes_of(task.problem, fields)
    return Derivatives(value, task.out, given, fields, strategy if task.kept else "linear", axes)


def axes_of(problem: Problem, fields: Sequence[str]) -> dict[str, tuple[Axis, ...]]:
    """Where the cells of fields lie."""
    meanings = described(problem, fields)
    return {name: meanings[name][0] for name in fields}


def _forward(
    task: Task, starts: Sequence[int], levels: int, low: int
) -> tuple[list[Result], History | None, Seen]:
    """Make all steps, and keep the states at `starts`; of the last of them the history, too, where
    there are no further `levels`, until runs back have come as far as step `low`. What the
    objective looks at."""
    problem, traces = task.problem, Traces(task)
    states, whole = [task.run(task.part(0, 0), "state.0")], list[Path]()
    frames: list[list[NDArray[Any]]] = [[] for _ in problem.snapshots]
    names = [reduction.name for reduction in problem.stencil.reductions]
    reductions: dict[str, list[Any]] = {name: [] for name in names}
    for first, last in zip(starts, (*starts[1:], problem.steps), strict=True):
        watched = task.watched if last == problem.steps and levels <= 1 else ()
        snapshots = [snapshot.after(first) for snapshot in problem.snapshots]
        whole, end = list[Path](), states[-1]
        for made in task.runs(
            first,
            last,
            states[-1],
            f"state.{last}",
            (*snapshots, *watched),
            anew=bool(names) or not traces.done,
            spent=bool(watched) and low <= first,
        ):
            task.check_finite(made)
            traces.take(made)
            for name in names:
                reductions[name].append(made.reductions[name])
            for number, kept in enumerate(frames):
                kept.extend(frame for frame in made.snapshots[number])
            whole.append(made.out)
            end = made
        states.append(end)
    traces.finish()
    history = None
    if task.kept and levels <= 1:
        history = History(starts[-1], states[-2], tuple(whole), len(problem.snapshots))
    seen = Seen(
        problem,
        traces.array,
        states[-1],
        frames,
        {name: np.concatenate(parts) for name, parts in reductions.items()},
    )
    return states[:-1], history, seen


def plan_gradient(
    problem: Problem,
    *,
    wrt: Sequence[str],
    objective: Objective | None = None,
    out: str | Path = "gradient",
    adjoint: str = "auto",
    chunk: int | None = None,
    every: int = 1,
    history: str = "same",
    **options: Any,
) -> GradientPlan:
    """Which strategy a gradient takes and what each needs; `print` tells it. Writes nothing.

    Arguments are those of `gradient`. Raises what that raises.
    """
    given = Cotangents() if objective is None else objective
    return plan_of(
        Task.checked(problem, given, wrt, Path(out), chunk, every, history, options),
        adjoint,
    )


def run_back(
    problem: Problem,
    objective: Objective,
    *,
    wrt: Sequence[str],
    out: str | Path,
    chunk: int | None = None,
    every: int = 1,
    history: str = "same",
    **options: Any,
) -> Problem:
    """The longest run back in time of a gradient, for plans and measurements of its kernel.

    The files that it would read are not there. Arguments are those of `gradient`.
    """
    options.pop("adjoint", None)  # decides which states are there, not what is made of them
    given = chunk, every, history, options
    return longest_back(Task.checked(problem, objective, wrt, Path(out), *given))


def adjoint(problem: Problem, *, wrt: Sequence[str] = (), steps: int = 1) -> Reverse:
    """Some steps of a problem back in time, as one step of a stencil of many stages.

    Its `stencil` can be shown and run: `cotangents["u"]` is the name of the field that is the
    cotangent of u ("u_bar" where nothing else has that name), `gradients["c"]` that of the gradient
    by a coefficient, and `states` says which state of the forward run is read as which field.
    Raises DefinitionError for what has no derivative.
    """
    return reverse(problem, steps, wrt)
