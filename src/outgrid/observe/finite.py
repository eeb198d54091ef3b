"""Keeping a run from states that hold values which are no finite numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from outgrid.comm import Comm
from outgrid.formats.npy import map_npy
from outgrid.observe.observer import Noted, Observer, Reached, Window
from outgrid.observe.watch import Watch
from outgrid.plan.instruction import Get, Point
from outgrid.runs.group import Durable
from outgrid.runs.manifest import Manifest
from outgrid.runs.run import Run
from outgrid.stencil.problem import PREVIOUS
from outgrid.storage import Uncopied

__all__ = ["Finite", "not_finite", "warning_of"]

LOOKED_AT_ONCE = 1 << 20  # values of a file


def not_finite(name: str) -> str:
    """How the warning begins that says so of initial values."""
    return f"the initial values of {name!r} hold"


def warning_of(name: str, odd: str) -> str:
    """That of ``odd`` initial values, a number, which are not finite."""
    return (
        f"{not_finite(name)} {odd} values that are NaN or infinite; every cell within reach of "
        "them becomes so too, and the run is not watched for others"
    )


class Finite(Observer):
    """Watches a run that begins with finite numbers alone, on all ranks, where it is asked to.

    Levels that are read where they lie are looked at when they come into the window for the first
    time, so before anything is made of them; as a whole where a value becomes infinite before.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._finite, self._lying = run.manifest.finite, run.manifest.uncopied
        self._watch: Watch | None = None
        self._odd: dict[str, int] = {}
        self._seen: dict[str, NDArray[np.int64]] = {}  # of each plane, the rows below this one

    def begin(self, manifest: Manifest, durable: Durable | None) -> Manifest:
        """Take down where levels lie."""
        self._lying = manifest.uncopied
        return super().begin(manifest, durable)

    def filled(self, finite: bool) -> None:
        """What holds of all ranks holds."""
        self._finite = all(self.run.comm.share(finite))

    def attach(self, kernel: Any) -> Any:
        """A kernel that looks at what it makes; without, nobody knows from then on."""
        run = self.run
        begins = bool(run.plan.uncopied) and not run.done
        if begins and run.plan.device is None:
            self.arriving = self._arriving
        self._finite = self._finite and run.options.watch and not (begins and run.plan.device)
        if not self._finite:
            return kernel
        names = tuple(field.name for field in self.run.problem.stencil.fields)
        until = self.run.problem.until
        self._watch = Watch(run.plan, names, until=until, begins_finite=self._begins_finite)
        return replace(kernel, watch=self._watch)

    def _begins_finite(self) -> bool:
        """Whether all levels that are read where they lie are finite. Raises UsageError.

        What is found holds of the run from then on, also before those values come.
        """
        self._finite = all(
            bool(np.isfinite(values).all())
            for name, place in self._lying.items()
            for values in self._values(name, place)
        )
        return self._finite

    def _values(self, name: str, place: Uncopied) -> Iterator[NDArray[Any]]:
        """The values of a file, some at a time. Raises UsageError if it has changed."""
        place.check_unchanged(name)
        dtype = self.run.plan.dtype_of(name.removesuffix(PREVIOUS))
        cells = math.prod(self.run.problem.shape)
        values = map_npy(place.path, place.header((cells,), dtype))
        for first in range(0, cells, LOOKED_AT_ONCE):
            yield values[first : first + LOOKED_AT_ONCE]

    def _arriving(self, get: Get, window: Window) -> None:
        """Look at planes of initial values that have come into the window."""
        name = get.field + (PREVIOUS if get.level < 0 else "")
        if get.trip.sweep or get.seam is not None or name not in self.run.plan.uncopied:
            return
        rows = get.there.rows
        planes = self.run.plan.schedule.planes
        seen = self._seen.setdefault(name, np.zeros(planes, np.int64))
        for plane, cells in zip(get.there.planes, window.views(get), strict=True):
            first = max(rows.start, int(seen[plane]))  # in strips some rows come again
            if first >= rows.stop:
                continue
            if rows.start <= seen[plane]:
                seen[plane] = rows.stop
            new = cells[first - rows.start :]
            odd = new.size - int(np.count_nonzero(np.isfinite(new)))
            if odd:
                self._odd[name] = self._odd.get(name, 0) + odd
                self._finite = False
                if self._watch is not None:
                    self._watch.stop()

    def end(self, run: Run) -> None:
        """Look no further."""
        super().end(run)
        if self._watch is not None:
            self._watch.end(run.plan)

    def check(self, point: Point) -> None:
        """Raise NotFinite where what is about to be kept is spoilt."""
        if self._watch is not None:
            self._watch.check(point.begun)

    def commit(self, reached: Reached, manifest: Manifest) -> Manifest:
        """Whether a resume may go on watching."""
        return msgspec.structs.replace(manifest, finite=self._finite)

    def committed(self, point: Point) -> None:
        """Raise NotFinite where that was the last state to be kept."""
        if self._watch is not None:
            self._watch.kept(point.state)

    def place(self, comm: Comm) -> Noted:
        """Say which levels that were read where they lie were not finite."""
        resumed = self.run.manifest.steps_done >= 0  # and others have looked at other planes
        return Noted(
            warnings=tuple(
                warning_of(name, f"{odd} or more" if resumed else str(odd))
                for name, odd in self._odd.items()
            )
        )
