"""`outgrid resume RUN`: continue an unfinished run from its last durable state."""

import argparse

from outgrid import pipeline
from outgrid.cli.arguments import add_changes, add_json_argument, settings_from
from outgrid.cli.outcome import (
    add_quiet_argument,
    print_record,
    progress_to_stderr,
    stopping_on_signals,
)
from outgrid.cli.parser import examples
from outgrid.comm import world
from outgrid.config import run_folder
from outgrid.runs.resumption import resumption


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.epilog = examples(
        ("outgrid resume heat.run", ""),
        ("outgrid resume heat.run --memory 8GiB", "the answer stays the same"),
    )
    parser.add_argument("run_folder", type=run_folder, metavar="RUN", help="the folder of the run")
    add_changes(parser)
    add_json_argument(parser)
    add_quiet_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run what is left and print its record."""
    comm, out = world(), arguments.run_folder
    with stopping_on_signals(out) as stop, progress_to_stderr(arguments, comm) as progress:
        resumed = resumption(out, settings_from(arguments), comm)
        result = pipeline.resume(out, resumed.options, progress, stop, resumed.changes, comm=comm)
    if comm.rank == 0:
        print_record(result.record, arguments)
    return 0
