"""Temporaries change no byte of an answer, move none, and are there when they are read."""

import random
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.plan.planner import plan
from outgrid.stencil.boundary import boundary_of
from outgrid.stencil.problem import Problem
from outgrid.stencil.recomputed import recomputable
from outgrid.testing.counting import check, count
from outgrid.testing.reference import initial_arrays, reference_with_bound, run_reference
from outgrid.testing.strategies import boundaries, machines, problems, run_options, stencils

FIXED_BYTES = 1 << 20
SEEDS = st.integers(0, 2**32 - 1)
SHARE = settings.default.max_examples  # costly tests take a part of it


@og.stencil
def midpoint(u, c, *, k):
    """Two temporaries, one made of the other, read to both sides and far to one."""
    half = og.temporary(u + k * c * og.laplacian(u))
    flow = og.temporary(half[1, 0, 0] - half[0, -1, 1], name="flow")
    return u + k * c * (og.laplacian(half) + flow - flow[-2, 0, 0])


@og.stencil
def rows(u, *, k):
    """In 2-D, with the previous level and a stage of the user's beside it."""
    bent = og.temporary(og.laplacian(u) - u.previous)
    return u + k * (bent[0, 1] - bent[-1, 0] + bent)


RULES = [midpoint.trace(3), rows.trace(2)]
AROUND = ["dirichlet", 0.5, {"x": "periodic", "y-": "neumann"}, "periodic"]


@og.stencil
def flowing(u, *, k):
    """Fluxes that two cells share, a chain of two, and one that is read at the cell alone."""
    fluxes = [og.temporary(k * u * og.forward(u, axis)) for axis in "yx"]
    curved = og.temporary(og.backward(fluxes[0], "y") + og.backward(fluxes[1], "x"), name="curved")
    return u + 0.25 * (curved[0, 1] + curved[0, -1] + curved[1, 0] + curved)


KNOWN = problems(
    st.sampled_from(RULES),
    around=st.sampled_from(AROUND).map(lambda each: boundary_of(each, None)),
    dtypes={},
)


def as_fields(problem):
    """The same problem with each temporary as a field that begins as anything."""
    fields = tuple(replace(field, temporary=False) for field in problem.stencil.fields)
    names = [field.name for field in problem.stencil.fields if field.temporary]
    parameters = dict(problem.parameters) | dict(problem.profiles)
    boundary = problem.boundary.to_dict()
    own = {name: dict(problem.edges.rules)[name] for name in names}
    axes = "zyx"[-problem.ndim :]
    boundary["fields"] = boundary.get("fields", {}) | {
        name: {
            f"{axis}{side}": "zero" if rule == "stored" else rule
            for axis, pair in zip(axes, pairs, strict=True)
            for side, rule in zip("-+", pair, strict=True)
        }
        for name, pairs in own.items()
    }
    return Problem(
        replace(problem.stencil, fields=fields),
        problem.shape,
        problem.dtype,
        problem.steps,
        parameters,
        boundary,
        dict(problem.initial) | dict.fromkeys(names, 7.0),
        problem.first_step,
    )


@given(problems(stencils(temporaries=True), with_arrays=False), st.data(), machines(), SEEDS)
def test_they_are_there_when_they_are_read_and_move_no_byte(problem, data, machine, seed):
    found = plan(problem, data.draw(run_options(problem)), machine, FIXED_BYTES)
    temporaries = {field.name for field in problem.stencil.fields if field.temporary}
    moved = {each.field for each in (*found.schedule.arrivals, *found.schedule.departures)}
    assert temporaries
    assert not temporaries & moved
    total = check(found, problem.stencil, random.Random(seed), problem.edges.periodic(0))
    assert total == count(found)


@settings(max_examples=SHARE // 4)
@given(KNOWN)
def test_the_reference_gives_what_fields_would_give(problem):
    given_initial = {name: np.array(values) for name, values in initial_arrays(problem).items()}
    alone = run_reference(problem, given_initial)
    fields = as_fields(problem)
    stored = run_reference(fields, initial_arrays(fields) | given_initial)
    assert set(alone) == set(problem.initial)
    for name, values in alone.items():
        assert np.array_equal(values, stored[name], equal_nan=True), name


@st.composite
def wide(draw):
    """Problems on grids that have cells from which no temporary is read across a face."""
    rules = st.sampled_from([*RULES, flowing.trace(2)])
    drawn = stencils(most_fields=2, largest_radius=2, temporaries=True)
    stencil = draw(rules if draw(st.booleans()) else drawn)
    dtype = draw(st.sampled_from(["float32", "float64"]))
    shape = [8 * reach + draw(st.integers(1, 9)) for reach in stencil.radius]
    shape[-1] += draw(st.integers(48, 90))
    generator = np.random.default_rng(draw(SEEDS))
    numbers = dict.fromkeys(stencil.parameters, 0.3)
    lying = {one.name: generator.random(shape[one.axis]) for one in stencil.given_profiles}
    return Problem(
        stencil,
        shape,
        dtype,
        draw(st.integers(1, 9)),
        numbers | lying,
        draw(boundaries(stencil) | st.sampled_from(AROUND)),
        {one.name: generator.random(shape) for one in stencil.fields if not one.temporary},
    )


@settings(max_examples=SHARE // 3, deadline=None)
@given(wide(), st.data())
def test_those_that_are_computed_again_change_no_byte(problem, data):
    able = [name for name, why in recomputable(problem).items() if not why]
    assume(able)
    with tempfile.TemporaryDirectory() as folder:
        plain = RunOptions.of(
            memory="1GiB", scheme="plain", threads=1, temporaries="keep", out=Path(folder) / "kept"
        )
        again = Path(folder) / "again"
        drawn = run_options(problem.recomputing(able), out=again, temporaries="recompute")
        wanted, found = pipeline.run(problem, plain), pipeline.run(problem, data.draw(drawn))
        assert not wanted.record.planned["recomputed"]
        assert {*found.record.planned["recomputed"]} == {*able}
        for name in found.record.fields:
            assert np.array(found[name]).tobytes() == np.array(wanted[name]).tobytes(), name


@settings(max_examples=SHARE // 4, deadline=None)
@given(KNOWN, st.data())
def test_runs_give_the_bytes_of_the_plain_one_within_the_bound(problem, data):
    with tempfile.TemporaryDirectory() as folder:
        options = data.draw(run_options(problem, out=Path(folder) / "run"))
        plain = RunOptions.of(memory="1GiB", scheme="plain", threads=1, out=Path(folder) / "plain")
        found, wanted = pipeline.run(problem, options), pipeline.run(problem, plain)
        values, bounds = reference_with_bound(problem)
        coefficients = {field.name for field in problem.stencil.coefficients}
        assert set(found.record.fields) == set(values) - coefficients
        for name in found.record.fields:
            assert np.array(found[name]).tobytes() == np.array(wanted[name]).tobytes()
            sure = np.isfinite(bounds[name])
            apart = np.abs(np.float64(wanted[name]) - values[name])
            assert (apart <= 2 * bounds[name])[sure].all()
