"""The fields that a run leaves: put in place, their checksums, and compared with these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np

from outgrid.formats.npy import Header, bare_npy
from outgrid.plan.schedule.rings import Arrival
from outgrid.runs.run import Run
from outgrid.runs.seals import Seals, level_name
from outgrid.runs.verify import read_back
from outgrid.seal import Seal
from outgrid.stencil.problem import PREVIOUS
from outgrid.storage import Within
from outgrid.storage.sums import sums_digest

__all__ = ["Results"]


class Results(msgspec.Struct, frozen=True):
    """What a process leaves of the fields of its ``run``, after its last sweep."""

    run: Run
    seals: Seals

    def place(self, parity: int) -> dict[str, str]:
        """Put the files of the levels of a parity in place; their files by name.

        What no process has read since an earlier one left it is compared. Raises StoreError.
        """
        folder = self.run.folder
        fields = folder.place_results(self.run.plan.schedule.arrivals, parity)
        if self._took_over:
            for name, file in fields.items():
                if self._within(name) is None:
                    bare_npy(folder.out / file)
            self._read_back()
        return fields

    @property
    def sealed(self) -> dict[str, Seal]:
        """What the checksums of each result are of, by name."""
        return {level_name(level): self._seal(level) for level in self._levels}

    def checksums(self, fields: Mapping[str, str]) -> dict[str, str]:
        """Digests of the checksums of the results in these files, by name."""
        sealed, out = self.sealed, self.run.folder.out
        within = {name: self._within(name) for name in fields}
        return {
            name: sums_digest(
                out / file, sealed[name], lies.header if (lies := within[name]) else None
            )
            for name, file in fields.items()
        }

    @property
    def _levels(self) -> Iterator[Arrival]:
        return (level for level in self.run.plan.schedule.arrivals if not level.constant)

    def _seal(self, level: Arrival) -> Seal:
        return self.seals.level(level, self.run.plan.sweeps)

    @property
    def _took_over(self) -> bool:
        """Whether results, or planes of them, are of an earlier process and were not read since."""
        before, plan = self.run.manifest, self.run.plan
        begun = plan.schedule.begin.begun > 0 and plan.sweeps == 1
        return before.exported and before.steps_done >= 0 and (begun or not self.run.problem.steps)

    def _read_back(self) -> None:
        """Compare the results with their checksums. Raises StoreError where they differ."""
        mine = self.run.owned
        mine = mine.counted_from(self.run.manifest.first, self.run.manifest.first_row)
        for level in self._levels:
            within = self._within(level_name(level))
            errors = read_back(self.run.folder.result(level), self._seal(level), mine, within)
            if errors:
                raise errors[0]

    def _within(self, name: str) -> Within | None:
        """Where a result lies in a file with others; None in one of its own."""
        problem, folder = self.run.problem, self.run.folder
        together = folder.together
        if together is None or name not in together.offsets:
            return None
        dtype = np.dtype(problem.dtype_of(name.removesuffix(PREVIOUS)))
        header = Header(problem.shape, dtype, False, together.offsets[name])
        return Within(folder.out / f"{together.field}.npy", header)
