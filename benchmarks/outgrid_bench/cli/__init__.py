"""`outgrid bench NAME`: measure, beside a reference in the same run, and check the answer."""

import argparse
import sys

from outgrid.cli.parser import Parser, add_debug_argument, examples
from outgrid.durable import make_folder
from outgrid.errors import UsageError
from outgrid_bench.cli.core import CORE
from outgrid_bench.cli.formats import FORMATS
from outgrid_bench.cli.io import IO
from outgrid_bench.cli.measurement import OPTIONS
from outgrid_bench.cli.papers import ALL, PAPERS
from outgrid_bench.cli.peers import PEERS
from outgrid_bench.cli.tune import TUNE

MEASUREMENTS = {
    measurement.name: measurement for measurement in (CORE, PEERS, TUNE, IO, FORMATS, *PAPERS, ALL)
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare a verb for each measurement."""
    parser.epilog = examples(
        ("outgrid bench core --memory 512MiB --factor 8", "one stencil beyond memory"),
        ("outgrid bench all --quick --scratch /nvme", "the papers' experiments"),
        ("outgrid bench NAME --help", "what a measurement takes and prints"),
    )
    verbs = parser.add_subparsers(parser_class=Parser, title="measurements", metavar="NAME")
    for measurement in MEASUREMENTS.values():
        verb = verbs.add_parser(
            measurement.name,
            help=measurement.purpose.replace("%", "%%"),
            description=measurement.about,
            epilog=examples(*measurement.examples),
        )
        verb.elsewhere = OPTIONS
        add_debug_argument(verb)
        measurement.declare(verb)
        verb.set_defaults(run=_measure, parser=verb, name=measurement.name)


def run(arguments: argparse.Namespace) -> int:
    """List the measurements: no name was given."""
    arguments.parser.print_help(sys.stderr)
    return UsageError.exit_code


def _measure(arguments: argparse.Namespace) -> int:
    """Measure, print, and return 1 if an answer differed. Folders that are missing are made."""
    for folder in (arguments.scratch, *getattr(arguments, "also", ())):
        if folder is not None:
            make_folder(folder)
    return MEASUREMENTS[arguments.name].run(arguments)
