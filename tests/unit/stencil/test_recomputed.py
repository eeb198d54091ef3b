"""Which temporaries can be computed again, where, and which ones plans choose."""

import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.machine import Machine
from outgrid.stencil.problem import Problem
from outgrid.stencil.recomputed import far_from_faces, far_share, recomputable


def fluxes(u, *, k):
    return u + sum(og.backward(og.temporary(k * og.forward(u, a)), a) for a in "zyx")


def cahn_hilliard(c, *, k):
    mu = og.temporary(c**3 - c - 0.5 * og.laplacian(c))
    return c + k * og.laplacian(mu)


def posed(function, shape=(40, 60, 80), **given):
    stencil = og.stencil(function)
    parameters = dict.fromkeys(stencil.trace(len(shape)).parameters, 0.1)
    initial = {one.name: 1.0 for one in stencil.trace(len(shape)).fields if not one.temporary}
    given = {"parameters": parameters, "initial": initial, "steps": 200} | given
    return Problem(stencil, shape, **given)


def summed(u):
    flow = og.temporary(u[0, 1] - u)
    return {u: u + flow[0, -1], "most": og.max(flow)}


def chance(u):
    return u + og.temporary(u * og.random(1))[0, 1]


def sloping(u, *, g):
    return u + og.temporary(u * g.along("x"))[0, 1]


def far(u):
    return u + og.temporary(u[0, 150] * 2)[0, 1]


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (summed, "a reduction reads it"),
        (chance, "it holds random numbers"),
        (sloping, "profile along an axis"),
        (far, "too far along rows"),
    ],
)
def test_some_are_always_kept(function, why):
    more = {"parameters": {"g": 0.5}, "initial": {"u": 1.0}} if function is sloping else {}
    assert why in recomputable(posed(function, (60, 500), **more))["temporary1"]


def test_one_that_reads_what_is_updated_before_it_is_read_is_kept():
    def two(u, v):
        flow = og.temporary(u[0, 1] - u)
        return [{u: u + flow[0, 1]}, {v: v + flow[0, -1]}]

    why = recomputable(posed(two, (20, 30)))
    assert why == {"temporary1": "u is updated before it is read"}


def test_of_a_long_chain_the_last_ones_are_computed_again():
    def smoothed(u):
        first = og.temporary(og.laplacian(u))
        second = og.temporary(og.laplacian(first))
        return u + og.laplacian(second)

    why = recomputable(posed(smoothed))
    assert why == {"temporary1": "it would be computed too often", "temporary2": ""}


def test_near_faces_they_are_kept_and_made_where_they_are_read():
    problem = posed(cahn_hilliard, boundary={"y": "periodic", "z": "neumann", "x": "dirichlet"})
    again = problem.recomputing(["temporary1"])
    made, read = far_from_faces(again.stencil, again.edges, again.shape)
    assert read == (range(2, 38), range(60), range(80))
    assert made == (range(3, 37), range(60), range(80))
    assert far_share(again) == 34 / 40
    assert again == problem
    assert again.digest == problem.digest
    assert again.stencil.digest != problem.stencil.digest


def test_a_grid_that_is_all_near_faces_has_none():
    again = posed(cahn_hilliard, (6, 6, 60)).recomputing(["temporary1"])
    assert far_from_faces(again.stencil, again.edges, again.shape) == (None, None)


MACHINE = Machine(
    2, 8 << 30, 1 << 20, 32 << 20, 16e9, 2e9, 2e9, True, "a cpu", "6.1", "g++ 13", "3.11"
)


def planned(function, tmp_path, **given):
    options = RunOptions.of(memory="1GiB", out=tmp_path / "run", **given)
    return pipeline.plan(posed(function), options, MACHINE)


def test_plans_compute_short_ones_again_and_say_so(tmp_path):
    names = ("temporary1", "temporary2", "temporary3")
    short = planned(fluxes, tmp_path)
    assert short.recomputed == names
    assert any("computed again where read" in note for note in short.notes)
    assert planned(fluxes, tmp_path, temporaries="keep").recomputed == ()
    long = planned(cahn_hilliard, tmp_path)
    assert long.recomputed == ()
    assert any("to compute them again takes longer" in note for note in long.notes)
    assert planned(cahn_hilliard, tmp_path, temporaries="recompute").recomputed == names[:1]


def test_devices_keep_them(tmp_path):
    options = {"device": "gpu", "device_memory": "1GiB"}
    assert any("as on all devices" in note for note in planned(fluxes, tmp_path, **options).notes)
