"""`outgrid bench core`: rates of stencils in cache, in memory and out of core."""

import argparse
from collections.abc import Sequence

from outgrid.errors import UsageError
from outgrid_bench.cli.measurement import Measurement, say
from outgrid_bench.kept import Kept
from outgrid_bench.rows import KEY, USUAL, answers_agree, measure_rows
from outgrid_bench.tables import columns, row_table
from outgrid_bench.where import HEADING, where_lines
from outgrid_bench.workloads import CASES, Workload, choose, recorded, workload


def run_core(arguments: argparse.Namespace) -> int:
    """Measure, print, keep every row in the file `json`; return 1 if an answer differed."""
    workloads = _recorded(arguments) if arguments.all else _chosen(arguments)
    kept = Kept(arguments.json, KEY, arguments.resume, USUAL)
    rows = measure_rows(workloads, arguments.scratch, say, kept)
    print(row_table(rows))
    if arguments.where:
        print(f"\n{columns([HEADING, *where_lines(rows)])}")
    return 0 if answers_agree(rows) else 1


def _recorded(arguments: argparse.Namespace) -> Sequence[Workload]:
    fixed = {
        name: getattr(arguments, name)
        for name in ("only", "memory", "plane", "steps", "stream_axis")
    }
    for name, value in fixed.items():
        if value is not None:
            option = name.replace("_", "-")
            raise UsageError(f"--all measures grids of its own: leave out --{option}")
    return recorded(tuple(arguments.factor) if arguments.factor else None)


def _chosen(arguments: argparse.Namespace) -> Sequence[Workload]:
    plane = _plane(arguments.plane)
    return [
        workload(
            choose(text),
            arguments.memory,
            factor,
            plane,
            arguments.steps,
            arguments.stream_axis or "",
        )
        for text in arguments.only or [CASES[0].spelling]
        for factor in arguments.factor or [8.0]
    ]


def _plane(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(extent) for extent in text.split("x"))
    except ValueError:
        raise UsageError(f"--plane {text!r} is not of the form 1024x1024 (in 2-D: 16384)") from None


CORE = Measurement(
    name="core",
    purpose="rates in cache, in memory and out of core, of one stencil or of all that are measured",
    about=(
        "Measures how fast a stencil is updated in cache, in memory and out of core, beside the "
        "bandwidth and the peak of this machine, ceilings of its caches and loops by hand. Prints "
        "a table in GLUP/s (1e9 updates of a cell per second), with the ratios to plain and to "
        "temporally blocked sweeps in memory, and whether the answers agree; exit code 1 if one "
        "does not."
    ),
    run=run_core,
    options={
        "--only": "a stencil, may be repeated "
        f"({CASES[0].spelling}): {', '.join(case.spelling for case in CASES)}",
        "--all": "all stencils, on the grids of a whole record; without --only, --memory, --plane, "
        "--steps and --stream-axis",
        "--memory": "limit of the run out of core, for example 512MiB (1GiB, of some stencils "
        "less)",
        "--factor": "size of the grid over the limit, may be repeated (8; with --all every one of "
        "the record)",
        "--plane": "cells of a plane of the grid, in 2-D COLUMNS alone (as many as leave room for "
        "deep sweeps)",
        "--steps": "time steps (as many as take about half a minute)",
        "--stream-axis": "axis along which planes pass through memory: z, y or x (what the plan "
        "chooses)",
        "--scratch": "folder on the disk that is measured (the folder of temporary files)",
        "--where": "print as well what part of an update's time out of core goes where",
        "--json": "write all figures to FILE, each row as soon as it is measured",
        "--resume": "keep the rows that FILE of --json holds and measure the others",
    },
    examples=(
        ("outgrid bench core --memory 512MiB --factor 8", "heat7 beyond memory"),
        ("outgrid bench core --only wave:8 --factor 4", "one stencil"),
        ("outgrid bench core --all --json rows.json", "a whole record"),
    ),
)
