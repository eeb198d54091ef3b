"""What of a gradient is made, for one that was cut off to go on with."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from outgrid.durable import replace_file
from outgrid.errors import UsageError
from outgrid.result import Result
from outgrid.reversal.objective import Objective, array_of
from outgrid.reversal.task import Task
from outgrid.stencil.function import digest_of
from outgrid.stencil.problem import Problem

__all__ = ["NAME", "Progress", "begun", "identity", "new"]

NAME = "gradient.json"


@dataclass(slots=True)
class Progress:
    """The run back in time that came as far as step `low` lies in the folder `before`, and left the
    `numbers` so far: derivatives by parameters and sources, one for each step. `lengths` are those
    of the strategy, and runs make `longest` steps, whatever memory those that go on have. `value`
    is that of the objective once it is known, and `done` where arrays are in place."""

    task: str
    lengths: tuple[int, ...]
    strategy: str
    low: int
    before: str = ""
    longest: int | None = None
    numbers: dict[str, Any] = field(default_factory=dict[str, Any])
    value: float | None = None
    done: bool = False

    def write(self, task: Task) -> None:
        """Make it durable."""
        if task.comm.rank == 0:
            text = json.dumps({name: getattr(self, name) for name in self.__slots__})
            replace_file(task.out / NAME, text.encode())
        task.comm.share(None)


def begun(task: Task) -> Progress | None:
    """What of this gradient is in its folder; None where nothing is.

    Raises UsageError where another one is, or something else.
    """
    path = task.out / NAME
    if not task.out.exists() or all(
        entry.name.startswith(NAME) and entry != path for entry in task.out.iterdir()
    ):  # not begun, or cut off right then
        return None
    if not path.exists():
        raise UsageError(
            f"{task.out} exists and does not hold a gradient; choose another folder for out"
        )
    data = json.loads(path.read_text())
    progress = Progress(**data | {"lengths": tuple(data["lengths"])})
    if progress.task != _identity(task):
        raise UsageError(
            f"the gradient in {task.out} belongs to another problem, to another objective, or to "
            "other values of wrt; choose another folder for out"
        )
    return progress


def new(task: Task, lengths: tuple[int, ...], strategy: str) -> Progress:
    """Make the folder of a gradient, and say whose it is."""
    if task.comm.rank == 0:
        task.out.mkdir(parents=True, exist_ok=True)
    numbers: dict[str, Any] = {}
    for name in task.wrt:
        if name in task.problem.parameters:
            numbers[name] = [0.0] * task.problem.steps
        elif name == "sources":
            numbers[name] = [[0.0] * len(task.problem.sources)] * task.problem.steps
    steps, longest = task.problem.steps, task.cuts.longest
    progress = Progress(_identity(task), lengths, strategy, steps, "", longest, numbers)
    progress.write(task)
    return progress


def identity(problem: Problem, objective: Objective, asked: Sequence[Any]) -> str:
    """Of what files of gradients are: a digest of a problem, of its objective and of what is asked.

    An objective that is a function counts by its code, what it has closed over and its attributes.
    """
    text = json.dumps([problem.digest, *asked])
    sha256 = hashlib.sha256(text.encode())
    _note(objective, sha256.update)
    if not dataclasses.is_dataclass(objective):
        for part in _parts(objective):
            _note(part, sha256.update)
    return sha256.hexdigest()


def _identity(task: Task) -> str:
    asked = [task.wrt, task.cuts.chunk, task.cuts.added, task.every, task.history, task.reduced]
    return identity(task.problem, task.objective, asked)


def _parts(objective: Any) -> Iterator[Any]:
    """What a function, a method, a partial function or another object is made of."""
    if isinstance(objective, partial):
        yield from (objective.args, objective.keywords)
        yield from _parts(objective.func)  # pyright: ignore[reportUnknownArgumentType]
        return
    yield getattr(getattr(objective, "__self__", objective), "__dict__", {})
    function = objective if hasattr(objective, "__code__") else type(objective).__call__
    yield function
    yield from (getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None))
    with suppress(ValueError):  # of a name that has no value yet
        yield [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]


def _note(value: Any, note: Callable[[bytes], object]) -> None:
    """Note what an objective is of: names, numbers, bytes of arrays, code; of others the class."""
    note(type(value).__qualname__.encode())
    if hasattr(value, "__code__"):
        note(digest_of(value.__code__))
    elif isinstance(value, Problem):
        note(value.digest.encode())
    elif isinstance(value, Result):
        note(str(value.out).encode())
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            _note(getattr(value, field.name), note)
    elif isinstance(value, Mapping):
        for name in value:  # pyright: ignore[reportUnknownVariableType]
            _note(name, note)
            _note(value[name], note)
    elif isinstance(value, list | tuple):
        for part in value:  # pyright: ignore[reportUnknownVariableType]
            _note(part, note)
    elif isinstance(value, np.ndarray | Path) or (
        isinstance(value, str) and value.endswith(".npy")
    ):
        array = np.asarray(array_of(value))  # pyright: ignore[reportUnknownArgumentType]
        note(f"{array.shape} {array.dtype}".encode())
        for plane in array if array.ndim > 1 else [array]:
            note(np.ascontiguousarray(plane).tobytes())
    elif isinstance(value, str | int | float | np.generic | None):
        note(repr(value).encode())  # pyright: ignore[reportUnknownArgumentType]
