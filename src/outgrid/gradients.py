"""Gradients of an objective by what a problem was given: runs forward, and runs back in time."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid import api
from outgrid.comm import world
from outgrid.errors import UsageError
from outgrid.formats.npy import map_npy
from outgrid.result import Result
from outgrid.stencil.model import Stencil
from outgrid.stencil.points import Receiver, Source, corners
from outgrid.stencil.problem import PREVIOUS, Problem
from outgrid.stencil.reverse import Reverse, cotangent, reverse
from outgrid.stencil.snapshot import Snapshot
from outgrid.units import format_bytes, suggest

__all__ = ["Cotangents", "Derivatives", "LeastSquares", "gradient", "plan_gradient"]

SOURCES = "sources"
"""The name of all values of all sources in `wrt`."""
STRATEGIES = ("auto", "history", "recompute")


@dataclass(frozen=True, slots=True)
class LeastSquares:
    """Half the sum of the squares of what differs from what was observed.

    `observed` are traces, an array of (steps, receivers) or the path of a .npy file; `final` maps
    names of fields to arrays, or paths, of what they should be after the last step. Of these the
    cells that are updated count.
    """

    observed: Any = None
    final: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Cotangents:
    """An objective of one's own, known by its derivatives by traces and by fields at the end.

    `traces` and `final` are as in LeastSquares. The objective has no value then.
    """

    traces: Any = None
    final: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Derivatives(Mapping[str, Any]):
    """A gradient: `g["c"]` by a field is an array on disk, by a parameter a number or an array of
    one per step, by "sources" an array of (steps, sources). `value` is that of the objective."""

    value: float | None
    out: Path
    numbers: Mapping[str, Any]
    fields: tuple[str, ...]
    strategy: str

    def __getitem__(self, name: str) -> Any:
        if name in self.numbers:
            return self.numbers[name]
        if name not in self.fields:
            raise UsageError(f"the gradient is not by {name!r}{suggest(name, list(self))}")
        return map_npy(self.out / f"{name}.npy")

    def __iter__(self) -> Iterator[str]:
        return iter((*self.fields, *self.numbers))

    def __len__(self) -> int:
        return len(self.fields) + len(self.numbers)


@dataclass(frozen=True, slots=True)
class _Task:
    problem: Problem
    wrt: tuple[str, ...]
    out: Path
    chunk: int
    options: dict[str, Any]

    def run(self, problem: Problem, name: str) -> Result:
        folder = self.out / name
        return api.run(problem, out=folder, overwrite=folder.exists(), **self.options)


def gradient(
    problem: Problem,
    objective: LeastSquares | Cotangents,
    *,
    wrt: Sequence[str],
    out: str | Path,
    strategy: str = "auto",
    chunk: int = 4,
    **options: Any,
) -> Derivatives:
    """The derivatives of an objective by fields, parameters and sources of a problem.

    `wrt` names coefficients ("c"), fields that are updated ("u", "u.previous": their initial
    values), parameters, and "sources": all values of all sources. In fixed layers the gradient
    by a field is 0. Runs lie in the folder `out`, which must not exist, while they are needed, and
    the arrays of the gradient at the end. `strategy` "history" keeps the states of all steps on
    disk, "recompute" those of about sqrt(steps) of them and makes the others again; both give the
    same bytes. `chunk` steps go back in time in one sweep. `options` are those of `og.run`. Raises
    DefinitionError for a stencil without derivatives, UsageError for what does not fit, and what
    `og.run` raises.
    """
    task = _checked(problem, objective, wrt, Path(out), chunk, options)
    backward = _backward(task, task.chunk)
    kept = sorted({name for name, _ in backward.states.values()})
    if strategy == "auto":
        free = shutil.disk_usage(_existing(task.out)).free
        strategy = (
            "history" if _history_bytes(task, kept, problem.steps) < free // 2 else "recompute"
        )
    length = _segment(task, strategy, bool(kept))
    task.out.mkdir(parents=True)
    starts = list(range(0, problem.steps, length))
    state = task.run(_part(problem, 0, 0), "state.0")
    traces: list[NDArray[np.float64]] = []
    for number, first in enumerate(starts):
        last = min(first + length, problem.steps)
        part = _part(problem, first, last, state if first else None)
        if number == len(starts) - 1:
            part = _watched(part, kept)
        state = task.run(part, f"state.{number + 1}")
        if problem.receivers:
            traces.append(state.traces)
    seen = np.concatenate(traces) if traces else np.zeros((problem.steps, 0))
    residual, value = _residual(objective, seen)
    value = _begin(task, objective, state, value)
    at_end: Result | None = None
    numbers = _numbers(task)
    for number in reversed(range(len(starts))):
        first = starts[number]
        begin = api.open_run(task.out / f"state.{number}")
        whole = state
        if number < len(starts) - 1 and kept:
            last = starts[number + 1]
            part = _watched(_part(problem, first, last, begin if first else None), kept)
            whole = task.run(part, "states")
        last = first + length if number < len(starts) - 1 else problem.steps
        for end in range(last, first, -task.chunk):
            low = max(first, end - task.chunk)
            one = backward if end - low == task.chunk else _backward(task, end - low)
            at_end = _back(task, one, low, first, (begin, whole, kept), residual, at_end, numbers)
    assert at_end is not None
    fields = _keep(task, at_end)
    for folder in [path for path in task.out.iterdir() if path.is_dir()]:
        shutil.rmtree(folder)
    for lasting in problem.stencil.lasting:
        (task.out / f"begin.{lasting.name}.npy").unlink(missing_ok=True)
    return Derivatives(value, task.out, numbers, fields, strategy if kept else "linear")


def plan_gradient(problem: Problem, *, wrt: Sequence[str], chunk: int = 4, **options: Any) -> str:
    """What the strategies of a gradient keep on disk and how many steps they make, as text."""
    task = _checked(problem, Cotangents(), wrt, Path("."), chunk, options, planned=True)
    backward = _backward(task, task.chunk)
    kept = sorted({name for name, _ in backward.states.values()})
    rule = backward.stencil
    stored = [one for one in rule.fields if not one.temporary]
    lines = [
        f"{task.chunk} steps go back in one sweep of {len(rule.stages)} stages,"
        f" {len(stored)} fields and {len(rule.fields) - len(stored)} temporaries"
    ]
    if not kept:
        return "\n".join([*lines, "no state of the forward run is needed: it is made once"])
    for strategy in STRATEGIES[1:]:
        length = _segment(task, strategy, True)
        segments = -(-problem.steps // length)
        again = (segments - 1) * length
        states = sum(
            problem.stored_bytes(lasting.name) * lasting.levels
            for lasting in problem.stencil.lasting
        )
        disk = _history_bytes(task, kept, length) + (segments + 1) * states
        lines.append(
            f"{strategy}: {format_bytes(disk)} of states on disk, {problem.steps + again} steps"
            f" forward, {problem.steps} back"
        )
    return "\n".join(lines)


def _checked(
    problem: Problem,
    objective: LeastSquares | Cotangents,
    wrt: Sequence[str],
    out: Path,
    chunk: int,
    options: dict[str, Any],
    *,
    planned: bool = False,
) -> _Task:
    rule = problem.stencil
    known = [one.name for one in rule.fields if not one.temporary]
    known += [lasting.name + PREVIOUS for lasting in rule.lasting if lasting.levels == 2]
    known += [*rule.parameters, *([SOURCES] if problem.sources else [])]
    for name in wrt:
        if name not in known:
            raise UsageError(f"a gradient by {name!r} is not made{suggest(name, known)}")
    if not wrt:
        raise UsageError(f"a gradient is by something: wrt = {known[:1]!r}")
    if problem.steps < 1 or chunk < 1:
        raise UsageError(
            f"a gradient of {problem.steps} steps in chunks of {chunk}; give 1 or more"
        )
    if problem.until is not None or problem.dtypes:
        given = "until" if problem.until is not None else "dtypes"
        raise UsageError(f"a gradient of a problem with {given} is not made; leave {given} out")
    for name, lagged in problem.lagged.items():
        raise UsageError(
            f"the parameter {name} is {lagged.rule}, which depends on all cells; a gradient through"
            " it is not made: give the parameter as a table of the numbers that a run has left"
        )
    if world().size > 1:
        raise UsageError(f"a gradient is made by one process, and here are {world().size} ranks")
    if not planned and out.exists():
        raise UsageError(f"{out} exists; a gradient makes a folder of its own")
    for name, values in objective.final.items():
        if name not in [lasting.name for lasting in rule.lasting]:
            raise UsageError(f"no field {name!r} is updated{suggest(name, known)}")
        if _array(values).shape != problem.shape:
            raise UsageError(
                f"final values of {name!r} have the shape {_array(values).shape}, the problem has"
                f" {problem.shape}"
            )
    wanted = objective.observed if isinstance(objective, LeastSquares) else objective.traces
    expected = (problem.steps, len(problem.receivers))
    if wanted is not None and _array(wanted).shape != expected:
        raise UsageError(
            f"traces have the shape {_array(wanted).shape}; {problem.steps} steps and"
            f" {len(problem.receivers)} receivers make {expected}"
        )
    return _Task(
        problem, tuple(wrt), out, min(chunk, problem.steps), {"progress": False, **options}
    )


def _array(given: Any) -> NDArray[Any]:
    return map_npy(Path(given)) if isinstance(given, str | Path) else np.asanyarray(given)


def _existing(path: Path) -> Path:
    path = path.absolute()
    return path if path.exists() else _existing(path.parent)


def _backward(task: _Task, steps: int) -> Reverse:
    return reverse(task.problem, steps, task.wrt)


def _history_bytes(task: _Task, kept: Sequence[str], steps: int) -> int:
    return steps * sum(task.problem.stored_bytes(name) for name in kept)


def _segment(task: _Task, strategy: str, needed: bool) -> int:
    """Steps between states that are kept."""
    if strategy not in STRATEGIES:
        raise UsageError(f"strategy = {strategy!r}{suggest(strategy, STRATEGIES)}")
    steps = task.problem.steps
    if strategy == "history" or not needed:
        return steps
    return min(steps, -(-math.isqrt(steps) // task.chunk) * task.chunk)


def _part(problem: Problem, first: int, last: int, state: Result | None = None) -> Problem:
    """The steps from `first` up to `last`, beginning with what a run left."""
    cut = slice(first, last)
    initial: dict[str, Any] = dict(problem.initial)
    for lasting in problem.stencil.lasting:
        for name in (lasting.name, lasting.name + PREVIOUS)[: lasting.levels]:
            if state is not None:
                initial[name] = state[name]
    given = {
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
    )


def _watched(problem: Problem, kept: Sequence[str]) -> Problem:
    return problem.replace(snapshots=[Snapshot(name, every=1) for name in kept])


def _residual(
    objective: LeastSquares | Cotangents, seen: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float | None]:
    """The derivatives of the objective by what receivers saw, and its value so far."""
    if isinstance(objective, Cotangents):
        given = objective.traces
        return np.zeros_like(seen) if given is None else np.asarray(_array(given), float), None
    if objective.observed is None:
        return np.zeros_like(seen), 0.0
    apart = seen - _array(objective.observed)
    return apart, 0.5 * math.fsum((apart**2).ravel().tolist())


def _begin(
    task: _Task, objective: LeastSquares | Cotangents, end: Result, value: float | None
) -> float | None:
    """Write the cotangents of the fields at the end, plane by plane."""
    problem = task.problem
    inside = problem.interior
    part = tuple(slice(along.start, along.stop) for along in inside[1:])
    for name, values in objective.final.items():
        given, there = _array(values), end[name]
        path = task.out / f"begin.{name}.npy"
        into = np.lib.format.open_memmap(path, "w+", problem.dtype, problem.shape)
        sums: list[float] = []
        for plane in inside[0]:
            bar = np.asarray(given[plane], float)[part]
            if isinstance(objective, LeastSquares):
                bar = np.asarray(there[plane], float)[part] - bar
                sums.append(math.fsum((bar**2).ravel().tolist()))
            into[(plane, *part)] = bar
        into.flush()
        if value is not None:
            value += 0.5 * math.fsum(sums)
    return value


def _numbers(task: _Task) -> dict[str, Any]:
    problem = task.problem
    numbers: dict[str, Any] = {}
    for name in task.wrt:
        if name in problem.parameters:
            per_step = isinstance(problem.parameters[name], tuple)
            numbers[name] = np.zeros(problem.steps) if per_step else 0.0
        elif name == SOURCES:
            numbers[name] = np.zeros((problem.steps, len(problem.sources)))
    return numbers


def _back(
    task: _Task,
    one: Reverse,
    low: int,
    first: int,
    states: tuple[Result, Result, Sequence[str]],
    residual: NDArray[np.float64],
    before: Result | None,
    numbers: dict[str, Any],
) -> Result:
    """Go back from step `low + one.steps` to `low`, where `first` is where states begin."""
    problem, rule = task.problem, one.stencil
    begin, whole, kept = states
    initial: dict[str, Any] = {one.name: 0.0 for one in rule.fields if not one.temporary}
    initial |= {
        coefficient.name: problem.initial[coefficient.name]
        for coefficient in problem.stencil.coefficients
        if coefficient.name in initial
    }
    initial |= _brought(task, rule, before)
    for name, (of, after) in one.states.items():
        number = low + after - first  # of steps made since the state that is kept
        if number <= 0:
            initial[name] = begin[of if number == 0 else of + PREVIOUS]
        else:
            initial[name] = whole.snapshots[kept.index(of)][number - 1]
    sources: list[Source] = []
    for step in range(one.steps):
        for receiver, amount in zip(problem.receivers, residual[low + step], strict=True):
            for cell, weight in corners(receiver.position):
                if all(index in part for index, part in zip(cell, problem.interior, strict=True)):
                    name = one.written(receiver.field, step)
                    sources.append(Source(name, cell, (float(weight * amount),)))
    receivers = [
        Receiver(one.written(source.field, step), source.position)
        for step in range(one.steps)
        for source in problem.sources
        if SOURCES in task.wrt
    ]
    adjoint = Problem(
        rule,
        problem.shape,
        problem.dtype,
        1,
        one.parameters(problem, low),
        one.boundary,
        initial,
        sources=sources,
        receivers=receivers,
    )
    made = task.run(adjoint, f"back.{low}")
    if before is not None:
        shutil.rmtree(before.out)
    if receivers:
        numbers[SOURCES][low : low + one.steps] = made.traces.reshape(one.steps, -1)
    for name, (of, step) in one.summed.items():
        if isinstance(numbers[of], float):
            numbers[of] += float(made.reductions[name][0])
        else:
            numbers[of][low + step] += made.reductions[name][0]
    return made


def _brought(task: _Task, rule: Stencil, before: Result | None) -> dict[str, Any]:
    """What cotangents and gradients begin with: as later steps left them, or the end has them."""
    names = {lasting.name for lasting in rule.lasting}
    initial: dict[str, Any] = {}
    for forward in task.problem.stencil.fields:
        bars = cotangent(forward.name), cotangent(forward.name + PREVIOUS)
        for name in (*bars, f"{forward.name}_grad"):
            if name in names and before is not None:
                initial[name] = before[name]
        path = task.out / f"begin.{forward.name}.npy"
        if before is None and path.exists():
            initial[cotangent(forward.name)] = map_npy(path)
    return initial


def _keep(task: _Task, made: Result) -> tuple[str, ...]:
    """Leave the arrays of the gradient in the folder."""
    problem = task.problem
    fields: list[str] = []
    for name in task.wrt:
        whole = name.removesuffix(PREVIOUS)
        if name in problem.parameters or name == SOURCES:
            continue
        evolving = problem.stencil.field(whole).evolving
        parts = [made[cotangent(name) if evolving else f"{name}_grad"]]
        past = name + PREVIOUS
        if past in problem.initial and problem.initial[past] is problem.initial[name]:
            parts.append(made[cotangent(past)])  # one value begins both levels
        into = np.lib.format.open_memmap(
            task.out / f"{name}.npy", "w+", problem.dtype, problem.shape
        )
        for plane in range(problem.shape[0]):
            into[plane] = sum((part[plane] for part in parts[1:]), np.asarray(parts[0][plane]))
        into.flush()
        fields.append(name)
    return tuple(fields)
