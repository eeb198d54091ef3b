"""One road: alone or on ranks, from a problem or from what is durable, by the same calls."""

import random

import numpy as np
import pytest

from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import UsageError
from outgrid.record import RECORD_NAME
from outgrid.runs.group import GROUP_NAME
from outgrid.runs.lock import RunLock
from outgrid.runs.manifest import MANIFEST_NAME
from outgrid.runs.state import RunFolder
from outgrid.stencil.problem import Problem
from outgrid.testing.threads import in_threads


def problem(**given) -> Problem:
    values = np.random.default_rng(5).random((26, 9, 12))
    initial = {"u": values} | given
    return Problem("heat7", values.shape, "float64", 8, {"k": 0.1}, initial=initial)


def options(out=None, **given) -> RunOptions:
    given = {"depth": 2, "slab_planes": 2, "threads": 1} | given
    return RunOptions.of(memory="256MiB", tier="direct", out=out, **given)


def on_ranks(act, count=2):
    return in_threads(lambda comm: act(comm=comm), count, random.Random(count))


def test_pieces_of_ranks_are_gone_on_with_by_one_process(tmp_path, cut_off):
    out = tmp_path / "run"
    cut_off(20, lambda: on_ranks(lambda comm: pipeline.run(problem(), options(out), comm=comm)))
    assert (out / GROUP_NAME).exists()
    found = pipeline.resume(out, options())
    wanted = pipeline.run(problem(), options(tmp_path / "alone"))
    assert np.asarray(found["u"]).tobytes() == np.asarray(wanted["u"]).tobytes()
    assert len(found.record.ranks) == 1
    assert not (out / GROUP_NAME).exists()


def test_a_run_that_would_be_alone_does_not_begin_among_pieces(tmp_path, cut_off):
    out = tmp_path / "run"
    cut_off(20, lambda: on_ranks(lambda comm: pipeline.run(problem(), options(out), comm=comm)))
    before = sorted(out.rglob("*"))
    with pytest.raises(UsageError, match=rf"{GROUP_NAME} exists and is not overwritten"):
        pipeline.run(problem(), options(out))
    assert sorted(out.rglob("*")) == before


@pytest.mark.parametrize("count", [1, 2])
def test_a_run_cut_off_after_its_record_has_its_leavings_removed(count, tmp_path, monkeypatch):
    out = tmp_path / "run"

    def cut(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "remove_files", cut)
        with pytest.raises(KeyboardInterrupt):
            on_ranks(lambda comm: pipeline.run(problem(), options(out), comm=comm), count)
    record = (out / RECORD_NAME).read_bytes()
    results = on_ranks(lambda comm: pipeline.resume(out, options(), comm=comm), count)
    assert (out / RECORD_NAME).read_bytes() == record
    assert np.asarray(results[0]["u"]).shape == (26, 9, 12)
    assert not list(out.rglob(MANIFEST_NAME))
    assert not (out / GROUP_NAME).exists()


def test_all_ranks_are_told_what_is_against_any_of_them(tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    (out / RECORD_NAME).write_text("{}")
    given = problem(u=tmp_path / "nothing.npy")

    def against(comm):
        plan = pipeline.plan(given, options(out), comm=comm)
        return pipeline.objections(given, options(out), plan, comm=comm)

    one, other = on_ranks(against)
    assert one == other
    assert [line.split(":")[0] for line in one] == ["rank 0", "rank 0"]
    assert "nothing.npy does not exist" in one[0]
    assert "record.json exists and is not overwritten" in one[1]


def test_the_lock_is_held_where_one_process_goes_on(tmp_path, cut_off):
    out = tmp_path / "run"
    cut_off(20, lambda: pipeline.run(problem(), options(out)))
    with RunLock(out), pytest.raises(UsageError, match="one run at a time"):
        pipeline.resume(out, options())
