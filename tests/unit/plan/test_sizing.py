import pytest
from hypothesis import given
from hypothesis import strategies as st

import outgrid as og
from outgrid.plan.schedule.window import sweeps_by_base
from outgrid.plan.sizing import Sizing
from outgrid.plan.sweeps import given_steps, split_steps
from outgrid.stencil.problem import Problem


@pytest.mark.parametrize(
    ("steps", "depth", "sweeps"),
    [
        (0, 4, ()),
        (1, 4, (1,)),
        (4, 4, (4,)),
        (16, 4, (4, 4, 4, 4)),
        (10, 4, (2, 4, 4)),
        (10, 5, (5, 5)),
        (11, 5, (3, 4, 4)),
        (9, 4, (1, 4, 4)),
        (7, 64, (7,)),
        (13, 8, (5, 8)),
        (12, 6, (6, 6)),
        (14, 6, (2, 6, 6)),
    ],
)
def test_steps_are_split_into_sweeps(steps, depth, sweeps):
    assert split_steps(steps, depth) == sweeps


@given(st.integers(1, 10**6), st.integers(1, 300))
def test_any_split_makes_all_steps_and_puts_the_shorter_sweep_first(steps, depth):
    sweeps = split_steps(steps, depth)
    assert sum(sweeps) == steps
    assert all(1 <= each <= depth for each in sweeps)
    assert list(sweeps) == sorted(sweeps)
    assert len(set(sweeps[1:])) <= 1
    assert len(sweeps) <= -(-steps // depth)


def problem(name="heat7", shape=(40, 16, 64), steps=12):
    names = {"heat7": ["u"], "wave:4": ["u", "c"]}[name]
    return Problem(name, shape, "float64", steps, initial=dict.fromkeys(names, 0.0))


def test_rings_hold_their_span_a_slab_and_what_is_moved_beside_it():
    rings = {(r.field, r.index): r.planes for r in Sizing(problem()).window.rings((6, 6), 5, False)}
    # Both in and out of the even ring, nothing in or out of the odd one.
    assert rings == {("u", 0): 6 + 5 + 5 + 5, ("u", 1): 6 + 5}
    rings = {(r.field, r.index): r.planes for r in Sizing(problem()).window.rings((5, 5), 5, False)}
    assert rings == {("u", 0): 6 + 5 + 5, ("u", 1): 4 + 5 + 5}
    rings = {
        (r.field, r.index): r.planes
        for r in Sizing(problem("wave:4")).window.rings((6, 6), 4, False)
    }
    assert rings == {("u", 0): 12 + 12, ("u", 1): 12 + 12, ("c", 0): 10 + 4 + 4}


def test_rings_of_deep_sweeps_read_into_the_place_of_what_was_written():
    def planes(name, depths, slab):
        window = Sizing(problem(name), shared_from=6).window
        return [ring.planes for ring in window.rings(depths, slab, False)]

    assert planes("heat7", (2, 6), 5) == [6 + 10, 6 + 5]
    assert planes("heat7", (4, 4), 5) == [4 + 15, 4 + 5]
    assert planes("heat7", (7, 7), 5) == [8 + 10, 6 + 10]  # in by one ring, out by the other
    assert planes("wave:4", (6, 6), 4) == [12 + 8, 12 + 8, 10 + 8]


def test_a_resident_plan_holds_whole_fields():
    assert [r.planes for r in Sizing(problem()).window.rings((6, 6), 5, True)] == [40, 40]


def test_the_next_sweep_begins_a_multiple_of_the_slab_later():
    sizing = Sizing(problem(shape=(11, 16, 64)))
    assert sizing.schedule((2,), 3).pitch_planes == 12
    assert sizing.schedule((8,), 3).pitch_planes == 18  # 8 behind the front and three slabs
    assert sizing.schedule((8,), 3, resident=True).pitch_planes == 21


def test_bytes_follow_from_levels_and_trips():
    field = 40 * 16 * 64 * 8
    heat, wave = Sizing(problem()), Sizing(problem("wave:4"))
    found = heat.traffic(heat.schedule((2, 4, 4), 5))
    assert found.moved_bytes == (3 * field, 3 * field)
    assert found.disk_bytes() == 2 * field
    # Two levels in and out, a coefficient in.
    found = wave.traffic(wave.schedule((4, 4, 4), 5))
    assert found.moved_bytes == (9 * field, 6 * field)
    assert found.disk_bytes() == 5 * field


def test_a_seam_moves_twice_the_skew_for_each_level_and_border():
    sizing = Sizing(problem(shape=(40, 160, 64)))
    row = 40 * 64 * 8
    strips = sizing.strips(4, 41)  # 164 / 41: four strips, three borders
    assert strips.count(4) == 4
    found = sizing.traffic(sizing.schedule((4,), 5, strips=strips))
    assert found.moved_bytes == (row * (160 + 3 * 8), row * (160 + 3 * 8))
    assert found.disk_bytes() == row * (2 * 160 + 8)
    assert sizing.layout(strips, 4).window_rows == 41 + 5


@pytest.mark.parametrize(("order", "skew"), [(2, 1), (4, 3), (6, 5)])
def test_strips_of_staggered_fields_save_as_many_rows_of_each_as_they_lean(order, skew):
    """Two stages in place, half a cell apart: ring by ring no more than what the skew moves."""
    half = order // 2

    @og.stencil(ndim=3)
    def pair(e, h):
        return [
            {"h": h + 0.1 * (e[0, half, 0] - e[0, 1 - half, 0])},
            {"e": e + 0.1 * (h[0, half - 1, 0] - h[0, -half, 0])},
        ]

    given = Problem(pair, (40, 160, 64), "float64", 12, initial={"e": 0.0, "h": 0.0})
    sizing = Sizing(given)
    for depth in (1, 4, 5):
        strips = sizing.strips(depth, 60)
        assert strips.fall.per_step == skew
        (seam,) = sizing.seams((depth,), strips=strips)
        rows = {(each.field, each.index): each.high - each.low for each in seam.stairs}
        assert rows == {("e", 0): skew * depth, ("h", 0): skew * depth}


def test_sweeps_are_told_apart_by_the_ring_they_begin_in():
    assert sweeps_by_base((1, 4, 4, 4), resident=False) == {(0, 1), (0, 4)}
    assert sweeps_by_base((2, 4, 4, 4, 4), resident=True) == {(0, 2), (2, 4), (0, 4), (4, 4)}


@pytest.mark.parametrize(
    ("steps", "depth", "sweeps"),
    [(256, 36, (4, *[36] * 7)), (12, 4, (4, 4, 4)), (5, 5, (5,)), (7, 1, (1,) * 7), (3, 8, (3,))],
)
def test_a_depth_that_was_asked_for_is_kept(steps, depth, sweeps):
    assert given_steps(steps, depth) == sweeps
