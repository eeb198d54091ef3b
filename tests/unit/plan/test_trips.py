"""Trips are made one by one, and what a run keeps of those to come does not grow with them."""

import gc
import re
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest

from outgrid.config import RunOptions
from outgrid.errors import InfeasiblePlan
from outgrid.plan.planner import plan
from outgrid.plan.program import program
from outgrid.plan.schedule.trip import Span, Trips
from outgrid.plan.tables import SWEEP_BYTES, steps_bytes
from outgrid.stencil.problem import Problem
from outgrid.testing.machine import MACHINE
from outgrid.units import parse_bytes

FIXED_BYTES = 80 << 20
MANY = 16_000


def planned(steps, shape=(40, 40, 40), given=None, **options):
    problem = Problem("heat7", shape, "float64", steps, initial={"u": 0.0}, **(given or {}))
    asked = RunOptions.of(**({"memory": "1GiB", "tier": "direct", "depth": 1} | options))
    return plan(problem, asked, MACHINE, FIXED_BYTES)


def test_trips_are_numbered_through_sweeps_of_different_depth():
    depths, parts = (1, 3, 3, 2), {1: 2, 2: 4, 3: 3}
    trips = Trips(depths, parts.__getitem__, lambda *at: (Span(*at[:2]), Span(at[2], 0)), begun=1)
    found = [(trip.sweep, trip.part, trip.done, trip.depth) for trip in trips]
    wanted = [
        (sweep, part, sum(depths[:sweep]), depth)
        for sweep, depth in enumerate(depths)
        for part in range(parts[depth])
    ][1:]
    assert found == wanted
    assert [trip.index for trip in trips] == list(range(len(trips)))
    assert all(
        (t.planes.low, t.planes.high, t.rows.low) == (t.sweep, t.part, t.depth) for t in trips
    )
    assert [trips.number(*at[:2]) for at in wanted] == list(range(len(wanted)))
    assert trips.number(0, 0) == -1
    assert trips.number(len(depths), 0) == len(trips)
    assert trips[-1] == trips[len(trips) - 1]
    assert trips[2:4] == (trips[2], trips[3])
    with pytest.raises(IndexError):
        trips[len(trips)]


@pytest.mark.parametrize(
    "options",
    [
        {"scheme": "overlapped", "block": [2, 2, 10]},
        {"strip_rows": 1},
        {"strip_rows": 1, "commit_every": 0.001},
        {"slab_planes": 12},
        {"tier": "memory"},
    ],
    ids=str,
)
def test_what_is_kept_of_a_program_does_not_grow_with_it(options):
    """Growth while instructions are made, in blocks, strips and whole planes."""
    instructions, sizes = program(planned(3500, (12, 12, 12), **options)), list[int]()
    tracemalloc.start()
    try:
        for _ in range(7):
            assert sum(1 for _ in islice(instructions, 500)) == 500
            gc.collect()  # what is kept, not what waits to be freed
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert max(sizes[5:]) - sizes[4] < 3000  # bytes, where 1000 instructions were made


@pytest.mark.parametrize(
    "options", [{"scheme": "overlapped", "block": [2, 2, 38]}, {"slab_planes": 8}], ids=str
)
def test_a_plan_of_very_many_sweeps_takes_no_more_than_is_counted(options):
    tracemalloc.start()
    try:
        found = planned(MANY, **options)
        trips = found.schedule.trips
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert trips[-1].sweep == MANY - 1
    assert len(trips) == MANY * found.schedule.cutting.trips(1)
    assert peak < SWEEP_BYTES * MANY


@pytest.mark.parametrize("options", [{"scheme": "overlapped", "block": [2, 2, 38]}, {}], ids=str)
def test_the_list_of_sweeps_counts_against_the_limit(options):
    limits: list[int] = []
    for steps in (10, MANY):
        with pytest.raises(InfeasiblePlan) as refused:
            planned(steps, memory=FIXED_BYTES, **options)
        limits += map(int, re.findall(r"a limit of (\d+) MiB fits", str(refused.value)))
    more = SWEEP_BYTES * (MANY - 10) + steps_bytes(problem_of(MANY))
    assert limits[1] - limits[0] in (more >> 20, 1 + (more >> 20))


def problem_of(steps, **given):
    return Problem("heat7", (40, 40, 40), "float64", steps, initial={"u": 0.0}, **given)


def test_what_is_seen_in_each_step_counts_against_the_limit():
    """A survey of many receivers fills tables of its own, which are copied when they are kept."""
    receivers = [{"field": "u", "position": [5.5, 5.5, x]} for x in range(1, 39)]
    given = {"receivers": receivers}
    seen = 1000 * 38 * 4 * 8
    assert steps_bytes(problem_of(1000, **given)) >= 3 * seen
    bare, full = planned(1000), planned(1000, given=given)
    assert full.memory.fixed_bytes - bare.memory.fixed_bytes >= 3 * seen
    limit = (
        bare.memory.window_bytes
        + bare.memory.transfer_bytes
        + bare.memory.fixed_bytes
        + SWEEP_BYTES * 1000
    )
    assert planned(1000, memory=limit + parse_bytes("1MiB"))
    with pytest.raises(InfeasiblePlan):
        planned(1000, given=given, memory=limit)


@pytest.fixture
def hasty():
    """Threads take turns at nearly every instruction."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
def test_threads_may_ask_at_once_what_trips_do():
    schedule = planned(40, strip_rows=8).schedule
    trips = [schedule.trips[index] for index in range(24)]

    def ask(times):
        for trip in trips * times:
            assert schedule.passage(trip).trip is trip

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(ask, [4000] * 3))
