"""A stencil that is called with arrays makes the step that the reference makes."""

import numpy as np
import pytest

import outgrid as og
from outgrid.testing.reference import run_reference

RANDOM = np.random.default_rng(0)


@og.stencil
def heat(u, *, k=0.1):
    return u + k * og.laplacian(u)


@og.stencil
def wave(u, c):
    return 2 * u - u.previous + c * og.laplacian(u)


@og.stencil
def turning(v: og.Vector, m):
    return {"v": {"x": v.y * m, "y": -v.x}}


def array(*shape: int, dtype: str = "float64") -> np.ndarray:
    return RANDOM.random(shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(6, 7), (5, 6, 7)])
@pytest.mark.parametrize("boundary", ["dirichlet", "periodic", {"kind": "mirror", "x": "odd"}])
def test_a_call_is_a_step_of_the_reference(shape, dtype, boundary):
    u = array(*shape, dtype=dtype)
    before = u.copy()
    problem = og.Problem(heat, shape, dtype, 1, {"k": 0.2}, boundary, {"u": u})
    found = heat(u, k=0.2, boundary=boundary)
    assert found.dtype == dtype
    assert found.tobytes() == run_reference(problem)["u"].tobytes()
    assert (u == before).all()


def test_defaults_names_and_whole_numbers_are_taken():
    u = array(6, 7)
    assert (heat(u) == heat(u=u, k=0.1)).all()
    whole = np.arange(42).reshape(6, 7)
    assert (heat(whole) == heat(whole.astype("float64"))).all()


def test_a_field_of_second_order_has_a_level_before():
    u, before = array(6, 7), array(6, 7)
    problem = og.Problem(wave, (6, 7), steps=1, initial={"u": u, "u.previous": before, "c": 0.25})
    assert (wave(u, 0.25, previous={"u": before}) == run_reference(problem)["u"]).all()
    assert (wave(u, 0.25) == wave(u, 0.25, previous={"u": u})).all()


def test_components_are_given_one_by_one_and_come_back_by_name():
    y, x = array(6, 7), array(6, 7)
    found = turning((y, x), 2)
    assert [*found] == ["v_y", "v_x"]
    assert (found["v_x"] == 2 * y).all()
    assert (found["v_y"] == -x).all()


def test_within_another_stencil_it_is_a_part_of_that():
    @og.stencil
    def twice(u, *, k):
        return heat(u, k=k) * 2

    u = array(6, 7)
    inside = (slice(1, -1),) * 2
    assert (twice(u, k=0.2)[inside] == 2 * heat(u, k=0.2)[inside]).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda u: heat(), ["without an array"]),
        (lambda u: heat(1.0), ["without an array"]),
        (lambda u: heat(u, u), ["1 fields (u)", "2 arrays", "by name"]),
        (lambda u: heat(u, kk=1), ["no parameter 'kk'", "did you mean 'k'"]),
        (lambda u: heat(u[None, None]), ["1, 2 or 3 dimensions, not 4"]),
        (lambda u: wave(u), ["initial values for 'c'"]),
        (lambda u: wave(u, u[:, 1:]), ["'c'", "(6, 6)", "(6, 7)"]),
        (lambda u: turning((u,), 1), ["2 components (v_y, v_x)", "1 arrays"]),
    ],
)
def test_what_does_not_fit_is_told(call, words):
    with pytest.raises(og.DefinitionError) as error:
        call(array(6, 7))
    assert [word for word in words if word not in str(error.value)] == []
