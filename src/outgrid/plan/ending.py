"""The plan of a run that ends early."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from outgrid.plan.model import Plan
from outgrid.plan.program import Commit, Get, Put, program
from outgrid.stencil.problem import Problem


def ended(plan: Plan, problem: Problem, sweeps: int) -> Plan:
    """The plan of the first sweeps: what they move and compute, in the same window.

    ``problem`` is that of the steps that are left. The time that was expected shrinks alike.
    """
    found = replace(plan, depths=plan.depths[:sweeps])
    moved = {Get: 0, Put: 0}
    for each in program(found):
        if isinstance(each, Get | Put):
            moved[type(each)] += each.nbytes(plan)
    share = sum(found.depths) / sum(plan.depths)
    guess = plan.prediction
    return replace(
        found,
        read_bytes=moved[Get],
        written_bytes=moved[Put],
        updates=problem.updates,
        flops=problem.flops,
        snapshot_bytes=problem.snapshot_bytes,
        prediction=replace(
            guess,
            seconds=guess.seconds * share,
            compute_seconds=guess.compute_seconds * share,
            transfer_seconds=guess.transfer_seconds * share,
        ),
    )


def last_moves(plan: Plan) -> Iterator[Put | Commit]:
    """The instructions by which the last state of a resident grid goes to its files."""
    last = plan.states
    for each in program(plan):
        if (isinstance(each, Put) and each.state == last) or (
            isinstance(each, Commit) and each.point.state == last
        ):
            yield each
