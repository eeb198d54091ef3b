import pytest

from outgrid.definition import stencil
from outgrid.plan.schedule.lifetime import Dependences, Lifetime, dependences, lifetimes, ring_count
from outgrid.plan.schedule.skew import Reading, Writing
from outgrid.stencil.catalog import resolve


def lives(name, field, depth, ndim=3):
    """Spans of the rings of a field over one sweep."""
    rule = resolve(name).trace(ndim)
    found = dependences(rule)
    rings = ring_count(rule.field(field), rule)
    return lifetimes(field, rings, found, found.skew(), frozenset({(0, depth)}))


@pytest.mark.parametrize("depth", [2, 4, 8])
@pytest.mark.parametrize(("name", "radius"), [("heat7", 1), ("wave:4", 2), ("wave:8", 4)])
def test_both_rings_of_an_even_depth_hold_one_radius_per_step(name, radius, depth):
    assert [life.span for life in lives(name, "u", depth)] == [radius * depth] * 2


@pytest.mark.parametrize("depth", [1, 3, 7])
@pytest.mark.parametrize(("name", "radius"), [("heat7", 1), ("wave:4", 2)])
def test_an_odd_depth_loads_the_ring_of_arrival(name, radius, depth):
    even, odd = lives(name, "u", depth)
    assert even == Lifetime(0, radius * (depth + 1))
    # The level before the current one of a wave is still read by the first step.
    assert odd.high == radius * depth
    assert odd.span == radius * (depth - 1)


@pytest.mark.parametrize(("name", "reach"), [("wave:8", 0), ("shallow_water", 1)])
@pytest.mark.parametrize("depth", [1, 4])
def test_a_coefficient_stays_one_step_less(name, reach, depth):
    ndim, field = (2, "h") if name == "shallow_water" else (3, "c")
    radius = 1 if name == "shallow_water" else 4
    (life,) = lives(name, field, depth, ndim)
    assert life.span == radius * (depth - 1) + 2 * reach


def test_staggered_fields_in_place_hold_one_plane_per_step():
    readings = (
        Reading(0, "e", -1, 0, 0),
        Reading(0, "h", -1, -1, 0),
        Reading(1, "h", -1, 0, 0),
        Reading(1, "e", 0, 0, 1),
        Reading(0, "k", -1, 0, 0),
    )
    found = Dependences(2, readings, (Writing(0, "e", 1), Writing(1, "h", 1)))
    skew = found.skew()
    spans = {
        field: lifetimes(field, 1, found, skew, frozenset({(0, 6)}))[0].span for field in "ehk"
    }
    assert (skew.per_step, spans) == (1, {"e": 6, "h": 6, "k": 5})


def test_the_longest_of_several_sweeps_counts():
    rule = resolve("heat7").trace(3)
    found = dependences(rule)
    sweeps = frozenset({(0, 2), (0, 6)})
    spans = [life.span for life in lifetimes("u", 2, found, found.skew(), sweeps)]
    assert spans == [6, 6]


def staggered(e, h):
    return [{"h": h + e[1, 0] - e}, {"e": e + h - h[-1, 0]}]


def test_what_a_stage_reads_of_an_earlier_one_is_of_the_same_step():
    rule = stencil(staggered).trace(2)
    found = dependences(rule)
    assert set(found.readings) == {
        Reading(0, "h", -1, 0, 0),
        Reading(0, "e", -1, 0, 1),
        Reading(1, "e", -1, 0, 0),
        Reading(1, "h", 0, -1, 0),
    }
    assert [ring_count(rule.field(name), rule) for name in "eh"] == [1, 1]
    assert found.skew().per_step == 1


@pytest.mark.parametrize(
    ("rule", "field", "rings"),
    [
        (lambda u, v: [{"u": u + v[0, 1]}, {"v": v + u[1, 0]}], "v", 1),
        (lambda u, v: [{"u": u + v[0, 1]}, {"v": v + v[1, 0] + u}], "v", 2),
        (lambda u, v: {"u": u + v[0, 1], "v": v + u}, "v", 2),
        (lambda u, v: {"u": u + v[0, 1], "v": v + u}, "u", 1),
        (lambda u, v: [{"u": u + v.previous[0, 1]}, {"v": v + u}], "v", 3),
        (lambda u: u[0, 1], "u", 2),
        (lambda u: u - u.previous, "u", 2),
        (lambda u: u - u.previous[0, 1], "u", 3),
        (lambda u, c: u[0, 1] + c[1, 0], "c", 1),
    ],
)
def test_an_older_level_read_beside_its_cell_takes_a_third_ring(rule, field, rings):
    traced = stencil(name="rule")(rule).trace(2)
    assert ring_count(traced.field(field), traced) == rings
