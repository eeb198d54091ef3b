"""`outgrid clean RUN`: list or delete the files of an unfinished run."""

import argparse
from pathlib import Path

from outgrid.cli.arguments import add_json_argument, print_json
from outgrid.cli.parser import examples
from outgrid.config import run_folder
from outgrid.lines import format_count
from outgrid.runs.leftovers import Leftovers, leftovers
from outgrid.runs.manifest import Manifest, how_far
from outgrid.units import format_bytes


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.epilog = examples(
        ("outgrid clean heat.run", "what is there"),
        ("outgrid clean heat.run --delete", ""),
    )
    parser.add_argument("run_folder", type=run_folder, metavar="RUN", help="the folder of the run")
    parser.add_argument(
        "--delete",
        action="store_true",
        help="delete the listed files; the run then cannot be resumed",
    )
    add_json_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """List what the run's manifest owns; delete it only if that was asked for."""
    left = leftovers(arguments.run_folder, delete=arguments.delete)
    manifest = left.manifest
    if arguments.json:
        print_json(
            {
                "files": [str(path) for path in left.files],
                "bytes": left.nbytes,
                "steps_done": None if manifest is None else manifest.steps_done,
                "steps": None if manifest is None else manifest.problem.get("steps"),
                "deleted": arguments.delete and manifest is not None,
            }
        )
    elif manifest is None:
        print(f"the run in {arguments.run_folder} is finished: no files to remove")
    else:
        print(*left.files, sep="\n")
        print(_verdict(left, manifest, arguments.run_folder, deleted=arguments.delete))
    return 0


def _verdict(left: Leftovers, manifest: Manifest, out: Path, *, deleted: bool) -> str:
    words = [f"{format_count(len(left.files), 'file')}, {format_bytes(left.nbytes)}"]
    words += [f"{place} belongs to another run and is left unchanged" for place in left.foreign]
    if deleted:
        words.append("deleted")
    else:
        goes_on = manifest.steps_done >= 0
        words.append(how_far(manifest) + goes_on * f"; outgrid resume {out} continues")
        words.append("--delete removes these files")
    return "; ".join(words)
