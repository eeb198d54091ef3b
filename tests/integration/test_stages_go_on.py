"""Runs whose stages are made in parts: cut off and going on, of ranks, and of older versions."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import StoreError
from outgrid.runs.manifest import MANIFEST_NAME
from outgrid.stencil.problem import Problem
from outgrid.testing.threads import in_threads

FIELDS = "vz", "vy", "szz", "syy", "szy"
PARTS = ("vz", "vy"), ("szz", "syy"), ("szy",)


@og.stencil
def waves(vz, vy, szz, syy, szy, *, light, stiff):
    def ahead(u, axis):
        return og.forward(u, axis, 4)

    def behind(u, axis):
        return og.backward(u, axis, 4)

    return [
        {
            "vz": vz + light * (ahead(szz, "z") + behind(szy, "y")),
            "vy": vy + light * (behind(szy, "z") + ahead(syy, "y")),
        },
        {
            "szz": szz + stiff * behind(vz, "z"),
            "syy": syy + stiff * behind(vy, "y"),
            "szy": szy + stiff * (ahead(vy, "z") + ahead(vz, "y")),
        },
    ]


def problem(boundary="dirichlet") -> Problem:
    rng = np.random.default_rng(5)
    initial = {name: rng.standard_normal((40, 30, 16)) for name in FIELDS}
    given = {"light": 0.2, "stiff": 0.3}
    return Problem(waves.trace(3), (40, 30, 16), "float64", 9, given, boundary, initial)


def options(out: Path, **given) -> RunOptions:
    settings = {"memory": "256MiB", "tier": "direct", "depth": 3, "slab_planes": 2, "threads": 1}
    return RunOptions.of(out=out, **(settings | given))


def found(result) -> bytes:
    return b"".join(np.asarray(result[name]).tobytes() for name in FIELDS)


def plain(posed: Problem, out: Path) -> bytes:
    run = RunOptions.of(memory="1GiB", scheme="plain", threads=1, out=out)
    result = pipeline.run(posed, run)
    assert result.record.planned["staged"] == ()  # one pass per stage, not per part
    return found(result)


@pytest.mark.parametrize("boundary", ["dirichlet", "periodic", {"y": "neumann"}], ids=str)
@pytest.mark.parametrize("given", [{}, {"strip_rows": 16}, {"tier": "memory"}], ids=str)
@pytest.mark.parametrize("advances", [9, 23, 41])
def test_they_go_on_from_where_they_were_cut_off(boundary, given, advances, tmp_path, cut_off):
    posed, out = problem(boundary), tmp_path / "run"
    answer = plain(posed, tmp_path / "plain")
    run = options(out, commit_every=0, **given)
    if given != {"tier": "memory"} or advances < 23:
        cut_off(advances, lambda: pipeline.run(posed, run))
        result = pipeline.resume(out, run)
    else:
        result = pipeline.run(posed, run)
    assert tuple(map(tuple, result.record.planned["staged"])) == PARTS
    assert found(result) == answer


def test_a_run_of_an_older_version_goes_on_with_whole_stages(tmp_path, cut_off):
    posed, out = problem(), tmp_path / "run"
    run = options(out, commit_every=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("outgrid.forms.staging_of", lambda _: ())
        cut_off(23, lambda: pipeline.run(posed, run))
    path = out / MANIFEST_NAME
    manifest = json.loads(path.read_text())
    assert not manifest.pop("staged")
    path.write_text(json.dumps(manifest))
    result = pipeline.resume(out, run)
    assert result.record.planned["staged"] == ()
    assert found(result) == plain(posed, tmp_path / "plain")


@pytest.mark.parametrize("parts", [[["vz"]], [["vz", "szz"], ["vy", "syy", "szy"]], [["w"]]])
def test_other_stages_of_a_manifest_are_refused(parts, tmp_path, cut_off):
    out = tmp_path / "run"
    run = options(out, commit_every=0)
    cut_off(23, lambda: pipeline.run(problem(), run))
    path = out / MANIFEST_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | {"staged": parts}))
    with pytest.raises(StoreError, match="the stages of waves cannot be made in parts"):
        pipeline.resume(out, run)


@pytest.mark.parametrize("exchange", ["halos", "seams"])
@pytest.mark.parametrize("count", [2, 3])
def test_ranks_leave_the_same_bytes(count, exchange, tmp_path):
    posed = problem()
    run = options(tmp_path / "run", exchange=exchange)
    results = in_threads(
        lambda comm: pipeline.run(posed, run, comm=comm), count, random.Random(count)
    )
    assert found(results[0]) == plain(posed, tmp_path / "plain")
