import numpy as np
import pytest

from outgrid import Problem
from outgrid.observe.still import _places
from outgrid_bench.workloads import choose


@pytest.mark.parametrize("shape", [(40, 30, 50), (40, 30)])
def test_planes_without_a_region_are_looked_at_all_over(shape):
    posed = Problem(
        "heat7" if len(shape) == 3 else "heat5", shape, "float32", 1, initial={"u": 0.0}
    )
    places = _places(posed, "u")
    rows, columns = ({place[axis] for place in places} for axis in (0, 1))
    assert columns == {shape[-1] // 4, shape[-1] // 2, shape[-1] * 3 // 4}
    assert rows == ({7, 15, 22} if len(shape) == 3 else {0})


def test_planes_are_looked_at_in_each_box_of_a_region():
    case = choose("acoustic")
    posed = Problem(
        case.stencil, (60, 70, 80), case.dtype, 1, case.parameters, case.boundary, case.initial(0)
    )
    assert posed.regions
    for name, region in posed.regions.items():
        places = np.array(_places(posed, name))
        for box in region:
            rows, columns = box[1:]
            inside = [row in rows and column in columns for row, column in places]
            assert sum(inside) >= min(3, len(rows)) * min(3, len(columns))
        within = [
            any(row in box[1] and column in box[2] for box in region) for row, column in places
        ]
        assert all(within)
