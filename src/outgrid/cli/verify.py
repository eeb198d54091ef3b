"""`outgrid verify RUN`: read a run back, or the state it goes on from, and compare checksums."""

import argparse

from outgrid.cli.arguments import add_json_argument, print_json
from outgrid.cli.parser import examples
from outgrid.config import run_folder
from outgrid.errors import VerificationError
from outgrid.lines import format_count
from outgrid.runs.verify import verify
from outgrid.units import format_bytes

WHAT = "folder of a run; of an unfinished run only the durable state is compared"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.epilog = examples(
        ("outgrid verify heat.run", ""),
    )
    parser.add_argument("run_folder", type=run_folder, metavar="RUN", help=WHAT)
    add_json_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print every difference; end with the code of a wrong result if there is one."""
    verified = verify(arguments.run_folder)
    if arguments.json:
        print_json(
            {
                "files": [str(path) for path in verified.files],
                "bytes": verified.nbytes,
                "errors": [str(error) for error in verified.errors],
                "steps": verified.steps,
            }
        )
    else:
        print(*verified.errors, *verified.files, sep="\n")
        verdict = f"{len(verified.errors)} differences" if verified.errors else "no differences"
        files = format_count(len(verified.files), "file")
        print(f"{files}, {format_bytes(verified.nbytes)}: {verdict}")
        if verified.steps is not None:
            print(
                f"the run is unfinished: its state after {verified.steps} steps was "
                "compared; later data is compared when the run resumes"
            )
    return VerificationError.exit_code if verified.errors else 0
