"""Seams: what the trips on the two sides of a cut leave to each other.

A cut across an axis lets a sweep cover the two sides one after the other, or on two ranks, and
nothing is computed twice. The *giver* goes first. Nothing beyond the cut is there yet, so its end
leans inwards: of a cut at cell c, stage j of step t covers

    above it:  [c + face*t + g_j, ..)        below it:  [.., c - face*t - g_j)

where ``face`` and the shifts ``g_j`` are those of a front that comes from the other side: what lies
in between keeps, ring by ring, the last version that it has come to. These staircases, one
contiguous block of cells per ring, are the *seam*. They are kept until the *taker* comes, whose end
leans outwards by as much: it finds them in their rings and makes the steps that are missing there.

    giver       taker                       of which axis
    a trip      the same, at its end        planes, where the first one is the last one's neighbour
    a strip     the one after it            rows
    the first   the last strip              rows that close to a circle
    a rank      the one beside it           planes

Where an axis closes, the giver leans inwards at cell 0 and the taker outwards at the last one: cell
``extent + z`` is cell z again. Of ranks every other one gives at all of its cuts and streams in the
opposite direction of those beside it. What takers make of the last levels beyond a cut between
ranks they give back, as the files of it are elsewhere.

Versions that arrive are there from the cut on, or where both sides read the same files, from where
the giver's steps begin to need them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from outgrid.plan.schedule.lifetime import Dependences, field_is_constant, write_shift
from outgrid.plan.schedule.skew import Skew

Channel = tuple[int, str, int, bool]  # peer, field, level or ring, whether it is a seam


class SeamKey(NamedTuple):
    """Where a ring's share of a seam is kept, in sweeps of ``depth`` steps."""

    field: str
    ring: int
    depth: int
    place: int


class Stair(msgspec.Struct, frozen=True):
    """The cells [low, high), counted from the cut, that ring ``index`` of ``field`` leaves."""

    field: str
    index: int
    low: int
    high: int


class Edge(msgspec.Struct, frozen=True):
    """From which cell on versions of a field are the giver's: ``shift`` is its writer's.

    ``arrived`` are those of levels 0, -1 that come from files.
    """

    field: str
    shift: int
    arrived: tuple[int, ...]


class Cut(msgspec.Struct, frozen=True):
    """A cut between ranks, in planes of the stream: ``peer`` lies ``above`` plane ``at``, or below.

    The seam is ``given`` to it, or taken from it.
    """

    at: int
    peer: int
    above: bool
    given: bool


class Seam(msgspec.Struct, frozen=True):
    """What is left at cuts across ``axis`` in sweeps of ``depth`` steps.

    Cells are counted from the cut: upwards where the giver's end ``rises``, else downwards. It
    moves ``per_step`` cells per step, ``shifts`` further for stages. Steps reach the first
    ``reach`` cells; coefficients are read from files there once more, each as far as ``again``
    says. Where the axis ``closes`` the giver is its first interval and the taker its last one, else
    each interval takes from the one before it, or a rank has a ``cut``.
    """

    axis: int
    depth: int
    rises: bool
    closes: bool
    per_step: int
    shifts: tuple[int, ...]
    reach: int
    edges: tuple[Edge, ...]
    stairs: tuple[Stair, ...]
    again: tuple[Stair, ...]
    cut: Cut | None = None

    def cells(self, low: int, high: int, at: int) -> range:
        """Cells [low, high) of the seam, as the axis counts them, of a cut at cell ``at``."""
        return range(at + low, at + high) if self.rises else range(at - high, at - low)

    def width(self, field: str, version: int) -> int:
        """How far from a cut the giver's cells of a version begin, or the taker's end."""
        edge = next(edge for edge in self.edges if edge.field == field)
        return edge.arrived[-version] if version <= 0 else self.per_step * version + edge.shift

    def edge(self, field: str, version: int) -> int:
        """The same, upwards."""
        return self.width(field, version) * (1 if self.rises else -1)

    def stair(self, field: str, index: int) -> Stair:
        """What a ring leaves; nothing where it has none."""
        key = field, index
        stairs = (stair for stair in self.stairs if (stair.field, stair.index) == key)
        return next(stairs, Stair(field, index, 0, 0))

    def reread(self, coefficient: str) -> int:
        """Cells of a coefficient that are read twice."""
        return next((stair.high for stair in self.again if stair.field == coefficient), 0)

    @property
    def moves(self) -> Skew:
        """How the end at the cut moves upwards."""
        if self.rises:
            return Skew(self.per_step, self.shifts)
        return Skew(-self.per_step, tuple(-shift for shift in self.shifts))


