"""`outgrid sweep JOB --set KEY=VALUE,VALUE`: a job with several values, in one table."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from outgrid import pipeline
from outgrid.cli.arguments import add_json_argument, add_run_flags, print_json, settings_from
from outgrid.cli.outcome import add_quiet_argument, progress_to_stderr, stopping_on_signals
from outgrid.cli.parser import examples
from outgrid.comm import world
from outgrid.errors import ExecutionError
from outgrid.result import Result
from outgrid.sweeping import (
    TABLE_NAME,
    Point,
    Row,
    columns,
    parse_varied,
    points,
    run_all,
    write_table,
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.epilog = examples(
        ("outgrid sweep job.toml --set problem.parameters.k=0.1,0.2,0.3", "three runs, sweep.csv"),
        ("outgrid sweep job.toml --set problem.steps=100,200 --set depth=4,8", "all four"),
    )
    parser.add_argument("job", type=Path, metavar="JOB.toml", help="job file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="varied",
        metavar="KEY=VALUE,VALUE",
        help="values of one entry of the job; an entry without a table is of [run]; may be "
        "repeated",
    )
    parser.add_argument(
        "--out",
        dest="folder",
        type=Path,
        metavar="DIR",
        help="folder of all runs and their table (default: JOB.sweep)",
    )
    add_run_flags(parser)
    add_json_argument(parser)
    add_quiet_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Bring every run to its end, from where it was cut off, and print the table."""
    comm = world()
    out = arguments.folder or arguments.job.parent / f"{arguments.job.stem}.sweep"
    settings = settings_from(arguments)
    varied = parse_varied(arguments.varied)
    every = points(arguments.job, varied, settings, out.absolute(), comm.local)

    def one(point: Point) -> Result:
        given = point.job.problem, point.job.options
        point.make_scratch(comm.rank)
        with stopping_on_signals(point.out) as stop, progress_to_stderr(arguments, comm) as shown:
            return pipeline.run_or_resume(*given, shown, stop, comm=comm)

    def keep(rows: Sequence[Row]) -> None:
        if comm.rank == 0:
            write_table(out, rows)

    rows = run_all(every, one, keep, alone=comm.size == 1)
    if comm.rank == 0:
        tables = [row.to_dict() for row in rows]
        if arguments.json:
            print_json(tables)
        else:
            _print(tables)
            print(f"{out / TABLE_NAME}")
    return ExecutionError.exit_code if any(row.state == "failed" for row in rows) else 0


def _print(tables: list[dict[str, object]]) -> None:
    """The table in columns."""
    names = columns(tables)
    cells = [names, *([_text(row.get(name, "")) for name in names] for row in tables)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        print(
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
