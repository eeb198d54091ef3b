"""`outgrid tune JOB.toml`: search longer for the fastest tiles of a job, and keep them."""

import argparse
import sys
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from outgrid import pipeline
from outgrid.axes import NAMES
from outgrid.cli.arguments import add_job_arguments, add_json_argument, job_from, print_json
from outgrid.cli.parser import examples
from outgrid.comm import world
from outgrid.config import RunOptions
from outgrid.errors import InfeasiblePlan, UsageError
from outgrid.execute.calibrate import least_planes
from outgrid.execute.kernels import load_kernel
from outgrid.gradients import run_back
from outgrid.job import Job
from outgrid.lines import align, format_count, format_share
from outgrid.plan.calibration import Calibration, Sample
from outgrid.plan.model import MOST_GROUP, Plan
from outgrid.plan.tiling import tile_levels
from outgrid.planning import calibration, known_rates
from outgrid.probe.profile import known_machine
from outgrid.reversal.asked import asked
from outgrid.stencil.problem import Problem
from outgrid.units import format_rate, format_seconds

Measured = Mapping[tuple[str, ...], tuple[Problem, Calibration, Calibration]]
"""Forms of a problem, by the temporaries that each computes again; rates found, and those kept."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.epilog = examples(
        ("outgrid tune job.toml", "once, on an idle machine; plans of the job then use the result"),
        ("outgrid tune job.toml --memory 4GiB --json", ""),
        ("outgrid tune job.toml --set threads=8", "for ranks that have 8 cores each"),
    )
    add_job_arguments(parser)
    add_json_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure, keep the rates, and print what was found and what it gains."""
    if (ranks := world().size) > 1:
        raise UsageError(
            f"{ranks} ranks were started, and kernels are tuned by one process: start outgrid tune "
            "without them, with --set threads=N for the N cores that each rank has"
        )
    job = job_from(arguments)
    options = msgspec.structs.replace(job.options, effort="patient")
    if options.device != "cpu":
        raise UsageError(f"kernels of device {options.device} have no tiles: nothing to tune")
    problems = _problems(job)
    for problem in problems.values():
        for form in pipeline.forms(problem, options):
            _check_planes(form)
    found = {way: _tuned(problem, options, way) for way, problem in problems.items()}
    if arguments.json:
        told = dict(found[""])
        if "back" in found:
            told["back"] = found["back"]
        print_json(told)
    else:
        print(align([row for way, one in found.items() for row in _rows(one, way)]))
    return 0


def _problems(job: Job) -> dict[str, Problem]:
    """What has a kernel of its own: the problem, and the runs back of its gradient as "back"."""
    problems = {"": job.problem}
    if job.gradient is not None:
        objective, keywords = asked(job)
        problems["back"] = run_back(job.problem, objective, out=job.options.results, **keywords)
    return problems


def _check_planes(problem: Problem) -> None:
    planes, least = problem.shape[0], least_planes(problem)
    if planes < least:
        raise InfeasiblePlan(
            f"a kernel that reads {problem.stencil.radius[0]} planes beyond a cell is measured on "
            f"{least} planes or more, and the grid has {planes}: there is nothing to tune, and "
            "plans estimate the rates"
        )


def _tuned(problem: Problem, options: RunOptions, way: str) -> dict[str, Any]:
    """Measure the forms that a problem may be computed in, and tell what that gains."""
    before = pipeline.plan(problem, options)
    machine = known_machine(options.scratch or options.out)
    which = "kernel of the runs back" if way else "kernel"
    print(f"measuring the {which}: about a minute or two", file=sys.stderr)
    begin = time.monotonic()
    measured: dict[tuple[str, ...], tuple[Problem, Calibration, Calibration]] = {}
    for form in pipeline.forms(problem, options):
        kernel, again = load_kernel(form), form.stencil.recomputed
        beside = before.tile if again == before.recomputed else None
        rates = calibration(form, options, machine, kernel, again=True, beside=beside)
        if rates is None:
            raise InfeasiblePlan("the memory limit leaves no room to measure the kernel; raise it")
        measured[again] = form, rates, known_rates(form, options, machine) or rates
    seconds = time.monotonic() - begin
    axis = NAMES[before.transposed]  # of which kernels were measured
    after = pipeline.plan(problem, msgspec.structs.replace(options, stream_axis=axis))
    return _found(before, after, measured) | {"seconds": seconds}


def _found(before: Plan, after: Plan, measured: Measured) -> dict[str, Any]:
    """Tiles of the plans before and now, at the rates that are kept now.

    Those may be of before, where other programs disturbed what was measured.
    """

    def told(plan: Plan) -> dict[str, Any]:
        form, _, rates = measured[plan.recomputed]
        sample = rates.of(tile_levels(plan.tile, form), plan.tile)
        tile = msgspec.to_builtins(plan.tile)
        return {"tile": tile, "updates_per_second": _rate(rates, sample, plan)}

    every = [rates for _, rates, _ in measured.values()]
    return {
        "before": told(before),
        "after": told(after),
        "tiles": sum(len(rates.samples) for rates in every),
        "others_share": max(rates.others_share for rates in every),
        "disturbed": any(rates.disturbed for rates in every),
        "kept": all(rates == kept for _, rates, kept in measured.values()),
    }


def _rate(rates: Calibration, sample: Sample | None, plan: Plan) -> float | None:
    if sample is None:
        return None
    slab = None if plan.schedule.resident else plan.schedule.slab_planes
    return rates.rate(sample, plan.depth, slab)


def _rows(found: dict[str, Any], way: str) -> list[tuple[str, str]]:
    before, after = found["before"], found["after"]
    rows = [
        (
            f"{way} measured".strip(),
            f"{format_count(found['tiles'], 'tile')} in {format_seconds(found['seconds'])}",
        ),
        (f"{way} before".strip(), _tile(before)),
        (f"{way} now".strip(), _tile(after)),
    ]
    if before["updates_per_second"] and after["updates_per_second"]:
        gain = after["updates_per_second"] / before["updates_per_second"]
        rows.append((f"{way} gain".strip(), f"{gain:.2f} times as fast"))
    if found["disturbed"]:
        share = format_share(found["others_share"])
        stays = "" if found["kept"] else "; what was measured before stays"
        told = f"other programs took {share} of the processors{stays}: tune again later"
        rows.append(("busy", told))
    return rows


def _tile(told: dict[str, Any]) -> str:
    tile, rate = told["tile"], told["updates_per_second"]
    words = "level by level" if tile["order"] != "diamond" else f"diamonds of {tile['rows']} rows"
    words += f", {tile['planes']} planes a step"
    words += f", {tile['columns']} columns at a time" if tile["columns"] else ""
    words += f", bands of {tile['band']} rows" if tile["band"] else ""
    words += ", edges fetched ahead" if tile["fetch"] else ""
    words += ", stored past the caches" if tile["stream"] else ""
    words += f", groups of {tile['group']}" if tile["group"] < MOST_GROUP else ""
    return f"{format_rate(rate) if rate else 'not measured'} in {words}"
