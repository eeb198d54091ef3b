"""Faces that absorb become a part of the stencil: the one that would be written by hand."""

import numpy as np
import pytest
from msgspec.structs import replace

import outgrid as og
from outgrid.definition import stencil
from outgrid.errors import DefinitionError
from outgrid.stencil.boundary import Boundary, boundary_of
from outgrid.stencil.expression import Operation, Profile, profiles, substitute
from outgrid.stencil.model import Assignment, Stage
from outgrid.stencil.problem import Problem
from outgrid.stencil.region import regional
from outgrid.testing.reference import run_reference

SHAPE = (24, 30)
WAVE = {"u": "exp(-(x - 14)**2 / 4)", "c": 0.2}


@stencil
def wave(u, c):
    """Second order in time."""
    return 2 * u - u.previous + c * og.laplacian(u)


def problem(boundary, rule=wave, initial=WAVE, shape=SHAPE, **given):
    return Problem(rule, shape, "float64", 5, boundary=boundary, initial=initial, **given)


def within(factors, low, high):
    """Factors of an axis with fixed layers before and behind."""
    return np.pad(factors, (low, high), mode="edge")


def test_a_sponge_is_what_one_would_write_by_hand() -> None:
    @stencil(name="wave")
    def by_hand(u, c, *, sponge_y, sponge_x):
        factor = sponge_y.along("y") * sponge_x.along("x")
        return (2 * u - u.previous * factor + c * og.laplacian(u)) * factor

    factors = {
        "sponge_y": within(og.sponge(22, 7), 1, 1),
        "sponge_x": within(og.sponge(29, 9, 0.2, "+"), 0, 1),
    }
    wanted = problem({"y": 0, "x-": 0, "x+": 0}, by_hand, parameters=factors)
    given = {"y": {"kind": "sponge", "width": 7}, "x-": 0}
    found = problem(given | {"x+": {"kind": "sponge", "width": 9, "strength": 0.2}})
    assert found == wanted
    assert found.digest == wanted.digest
    assert Problem.from_dict(found.to_dict()) == found


@pytest.mark.parametrize(
    ("name", "face"),
    [
        ("sponge_x", {"kind": "sponge", "width": 3}),
        ("beyond_x_1", {"kind": "given", "value": 2.0}),
        ("beyond_x_2", {"kind": "robin", "a": 1.0, "b": 0.5, "value": 2.0}),
    ],
)
def test_what_a_face_adds_has_other_names_than_what_is_there(name, face) -> None:
    def left(called):
        along = Profile(called, 1)
        rule = stencil(name="rule")(lambda u, *, own: u * own.along("x") + 0.1 * u[0, 1]).trace(2)
        made = substitute(rule.assignments[0].expression, {Profile("own", 1): along})
        rule = replace(rule, stages=(Stage((Assignment("u", made),)),))
        given = {"parameters": {called: np.linspace(0.1, 1, 12)}, "initial": {"u": "1 + x + y"}}
        return run_reference(problem({"x": face}, rule, shape=(9, 12), **given))["u"]

    np.testing.assert_array_equal(left(name), left("own"))


def test_a_sponge_damps_towards_its_value() -> None:
    @stencil(name="wave")
    def by_hand(u, c, *, sponge_y):
        factor = sponge_y.along("y")
        new = 2 * u - (1.5 + (u.previous - 1.5) * factor) + c * og.laplacian(u)
        return 1.5 + (new - 1.5) * factor

    factors = {"sponge_y": within(og.sponge(22, 6), 1, 1)}
    wanted = problem({"y": 1.5, "x": "neumann"}, by_hand, parameters=factors)
    sponge = {"kind": "sponge", "width": 6, "value": 1.5}
    assert problem({"y": sponge, "x": "neumann"}) == wanted


def test_two_sides_of_an_axis_may_differ() -> None:
    low, high = ({"kind": "sponge", "width": width} for width in (5, 8))
    found = problem({"kind": "neumann", "x-": low, "x+": high})
    both = og.sponge(28, 5, sides="-") * og.sponge(28, 8, sides="+")
    assert dict(found.profiles) == {"sponge_x": tuple(within(both, 1, 1))}


