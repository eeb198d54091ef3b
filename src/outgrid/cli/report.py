"""`outgrid report RUN`: a page about a finished run, its summary and pictures, as files."""

import argparse
from pathlib import Path

from outgrid.cli.arguments import add_json_argument, print_json
from outgrid.cli.parser import examples
from outgrid.config import run_folder
from outgrid.regular import own
from outgrid.report.page import run_page
from outgrid.report.picture import draw_field, draw_frames, draw_reductions, draw_traces
from outgrid.report.ranks import draw_ranks
from outgrid.report.summary import summarise, telling
from outgrid.result import Result, open_run
from outgrid.runs.reading import read_readings


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.epilog = examples(
        ("outgrid report heat.run", "report.html, and what is in it as files"),
    )
    parser.add_argument("run_folder", type=run_folder, metavar="RUN", help="the folder of a run")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: RUN/report")
    add_json_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the report and print the paths of its files."""
    result = open_run(arguments.run_folder)
    record = result.record
    out = arguments.out or arguments.run_folder / "report"
    out.mkdir(parents=True, exist_ok=True)
    summary, page = out / "summary.txt", out / "report.html"
    with telling(arguments.run_folder):
        pictures = _pictures(result, out)
        _write(summary, summarise(record) + "\n")
        _write(page, run_page(record, pictures, read_readings(arguments.run_folder)))
    paths = [str(path) for path in (summary, page, *(path for _, path in pictures))]
    print_json(paths) if arguments.json else print(*paths, sep="\n")
    return 0


def _write(path: Path, text: str) -> None:
    with open(path, "w", opener=own) as file:
        file.write(text)


def _pictures(result: Result, out: Path) -> list[tuple[str, Path]]:
    """What is drawn of a run, and where it lies."""
    record = result.record
    pictures: list[tuple[str, Path]] = []
    for name in record.pieces or record.files:
        pictures.append((name, out / f"{name}.png"))
        draw_field(result[name], pictures[-1][1])
    for number, taken in enumerate(result.snapshots):
        if taken.ndim > 1 and taken.size:
            field = record.problem["snapshots"][number]["field"]
            pictures.append((f"Snapshots of {field}", out / f"snapshot.{number}.png"))
            draw_frames(taken, pictures[-1][1], field)
    if record.problem.get("receivers") and record.steps:
        pictures.append(("Traces of the receivers", out / "traces.png"))
        draw_traces(result.traces, pictures[-1][1])
    if result.reductions and record.steps:
        pictures.append(("Reductions", out / "reductions.png"))
        draw_reductions(result.reductions, pictures[-1][1])
    if record.ranks:
        pictures.append(("Where the time of each rank went", out / "ranks.png"))
        draw_ranks(record.ranks, pictures[-1][1])
    return pictures
