"""The search finds what is fastest, always judges the choice, and leaves nothing behind."""

import json
import math
from types import SimpleNamespace

import pytest

from outgrid.cli import main
from outgrid.config import RunOptions
from outgrid.errors import UsageError
from outgrid.machine import describe_machine
from outgrid.parts import FIXED_BYTES, load_kernel
from outgrid.plan.planner import plan as choose
from outgrid_bench import search
from outgrid_bench.cli import tune as bench_tune
from outgrid_bench.kept import Kept
from outgrid_bench.search import Ground, neighbourhood, race
from outgrid_bench.tunings import TUNINGS, choose_tunings, small


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few candidates, one round, and rates that are assumed."""
    few = {ndim: values[:1] for ndim, values in search.LEVELS.items()}
    monkeypatch.setattr(search, "LEVELS", few)
    monkeypatch.setattr(search, "FRONTS", search.FRONTS[:1])
    monkeypatch.setattr(search, "DEPTHS", (1, 4))
    monkeypatch.setattr(search, "ROUNDS", 2)
    monkeypatch.setattr(bench_tune, "probed_machine", lambda folder, say: describe_machine())


def planned(tuning, **options):
    wanted = RunOptions.of(memory=tuning.memory_bytes, **options)
    return choose(tuning.problem, wanted, describe_machine(), FIXED_BYTES)


def test_the_problems_differ_in_dimensions_radius_fields_and_memory():
    assert len(TUNINGS) >= 6
    problems = [tuning.problem for tuning in TUNINGS]
    assert {problem.ndim for problem in problems} == {2, 3}
    assert {max(problem.stencil.radius) for problem in problems} == {1, 2, 4}
    assert {len(problem.stencil.fields) for problem in problems} == {1, 2, 3}
    for tuning in TUNINGS:
        plan = planned(tuning, tier="memory" if tuning.name.endswith("rich") else "direct")
        assert plan.schedule.resident == tuning.name.endswith("rich")
        cut = any(plan.schedule.strips.count(depth) > 1 for depth in plan.schedule.depths)
        assert cut or not tuning.name.endswith("wide")


@pytest.mark.parametrize("tuning", TUNINGS, ids=lambda tuning: tuning.name)
def test_every_combination_that_fits_is_a_candidate_once(tuning):
    options = RunOptions(memory_bytes=tuning.memory_bytes)
    choice = planned(tuning)
    machine = describe_machine()
    plans = neighbourhood(
        tuning.problem,
        options,
        machine,
        choice,
        lambda wanted: choose(tuning.problem, wanted, machine, FIXED_BYTES),
    )
    assert plans[0] == choice
    schedules = [(p.schedule, p.tile, p.threads) for p in plans]
    settings = [(s.resident, s.depths, s.slab_planes, s.strips, *more) for s, *more in schedules]
    assert len(set(settings)) == len(settings) >= 30
    assert {p.depth for p in plans} >= {1, choice.depth}
    room = tuning.memory_bytes - FIXED_BYTES
    assert all(p.memory.window_bytes + p.memory.transfer_bytes <= room for p in plans)


def test_the_fastest_of_new_measurements_counts_not_the_luckiest(monkeypatch):
    """Candidate i takes i + 1 seconds; the slowest but one looks fastest once."""
    plans = [SimpleNamespace(number=i) for i in (9, 0, 1, 2, 3, 4, 5, 6, 7, 8)]
    seen = []

    def seconds(plan, kernel, patience=math.inf):
        lucky = plan.number == 8 and patience < math.inf
        seen.append(plan.number)
        taken = 0.5 if lucky else plan.number + 1.0
        return taken if taken <= patience else math.inf

    ground = SimpleNamespace(seconds=seconds)
    monkeypatch.setattr(search, "SLOWER", 20.0)
    timings = race(plans, ground, None)
    finalists = {t.plan.number for t in timings if t.samples}
    assert finalists == {9, 8, 0, 1, 2, 3, 4}
    assert all(len(t.samples) in (0, search.ROUNDS) for t in timings)
    best = min((t for t in timings if t.samples), key=lambda t: t.seconds)
    assert best.plan.number == 0
    assert seen[:10] != sorted(seen[:10])


def test_a_run_given_up_leaves_files_that_run_again(tmp_path):
    tuning = small(choose_tunings(["heat7-poor"])[0])
    plan = planned(tuning, tier="direct", depth=4, slab_planes=2)
    kernel = load_kernel(tuning.problem)
    with Ground(tuning.problem, plan.schedule.arrivals, tmp_path) as ground:
        assert ground.seconds(plan, kernel, 0.0) == math.inf
        assert ground.transfers.drain() == []
        assert 0 < ground.seconds(plan, kernel) < math.inf
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("brief")
def test_the_verb_prints_a_table_and_goes_on_where_it_stopped(tmp_path, capsys):
    target = tmp_path / "tune.json"
    common = ["bench", "tune", "--quick", "--scratch", str(tmp_path), "--json", str(target)]
    assert main([*common, "--only", "heat7-rich"]) == 0
    first = json.loads(target.read_text())
    assert main([*common, "--only", "heat7-rich", "--only", "flow-poor", "--resume"]) == 0
    rows = json.loads(target.read_text())
    assert rows[0] == first[0]
    assert [row["problem"] for row in rows] == ["heat7-rich", "flow-poor"]
    for row in rows:
        assert 0 < row["choice_over_best"] <= 1
        assert row["predicted_over_measured"] > 0
        choice, *others = row["candidates"]
        assert len(choice["samples"]) == 2
        assert any(candidate["samples"] == [] for candidate in others) or len(others) <= 6
    told = capsys.readouterr().out
    assert "flow-poor" in told
    assert "choice/best" in told
    assert [entry.name for entry in tmp_path.iterdir()] == ["tune.json"]


def test_an_unknown_problem_is_told_with_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'heat7-rich'"):
        choose_tunings(["heat7-rch"])


def test_rows_are_in_the_file_as_soon_as_they_are_added(tmp_path):
    path = tmp_path / "rows.json"
    kept = Kept(path, ("name", "mode"), resume=True)
    kept.add({"name": "a", "mode": 1, "rate": 2.0})
    again = Kept(path, ("name", "mode"), resume=True)
    assert again.rows == kept.rows
    assert ("a", 1) in again
    assert ("a", 2) not in again
    assert Kept(path, ("name",), resume=False).rows == []


@pytest.mark.parametrize("text", ["{", "[1]", '[{"mode": 1}]'])
def test_a_file_of_something_else_is_not_gone_on_with(tmp_path, text):
    path = tmp_path / "rows.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"rows\.json holds no rows"):
        Kept(path, ("name",), resume=True)
    with pytest.raises(UsageError, match="--json"):
        Kept(None, ("name",), resume=True)
