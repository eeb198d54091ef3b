"""Parameters that follow a reduction of some steps before."""

import json
import random
import re

import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import DefinitionError, UsageError
from outgrid.stencil.problem import Problem
from outgrid.testing.reference import reference_with_bound, run_reference
from outgrid.testing.threads import in_threads

SHAPE, STEPS, LAG = (30, 14, 20), 13, 4


@og.stencil
def porous(u, *, largest, heat):
    """Diffusion faster where there is more, by steps as long as the largest value allows."""
    step = 0.15 / og.maximum(largest, 0.1)
    flow = og.laplacian(u * u) / 2
    new = u + step * flow + 1e-3 * og.tanh(heat / 1e3)
    return {"u": new, "most": og.max(u), "total": og.sum(u), "change": og.max(og.absolute(flow))}


def problem(lag=LAG, steps=STEPS, boundary="neumann", **given):
    values = np.random.default_rng(5).random(SHAPE)
    parameters = {
        "largest": og.Lagged("most", lag, first=1.0),
        "heat": {"reduction": "total", "lag": lag + 2, "first": 5.0},
    }
    return Problem(porous, SHAPE, "float64", steps, parameters, boundary, {"u": values}, **given)


def options(out, **given):
    return RunOptions.of(**{"memory": "512MiB", "threads": 1, "tier": "direct", "out": out} | given)


def bytes_of(result):
    columns = [result.reductions[name].tobytes() for name in sorted(result.reductions)]
    return np.asarray(result["u"]).tobytes(), columns


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    out = tmp_path_factory.mktemp("lagged") / "plain"
    return pipeline.run(problem(), options(out, scheme="plain", tier="memory"))


def test_it_is_the_reduction_of_so_many_steps_before(plain):
    posed = problem()
    assert Problem.from_dict(json.loads(json.dumps(posed.to_dict()))) == posed
    assert np.abs(plain["u"] - run_reference(posed)["u"]).max() < 1e-12
    seen = plain.reductions
    listed = {
        "largest": [*[1.0] * LAG, *seen["most"][:-LAG]],
        "heat": [*[5.0] * (LAG + 2), *seen["total"][: -LAG - 2]],
    }
    given = Problem(porous, SHAPE, "float64", STEPS, listed, "neumann", {"u": posed.initial["u"]})
    again = pipeline.run(given, options(plain.out.parent / "listed"))
    assert bytes_of(again) == bytes_of(plain)


