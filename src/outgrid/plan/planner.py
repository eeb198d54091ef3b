"""The planner: the cheapest plan that fits, of those that go on where a run was cut off if any."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Protocol, cast

from msgspec.structs import replace

from outgrid.config import RunOptions
from outgrid.machine import Accelerator, Machine
from outgrid.plan.calibration import Calibration
from outgrid.plan.candidate import EXCHANGE_BUFFERS, WORTH_CUTTING
from outgrid.plan.commits import Begin
from outgrid.plan.device import host_copies
from outgrid.plan.model import Plan
from outgrid.plan.request import RankPart, Request
from outgrid.plan.tables import inputs_bytes, outlet_bytes, pyramid_bytes, steps_bytes
from outgrid.plan.tiers import copies_in_memory
from outgrid.schemes import SCHEMES, Scheme
from outgrid.stencil.parameters import value_to_json
from outgrid.stencil.problem import Problem
from outgrid.units import format_seconds

__all__ = ["EXCHANGE_BUFFERS", "WORTH_CUTTING", "RankPart", "plan"]


def plan(
    problem: Problem,
    options: RunOptions,
    machine: Machine,
    fixed_bytes: int,
    calibration: Calibration | None = None,
    begin: Begin | None = None,
    part: RankPart | None = None,
    accelerator: Accelerator | None = None,
    packed: Mapping[str, float] | None = None,
) -> Plan:
    """The cheapest plan that fits ``options.memory_bytes``, of the whole grid or a ``part`` of it.

    With an ``accelerator`` the window has to fit its memory, and all that copies pass through the
    limit of the process.

    With ``begin`` it goes on within a sweep if that sweep fits, else it starts that sweep again.

    ``fixed_bytes`` is what the process needs beside the window: interpreter, libraries, kernel. To
    these comes what grows with the steps.
    What is ``packed`` says into which share of their bytes coefficients can be packed.
    Without a ``calibration`` of the kernel its rate is estimated from the machine.
    Raises InfeasiblePlan with the limit that would fit, UsageError for values out of range.
    """
    fixed_bytes += steps_bytes(problem) + inputs_bytes(problem) + outlet_bytes(problem)
    fixed_bytes += pyramid_bytes(problem, options)
    if accelerator is not None and copies_in_memory(options):
        machine = host_copies(machine)
    request = Request(problem, options, machine, fixed_bytes, calibration)
    if part is not None:
        chosen = _rules(request.scheme).plan(replace(request, part=part))
    else:
        request = replace(request, accelerator=accelerator, packed=packed or {})
        chosen = _whole(request, begin)
    stencil = problem.stencil
    notes = chosen.notes
    if stencil.folded is not None:
        notes = (*notes, f"folded: {stencil.folded.rows} rows share each vector")
    if stencil.staged:
        trails = chosen.schedule.skew.per_step
        notes = (*notes, f"stages in parts: a step trails the one before it by {trails} planes")
    form = {"recomputed": stencil.recomputed, "folded": stencil.folded, "staged": stencil.staged}
    return replace(chosen, **form, notes=notes, transposed=problem.transposed)


def _whole(request: Request, begin: Begin | None) -> Plan:
    """The plan of a whole grid."""
    if begin is not None:
        for module in dict.fromkeys(map(_rules, SCHEMES.values())):
            begun = module.plan_from(request, begin)
            if begun is not None:
                return begun
    rules = _rules(request.scheme)
    chosen = rules.plan(request)
    return _with_cost_of_lags(chosen, request, rules) if request.problem.lagged else chosen


def _with_cost_of_lags(chosen: Plan, request: Request, rules: Rules) -> Plan:
    """The plan with a note of what it costs that parameters follow reductions."""
    problem = request.problem
    given = {**problem.parameters, **problem.profiles}
    plain = {name: value_to_json(value) for name, value in given.items()}
    firsts = {name: lagged.first for name, lagged in problem.lagged.items()}
    free = rules.plan(replace(request, problem=problem.replace(parameters=plain | firsts)))
    note = (
        f"{format_seconds(chosen.predicted_seconds)} with sweeps of up to {chosen.depth} steps; if"
        f" {', '.join(firsts)} followed no reduction, {format_seconds(free.predicted_seconds)}"
        f" with up to {free.depth}"
    )
    return replace(chosen, notes=(*chosen.notes, note))


class Rules(Protocol):
    """What the module of a scheme has."""

    def plan(self, request: Request) -> Plan:
        """The cheapest plan that fits. Raises InfeasiblePlan, and UsageError for settings."""
        ...

    def plan_from(self, request: Request, begin: Begin) -> Plan | None:
        """The plan that goes on within a sweep, if this scheme began it and it fits."""
        ...


def _rules(scheme: Scheme) -> Rules:
    return cast("Rules", import_module(f"outgrid.plan.{scheme.module}"))
