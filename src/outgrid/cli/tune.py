"""`outgrid tune JOB.toml`: search longer for the fastest tiles of a job's kernel, and keep them."""

import argparse
import sys
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from outgrid import pipeline
from outgrid.cli.arguments import add_job_arguments, add_json_argument, job_from, print_json
from outgrid.cli.parser import examples
from outgrid.errors import InfeasiblePlan, UsageError
from outgrid.execute.kernels import load_kernel
from outgrid.lines import align, format_count, format_share
from outgrid.plan.calibration import Calibration, Sample
from outgrid.plan.model import MOST_GROUP, Plan
from outgrid.plan.tiling import tile_levels
from outgrid.planning import calibration
from outgrid.probe.profile import known_machine
from outgrid.stencil.problem import Problem
from outgrid.units import format_rate, format_seconds


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.epilog = examples(
        ("outgrid tune job.toml", "once, on an idle machine; plans of the job then use the result"),
        ("outgrid tune job.toml --memory 4GiB --json", ""),
    )
    add_job_arguments(parser)
    add_json_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure, keep the rates, and print what was found and what it gains."""
    job = job_from(arguments)
    problem, options = job.problem, msgspec.structs.replace(job.options, effort="patient")
    if options.device != "cpu":
        raise UsageError(f"kernels of device {options.device} have no tiles: nothing to tune")
    before = pipeline.plan(problem, options)
    machine = known_machine(options.scratch or options.out)
    print("measuring the kernel: about a minute or two", file=sys.stderr)
    begin = time.monotonic()
    measured: dict[tuple[str, ...], Calibration] = {}
    for form in pipeline.forms(problem, options):
        kernel = load_kernel(form)
        rates = calibration(form, options, machine, kernel, again=True, beside=before.tile)
        if rates is None:
            raise InfeasiblePlan("the memory limit leaves no room to measure the kernel; raise it")
        measured[form.stencil.recomputed] = rates
    seconds = time.monotonic() - begin
    after = pipeline.plan(problem, options)
    found = _found(problem, before, after, measured) | {"seconds": seconds}
    if arguments.json:
        print_json(found)
    else:
        print(_text(found))
    return 0


def _found(
    problem: Problem, before: Plan, after: Plan, measured: Mapping[tuple[str, ...], Calibration]
) -> dict[str, Any]:
    """Tiles of the plans before and now, at the rates that were measured now.

    These are there for each form of the problem, by the temporaries that it computes again.
    """

    def told(plan: Plan) -> dict[str, Any]:
        rates = measured[plan.recomputed]
        sample = rates.of(tile_levels(plan.tile, problem), plan.tile)
        tile = msgspec.to_builtins(plan.tile)
        return {"tile": tile, "updates_per_second": _rate(rates, sample, plan)}

    return {
        "before": told(before),
        "after": told(after),
        "tiles": sum(len(rates.samples) for rates in measured.values()),
        "others_share": max(rates.others_share for rates in measured.values()),
        "disturbed": any(rates.disturbed for rates in measured.values()),
    }


def _rate(rates: Calibration, sample: Sample | None, plan: Plan) -> float | None:
    if sample is None:
        return None
    slab = None if plan.schedule.resident else plan.schedule.slab_planes
    return rates.rate(sample, plan.depth, slab)


def _text(found: dict[str, Any]) -> str:
    before, after = found["before"], found["after"]
    rows = [
        (
            "measured",
            f"{format_count(found['tiles'], 'tile')} in {format_seconds(found['seconds'])}",
        ),
        ("before", _tile(before)),
        ("now", _tile(after)),
    ]
    if before["updates_per_second"] and after["updates_per_second"]:
        gain = after["updates_per_second"] / before["updates_per_second"]
        rows.append(("gain", f"{gain:.2f} times as fast"))
    if found["disturbed"]:
        share = format_share(found["others_share"])
        rows.append(("busy", f"other programs took {share} of the processors: tune again later"))
    return align(rows)


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
