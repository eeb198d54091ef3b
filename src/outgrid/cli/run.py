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
from outgrid.cli.parser import examples
from outgrid.comm import world


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.epilog = examples(
        ("outgrid run job.toml --memory 2GiB --scratch /nvme --out heat.run", ""),
        ("outgrid run job.toml --stop-after 2h", "outgrid resume continues"),
        ("outgrid run job.toml --continue", "start, resume, or report the end"),
        ("mpiexec -n 8 outgrid run job.toml", "on eight ranks of MPI"),
    )
    add_job_arguments(parser)
    former = parser.add_mutually_exclusive_group()
    former.add_argument(
        "--overwrite",
        action="store_true",
        help="replace the results of a former run",
    )
    former.add_argument(
        "--continue",
        action="store_true",
        dest="resume",
        help="start the run, resume it, or end at once if it is finished",
    )
    add_json_argument(parser)
    add_quiet_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the job and print its record."""
    comm = world()
    job = job_from(arguments, comm.local)
    out = job.options.results
    stopping = stopping_on_signals(out, anew=not arguments.resume)
    with stopping as stop, progress_to_stderr(arguments, comm) as progress:
        given = job.problem, job.options, progress, stop
        if arguments.resume:
            result = pipeline.run_or_resume(*given, comm=comm)
        else:
            result = pipeline.run(*given, comm=comm, overwrite=arguments.overwrite)
    if comm.rank == 0:
        print_record(result.record, arguments)
    return 0
