"""What all runs of a gradient have in common."""

from dataclasses import dataclass

import pytest

import outgrid as og
from outgrid import machine
from outgrid.errors import InfeasiblePlan
from outgrid.plan.tables import traced_bytes
from outgrid.reversal import task
from outgrid.reversal.task import Task

STEPS = 30


def posed(**given):
    initial = {"u": 1.0, "c": 0.1}
    return og.Problem("wave:2", (8, 9), steps=STEPS, initial=initial, **given)


@dataclass
class Two:
    """A rank beside one that has a share of what this one has."""

    share_of_other: float
    rank = 0
    size = 2
    local = 1

    def share(self, value):
        return [value, value if value is None else int(value * self.share_of_other)]


def checked(problem, tmp_path, wrt="c", **options):
    return Task.checked(problem, og.Cotangents(), [wrt], tmp_path / "g", 1, 1, "same", options)


def test_ranks_cut_runs_where_that_of_the_least_memory_does(tmp_path, monkeypatch):
    problem = posed(receivers=[og.Receiver("u", (4, 4))])
    monkeypatch.setattr(task, "TRACES_SHARE", 10.1 * traced_bytes(problem.receivers) / 2**30)
    assert checked(problem, tmp_path, memory="1GiB").cuts.longest == 10
    monkeypatch.setattr(task, "world", lambda: Two(0.5))
    assert checked(problem, tmp_path, memory="1GiB").cuts.longest == 5


def test_traces_are_cut_by_the_memory_that_runs_have_where_none_is_given(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "memory_limit_bytes", lambda: 2 << 30)
    place = (4, 4)
    seen = posed(receivers=[og.Receiver("u", place)])
    given = posed(sources=[og.Source("u", place, [1.0] * STEPS)])
    monkeypatch.setattr(task, "TRACES_SHARE", 10.1 * traced_bytes(seen.receivers) / 2**30)
    assert checked(seen, tmp_path).cuts.longest == 10
    assert checked(given, tmp_path, "sources").cuts.longest == 10
    assert checked(given, tmp_path).cuts.longest is None


def test_ranks_take_the_strategy_for_which_all_of_them_have_room(tmp_path, monkeypatch):
    given = {"wrt": ["c"], "memory": "1GiB", "out": tmp_path / "g"}
    assert og.plan_gradient(posed(), **given).free_bytes > 0
    monkeypatch.setattr(task, "world", lambda: Two(0.0))
    with pytest.raises(InfeasiblePlan, match="has 0 B free"):
        og.plan_gradient(posed(), **given)
