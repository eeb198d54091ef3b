"""Places: where seams are kept that are left in one trip and taken in another."""

from __future__ import annotations

import msgspec

from outgrid.plan.schedule.cutting import Cutting
from outgrid.plan.schedule.interval import ACROSS, STREAMED
from outgrid.plan.schedule.seam import Seam, SeamKey


class SeamPlaces(msgspec.Struct, frozen=True):
    """The places of the seams of a ``cutting``; they ``take_turns`` where a restart may need two.

    The seams below and above a strip then lie in two places, as the one may be needed while the
    other is written. What closes an axis has a place of its own, and so has each cut between ranks.
    """

    cutting: Cutting
    take_turns: bool

    @property
    def turns(self) -> int:
        """Places of the seams of strips: one, or two where they take turns."""
        return 2 if self.take_turns and not self.cutting.closes else 1

    def number(self, seam: Seam, border: int) -> int:
        """The number of the place of a seam at a border: that below strip 1, 2... of a sweep."""
        if seam.cut is not None:
            return int(seam.cut.above)
        if seam.axis == STREAMED:
            return 0
        beside = 1 if self.cutting.closes else 0
        return beside + (self.turns if seam.closes else border % self.turns)

    def shapes(self, window_rows: int) -> dict[SeamKey, tuple[int, ...]]:
        """Shapes of the places of all seams; none for whole planes.

        Record z of a place has a row for each row of plane z that goes through the seam, or record
        0 is the first plane that does, with all ``window_rows``.
        """
        domain, shapes = self.cutting.domain, dict[SeamKey, tuple[int, ...]]()
        for seam in self.cutting.every:
            if seam.cut is not None and seam.cut.given:
                continue
            several = not (seam.closes or seam.cut)
            for stair in seam.stairs:
                cells = stair.high - stair.low
                if seam.axis == ACROSS:
                    shape = (domain.planes, cells, domain.shape[-1])
                elif seam.cut is not None:
                    shape = (cells, len(domain.owned.rows), domain.shape[-1])
                else:
                    shape = (stair.high, window_rows, domain.shape[-1])
                borders = range(self.turns if several else 1)
                for border in borders if cells or not several else ():
                    place = self.number(seam, border)
                    shapes[SeamKey(stair.field, stair.index, seam.depth, place)] = shape
        return shapes
