"""What of a gradient is made, for one that was cut off to go on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict

from outgrid.durable import replace_file
from outgrid.errors import UsageError
from outgrid.reversal.identity import identity
from outgrid.reversal.task import Task

__all__ = ["NAME", "Progress", "begun", "is_done", "new"]

NAME = "gradient.json"


class Progress(msgspec.Struct):
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
    numbers: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    value: float | None = None
    done: bool = False

    def write(self, task: Task) -> None:
        """Make it durable."""
        if task.comm.rank == 0:
            text = json.dumps(asdict(self))
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
            f"the gradient in {task.out} belongs to another problem, to another objective (also by "
            "the values that its code reads), or to other values of wrt; choose another folder for "
            "out"
        )
    return progress


def is_done(out: Path) -> bool:
    """Whether a finished gradient is in a folder."""
    path = out / NAME
    return path.exists() and bool(json.loads(path.read_text())["done"])


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


def _identity(task: Task) -> str:
    cuts = task.cuts
    asked = [task.wrt, cuts.chunk, cuts.begins, task.every, task.history, task.reduced]
    return identity(task.problem, task.objective, asked)
