"""The kinds of instruction that a program is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from outgrid.plan.model import Plan
from outgrid.plan.trip import Point, Trip


@dataclass(frozen=True, slots=True)
class Gate:
    """Numbers of leading instructions of each kind that must be complete."""

    advanced: int = 0
    got: int = 0
    put: int = 0
    committed: int = 0
    sent: int = 0
    received: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """Planes [first, last) and ``rows`` of a field's ``level``, between a ring and a place.

    Planes are those of the trip, ``place_planes`` and ``place_rows`` where they lie in the place.
    The place is the file of ``state``, or the seam at a ``border``: that below strip 1, 2... of a
    sweep, that beyond the last one where strips go round a circle, or 0 where planes come round
    again. At cuts between ranks it is 0 below the
    planes of a rank and 1 above them.
    """

    index: int
    trip: Trip
    field: str
    level: int
    state: int
    ring: int
    first: int
    last: int
    rows: range
    border: int | None
    gate: Gate

    @property
    def seam(self) -> bool:
        """Whether the place is a seam."""
        return self.border is not None

    @property
    def count(self) -> int:
        """Rows of all planes together."""
        return (self.last - self.first) * len(self.rows)

    def nbytes(self, plan: Plan) -> int:
        """Bytes that are moved, of the field's own type."""
        return self.count * plan.layout.of(self.field).row_bytes


@dataclass(frozen=True, slots=True)
class Get(Move):
    """Read into a ring."""


@dataclass(frozen=True, slots=True)
class Put(Move):
    """Write from a ring; the rows are part of ``state`` from then on."""


@dataclass(frozen=True, slots=True)
class Send(Move):
    """Give planes of ``state`` from a ring to ``peer``, as a part of the message of ``piece``."""

    peer: int
    piece: range


@dataclass(frozen=True, slots=True)
class Receive(Move):
    """Take a message of planes of ``state``, or a seam, from ``peer``, and write them in place."""

    peer: int


@dataclass(frozen=True, slots=True)
class Part:
    """The share of one trip in an advance: its own front positions [first, last).

    Steps ``since`` to ``until`` are made, to the last one of the trip where that is None.
    """

    trip: Trip
    first: int
    last: int
    since: int = 1
    until: int | None = None

    @property
    def steps(self) -> range:
        """The steps that are made."""
        return range(self.since, (self.until or self.trip.depth) + 1)


@dataclass(frozen=True, slots=True)
class Advance:
    """Move the front over one slab: all levels of every trip that is under it."""

    index: int
    parts: tuple[Part, ...]
    gate: Gate


@dataclass(frozen=True, slots=True)
class Commit:
    """Flush what was written and say, durably, that everything up to ``point`` is there.

    Of several ranks each says so of its own planes, and is done when all have said it.
    """

    index: int
    point: Point
    gate: Gate


@dataclass(frozen=True, slots=True)
class Mark:
    """A run that has to stop here may commit ``point``; one that goes on has nothing to do."""

    point: Point
    gate: Gate


Instruction = Get | Advance | Put | Commit | Send | Receive | Mark


def place_planes(plan: Plan, move: Move) -> range:
    """Planes of ``move`` in its place, in their order: those beyond the last are the first again.

    They fall where the stream goes downwards. Those of a seam that comes over a border are counted
    from its first one.
    """
    if plan.borders and move.border is not None:
        sides = (each for each in plan.cuts(move.trip.depth) if each.above == bool(move.border))
        stairs = (stair for each in sides for stair in each.seams)
        low = next(s.low for s in stairs if (s.field, s.index) == (move.field, move.ring))
        return range(move.first - low, move.last - low)
    if plan.downward:
        return plan.streamed(range(move.first, move.last))[::-1]
    beyond = plan.planes if move.first >= plan.planes else 0
    return range(move.first - beyond, move.last - beyond)


def opposes(plan: Plan, peer: int) -> bool:
    """Whether another rank streams its planes in the opposite direction."""
    subgrid = plan.subgrid
    return subgrid is not None and subgrid.of(peer).downward != subgrid.downward


def place_rows(plan: Plan, move: Move) -> range:
    """Rows of ``move`` in its place: those of the grid in a file.

    A record of a seam begins with the row that lies farthest below the border, or where a trip
    leaves it to its own end, with the first one in the window. Rows of the grid beyond the last one
    are the first ones again, as are those of the seam that comes round.
    """
    if plan.borders:
        return move.rows
    if plan.wraps and move.border == 0:
        origin = plan.row_origin(move.trip)
        return range(move.rows.start - origin, move.rows.stop - origin)
    turn = plan.turn(move.trip.depth)
    low = plan.layout.rows if turn is not None and move.rows.start >= plan.layout.rows else 0
    if turn is not None and move.border == plan.strips.count(move.trip.depth):
        low += next(s.low for s in turn.seams if (s.field, s.index) == (move.field, move.ring))
    elif move.border is not None:
        most, _ = plan.seam(plan.ring(move.field, move.ring), move.trip.depth)
        low = (move.trip.rows.low if isinstance(move, Get) else move.trip.rows.high) - most
    return range(move.rows.start - low, move.rows.stop - low)


def seam_place(plan: Plan, move: Move) -> tuple[str, int, int, int]:
    """The key in ``plan.seams`` of where the rows of a seam lie.

    The seams below and above a strip lie in two places that take turns where a restart may need
    the one while the other is written. What comes round a circle has a place of its own, and so has
    what comes round along the stream, and each border between ranks.
    """
    border = move.border or 0
    if plan.borders:
        return move.field, move.ring, move.trip.depth, border
    if plan.turns and border == plan.strips.count(move.trip.depth):
        place = plan.turn_place
    else:
        place = min(border, 1) if plan.wraps else border % plan.seam_places
    return move.field, move.ring, move.trip.depth, place


def levels(plan: Plan, advance: Advance) -> Iterator[tuple[Trip, int, int, range, range]]:
    """(trip, step, stage, planes, rows) that an advance updates, in order."""
    for part in advance.parts:
        for step in part.steps:
            for stage, shift in enumerate(plan.shifts):
                rows = part.trip.rows.at(step, plan.row_extent(part.trip), stage)
                held = plan.covered(part.trip, step, stage)
                back = shift + plan.skew * step
                planes = range(max(held.start, part.first - back), min(held.stop, part.last - back))
                if planes and rows:
                    yield part.trip, step, stage, planes, rows


def row_updates(plan: Plan, advance: Advance) -> int:
    """Planes times rows times steps that one advance begins to update."""
    return sum(
        len(planes) * len(rows) for _, _, stage, planes, rows in levels(plan, advance) if stage == 0
    )
