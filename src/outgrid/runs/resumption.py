"""The options that a run goes on with: those that it had, but for what its resume says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from outgrid.comm import Comm
from outgrid.config import AUTO, OPTIONS, RunOptions, left_out, run_folder
from outgrid.errors import UsageError
from outgrid.machine import limit_on_memory
from outgrid.purposes import Start, VoidOption, check_purposes, spelled
from outgrid.regular import resolved
from outgrid.runs.group import is_shared, on_disk
from outgrid.runs.manifest import MANIFEST_NAME
from outgrid.units import format_bytes

__all__ = ["PLACES", "Resumption", "resumption"]

PLACES = ("scratch", "file")
"""What says where files are: they stay there where a resume says nothing else."""

_SIZES = ("memory", "lend", "device_memory", "request_bytes")
_OF_RANKS = ("cuts", "row_cuts", "exchange")


class Resumption(msgspec.Struct, frozen=True):
    """How a run goes on: its options, and in words what ``changes``."""

    options: RunOptions
    changes: tuple[str, ...]


def resumption(out: Path, given: Mapping[str, Any], comm: Comm) -> Resumption:
    """How the unfinished run in ``out`` goes on where ``given`` entries of `[run]` replace its own.

    "auto" leaves an entry to the plan again, but for `PLACES`. What the run had and what means
    nothing where it goes on, as cuts between other ranks do, is left out. Raises UsageError for
    what is given and wrong, another folder among that.
    """
    elsewhere = given.get("out")
    if (
        isinstance(elsewhere, str)
        and elsewhere != AUTO
        and resolved(run_folder(elsewhere)) != resolved(out)
    ):
        raise UsageError(
            f"out = {elsewhere!r} is for new runs: the one that is resumed stays in {out}; "
            "leave out out, or start a new run"
        )
    for key in given:
        if key.partition(".")[0] in ("problem", "gradient"):
            raise UsageError(
                f"{key} is fixed for the run in {out}: resume changes only options of [run]; "
                "start a new run with another out"
            )
    run = on_disk(out)
    share = run.shares[0] if run.shares else None
    had = share.manifest.options if share is not None else {}

    def options_of(entries: Mapping[str, Any]) -> RunOptions:
        memory = limit_on_memory(entries.get("memory"), comm.local)
        given: dict[str, Any] = {**entries, "memory": memory}
        options = RunOptions.of(**given)
        return msgspec.structs.replace(options, memory_asked="memory" in entries)

    try:
        options_of(had)
    except UsageError as error:
        manifest = out / MANIFEST_NAME if share is None else share.folder.out / MANIFEST_NAME
        raise UsageError(f"{manifest} has options of another version: {error}") from None
    asked = {
        key: value
        for key, value in given.items()
        if value is not None and not (key in PLACES and value == AUTO)
    }
    kept = {key: value for key, value in had.items() if key not in asked}
    asked = {key: value for key, value in asked.items() if value != AUTO}
    left = dict[str, str]()

    def leave(key: str, why: str) -> None:
        left[key] = f"{key} {_words(key, kept.pop(key))} left out: {why}"

    if "scratch" in kept:
        kept["scratch"] = [str(out / place) for place in kept["scratch"]]
    if kept.get("tier") == "remote" and comm.size == 1:
        leave("tier", "no rank lends memory")
    ranks = len(run.group.folders) if run.group is not None else 1
    shared = is_shared((kept | asked).get("tier"), comm, run.group)
    if shared and share is not None and share.folder.spread is not None:
        kept.pop("scratch", None)  # ranks have a folder each
    for key in _OF_RANKS:
        if key in kept and comm.size != ranks:
            leave(key, f"the run had {ranks} ranks and now has {comm.size}")
        elif key in kept and not asked.keys().isdisjoint(_OF_RANKS):
            leave(key, "the grid is cut differently now")
    while True:
        try:
            options = options_of(kept | asked)
            check_purposes(options, Start(alone=not shared, resumed=True))
            break
        except VoidOption as void:
            if void.option not in kept:
                raise
            leave(void.option, f"it is for {void.purpose}")
    return Resumption(options, _changes(had, options, out, left))


def _changes(
    had: Mapping[str, Any], options: RunOptions, out: Path, left: Mapping[str, str]
) -> tuple[str, ...]:
    """What differs from the options that a run had; older manifests do not tell these."""
    if not had:
        return ()
    has = options.kept(out)
    keys = dict.fromkeys(("memory", "tier", *OPTIONS))
    del keys["scratch"]  # files say where they are
    return tuple(
        left.get(key) or f"{key} {_words(key, had.get(key))} -> {_words(key, has.get(key))}"
        for key in keys
        if key in left or had.get(key) != has.get(key)
    )


def _words(key: str, value: Any) -> str:
    """An entry of `[run]` as it is told; None where it was left out."""
    if value is None:
        value = left_out(key)
        if key == "memory":
            return "half of the memory that the process may use"
        if value is None or value == ():
            return "left to the plan"
    return format_bytes(value) if key in _SIZES else spelled(value).strip("'")
