"""Runs with temporaries that are cut off and go on, and those of several ranks."""

import random
from pathlib import Path

import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.stencil.problem import Problem
from outgrid.stencil.recomputed import far_share
from outgrid.testing.threads import in_threads

AROUND = {
    "fixed faces": "dirichlet",
    "closed along z": {"z": "periodic"},
    "closed along y": {"y": "periodic"},
}


@og.stencil
def midpoint(u, c, *, k):
    half = og.temporary(u + k * c * og.laplacian(u))
    flow = og.temporary(half[1, 0, 0] - half[0, -1, 1])
    return u + k * c * (og.laplacian(half) + flow - flow[-2, 0, 0])


def problem(boundary, columns=14) -> Problem:
    values = np.random.default_rng(3).random((26, 18, columns))
    initial = {"u": values, "c": "1 + x / 20"}
    return Problem(midpoint.trace(3), values.shape, "float64", 8, {"k": 0.02}, boundary, initial)


def options(out: Path, **given) -> RunOptions:
    settings = {"memory": "256MiB", "tier": "direct", "depth": 3, "slab_planes": 2, "threads": 1}
    return RunOptions.of(out=out, **(settings | given))


def plain(posed: Problem, out: Path) -> bytes:
    given = RunOptions.of(memory="1GiB", scheme="plain", threads=1, temporaries="keep", out=out)
    return np.asarray(pipeline.run(posed, given)["u"]).tobytes()


@pytest.mark.parametrize("boundary", AROUND.values(), ids=AROUND)
@pytest.mark.parametrize("given", [{}, {"strip_rows": 9}, {"tier": "memory"}], ids=str)
@pytest.mark.parametrize("advances", [9, 14, 23, 31])
def test_they_go_on_from_where_they_were_cut_off(boundary, given, advances, tmp_path, cut_off):
    posed, out = problem(boundary), tmp_path / "run"
    answer = plain(posed, tmp_path / "plain")
    run = options(out, commit_every=0, **given)
    cut_off(advances, lambda: pipeline.run(posed, run))
    result = pipeline.resume(out, run)
    assert np.asarray(result["u"]).tobytes() == answer
    assert set(result.record.fields) == {"u"}


@pytest.mark.parametrize("given", [{}, {"strip_rows": 9}], ids=str)
@pytest.mark.parametrize("advances", [14, 31])
def test_those_computed_again_are_so_after_a_resume(given, advances, tmp_path, cut_off):
    posed, out = problem("neumann", 70), tmp_path / "run"
    again = options(out, commit_every=0, temporaries="recompute", **given)
    cut_off(advances, lambda: pipeline.run(posed, again))
    result = pipeline.resume(out, options(out, commit_every=0, **given))
    assert result.record.planned["recomputed"] == ("temporary1", "temporary2")
    assert far_share(posed.recomputing(result.record.planned["recomputed"])) > 0
    assert np.asarray(result["u"]).tobytes() == plain(posed, tmp_path / "plain")


@pytest.mark.parametrize("around", ["fixed faces", "closed along y"])
@pytest.mark.parametrize(("count", "again"), [(2, False), (3, False), (2, True)])
def test_ranks_leave_the_same_bytes(around, count, again, tmp_path):
    posed = problem(AROUND[around], 70 if again else 14)
    given = options(tmp_path / "run", temporaries="recompute" if again else "keep")
    results = in_threads(
        lambda comm: pipeline.run(posed, given, comm=comm), count, random.Random(count)
    )
    assert np.asarray(results[0]["u"]).tobytes() == plain(posed, tmp_path / "plain")
