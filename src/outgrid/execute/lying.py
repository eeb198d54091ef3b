"""Levels whose initial values lie in files as the run keeps them: they are read there, uncopied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from outgrid.config import RunOptions
from outgrid.durable import existing
from outgrid.errors import Error, StoreError
from outgrid.formats import Source
from outgrid.formats.source import Straight
from outgrid.plan.model import Plan
from outgrid.plan.schedule.rings import Arrival
from outgrid.record import RECORD_NAME, read_record
from outgrid.runs.former import CLOCK_SECONDS
from outgrid.runs.places import is_spread
from outgrid.runs.seals import level_name
from outgrid.seal import Seal
from outgrid.stencil.layers import fixed_layers
from outgrid.stencil.problem import PREVIOUS, Problem
from outgrid.storage import Uncopied
from outgrid.storage.queued import Queued
from outgrid.storage.sums import sums_path

__all__ = ["Lying", "copied", "lying"]


class Left(msgspec.Struct, frozen=True):
    """What a finished run has left: the level ``name`` of its ``problem``, in its folder."""

    folder: Path
    problem: Problem
    name: str
    seal: Seal | None

    @property
    def field(self) -> str:
        """The field of the level."""
        return self.name.removesuffix(PREVIOUS)


class Lying(msgspec.Struct, frozen=True):
    """Numbers one behind the other in a file, the last axis first; a run may have ``left`` them."""

    place: Uncopied
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    device: int
    left: Left | None = None


Lies = Callable[[str], Lying | None]
"""Where the initial values of a level lie one behind the other; None where they do not."""


class Inputs(Protocol):
    """The files that a problem begins with."""

    def lying(self, name: str) -> Lying | None: ...


def lying(source: Source) -> Lying | None:
    """Where the numbers of a source lie one behind the other; None where they do not.

    Raises StoreError.
    """
    straight = source.source if isinstance(source, Queued) else source
    if type(straight) is not Straight:
        return None
    if straight.pitch_bytes not in (0, prod(straight.shape[1:]) * straight.dtype.itemsize):
        return None
    path = straight.path.absolute()
    try:
        status, left = path.stat(), _left(path)
        place = Uncopied.of(path, straight.offset, left.seal if left is not None else None)
    except OSError as error:
        raise StoreError("cannot read", path=path, errno=error.errno) from error
    return Lying(place, straight.shape, straight.dtype, status.st_dev, left)


def _left(path: Path) -> Left | None:
    """What a run says of a file that it has left and nobody has written since. Raises OSError."""
    mark = path.parent / RECORD_NAME
    if not mark.is_file() or path.stat().st_mtime > mark.stat().st_mtime + CLOCK_SECONDS:
        return None
    with suppress(Error):  # what is called like a record need not be one
        record = read_record(mark)
        for name, file in record.files.items():
            if file == path.name and not (record.offsets or record.pieces):
                seal = record.seals.get(name) if sums_path(path).is_file() else None
                return Left(path.parent, Problem.from_dict(record.problem), name, seal)
    return None


class Place(Protocol):
    """Where a run is going to be, and how."""

    @property
    def options(self) -> RunOptions: ...
    def scratch(self) -> Path: ...


class Begun(Protocol):
    """What an earlier process of a run has not copied."""

    @property
    def uncopied(self) -> Mapping[str, object]: ...


def copied(
    problem: Problem, inputs: Inputs, place: Place, begun: Begun | None = None
) -> Callable[[Plan], dict[str, str]]:
    """Who says of a plan why levels are copied first that lie in files in one piece.

    That is "" for those that are read where they lie. What an earlier process has ``begun`` goes on
    so.
    """

    def why(chosen: Plan) -> dict[str, str]:
        if begun is not None:
            return dict.fromkeys(begun.uncopied, "")
        return _copied(problem, inputs.lying, chosen, place.options, place.scratch())

    return why


def _copied(
    problem: Problem, lies: Lies, chosen: Plan, options: RunOptions, scratch: Path
) -> dict[str, str]:
    schedule = chosen.schedule
    streams = chosen.store_tier == "direct" and not chosen.in_place and chosen.device is None
    whole = schedule.subgrid is None and schedule.blocks is None and not is_spread(options)
    if not (streams and whole):
        return {}
    device = existing(scratch).stat().st_dev
    found: dict[str, str] = {}
    for level in schedule.kept:
        name = level_name(level)
        with suppress(Error):  # what is against a file is said by `check_inputs`
            there = lies(name)
            if there is not None and there.shape == problem.shape:
                if chosen.fortran:
                    found[name] = "the run keeps it in Fortran order"
                elif level.constant or chosen.sweeps:
                    found[name] = _why(problem, level, there, lies, options, device)
                else:
                    found[name] = "no sweep writes what the run leaves"
    return found


def _why(
    problem: Problem, level: Arrival, there: Lying, lies: Lies, options: RunOptions, device: int
) -> str:
    field = level.field
    if field in problem.regions:
        return "it exists in a part of the grid"
    if there.dtype != np.dtype(problem.dtype_of(field)):
        return f"it holds {there.dtype}, and the run keeps {problem.dtype_of(field)}"
    if there.device != device:
        return "it is on another disk than the working files"
    if level.constant:
        return ""
    if options.preview:
        return "the preview shows it"
    layers = fixed_layers(problem, field)
    left = there.left
    if left is not None and layers != fixed_layers(left.problem, left.field):
        left = None  # of a run with other layers
    if left is None and any(number is not None for number in layers.values()):
        return "the boundary gives the values of its fixed layers"
    if not (level.level and layers) or problem.initial[level_name(level)] == problem.initial[field]:
        return ""
    of = current.left if (current := lies(field)) is not None else None
    if left is None or of is None or (of.folder, of.name) != (left.folder, left.field):
        return f"its fixed layers are to be those of {field}"
    return ""
