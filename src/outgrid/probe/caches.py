"""From rates against working sets to what each cache keeps. Pure."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

import msgspec

# A plateau less than this above memory is no cache to plan for.
VISIBLE_GAIN = 1.2


class Point(msgspec.Struct, frozen=True):
    """A core's rate in bytes per second over a working set in bytes."""

    set_bytes: int
    rate: float


class Caches(msgspec.Struct, frozen=True):
    """Working sets that a core keeps, in bytes, and its rate over them; see `Machine`."""

    l2_bytes: int
    l3_bytes: int
    l2_rate: float
    l3_rate: float


def find_caches(curve: Sequence[Point], l2_bytes: int, memory_rate: float) -> Caches:
    """What L2 and L3 keep, from a curve with ascending sizes and a core's rate from memory.

    `l2_bytes` is the size that L2 claims: the rate between a quarter and five eighths of it is that
    of L2, the rate between two and four times of it that of L3. A cache ends where the rate falls
    below the geometric mean of its own and the next one's. Without a visible L3 the two are equal.
    """
    curve = _falling(curve)
    l2_rate = _rate(curve, 0.25 * l2_bytes, 0.625 * l2_bytes)
    l3_rate = _rate(curve, 2 * l2_bytes, 4 * l2_bytes)
    if l3_rate < VISIBLE_GAIN * memory_rate:
        kept = _end(curve, math.sqrt(l2_rate * memory_rate))
        return Caches(kept, kept, l2_rate, l2_rate)
    l2_kept = _end(curve, math.sqrt(l2_rate * l3_rate))
    l3_kept = _end(curve, math.sqrt(l3_rate * memory_rate))
    return Caches(l2_kept, max(l2_kept, l3_kept), l2_rate, l3_rate)


def _falling(curve: Sequence[Point]) -> list[Point]:
    """The curve without dips: no set is slower than a larger one, but for a disturbance."""
    best, points = 0.0, list[Point]()
    for point in reversed(curve):
        best = max(best, point.rate)
        points.append(Point(point.set_bytes, best))
    return points[::-1]


def _rate(curve: list[Point], first_bytes: float, last_bytes: float) -> float:
    inside = [point.rate for point in curve if first_bytes <= point.set_bytes <= last_bytes]
    if inside:
        return statistics.median(inside)
    centre = math.sqrt(first_bytes * last_bytes)
    return min(curve, key=lambda point: abs(math.log(point.set_bytes / centre))).rate


def _end(curve: list[Point], threshold: float) -> int:
    """Where a falling curve crosses the threshold, in logarithms of size and rate."""
    for inner, outer in itertools.pairwise(curve):
        if outer.rate < threshold <= inner.rate:
            fall = math.log(inner.rate / threshold) / math.log(inner.rate / outer.rate)
            return int(inner.set_bytes * (outer.set_bytes / inner.set_bytes) ** fall)
    return curve[-1].set_bytes if curve[-1].rate >= threshold else curve[0].set_bytes
