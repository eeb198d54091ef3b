"""Gradients of several shots, each a problem of its own, and their sum as programs minimise it."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from outgrid.comm import Comm, alone, world
from outgrid.durable import replace_file
from outgrid.errors import Error, UsageError
from outgrid.gradients import Derivatives, axes_of, gradient
from outgrid.report.progress import Shown, follow, is_watched
from outgrid.reversal.ending import going_on
from outgrid.reversal.identity import identity
from outgrid.reversal.objective import Objective, check, check_kind, check_values
from outgrid.reversal.posed import check_names, posed
from outgrid.reversal.progress import is_done
from outgrid.stencil.problem import Problem
from outgrid.stencil.reverse import SOURCES
from outgrid.units import format_seconds

__all__ = ["Fired", "Iteration", "Misfit", "shots"]

NAME = "shots.json"


class Fired(msgspec.Struct, frozen=True):
    """A shot whose gradient is finished: its number, how many of all `shots` are `done`, on all
    ranks, its value, the seconds so far, and those left by the mean of the ones before."""

    shot: int
    done: int
    shots: int
    value: float | None
    seconds: float
    left_seconds: float

    def __str__(self) -> str:
        """In a line."""
        left = f", {format_seconds(self.left_seconds)} left" if self.done < self.shots else ""
        return f"{self.done} of {self.shots} shots{left}"


def shots(
    problems: Sequence[Problem],
    objectives: Sequence[Objective],
    *,
    wrt: Sequence[str],
    out: str | Path,
    ranks: Literal["grid", "shots"] = "grid",
    on_shot: Callable[[Fired], None] | None = None,
    resume: bool = False,
    progress: bool | None = None,
    **options: Any,
) -> Derivatives:
    """The sum of the gradients of several problems, each with an objective of its own.

    The problems have the same grid; "sources" are no part of `wrt`. Shot n lies in the folder
    `out`/shot.n, with its runs, until all are finished; then the sum is in `out`, like a gradient.
    Sums are made in float64, in the order of the shots, and rounded once. With `resume` what is
    finished of each shot is kept, also of a sum that is finished.

    Started on several ranks of MPI, they share each grid, or with `ranks` "shots" each rank takes
    every n-th shot by itself; the bytes are the same. `on_shot` is called after each shot of this
    rank. A terminal shows how many are finished, with `progress` True any stream. `options` are
    those of `og.gradient`.

    Raises UsageError where problems, objectives or files in `out` do not fit each other, and what
    `og.gradient` raises, on all ranks alike.
    """
    wrt = (wrt,) if isinstance(wrt, str) else tuple(wrt)
    _check(problems, objectives, wrt, ranks)
    comm, out = world(), Path(out)
    if out.exists() and not resume:
        raise UsageError(f"{out} exists; give another folder for out, or resume=True to continue")
    others = [options.get("chunk"), options.get("every", 1), options.get("history", "same")]
    asked = _identity(problems, objectives, [wrt, *others])
    finished: dict[str, Any] = _finished(out, asked)
    comm.share(None)  # all have looked
    if not finished:
        way = f"og.shots(..., out={str(out)!r}, resume=True) continues the sum"
        with going_on(out / NAME, way):
            finished = _fired(
                _Each(problems, objectives, wrt, out, options), asked, ranks, on_shot, progress
            )
    if comm.rank == 0:
        shot_folders = (out / f"shot.{number}" for number in range(len(problems)))
        for folder in filter(Path.exists, shot_folders):
            shutil.rmtree(folder)
    comm.share(None)
    numbers = {
        name: one if isinstance(one, float) else np.array(one)
        for name, one in finished["numbers"].items()
    }
    fields = tuple(name for name in wrt if name not in numbers)
    axes = axes_of(problems[0], fields)
    return Derivatives(finished["value"], out, numbers, fields, finished["adjoint"], axes)


def _fired(
    each: _Each,
    asked: str,
    ranks: str,
    on_shot: Callable[[Fired], None] | None,
    progress: bool | None,
) -> dict[str, Any]:
    """Make all gradients and their sum; what is known of it then."""
    comm, out, finished = world(), each.out, dict[str, Any]()
    if comm.rank == 0:
        out.mkdir(parents=True, exist_ok=True)
        replace_file(out / NAME, json.dumps({"task": asked}).encode())
    comm.share(None)
    with _shown(progress, comm) as shown:
        if ranks == "shots" and comm.size > 1:
            made = _all_apart(each, comm, on_shot, shown)
        else:
            made = each.fire(range(len(each.problems)), on_shot, shown)
    if comm.rank == 0:
        finished = {"task": asked, **_added(made, each.wrt, each.problems[0], out)}
        replace_file(out / NAME, json.dumps(finished).encode())
    return comm.share(finished)[0]


class _Each(msgspec.Struct, frozen=True):
    """The gradients that are added up."""

    problems: Sequence[Problem]
    objectives: Sequence[Objective]
    wrt: tuple[str, ...]
    out: Path
    options: Mapping[str, Any]

    def one(self, number: int) -> Derivatives:
        """That of a shot, or what is there of it."""
        problem, objective = self.problems[number], self.objectives[number]
        folder = self.out / f"shot.{number}"
        return gradient(problem, objective, wrt=self.wrt, out=folder, resume=True, **self.options)

    def finished(self) -> int:
        """How many are there, by whichever rank."""
        return sum(is_done(self.out / f"shot.{number}") for number in range(len(self.problems)))

    def fire(
        self, mine: range, on_shot: Callable[[Fired], None] | None, shown: Shown | None
    ) -> list[Derivatives]:
        """Those of `mine`, one after another, while other ranks make the others."""
        made, every = list[Derivatives](), len(self.problems)
        alone, begin = len(mine) == every, time.perf_counter()
        for done, number in enumerate(mine, 1):
            before = done - 1 if alone else self.finished()
            about = f"shot {number}, {min(before + 1, every)} of {every}"
            with nullcontext() if shown is None else shown.doing(about):
                made.append(self.one(number))
            seconds = time.perf_counter() - begin
            there = done if alone else self.finished()
            left = seconds / there * (every - there)
            fired = Fired(number, there, every, made[-1].value, seconds, left)
            if shown is not None:
                shown.say(str(fired))
            if on_shot is not None:
                on_shot(fired)
        return made


def _all_apart(
    each: _Each, comm: Comm, on_shot: Callable[[Fired], None] | None, shown: Shown | None
) -> list[Derivatives]:
    """All of them, every one made by one rank; what one of these fails by is raised by all."""
    failed: Error | None = None
    with alone():
        try:
            each.fire(range(comm.rank, len(each.problems), comm.size), on_shot, shown)
        except Error as error:
            failed = error
    errors = [error for error in comm.share(failed) if error is not None]
    if errors:
        raise errors[0]
    if comm.rank:
        return []
    with alone():
        return [each.one(number) for number in range(len(each.problems))]


def _added(
    made: Sequence[Derivatives], wrt: Sequence[str], problem: Problem, out: Path
) -> dict[str, Any]:
    """The value and the numbers of the sum, whose arrays are written."""
    values = [one.value for one in made]
    known = [value for value in values if value is not None]
    numbers: dict[str, Any] = {}
    for name in wrt:
        parts = [one[name] for one in made]
        if name in made[0].numbers:
            numbers[name] = sum((np.asarray(part, float) for part in parts), np.float64(0)).tolist()
            continue
        into = np.lib.format.open_memmap(out / f"{name}.npy", "w+", problem.dtype, problem.shape)
        for plane in range(problem.shape[0]):
            total: NDArray[np.float64] = np.zeros(problem.shape[1:])
            for part in parts:
                total += part[plane]
            into[plane] = total
        into.flush()
    return {
        "value": math.fsum(known) if len(known) == len(values) else None,
        "numbers": numbers,
        "adjoint": made[0].adjoint,
    }


def _check(
    problems: Sequence[Problem],
    objectives: Sequence[Objective],
    wrt: tuple[str, ...],
    ranks: str,
) -> None:
    if not problems or len(problems) != len(objectives):
        raise UsageError(
            f"{len(problems)} problems and {len(objectives)} objectives; give an objective for each"
            " problem, and at least one"
        )
    grids = {(problem.shape, problem.dtype, problem.steps) for problem in problems}
    if len(grids) > 1:
        raise UsageError(
            "the shots differ in shape, dtype or steps, and their gradients cannot be added; give"
            " all of them the same"
        )
    if SOURCES in wrt:
        raise UsageError(
            "a gradient by sources is one of each shot, and is not added up; call og.gradient for"
            " each shot"
        )
    if ranks not in ("grid", "shots"):
        raise UsageError(f"ranks = {ranks!r}; expected 'grid' or 'shots'")
    for number, (problem, objective) in enumerate(zip(problems, objectives, strict=True)):
        try:
            check_kind(objective)
            check(objective, problem)
            check_values(objective, problem)
        except UsageError as error:
            raise UsageError(f"shot {number}: {error}") from None


def _finished(out: Path, asked: str) -> dict[str, Any]:
    """What is known of a sum that is finished; nothing where it is not. Raises UsageError."""
    path = out / NAME
    if not path.exists():
        if out.exists() and any(out.iterdir()):
            raise UsageError(f"{out} exists and holds no shots; give another folder for out")
        return {}
    found: dict[str, Any] = json.loads(path.read_text())
    if found["task"] != asked:
        raise UsageError(
            f"the shots in {out} belong to other problems, objectives or wrt; give another folder"
            " for out"
        )
    return found if "value" in found else {}


def _identity(
    problems: Sequence[Problem], objectives: Sequence[Objective], others: list[Any]
) -> str:
    each = [identity(*one, others) for one in zip(problems, objectives, strict=True)]
    return hashlib.sha256(json.dumps(each).encode()).hexdigest()


@contextmanager
def _shown(progress: bool | None, comm: Comm) -> Generator[Shown | None]:
    """What shows how far all shots are, on rank 0."""
    watched = progress or (progress is None and is_watched(sys.stderr))
    given: AbstractContextManager[Shown | None] = nullcontext()
    if watched and comm.rank == 0:
        given = follow(sys.stderr)
    with given as shown:
        yield shown


class Iteration(msgspec.Struct, frozen=True):
    """An iteration of a minimisation: its number, from 1, the value there (None where the program
    asked for another one), the evaluations so far, and the model by name."""

    number: int
    value: float | None
    evaluations: int
    model: Mapping[str, NDArray[Any]]


class Misfit:
    """The sum of the objectives of several shots, and its gradient, of a model that changes.

    Called with a flat vector, the values of what `wrt` names one behind the other (fields of the
    grid's shape, parameters and profiles), it returns the value and the gradient as a flat vector:
    what `scipy.optimize.minimize(misfit, start, jac=True)` takes. `start` is the model of the first
    problem, where that is of numbers and arrays. `callback=misfit.iterated` calls `on_iteration`
    with an `Iteration`, and leaves the model in `out`/NAME.npy.

    Each evaluation is one of `og.shots`, in a folder of `out` that is named by the model, and its
    gradient stays there: a minimisation that was cut off and is started again finds what it had
    finished. `options` are those of `og.shots`. Vectors are in memory, as in SciPy.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        objectives: Sequence[Objective],
        *,
        wrt: Sequence[str],
        out: str | Path,
        on_iteration: Callable[[Iteration], None] | None = None,
        **options: Any,
    ) -> None:
        self.wrt = (wrt,) if isinstance(wrt, str) else tuple(wrt)
        _check(problems, objectives, self.wrt, options.get("ranks", "grid"))
        for problem in problems:
            check_names(problem, self.wrt)
        self.problems, self.objectives, self.out = tuple(problems), tuple(objectives), Path(out)
        self.on_iteration, self.options = on_iteration, options
        self.values: list[float] = []
        self._found: dict[str, float] = {}
        self._iterations = 0

    @property
    def start(self) -> NDArray[np.float64]:
        """The model of the first problem, flat."""
        problem = self.problems[0]
        parts = [_numbers(problem, name) for name in self.wrt]
        shapes = self._shapes()
        filled = [np.broadcast_to(part, shape) for part, shape in zip(parts, shapes, strict=True)]
        return np.concatenate([part.ravel() for part in filled])

    def __call__(self, flat: Any) -> tuple[float, NDArray[np.float64]]:
        """The value and the gradient. Raises UsageError for objectives without a value."""
        model = self.model(flat)
        problems = [posed(problem, model) for problem in self.problems]
        out = self.out / _name(flat)
        way = f"the search continues when it is started again with out={str(self.out)!r}"
        with going_on(out / NAME, way):
            g = shots(problems, self.objectives, wrt=self.wrt, out=out, resume=True, **self.options)
        if g.value is None:
            raise UsageError("Cotangents have no value to be minimised; give another objective")
        self.values.append(g.value)
        self._found[out.name] = g.value
        return g.value, np.concatenate([np.asarray(g[name], float).ravel() for name in self.wrt])

    def model(self, flat: Any) -> dict[str, NDArray[np.float64]]:
        """The parts of a flat vector, by name."""
        values, shapes = np.asarray(flat, float), self._shapes()
        sizes = [math.prod(shape) for shape in shapes]
        if values.shape != (sum(sizes),):
            raise UsageError(f"the model has the shape {values.shape}, not {(sum(sizes),)}")
        parts = np.split(values, np.cumsum(sizes)[:-1])
        return {
            name: part.reshape(shape)
            for name, part, shape in zip(self.wrt, parts, shapes, strict=True)
        }

    def iterated(self, flat: Any, *_: Any) -> None:
        """What SciPy calls after each iteration."""
        self._iterations += 1
        model = self.model(flat)
        if world().rank == 0:
            self.out.mkdir(parents=True, exist_ok=True)
            for name, values in model.items():
                np.save(self.out / f"{name}.npy", values)
        if self.on_iteration is not None:
            value = self._found.get(_name(flat))
            self.on_iteration(Iteration(self._iterations, value, len(self.values), model))

    def _shapes(self) -> list[tuple[int, ...]]:
        problem = self.problems[0]
        return [
            problem.shape if name in problem.initial else np.shape(_given(problem, name))
            for name in self.wrt
        ]


def _given(problem: Problem, name: str) -> Any:
    if name in problem.initial:
        return problem.initial[name]
    return problem.profile_values(name) if name in problem.profiles else problem.parameters[name]


def _numbers(problem: Problem, name: str) -> NDArray[np.float64]:
    """What was given, as numbers. Raises UsageError for a file, a formula or a function."""
    try:
        return np.asarray(_given(problem, name), float)
    except TypeError:
        raise UsageError(
            f"the start is made of numbers and arrays, and {name!r} was given as neither: give the "
            "problem an array, such as np.load(path), or begin with a flat vector of your own"
        ) from None


def _name(flat: Any) -> str:
    """The folder of an evaluation."""
    return hashlib.sha256(np.ascontiguousarray(flat, float).tobytes()).hexdigest()[:16]
