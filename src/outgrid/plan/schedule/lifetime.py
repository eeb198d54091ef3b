"""When a plane is first and last touched: the lifetimes that size every ring.

All times are positions of the front F relative to the plane Y they speak of: stage j of step t
works on plane ``F - (S*t + s_j)``. A touch is an update, or a read made by one; arrival and
departure of planes are ordered around the touches by the gates of the program.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from outgrid.plan.schedule.skew import Halo, Reading, Skew, Writing, solve, solve_halo
from outgrid.stencil.boundary import Edges
from outgrid.stencil.model import Field, Stencil
from outgrid.stencil.recomputed import read_by

MOST_RINGS = 3  # of one field


class Lifetime(msgspec.Struct, frozen=True):
    """Front positions, relative to a plane, between which a ring's slot is in use."""

    low: int
    high: int

    @property
    def span(self) -> int:
        """Planes that are alive at once for a front that moves plane by plane, less one."""
        return self.high - self.low


class Dependences(msgspec.Struct, frozen=True):
    """What the stages of a stencil read and write along an axis.

    What follows from them is in whole units of ``unit`` cells, and so are readings.
    """

    stages: int
    readings: tuple[Reading, ...]
    writings: tuple[Writing, ...]
    unit: int = 1

    def skew(self) -> Skew:
        """The smallest skew, shifted so that no plane is needed before the front reaches it."""
        skew = solve(self.stages, self.readings, self.writings, self.unit)
        earliest = min(skew.per_step + skew.shifts[r.reader] - r.high for r in self.readings)
        late = max(0, -earliest)
        return Skew(skew.per_step, tuple(shift + late for shift in skew.shifts))

    def face(self) -> Skew:
        """The same for a front that moves the other way: how an inward face rises.

        Where the first step begins at plane 0, stage j of step t may update the planes from
        ``per_step*t + shifts[j]`` on: nothing below plane 0 is read, and what is left below the
        face is the last version that its ring has come to.
        """
        return self.mirrored().skew()

    def mirrored(self) -> Dependences:
        """The same along an axis that is counted from its other end."""
        turned = tuple(replace(read, low=-read.high, high=-read.low) for read in self.readings)
        return replace(self, readings=turned)

    def halo(self) -> Halo:
        """What a part of the grid needs beyond the planes that it makes."""
        least = max(0, *(max(-read.low, read.high) for read in self.readings))
        return solve_halo(self.stages, self.readings, self.writings, least, self.unit)


@lru_cache(maxsize=1024)
def ring_count(field: Field, stencil: Stencil) -> int:
    """Rings that hold the time levels of ``field``: 1 to 3.

    The oldest level is overwritten in place, so the stage that updates the field may read it at
    the updated cell only; read beside it, it needs one more ring. What other stages read of it
    is a matter of their order.
    """
    writer = stencil.writer(field.name)
    if writer is None:
        return 1
    stages = [writer] if field.levels == 1 else range(len(stencil.stages))
    beside = any(
        access.field == field.name and access.level == 1 - field.levels and any(access.offset)
        for stage in stages
        for access in read_by(stencil, stage)
    )
    return field.levels + beside


@lru_cache(maxsize=64)
def dependences(stencil: Stencil, edges: Edges | None = None, axis: int = 0) -> Dependences:
    """Readings and writings of every stage along ``axis``, in the same order for each axis.

    Without ``edges`` all faces are fixed.

    A fixed cell reads its own level one step back. A mirror turns what is read beyond a face
    round, to no larger a distance on either side. Folded rows are read as whole groups.
    """
    unit = row_unit(stencil) if axis == 1 else 1
    readings: list[Reading] = []
    writings: list[Writing] = []
    for number, stage in enumerate(stencil.stages):
        reach: dict[tuple[str, int], tuple[int, int]] = {}
        for assignment in stage.assignments:
            field = stencil.field(assignment.field)
            writings.append(Writing(number, field.name, ring_count(field, stencil)))
            if not field.temporary:
                reach.setdefault((field.name, -1), (0, 0))
        for access in read_by(stencil, number):
            key = (access.field, stencil.version(number, access))
            low, high = reach.get(key, (0, 0))
            along = access.offset[axis]
            reach[key] = (min(low, along), max(high, along))
        for (name, version), (low, high) in reach.items():
            if edges is not None and edges.mirrored(name, axis):
                low, high = min(low, -high), max(high, -low)
            low, high = low // unit * unit, -(-high // unit) * unit
            readings.append(Reading(number, name, version, low, high))
    return Dependences(len(stencil.stages), tuple(readings), tuple(writings), unit)


def row_unit(stencil: Stencil) -> int:
    """Rows between which edges of tiles, bands and strips may lie."""
    return stencil.folded.rows if stencil.folded is not None else 1


def lifetimes(
    field: str, rings: int, reads: Dependences, skew: Skew, sweeps: frozenset[tuple[int, int]]
) -> tuple[Lifetime, ...]:
    """The lifetime of each ring of ``field`` over all ``sweeps``, given as (base, depth).

    Version v of a sweep (0 on arrival, ``depth`` at its end) lives in ring ``base + v`` modulo
    ``rings``.
    """
    touches: list[list[int]] = [[] for _ in range(rings)]
    for base, depth in sweeps:
        for step in _first_and_last(depth, rings):
            for write in reads.writings:
                if write.field == field:
                    ring = touches[(base + step) % rings]
                    ring.append(skew.per_step * step + skew.shifts[write.writer])
            for read in reads.readings:
                if read.field == field:
                    now = skew.per_step * step + skew.shifts[read.reader]
                    ring = touches[(base + step + read.version) % rings]
                    ring += [now - read.high, now - read.low]
    return tuple(Lifetime(min(times, default=0), max(times, default=0)) for times in touches)


def _first_and_last(depth: int, rings: int) -> Iterable[int]:
    """The steps of a sweep in which any of its rings is touched first or last.

    Times are linear in the step, so those of the steps between lie between.
    """
    if depth <= 2 * rings:
        return range(1, depth + 1)
    return (*range(1, rings + 1), *range(depth - rings + 1, depth + 1))


def lifetime_of_step(field: str, step: int, reads: Dependences, skew: Skew) -> Lifetime:
    """The lifetime of what one step of a sweep, and no other, reads of a ``field``."""
    times: list[int] = []
    for read in reads.readings:
        if read.field == field:
            now = skew.per_step * step + skew.shifts[read.reader]
            times += [now - read.high, now - read.low]
    return Lifetime(min(times, default=0), max(times, default=0))


def needed_from(field: str, level: int, reads: Dependences, skew: Skew) -> int:
    """Front, relative to a plane, that first needs ``level`` of ``field`` to be there.

    It is 0 or -1; of a coefficient that changes with every step it counts the steps before.
    """
    first: list[int] = []
    for read in reads.readings:
        if read.field != field:
            continue
        step = level - read.version  # the step that reads this version
        if field_is_constant(field, reads):
            step = 1 + level
        if step >= 1:
            first.append(skew.per_step * step + skew.shifts[read.reader] - read.high)
    return min(first, default=0)


def field_is_constant(field: str, reads: Dependences) -> bool:
    """Whether no stage writes ``field``."""
    return all(write.field != field for write in reads.writings)


def write_shift(field: str, reads: Dependences, skew: Skew) -> int:
    """The shift of the stage that writes ``field``."""
    return next(skew.shifts[write.writer] for write in reads.writings if write.field == field)
