"""`outgrid verify RUN`: read a run back, finished or not, and compare it with its checksums."""

import argparse
from pathlib import Path

from outgrid.cli.arguments import add_json_argument, print_json
from outgrid.errors import VerificationError
from outgrid.execute.verify import verify
from outgrid.units import format_bytes


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="the folder of a run")
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
            }
        )
    else:
        print(*found.errors, *found.files, sep="\n")
        verdict = f"{len(found.errors)} differences" if found.errors else "all as it was written"
        print(f"{len(found.files)} files, {format_bytes(found.nbytes)}: {verdict}")
    return VerificationError.exit_code if found.errors else 0
