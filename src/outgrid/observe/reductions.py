"""Reductions: kept as exact totals beside a run, and left as numbers in its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from outgrid.comm import Comm
from outgrid.config import RunOptions
from outgrid.observe.accumulators import Accumulators, Table, nothing, numbers, totals_of
from outgrid.observe.observer import Noted, Observer, Reached
from outgrid.observe.points import sampled
from outgrid.observe.totals import Totals, joined
from outgrid.runs.group import Durable, Share
from outgrid.runs.manifest import Manifest
from outgrid.runs.run import Run
from outgrid.runs.samples import REDUCTIONS_NAME, place_reductions, read_samples, totals_file
from outgrid.stencil.problem import Problem

__all__ = ["Reductions"]


class Reductions(Observer):
    """The totals of all steps, of which each rank keeps its part."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._totals: Totals | None = None
        self._accumulators: Accumulators | None = None
        self._kinds = tuple(reduction.kind for reduction in run.given.stencil.reductions)

    @classmethod
    def watches(cls, problem: Problem, options: RunOptions) -> bool:
        """Where there are reductions."""
        return bool(problem.stencil.reductions)

    @classmethod
    def files(cls, problem: Problem, options: RunOptions, *, alone: bool = True) -> tuple[str, ...]:
        """The numbers."""
        return (REDUCTIONS_NAME,) if alone else ()

    def begin(self, manifest: Manifest, durable: Durable | None) -> Manifest:
        """Rank 0 takes over what all have come to, the others begin with nothing."""
        if durable is not None:
            first = self.run.comm.rank == 0
            tables = durable_totals(durable, self._kinds)
            self._keep_all(table if first else nothing(self._kinds, len(table)) for table in tables)
        return manifest

    def go_on(self) -> None:
        """Look whether the totals are there, or make them of what an older version has kept."""
        run, kept = self.run, totals_file(self.run.folder.out, self.run.manifest)
        if not kept[0].exists():
            mine = Share(run.folder, run.manifest, run.owned)
            self._keep_all(earlier_totals(mine, self._kinds, run.done))
        for _ in joined([kept], self._kinds, run.done):
            pass  # of which reading raises what is wrong

    def _keep_all(self, tables: Iterator[Table]) -> None:
        """Keep the totals of all steps before this process."""
        totals, done = self._open(), 0
        try:
            for table in tables:
                totals.write(done, table)
                done += len(table)
            totals.sync()
        finally:
            totals.close()

    def _open(self) -> Totals:
        return Totals(*totals_file(self.run.folder.out, self.run.manifest), self._kinds)

    def attach(self, kernel: Any) -> Any:
        """The totals of each sweep are written when it is complete."""
        self._accumulators = accumulators = kernel.reductions
        self._totals = totals = self._open()

        def keep(done: int, table: Table) -> None:
            totals.write(self.run.done + done, table)

        accumulators.keep = keep
        return kernel

    def commit(self, reached: Reached, manifest: Manifest) -> Manifest:
        """Make the totals of complete sweeps durable."""
        if self._accumulators is not None and self._totals is not None:
            self._accumulators.settle(reached.sweeps)
            self._totals.sync()
        return manifest

    def close(self) -> None:
        """Let go of the file."""
        if self._totals is not None:
            self._totals.close()
            self._totals = None

    def place(self, comm: Comm) -> Noted:
        """Add up what all ranks have, and round it once."""
        run, kinds = self.run, self._kinds
        shares, noted = comm.share(totals_file(run.folder.out, run.manifest)), Noted()
        if comm.rank == 0:
            tables = joined(shares, kinds, run.last)
            values = [np.zeros((0, len(kinds))), *(numbers(kinds, table) for table in tables)]
            names = [reduction.name for reduction in run.given.stencil.reductions]
            noted = Noted(place_reductions(run.out, names, np.vstack(values)))
        comm.share(None)  # files of other ranks are not needed any more
        return noted


def durable_totals(durable: Durable, kinds: tuple[str, ...]) -> Iterator[Table]:
    """The totals of all steps that are durable, some at once."""
    files = [totals_file(share.folder.out, share.manifest) for share in durable.shares]
    if all(path.exists() for path, _ in files):
        yield from joined(files, kinds, durable.steps)
    else:
        for share in durable.shares:
            yield from earlier_totals(share, kinds, durable.steps)


def earlier_totals(share: Share, kinds: tuple[str, ...], steps: int) -> Iterator[Table]:
    """Totals of what an older version has kept, in one process, behind what receivers saw."""
    seen = read_samples(share.folder.out, share.manifest)
    columns = len(sampled(Problem.from_dict(share.manifest.problem))[0])
    if seen is not None and steps and seen.shape[1] == columns + len(kinds):
        yield totals_of(kinds, seen[:steps, columns:])
