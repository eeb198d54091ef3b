"""`outgrid plan JOB.toml`: what a job will move, keep and take, without running it."""

import argparse

from outgrid import distributed, pipeline
from outgrid.cli.arguments import add_job_arguments, add_json_argument, job_from, print_json
from outgrid.execute.borrowed import borrowed, lend
from outgrid.plan.explain import explain


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    add_job_arguments(parser)
    add_json_argument(parser)
    parser.add_argument(
        "--ranks",
        type=int,
        default=1,
        metavar="N",
        help="plan for N ranks on machines like this one; shown is one with two neighbours",
    )


def run(arguments: argparse.Namespace) -> int:
    """Plan the job and print the plan."""
    job = job_from(arguments)
    if arguments.ranks > 1:
        plan = distributed.plan(job.problem, job.options, arguments.ranks).to_dict()
    elif lend(job.options):
        return 0
    else:
        with borrowed(job.options) as remote:
            found = pipeline.plan(job.problem, job.options)
            plan = (found if remote is None else remote.spread(found)).to_dict()
    if arguments.json:
        print_json(plan)
    else:
        print(explain(plan))
    return 0
