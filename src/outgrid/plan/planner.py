"""The planner: the cheapest plan that fits, of those that go on where a run was cut off if any."""

from __future__ import annotations

from dataclasses import replace

from outgrid.config import RunOptions
from outgrid.machine import Accelerator, Machine
from outgrid.plan.assemble import assemble
from outgrid.plan.blocking import plan_blocks, plan_blocks_within
from outgrid.plan.calibration import Calibration
from outgrid.plan.candidate import EXCHANGE_BUFFERS, WORTH_CUTTING
from outgrid.plan.choose import Choice
from outgrid.plan.commits import Begin
from outgrid.plan.model import Plan
from outgrid.plan.refuse import refusal
from outgrid.plan.request import Part, Request
from outgrid.plan.tables import inputs_bytes, steps_bytes
from outgrid.stencil.problem import Problem

__all__ = ["EXCHANGE_BUFFERS", "WORTH_CUTTING", "Part", "plan"]


def plan(
    problem: Problem,
    options: RunOptions,
    machine: Machine,
    fixed_bytes: int,
    calibration: Calibration | None = None,
    begin: Begin | None = None,
    part: Part | None = None,
    accelerator: Accelerator | None = None,
) -> Plan:
    """The cheapest plan that fits ``options.memory_bytes``, of the whole grid or a ``part`` of it.

    With an ``accelerator`` the window has to fit its memory, and all that copies pass through the
    limit of the process.

    With ``begin`` it goes on within a sweep if that sweep fits, else it starts that sweep again.

    ``fixed_bytes`` is what the process needs beside the window: interpreter, libraries, kernel. To
    these comes what grows with the steps.
    Without a ``calibration`` of the kernel its rate is estimated from the machine.
    Raises InfeasiblePlan with the limit that would fit, UsageError for values out of range.
    """
    fixed_bytes += steps_bytes(problem) + inputs_bytes(problem)
    request = Request(problem, options, machine, fixed_bytes, calibration)
    if part is not None:
        return _cheapest(replace(request, part=part))
    if begin is not None and len(begin.cut) == 2:
        within = plan_blocks_within(request, begin)
        if within is not None:
            return within
    if options.scheme == "overlapped":
        return plan_blocks(request)
    request = replace(request, accelerator=accelerator)
    if begin is not None and len(begin.cut) < 2:
        begun = replace(request, begin=begin)
        begun.check()
        choice = Choice(begun)
        best = choice.best() if choice.goes_on else None
        if best is not None:
            return assemble(begun, best)
    return _cheapest(request)


def _cheapest(request: Request) -> Plan:
    """The plan of the best candidate. Raises InfeasiblePlan where none fits."""
    request.check()
    best = Choice(request).best()
    if best is None:
        raise refusal(request)
    return assemble(request, best)
