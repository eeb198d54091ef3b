"""`outgrid bench tune`: the planner's choice beside the best that an exhaustive search finds."""

import argparse
import sys

from outgrid.bench.kept import Kept
from outgrid.bench.tables import tune_table
from outgrid.bench.tune import measure_tunings, probed_machine
from outgrid.bench.tunings import choose_tunings, small


def run_tune(arguments: argparse.Namespace) -> int:
    """Measure, print, and keep every problem's row in the file `json` as soon as it is done."""
    tunings = choose_tunings(arguments.only)
    if arguments.quick:
        tunings = tuple(small(tuning) for tuning in tunings)
    kept = Kept(arguments.json, ("problem",), arguments.resume)
    machine = probed_machine(arguments.scratch, _say)
    left = [tuning for tuning in tunings if (tuning.name,) not in kept]
    for row in measure_tunings(left, machine, arguments.scratch, _say):
        kept.add(row.to_dict())
        _say(tune_table([row.to_dict()]))
    print(tune_table(kept.rows))
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)
