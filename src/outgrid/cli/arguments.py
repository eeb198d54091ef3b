"""Arguments that several verbs share, and what they mean."""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from outgrid.config import OPTIONS, PATHS, left_out, parse_settings
from outgrid.job import Job, load_job

__all__ = [
    "add_changes",
    "add_job_arguments",
    "add_json_argument",
    "add_run_flags",
    "job_from",
    "print_json",
    "settings_from",
]


def add_job_arguments(parser: argparse.ArgumentParser) -> None:
    """The job file, where its results go, and what replaces entries of its [run] table."""
    parser.add_argument("job", type=Path, metavar="JOB.toml", help="job file")
    _add_flags(parser, PATHS)
    add_run_flags(parser)
    _add_set(
        parser,
        "any entry of the [run] table, for example depth=8, or of [problem] with "
        "problem.parameters.k=0.1",
    )


def add_changes(parser: argparse.ArgumentParser) -> None:
    """Entries of a [run] table that replace those of an unfinished run."""
    add_run_flags(parser, kept=True)
    _add_set(parser, "any entry of the [run] table, for example depth=8")


def _add_set(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"replace {what}; may be repeated",
    )


def add_run_flags(parser: argparse.ArgumentParser, *, kept: bool = False) -> None:
    """Flags of a [run] table, but for its paths; a run that goes on has `kept` its own."""
    _add_flags(parser, [key for key in OPTIONS if key not in PATHS], kept=kept)


def _add_flags(parser: argparse.ArgumentParser, keys: Iterable[str], *, kept: bool = False) -> None:
    """A flag for each of the options that have one."""
    for key in keys:
        option = OPTIONS[key]
        if option.metavar:
            several = key in PATHS and left_out(key) == ()
            parser.add_argument(
                f"--{key.replace('_', '-')}",
                action="append" if several else "store",
                metavar=option.metavar,
                type=Path if key in PATHS else str,
                help=option.help(kept=kept),
            )


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    """Whether the result is printed as JSON."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def job_from(
    arguments: argparse.Namespace, processes: int = 1, there_bytes: int | None = None
) -> Job:
    """The job that `arguments` name; their paths are relative to the working folder.

    It is to run in one of so many `processes`, on a host of `there_bytes` of memory.
    """
    return load_job(arguments.job, settings_from(arguments), processes, there_bytes)


def settings_from(arguments: argparse.Namespace) -> dict[str, Any]:
    """Entries of a [run] table that `arguments` give."""
    settings = parse_settings(getattr(arguments, "set", ()))
    for key, option in OPTIONS.items():
        value = getattr(arguments, key, None) if option.metavar else None
        if value is not None:
            settings[key] = _absolute(value) if key in PATHS else value
    return settings


def _absolute(given: Path | list[Path]) -> str | list[str]:
    """Paths that are relative to the working folder, as a job file elsewhere names them."""
    if isinstance(given, Path):
        return str(given.absolute())
    return [str(path.absolute()) for path in given]


def print_json(value: Any) -> None:
    """Print `value` for programs."""
    print(json.dumps(value, indent=2))
