"""Stages in parts: no others have a smaller skew, and no bit differs."""

import tempfile
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.plan.schedule.lifetime import dependences
from outgrid.plan.staging import staging_of
from outgrid.stencil.expression import Access, Constant, Operation
from outgrid.stencil.model import Assignment, Field, Stage, Stencil
from outgrid.stencil.problem import Problem
from outgrid.stencil.staged import independent, staged
from outgrid.testing.reference import run_reference

NAMES = ("a", "b", "c"), ("p", "q", "r")


@st.composite
def staggered(draw) -> Stencil:
    """Two stages of up to three fields in place, each read by fields of the other stage alone."""
    ndim = draw(st.sampled_from([2, 3]))
    sides = [names[: draw(st.integers(1, 3))] for names in NAMES]
    stages = []
    for own, others in zip(sides, reversed(sides), strict=True):
        made = []
        for name in own:
            value = Access(name, 0, (0,) * ndim)
            for _ in range(draw(st.integers(1, 3))):
                offset = tuple(draw(st.integers(-2, 2)) for _ in range(ndim))
                read = Access(draw(st.sampled_from(others)), 0, offset)
                weight = Constant(draw(st.sampled_from([0.25, -0.1, 1 / 3])))
                value = Operation("add", (value, Operation("mul", (weight, read))))
            made.append(Assignment(name, value))
        stages.append(Stage(tuple(made)))
    fields = tuple(Field(name, True) for names in sides for name in names)
    return Stencil("drawn", ndim, fields, (), tuple(stages))


def problem(stencil: Stencil, seed: int, steps: int = 5) -> Problem:
    rng = np.random.default_rng(seed)
    shape = (23, 17, 13)[-stencil.ndim :]
    begun = {field.name: rng.standard_normal(shape) for field in stencil.fields}
    return Problem(stencil, shape, "float64", steps, initial=begun)


def skew(stencil: Stencil) -> int:
    return dependences(stencil).skew().per_step


def partitions(names):
    """All ways to make a stage in parts, of each order one."""
    if not names:
        yield ()
        return
    first, *rest = names
    for parts in partitions(rest):
        yield ((first,), *parts)
        for number, part in enumerate(parts):
            yield (*parts[:number], (first, *part), *parts[number + 1 :])


@given(staggered())
def test_no_other_parts_have_a_smaller_skew(stencil):
    assert all(len(independent(stage)) == len(stage.assignments) for stage in stencil.stages)
    ways = [
        list(partitions([made.field for made in stage.assignments])) for stage in stencil.stages
    ]
    skews = {
        before + after: skew(staged(stencil, before + after)) for before, after in product(*ways)
    }
    found, least = staging_of(problem(stencil, 0)), min(skews.values())
    if found:
        assert skew(staged(stencil, found)) == least < skew(stencil)
    else:
        more = staged(stencil, max(skews, key=len)).flops > stencil.flops
        assert least == skew(stencil) or more


@given(staggered(), st.integers(0, 2**32 - 1), st.data())
def test_parts_change_no_bit(stencil, seed, data):
    posed = problem(stencil, seed)
    staging = tuple(
        part
        for stage in stencil.stages
        for part in data.draw(
            st.sampled_from(list(partitions([made.field for made in stage.assignments])))
        )
    )
    answer, apart = run_reference(posed), run_reference(posed.in_stages(staging))
    assert all(values.tobytes() == apart[name].tobytes() for name, values in answer.items())


@given(staggered(), st.integers(0, 2**32 - 1), st.integers(2, 5), st.integers(1, 4))
def test_runs_in_parts_leave_the_bytes_of_plain_ones(stencil, seed, depth, slab):
    posed = problem(stencil, seed)
    with tempfile.TemporaryDirectory() as place:
        plain = pipeline.run(posed, RunOptions.of(memory="1GiB", scheme="plain", out=f"{place}/p"))
        run = RunOptions.of(
            memory="256MiB", tier="direct", depth=depth, slab_planes=slab, out=f"{place}/s"
        )
        streamed = pipeline.run(posed, run)
        assert streamed.record.planned["staged"] == staging_of(posed)
        for field in stencil.fields:
            one, other = (np.asarray(result[field.name]) for result in (plain, streamed))
            assert one.tobytes() == other.tobytes()
