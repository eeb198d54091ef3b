"""`outgrid tune`: what is measured is kept; what is printed compares both plans at its rates."""

import json
import os
from types import SimpleNamespace

import numpy as np
import pytest

from outgrid import planning
from outgrid.cli import main
from outgrid.cli import tune as verb
from outgrid.comm import Serial
from outgrid.config import RunOptions
from outgrid.execute.others import Others
from outgrid.gradients import plan_gradient
from outgrid.job import load_job
from outgrid.plan.calibration import Calibration, Sample
from outgrid.plan.tiling import tile_levels
from outgrid.reversal.asked import asked

JOB = """
[problem]
stencil = "heat7"
shape = [64, 64, 64]
steps = 64
initial = { u = 0.1 }
[run]
memory = "1GiB"
tier = "direct"
"""

KERNEL = SimpleNamespace(measurable=True)


class Asked(list):
    """What each measurement was asked for, and what others are going to take during each."""

    def __init__(self):
        self.shares = []


@pytest.fixture
def efforts(tmp_path, monkeypatch):
    """What each measurement was asked for; the tile that a plan had makes 1, another one 3.

    Others take 0.4 of the processors, unless ``shares`` say what they take.
    """
    asked = Asked()

    def calibrate(problem, options, machine, kernel, room_bytes, beside=None):
        asked.append(options.effort)
        patient, samples = options.effort == "patient", [Sample(2, 4, 3e9, group=2)]
        if beside is not None:
            levels = tile_levels(beside, problem)
            samples.append(
                Sample(levels, beside.planes, 1e9, beside.columns, beside.band, fetch=beside.fetch)
            )
        share = asked.shares.pop(0) if asked.shares else 0.4
        return Calibration(tuple(samples), 0.0, patient, share)

    monkeypatch.setenv("OUTGRID_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(planning, "calibrate", calibrate)
    monkeypatch.setattr(planning, "others_share", lambda seconds: 0.4)
    monkeypatch.setattr(verb, "load_kernel", lambda problem: KERNEL)
    (tmp_path / "job.toml").write_text(JOB)
    return asked


def test_a_job_is_tuned_and_plans_find_it(efforts, tmp_path, capsys):
    job = str(tmp_path / "job.toml")
    assert main(["tune", job, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["before"]["updates_per_second"] == pytest.approx(1e9)
    assert found["after"]["updates_per_second"] == pytest.approx(3e9)
    assert (found["after"]["tile"]["rows"], found["after"]["tile"]["group"]) == (4, 2)
    assert main(["tune", job]) == 0
    printed = capsys.readouterr().out
    assert "1.00 times as fast" in printed  # the plan before was the tuned one
    assert "groups of 2" in printed
    assert "other programs took 40 % of the processors" in printed
    assert efforts == ["patient", "patient"]
    assert main(["plan", job]) == 0
    said = capsys.readouterr().out
    assert "kernel rate measured" in said
    assert "other programs took 40 % of the processors" in said


FLOW = """
import outgrid as og

@og.stencil
def flow(u):
    q = og.temporary(u[1, 0, 0] - u, name="q")
    return u + 0.1 * (q - q[-1, 0, 0])
"""


@pytest.mark.parametrize(("temporaries", "again"), [("keep", ()), ("recompute", ("q",))])
def test_the_form_is_measured_that_the_job_uses(temporaries, again, efforts, tmp_path, monkeypatch):
    forms = []
    monkeypatch.setattr(verb, "load_kernel", lambda form: forms.append(form) or KERNEL)
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "job.toml").write_text(JOB.replace("heat7", "flow.py:flow"))
    job = str(tmp_path / "job.toml")
    assert main(["tune", job, "--set", f"temporaries={temporaries}"]) == 0
    assert [form.stencil.recomputed for form in forms] == [again]
    assert efforts == ["patient"]


def test_the_axis_is_measured_that_planes_pass_along(efforts, tmp_path, monkeypatch):
    forms = []
    monkeypatch.setattr(verb, "load_kernel", lambda form: forms.append(form) or KERNEL)
    (tmp_path / "job.toml").write_text(JOB.replace("[64,", "[12,"))
    job = str(tmp_path / "job.toml")
    assert main(["tune", job, "--set", "stream_axis=y", "--set", "tier=direct"]) == 0
    assert [(form.transposed, form.shape[:2]) for form in forms] == [(True, (64, 12))]
    assert efforts == ["patient"]


def test_a_gpu_has_nothing_to_tune(efforts, tmp_path, capsys):
    assert main(["tune", str(tmp_path / "job.toml"), "--set", "device=gpu"]) == 2
    assert "nothing to tune" in capsys.readouterr().err
    assert efforts == []


def test_the_runs_back_of_a_gradient_are_tuned_and_found(efforts, tmp_path, capsys):
    np.save(tmp_path / "end.npy", np.zeros((64, 64, 64)))
    table = '[gradient]\nwrt = ["k"]\nfinal = { u = "end.npy" }\n'
    (tmp_path / "job.toml").write_text(JOB + table)
    job = str(tmp_path / "job.toml")
    assert main(["tune", job, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["after"]["updates_per_second"] == pytest.approx(3e9)
    assert found["back"]["before"]["updates_per_second"] == pytest.approx(1e9)
    assert efforts == ["patient", "patient"]
    assert main(["tune", job]) == 0
    assert "\n  back measured " in capsys.readouterr().out
    objective, keywords = asked(load_job(tmp_path / "job.toml", {}))
    problem = load_job(tmp_path / "job.toml", {}).problem
    plan = plan_gradient(problem, objective=objective, out=tmp_path / "slope", **keywords)
    for way in (plan.forward, plan.back):
        assert any("kernel rate measured" in note for note in way.notes)


def test_thin_grids_are_not_told_to_raise_the_memory_limit(efforts, tmp_path, capsys):
    (tmp_path / "job.toml").write_text(JOB.replace("[64,", "[12,"))
    assert main(["tune", str(tmp_path / "job.toml"), "--set", "stream_axis=z"]) == 3
    said = capsys.readouterr().err
    assert "16 planes or more, and the grid has 12" in said
    assert "memory" not in said
    assert efforts == []


def test_ranks_do_not_tune(efforts, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(verb, "world", lambda: SimpleNamespace(size=3))
    assert main(["tune", str(tmp_path / "job.toml")]) == 2
    assert "threads=N" in capsys.readouterr().err
    assert efforts == []


def test_what_was_measured_patiently_serves_all(efforts, tmp_path):
    problem = load_job(tmp_path / "job.toml", {}).problem
    machine = verb.known_machine(tmp_path)

    def measured(effort):
        options = RunOptions.of(memory="1GiB", effort=effort)
        return planning.calibration(problem, options, machine, None)

    assert not measured("measure").patient
    assert measured("patient").patient
    assert measured("measure").patient
    assert efforts == ["measure", "patient"]


@pytest.mark.parametrize(
    ("effort", "steps", "measures"),
    [
        ("estimate", 10**6, False),
        ("measure", 64, False),
        ("measure", 10**6, True),
        ("patient", 64, True),
    ],
)
def test_effort_says_whether_a_run_measures_its_kernel(effort, steps, measures, efforts, tmp_path):
    (tmp_path / "job.toml").write_text(JOB.replace("steps = 64", f"steps = {steps}"))
    problem = load_job(tmp_path / "job.toml", {}).problem
    options = RunOptions.of(memory="1GiB", tier="direct", depth=16, effort=effort)
    place = planning.Planning(options, verb.known_machine(tmp_path), Serial(), False, tmp_path)
    first = place.first(problem)
    chosen = place.measured(first, problem, KERNEL)
    assert efforts == [effort] * measures
    assert (chosen is first) is not measures


def test_a_disturbed_measurement_is_made_again_once_others_have_ended(
    efforts, tmp_path, monkeypatch
):
    problem, machine = load_job(tmp_path / "job.toml", {}).problem, verb.known_machine(tmp_path)
    efforts.shares += [0.5, 0.3, 0.4, 0.0]

    def measured():
        options = RunOptions.of(memory="1GiB")
        rates = planning.calibration(problem, options, machine, None)
        assert rates == planning.known_rates(problem, options, machine)
        return rates.others_share

    assert [measured(), measured()] == [0.5, 0.5]
    assert len(efforts) == 1  # they are there still
    monkeypatch.setattr(planning, "others_share", lambda seconds: 0.0)
    assert [measured(), measured(), measured(), measured()] == [0.3, 0.3, 0.0, 0.0]
    assert len(efforts) == 4


def test_a_disturbed_measurement_does_not_replace_another(efforts, tmp_path, capsys):
    job = str(tmp_path / "job.toml")
    efforts.shares += [0.0]
    assert main(["tune", job]) == 0
    assert "busy" not in capsys.readouterr().out
    assert main(["tune", job]) == 0
    assert "what was measured before stays: tune again later" in capsys.readouterr().out
    assert main(["plan", job]) == 0
    said = capsys.readouterr().out
    assert "kernel rate measured" in said
    assert "other programs" not in said


def test_others_are_what_usable_processors_did_beside_this_process(tmp_path, monkeypatch):
    statistics = tmp_path / "stat"
    monkeypatch.setattr("outgrid.execute.others.STATISTICS", statistics)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {2, 5})
    clock = iter([0.0, 10.0, 0.0, 10.0, 0.0, 10.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    assert Others().share() == 0.0  # nothing tells

    def tell(ticks):
        lines = (f"cpu{number} {ticks[number]} 0 10 500 5 0 0 0 0 0\n" for number in range(8))
        statistics.write_text(f"cpu  {sum(ticks)} 0 80 9 9 0 0 0 0 0\n{''.join(lines)}intr 8 8\n")

    second = os.sysconf("SC_CLK_TCK")
    tell([0] * 8)
    others = Others()
    tell([0, 0, 8 * second, 0, 0, 4 * second, 0, 0])
    assert others.share() == pytest.approx(0.6, abs=0.05)
    others = Others()
    tell([99 * second, 0, 8 * second, 0, 0, 4 * second, 0, 0])
    assert others.share() == pytest.approx(0.0, abs=0.05)
