"""`outgrid verify RUN`: read a run back, or the state it goes on from, and compare checksums."""

import argparse
from pathlib import Path

from outgrid.cli.arguments import add_json_argument, print_json
from outgrid.cli.parser import examples
from outgrid.errors import VerificationError
from outgrid.runs.verify import verify
from outgrid.units import format_bytes

WHAT = (
    "the folder of a run; of an unfinished one the state is read that it goes on from, and what it "
    "has made since then is compared when it does"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.epilog = examples(
        ("outgrid verify heat.run", ""),
    )
    parser.add_argument("run_folder", type=Path, metavar="RUN", help=WHAT)
    add_json_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print every difference; end with the code of a wrong result if there is one."""
    found = verify(arguments.run_folder)
    if arguments.json:
        print_json(
            {
                "files": [str(path) for path in found.files],
                "bytes": found.nbytes,
                "errors": [str(error) for error in found.errors],
                "steps": found.steps,
            }
        )
    else:
        print(*found.errors, *found.files, sep="\n")
        verdict = f"{len(found.errors)} differences" if found.errors else "all as it was written"
        print(f"{len(found.files)} files, {format_bytes(found.nbytes)}: {verdict}")
        if found.steps is not None:
            print(
                f"the run is unfinished: its state after {found.steps} steps was read, from which "
                "it goes on; what it has made since then is compared when that is read"
            )
    return VerificationError.exit_code if found.errors else 0
