"""`outgrid gradient JOB.toml`: the gradient that the table [gradient] of a job asks for."""

import argparse
import shlex
import time
from typing import Any

from outgrid.cli.arguments import (
    add_job_arguments,
    add_json_argument,
    job_from,
    print_json,
    settings_from,
)
from outgrid.cli.outcome import add_quiet_argument, gradient_to_dict, progress_to_stderr
from outgrid.cli.parser import examples
from outgrid.comm import world
from outgrid.errors import Stopped, UsageError
from outgrid.gradients import Derivatives, gradient, plan_gradient
from outgrid.lines import align
from outgrid.reversal.asked import asked
from outgrid.reversal.ending import going_on
from outgrid.reversal.progress import NAME
from outgrid.units import format_seconds


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.epilog = examples(
        ("outgrid gradient job.toml --plan", "seconds and disk space of each strategy"),
        ("outgrid gradient job.toml --out slope", "leaves slope/c.npy"),
        ("outgrid gradient job.toml --set gradient.adjoint=recompute", ""),
        ("outgrid gradient job.toml --continue", "after Ctrl-C or a crash"),
    )
    add_job_arguments(parser)
    parser.add_argument(
        "--plan", action="store_true", help="print what each strategy takes, and compute nothing"
    )
    parser.add_argument(
        "--continue",
        action="store_true",
        dest="resume",
        help="start the gradient, resume it, or end at once if it is finished",
    )
    add_json_argument(parser)
    add_quiet_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Make the gradient, or plan it, and print what came of it."""
    comm = world()
    job = job_from(arguments, comm.local)
    named = "out" in settings_from(arguments)
    out = job.options.results if named else arguments.job.with_suffix(".gradient")
    if job.options.file and named:
        raise UsageError(f"a gradient is left in a folder, not in the one file {job.options.file}")
    objective, keywords = asked(job)
    if arguments.plan:
        plan = plan_gradient(job.problem, objective=objective, out=out, **keywords)
        if comm.rank == 0:
            if arguments.json:
                print_json(gradient_to_dict(plan))
            else:
                print(plan)
        return 0
    begin = time.monotonic()
    with progress_to_stderr(arguments, comm) as progress:
        keywords["progress"] = progress or False
        note, goes_on = out / NAME, f"{_again(arguments)} continues the gradient"
        try:
            with going_on(note, goes_on):
                found = gradient(
                    job.problem, objective, out=out, resume=arguments.resume, **keywords
                )
        except KeyboardInterrupt as interrupt:
            if not note.exists():
                raise
            raise Stopped(str(interrupt)) from None
    if comm.rank == 0:
        _print(found, time.monotonic() - begin, as_json=arguments.json)
    return 0


def _again(arguments: argparse.Namespace) -> str:
    """The command that continues a gradient; other options are those of its runs."""
    given = ["outgrid", "gradient", str(arguments.job)]
    given += [] if arguments.out is None else ["--out", str(arguments.out)]
    for setting in arguments.set:
        given += ["--set", setting]
    return shlex.join([*given, "--continue"])


def _print(found: Derivatives, seconds: float, *, as_json: bool) -> None:
    files = {name: str(found.out / f"{name}.npy") for name in found.fields}
    numbers: dict[str, Any] = {
        name: one if isinstance(one, float) else one.tolist() for name, one in found.numbers.items()
    }
    if as_json:
        told = {"value": found.value, "adjoint": found.adjoint, "seconds": seconds}
        print_json({**told, "fields": files, "numbers": numbers})
        return
    rows = [("value", f"{found.value:.9g}"), ("strategy", found.adjoint)]
    rows += [("time", format_seconds(seconds)), *files.items()]
    rows += [(name, _short(one)) for name, one in numbers.items()]
    print(align(rows))


def _short(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else f"{len(value)} values"
