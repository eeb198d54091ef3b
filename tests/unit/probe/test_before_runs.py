"""A long run that streams measures a disk of which nothing is known, once; others do not."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from outgrid import pipeline, planning
from outgrid.comm import Serial
from outgrid.config import RunOptions
from outgrid.machine import describe_machine
from outgrid.planning import WORTH_PROBING_SECONDS, Planning
from outgrid.probe.effort import Effort
from outgrid.probe.profile import DISK, MEASURED, known_machine, known_profile
from outgrid.stencil.problem import Problem

PROBLEM = Problem("heat7", (2000, 256, 256), "float64", 500, {"k": 0.1}, initial={"u": "x"})
SHORT = Effort(rounds=1, file_bytes=8 << 20, transfer_seconds=0.01, request_bytes=1 << 20)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OUTGRID_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(planning.Effort, "short", lambda: SHORT)


def planned(scratch: Path, seconds: float = WORTH_PROBING_SECONDS, **given):
    options = RunOptions.of(**({"memory": "256MiB", "tier": "direct"} | given))
    machine = known_machine(scratch)
    chosen = pipeline.plan(PROBLEM, options, machine)
    chosen = replace(chosen, prediction=replace(chosen.prediction, seconds=seconds))
    return Planning(options, machine, Serial(), False, scratch), chosen


def test_the_first_long_run_measures_its_disk(tmp_path):
    before, chosen = planned(tmp_path)
    after = before.with_disk(chosen)
    profile = known_profile(describe_machine(), tmp_path)
    assert profile is not None
    assert {*profile.rates} == {*DISK}
    assert not profile.whole
    for name in MEASURED:
        expected = profile.rates[name] if name in DISK else getattr(before.machine, name)
        assert getattr(after.machine, name) == expected
    assert known_machine(tmp_path) == after.machine
    assert not known_machine(tmp_path).measured  # memory and caches were not
    again, chosen = planned(tmp_path)
    assert again.with_disk(chosen) is again
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


@pytest.mark.parametrize(
    "given",
    [
        {"seconds": 0.9 * WORTH_PROBING_SECONDS},
        {"effort": "estimate"},
        {"tier": "memory", "memory": "8GiB"},
        {"memory": "100MiB"},
    ],
)
def test_other_runs_measure_nothing(tmp_path, given, monkeypatch):
    monkeypatch.setattr(planning, "measure_disk", lambda *_: pytest.fail("measured"))
    before, chosen = planned(tmp_path, **given)
    assert before.with_disk(chosen) is before
