"""How the run of a problem stands in its folder: not begun, to be gone on with, or finished."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast

import msgspec

from outgrid.config import AUTO, OPTIONS, RunOptions
from outgrid.errors import UsageError
from outgrid.record import RECORD_NAME, read_record
from outgrid.runs.group import OnDisk, is_unfinished, on_disk
from outgrid.runs.leftovers import remove_leftovers
from outgrid.runs.lock import RunLock
from outgrid.runs.resumption import PLACES
from outgrid.stencil.problem import Problem

__all__ = ["Standing", "standing", "what_is_asked"]

SHOWN_LETTERS = 60
OF_NEW_RUNS = ("out", "erase")  # where the run is, and what was there before it


class Standing(Enum):
    """What there is of a run."""

    NEW = "nothing is there"
    BEGUN = "it continues from its durable state"
    FINISHED = "it is finished"


def standing(out: Path, problem: Problem) -> Standing:
    """How the run of ``problem`` stands in ``out``. For one process at a time.

    What a run left that was cut off before anything of it was durable is removed: it is new. Raises
    UsageError where a run of another problem is there, or where a process works on it.
    """
    if _is_void(out, problem):
        with RunLock(out):
            if _is_void(out, problem):  # still
                remove_leftovers(on_disk(out))
    left = on_disk(out)
    if is_unfinished(left):
        _check_same(out, left.manifest.problem, problem)
        return Standing.BEGUN
    if not (out / RECORD_NAME).exists():
        return Standing.NEW
    record = read_record(out)
    _check_same(out, record.problem, problem)
    for name in record.files:
        files = [piece.file for piece in record.pieces.get(name, ())] or [record.files[name]]
        for file in files:
            if not (out / file).exists():
                raise UsageError(
                    f"the run in {out} is finished, and its result {file} is missing; "
                    "restore it, or run the job again with --overwrite"
                )
    return Standing.FINISHED


def _is_void(out: Path, problem: Problem) -> bool:
    """Whether an unfinished run of the problem is there of which nothing is durable."""
    left = on_disk(out)
    if not is_unfinished(left) or (out / RECORD_NAME).exists():
        return False
    _check_same(out, left.manifest.problem, problem)
    return left.manifest.steps_done < 0 or _in_memory(left)


def _in_memory(left: OnDisk) -> bool:
    """Whether the fields were in memory, which has ended with its process."""
    return any(not share.manifest.durable for share in left.shares)


def what_is_asked(out: Path, options: RunOptions) -> dict[str, Any]:
    """Entries of `[run]` with which the unfinished run in ``out`` goes on as ``options`` say.

    They are those that differ from what the run has; what it has and ``options`` leave out is left
    to the plan.
    """
    shares = on_disk(out).shares
    had = shares[0].manifest.options if shares else {}
    has = msgspec.json.decode(msgspec.json.encode(options.kept(out)))
    if not options.places:  # the folder of working files is the one that is left out
        has.pop("scratch", None)
    asked = {key: has.get(key, AUTO) for key in (*has, *had) if not _alike(key, has, had)}
    if isinstance(asked.get("scratch"), list):
        asked["scratch"] = [str(out / place) for place in asked["scratch"]]
    for key, option in OPTIONS.items():  # of which a run keeps nothing
        if option.passing and key not in OF_NEW_RUNS and options.given(key) is not None:
            asked[key] = options.given(key)
    return asked


def _alike(key: str, has: Mapping[str, Any], had: Mapping[str, Any]) -> bool:
    """Whether two runs have the same entry; files stay where nothing is said of them."""
    return has.get(key) == had.get(key) or (key in PLACES and key not in has)


def _check_same(out: Path, begun: Mapping[str, Any], problem: Problem) -> None:
    """Raise UsageError where the problem of a run is another one, with what differs first."""
    asked = msgspec.json.decode(msgspec.json.encode(problem.to_dict()))
    begun = msgspec.json.decode(msgspec.json.encode(begun))
    if begun != asked:  # which an earlier version may have written otherwise
        begun, asked = (
            msgspec.json.decode(msgspec.json.encode(one.question))
            for one in (Problem.from_dict(begun), problem)
        )
    for entry, was, now in _differences("problem", begun, asked):
        raise UsageError(
            f"the run in {out} belongs to another problem: {entry} was {_shown(was)} and is now "
            f"{_shown(now)}; choose another folder with --out, or replace it with --overwrite"
        )


def _differences(entry: str, was: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Which entries of two values of JSON differ: (name, the one, the other); None is absent."""
    if isinstance(was, dict) and isinstance(now, dict):
        one, other = cast("dict[str, Any]", was), cast("dict[str, Any]", now)
        for key in dict.fromkeys((*one, *other)):
            yield from _differences(f"{entry}.{key}", one.get(key), other.get(key))
    elif isinstance(was, list) and isinstance(now, list) and len(cast("list[Any]", now)) < 9:
        pairs = zip_longest(cast("list[Any]", was), cast("list[Any]", now))
        for number, (one, other) in enumerate(pairs):
            yield from _differences(f"{entry}[{number}]", one, other)
    elif was != now:
        yield entry, was, now


def _shown(value: Any) -> str:
    """A value of JSON in a few letters."""
    if value is None:
        return "left out"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_LETTERS else f"{text[:SHOWN_LETTERS]}..."