def test_fields_that_are_damped_alike_share_their_factors() -> None:
    @stencil(ndim=2)
    def three(u, v, w):
        return u[0, 1] + v, v[0, -1] + w, w[1, 0] + u

    found = problem(
        {"x": {"kind": "sponge", "width": 4}, "fields": {"w": {"x+": "neumann"}}},
        three,
        {"u": 0.0, "v": 0.0, "w": 0.0},
    )
    assert list(found.profiles) == ["sponge_x", "sponge_x_2"]
    used = {
        each.field: {profile.name for profile in profiles(each.expression)}
        for each in found.stencil.assignments
    }
    assert used == {"u": {"sponge_x"}, "v": {"sponge_x"}, "w": {"sponge_x_2"}}


def test_a_previous_level_that_is_read_beside_its_cell_is_damped_as_it_was_there() -> None:
    @stencil(ndim=2)
    def leaning(u):
        return u + 0.1 * (u.previous[0, 1] - u.previous[0, -1])

    found = problem({"y": "neumann", "x": {"kind": "sponge", "width": 6}}, leaning, {"u": 0.0})
    factor = within(og.sponge(28, 6), 1, 1)
    assert found.profiles["sponge_x"] == (*factor[1:], factor[-1])
    assert found.profiles["sponge_x_2"] == (factor[0], *factor[:-1])
    assert found.profiles["sponge_x_3"] == tuple(factor)


def test_memories_of_matched_faces_exist_in_their_layers() -> None:
    matched = {"kind": "matched", "width": 7, "courant": 0.4, "frequency": 0.02}
    initial = {"p": 0.0, "slope": 0.0, "bend": 0.0, "c": 0.1}
    found = problem({**matched, "y-": "mirror"}, "acoustic_pml:4", initial)
    # Layers of 7 cells end at the first of two fixed ones.
    high, width = (extent - 8 for extent in SHAPE), [range(n) for n in SHAPE]
    y, x = high
    assert found.regions["bend_y"] == ((range(y, SHAPE[0]), width[1]),)
    assert found.regions["bend_x"] == ((width[0], range(8)), (width[0], range(x, SHAPE[1])))
    assert found.regions["slope_y"] == ((range(y - 1, SHAPE[0]), width[1]),)  # half a cell on
    assert found.regions.keys() == {"slope_y", "slope_x", "bend_y", "bend_x"}
    assert Problem.from_dict(found.to_dict()).digest == found.digest
    assert found.replace(steps=9).regions == found.regions
    # What a user says of a field counts, and so do initial values and values of profiles.
    own = found.replace(regions={"bend": og.Shell(5, "y")})
    assert own.regions["bend_y"] == own.regions["bend_x"] != found.regions["bend_y"]
    begun = found.replace(initial={**found.initial, "bend_x": "x"})
    assert begun.regions.keys() == {"slope_y", "slope_x", "bend_y"}
    given = found.replace(parameters={"gain_x": 0.5})
    assert given.regions.keys() == {"slope_y", "slope_x", "bend_y"}


def test_what_memories_become_is_used_in_their_layers_alone() -> None:
    """So nothing of it is left where kernels leave them out; what a user limits stays as it is."""
    matched = {"kind": "matched", "width": 7, "courant": 0.4, "frequency": 0.02}
    initial = {"p": 0.0, "slope": 0.0, "bend": 0.0, "c": 0.1}
    found = problem(matched, "acoustic_pml:4", initial)

    def beyond(limited, name):
        """Profiles of what a field becomes where no condition holds."""
        (made,) = (each for each in limited.stencil.assignments if each.field == name)
        pending, seen = [made.expression], set()
        while pending:
            node = pending.pop()
            if isinstance(node, Profile):
                seen.add(node.name)
            if isinstance(node, Operation):
                pending += node.operands[2:] if node.name == "where" else node.operands
        return seen

    assert [beyond(found, name) for name in ("p", "bend_y", "slope_x")] == [set(), set(), set()]
    assert regional(found.stencil).keys() == found.regions.keys()
    own = found.replace(regions={"bend": og.Shell(5, "y")})
    assert beyond(own, "p") == {"gain_y", "gain_x", "decay_y", "decay_x"}


