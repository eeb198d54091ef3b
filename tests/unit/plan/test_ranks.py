"""Cuts and depths of ranks that stream, on the nodes of a cluster with 153 GiB of flash each."""

import pytest

from outgrid.config import RunOptions
from outgrid.errors import InfeasiblePlan, UsageError
from outgrid.machine import Machine, Network
from outgrid.plan.ranks import Ranks, plan_rank
from outgrid.stencil.problem import Problem

GIB = 1 << 30
NODE = Machine(16, 96 * 10**9, 1 << 20, 1 << 25, 1e11, 0.3e9, 0.26e9, False, "", "", "", "")
RANKS = Ranks(3, 8, Network(3e9, 5e-6), disk_bytes=153 * GIB)


def planned(shape, ranks=RANKS, memory="88GiB", **options):
    problem = Problem("heat7", shape, "float64", 256, {"k": 0.1}, initial={"u": 0.0})
    asked = RunOptions.of(memory=memory, tier="direct", **options)
    return plan_rank(problem, asked, NODE, 64 << 20, ranks)


def test_a_cuboid_is_cut_and_swept_as_was_published():
    found = planned((16386, 2050, 2048))
    assert (found.subgrid.cut, found.depth) == ((8, 1), 128)
    assert found.disk_bytes <= 153 * GIB
    assert "4 x 2 parts" in found.notes[-2]
    assert "depth 256 does not fit: a sweep of 256 steps keeps 1" in found.notes[-1]
    assert "which has 153 GiB" in found.notes[-1]


def test_a_cube_is_cut_as_was_published_and_swept_deeper_since_ends_of_the_grid_need_no_halo():
    """With halos at both ends of an axis that is cut, 64 steps would take 153.4 GiB."""
    found = planned((4098, 4098, 4096))
    assert (found.subgrid.cut, found.depth) == ((4, 2), 64)
    assert "depth 86 does not fit" in found.notes[-1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cuts": [5]}, r"2 x 1 parts, of which 3 ranks are no multiple; start 2 ranks"),
        ({"cuts": [9, 4]}, r"cuts = \[9, 4\] has to name rising planes between 0 and 20"),
        ({"row_cuts": [3, 30]}, r"row_cuts = \[3, 30\] has to name rising rows between 0 and 10"),
    ],
)
def test_cuts_that_cannot_be_are_refused(options, words):
    with pytest.raises(UsageError, match=words):
        planned((20, 10, 16), Ranks(0, 3, Network()), **options)


def test_more_ranks_than_planes_share_the_rows():
    assert planned((3, 40, 16), Ranks(0, 8, Network())).subgrid.cut[1] > 1
    with pytest.raises(InfeasiblePlan, match="7 ranks cannot share 3 planes of 3 rows"):
        planned((3, 3, 16), Ranks(0, 7, Network()))
