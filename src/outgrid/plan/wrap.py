"""Wraps: how a sweep streams a grid whose first plane is the neighbour of its last.

No plane can be finished before its neighbours on both sides are there, so a sweep begins with an
inward face: stage j of step t works on the planes ``[face*t + g_j, planes + face*t + g_j)``, where
plane ``planes + z`` is plane z again. The face is the front of the mirrored stencil: what lies
below it keeps the version that it has reached, in its ring, a staircase that rises inwards. When
these first planes retire they are written, as they are, to a *seam*. At the end of the sweep they
come round again, behind the last plane, and get their missing steps. Nothing is computed twice.

Where such planes pass in strips, each strip is a trip of its own and comes round at its own end. It
leaves a plane to the next strip when it has made all of its steps, so the first ones last. The next
strip finds all of that when it comes to a plane first. So what it leaves to itself are, beside its
own rows, those that it has got, on all planes that come round.

The same holds of rows that pass in strips round a circle; what is said of planes is then said of
them. And what any strip leaves to the next one below their border is such a staircase, too, with
rows that are counted downwards: its face is the front of the stencil as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from outgrid.plan.lifetime import Dependences
from outgrid.plan.skew import Skew
from outgrid.plan.strips import Strips
from outgrid.plan.trip import Trip


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

    def turn(self, field: str, index: int) -> int:
        """The planes that have something in their ring when they come round."""
        found = (each.high for each in self.seams if (each.field, each.index) == (field, index))
        return next(found, 0)

    def left(
        self,
        trip: Trip,
        strips: Strips,
        seams: Mapping[tuple[str, int], tuple[int, int]],
        turn: Wrap | None,
    ) -> Iterator[tuple[Staircase, range, range]]:
        """(stair, planes, rows) of what a trip leaves to its own end.

        ``seams`` are (most, least) rows of a ring between one strip and the next, and ``turn`` is
        what the first strip of a circle leaves to the last.
        """
        for stair in self.seams:
            key = stair.field, stair.index
            stairs = turn.seams if turn is not None else ()
            ends = ((each.low, each.high) for each in stairs if (each.field, each.index) == key)
            seam, round_ = seams.get(key, (0, 0)), next(ends, (0, 0))
            got = strips.beneath(trip, seam), strips.beyond(trip, round_)
            for planes, rows in (
                *((range(stair.low), each) for each in got),
                (range(stair.low, stair.high), strips.filled(trip, seam, round_)),
            ):
                if planes and rows:
                    yield stair, planes, rows

    def again(self, coefficient: str) -> int:
        """The number of planes of a coefficient that are read twice."""
        return next((each.high for each in self.coefficients if each.field == coefficient), 0)


def wrap(
    found: Dependences,
    face: Skew,
    levels: Sequence[tuple[str, int, int]],
    depth: int,
    cut: bool = False,
    leads: Mapping[tuple[str, int], int] | None = None,
) -> Wrap:
    """The wrap of a sweep; ``levels`` are (field, time levels, rings) of each evolving field.

    Version v of a field is there from plane ``face*v + g`` on; one that arrives from the first
    plane on, or the one that ``leads`` name for its field and level. A reader at step t needs it
    ahead of the planes of its own step that come round. Where planes are ``cut`` into strips, all
    that come round may hold something in every ring.
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
            begun: list[int] = []
            for version in range(1 - count, depth + 1):
                if version % rings != index:
                    continue
                begin = face.per_step * version + face.shifts[writer]
                if version <= 0:
                    begin = leads.get((field, version), 0) if leads is not None else 0
                ends = [
                    reach[number, version - read.version]
                    for number, read in enumerate(found.readings)
                    if read.field == field and 1 <= version - read.version <= depth
                ]
                if version < depth or ends:
                    begun.append(begin)
                # Where planes are cut, a strip also finds there what the one before it left.
                if ends and max(ends) > (0 if cut else begin):
                    lows.append(begin)
                    highs.append(max(ends))
            if highs:
                low, high = min(begun if cut else lows), max(highs)
                seams.append(Staircase(field, index, min(low, high), high))
    evolving = {field for field, _, _ in levels}
    twice: dict[str, int] = {}
    for (number, _), end in reach.items():
        field = found.readings[number].field
        if field not in evolving:
            twice[field] = max(end, twice.get(field, 0))
    coefficients = tuple(Staircase(field, 0, 0, end) for field, end in twice.items())
    return Wrap(depth, max(reach.values()), tuple(seams), coefficients)
