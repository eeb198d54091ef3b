"""Cubes between memory and caches: the bytes of plain sweeps, and what is computed twice."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrid.errors import UsageError
from outgrid_bench.cubes import Blocking, Cubes, K, repeated


def by_numpy(values, steps):
    for _ in range(steps):
        inner = values[1:-1, 1:-1, 1:-1]
        along_x = values[1:-1, 1:-1, :-2] + values[1:-1, 1:-1, 2:]
        along_y = values[1:-1, :-2, 1:-1] + values[1:-1, 2:, 1:-1]
        along_z = values[:-2, 1:-1, 1:-1] + values[2:, 1:-1, 1:-1]
        after = values.copy()
        after[1:-1, 1:-1, 1:-1] = inner + K * ((along_x + along_y) + along_z - 6.0 * inner)
        values = after
    return values


@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_any_cubes_leave_the_bytes_of_plain_sweeps(data):
    shape = tuple(data.draw(st.integers(3, 20)) for _ in range(3))
    depth = data.draw(st.integers(0, 5))
    tile = data.draw(st.sampled_from([None, 1, 3, 40]))
    blocking = Blocking(data.draw(st.integers(1, 24)), depth, tile)
    cubes, steps = Cubes(shape), max(1, depth) * data.draw(st.integers(1, 2))
    cubes.run(blocking, steps, data.draw(st.integers(1, 3)))
    expected = by_numpy(cubes._first, steps)
    assert cubes._grids[0].tobytes() == expected.tobytes()


def test_what_halos_repeat_is_counted():
    assert repeated((10, 10, 10), Blocking(8, 4)) == 1
    assert repeated((10, 10, 10), Blocking(4, 1)) == 1
    # Two halves of each axis: in the first of two steps both make one cell more.
    assert repeated((10, 10, 10), Blocking(4, 2)) == pytest.approx(((10 / 8) ** 3 + 1) / 2)


def test_steps_that_blocks_cannot_make_are_refused():
    with pytest.raises(UsageError, match="no multiple of 4"):
        Cubes((8, 8, 8)).run(Blocking(4, 4), 6, 1)
    assert np.isfinite(Cubes((8, 8, 8))._first).all()
