"""`outgrid bench tune`: the planner's choice beside the best that an exhaustive search finds."""

import argparse

from outgrid_bench.cli.measurement import Measurement, say
from outgrid_bench.kept import Kept
from outgrid_bench.tables import tune_table
from outgrid_bench.tune import measure_tunings, probed_machine
from outgrid_bench.tunings import TUNINGS, choose_tunings, small


def run_tune(arguments: argparse.Namespace) -> int:
    """Measure, print, and keep every problem's row in the file `json` as soon as it is done."""
    tunings = choose_tunings(arguments.only)
    if arguments.quick:
        tunings = tuple(small(tuning) for tuning in tunings)
    kept = Kept(arguments.json, ("problem",), arguments.resume)
    machine = probed_machine(arguments.scratch, say)
    left = [tuning for tuning in tunings if (tuning.name,) not in kept]
    for row in measure_tunings(left, machine, arguments.scratch, say):
        kept.add(row.to_dict())
        say(tune_table([row.to_dict()]))
    print(tune_table(kept.rows))
    return 0


TUNE = Measurement(
    name="tune",
    purpose="the planner's choice beside the best of an exhaustive search, for several problems",
    about=(
        "Measures what the planner chooses, and some two hundred other ways to run each problem. "
        "Prints for each problem the rate of the choice and of the best that was found in GLUP/s "
        "(1e9 updates of a cell per second), the ratio of the two, the predicted over the measured "
        "time, and what was chosen."
    ),
    run=run_tune,
    options={
        "--only": "a problem, may be repeated (all): "
        f"{', '.join(tuning.name for tuning in TUNINGS)}",
        "--quick": "the same problems on grids of few MiB",
        "--scratch": "folder on the disk that is measured (the folder of temporary files)",
        "--json": "write all figures to FILE, each problem as soon as it is measured",
        "--resume": "keep the problems that FILE of --json holds and measure the others",
    },
    examples=(
        ("outgrid bench tune --only heat7-poor --scratch /nvme", ""),
        ("outgrid bench tune --json tune.json --resume", "go on after an interruption"),
    ),
)
