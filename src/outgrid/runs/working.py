"""The working files of a run: their names, where they are, and whose they are.

SCRATCH/owner.json          the run that the working files belong to
SCRATCH/u.0.npy u.1.npy     the two files of every evolving level, roles swapped each sweep
SCRATCH/h.npy               a coefficient
SCRATCH/h.packed            its packed copy, which loses this name as soon as it is open
....npy.xxh3                the checksums of the rows of a field, beside it
SCRATCH/u.seam.0.8.1.npy    what a strip leaves to the next one, of ring 0 in sweeps of 8 steps,
                            in the second of two places
SCRATCH/u.ring.0            ring 0 of a window in mapped files
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import DTypeLike

from outgrid.formats.npy import Header
from outgrid.plan.schedule.lifetime import MOST_RINGS
from outgrid.plan.schedule.rings import Arrival
from outgrid.plan.schedule.seam import SeamKey
from outgrid.runs.places import SPREAD_SUFFIX, Spread, read_mark
from outgrid.runs.seals import level_name
from outgrid.runs.together import Together
from outgrid.storage import Parts, Within
from outgrid.storage.sums import sums_path

HALO = ".halo."


class Working(msgspec.Struct, frozen=True):
    """The working files in ``scratch``; fields may be ``spread`` over several places, or lie
    ``together`` in one file."""

    scratch: Path
    spread: Spread | None = None
    together: Together | None = None

    @property
    def places(self) -> tuple[Path, ...]:
        """All folders and devices that working files are in, scratch first."""
        others = self.spread.paths if self.spread is not None else ()
        return (self.scratch, *(place for place in others if place != self.scratch))

    def marked(self, run: str) -> tuple[Path, ...]:
        """Those of the places that are marked as the run's of that name."""
        return tuple(
            place for place in self.places if (mark := read_mark(place)) and mark.run == run
        )

    def field(self, arrival: Arrival, parity: int) -> Path:
        """The name of the field that a level is kept in: its file, or that of its checksums."""
        path = self.path(arrival, parity)
        return path if self.spread is None else path.with_suffix(SPREAD_SUFFIX)

    def parts(self, path: Path) -> Parts | None:
        """Where the field of that name is spread to, None for a file."""
        if self.spread is None or path.name not in self.spread.names:
            return None
        return self.spread.parts(path.name)

    def within(self, path: Path, shape: tuple[int, ...], dtype: DTypeLike) -> Within | None:
        """Where a field lies in a file with others; None for one that has the file ``path``."""
        name, parity = level_of(path.name)
        if self.together is None or parity is None or name not in self.together.offsets:
            return None
        if self.parts(path) is not None:
            return None
        header = Header(shape, np.dtype(dtype), False, self.together.offsets[name])
        return Within(self.together.file(self.scratch, parity), header)

    def path(self, arrival: Arrival, parity: int) -> Path:
        """The working file of a level; a constant field has one for both parities."""
        return self.scratch / f"{level_name(arrival)}{'' if arrival.constant else f'.{parity}'}.npy"

    @staticmethod
    def beside(path: Path, halo: str) -> Path:
        """The working file of those rows of a level that others own, "below" or "above"."""
        return path.with_suffix(f"{HALO}{halo}{path.suffix}") if halo else path

    def seam(self, field: str, ring: int, depth: int, place: int) -> Path:
        """The working file of the seams of a ring in sweeps of ``depth`` steps."""
        return self.scratch / f"{field}.seam.{ring}.{depth}.{place}.npy"

    def packed(self, arrival: Arrival) -> Path:
        """The packed copy of a coefficient."""
        return self.path(arrival, 0).with_suffix(".packed")

    def ring(self, field: str, index: int) -> Path:
        """The file of a ring of the window, where it is mapped."""
        return self.scratch / f"{field}.ring.{index}"

    def names(
        self,
        levels: tuple[Arrival, ...],
        seams: Iterable[SeamKey] = (),
        apart: Iterable[str] = ("",),
    ) -> tuple[str, ...]:
        """Names of all files that a process makes in scratch, those of its ``seams`` included.

        Rows that are kept ``apart`` are in files beside those of a level.
        """
        files = dict.fromkeys(
            self.beside(self.path(level, parity), halo)
            for level in levels
            for parity in (0, 1)
            for halo in apart
        )
        files |= {self.seam(*key): None for key in seams}
        files |= {self.field(level, parity): None for level in levels for parity in (0, 1)}
        rings = dict.fromkeys(
            self.ring(level.field, ring).name for level in levels for ring in range(MOST_RINGS)
        )
        return (
            *(name for path in files for name in (path.name, sums_path(path).name)),
            *(self.packed(level).name for level in levels if level.constant),
            *rings,
        )


def level_of(name: str) -> tuple[str, int | None]:
    """What level is in the working file of that name, and of which parity; None: of both."""
    stem = name.removesuffix(".npy").removesuffix(SPREAD_SUFFIX)
    level, _, parity = stem.rpartition(".")
    return (level, int(parity)) if parity in ("0", "1") else (stem, None)


def is_halo(name: str) -> bool:
    """Whether a working file holds rows that another rank owns."""
    return HALO in name


def is_seam(name: str) -> bool:
    """Whether a working file holds seams, which mean nothing beyond their sweep."""
    return ".seam." in name
