"""What the verbs that run something show while it runs and when it is done."""

import argparse
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from outgrid.cli.arguments import print_json
from outgrid.comm import Comm
from outgrid.errors import Stopped
from outgrid.execute.stop import Interrupted, Stop
from outgrid.gradients import GradientPlan
from outgrid.record import Record
from outgrid.report.progress import Shown, follow
from outgrid.report.summary import summarise
from outgrid.runs.group import NOTHING_LEFT, runs_in, what_is_left

__all__ = [
    "add_quiet_argument",
    "gradient_to_dict",
    "print_record",
    "progress_to_stderr",
    "stopping_on_signals",
]


def add_quiet_argument(parser: argparse.ArgumentParser) -> None:
    """Whether progress is shown."""
    parser.add_argument("--quiet", action="store_true", help="show no progress")


@contextmanager
def stopping_on_signals(out: Path, *, anew: bool = False) -> Generator[Stop]:
    """SIGTERM and Ctrl-C stop the run in ``out`` so that it can be resumed; a second one, or one
    while no steps are made, ends it at once.

    Raises Stopped where it can be resumed then, else Interrupted. A run that begins ``anew`` does
    not go on from what was there before.
    """
    stop, former = Stop(), runs_in(out) if anew else ()
    with stop.on_signals():
        try:
            yield stop
        except KeyboardInterrupt:
            left = what_is_left(out, former)
            if left:
                told = f"interrupted; {left}; outgrid resume {out} continues"
                raise Stopped(told, left) from None
            number = stop.heard or signal.SIGINT
            raise Interrupted(number, f"interrupted; {NOTHING_LEFT}") from None


@contextmanager
def progress_to_stderr(
    arguments: argparse.Namespace,
    comm: Comm | None = None,
) -> Generator[Shown | None]:
    """A subscriber that shows progress on stderr, that of rank 0; None if none is wanted."""
    if arguments.quiet or (comm is not None and comm.rank > 0):
        yield None
    else:
        with follow(sys.stderr) as progress:
            yield progress


def gradient_to_dict(plan: GradientPlan) -> dict[str, Any]:
    """The plan of a gradient for programs."""
    return {
        "chosen": plan.chosen.name,
        "free_bytes": plan.free_bytes,
        "chunk": plan.chunk,
        "strategies": [msgspec.to_builtins(one) for one in plan.strategies],
    }


def print_record(record: Record, arguments: argparse.Namespace) -> None:
    """Print the record as text or as JSON."""
    if arguments.json:
        print_json(record.to_dict())
    else:
        print(summarise(record))
