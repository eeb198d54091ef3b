"""`outgrid plan JOB.toml`: what a job will move, keep and take, without running it."""

import argparse

from outgrid import pipeline
from outgrid.cli.arguments import add_job_arguments, add_json_argument, job_from, print_json
from outgrid.plan.explain import explain


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    add_job_arguments(parser)
    add_json_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Plan the job and print the plan."""
    job = job_from(arguments)
    plan = pipeline.plan(job.problem, job.options).to_dict()
    if arguments.json:
        print_json(plan)
    else:
        print(explain(plan))
    return 0
