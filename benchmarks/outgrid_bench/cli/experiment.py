"""`outgrid bench` of an experiment of the papers: measure, print, write record and figure."""

import argparse
import json
import math
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from outgrid.errors import Error, Stopped, UsageError
from outgrid.machine import describe_machine
from outgrid.units import format_seconds, parse_bytes, parse_endurance, parse_seconds, suggest
from outgrid_bench.cli.measurement import say
from outgrid_bench.emulation import parse_disks
from outgrid_bench.experiments import (
    EXPERIMENTS,
    Experiment,
    Outcome,
    Settings,
    outcome_table,
)
from outgrid_bench.experiments.emulating import on_disks
from outgrid_bench.experiments.figure import FORMATS, draw_outcome
from outgrid_bench.experiments.outcome import Size
from outgrid_bench.experiments.page import read_outcomes, write_page

# What each takes on 2 cores with a disk of 2 GB/s and nothing beside it, quick and full. Those of
# full runs that were not made whole are scaled from runs under smaller limits.
SECONDS = {
    "counted": (30, 10),
    "ladder": (30, 100),
    "devices": (140, 530),
    "io": (90, 1550),
    "blocking": (90, 2600),
    "methods": (90, 550),
    "scaling": (90, 500),
    "stream": (90, 140),
    "mask": (90, 270),
    "himeno": (90, 180),
    "matvec": (90, 190),
    "gpu": (5, 5),
    "cluster": (120, 900),
    "nodes": (80, 120),
    "getput": (60, 290),
    "ranks": (60, 1070),
}


def run_experiment(arguments: argparse.Namespace) -> int:
    """Measure, print, and return 1 if an answer differed."""
    if arguments.figure and arguments.figure.suffix not in FORMATS:
        raise UsageError(f"--figure {arguments.figure}: a name ending with {' or '.join(FORMATS)}")
    signal.signal(signal.SIGTERM, _end)
    experiment = EXPERIMENTS[arguments.name]
    settings = settings_from(arguments)
    if arguments.json is None and (arguments.resume or arguments.stop_after):
        raise UsageError("--resume and --stop-after go with the record that --json names")
    outcome = _measured(experiment, settings, arguments.json, arguments.resume)
    if arguments.figure:
        draw_outcome(experiment, outcome, arguments.figure)
    print(outcome_table(outcome))
    return 0 if outcome.agrees else 1


def run_all(arguments: argparse.Namespace) -> int:
    """All experiments, one folder of records and figures, and the page; 1 if an answer differed.

    One that cannot be made here does not keep the others from it; its error is told at the end, and
    its exit code is that of all. With --resume what the folder holds already is kept, single parts
    too; where --stop-after ends all, the page has what there is.
    """
    signal.signal(signal.SIGTERM, _end)
    settings = settings_from(arguments)
    folder = arguments.results or Path("benchmarks/results") / machine_name()
    folder.mkdir(parents=True, exist_ok=True)
    wanted = arguments.only or list(EXPERIMENTS)
    for name in wanted:
        if name not in EXPERIMENTS:
            raise UsageError(f"no experiment {name!r}{suggest(name, EXPERIMENTS)}")
    failed: list[Error] = []
    left = [
        name for name in wanted if not arguments.resume or not (folder / f"{name}.json").exists()
    ]
    if settings.size != "tiny":
        settings.say(expected(left, full=settings.size == "full"))
    for name in wanted:
        settings.say(f"== {name}")
        record = folder / f"{name}.json"
        try:
            outcome = _measured(EXPERIMENTS[name], settings, record, arguments.resume)
        except Stopped as stopped:
            failed = [stopped]
            break
        except Error as error:
            settings.say(f"{name} cannot be made: {error}")
            failed.append(error)
            continue
        print(outcome_table(outcome))
    outcomes = read_outcomes(folder)
    for outcome in outcomes:  # drawn anew: a page may be made of records alone
        draw_outcome(EXPERIMENTS[outcome.bench], outcome, folder / f"{outcome.bench}.png")
    print(f"page in {write_page(outcomes, folder)}")
    if failed:
        raise failed[0]
    return 0 if all(outcome.agrees for outcome in outcomes) else 1


def expected(names: Sequence[str], *, full: bool) -> str:
    """What experiments take on a machine like the one that they were timed on, and all of them."""
    seconds = {name: SECONDS[name][full] for name in names}
    told = ", ".join(f"{name} {format_seconds(taken)}" for name, taken in seconds.items())
    return f"on 2 cores and a disk of 2 GB/s: {told}; all {format_seconds(sum(seconds.values()))}"


def _measured(
    experiment: Experiment, settings: Settings, record: Path | None, resume: bool
) -> Outcome:
    """The outcome, as it stands in ``record`` if there is one to go on with.

    Until it is there, the parts of it stand beside it.
    """
    if record is None:
        with on_disks(settings, settings.emulate) as placed:
            return experiment.measure(placed)
    if resume and record.exists():
        return Outcome.from_dict(json.loads(record.read_text()))
    kept = record.with_suffix(".rows")
    with on_disks(settings, settings.emulate) as placed:
        outcome = experiment.measure(replace(placed, kept=kept, resume=resume))
    record.write_text(json.dumps(outcome.to_dict(), indent=2) + "\n")
    kept.unlink(missing_ok=True)
    return outcome


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
    given = vars(arguments)  # not every experiment takes every option
    full = given.get("full")
    if full and arguments.quick:
        raise UsageError("--quick and --full exclude each other")
    factor, *more = given.get("factor") or [None]
    if more:
        raise UsageError("an experiment takes one --factor; --all of bench core takes several")
    if factor is not None and factor <= 0:
        raise UsageError(f"the factor {factor:g} is not above 0")
    steps = given.get("steps")
    if steps is not None and steps < 1:
        raise UsageError(f"--steps {steps} is not above 0")
    memory, stop_after = given.get("memory"), given.get("stop_after")
    size: Size = "tiny" if arguments.tiny else "full" if full else "quick"
    taken = {
        name: given[name] for name in ("with_swap", "device", "price", "watts") if name in given
    }
    return Settings(
        size,
        (arguments.scratch or Path(), *arguments.also),
        parse_bytes(memory) if memory else None,
        factor,
        steps,
        endurance_bytes=parse_endurance(arguments.endurance) if arguments.endurance else 0,
        deadline=math.inf if stop_after is None else time.monotonic() + parse_seconds(stop_after),
        emulate=tuple(parse_disks(text) for text in given.get("emulate", ())),
        say=say,
        **taken,
    )