class Border(msgspec.Struct, frozen=True):
    """A cut across ``axis`` in sweeps of ``depth`` steps: see `Seam`, which has the same of it."""

    axis: int
    depth: int
    rises: bool = True
    closes: bool = False
    cut: Cut | None = None


def seam(
    border: Border,
    reads: Dependences,
    levels: Mapping[str, tuple[int, int]],
    *,
    crossed: bool = False,
    leads: Mapping[str, tuple[int, ...]] | None = None,
) -> Seam:
    """The seam at a border; ``levels`` are (time levels, rings) of each evolving field.

    ``reads`` is what is read and written along the axis. Version v of a field is there from cell
    ``face*v + g`` on; one that arrives from the cut on, or from where ``leads`` say by field and
    level. A reader at step t needs it ahead of the cells of its own step beyond the cut. Where the
    grid is cut along the other axis as well, seams are ``crossed``: all of their cells may hold
    something in every ring.
    """
    depth, along = border.depth, reads if border.rises else reads.mirrored()
    face = along.face()
    arrived = dict.fromkeys((read.field for read in along.readings), (0, 0)) | dict(leads or {})
    reach = {
        (number, step): face.per_step * step + face.shifts[read.reader] + read.high
        for number, read in enumerate(along.readings)
        for step in range(1, depth + 1)
    }
    again: dict[str, int] = {}
    for (number, _), end in reach.items():
        field = along.readings[number].field
        if field not in levels:
            again[field] = max(end, again.get(field, 0))
    edges = tuple(
        Edge(
            field,
            0 if field_is_constant(field, along) else write_shift(field, along, face),
            arrived[field],
        )
        for field in dict.fromkeys((*levels, *arrived))
    )
    stairs = [
        stair
        for edge in edges
        if edge.field in levels
        for stair in _stairs(along, face, edge, levels[edge.field], depth, reach, crossed)
    ]
    return Seam(
        border.axis,
        depth,
        border.rises,
        border.closes,
        face.per_step,
        face.shifts,
        max(reach.values()),
        edges,
        tuple(stairs),
        tuple(Stair(field, 0, 0, end) for field, end in again.items()),
        border.cut,
    )


def _stairs(
    along: Dependences,
    face: Skew,
    edge: Edge,
    levels: tuple[int, int],
    depth: int,
    reach: Mapping[tuple[int, int], int],
    crossed: bool,
) -> Iterator[Stair]:
    """What each ring of a field leaves."""
    count, rings = levels
    for index in range(rings):
        lows: list[int] = []
        highs: list[int] = []
        begun: list[int] = []
        for version in range(1 - count, depth + 1):
            if version % rings != index:
                continue
            begin = edge.arrived[-version] if version <= 0 else face.per_step * version + edge.shift
            ends = [
                reach[number, version - read.version]
                for number, read in enumerate(along.readings)
                if read.field == edge.field and 1 <= version - read.version <= depth
            ]
            if version < depth or ends:
                begun.append(begin)
            # Where seams cross, a trip also finds there what the one before it left.
            if ends and max(ends) > (0 if crossed else begin):
                lows.append(begin)
                highs.append(max(ends))
        if highs:
            low, high = min(begun if crossed else lows), max(highs)
            yield Stair(edge.field, index, min(low, high), high)


def channels(
    seams: Sequence[Seam], levels: Sequence[tuple[str, int]], *, given: bool
) -> dict[Channel, None]:
    """What goes over cuts between ranks, in order: what is ``given``, or else what is returned.

    ``levels`` are the (field, level) that leave.
    """
    crossing: dict[Channel, None] = {}
    for seam in seams:
        if seam.cut is None:
            continue
        peer = seam.cut.peer
        if given:
            crossing |= {(peer, stair.field, stair.index, True): None for stair in seam.stairs}
        for field, level in () if given else levels:
            if seam.edge(field, seam.depth + level):
                crossing[peer, field, level, False] = None
    return crossing
