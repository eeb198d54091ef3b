"""The kinds of instruction that a program is made of."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from outgrid.plan.model import Plan
from outgrid.plan.schedule.model import Schedule
from outgrid.plan.schedule.seam import SeamKey
from outgrid.plan.schedule.subgrid import Box, common
from outgrid.plan.schedule.trip import Point, Trip


class Gate(msgspec.Struct, frozen=True):
    """Numbers of leading instructions of each kind that must be complete."""

    advanced: int = 0
    got: int = 0
    put: int = 0
    committed: int = 0
    sent: int = 0
    received: int = 0


class Move(msgspec.Struct, frozen=True):
    """Planes [first, last) and ``rows`` of a field's ``level``, between a ring and a place.

    Planes and rows are those of the trip. In their place, which is the file of ``state`` or the one
    of a ``seam``, they lie ``there``, in the same order: planes fall where the stream goes
    downwards.
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
    seam: SeamKey | None
    there: Box
    gate: Gate

    @property
    def count(self) -> int:
        """Rows of all planes together."""
        return (self.last - self.first) * len(self.rows)

    def nbytes(self, plan: Plan) -> int:
        """Bytes that are moved, of the field's own type."""
        return self.count * plan.layout.of(self.field).row_bytes


class Get(Move, frozen=True):
    """Read into a ring."""


class Put(Move, frozen=True):
    """Write from a ring; the rows are part of ``state`` from then on."""


class Send(Move, frozen=True):
    """Give planes of ``state`` from a ring to ``peer``, as a part of the message of ``piece``.

    Round a ring of ranks ``peer`` holds them a ``turn`` on.
    """

    peer: int
    piece: range
    turn: int = 0


class Receive(Move, frozen=True):
    """Take a message of planes of ``state``, or a seam, from ``peer``, and write them in place."""

    peer: int
    turn: int = 0


class Stretch(msgspec.Struct, frozen=True):
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


class Advance(msgspec.Struct, frozen=True):
    """Move the front over one slab: all levels of every trip that is under it."""

    index: int
    parts: tuple[Stretch, ...]
    gate: Gate


class Commit(msgspec.Struct, frozen=True):
    """Flush what was written and say, durably, that everything up to ``point`` is there.

    Of several ranks each says so of its own planes, and is done when all have said it.
    """

    index: int
    point: Point
    gate: Gate


class Mark(msgspec.Struct, frozen=True):
    """A run that has to stop here may commit ``point``; one that goes on has nothing to do."""

    point: Point
    gate: Gate


Instruction = Get | Advance | Put | Commit | Send | Receive | Mark


def opposes(schedule: Schedule, peer: int) -> bool:
    """Whether another rank streams its planes in the opposite direction."""
    subgrid = schedule.domain.subgrid
    return subgrid.of(peer).downward != subgrid.downward


def levels(plan: Plan, advance: Advance) -> Iterator[tuple[Trip, int, int, range, range]]:
    """(trip, step, stage, planes, rows) that an advance updates, in order."""
    schedule, skew = plan.schedule, plan.schedule.skew
    for part in advance.parts:
        passage = schedule.passage(part.trip)
        for step in part.steps:
            for stage, shift in enumerate(skew.shifts):
                box, back = passage.covered(step, stage), shift + skew.per_step * step
                planes = common(box.planes, range(part.first - back, part.last - back))
                if planes and box.rows:
                    yield part.trip, step, stage, planes, box.rows


def row_updates(plan: Plan, advance: Advance) -> int:
    """Planes times rows times steps that one advance begins to update."""
    passage = plan.schedule.passage
    return sum(
        passage(part.trip).row_updates_of(part.first, part.last, part.steps)
        for part in advance.parts
    )
