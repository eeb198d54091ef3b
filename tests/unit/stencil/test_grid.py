"""What a grid says of its cells is kept, checked, and usable in formulas, and changes nothing."""

import numpy as np
import pytest

import outgrid as og
from outgrid.errors import DefinitionError

SHAPE = (4, 5, 6)
DEPTHS = og.Grid(
    spacing=(10.0, 0.5, 0.25),
    origin=(100.0, -1.0, 0.0),
    units="m",
    names=("depth", "north", "east"),
    fields={"u": {"units": "K", "long_name": "temperature"}},
)


def problem(initial="x", grid=DEPTHS, shape=SHAPE, stencil="heat7", **given):
    return og.Problem(
        stencil, shape, steps=2, parameters={"k": 0.1}, initial={"u": initial}, grid=grid, **given
    )


def test_a_grid_is_kept_with_the_problem():
    found = problem()
    assert found.grid.units == ("m", "m", "m")
    again = og.Problem.from_dict(found.to_dict())
    assert again == found
    assert again.grid == found.grid
    assert found.replace(steps=7).grid == found.grid
    assert found.after(1).grid == found.grid
    assert problem(grid=None).grid is None
    assert "grid" not in problem(grid=None).to_dict()


def test_formulas_use_coordinates_by_name(tmp_path):
    found = problem("depth * 2 + north - east * x")
    result = og.run(found.replace(steps=0), memory="256 MiB", out=tmp_path / "r")
    z, y, x = np.indices(SHAPE)
    wanted = (100 + 10.0 * z) * 2 + (-1 + 0.5 * y) - 0.25 * x * x
    np.testing.assert_array_equal(result["u"], wanted)
    assert og.Problem.from_dict(found.to_dict()) == found
    moved = found.replace(grid={"spacing": 1.0, "names": ["depth", "north", "east"]})
    assert moved.initial["u"].grid.spacing == (1.0, 1.0, 1.0)


def test_a_plane_has_two_axes():
    found = problem("north", {"names": ["north", "east"], "spacing": 2}, (8, 8), "heat5")
    assert found.grid.names == ("north", "east")
    assert found.grid.at("east", 3) == 6.0


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ({"spacing": 0.0}, ["spacing", "above 0"]),
        ({"spacing": (1.0, 2.0)}, ["spacing", "(1.0, 2.0)", "3"]),
        ({"spacing": "wide"}, ["spacing", "'wide'"]),
        ({"origin": (0.0, 0.0, float("nan"))}, ["origin", "nan"]),
        ({"names": ("a", "a", "b")}, ["'a'"]),
        ({"names": ("a b", "c", "d")}, ["'a b'"]),
        ({"names": {"z": "up", "y": "north", "x": "east"}}, ["one value or one per axis", "'up'"]),
        ({"names": ("x", "y", "z")}, ["'x'", "another axis"]),
        ({"names": ("nx", "y", "x")}, ["'nx'"]),
        ({"names": ("exp", "y", "x")}, ["'exp'"]),
        ({"fields": {"v": {"units": "K"}}}, ["'v'", "u"]),
        ({"fields": {"u": {"unit": "K"}}}, ["units"]),
        ({"fields": {"u": "K"}}, ["'K'", "units"]),
        ({"scale": 1.0}, ["'scale'", "spacing"]),
        (3.0, ["3.0", "Grid"]),
    ],
)
def test_odd_grids_are_refused(grid, words):
    with pytest.raises(DefinitionError) as caught:
        problem(grid=grid)
    assert all(word in str(caught.value) for word in words), caught.value


def test_an_unknown_coordinate_is_named():
    with pytest.raises(DefinitionError, match="depth"):
        problem("dept * 2")
