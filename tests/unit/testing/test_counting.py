"""The checker knows each rule: broken programs are told by what they break."""

import random

import pytest
from msgspec.structs import replace

from outgrid.config import RunOptions
from outgrid.errors import ExecutionError
from outgrid.plan.planner import plan
from outgrid.plan.program import Advance, Commit, Get, Point, Put, program
from outgrid.stencil.problem import Problem
from outgrid.testing import counting
from outgrid.testing.counting import check, count
from outgrid.testing.machine import MACHINE

PROBLEM = Problem("heat7", (20, 5, 5), "float64", 9, initial={"u": 0.0})
OPTIONS = RunOptions.of(memory="1GiB", tier="direct", depth=3, slab_planes=2)
PLAN = plan(PROBLEM, OPTIONS, MACHINE, 0)


def broken(monkeypatch, change, chosen=PLAN):
    """What the check says of the program of `chosen` after `change`, in some order."""
    instructions = [kept for each in program(chosen) if (kept := change(each)) is not None]
    monkeypatch.setattr(counting, "program", lambda plan: iter(instructions))
    for seed in range(30):
        try:
            check(chosen, PROBLEM.stencil, random.Random(seed))
        except ExecutionError as error:
            return str(error)
    return "nothing"


def opened(kind, **marks):
    """A change that lets all instructions of a kind start earlier."""
    return lambda each: (
        replace(each, gate=replace(each.gate, **marks)) if isinstance(each, kind) else each
    )


def other(kind, number, **changes):
    """A change to one instruction."""
    return lambda each: (
        replace(each, **changes) if isinstance(each, kind) and each.index == number else each
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (opened(Advance, got=0), "reads nothing of u"),
        (opened(Get, advanced=0), "instead of version"),
        (opened(Put, advanced=0), "for plane"),
        (opened(Put, committed=0), "the last durable one"),
        (opened(Commit, put=0), "is written"),
        (opened(Advance, put=0), "was updated during Put"),
        (other(Get, 5, state=1), "of state -1"),
        (other(Get, 3, ring=1), "instead of version"),
        (other(Put, 2, ring=0), "for plane"),
        (other(Advance, 4, parts=()), "for plane"),
        (other(Commit, 1, point=Point(1)), "after Point(state=1"),
        (lambda each: None if isinstance(each, Commit) else each, "deadlock"),
        (lambda each: None if isinstance(each, Get) and each.index == 5 else each, "deadlock"),
    ],
)
def test_a_broken_program_is_told_by_what_it_breaks(change, words, monkeypatch):
    assert words in broken(monkeypatch, change)


def test_a_program_left_alone_breaks_nothing(monkeypatch):
    assert broken(monkeypatch, lambda each: each) == "nothing"


def test_updates_made_twice_are_told(monkeypatch):
    twice = [
        replace(each, parts=each.parts * 2) if isinstance(each, Advance) else each
        for each in program(PLAN)
    ]
    monkeypatch.setattr(counting, "program", lambda plan: iter(twice))
    with pytest.raises(ExecutionError, match="is updated twice"):
        check(PLAN, PROBLEM.stencil, random.Random(0))


def test_updates_left_out_at_the_end_are_told(monkeypatch):
    single = replace(PLAN, schedule=replace(PLAN.schedule, depths=(3,)))
    monkeypatch.setattr(counting, "program", lambda plan: iter(()))
    with pytest.raises(ExecutionError, match="0 row updates instead of 300"):
        check(single, PROBLEM.stencil, random.Random(0))


def test_totals_are_those_of_the_plan():
    total = count(PLAN)
    assert (total.read_bytes, total.written_bytes) == (
        PLAN.volume.read_bytes,
        PLAN.volume.written_bytes,
    )
    assert total.row_updates == 20 * PLAN.layout.rows * 9
    assert (total.advances, total.commits) == (PLAN.schedule.slabs, 3)
    assert check(PLAN, PROBLEM.stencil, random.Random(0)) == total
