"""What a boundary means for a stencil, and which ones are refused."""

from typing import Any

import numpy as np
import pytest

from outgrid.definition import stencil
from outgrid.errors import DefinitionError
from outgrid.stencil.boundary import Boundary, boundary_of
from outgrid.stencil.components import Vector
from outgrid.stencil.laplacian import laplacian
from outgrid.stencil.layers import fixed_layers
from outgrid.stencil.problem import Problem
from outgrid.stencil.temporary import temporary
from outgrid.testing.reference import run_reference


@stencil(ndim=2)
def coupled(u, v, c):
    """Each step moves u up by a row and v right by two columns."""
    return u[-1, 0] * c, v[0, -2] + 0 * u[1, 0] + 0 * v[0, 2]


def problem(boundary: Any, shape: tuple[int, int] = (5, 9), **initial: Any) -> Problem:
    given = {"u": "1 + y", "v": "1 + x", "c": 1.0} | initial
    return Problem(coupled, shape, "float64", 1, boundary=boundary, initial=given)


def test_the_narrowest_rule_counts() -> None:
    boundary = boundary_of(
        {"kind": "frozen", "y": "neumann", "y+": 2, "fields": {"v": {"y": "mirror", "x-": 3}}}
    )
    faces = {
        (field, axis + side): boundary.face(field, axis, side)
        for field in "uv"
        for axis in "yx"
        for side in "-+"
    }
    assert {name: face.kind for name, face in faces.items()} == {
        ("u", "y-"): "neumann",
        ("u", "y+"): "dirichlet",
        ("u", "x-"): "frozen",
        ("u", "x+"): "frozen",
        ("v", "y-"): "mirror",
        ("v", "y+"): "mirror",
        ("v", "x-"): "dirichlet",
        ("v", "x+"): "frozen",
    }
    assert faces["u", "y+"].value == 2
    assert boundary_of(boundary.to_dict()) == boundary
    found = problem(boundary)
    assert Problem.from_dict(found.to_dict()) == found
    assert Problem.from_dict(found.to_dict()).edges == found.edges


def test_a_layer_is_there_where_some_field_is_fixed() -> None:
    found = problem({"y": "neumann", "x": "neumann", "fields": {"v": {"y-": 0}}})
    assert found.edges.layers == ((1, 0), (0, 0))
    assert found.interior == (range(1, 5), range(9))
    assert found.edges.rule("u", 0) == ("neumann", "neumann")
    assert found.edges.rule("v", 0) == ("stored", "neumann")
    # A coefficient has cells of its own in the layer, and is continued like the fields elsewhere.
    assert found.edges.rule("c", 0) == ("stored", "neumann")
    assert found.edges.rule("c", 1) == ("neumann", "neumann")


@stencil(ndim=2)
def heated(T, T_soil, T_x, *, k):  # noqa: N803
    """Three fields of their own, whatever they are called."""
    return {one: one + k * laplacian(one) for one in (T, T_soil, T_x)}


@pytest.mark.parametrize(
    "rules",
    [
        "neumann",
        7.0,
        {"x-": {"value": 3.0}},
        {"x": {"kind": "robin", "a": 1.0, "value": 2.0}},
        {"x+": {"kind": "sponge", "width": 2, "value": 1.0}},
    ],
)
def test_what_holds_for_a_field_holds_for_no_other_one(rules: Any) -> None:
    def posed(boundary: Any) -> Problem:
        initial = {"T": "x", "T_soil": "x * y", "T_x": "y"}
        return Problem(heated, (6, 9), "float64", 2, {"k": 0.1}, boundary, initial)

    apart, without = posed({"fields": {"T": rules}}), posed("dirichlet")
    named = posed({"fields": {"T": rules, "T_soil": "dirichlet", "T_x": "dirichlet"}})
    for name in ("T_soil", "T_x"):
        assert apart.edges.rule(name, 1) == without.edges.rule(name, 1) == ("stored", "stored")
        assert fixed_layers(apart, name) == fixed_layers(named, name)
        left = run_reference(apart)[name]
        np.testing.assert_array_equal(left, run_reference(named)[name])
        np.testing.assert_array_equal(left, run_reference(without)[name])
    assert (run_reference(apart)["T"] != run_reference(without)["T"]).any()


@stencil(ndim=2)
def waves(v: Vector, *, k):
    """A half step, and a step with what it changes."""
    half = {axis: temporary(v[axis] + k * laplacian(v[axis]), name=f"k_{axis}") for axis in v}
    return {"v": {axis: v[axis] + k * laplacian(half[axis]) for axis in v}}


def test_what_holds_for_a_vector_holds_for_its_components() -> None:
    def posed(fields: Any) -> Problem:
        boundary = {"kind": "neumann", "x": {"value": 1.0}, "fields": fields}
        return Problem(waves, (5, 6), "float64", 2, {"k": 0.1}, boundary, {"v": "x + y"})

    whole = {"v": {"x-": {"value": 2.0}, "y": "mirror"}, "k": {"x-": {"value": "2 + step"}}}
    parts = {f"{name}_{axis}": rules for name, rules in whole.items() for axis in "yx"}
    found = posed(whole)
    assert found == posed(parts)
    assert found.boundary == Problem.from_dict(found.to_dict()).boundary
    assert found.replace(steps=3).replace(steps=2) == found
    first, second = run_reference(found), run_reference(posed(parts | {"k_x": {"y": "mirror"}}))
    np.testing.assert_array_equal(first["v_y"], second["v_y"])
    assert (first["v_x"] != second["v_x"]).any()


