"""Where fields of regions are not: the parts that kernels pass over, and what they clear there."""

import numpy as np
import pytest

import outgrid as og
from outgrid.config import RunOptions
from outgrid.execute.absence import Absence, Remains
from outgrid.plan.planner import plan
from outgrid.plan.presence import MOST_PARTS
from outgrid.stencil.region import KIND_BITS
from outgrid.testing.machine import MACHINE

SHAPE = (30, 40, 96)


@og.stencil
def damped(u, m, q):
    """Two fields of regions, of which one is read beside the updated cell."""
    return {
        "u": u + 0.1 * og.laplacian(u) + m[1, 0, 0],
        "m": 0.9 * m + 0.1 * u[0, 0, 1],
        "q": 0.5 * q + u,
    }


def posed(regions, boundary="neumann"):
    initial = {"u": 1.0, "m": 0.0, "q": 0.0}
    return og.Problem(damped, SHAPE, "float64", 4, {}, boundary, initial, regions=regions)


def table(absence, remains=Remains.NOWHERE, banded=False):
    """(cuts along each axis, flags of the parts)."""
    given = absence.tables[banded * len(Remains) + remains].tolist()
    ends = np.cumsum(absence.parts)
    cuts = [given[: ends[0]], given[ends[0] : ends[1]], given[ends[1] : ends[2]]]
    return cuts, np.array(given[ends[2] :]).reshape(absence.parts)


def test_parts_lie_farther_from_regions_than_the_stencil_reaches():
    absence = Absence.of(posed({"m": og.Box(z=(10, 20)), "q": og.Box(y=(0, 5), x=(30, 50))}))
    cuts, flags = table(absence)
    assert cuts == [[0, 9, 21], [0, 6], [0, 24, 32, 48, 56]]  # columns at lines of 8 cells
    m, q = 1, 2  # bits of the kinds that are absent
    assert flags[1, 0].tolist() == [q, 0, 0, 0, q]
    assert (flags[1, 1] == q).all()
    assert (flags[[0, 2], 0] == [m + q, m, m, m, m + q]).all()
    assert (flags[[0, 2], 1] == m + q).all()


def test_what_a_window_held_before_is_cleared_where_it_may_be():
    absence = Absence.of(posed({"m": og.Box(z=(10, 20)), "q": og.Box(y=(0, 5), x=(30, 50))}))
    m, q = 1 << KIND_BITS, 2 << KIND_BITS
    _, planes = table(absence, Remains.PLANES)
    assert (planes[0, 1] == 3 + m).all()  # the rows of m were elsewhere, q was never there
    _, rows = table(absence, Remains.ROWS)
    assert rows[0, 1].tolist() == [3 + m, 3 + m + q, 3 + m + q, 3 + m + q, 3 + m]
    assert rows[1, 1].tolist() == [2, 2 + q, 2 + q, 2 + q, 2]  # m is here


def test_a_plane_that_stands_for_others_is_not_cleared():
    boxes = [og.Box(z=(10, 20)), og.Box(z=(25, 28), y=(0, 5))]
    absence = Absence.of(posed({"m": boxes, "q": og.Box(z=(10, 28))}))
    cuts, planes = table(absence, Remains.PLANES, banded=True)
    assert cuts[:2] == [[0, 9, 21, 24, 29], [0, 6]]
    cleared = planes & 1 << KIND_BITS != 0
    assert cleared[:, :, 0].tolist() == [
        [False] * 2,
        [False] * 2,
        [False] * 2,
        [False, True],
        [False] * 2,
    ]
    _, planes = table(absence, Remains.PLANES)
    assert (planes[[0, 2, 4]] & 1 << KIND_BITS != 0).all()


@pytest.mark.parametrize("tier", ["memory", "direct"])
def test_tables_follow_what_the_window_keeps(tier):
    problem = posed({"m": og.Box(z=(10, 20)), "q": og.Shell(3)})
    absence = Absence.of(problem)
    chosen = plan(problem, RunOptions.of(memory="1GiB", tier=tier), MACHINE, 1 << 20)
    given = absence.members(chosen)["region_parts"]
    banded = tier == "direct"
    expected = absence.tables[banded * len(Remains) + Remains.of(chosen)]
    assert given == expected.ctypes.data


def test_regions_reach_round_an_axis_that_closes():
    regions = {name: og.Box(z=(0, 2)) for name in ("m", "q")}
    _, flags = table(Absence.of(posed(regions)))
    assert flags[:, 0, 0].tolist() == [0, 1]
    _, flags = table(Absence.of(posed(regions, {"z": "periodic", "y": "neumann"})))
    assert flags[:, 0, 0].tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("options", "remains"),
    [
        ({"tier": "memory"}, Remains.NOWHERE),
        ({"tier": "direct"}, Remains.PLANES),
        ({"tier": "direct", "strip_rows": 20}, Remains.ROWS),
        ({"tier": "direct", "scheme": "overlapped"}, Remains.ROWS),
    ],
    ids=str,
)
def test_what_remains_follows_from_the_plan(options, remains):
    problem = posed({"m": og.Shell(3), "q": og.Shell(3)})
    chosen = plan(problem, RunOptions.of(memory="1GiB", **options), MACHINE, 1 << 20)
    assert Remains.of(chosen) is remains


def test_many_boxes_are_all_inside():
    boxes = [og.Box(z=(n, n + 1), y=(n, n + 1)) for n in range(0, 30, 2)]
    assert Absence.of(posed({"m": boxes, "q": og.Box(z=(0, 1))})).parts[0] <= MOST_PARTS
    cells = [og.Box(x=(n, n + 1), y=(n % 40, n % 40 + 1)) for n in range(0, 96, 2)]
    assert Absence.of(posed({"m": cells, "q": og.Box(z=(0, 1))})) == Absence()
    assert Absence.of(posed({})) == Absence()
    assert Absence.of(posed({"m": og.Box(z=(0, 9))})).tables  # q is everywhere
