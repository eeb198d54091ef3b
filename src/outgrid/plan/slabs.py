"""The schemes of slabs: planes, whole or in strips, that pass under a front."""

from __future__ import annotations

from msgspec.structs import replace

from outgrid.plan.assemble import assemble
from outgrid.plan.choose import Choice
from outgrid.plan.commits import Begin
from outgrid.plan.model import Plan
from outgrid.plan.refuse import refusal
from outgrid.plan.request import Request


def plan(request: Request) -> Plan:
    """The plan of the best candidate.

    Raises InfeasiblePlan where none fits, UsageError for values out of range.
    """
    request.check()
    best = Choice(request).best()
    if best is None:
        raise refusal(request)
    return assemble(request, best)


def plan_from(request: Request, begin: Begin) -> Plan | None:
    """The plan that goes on within a sweep; None where that sweep does not fit, or has blocks."""
    if len(begin.cut) == 2 or request.scheme.blocks:
        return None
    begun = replace(request, begin=begin)
    begun.check()
    choice = Choice(begun)
    best = choice.best() if choice.goes_on else None
    return None if best is None else assemble(begun, best)
