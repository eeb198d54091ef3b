"""Parameter sweeps: the runs of one job with other values, one after the other, in one table.

OUT/sweep.csv            a row for each combination of values, in the order of the product
OUT/k=0.1,depth=4/       the run with these values
"""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from outgrid.durable import make_folder, replace_file
from outgrid.errors import Error, ExecutionError, UsageError
from outgrid.job import Job, load_job
from outgrid.result import Result
from outgrid.storage import is_device
from outgrid.toml import parse_toml

__all__ = [
    "TABLE_NAME",
    "Point",
    "Row",
    "columns",
    "parse_varied",
    "points",
    "run_all",
    "write_table",
]

TABLE_NAME = "sweep.csv"
MOST_POINTS = 10_000
LONGEST_NAME = 100


class Point(msgspec.Struct, frozen=True):
    """One combination of values of a parameter sweep, and the job with them.

    ``values`` are given by the keys of entries, such as "problem.parameters.k".
    """

    values: Mapping[str, Any]
    job: Job

    @property
    def out(self) -> Path:
        """The folder of its run."""
        return self.job.options.results

    def make_scratch(self, rank: int) -> None:
        """Make the folders that working files of all points go to. Raises StoreError.

        Not within folders that do not exist, as of a disk that is not mounted: a run refuses these.
        """
        for place in self.job.options.of_rank(rank).places:
            if place.parent.parent.is_dir():
                make_folder(place.parent)


class Row(msgspec.Struct):
    """What has become of a point: "waiting", "finished" or "failed", with what was measured."""

    point: Point
    state: str = "waiting"
    figures: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])

    def finished(self, result: Result) -> None:
        """Take the figures of a run: steps, rate, time, and its reductions after the last step."""
        record = result.record
        last = {
            name: values[-1].item() for name, values in result.reductions.items() if len(values)
        }
        self.state = "finished"
        self.figures = {
            "steps": record.steps,
            "seconds": record.measured.seconds,
            "glups": record.measured.glups,
            **last,
            "ended": record.ended,
        }

    def failed(self, error: Error) -> None:
        """Take what went wrong; how to go on is told by a resume of the run."""
        self.state, self.figures = "failed", {"ended": str(error).partition(";")[0]}

    def to_dict(self) -> dict[str, Any]:
        """The values, the folder, the state and the figures by name."""
        values = dict(zip(_short(self.point.values), self.point.values.values(), strict=True))
        return {**values, "state": self.state, **self.figures, "folder": self.point.out.name}


def parse_varied(texts: Sequence[str]) -> dict[str, list[Any]]:
    """The values of each entry, from texts like "problem.parameters.k=0.1,0.2".

    Values are separated by commas and read as TOML; what is no TOML is text. Raises UsageError for
    a text without values, an entry that is named twice and a value that is listed twice.
    """
    varied: dict[str, list[Any]] = {}
    for text in texts:
        key, separator, listed = text.partition("=")
        key = key.strip()
        if not separator or not key or not listed.strip():
            raise UsageError(
                f"{text!r} has no values; write KEY=VALUE,VALUE, for example "
                "problem.parameters.k=0.1,0.2"
            )
        if key in varied:
            raise UsageError(f"--set names {key} twice; list all its values in one")
        try:
            values: list[Any] = parse_toml(f"values = [{listed}]", f"--set {key}")["values"]
        except ValueError:
            values = [value.strip() for value in listed.split(",")]
        for number, value in enumerate(values):
            if value in values[:number]:
                raise UsageError(f"--set {key} lists {value!r} twice")
        varied[key] = values
    return varied


def points(
    path: Path,
    varied: Mapping[str, Sequence[Any]],
    settings: Mapping[str, Any],
    out: Path,
    processes: int = 1,
) -> list[Point]:
    """All combinations of values, with the job at ``path`` that has them; nothing is run.

    Each works in folders of its own within those of ``scratch``; block devices they use in turn.
    Raises UsageError where there are none or too many, for one file of results, which all of them
    would have, and a folder among the values, else what `load_job` raises.
    """
    count = 1
    for values in varied.values():
        count *= len(values)
    if not varied or count > MOST_POINTS:
        raise UsageError(
            f"a parameter sweep must have 1 to {MOST_POINTS} runs, not {count if varied else 0}: "
            "give values with --set problem.parameters.k=0.1,0.2"
        )
    if "out" in _plain(varied):
        raise UsageError("out is not a value of a sweep: name the folder of all runs with --out")
    combinations = itertools.product(*varied.values())
    chosen = (dict(zip(varied, values, strict=True)) for values in combinations)
    return [Point(values, _job(path, values, settings, out, processes)) for values in chosen]


def _job(
    path: Path,
    values: Mapping[str, Any],
    settings: Mapping[str, Any],
    out: Path,
    processes: int,
) -> Job:
    """The job with one combination of values, whose files are no other one's."""
    name = _folder(values)
    given = {**settings, **_plain(values), "out": str(out / name)}
    job = load_job(path, given, processes)
    options = job.options
    if options.file:
        raise UsageError(
            f"file = {options.file!r} names one file for all runs of a sweep; leave it out, and "
            f"outgrid export {out / name} --to {options.file} makes it of one of them"
        )
    own = tuple(place if is_device(place) else place / name for place in options.places)
    if not own:
        return job
    return replace(job, options=replace(options, places=own, scratch=own[0]))


def run_all(
    every: Sequence[Point],
    run: Callable[[Point], Result],
    keep: Callable[[Sequence[Row]], None],
    *,
    alone: bool = True,
) -> list[Row]:
    """Run all points by ``run``, and ``keep`` the table after each of them.

    A run that fails in its steps, as by a value that becomes infinite, is a row like others where
    one process is ``alone``; any other error ends them all.
    """
    rows = [Row(point) for point in every]
    for row in rows:
        try:
            row.finished(run(row.point))
        except ExecutionError as error:
            if not alone:
                raise
            row.failed(error)
        keep(rows)
    return rows


def write_table(out: Path, rows: Sequence[Row]) -> None:
    """Replace the table of a parameter sweep in ``out``. Raises StoreError."""
    tables = [row.to_dict() for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns(tables), restval="")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in tables)
    make_folder(out)
    replace_file(out / TABLE_NAME, text.getvalue().encode())


def columns(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of all columns, those of values first and the folder last."""
    names = dict.fromkeys(name for row in tables for name in row)
    names.pop("folder", None)
    return [*names, "folder"]


def _cell(value: Any) -> Any:
    return value if isinstance(value, str | int | float) else msgspec.json.encode(value).decode()


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as settings of a job: "run.depth" is "depth"."""
    return {key.removeprefix("run."): value for key, value in values.items()}


def _short(values: Mapping[str, Any]) -> Iterator[str]:
    """The last word of each key where that is enough to tell them apart."""
    words = [key.rpartition(".")[2] for key in values]
    for key, word in zip(values, words, strict=True):
        yield word if words.count(word) == 1 else key


def _folder(values: Mapping[str, Any]) -> str:
    """A name for the folder of a run, the same whatever other values a sweep has."""
    named = zip(_short(values), values.values(), strict=True)
    name = ",".join(f"{key}={_cell(value)}" for key, value in named)
    plain = re.sub(r"[^\w.=,+-]", "_", name, flags=re.ASCII)
    if plain == name and len(name) <= LONGEST_NAME:
        return name
    return f"{plain[:LONGEST_NAME]}.{hashlib.sha256(name.encode()).hexdigest()[:8]}"
