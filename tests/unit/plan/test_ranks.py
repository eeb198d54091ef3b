"""Cuts and depths of ranks that stream, on the nodes of a cluster with 153 GiB of flash each."""

import itertools
from collections import deque

import pytest
from msgspec.structs import replace

from outgrid.config import RunOptions
from outgrid.errors import InfeasiblePlan, UsageError
from outgrid.machine import Machine, Network
from outgrid.plan.program import Advance, Get, Receive, Send, program
from outgrid.plan.ranks import Ranks, plan_rank
from outgrid.plan.schedule.trip import Span
from outgrid.stencil.problem import Problem

GIB = 1 << 30
NODE = Machine(16, 96 * 10**9, 1 << 20, 1 << 25, 1e11, 0.3e9, 0.26e9, False, "", "", "", "")
FAST = replace(NODE, read_bandwidth=2e10, write_bandwidth=2e10, mixed_bandwidth=2e10)
RANKS = Ranks(3, 8, Network(3e9, 5e-6), disk_bytes=153 * GIB)


def planned(
    shape, ranks=RANKS, memory="88GiB", node=NODE, around="dirichlet", steps=256, **options
):
    problem = Problem("heat7", shape, "float64", steps, {"k": 0.1}, around, {"u": 0.0})
    asked = RunOptions.of(memory=memory, tier="direct", **options)
    return plan_rank(problem, asked, node, 64 << 20, ranks)


def test_a_cuboid_is_cut_and_swept_as_was_published():
    found = planned((16386, 2050, 2048), exchange="halos")
    assert (found.schedule.subgrid.cut, found.depth) == ((8, 1), 128)
    assert found.volume.disk_bytes <= 153 * GIB
    assert "4 x 2 parts" in found.notes[-2]
    assert "depth 256 does not fit: a sweep of 256 steps keeps 1" in found.notes[-1]
    assert "which has 153 GiB" in found.notes[-1]


def test_a_cube_is_cut_as_was_published_and_swept_deeper_since_ends_of_the_grid_need_no_halo():
    """With halos at both ends of an axis that is cut, 64 steps would take 153.4 GiB."""
    found = planned((4098, 4098, 4096), exchange="halos")
    assert (found.schedule.subgrid.cut, found.depth) == ((4, 2), 64)
    assert "depth 86 does not fit" in found.notes[-1]


@pytest.mark.parametrize(
    ("shape", "cut", "depth"),
    [((16386, 2050, 2048), (8, 1), 128), ((4098, 4098, 4096), (4, 2), 64)],
)
def test_so_are_both_in_blocks_of_each_part(shape, cut, depth):
    found = planned(shape, scheme="overlapped")
    assert (found.schedule.subgrid.cut, found.depth) == (cut, depth)
    assert found.schedule.blocks.core == (1024, 1024)
    assert found.volume.disk_bytes <= 153 * GIB
    assert f"a halo for sweeps of {256 if depth == 128 else 86} steps has 1" in found.notes[-1]


@pytest.mark.parametrize("given", [{"exchange": "halos"}, {"scheme": "overlapped"}], ids=str)
def test_fewer_than_seven_nodes_have_no_room_for_a_tebibyte(given):
    for count in range(1, 7):
        with pytest.raises(InfeasiblePlan, match=r"sweeps? of 1 steps .* 153 GiB"):
            planned((4098, 4098, 4096), replace(RANKS, rank=0, count=count), **given)
    found = planned((4098, 4098, 4096), replace(RANKS, rank=0, count=7), **given)
    assert found.volume.disk_bytes <= 153 * GIB
    assert found.depth >= 8


@pytest.mark.parametrize(
    ("error", "options", "words"),
    [
        (UsageError, {"exchange": "seams"}, "'seams' needs a scheme that streams planes"),
        (UsageError, {"block": [4, 4, 9]}, "must not cut rows: its extent in x"),
        (InfeasiblePlan, {"block": [40, 20, 14], "memory": "65600KiB"}, "a limit of 97 MiB fits"),
    ],
)
def test_blocks_on_ranks_that_cannot_be_are_refused(error, options, words):
    with pytest.raises(error, match=words):
        planned((40, 20, 16), Ranks(0, 2, Network()), scheme="overlapped", **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cuts": [5]}, r"2 x 1 parts, and 3 ranks are not a multiple of that; start 2 ranks"),
        ({"cuts": [9, 4]}, r"cuts = \[9, 4\] must be increasing planes between 0 and 20"),
        ({"row_cuts": [3, 30]}, r"row_cuts = \[3, 30\] must be increasing rows between 0 and 10"),
    ],
)
def test_cuts_that_cannot_be_are_refused(options, words):
    with pytest.raises(UsageError, match=words):
        planned((20, 10, 16), Ranks(0, 3, Network()), **options)


def test_more_ranks_than_planes_share_the_rows():
    assert planned((3, 40, 16), Ranks(0, 8, Network())).schedule.subgrid.cut[1] > 1
    with pytest.raises(InfeasiblePlan, match="7 ranks cannot share 3 planes of 3 rows"):
        planned((3, 3, 16), Ranks(0, 7, Network()))