@pytest.mark.parametrize(
    ("own", "rules"),
    [
        ({"x-": 1.0}, [1.0, 4.0, 3.0, 3.0]),
        ({"x": 1.0}, [1.0, 1.0, 3.0, 3.0]),
        ({"kind": 1.0}, [1.0, 1.0, 1.0, 1.0]),
        ({"kind": 1.0, "y+": 2.0}, [1.0, 1.0, 1.0, 2.0]),
        ({"y+": 2.0}, [5.0, 4.0, 3.0, 2.0]),
        ({}, [5.0, 4.0, 3.0, 3.0]),
    ],
)
def test_what_holds_for_a_component_comes_before_its_vector(own: Any, rules: list[float]) -> None:
    fields = {"v": {"kind": 3.0, "x": 4.0, "x-": 5.0}, "v_x": own}
    found = Problem(waves, (5, 6), "float64", 2, {"k": 0.1}, {"fields": fields}, {"v": 0.0})
    sides = [("x", "-"), ("x", "+"), ("y", "-"), ("y", "+")]
    assert [found.boundary.face("v_x", *side).value for side in sides] == rules
    assert [found.boundary.face("v_y", *side).value for side in sides] == [5.0, 4.0, 3.0, 3.0]


@pytest.mark.parametrize(
    ("kind", "rows", "columns"),
    [
        ("neumann", [1, 1, 2, 3, 4], [2, 1, 1, 2, 3, 4, 5, 6, 7]),
        ("mirror", [2, 1, 2, 3, 4], [3, 2, 1, 2, 3, 4, 5, 6, 7]),
        ("periodic", [5, 1, 2, 3, 4], [8, 9, 1, 2, 3, 4, 5, 6, 7]),
        ("frozen", [1, 1, 2, 3, 5], [1, 2, 1, 2, 3, 4, 5, 8, 9]),
        (7, [7, 7, 2, 3, 7], [7, 7, 7, 7, 3, 4, 5, 7, 7]),
    ],
)
def test_what_is_read_beyond_a_face(kind: Any, rows: list[int], columns: list[int]) -> None:
    found = run_reference(problem({"y": kind, "x": kind}))
    np.testing.assert_array_equal(found["u"][:, 4], rows)
    np.testing.assert_array_equal(found["v"][2], columns)


@pytest.mark.parametrize(
    ("boundary", "parts"),
    [
        ({"y": "periodicc"}, ["'periodicc'", "did you mean 'periodic'"]),
        ({"w": "mirror"}, ["'w'"]),
        ({"z": "mirror"}, ["2-D", "'z'"]),
        ({"y": {"kind": "mirror", "value": 1}}, ["mirror boundary does not use value = 1"]),
        ({"y-": "periodic"}, ["must be periodic along y", "u: periodic and dirichlet"]),
        ({"y": "periodic", "fields": {"v": {"y": "mirror"}}}, ["in part", "v: mirror and mirror"]),
        ({"fields": {"c": "mirror"}}, ["'c' is never updated"]),
        ({"fields": {"w": "mirror"}}, ["no field 'w'"]),
        ({"y": float("nan")}, ["nan", "finite"]),
    ],
)
def test_boundaries_that_mean_nothing_are_refused(boundary: Any, parts: list[str]) -> None:
    with pytest.raises(DefinitionError) as caught:
        problem(boundary)
    for part in parts:
        assert part in str(caught.value)


def test_an_image_needs_as_many_cells_as_are_read() -> None:
    with pytest.raises(DefinitionError, match=r"extent 2 along x .* at least 3"):
        problem({"x": "mirror"}, (5, 2))
    assert problem({"x": "neumann"}, (5, 2)).interior[1] == range(2)


def test_a_boundary_of_one_kind_is_written_as_before() -> None:
    assert Boundary("dirichlet", 2).to_dict() == {"kind": "dirichlet", "value": 2.0}


def test_a_number_is_a_fixed_layer_of_it() -> None:
    assert problem(0.0, (9, 9)).boundary == Boundary("dirichlet", 0.0)
    assert problem({"kind": 0.0}, (9, 9)).boundary == Boundary("dirichlet", 0.0)
    assert problem(np.float32(2), (9, 9)).boundary == problem({"value": 2}, (9, 9)).boundary


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"x": {"kind": []}}, r"must be one of dirichlet, .* not \[\]"),
        ({"fields": "u"}, "the fields of a boundary must be a mapping"),
        ({"fields": {"u": [1]}}, r"\[1\] is not a boundary"),
        ({"x": {"kind": "odd", "fields": {"u": "mirror"}}}, "boundary of x says something of 'u'"),
        ({"x": {"kind": "odd", "y": "mirror"}}, "boundary of x says something of 'y'"),
        ({"fields": {"u": {"fields": {"v": "odd"}}}}, "of 'u' says something of 'v'"),
        (True, "True is not a boundary"),
        ([], r"\[\] is not a boundary"),
    ],
)
def test_what_is_no_boundary_is_told(given, words) -> None:
    with pytest.raises(DefinitionError, match=words):
        problem(given, (9, 9))
