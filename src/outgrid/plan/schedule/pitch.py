"""The pitch: planes of the stream from one trip through the window to the next.

Levels leave one after the other. A sweep begins so late that none of its levels leaves before the
last one of the sweep before: that write would wait for a commit that waits for writes queued behind
it. Between strips a trip reads what the one before it leaves when it reads a plane for the last
time, and leaves its own seam after all that the one before leaves. Only sweeps of unequal depths
overtake one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from outgrid.plan.schedule.axis import Axis
from outgrid.plan.schedule.interval import ACROSS, STREAMED
from outgrid.plan.schedule.model import Schedule
from outgrid.plan.schedule.seam import Seam
from outgrid.plan.schedule.share import Shares

# Planes of slack, in slabs, between the write of a place and its next read: one slab under the
# front, one being written, one being read ahead.
TURNAROUND_SLABS = 3


def pitch_planes(schedule: Schedule, axis: Axis, radius: int, whole: Sequence[Seam]) -> int:
    """The pitch of a schedule along its streamed ``axis``, a multiple of the slab.

    Cells read what lies ``radius`` planes from them. ``whole`` are the seams of whole planes.
    """
    slab = schedule.slab_planes
    if schedule.resident:
        least = whole_planes(axis, schedule.depth)
        # Planes that come round leave at the end of a sweep, before the next one touches them.
        least += min(slab, schedule.lean(schedule.depth)) if schedule.cutting.closes else 0
    else:
        reach = _reach(schedule, axis, radius)
        least = max(_apart(schedule, whole), reach + TURNAROUND_SLABS * slab)
    return -(-least // slab) * slab


def without_overlap(schedule: Schedule) -> int:
    """The least pitch with which no slab has planes of two trips under its front."""
    slab = schedule.slab_planes
    passages = [passage for depth in {*schedule.depths} for passage in schedule.sweep(depth)]
    first = min((passage.touched.start // slab for passage in passages), default=0)
    last = max((-(-passage.front_end // slab) for passage in passages), default=0)
    return (last - first) * slab


def whole_planes(axis: Axis, depth: int) -> int:
    """A slab in which a whole sweep of ``depth`` steps begins and ends."""
    return axis.extent + axis.skew.per_step * depth + max(axis.skew.shifts)


def _reach(schedule: Schedule, axis: Axis, radius: int) -> int:
    """Planes between the first write of a sweep to a place and the last read of it before."""
    reach = axis.skew.per_step * schedule.depth + max(axis.skew.shifts)
    reach += radius if schedule.strips.count(schedule.depth) > 1 else 0
    # The first planes of an axis that closes are the last ones that a sweep writes.
    return reach + (len(schedule.stored.planes) if axis.periodic else 0)


def _apart(schedule: Schedule, whole: Sequence[Seam]) -> int:
    """Planes after which no trip overtakes what the one before it leaves."""
    depth = schedule.depth
    lags = {deep: _put_lags(schedule, deep) for deep in {depth, *schedule.depths}}
    ahead = [0, max(lags[depth]) - min(lags[depth]) - 1]
    follow = {*pairwise(schedule.depths)}  # of many sweeps, few are unlike
    ahead += [max(lags[last]) - min(lags[first]) - 1 for last, first in follow]
    ahead += _seams_ahead(schedule, lags, whole)
    closing = schedule.cutting.closing(depth, STREAMED)
    again = closing.reach if closing is not None else 0
    apart = len(schedule.stored.planes) + max(again, *ahead)
    return (
        max(apart, _apart_at_cuts(schedule))
        if any(schedule.cutting.between_ranks(depth))
        else apart
    )


def _put_lags(schedule: Schedule, depth: int) -> list[int]:
    """Front positions, from a sweep's first one on, at which its levels begin to leave."""
    closing = schedule.cutting.closing(depth, STREAMED)
    return [
        departure.lag(depth, schedule.skew.per_step)
        + (closing.edge(departure.field, depth + departure.level) if closing is not None else 0)
        for departure in schedule.departures
    ]


def _seams_ahead(
    schedule: Schedule, lags: dict[int, list[int]], whole: Sequence[Seam]
) -> list[int]:
    """Planes by which the first of what a trip leaves would overtake the last seam before.

    A restart within the trip needs that seam as a whole.
    """
    constant = {arrival.field for arrival in schedule.arrivals if arrival.constant}
    highs = {
        (ring.field, ring.index): ring.high for ring in schedule.rings if ring.field not in constant
    }
    last = max(max(value) for value in lags.values())
    if schedule.cutting.closes:
        stairs = [stair for seam in whole for stair in seam.stairs]
        return [last - stair.low - highs[stair.field, stair.index] - 1 for stair in stairs]
    if not any(schedule.cutting.seams(schedule.depth, ACROSS)):
        return []
    first = min(*highs.values(), *(min(value) for value in lags.values()))
    return [max(last, *highs.values()) - first - 1]


def _apart_at_cuts(schedule: Schedule) -> int:
    """Planes between sweeps of a rank so that none waits for what comes after the one before.

    All that a sweep leaves, seams and what is returned included, leaves before the next one
    writes: that waits until all ranks have done with the sweep. A taker has left all of a sweep
    before it needs the first seam of the next, and a giver what leads to a plane that is
    returned before it needs that plane.
    """
    begins, ends, least = list[int](), list[int](), [0]
    for depth in {*schedule.depths}:
        passage = next(schedule.sweep(depth))
        last = [passage.front_end - 1]
        wanted: dict[int, int] = {}
        for departure in schedule.departures:
            lag = departure.lag(depth, schedule.skew.per_step)
            left = [passage.leaving(departure).planes]
            for cut, planes in Shares(passage).returned(departure):
                left += [] if cut.given else [planes]
                wanted[cut.above] = min(planes.start, wanted.get(cut.above, planes.start))
            begins.append(min(planes.start for planes in left) + lag)
            last.append(max(planes.stop for planes in left) - 1 + lag)
        for share in Shares(passage).taken():
            begins.append(share.planes.start + share.ring.low - schedule.slab_planes)
        for share in Shares(passage).given():
            leaves = min(share.planes.stop - 1 + share.ring.high, max(last))
            least.append(leaves - wanted[share.key.place] + schedule.slab_planes + 1)
        ends.append(max(last))
        least.append(len(schedule.cutting.interval(STREAMED, depth).read))
    return max(max(ends) - min(begins) + 1, *least)
