"""Blocks with halos under every boundary they take, of stencils of several stages."""

from typing import Any

import numpy as np
import pytest

import outgrid as og
from outgrid.errors import InfeasiblePlan

SHAPE = (13, 11, 17)
FACES: list[Any] = [
    {"z": "neumann", "y-": "mirror", "y+": "dirichlet", "x": "periodic"},
    {"z": "periodic", "y": "neumann"},
    {"z": "mirror", "y": "periodic"},
    "periodic",
    {
        "z-": "zero",
        "z+": "odd",
        "y": {"kind": "robin", "a": 0.2, "b": 1.0, "value": "0.1 * x + step"},
        "x": {"value": "sin(0.1 * step) * z"},
    },
]


@og.stencil
def flowing(u, v, *, k):
    """A temporary that is read at offsets of two other stages."""
    half = og.temporary(u + k * og.laplacian(u) + 0.1 * u[1, 0, 0])
    return half + 0.05 * og.laplacian(half * half), v + 0.3 * half[0, 1, 0] - 0.1 * half[-1, 0, 1]


def problem(faces: Any) -> og.Problem:
    initial = {"u": "sin(x / 3) + y / 9 + cos(z)", "v": "x * 0.01"}
    return og.Problem(flowing, SHAPE, "float64", 7, {"k": 0.1}, faces, initial)


@pytest.mark.parametrize("faces", FACES, ids=["images", "planes", "rows", "all", "driven"])
def test_blocks_of_several_stages_make_the_same_bytes_under_any_faces(faces, tmp_path):
    asked = problem(faces)
    out = tmp_path / "plain"
    wanted = og.run(asked, memory="1GiB", tier="memory", scheme="plain", out=out)
    columns = len(asked.interior[-1])
    ways: list[dict[str, Any]] = [
        {"block": (5, 4, columns), "depth": 3},
        {"block": (1, 30, columns), "depth": 2, "inner": (3, 4, 16), "inner_depth": 2},
        {"block": (9, 9, columns), "depth": 1},
    ]
    for number, way in enumerate(ways):
        out = tmp_path / str(number)
        result = og.run(asked, memory="1GiB", tier="direct", scheme="overlapped", out=out, **way)
        for name, field in wanted.items():
            assert np.asarray(result[name]).tobytes() == np.asarray(field).tobytes(), (way, name)
        assert result.record.plan.depth == result.plan.depth == way["depth"]
        assert (
            result.record.plan.to_dict()["blocks"]
            == og.plan(asked, memory="1GiB", tier="direct", scheme="overlapped", **way).to_dict()[
                "blocks"
            ]
        )


def test_halos_reach_round_the_grid_once():
    asked: Any = {"memory": "1GiB", "scheme": "overlapped", "tier": "direct", "block": (13, 11, 17)}
    assert og.plan(problem("periodic"), **asked, depth=5).depth == 5
    with pytest.raises(
        InfeasiblePlan,
        match=r"6 steps need a halo of 13 cells along y, .* comes round after 11; depth 5 fits",
    ):
        og.plan(problem("periodic"), **asked, depth=6)