WAYS = {
    "deep": {"depth": 4, "slab_planes": 3, "threads": 2},
    "deeper than the lag": {"depth": 9, "slab_planes": 2},
    "strips": {"depth": 3, "slab_planes": 2, "strip_rows": 6},
    "in memory": {"tier": "memory"},
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_no_setting_changes_a_bit(way, plain, tmp_path):
    posed = problem()
    chosen = pipeline.plan(posed, options(tmp_path / "run", **way))
    assert chosen.depth <= LAG
    assert any("largest is most of 4 steps before" in note for note in chosen.notes)
    assert bytes_of(pipeline.run(posed, options(tmp_path / "run", **way))) == bytes_of(plain)


@pytest.mark.parametrize(
    ("boundary", "way"),
    [
        ({"z": "periodic"}, {"slab_planes": 2}),
        ({"y": "periodic"}, {"slab_planes": 2}),
        ("dirichlet", {"scheme": "overlapped"}),
    ],
    ids=str,
)
def test_other_boundaries_and_blocks_have_the_same_bytes(boundary, way, tmp_path):
    posed = problem(boundary=boundary)
    wanted = pipeline.run(posed, options(tmp_path / "plain", scheme="plain", tier="memory"))
    found = pipeline.run(posed, options(tmp_path / "deep", depth=3, **way))
    assert bytes_of(found) == bytes_of(wanted)


@pytest.mark.parametrize("exchange", ["halos", "seams"])
def test_ranks_have_the_same_bytes(exchange, plain, tmp_path):
    given = options(tmp_path / "run", depth=3, slab_planes=2, exchange=exchange)
    results = in_threads(
        lambda comm: pipeline.run(problem(), given, comm=comm), 2, random.Random(2)
    )
    assert bytes_of(results[0]) == bytes_of(plain)


@pytest.mark.parametrize("advances", [8, 19, 40])
def test_a_run_that_was_cut_off_goes_on(advances, plain, tmp_path, cut_off):
    given = options(tmp_path / "run", depth=3, slab_planes=4)
    cut_off(advances, lambda: pipeline.run(problem(), given))
    assert bytes_of(pipeline.resume(tmp_path / "run", given)) == bytes_of(plain)


def test_another_number_of_ranks_goes_on(plain, tmp_path, cut_off):
    given = options(tmp_path / "run", depth=3, slab_planes=4)
    cut_off(25, lambda: pipeline.run(problem(), given))
    results = in_threads(
        lambda comm: pipeline.resume(tmp_path / "run", given, comm=comm), 2, random.Random(1)
    )
    assert bytes_of(results[0]) == bytes_of(plain)


def test_a_run_ends_early_beside(plain, tmp_path):
    limit = plain.reductions["change"][7] * (1 + 1e-9)
    until = og.Until("change", every=4, below=limit)
    ended = pipeline.run(problem(until=until), options(tmp_path / "run", depth=3, slab_planes=4))
    assert ended.record.steps == 8
    assert ended.reductions["most"].tobytes() == plain.reductions["most"][:8].tobytes()


def test_where_it_is_not_finite_is_found(tmp_path):
    posed = problem(lag=2).replace(
        parameters={"largest": og.Lagged("most", 2, 1.0), "heat": og.Lagged("change", 2, 1.0)},
        initial={"u": "where(x + y + z == 20, 1e200, 0.5)"},
    )
    with pytest.raises(og.Error, match=r"in step \d+"):
        pipeline.run(posed, options(tmp_path / "run", depth=2, slab_planes=4))


@og.stencil
def rough(u):
    """Heat, and how rough it is behind each step."""
    apart = u[0, 1, 0] - u[0, 0, -1]
    return [
        u + 0.1 * og.laplacian(u),
        {"rough": og.sum(apart * apart), "least": og.min(u[1, 0, 0])},
    ]


def test_a_stage_may_have_reductions_alone(tmp_path):
    values = np.random.default_rng(6).random(SHAPE)
    posed = Problem(rough, SHAPE, "float64", 7, {}, "periodic", {"u": values})
    seen = []

    def look(state):
        u = state["u"]
        apart = np.roll(u, -1, 1) - np.roll(u, 1, 2)
        seen.append((np.sum(apart * apart), u.min()))

    run_reference(posed, seen=look)
    plain = pipeline.run(posed, options(tmp_path / "plain", scheme="plain", tier="memory"))
    deep = pipeline.run(posed, options(tmp_path / "deep", depth=3, slab_planes=2, threads=2))
    assert bytes_of(deep) == bytes_of(plain)
    found = plain.reductions["rough"], plain.reductions["least"]
    assert np.allclose(np.transpose(found), seen, rtol=1e-13)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (og.Lagged("mst", 2, 1.0), "follows 'mst', .*did you mean 'most'"),
        ({"reduction": "most", "lag": 0, "first": 1.0}, "above 0, not 0"),
        ({"reduction": "most", "lag": 2}, "needs the entry 'first'"),
        ({"reduction": "most", "lag": 2, "first": float("nan")}, "not nan"),
    ],
)
def test_mistakes_are_told(value, words):
    with pytest.raises(DefinitionError, match=words):
        problem().replace(parameters={"largest": value, "heat": 1.0})


def test_what_is_not_made_says_so(tmp_path):
    with pytest.raises(UsageError, match="no bound"):
        reference_with_bound(problem())
    objective = og.Cotangents(final={"u": np.ones(SHAPE)})
    with pytest.raises(UsageError, match=r"largest is most of 4 steps before.*as a table"):
        og.gradient(problem(), objective, wrt=["u"], memory="512MiB", out=tmp_path / "gradient")


def test_plans_say_what_a_lag_costs():
    notes = "\n".join(og.plan(problem(), memory="256MiB").notes)
    assert re.search(r"with sweeps of up to \d+ steps; if largest, heat followed no", notes)
