"""Boxes: a whole grid, counted from a cell, within another."""

import pytest

from outgrid.plan.schedule.subgrid import Box


@pytest.mark.parametrize(
    ("shape", "rows"), [((5, 4, 3), range(4)), ((5, 3), range(1))], ids=["3-D", "2-D"]
)
def test_a_whole_grid_has_one_row_in_each_plane_of_2_d(shape: tuple[int, ...], rows: range) -> None:
    assert Box.whole(shape) == Box(range(5), rows)


def test_cells_are_counted_from_the_first_that_is_there() -> None:
    assert Box(range(4, 9), range(2, 3)).counted_from(3, 2) == Box(range(1, 6), range(1))


def test_planes_that_go_downward_stay_in_their_order() -> None:
    assert Box(range(8, 3, -1), range(2)).counted_from(3, 0) == Box(range(5, 0, -1), range(2))


@pytest.mark.parametrize(
    ("box", "inside"),
    [
        (Box(range(5), range(4)), True),
        (Box(range(1, 2), range(3, 4)), True),
        (Box(range(6), range(4)), False),
        (Box(range(5), range(1, 5)), False),
        (Box(range(-1, 5), range(4)), False),
        (Box(range(5), range(-1, 4)), False),
    ],
)
def test_a_box_is_within_another_where_no_end_is_beyond(box: Box, inside: bool) -> None:
    assert box.within(Box(range(5), range(4))) is inside
