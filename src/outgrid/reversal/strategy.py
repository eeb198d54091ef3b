"""Strategies: which states of a forward run are kept on disk, and which are made again."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

import msgspec
import numpy as np

from outgrid import api
from outgrid.durable import existing
from outgrid.errors import InfeasiblePlan, UsageError
from outgrid.lines import format_count
from outgrid.numbers import item_bytes
from outgrid.plan.model import Plan
from outgrid.reversal.cuts import most_kept, steps_forward
from outgrid.reversal.task import Task
from outgrid.stencil.problem import Problem
from outgrid.units import format_bytes, format_seconds, suggest

__all__ = ["ADJOINTS", "GradientPlan", "Strategy", "longest_back", "plan_of"]

ADJOINTS: Mapping[str, int] = {"history": 0, "recompute": 1, "multistage": 2}
"""Levels of states that are kept, by strategy: the history is that from one of the last level to
the next."""


class Strategy(msgspec.Struct, frozen=True):
    """A way to come by the states that runs back in time read.

    States are kept every `lengths[0]` steps, between two of them every `lengths[1]`, and so on, and
    all states from one of the last to the next. `disk_bytes` are there at most, `written_bytes` and
    `read_bytes` are those of all sweeps, `flash_bytes` of these and all that is written beside
    them. `seconds` are predicted.
    """

    name: str
    lengths: tuple[int, ...]
    steps_forward: int
    steps_back: int
    disk_bytes: int
    read_bytes: int
    written_bytes: int
    flash_bytes: int
    seconds: float

    def __str__(self) -> str:
        """In a line."""
        return (
            f"{self.name}: {format_seconds(self.seconds)}, {format_bytes(self.disk_bytes)} of disk,"
            f" {format_bytes(self.read_bytes)} read, {format_bytes(self.written_bytes)} written"
            f" ({format_bytes(self.flash_bytes)} to flash), {self.steps_forward} steps forward,"
            f" {self.steps_back} back"
        )


class GradientPlan(msgspec.Struct, frozen=True):
    """How a gradient would be made: plans of its runs, and what each strategy takes.

    These are one forward, one that keeps its history, and one back: of all steps, or of as many as
    a run makes where traces take much memory.
    """

    forward: Plan
    kept: Plan
    back: Plan
    chunk: int
    strategies: tuple[Strategy, ...]
    chosen: Strategy
    free_bytes: int

    def explain(self) -> str:
        """The strategies in words and figures."""
        lines = [
            f"sweeps go back {format_count(self.chunk * self.back.schedule.depth, 'step')}, one is"
            f" predicted to take {format_seconds(self.back.predicted_seconds / self.back.sweeps)}"
        ]
        if len(self.strategies) == 1:
            lines.append("the gradient needs no state of the forward run, which is made once")
        lines += [f"{'-> ' if one == self.chosen else '   '}{one}" for one in self.strategies]
        return "\n".join([*lines, f"{format_bytes(self.free_bytes)} are free on the disk"])

    def __str__(self) -> str:
        """What `explain` says."""
        return self.explain()


def plan_of(task: Task, adjoint: str) -> GradientPlan:
    """Plans of the runs of a gradient and the strategy: the fastest that fits the disk, or that
    which is asked for.

    All ranks call this and get the same: the least that one of them finds free counts. Raises
    UsageError for an unknown one, InfeasiblePlan where the disk has room for none.
    """
    names = ("auto", *ADJOINTS)
    if adjoint not in names:
        raise UsageError(f"unknown adjoint {adjoint!r}{suggest(adjoint, names)}")
    cuts = task.cuts
    part = 0, cuts.longest_part, None
    forward = api.planned(task.part(*part), **task.options)
    kept = api.planned(task.part(*part, task.watched), **task.options) if task.kept else forward
    back = api.planned(longest_back(task), **task.options)
    levels = ADJOINTS if task.kept else {"history": 0}
    free = min(task.comm.share(shutil.disk_usage(existing(task.out)).free))

    def fastest(name: str, count: int) -> Strategy:
        """That of the longest history that fits: the less is made again. Of half of the steps at
        most where all of it would fit."""
        least = cuts.lengths(count)
        longer = [*cuts.longer(*least)] if count == 1 else []
        if longer and whole.disk_bytes > free:
            longer = [*cuts.nearly_all(), *longer]
        for lengths in ((one,) for one in longer):
            made = _strategy(task, name, lengths, forward, kept, back)
            if made.disk_bytes <= free:
                return made
        return _strategy(task, name, least, forward, kept, back)

    whole = _strategy(task, "history", (), forward, kept, back)
    strategies = tuple(fastest(name, count) for name, count in levels.items())
    fitting = [one for one in strategies if one.disk_bytes <= free]
    asked = [one for one in strategies if one.name == adjoint or not task.kept]
    if not fitting:
        least = min(strategies, key=lambda one: one.disk_bytes)
        raise InfeasiblePlan(
            f"the disk of {task.out} has {format_bytes(free)} free; the smallest strategy, "
            f"{least.name}, needs {format_bytes(least.disk_bytes)}: free disk space, or choose "
            "another folder for out"
        )
    if adjoint != "auto" and asked[0] not in fitting:
        others = " or ".join(f"{one.name} ({format_bytes(one.disk_bytes)})" for one in fitting)
        raise InfeasiblePlan(
            f"the disk of {task.out} has {format_bytes(free)} free; {adjoint} needs "
            f"{format_bytes(asked[0].disk_bytes)}: choose {others}, or free disk space"
        )
    if adjoint != "auto":
        fitting = asked
    chosen = min(fitting, key=lambda one: one.seconds)
    return GradientPlan(forward, kept, back, cuts.chunk, strategies, chosen, free)


def longest_back(task: Task) -> Problem:
    """The longest run back in time, before there are states and residuals for it to read."""
    steps = task.problem.steps
    piece = max(task.cuts.pieces(0, steps), key=lambda piece: len(piece.firsts))
    weights = {name: [0.0] * steps for name in task.reduced}
    _, posed = task.problem_back(piece, {}, np.zeros((steps, 0)), weights, 0)
    return posed


def _strategy(
    task: Task, name: str, lengths: tuple[int, ...], forward: Plan, kept: Plan, back: Plan
) -> Strategy:
    problem, steps = task.problem, task.problem.steps
    made = steps_forward(task.cuts, lengths) if task.kept else steps
    states, history = most_kept(task.cuts, lengths)
    state_bytes = sum(
        problem.stored_bytes(lasting.name) * lasting.levels for lasting in problem.stencil.lasting
    )
    frame_bytes = sum(
        problem.stored_bytes(name) // item_bytes(problem.dtype_of(name)) * item_bytes(kept)
        for name, kept in ((name, task.dtype_kept(name)) for name in task.kept)
    )
    kept_bytes = frame_bytes * (history // task.every)
    turns = steps / (sum(back.schedule.depths) * task.cuts.chunk)
    # Of every step the history is kept once; what is made beyond that keeps none.
    part = task.cuts.longest_part
    plain, whole = (made - steps) / part, steps / part
    return Strategy(
        name,
        lengths,
        made,
        steps,
        (states + 1) * state_bytes
        + kept_bytes
        + max(forward.volume.disk_bytes, 2 * back.volume.disk_bytes),
        round(
            forward.volume.read_bytes * plain
            + kept.volume.read_bytes * whole
            + back.volume.read_bytes * turns
        ),
        round(
            forward.volume.written_bytes * plain
            + (kept.volume.written_bytes + kept.volume.snapshot_bytes) * whole
            + back.volume.written_bytes * turns
        ),
        round(
            forward.flash_written_bytes * plain
            + kept.flash_written_bytes * whole
            + back.flash_written_bytes * turns
        ),
        forward.predicted_seconds * plain
        + kept.predicted_seconds * whole
        + back.predicted_seconds * turns,
    )
