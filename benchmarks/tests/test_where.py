"""The parts of an update's time are differences of measured times, and add up to it."""

from dataclasses import astuple

import pytest

from outgrid_bench.rows import Row
from outgrid_bench.where import HEADING, parts, where_lines


def row(mode, glups, **others):
    return Row("heat7", "float64", mode, 0, (8, 8, 8), 4, glups, 9 * glups, **others)


ROWS = [
    Row("fma", "float64", "peak", 0, (), 0, gflops=90.0),
    row("ceiling-l1", 4.0),
    row("ceiling-l2", 5.0),
    row("plain", 1.0),
    row("tiled", 3.0),
    Row(
        *("heat7", "float64", "outofcore", 8.0, (64, 8, 8), 4, 2.0),
        wait_share=0.1,
        tiled_beside=(4.0, 4.0),
        resident_beside=(2.5, 2.5),
    ),
    Row("heat7", "float64", "outofcore", 1.0, (8, 8, 8), 4, 9.0),
]


def test_the_largest_grid_is_taken_apart_by_what_was_measured_beside_it():
    found = parts(ROWS[1:], 90.0)
    assert found is not None
    expected = (0.5, 0.1, 0.2 - 0.1, 0.25 - 0.2, 0.4 - 0.25, 0.5 - 0.4 - 0.05, 0.05)
    assert astuple(found) == pytest.approx(expected)
    assert sum(astuple(found)[1:]) == pytest.approx(found.total)
    assert where_lines(ROWS) == [
        ("heat7 float64", "0.500", "20%", "20%", "10%", "30%", "10%", "10%")
    ]
    assert len(where_lines(ROWS)[0]) == len(HEADING)


@pytest.mark.parametrize("missing", ["peak", "ceiling", "tiled", "outofcore"])
def test_nothing_is_said_where_a_rate_is_missing(missing):
    assert where_lines([row for row in ROWS if not row.mode.startswith(missing)]) == []
