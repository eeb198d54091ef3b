"""`outgrid bench` of an experiment of the papers: measure, print, write record and figure."""

import argparse
import json
import re
import signal
import sys
from pathlib import Path
from typing import NoReturn

from outgrid.bench.experiments import EXPERIMENTS, Settings, outcome_table
from outgrid.bench.experiments.figure import FORMATS, draw_outcome
from outgrid.bench.experiments.outcome import Size
from outgrid.bench.experiments.page import read_outcomes, write_page
from outgrid.errors import UsageError
from outgrid.machine import describe_machine
from outgrid.units import parse_bytes, suggest

DEFAULT_MEMORY = "1GiB"


def declare_experiments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that only experiments take."""
    parser.add_argument(
        "--full", action="store_true", help="experiments: fill memory several times"
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        help="all: folder of records, figures and page (benchmarks/results/MACHINE)",
    )
    parser.add_argument(
        "--device",
        choices=("cpu", "gpu"),
        default="cpu",
        help="matvec: multiply on a GPU as well",
    )
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--figure", type=Path, metavar="FILE", help="experiments: draw into FILE (.png or .svg)"
    )
    parser.add_argument(
        "--also",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="experiments: a folder on one more disk; may be repeated",
    )


def run_experiment(arguments: argparse.Namespace) -> int:
    """Measure, print, and return 1 if an answer differed."""
    if arguments.figure and arguments.figure.suffix not in FORMATS:
        raise UsageError(f"--figure {arguments.figure}: a name ending with {' or '.join(FORMATS)}")
    signal.signal(signal.SIGTERM, _end)
    if arguments.device != "cpu" and arguments.name != "matvec":
        raise UsageError(f"--device is for bench matvec, not {arguments.name}; leave it out")
    experiment = EXPERIMENTS[arguments.name]
    outcome = experiment.measure(settings_from(arguments))
    if arguments.json:
        arguments.json.write_text(json.dumps(outcome.to_dict(), indent=2) + "\n")
    if arguments.figure:
        draw_outcome(experiment, outcome, arguments.figure)
    print(outcome_table(outcome))
    return 0 if outcome.agrees else 1


def run_all(arguments: argparse.Namespace) -> int:
    """All experiments, one folder of records and figures, and the page; 1 if an answer differed.

    With --resume what the folder holds already is kept.
    """
    signal.signal(signal.SIGTERM, _end)
    settings = settings_from(arguments)
    folder = arguments.results or Path("benchmarks/results") / machine_name()
    folder.mkdir(parents=True, exist_ok=True)
    wanted = arguments.only or list(EXPERIMENTS)
    for name in wanted:
        if name not in EXPERIMENTS:
            raise UsageError(f"no experiment {name!r}{suggest(name, EXPERIMENTS)}")
    for name in wanted:
        record = folder / f"{name}.json"
        if arguments.resume and record.exists():
            continue
        settings.say(f"== {name}")
        outcome = EXPERIMENTS[name].measure(settings)
        record.write_text(json.dumps(outcome.to_dict(), indent=2) + "\n")
        print(outcome_table(outcome))
    outcomes = read_outcomes(folder)
    for outcome in outcomes:  # drawn anew: a page may be made of records alone
        draw_outcome(EXPERIMENTS[outcome.bench], outcome, folder / f"{outcome.bench}.png")
    print(f"page in {write_page(outcomes, folder)}")
    return 0 if all(outcome.agrees for outcome in outcomes) else 1


def machine_name() -> str:
    """A name for a folder: processor and cores, in letters, digits and dashes."""
    machine = describe_machine()
    words = re.findall(r"[a-z0-9]+", machine.cpu.lower().replace("(r)", "").replace("(tm)", ""))
    return "-".join([*words, str(machine.cores)])


def _end(number: int, frame: object) -> NoReturn:
    """SIGTERM ends an experiment as Ctrl-C does: files, groups and swap are removed on the way."""
    raise KeyboardInterrupt


def settings_from(arguments: argparse.Namespace) -> Settings:
    """Size, folders and memory that `arguments` name."""
    if arguments.full and arguments.quick:
        raise UsageError("--quick and --full exclude each other")
    size: Size = "tiny" if arguments.tiny else "full" if arguments.full else "quick"
    return Settings(
        size,
        (arguments.scratch or Path(), *arguments.also),
        parse_bytes(arguments.memory or DEFAULT_MEMORY),
        arguments.with_swap,
        arguments.device,
        lambda text: print(text, file=sys.stderr),
    )
