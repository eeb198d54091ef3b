"""`outgrid report RUN`: the summary and the pictures of a finished run, as files."""

import argparse
from pathlib import Path

from outgrid.cli.arguments import add_json_argument, print_json
from outgrid.cli.parser import examples
from outgrid.record import read_record
from outgrid.report.picture import draw_field
from outgrid.report.ranks import draw_ranks
from outgrid.report.summary import summarise
from outgrid.result import Result
from outgrid.storage import Joined


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.epilog = examples(
        ("outgrid report heat.run", "summary.txt and a picture of every field"),
    )
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="the folder of a run")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: RUN/report")
    add_json_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the report and print the paths of its files."""
    record = read_record(arguments.run_folder)
    out = arguments.out or arguments.run_folder / "report"
    out.mkdir(parents=True, exist_ok=True)
    summary = out / "summary.txt"
    summary.write_text(summarise(record) + "\n")
    written = [summary]
    result = Result(arguments.run_folder, record)
    for name in record.pieces or record.fields:
        picture, field = out / f"{name}.png", result[name]
        draw_field(field if isinstance(field, Joined) else result.path(name), picture)
        written.append(picture)
    if record.ranks:
        draw_ranks(record.ranks, out / "ranks.png")
        written.append(out / "ranks.png")
    paths = [str(path) for path in written]
    print_json(paths) if arguments.json else print(*paths, sep="\n")
    return 0
