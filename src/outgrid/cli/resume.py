"""`outgrid resume RUN`: go on with an unfinished run from its last durable state."""

import argparse
from pathlib import Path

from outgrid import pipeline
from outgrid.cli.arguments import add_json_argument, add_run_arguments, settings_from
from outgrid.cli.outcome import (
    add_quiet_argument,
    print_record,
    progress_to_stderr,
    stopping_on_signals,
)
from outgrid.job import run_options


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="the folder of the run")
    add_run_arguments(parser)
    add_json_argument(parser)
    add_quiet_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run what is left and print its record."""
    options = run_options(settings_from(arguments))
    with stopping_on_signals() as stop, progress_to_stderr(arguments) as progress:
        result = pipeline.resume(arguments.run_folder, options, progress, stop)
    print_record(result.record, arguments)
    return 0
