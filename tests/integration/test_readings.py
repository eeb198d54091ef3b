"""What a run says of itself: its latest reading, all of them, metrics, and calls after sweeps."""

import json
import re

import msgspec
import numpy as np
import pytest

import outgrid as og
from outgrid.errors import Stopped, UsageError
from outgrid.execute import streaming
from outgrid.observe import live
from outgrid.runs.reading import Reading, metrics_text, read_reading

STREAMED = {"memory": "200MiB", "tier": "direct", "depth": 3, "slab_planes": 2, "threads": 1}


@og.stencil
def summed(u, *, k):
    return {"u": u + k * og.laplacian(u), "total": og.sum(u), "least": og.min(u)}


def problem(steps=12):
    initial = {"u": "x + y * z"}
    return og.Problem("heat7", (40, 16, 33), steps=steps, parameters={"k": 0.1}, initial=initial)


def reduced(steps=12):
    initial = {"u": "x + y"}
    return og.Problem(summed, (60, 40), steps=steps, parameters={"k": 0.1}, initial=initial)


@pytest.fixture
def always(monkeypatch):
    """A reading at each advance."""
    monkeypatch.setattr(streaming, "PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr("outgrid.execution.PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(live, "SECONDS_BETWEEN_READINGS", 0.0)


def test_the_files_follow_a_run_and_say_that_it_is_finished(tmp_path, always):
    out, metrics, seen = tmp_path / "run", tmp_path / "run.prom", []
    result = og.run(
        problem(),
        out=out,
        metrics=metrics,
        progress=lambda _: seen.append((read_reading(out), metrics.read_text())),
        **STREAMED,
    )
    readings = [reading for reading, _ in seen]
    running = [reading for reading in readings if reading.state == "running"]
    assert [r.step for r in running] == sorted(r.step for r in running)
    assert all(r.steps == 12 and r.memory_limit_bytes == 200 << 20 for r in readings)
    assert running[-1].updates_done == running[-1].updates_total
    spent = [r.processor_seconds for r in running]
    assert 0 < spent[0] <= spent[-1] == max(spent)
    assert all(r.threads == 1 and r.processors >= 0 for r in running)
    assert any(r.processors > 0 for r in running)
    assert all(text.endswith("# EOF\n") for _, text in seen)
    last = read_reading(out)
    assert (last.state, last.step, last.share_done, last.left_seconds) == ("finished", 12, 1.0, 0.0)
    lines = (out / "progress.jsonl").read_text().splitlines()
    assert msgspec.json.decode(lines[-1], type=Reading) == last
    assert {"progress.jsonl", "status.json"} <= set(result.record.left)
    told = metrics.read_text()
    assert 'outgrid_step{rank="0"} 12.0' in told
    assert f'outgrid_processor_seconds{{rank="0"}} {last.processor_seconds!r}' in told
    og.run(problem(), out=out, metrics=metrics, overwrite=True, progress=False, **STREAMED)


def test_a_stopped_run_goes_on_in_its_files(tmp_path, always):
    out = tmp_path / "run"
    with pytest.raises(Stopped):
        og.run(problem(), out=out, stop_after=1e-9, progress=False, **STREAMED)
    first = (out / "progress.jsonl").read_text()
    og.resume(out, progress=False)
    assert (out / "progress.jsonl").read_text().startswith(first)
    assert json.loads((out / "status.json").read_text())["state"] == "finished"


@pytest.mark.parametrize("tier", ["direct", "memory"])
def test_a_function_is_called_after_each_sweep(tier, tmp_path):
    seen = []
    given = {"memory": "200MiB", "tier": tier, "depth": 3, "progress": False}
    result = og.run(reduced(), out=tmp_path / "run", on_sweep=seen.append, **given)
    sweeps = result.record.planned["sweeps"]
    assert [reading.sweep for reading in seen] == [*range(1, sweeps + 1)]
    assert seen[-1].step == 12
    for reading in seen:
        for name, values in result.reductions.items():
            assert reading.reductions[name] == values[reading.step - 1]


def test_what_it_raises_ends_the_run_which_goes_on(tmp_path):
    out, given = tmp_path / "run", {"commit_every": 0, "progress": False, **STREAMED}

    def fail(reading):
        if reading.step == 6:
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        og.run(problem(), out=out, on_sweep=fail, **given)
    steps = []
    result = og.resume(out, on_sweep=lambda reading: steps.append(reading.step), progress=False)
    assert steps[-1] == 12
    whole = og.run(problem(), out=tmp_path / "whole", progress=False, **STREAMED)
    assert np.array(result["u"]).tobytes() == np.array(whole["u"]).tobytes()


def test_a_reading_that_cannot_be_written_is_told_and_ends_nothing(tmp_path, always):
    out = tmp_path / "run"

    def spoil(_):
        if not (out / "progress.jsonl.aside").exists():
            (out / "progress.jsonl").rename(out / "progress.jsonl.aside")
            (out / "progress.jsonl").mkdir()

    result = og.run(problem(), out=out, progress=spoil, **STREAMED)
    assert any("the status of the run could not be written" in w for w in result.record.warnings)


def test_metrics_replace_no_other_file(tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("precious")
    for path, words in (
        (notes, "not overwritten"),
        (tmp_path / "no" / "m.prom", "does not exist; make it"),
    ):
        with pytest.raises(UsageError, match=words):
            og.run(problem(), out=tmp_path / "run", metrics=path, progress=False, **STREAMED)
    assert notes.read_text() == "precious"
    assert not (tmp_path / "run").exists()
    inside = tmp_path / "run" / "heat.prom"  # the run makes the folder
    og.run(problem(), out=tmp_path / "run", metrics=inside, progress=False, **STREAMED)
    assert inside.exists()


def test_metrics_are_of_the_format():
    reading = Reading(
        state="running", time="", started="", host="", pid=1, reductions={"e": float("inf")}
    )
    *lines, end, nothing = metrics_text(reading).split("\n")
    assert (end, nothing) == ("# EOF", "")
    sample = r'outgrid_[a-z_]+\{[a-z]+="\w+"\} (-?[0-9.e+-]+|[+-]Inf|NaN)'
    for line in lines:
        assert re.fullmatch(rf"# (TYPE|HELP) outgrid_[a-z_]+ [\w ]+|{sample}", line), line
    assert 'outgrid_reduction{name="e"} +Inf' in lines
    assert not any("left_seconds{" in line and "planned" not in line for line in lines)


@pytest.mark.parametrize("name", ["on_sweep", "progress"])
def test_who_is_told_must_be_a_function(name, tmp_path):
    with pytest.raises(UsageError, match=f"{name} must be .*function.*, not 'all'"):
        og.run(problem(), memory="256MiB", out=tmp_path / "run", **{name: "all"})
    assert not (tmp_path / "run").exists()
