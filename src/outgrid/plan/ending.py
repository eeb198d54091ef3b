"""The plan of a run that ends early."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from outgrid.plan.model import Plan
from outgrid.plan.program import Advance, Commit, Get, Put, Receive, Send, program
from outgrid.stencil.problem import Problem


def ended(plan: Plan, problem: Problem, sweeps: int) -> Plan:
    """The plan of the first sweeps: what they move and compute, in the same window.

    ``problem`` is that of the steps that are made. The time that was expected shrinks alike.
    """
    schedule = replace(plan.schedule, depths=plan.schedule.depths[:sweeps])
    shorter = replace(plan, schedule=schedule)
    moved = {Get: 0, Put: 0, Send: 0, Receive: 0}
    for instruction in program(shorter):
        if isinstance(instruction, Get | Put):
            moved[type(instruction)] += instruction.nbytes(plan)
    for move in _exchanged(plan, sweeps):
        moved[type(move)] += move.nbytes(plan)
    made, planned = sum(schedule.depths), sum(plan.schedule.depths)
    share = made / planned
    work, guess = plan.work, plan.prediction
    return replace(
        shorter,
        work=replace(
            work, updates=work.updates * made // planned, flops=work.flops * made // planned
        ),
        volume=replace(
            plan.volume,
            read_bytes=moved[Get],
            written_bytes=moved[Put] + moved[Receive],
            sent_bytes=moved[Send],
            received_bytes=moved[Receive],
            snapshot_bytes=problem.kept_bytes(made, schedule.domain.carried),
        ),
        prediction=replace(
            guess,
            seconds=guess.seconds * share,
            compute_seconds=guess.compute_seconds * share,
            transfer_seconds=guess.transfer_seconds * share,
        ),
    )


def _exchanged(plan: Plan, sweeps: int) -> Iterator[Send | Receive]:
    """What goes between ranks in the first sweeps of a plan, of which they are not all.

    Halos of the next one are on their way before it is known that none follows.
    """
    for instruction in program(plan) if plan.schedule.subgrid is not None else ():
        if isinstance(instruction, Send | Receive) and instruction.trip.sweep < sweeps:
            yield instruction
        if isinstance(instruction, Advance) and any(
            part.trip.sweep > sweeps for part in instruction.parts
        ):
            return


def last_moves(plan: Plan) -> Iterator[Put | Commit]:
    """The instructions by which the last state of a resident grid goes to its files."""
    last = plan.schedule.states.count
    for instruction in program(plan):
        if (isinstance(instruction, Put) and instruction.state == last) or (
            isinstance(instruction, Commit) and instruction.point.state == last
        ):
            yield instruction
