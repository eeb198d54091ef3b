"""Arguments that several verbs share, and what they mean."""

import argparse
import json
from pathlib import Path
from typing import Any

from outgrid.config import parse_settings
from outgrid.job import Job, load_job
from outgrid.tiers import TIERS

__all__ = [
    "add_job_arguments",
    "add_json_argument",
    "add_run_arguments",
    "job_from",
    "print_json",
    "settings_from",
]


def add_job_arguments(parser: argparse.ArgumentParser) -> None:
    """The job file, where its results go, and what replaces entries of its [run] table."""
    parser.add_argument("job", type=Path, metavar="JOB.toml", help="job file")
    parser.add_argument(
        "--scratch",
        type=Path,
        action="append",
        metavar="DIR",
        help="folder on flash for the grid, or block device; several are used together "
        "(scratch inside the folder of results)",
    )
    parser.add_argument(
        "--erase",
        type=Path,
        action="append",
        metavar="DEVICE",
        help="block device of --scratch that may lose what it carries (such a one is refused)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for results and record (JOB.run)"
    )
    add_run_arguments(parser)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Entries of a [run] table."""
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        help='limit on the memory of the process, for example "1GiB" (half of what it may use)',
    )
    parser.add_argument(
        "--tier", metavar="NAME", help=f"where the grid lives: {', '.join(TIERS)} (auto)"
    )
    parser.add_argument(
        "--endurance",
        metavar="TBW",
        help='what the flash may be written in its life, for example "600TBW"; plan and record '
        "then tell the share of it (asked of the device)",
    )
    parser.add_argument(
        "--stop-after",
        metavar="TIME",
        help='stop before so much time is over, for example "2h"; outgrid resume continues',
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="replace any entry of the [run] table, for example depth=8; may be repeated",
    )


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    """Whether the result is printed as JSON."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def job_from(arguments: argparse.Namespace, processes: int = 1) -> Job:
    """The job that `arguments` name; their paths are relative to the working folder."""
    settings = settings_from(arguments)
    if arguments.scratch:
        settings["scratch"] = [str(path.absolute()) for path in arguments.scratch]
    if arguments.erase:
        settings["erase"] = [str(path.absolute()) for path in arguments.erase]
    if arguments.out is not None:
        settings["out"] = str(arguments.out.absolute())
    return load_job(arguments.job, settings, processes)


def settings_from(arguments: argparse.Namespace) -> dict[str, Any]:
    """Entries of a [run] table that `arguments` give."""
    settings = parse_settings(arguments.set)
    if arguments.memory is not None:
        settings["memory"] = arguments.memory
    if arguments.endurance is not None:
        settings["endurance"] = arguments.endurance
    if arguments.tier is not None:
        settings["tier"] = arguments.tier
    if arguments.stop_after is not None:
        settings["stop_after"] = arguments.stop_after
    return settings


def print_json(value: Any) -> None:
    """Print `value` for programs."""
    print(json.dumps(value, indent=2))
