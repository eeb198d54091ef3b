"""Keeping a run from states that hold values which are no finite numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from outgrid.observe.observer import Observer, Reached
from outgrid.observe.watch import Watch
from outgrid.plan.instruction import Point
from outgrid.runs.manifest import Manifest
from outgrid.runs.run import Run

__all__ = ["Finite"]


class Finite(Observer):
    """Watches a run that begins with finite numbers alone, on all ranks, where it is asked to."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._finite = run.manifest.finite
        self._watch: Watch | None = None

    def filled(self, finite: bool) -> None:
        """What holds of all ranks holds."""
        self._finite = all(self.run.comm.share(finite))

    def attach(self, kernel: Any) -> Any:
        """A kernel that looks at what it makes; without, nobody knows from then on."""
        self._finite = self._finite and self.run.options.watch
        if not self._finite:
            return kernel
        names = tuple(field.name for field in self.run.problem.stencil.fields)
        self._watch = Watch(self.run.plan, names, until=self.run.problem.until)
        return replace(kernel, watch=self._watch)

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
