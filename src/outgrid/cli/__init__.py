"""The command line: one module per verb, wiring only.

Results go to stdout, progress and messages to stderr. Exit codes: 0 done, 1 wrong result, 2 usage,
3 infeasible, 4 failed I/O, build or device, values that became NaN or infinite, or a lost rank,
75 stopped before its end by a signal or a time limit and ready to be resumed, 130 interrupted by
Ctrl-C and 143 by SIGTERM with nothing to be resumed. Only the module of the verb asked for is
imported, so that a run stays small. Other packages add verbs of their own by entry points of the
group COMMANDS: modules like those here, with `configure` and `run`.
"""

import argparse
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from outgrid.cli.parser import Parser, add_debug_argument, examples
from outgrid.comm import leave, spoken_by
from outgrid.errors import Error
from outgrid.version import __version__

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["main"]

VERBS = {
    "plan": "print bytes, memory and time of a job, without running it",
    "run": "run a job",
    "resume": "continue an unfinished run",
    "sweep": "run a job with several values of its entries, in one table: a parameter sweep",
    "gradient": "differentiate the misfit of a job by its inputs",
    "watch": "show the progress of a run until it ends",
    "verify": "compare the files of a run with their checksums",
    "clean": "list or delete the files of an unfinished run",
    "show": "print a plan, a kernel or a record, or draw a field",
    "export": "write fields of a run as a file of another format, such as Zarr or NetCDF",
    "import": "convert an array file to another format, such as .npy",
    "serve": "serve a run to viewers in a browser on this machine",
    "report": "write a run's summary and pictures",
    "probe": "measure this machine",
    "tune": "measure the kernel of a job and keep its fastest tiles",
}
MODULES = {"import": "convert"}
"""Verbs that are no names of modules in Python."""

COMMANDS = "outgrid.commands"
SEPARATE = {
    "bench": "bench is a package of its own, in the source of outgrid: pip install ./benchmarks",
    "demo": "the demonstration is a program in the source of outgrid: python examples/tsunami",
}
"""Where verbs are found that are not installed with the package."""

EPILOG = f"""\
{
    examples(
        ("outgrid plan job.toml", "bytes, seconds, disk space, before anything runs"),
        ("outgrid run job.toml --out heat.run", "writes heat.run/u.npy, heat.run/record.json"),
        ("outgrid resume heat.run", "after Ctrl-C, a time limit or a crash"),
        ("outgrid VERB --help", "the arguments of a verb"),
    )
}

exit codes: 0 done, 1 wrong result, as verify finds, 2 a mistake in the job or the
command, 3 no plan fits, or a run would fail, 4 failed I/O or compilation, a value
that became NaN or infinite, a lost rank, a GPU that is missing or failed,
75 stopped and ready to be resumed, 130 or 143 interrupted with nothing to resume"""
IO_EXIT_CODE = 4
INTERRUPTED_EXIT_CODE = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parsed, unknown = _parser(given).parse_known_args(given)
    if unknown:
        parsed.parser.refuse(unknown)  # under the usage of the verb
    if parsed.debug:
        logging.basicConfig(level=logging.DEBUG)
    code = _code(parsed)
    if code:
        leave(code)  # other ranks would wait for this one
    return code


def _code(parsed: argparse.Namespace) -> int:
    """Run the verb and tell what went wrong."""
    try:
        return parsed.run(parsed)
    except BrokenPipeError:
        # The reader of our output has gone; the interpreter's last flush must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return IO_EXIT_CODE
    except (Error, OSError) as error:
        if parsed.debug:
            traceback.print_exc()
        print(f"outgrid: {spoken_by(error)}{error}", file=sys.stderr, flush=True)
        return error.exit_code if isinstance(error, Error) else IO_EXIT_CODE
    except MemoryError as error:
        if parsed.debug:
            traceback.print_exc()
        print(f"outgrid: out of memory: {error or 'no more is free'}", file=sys.stderr)
        return IO_EXIT_CODE
    except KeyboardInterrupt as interrupt:
        told = str(interrupt) if hasattr(interrupt, "exit_code") else ""
        print(f"outgrid: {told or 'interrupted'}", file=sys.stderr)
        return getattr(interrupt, "exit_code", INTERRUPTED_EXIT_CODE)


def _parser(given: Sequence[str]) -> Parser:
    parser = Parser(
        prog="outgrid",
        description="Stencil computations on grids that are larger than memory.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"outgrid {__version__}")
    parser.set_defaults(debug=False)
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    wanted = next((word for word in given if not word.startswith("-")), None)
    added = {} if wanted in VERBS else _added()  # found by a search of all installed packages
    if wanted in SEPARATE and wanted not in added:
        parser.error(SEPARATE[wanted])
    purposes = VERBS | {verb: _summary(command) for verb, command in added.items()}
    for verb, purpose in purposes.items():
        verb_parser = verbs.add_parser(verb, help=purpose, description=purpose)
        add_debug_argument(verb_parser)
        if verb == wanted:
            named = added[verb].value if verb in added else f"outgrid.cli.{MODULES.get(verb, verb)}"
            module = importlib.import_module(named)
            module.configure(verb_parser)
            verb_parser.set_defaults(run=module.run, parser=verb_parser)
    return parser


def _added() -> "dict[str, EntryPoint]":
    """Verbs of other packages. One that is named like a verb of ours does not replace it."""
    from importlib.metadata import entry_points  # slow to load, and needed for these verbs alone

    commands = {command.name: command for command in entry_points(group=COMMANDS)}
    return {verb: command for verb, command in commands.items() if verb not in VERBS}


def _summary(command: "EntryPoint") -> str:
    """What the package of a command says of itself."""
    return (command.dist and command.dist.metadata["Summary"]) or command.value
