"""Borders: cuts between ranks at which nothing is computed twice.

Ranks are upright and inverted by turns. An upright rank begins and ends a sweep with faces that
lean inwards, so that it hears from nobody: stage j of step t covers, from a cut on,

    below:  [cut + face*t + g_j, ..)        above:  [.., cut - skew*t - s_j)

``skew`` and the shifts ``s_j`` are those of its stream, ``face`` and ``g_j`` those of the stream in
the other direction. What it leaves at a cut is a staircase of versions that rises inwards, one
block of planes in each ring: the *seam*. It goes to the inverted rank at the other side, which
streams in the opposite direction and covers what is missing there, so that its own faces lean
outwards:

    below:  [cut - skew*t - s_j, ..)        above:  [.., cut + face*t + g_j)

What that one makes of the last levels beyond the cut it gives back. See `plan.wrap`, where both
sides of such a cut belong to one sweep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outgrid.plan.skew import Skew
from outgrid.plan.subgrid import Interval
from outgrid.plan.trip import Span
from outgrid.plan.wrap import Staircase, Wrap

Channel = tuple[int, str, int, bool]  # peer, field, level or ring, whether it is a seam


@dataclass(frozen=True, slots=True)
class Border:
    """A cut as the rank on one side of it sees it, in sweeps of ``depth`` steps.

    The rank ``peer`` lies ``above`` the planes of this one, or below them. All planes are those of
    this rank's stream, and lie on the upright side: its ``seams``, what is ``returned`` of each
    level that leaves, as [low, high), and all that the inverted side may have ``touched``.
    """

    depth: int
    peer: int
    above: bool
    seams: tuple[Staircase, ...]
    returned: tuple[tuple[int, int], ...]
    touched: tuple[int, int]


def leans_up(upright: bool, above: bool) -> bool:
    """Whether the face at a cut rises, plane by plane and step by step."""
    return upright != above


def border(
    cut: int, peer: int, above: bool, upright: bool, left: Wrap, returned: Sequence[int]
) -> Border:
    """The border at plane ``cut``, the first one above it.

    ``left`` says what a sweep leaves at a face that leans like the one here, and ``returned`` how
    many planes of each level that leaves lie below that face; both count planes from the face.
    """

    def planes(low: int, high: int) -> tuple[int, int]:
        if leans_up(upright, above):
            return cut + low, cut + high
        return cut - high, cut - low

    return Border(
        left.depth,
        peer,
        above,
        tuple(Staircase(s.field, s.index, *planes(s.low, s.high)) for s in left.seams),
        tuple(planes(0, count) for count in returned),
        planes(0, left.planes),
    )


def span(owned: Interval, upright: bool, skew: Skew, face: Skew) -> Span:
    """What the stages of each step cover, of a rank that has ``owned`` in its stream."""
    flat = Skew(0, (0,) * len(skew.shifts))
    below = _face(leans_up(upright, False), skew, face) if owned.low > 0 else flat
    above = _face(leans_up(upright, True), skew, face) if owned.high < owned.extent else flat
    return Span(owned.low, owned.high, below.per_step, above.per_step, below.shifts, above.shifts)


def _face(up: bool, skew: Skew, face: Skew) -> Skew:
    """How a face moves: as the stream leans, or as the one in the other direction does."""
    return face if up else Skew(-skew.per_step, tuple(-shift for shift in skew.shifts))


def thickness(borders: Sequence[Border]) -> int:
    """Planes that an upright rank needs: what it leaves at its cuts has to be apart."""
    each: dict[int, int] = {}
    for one in borders:
        low, high = one.touched
        each[one.depth] = each.get(one.depth, 0) + high - low
    return max(each.values(), default=0)


def channels(
    borders: Sequence[Border], levels: Sequence[tuple[str, int]], *, seams: bool
) -> dict[Channel, None]:
    """What comes over ``borders``, in order: seams, or what is returned of the ``levels``."""
    found: dict[Channel, None] = {}
    for one in borders:
        if seams:
            found |= {(one.peer, stair.field, stair.index, True): None for stair in one.seams}
            continue
        for (field, level), (low, high) in zip(levels, one.returned, strict=True):
            if high > low:
                found[one.peer, field, level, False] = None
    return found
