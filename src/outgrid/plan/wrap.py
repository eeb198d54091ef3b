"""Wraps: how a sweep streams a grid whose first plane is the neighbour of its last.

No plane can be finished before its neighbours on both sides are there, so a sweep begins with an
inward face: stage j of step t works on the planes ``[face*t + g_j, planes + face*t + g_j)``, where
plane ``planes + z`` is plane z again. The face is the front of the mirrored stencil: what lies
below it keeps the version that it has reached, in its ring, a staircase that rises inwards. When
these first planes retire they are written, as they are, to a *seam*. At the end of the sweep they
come round again, behind the last plane, and get their missing steps. Nothing is computed twice.

The same holds of rows that pass in strips round a circle; what is said of planes is then said of
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outgrid.plan.lifetime import Dependences
from outgrid.plan.skew import Skew


@dataclass(frozen=True, slots=True)
class Staircase:
    """Planes [low, high) that ring ``index`` of ``field`` leaves in its seam."""

    field: str
    index: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Wrap:
    """What comes round again in a sweep of ``depth`` steps: the first ``planes`` planes.

    Evolving fields come from their ``seams``, ``coefficients`` from their files once more.
    """

    depth: int
    planes: int
    seams: tuple[Staircase, ...]
    coefficients: tuple[Staircase, ...]

    def again(self, coefficient: str) -> int:
        """The number of planes of a coefficient that are read twice."""
        return next((each.high for each in self.coefficients if each.field == coefficient), 0)


def wrap(
    found: Dependences, face: Skew, levels: Sequence[tuple[str, int, int]], depth: int
) -> Wrap:
    """The wrap of a sweep; ``levels`` are (field, time levels, rings) of each evolving field.

    Version v of a field is there from plane ``face*v + g`` on, that of its arrival from the first
    plane on. A reader at step t needs it ahead of the planes of its own step that come round.
    """
    reach = {
        (number, step): face.per_step * step + face.shifts[read.reader] + read.high
        for number, read in enumerate(found.readings)
        for step in range(1, depth + 1)
    }
    seams: list[Staircase] = []
    for field, count, rings in levels:
        writer = next(w.writer for w in found.writings if w.field == field)
        for index in range(rings):
            lows: list[int] = []
            highs: list[int] = []
            for version in range(1 - count, depth + 1):
                if version % rings != index:
                    continue
                begin = face.per_step * version + face.shifts[writer] if version > 0 else 0
                ends = [
                    reach[number, version - read.version]
                    for number, read in enumerate(found.readings)
                    if read.field == field and 1 <= version - read.version <= depth
                ]
                if ends and max(ends) > begin:
                    lows.append(begin)
                    highs.append(max(ends))
            if lows:
                seams.append(Staircase(field, index, min(lows), max(highs)))
    evolving = {field for field, _, _ in levels}
    twice: dict[str, int] = {}
    for (number, _), end in reach.items():
        field = found.readings[number].field
        if field not in evolving:
            twice[field] = max(end, twice.get(field, 0))
    coefficients = tuple(Staircase(field, 0, 0, end) for field, end in twice.items())
    return Wrap(depth, max(reach.values()), tuple(seams), coefficients)
