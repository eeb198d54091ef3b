"""`outgrid run JOB.toml`: run a job, show its progress, print what was measured."""

import argparse

from outgrid import pipeline
from outgrid.cli.arguments import add_job_arguments, add_json_argument, job_from
from outgrid.cli.outcome import (
    add_quiet_argument,
    print_record,
    progress_to_stderr,
    stopping_on_signals,
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    add_job_arguments(parser)
    add_json_argument(parser)
    add_quiet_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the job and print its record."""
    job = job_from(arguments)
    with stopping_on_signals() as stop, progress_to_stderr(arguments) as progress:
        result = pipeline.run(job.problem, job.options, progress, stop)
    print_record(result.record, arguments)
    return 0
