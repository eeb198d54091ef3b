import pytest

from outgrid.errors import DefinitionError
from outgrid.plan.schedule.skew import MAX_SKEW, Reading, Slope, Writing, solve, solve_both_ways


def one_field(low, high, rings=2):
    """One stage that reads its own field one step back."""
    return 1, (Reading(0, "u", -1, low, high),), (Writing(0, "u", rings),)


def two_fields(e_reads_h, h_reads_e, rings=(1, 1)):
    """E from the last H, then H from the new E, each also from its own last value."""
    readings = (
        Reading(0, "e", -1, 0, 0),
        Reading(0, "h", -1, *e_reads_h),
        Reading(1, "h", -1, 0, 0),
        Reading(1, "e", 0, *h_reads_e),
    )
    return 2, readings, (Writing(0, "e", rings[0]), Writing(1, "h", rings[1]))


def both_from_old(own, other, rings):
    """Two stages that both read only values from before the step."""
    readings = tuple(
        Reading(reader, field, -1, -radius, radius)
        for reader in (0, 1)
        for field, radius in (("ab"[reader], own[reader]), ("ba"[reader], other[reader]))
    )
    return 2, readings, (Writing(0, "a", rings), Writing(1, "b", rings))


@pytest.mark.parametrize(("below", "above"), [(0, 0), (1, 1), (3, 1), (1, 3), (0, 2), (2, 0)])
def test_one_sided_readings_count_with_the_larger_side(below, above):
    assert solve(*one_field(-below, above)).per_step == max(below, above)


@pytest.mark.parametrize("radius", [1, 2, 4])
def test_second_order_in_time_needs_no_more_than_first(radius):
    stages, readings, writings = one_field(-radius, radius)
    readings += (Reading(0, "u", -2, 0, 0),)
    assert solve(stages, readings, writings).per_step == radius


def test_an_older_level_read_beside_its_cell_cannot_be_overwritten_in_place():
    stages, readings, writings = one_field(-1, 1)
    readings += (Reading(0, "u", -2, -1, 1),)
    with pytest.raises(DefinitionError, match="no skew up to"):
        solve(stages, readings, writings)
    assert solve(stages, readings, (Writing(0, "u", 3),)).per_step == 1


def test_staggered_fields_in_place_trail_by_one_plane_not_two():
    assert solve(*two_fields((-1, 0), (0, 1))).per_step == 1


@pytest.mark.parametrize("half", [1, 2, 3, 4])
def test_staggered_fields_of_higher_order(half):
    found = solve(*two_fields((-half, half - 1), (1 - half, half)))
    assert found.per_step == 2 * half - 1


@pytest.mark.parametrize(("first", "second"), [(1, 2), (3, 1), (2, 4)])
def test_unequal_half_widths_count_with_the_larger_one(first, second):
    found = solve(*two_fields((-first, first - 1), (1 - second, second)))
    assert found.per_step == 2 * max(first, second) - 1


@pytest.mark.parametrize(("first", "second"), [(1, 1), (1, 3), (3, 1), (2, 4)])
def test_two_symmetric_stages_in_place_trail_by_twice_the_larger_radius(first, second):
    assert solve(*two_fields((-first, first), (-second, second))).per_step == 2 * max(first, second)


@pytest.mark.parametrize(("first", "second"), [(1, 1), (1, 3), (3, 1), (2, 4)])
def test_one_more_ring_for_the_wider_reading_brings_the_sum_of_the_radii(first, second):
    rings = (1, 2) if first > second else (2, 1)
    found = solve(*two_fields((-first, first), (-second, second), rings))
    assert found.per_step == first + second


@pytest.mark.parametrize(
    ("own", "other", "rings", "skew"),
    [
        ((2, 1), (1, 1), 2, 2),
        ((0, 0), (1, 1), 2, 1),
        ((1, 1), (3, 1), 2, 3),  # the ring that is read so far must not be overwritten so soon
        ((1, 1), (3, 1), 3, 2),  # with a ring more only the mean over the cycle counts
        ((1, 1), (4, 1), 3, 3),
    ],
)
def test_two_fields_from_old_values(own, other, rings, skew):
    assert solve(*both_from_old(own, other, rings)).per_step == skew


def test_stages_that_wait_for_each_other_are_refused_with_their_number():
    readings = (Reading(0, "h", 0, -1, 1), Reading(1, "e", 0, -1, 1))
    writings = (Writing(0, "e", 1), Writing(1, "h", 1))
    with pytest.raises(DefinitionError, match=f"up to {MAX_SKEW} planes .* 2 stages"):
        solve(2, readings, writings)


@pytest.mark.parametrize(("low", "high", "slope"), [(-1, 1, 1), (0, 3, 3), (-4, 1, 4), (0, 0, 1)])
def test_edges_that_move_both_ways_of_one_stage_keep_to_the_radius(low, high, slope):
    assert solve_both_ways(*one_field(low, high)) == Slope(1, slope, (0,), (0,))


@pytest.mark.parametrize(("low", "high", "slope"), [(-1, 1, 8), (0, 9, 16), (-8, 0, 8)])
def test_edges_between_vectors_stay_there(low, high, slope):
    assert solve_both_ways(*one_field(low, high), unit=8) == Slope(8, slope, (0,), (0,))


def test_tiles_of_staggered_fields_lean_by_stage():
    assert solve_both_ways(*two_fields((-1, 0), (0, 1))) == Slope(1, 1, (0, 1), (0, 0))
