"""Coefficients that change with every step: the reference's values, whichever way they are read."""

import json
import os
import random
import re

import numpy as np
import pytest

from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.definition import stencil
from outgrid.errors import DefinitionError, UsageError
from outgrid.execute import streaming
from outgrid.runs.manifest import MANIFEST_NAME
from outgrid.runs.verify import verify
from outgrid.stencil.problem import Problem
from outgrid.stencil.series import Series
from outgrid.testing.reference import run_reference
from outgrid.testing.threads import in_threads

STEPS = 6
SHAPE = (30, 21, 13)


@stencil
def blown(u, wind, h, *, k):
    """Diffusion, and transport by a wind of which neighbours are read."""
    return u + k * (u[-1, 0, 0] + u[1, 0, 0] - 2 * u) + h * (wind[1, 0, 0] * u[0, 1, 0] - wind * u)


@pytest.fixture
def posed(tmp_path):
    rng = np.random.default_rng(5)
    np.save(tmp_path / "first.npy", rng.normal(size=SHAPE))
    np.save(tmp_path / "others.npy", rng.normal(size=(STEPS, *SHAPE)))
    wind = Series((tmp_path / "first.npy", tmp_path / "others.npy"), first=STEPS, step=-1)
    initial = {"u": rng.normal(size=SHAPE), "h": 0.1, "wind": wind}
    return Problem(blown, SHAPE, steps=STEPS, parameters={"k": 0.1}, initial=initial)


def run(problem, out, **options):
    given = {"memory": "512MiB", "threads": 2, "tier": "direct"} | options
    return pipeline.run(problem, RunOptions.of(out=out, **given))


def test_every_way_to_run_reads_the_frame_of_each_step(posed, tmp_path):
    plain = run(posed, tmp_path / "plain", scheme="plain")
    expected = run_reference(posed)["u"]
    assert np.allclose(plain["u"], expected, rtol=0, atol=1e-13)
    still = posed.replace(initial={**posed.initial, "wind": Series(posed.initial["wind"].paths)})
    assert not np.allclose(run_reference(still)["u"], expected)
    ways = (
        {"tier": "mmap"},
        {"tier": "swap", "slab_planes": 3},
        {"scheme": "overlapped", "block": (9, 8, 13)},
        {"strip_rows": 9, "depth": 3},
        {"depth": 4, "slab_planes": 2},
    )
    for number, way in enumerate(ways):
        other = run(posed, tmp_path / str(number), **way)
        assert np.array_equal(other["u"], plain["u"]), way
    assert other.plan.schedule.depths == (2, 4)
    assert not (tmp_path / "plain" / "wind.npy").exists()


@pytest.mark.parametrize("advances", [5, 17, 25])
def test_a_run_goes_on_with_the_frames_that_are_left(advances, posed, tmp_path, cut_off):
    out, given = tmp_path / "run", {"slab_planes": 3, "depth": 2, "commit_every": 0}
    cut_off(advances, lambda: run(posed, out, **given))
    made = pipeline.resume(out, RunOptions.of(out=out, memory="512MiB"))
    plain = run(posed, tmp_path / "plain", scheme="plain")
    assert np.array_equal(made["u"], plain["u"])


@pytest.mark.parametrize("file", ["first.npy", "others.npy"])
def test_files_that_change_meanwhile_are_told(file, posed, tmp_path, cut_off):
    out, given = tmp_path / "run", {"slab_planes": 3, "depth": 2, "commit_every": 0}
    path, words = tmp_path / file, rf"reads wind where it lies, in .*{file}, and that file changed"

    def change(by=1):
        status = path.stat()
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + by))

    cut_off(17, lambda: run(posed, out, **given))
    change()
    with pytest.raises(UsageError, match=words):
        pipeline.resume(out, RunOptions.of(memory="512MiB"))
    assert re.search(words, str(verify(out).errors[0]))
    change(-1)
    assert not verify(out).errors
    made = pipeline.resume(out, RunOptions.of(memory="512MiB"))
    assert np.array_equal(made["u"], run(posed, tmp_path / "plain", scheme="plain")["u"])
    meddle = [change]  # while a run goes on
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "PROGRESS_SECONDS", 0.0)
        options = RunOptions.of(memory="512MiB", tier="direct", out=tmp_path / "o", **given)
        with pytest.raises(UsageError, match=words):
            pipeline.run(posed, options, lambda seen: meddle.pop()() if meddle else None)


def test_a_manifest_that_does_not_know_the_files_is_read(posed, tmp_path, cut_off):
    out, given = tmp_path / "run", {"slab_planes": 3, "depth": 2, "commit_every": 0}
    cut_off(17, lambda: run(posed, out, **given))
    told = json.loads((out / MANIFEST_NAME).read_text())
    assert len(told.pop("series")["wind"]) == 2
    (out / MANIFEST_NAME).write_text(json.dumps(told | {"format": 8}))
    made = pipeline.resume(out, RunOptions.of(memory="512MiB"))
    assert np.array_equal(made["u"], run(posed, tmp_path / "plain", scheme="plain")["u"])


@pytest.mark.parametrize("exchange", ["halos", "seams"])
def test_ranks_read_their_part_of_each_frame(exchange, posed, tmp_path):
    given = RunOptions.of(
        memory="512MiB", threads=1, tier="direct", exchange=exchange, out=tmp_path / "run"
    )
    made = in_threads(lambda comm: pipeline.run(posed, given, comm=comm), 3, random.Random(3))
    plain = run(posed, tmp_path / "plain", scheme="plain")
    assert np.array_equal(np.asarray(made[0]["u"]), plain["u"])


def test_what_does_not_fit_is_refused(posed, tmp_path):
    wind = posed.initial["wind"]

    def refused(error, words, series=wind, **changes):
        with pytest.raises(error, match=words):
            run(posed.replace(initial={**posed.initial, "wind": series}, **changes), tmp_path / "r")

    refused(UsageError, "frames 0..6, and step 7 reads frame -1", steps=8)
    refused(UsageError, "does not exist", Series(tmp_path / "wind.npy"))
    np.save(tmp_path / "flat.npy", np.zeros((9, 21, 13)))
    refused(UsageError, r"shape \(9, 21, 13\); the grid has", Series(tmp_path / "flat.npy"))
    np.save(tmp_path / "short.npy", np.zeros((9, *SHAPE), "float32"))
    refused(UsageError, r'dtypes=\{"wind": "float32"\}', Series(tmp_path / "short.npy"))
    with pytest.raises(DefinitionError, match="fields that are only read"):
        posed.replace(initial={**posed.initial, "u": wind})
    with pytest.raises(UsageError, match="choose tier direct"):
        run(posed, tmp_path / "r", tier="memory")
    with pytest.raises(DefinitionError, match=r"needs \.npy files, and wind"):
        Series("wind.txt")
    with pytest.raises(DefinitionError, match="must be a whole number"):
        Series("wind.npy", 0.5)
