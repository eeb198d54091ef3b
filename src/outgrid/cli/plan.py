"""`outgrid plan JOB.toml`: what a job will move, keep and take, without running it."""

import argparse
import sys

from outgrid import distributed, pipeline
from outgrid.cli.arguments import add_job_arguments, add_json_argument, job_from, print_json
from outgrid.cli.parser import examples
from outgrid.comm import world
from outgrid.errors import UsageError
from outgrid.execute.borrowed import borrowed, lend
from outgrid.plan.explain import explain
from outgrid.stencil.problem import Problem


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.epilog = examples(
        ("outgrid plan job.toml --memory 4GiB", ""),
        ("outgrid plan job.toml --set depth=16 --json", ""),
        ("outgrid plan job.toml --ranks 8", "one of eight machines"),
    )
    add_job_arguments(parser)
    add_json_argument(parser)
    parser.add_argument(
        "--ranks",
        type=int,
        metavar="N",
        help="plan for N ranks on machines like this one (as many as mpiexec has started); shown "
        "is one with two neighbours",
    )


def run(arguments: argparse.Namespace) -> int:
    """Plan the job and print the plan."""
    count: int | None = arguments.ranks
    if count is not None and count < 1:
        raise UsageError(f"--ranks {count} plans for nobody; give 1 or more")
    comm = world()
    job = job_from(arguments, comm.local)
    if count is not None and count > 1:
        plan = distributed.plan(job.problem, job.options, count).to_dict()
    elif comm.size > 1 and job.options.tier != "remote":
        plan = distributed.plan_together(job.problem, job.options, comm).to_dict()
    elif lend(job.options):
        return 0
    else:
        with borrowed(job.options) as remote:
            found = pipeline.plan(job.problem, job.options)
            plan = (found if remote is None else remote.spread(found)).to_dict()
    if comm.rank:
        return 0
    if arguments.json:
        print_json(plan)
    else:
        print(explain(plan))
    _warn_of_inputs(job.problem)
    return 0


def _warn_of_inputs(problem: Problem) -> None:
    """Say which input the run would refuse; a plan needs none, and it may be elsewhere."""
    try:
        pipeline.check_inputs(problem)
    except UsageError as error:
        print(f"outgrid: a run would be refused: {error}", file=sys.stderr)