def test_neighbours_stream_in_opposite_directions_so_that_messages_have_a_sweep_to_arrive_in():
    shape, count = (240, 8, 16), 4
    ranks = [Ranks(rank, count, Network()) for rank in range(count)]
    given = {"depth": 8, "slab_planes": 4, "cuts": [66, 120, 174], "exchange": "halos"}
    plans = [planned(shape, each, **given) for each in ranks]
    assert [each.schedule.domain.downward for each in plans] == [False, True, False, True]
    made, needed = {}, {}  # planes of the front to the end of a sweep, and into the next one
    for rank, plan in enumerate(plans):
        gets, received, got = deque(), set(), 0
        for each in program(plan):
            match each:
                case Send():
                    left = (
                        each.trip.index + 1
                    ) * plan.schedule.pitch_planes - 4 * each.gate.advanced
                    made |= {(each.peer, each.state, at): left for at in each.there.planes}
                case Receive():
                    received |= {(each.state, at) for at in each.there.planes}
                case Get():
                    gets.append(each)
                case Advance():
                    while got < each.gate.got:
                        get, got = gets.popleft(), got + 1
                        front = 4 * each.index - get.trip.index * plan.schedule.pitch_planes
                        planes = {(get.state, at) for at in get.there.planes}
                        for at in received & planes:
                            needed.setdefault((rank, *at), front)
    assert made.keys() == needed.keys()
    assert made
    sweep = min(plan.schedule.pitch_planes for plan in plans)
    halo = plans[0].schedule.subgrid.beyond[0].cells(8)
    assert min(made[key] + needed[key] for key in made) >= sweep - 3 * halo > 2 * halo


def test_parts_thinner_than_a_halo_are_all_streamed_upward():
    plans = [
        planned(
            (40, 8, 16),
            Ranks(rank, 4, Network()),
            depth=depth,
            cuts=[10, 20, 30],
            exchange="halos",
        ).schedule.domain.downward
        for depth in (10, 11)
        for rank in range(4)
    ]
    assert plans == [False, True, False, True, False, False, False, False]


def seamed(shape, count, **options):
    """The plans of ranks that leave seams."""
    ranks = (Ranks(rank, count, Network()) for rank in range(count))
    return [planned(shape, each, exchange="seams", **options) for each in ranks]


def test_seams_are_left_where_halos_would_cost_more_and_the_plan_says_what():
    given = {"depth": 48, "node": FAST, "around": {"y": "periodic"}, "steps": 2048}
    found = planned((800, 2048, 2048), Ranks(1, 4, Network(1e11, 1e-6)), **given)
    assert found.schedule.subgrid.seams
    assert found.schedule.redundancy == 0
    assert any("and seams: cut into 4 x 1 parts" in note for note in found.notes)
    assert "nothing is computed twice" in found.explain()
    flat = planned((4000, 64, 64), Ranks(1, 2, Network()), depth=1)
    assert not flat.schedule.subgrid.seams
    other = planned((4000, 64, 64), Ranks(1, 2, Network()), depth=1, exchange="seams")
    assert other.schedule.subgrid.seams
    assert other.prediction.wait_seconds > flat.prediction.wait_seconds == 0


def test_ranks_that_leave_seams_own_more_and_compute_as_much_as_those_that_take_them():
    plans = seamed((480, 40, 32), 4, depth=8)
    bounds = plans[0].schedule.subgrid.bounds[0]
    owned = [high - low for low, high in itertools.pairwise(bounds)]
    assert owned == [120 + 5, 120 - 9, 120 + 9, 120 - 5]  # 4.5 planes at each cut
    every = 480 * 40 * 8 / 4
    for plan in plans:
        assert plan.schedule.row_updates / plan.sweeps == pytest.approx(every, rel=0.01)
    assert sum(plan.schedule.row_updates for plan in plans) == 480 * 40 * 256
    seam, back = (8 + 8) * 40 * 32 * 8, 8 * 40 * 32 * 8  # planes of two rings, and of a level
    assert [plan.volume.sent_bytes // plan.sweeps for plan in plans] == [
        seam,
        2 * back,
        2 * seam,
        back,
    ]
    assert [plan.volume.received_bytes // plan.sweeps for plan in plans] == [
        back,
        2 * seam,
        2 * back,
        seam,
    ]


@pytest.mark.parametrize(
    ("error", "options", "words"),
    [
        (UsageError, {"row_cuts": [20]}, "leave row_cuts out, or choose exchange = 'halos'"),
        (InfeasiblePlan, {"depth": 30}, r"use depth \d+ or fewer ranks or exchange = 'halos'"),
        (InfeasiblePlan, {"cuts": [3, 20, 60], "depth": 4}, "rank 0 owns 3 planes, but seams"),
    ],
)
def test_seams_that_cannot_be_are_refused(error, options, words):
    with pytest.raises(error, match=words):
        seamed((80, 40, 32), 4, **options)


def test_halos_are_taken_where_parts_are_too_thin_for_seams():
    found = planned((80, 40, 32), Ranks(0, 4, Network()), depth=30, cuts=[20, 40, 60])
    assert not found.schedule.subgrid.seams
    assert any("seams do not fit: " in note for note in found.notes)


@pytest.mark.parametrize("steps", [2000, 2001])
def test_many_sweeps_are_planned_like_few(steps, monkeypatch):
    """What sweeps of one depth have alike is found once, however many there are."""
    asked = []

    def at(self, step, *given):
        asked.append(step)
        return found(self, step, *given)

    found = Span.at
    monkeypatch.setattr(Span, "at", at)
    plan = planned((300, 40, 64), Ranks(1, 3, Network()), "1GiB", steps=steps, depth=2)
    assert plan.sweeps >= 1000
    assert plan.schedule.row_updates > plan.work.updates // 64
    assert len(asked) < 1000
