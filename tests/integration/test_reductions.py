"""Sums and extremes over the grid: in each step, the same for all ways to run a problem."""

import math

import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import DefinitionError
from outgrid.execute.reference import run_reference
from outgrid.stencil.model import Stencil
from outgrid.stencil.problem import Problem

STEPS = 11


@og.stencil
def relaxed(u, c, *, k):
    """One field and a coefficient: what changes, and how large it is."""
    change = k * (og.laplacian(u) + c[0, -1, 0] * 0.1)
    return {
        "u": u + change,
        "residual": og.sum(change * change),
        "largest": og.max(u),
        "smallest": og.min(change),
    }


@og.stencil(ndim=2)
def flat(e, h, *, k):
    """Two stages, the second one of which sums up what the first one made."""
    new = h + k * (e[1, 0] - e[0, -1])
    return [
        {"h": new, "before": og.max(og.absolute(h))},
        {"e": e + k * (h - h[-1, 0]), "energy": og.sum(e * e + h * h)},
    ]


def relaxing(shape=(40, 17, 43), dtype="float64", steps=STEPS, boundary="dirichlet", **given):
    values = np.random.default_rng(4).standard_normal(shape)
    initial = {"u": values, "c": "x / nx"}
    return Problem(relaxed, shape, dtype, steps, {"k": 0.1}, boundary, initial, **given)


def flowing(dtype="float64", boundary="dirichlet"):
    values = np.random.default_rng(7).standard_normal((2, 60, 150))
    return Problem(
        flat, (60, 150), dtype, STEPS, {"k": 0.3}, boundary, {"e": values[0], "h": values[1]}
    )


def run(problem, out, **options):
    given = {"memory": "512MiB", "threads": 1} | options
    return pipeline.run(problem, RunOptions.of(out=out, **given))


WAYS = {
    "deep": {"tier": "direct", "depth": 5, "slab_planes": 3, "threads": 2},
    "tiles": {"tier": "direct", "depth": 4, "slab_planes": 2, "tile_rows": 16, "threads": 3},
    "memory": {"tier": "memory", "depth": 11, "tile_rows": 8, "tile_planes": 3, "threads": 2},
    "strips": {"tier": "direct", "depth": 3, "strip_rows": 5},
    "blocks": {"scheme": "overlapped", "block": [9, 6, 41], "depth": 2, "inner": [3, 4, 16]},
}


def same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        assert found[name].tobytes() == values.tobytes(), name


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_reductions_are_those_of_the_reference_however_they_are_computed(dtype, tmp_path):
    problem = relaxing(dtype=dtype)
    states = []
    run_reference(problem, seen=lambda state: states.append(state["u"].astype(np.float64).copy()))
    wanted = run(problem, tmp_path / "plain", scheme="plain", tier="memory")
    inside = (slice(1, -1),) * 3
    before = [np.asarray(problem.initial["u"], dtype).astype(np.float64), *states[:-1]]
    changes = [new[inside] - old[inside] for old, new in zip(before, states, strict=True)]
    tolerance = {"rtol": 1e-10 if dtype == "float64" else 1e-3}
    found = wanted.reductions
    assert list(found) == ["residual", "largest", "smallest"]
    np.testing.assert_allclose(found["residual"], [np.sum(c * c) for c in changes], **tolerance)
    np.testing.assert_allclose(found["largest"], [b[inside].max() for b in before], **tolerance)
    np.testing.assert_allclose(found["smallest"], [c.min() for c in changes], **tolerance)
    for name, options in WAYS.items():
        result = run(problem, tmp_path / name, **options)
        same(result.reductions, found)
        assert result["u"].tobytes() == wanted["u"].tobytes()


@pytest.mark.parametrize("boundary", ["dirichlet", {"y": "periodic", "x": "mirror"}])
def test_rows_that_tiles_cut_and_stages_give_the_same_sums(boundary, tmp_path):
    problem = flowing(boundary=boundary)
    wanted = run(problem, tmp_path / "plain", scheme="plain", tier="memory").reductions
    assert (np.diff(wanted["energy"]) != 0).all()
    for name in ("deep", "tiles", "memory"):
        same(run(problem, tmp_path / name, **WAYS[name]).reductions, wanted)


def test_sums_go_on_where_a_run_was_cut_off(tmp_path, cut_off):
    problem = relaxing(boundary={"z": "periodic"})
    options = {"tier": "direct", "depth": 3, "slab_planes": 2}
    wanted = run(problem, tmp_path / "whole", **options)
    out = tmp_path / "cut"
    cut_off(60, lambda: run(problem, out, **options))
    found = pipeline.resume(out, RunOptions.of(memory="512MiB", depth=2, tier="direct"))
    same(found.reductions, wanted.reductions)
    assert not list(out.glob("*.new"))


def test_a_sum_is_exact_where_rows_cancel_and_says_where_it_is_none(tmp_path):
    @og.stencil(ndim=2)
    def kept(u):
        return {"u": u, "total": og.sum(u), "top": og.max(u), "root": og.sum(og.sqrt(u))}

    values = np.zeros((6, 40))
    values[1, 3], values[2, 9], values[4, 30] = 1e300, -1e300, 1e-300
    problem = Problem(kept, values.shape, "float64", 2, boundary="neumann", initial={"u": values})
    found = run(problem, tmp_path / "run").reductions
    assert found["total"].tolist() == [1e-300, 1e-300]
    assert found["top"].tolist() == [1e300, 1e300]
    assert all(map(math.isnan, found["root"]))


def test_reductions_are_part_of_the_stencil():
    rule = relaxed.trace()
    assert Stencil.from_dict(rule.to_dict()) == rule
    assert [each.name for each in rule.reductions] == ["residual", "largest", "smallest"]

    @og.stencil
    def wrong(u):
        return {"u": og.sum(u)}

    with pytest.raises(DefinitionError, match="returns a sum for the field 'u'"):
        wrong.trace(2)

    @og.stencil
    def twice(u):
        return {"u": u, "total": og.sum(og.max(u))}

    with pytest.raises(DefinitionError, match="the sum of a max is that max"):
        twice.trace(2)
