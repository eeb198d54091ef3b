"""Stages in parts: which there are, and what is refused."""

import numpy as np
import pytest

import outgrid as og
from outgrid.errors import DefinitionError
from outgrid.plan.schedule.lifetime import dependences
from outgrid.plan.staging import staging_of
from outgrid.plan.tiling import tile_slope
from outgrid.stencil.catalog import resolve
from outgrid.stencil.problem import Problem
from outgrid.stencil.staged import independent, staged
from outgrid.testing.reference import run_reference


def waves(order, energy=False):
    """Elastic waves in two dimensions, velocities and stresses half a cell apart.

    With their ``energy``, a reduction in a stage of its own.
    """

    @og.stencil(name=f"waves{order}")
    def rule(vy, vx, syy, sxx, sxy, *, light, stiff):
        def ahead(u, axis):
            return og.forward(u, axis, order)

        def behind(u, axis):
            return og.backward(u, axis, order)

        spread = behind(vy, "y") + behind(vx, "x")
        return [
            {
                "vy": vy + light * (ahead(syy, "y") + behind(sxy, "x")),
                "vx": vx + light * (behind(sxy, "y") + ahead(sxx, "x")),
            },
            {
                "syy": syy + stiff * spread + behind(vy, "y"),
                "sxx": sxx + stiff * spread + behind(vx, "x"),
                "sxy": sxy + stiff * (ahead(vx, "y") + ahead(vy, "x")),
            },
            *([{"energy": og.sum(vy * vy + vx * vx)}] if energy else []),
        ]

    return rule.trace(2)


def problem(order=4, steps=3, energy=False):
    stencil, rng = waves(order, energy), np.random.default_rng(0)
    begun = {field.name: rng.standard_normal((40, 96)) for field in stencil.fields}
    return Problem(stencil, (40, 96), "float64", steps, {"light": 0.2, "stiff": 0.3}, initial=begun)


@pytest.mark.parametrize(("order", "whole", "parts"), [(2, 2, 1), (4, 4, 3), (8, 8, 7)])
def test_a_step_trails_the_one_before_it_by_fewer_planes(order, whole, parts):
    posed = problem(order)
    assert dependences(posed.stencil).skew().per_step == whole
    staging = staging_of(posed)
    assert staging == (("vy", "vx"), ("syy", "sxx"), ("sxy",))  # no more parts than it takes
    apart = posed.in_stages(staging)
    assert dependences(apart.stencil).skew().per_step == parts
    slopes = [tile_slope(one.stencil, "float64").per_step for one in (apart, posed)]
    assert slopes == sorted(slopes)
    assert apart.stencil.digest != posed.stencil.digest


LAYERS = og.matched_layers((40, 40, 40), 8, courant=0.4, frequency=0.05)


@pytest.mark.parametrize(
    ("name", "ndim", "given"),
    [
        ("heat7", 3, {"k": 0.1}),
        ("wave:8", 3, {}),
        ("acoustic_pml:4", 3, LAYERS),
        ("shallow_water", 2, {"g": 1.0, "dt": 1.0, "dx": 1.0}),
    ],
    ids=["heat7", "wave:8", "acoustic_pml:4", "shallow_water"],
)
def test_stages_stay_whole_where_parts_gain_nothing(name, ndim, given):
    stencil = resolve(name).trace(ndim)
    begun = {field.name: 0.0 for field in stencil.fields}
    posed = Problem(stencil, (40,) * ndim, "float64", 3, given, initial=begun)
    assert staging_of(posed) == ()
    assert posed.in_stages(()) is posed


def test_parts_read_nothing_of_each_other():
    @og.stencil
    def rule(a, b, c, d):
        return {"a": a + b[1, 0], "b": b + d[0, 1], "c": c + d[0, -1], "d": d + 1}

    (stage,) = rule.trace(2).stages
    assert independent(stage) == (("a", "b", "c", "d"),)

    @og.stencil
    def other(a, b, c, d, e):
        return {"a": a + b[1, 0], "b": 2 * b + e, "c": c + d[0, -1], "d": d + e[1, 1]}

    (stage,) = other.trace(2).stages
    assert independent(stage) == (("a", "b"), ("c", "d"))


def test_a_stage_with_reductions_stays_whole():
    @og.stencil
    def rule(a, b, c):
        return {"a": a + c[1, 0], "b": b + c[-1, 0], "work": og.sum(a * b)}

    (stage,) = rule.trace(2).stages
    assert independent(stage) == (("a", "b"),)


def test_a_stage_of_reductions_alone_stays():
    posed = problem(energy=True)
    staging = staging_of(posed)
    assert staging == (("vy", "vx"), ("syy", "sxx"), ("sxy",), ())
    *_, last = posed.in_stages(staging).stencil.stages
    assert last == posed.stencil.stages[-1]


@pytest.mark.parametrize(
    "staging",
    [
        (("vy",), ("vx",), ("syy", "sxx"), ("sxy",)),
        (("vx",), ("vy",), ("sxy",), ("sxx",), ("syy",)),
        (("vy", "vx"), ("sxy", "syy"), ("sxx",)),
    ],
)
def test_the_values_are_the_same_in_any_parts(staging):
    posed = problem()
    answer, apart = run_reference(posed), run_reference(posed.in_stages(staging))
    for name, values in answer.items():
        assert values.tobytes() == apart[name].tobytes()


@pytest.mark.parametrize(
    "staging",
    [
        (("vy",),),
        (("vy", "syy"), ("vx", "sxx"), ("sxy",)),
        (("vy", "vx"), ("syy", "sxx"), ("sxy",), ("sxy",)),
        (("vy", "vx"), (), ("syy", "sxx", "sxy")),
        (("vy", "vx"), ("syy", "sxx", "sxy"), ("more",)),
        (("syy", "sxx", "sxy"), ("vy", "vx")),
    ],
)
def test_other_parts_are_refused(staging):
    with pytest.raises(DefinitionError, match="waves4"):
        staged(waves(4), staging)


def test_parts_that_read_of_each_other_are_refused():
    @og.stencil
    def rule(a, b):
        return {"a": a + b[1, 0], "b": b + a[0, 1]}

    with pytest.raises(DefinitionError, match="begin with those that update a"):
        staged(rule.trace(2), (("a",), ("b",)))