def test_matched_faces_fill_in_the_parameters() -> None:
    initial = {"p": 0.0, "slope": 0.0, "bend": 0.0, "c": 0.1}
    numbers = {"courant": 0.4, "frequency": 0.02}
    # Layers end at the first of two fixed cells; those behind have its values.
    inside = og.matched_layers((SHAPE[0] - 1, SHAPE[1] - 2), 7, faces={"y": "+"}, **numbers)
    layers = {
        name: within(values, 1 if name.endswith("x") else 0, 1) for name, values in inside.items()
    }
    rest = {"y-": "mirror", "x": "frozen", "y+": "dirichlet"}
    wanted = problem(rest, "acoustic_pml:4", initial, parameters=layers)
    matched = {"kind": "matched", "width": 7, **numbers}
    found = problem({**matched, "y-": "mirror"}, "acoustic_pml:4", initial)
    assert {name: found.profiles[name] for name in wanted.profiles} == wanted.profiles
    assert found.edges == wanted.edges
    # One that is given stays as it is, and the widths of two sides may differ.
    both = {"kind": "mirror", "x-": matched, "x+": matched | {"width": 5}}
    found = problem(both, "acoustic_pml:4", initial, parameters={"gain_y": 0.25})
    assert found.profiles["gain_y"] == 0.25
    assert set(found.profiles["decay_y"]) == {0.0}
    low = og.matched_layer(28, 7, sides="-", **numbers)
    high = og.matched_layer(28, 5, sides="+", **numbers)
    assert np.array_equal(found.profiles["decay_x"], within(low[0] + high[0], 1, 1))
    assert np.array_equal(found.profiles["gain_x"], within(low[1] + high[1], 1, 1))


@pytest.mark.parametrize(
    ("boundary", "words"),
    [
        ({"kind": "sponge", "width": 12}, ["12 and 12 cells", "22 cells along y"]),
        ({"x": {"kind": "sponge", "width": 2.5}}, ["not 2.5", "number of cells"]),
        ({"x": {"kind": "sponge", "width": 0}}, ["layers of 0"]),
        ({"x": {"kind": "sponge", "courant": 0.4}}, ["does not use courant = 0.4", "for matched"]),
        (
            {"x": {"kind": "neumann", "width": 4}},
            ["neumann", "does not use width = 4", "sponge or matched"],
        ),
        ({"x": {"strength": 0.4}}, ["without a kind", "strength"]),
        ({"x": {}}, ["x lacks a kind"]),
        ({"x": "spunge"}, ["did you mean 'sponge'"]),
        ({"x-": {"kind": "sponge", "width": 4, "value": 1}}, []),
        (
            {
                "x-": {"kind": "sponge", "width": 4, "value": 1},
                "x+": {"kind": "sponge", "width": 4},
            },
            ["'u'", "0.0 and 1.0"],
        ),
        ({"x-": {"kind": "sponge", "width": 4}, "x+": "periodic"}, ["must be periodic along x"]),
        ({"x": "matched"}, ["'wave' has no matched layers along x", "decay_half_x", "sponge"]),
    ],
)
def test_what_does_not_fit_is_refused(boundary, words) -> None:
    if not words:
        problem(boundary)
        return
    with pytest.raises(DefinitionError) as caught:
        problem(boundary)
    assert [word for word in words if word not in str(caught.value)] == []


def test_matched_faces_need_the_wave_and_all_fields() -> None:
    initial = {"p": 0.0, "slope": 0.0, "bend": 0.0, "c": 0.1}
    with pytest.raises(DefinitionError, match=r"matched boundary y- needs courant"):
        problem("matched", "acoustic_pml:2", initial)
    matched = {"kind": "matched", "width": 7, "courant": 0.4, "frequency": 0.02}
    with pytest.raises(
        DefinitionError, match=r"face x- must be matched .* not in part .*p: frozen"
    ):
        problem({**matched, "fields": {"p": {"x": "frozen"}}}, "acoustic_pml:2", initial)


def test_a_boundary_of_its_numbers_is_read_back() -> None:
    for boundary in (
        Boundary("sponge", 1.0, width=4, strength=0.25),
        Boundary("matched", width=4, courant=0.5, frequency=0.1),
    ):
        assert boundary_of(boundary.to_dict()) == boundary
