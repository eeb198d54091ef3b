"""A field that is updated twice in a step: half-sweeps of red and black cells."""

import random

import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import DefinitionError
from outgrid.stencil.problem import Problem
from outgrid.testing.threads import in_threads

SHAPE, STEPS = (18, 12, 20), 6


@og.stencil
def red_black(p, f):
    """The iteration of Gauss and Seidel for Poisson's equation: red cells, then black ones."""
    red = (og.index("z") + og.index("y") + og.index("x")) % 2 == 0

    def relaxed(p):
        return (og.laplacian(p) + 6 * p - f) / 6

    half = og.temporary(og.where(red, relaxed(p), p), name="half")
    return og.where(red, half, relaxed(half))


def by_hand(f):
    """The same of neighbours one by one, beside a copy of the outermost cells."""
    p = np.full(SHAPE, 0.5)
    colours = np.indices(SHAPE).sum(axis=0) % 2
    for step in range(2 * STEPS):
        wide = np.pad(p, 1, "edge")
        near = sum(
            np.roll(wide, shift, axis)[1:-1, 1:-1, 1:-1] for axis in range(3) for shift in (-1, 1)
        )
        p = np.where(colours == step % 2, (near - f) / 6, p)
    return p


def test_half_sweeps_leave_the_same_bytes_in_every_setting(tmp_path):
    f = np.random.default_rng(3).random(SHAPE)
    posed = og.Problem(red_black, SHAPE, "float64", STEPS, {}, "neumann", {"p": 0.5, "f": f})
    assert Problem.from_dict(posed.to_dict()) == posed.replace()

    def options(name, **given):
        usual = {"memory": "512MiB", "tier": "direct", "threads": 1, "out": tmp_path / name}
        return RunOptions.of(**usual | given)

    plain = pipeline.run(posed, options("plain", scheme="plain"))["p"]
    assert np.abs(plain - by_hand(f)).max() < 1e-13
    deep = {"depth": 3, "slab_planes": 2}
    for name, given in {"deep": deep | {"threads": 2}, "strips": deep | {"strip_rows": 5}}.items():
        assert pipeline.run(posed, options(name, **given))["p"].tobytes() == plain.tobytes()
    shared = options("ranks", **deep)
    results = in_threads(lambda comm: pipeline.run(posed, shared, comm=comm), 2, random.Random(2))
    assert np.asarray(results[0]["p"]).tobytes() == plain.tobytes()


def test_an_index_is_that_of_the_cell_that_is_read():
    @og.stencil
    def ahead(u):
        count = u + 10 * og.index("y") + og.index("x")
        return u + count[0, 1] - count[-1, 0]

    u = np.zeros((5, 6))
    assert (ahead(u, boundary="neumann") == 11).all()


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda u: u + og.index("z"), r"the axes are y, x"),
        (lambda u, *, index_x: u + index_x, "reserved for outgrid.index"),
    ],
)
def test_mistakes_are_told(function, words):
    with pytest.raises(DefinitionError, match=words):
        og.stencil(function).trace(2)


def test_there_is_none_outside_of_a_stencil():
    with pytest.raises(DefinitionError, match="only in the function of a stencil"):
        og.index("x")
