"""What the window holds and what passes through it: rings, and levels that arrive and leave."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

Bands = tuple[tuple[int, int], ...]
"""Ranges of planes, rows or columns [first, end), in order and apart, that a field exists in."""


class Ring(msgspec.Struct, frozen=True):
    """Planes of one field resident in the window; plane Z of the stream lives in slot Z mod planes.

    ``low`` and ``high`` are the front positions, relative to a plane, of its first and last touch.
    Where the field exists ``within`` some planes of the grid only, Z counts these alone, and one
    plane of +0 beside the ring stands for all others. Where it exists in some ``rows`` only, these
    alone are read, and the memory of others is never written. Of a field that exists in some
    ``columns`` only these alone are kept, in shorter rows.
    """

    field: str
    index: int
    planes: int
    low: int
    high: int
    within: Bands | None = None
    rows: Bands | None = None
    columns: Bands | None = None

    @property
    def held(self) -> int:
        """Planes that it takes of the window."""
        return self.planes + (self.within is not None)

    @property
    def huge_pages(self) -> bool:
        """Whether all of its memory is written to: else pages are to be small."""
        return self.rows is None

    def present(self, planes: range) -> Iterator[range]:
        """The parts of a range of planes in which the field exists."""
        yield from parts_within(self.within, planes)

    def read(self, rows: range) -> Iterator[range]:
        """The parts of a range of rows that are read."""
        yield from parts_within(self.rows, rows)


class Arrival(msgspec.Struct, frozen=True):
    """A time level of a field that enters the window: planes with ``Z + lead < F1`` must be in.

    ``level`` is 0 or -1. A constant field arrives in level 0 of ring 0 in every sweep. One that is
    ``given`` lies in files of others, and changes with every step: what step ``level + 1`` of a
    sweep reads is a level, in a ring of its own.
    """

    field: str
    level: int
    lead: int
    constant: bool
    given: bool = False

    def of(self, depth: int) -> bool:
        """Whether sweeps of ``depth`` steps read it."""
        return not self.given or self.level < depth


class Departure(msgspec.Struct, frozen=True):
    """A time level of a field that leaves: version ``depth + level`` of the sweep.

    ``shift`` is that of the stage that writes the field, ``lead`` that of the field's arrival.
    """

    field: str
    level: int
    shift: int
    lead: int

    def lag(self, depth: int, skew: int) -> int:
        """Planes with ``Z + lag < F1`` are final once the slab that ends at F1 is done.

        A sweep of one step passes its arrived level on: it cannot leave before it came.
        """
        return max(self.lead, skew * (depth + self.level) + self.shift)


def planes_below(bands: Bands, plane: int) -> int:
    """How many planes of ``bands`` are below a plane."""
    return sum(max(0, min(plane, end) - first) for first, end in bands)


def numbered_plane(bands: Bands, number: int) -> int:
    """The plane of ``bands`` that has so many others of them below it."""
    planes = iter(bands)
    first, end = next(planes)
    while number >= end - first:
        number -= end - first
        first, end = next(planes)
    return first + number


def most_together(bands: Bands, extent: int, planes: int) -> int:
    """The most of so many ``planes`` that follow each other that are in ``bands``.

    The bands come again every ``extent`` planes, or later.
    """
    count = planes_below(bands, extent)

    def below(plane: int) -> int:
        turns, plane = divmod(plane, extent)
        return turns * count + planes_below(bands, plane)

    # Where most are together a band begins.
    return max(below(first + planes) - below(first) for first, _ in bands)


def parts_within(bands: Bands | None, planes: range) -> Iterator[range]:
    """The parts of a range of planes or rows that are in ``bands``; None stands for all."""
    if bands is None:
        yield planes
        return
    for first, end in bands:
        part = range(max(first, planes.start), min(end, planes.stop))
        if part:
            yield part
