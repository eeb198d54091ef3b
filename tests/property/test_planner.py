"""What every plan promises, whatever the problem, the machine and the options."""

import builtins
import io
import json
import os
import random
import re
import subprocess
import sys
import time

import msgspec
from hypothesis import given, reject
from hypothesis import strategies as st

from outgrid.errors import Error, InfeasiblePlan, UsageError
from outgrid.plan.model import Plan
from outgrid.plan.planner import plan
from outgrid.plan.tables import steps_bytes
from outgrid.testing.counting import count
from outgrid.testing.strategies import machines, problems, run_options
from outgrid.units import format_bytes, parse_bytes

FIXED_BYTES = 1 << 20
LIMITS = st.integers(FIXED_BYTES, FIXED_BYTES + (6 << 20)) | st.just(1 << 32)


@st.composite
def plans(draw, limits=LIMITS):
    """A plan of any problem, or the refusal of one."""
    problem = draw(problems(with_arrays=False))
    options = draw(run_options(problem, memory=draw(limits)))
    try:
        return problem, options, plan(problem, options, draw(machines()), FIXED_BYTES)
    except InfeasiblePlan as refusal:
        return problem, options, refusal


@given(plans())
def test_memory_stays_below_the_limit(drawn):
    problem, options, found = drawn
    if isinstance(found, InfeasiblePlan):
        return
    assert found.memory.fixed_bytes == FIXED_BYTES + steps_bytes(problem)
    assert found.memory.limit_bytes == options.memory_bytes
    assert (
        found.memory.held_bytes + found.memory.fixed_bytes + found.memory.transfer_bytes
        <= options.memory_bytes
    )
    assert found.memory.held_bytes <= found.memory.window_bytes
    assert found.memory.held_bytes == found.memory.window_bytes or found.in_place
    pitches = [found.layout.of(ring.field).pitch_bytes for ring in found.schedule.rings]
    each = zip(found.schedule.rings, pitches, strict=True)
    assert found.memory.window_bytes == sum(ring.planes * pitch for ring, pitch in each)
    cut = found.schedule.blocks is not None or found.schedule.strips.count(found.depth) > 1
    for ring, pitch in zip(found.schedule.rings, pitches, strict=True):
        assert cut or pitch >= problem.stored_bytes(ring.field) // problem.shape[0]
    assert bool(found.memory.transfer_bytes) == found.layout.staged


@given(plans())
def test_sweeps_make_all_steps_as_they_were_asked_for(drawn):
    problem, options, found = drawn
    if isinstance(found, InfeasiblePlan):
        return
    assert sum(found.schedule.depths) == problem.steps
    assert found.depth <= (options.depth or problem.steps)
    assert options.slab_planes in (None, found.schedule.slab_planes) or problem.edges.periodic(0)
    assert options.tier == "auto" or found.schedule.resident == (
        (options.tier == "memory" or options.in_place) and problem.steps > 0
    )
    assert options.tier in ("auto", found.tier) or problem.steps == 0
    assert found.work.problem_digest == problem.digest
    assert (found.work.updates, found.work.flops) == (problem.updates, problem.flops)


@given(plans())
def test_predicted_bytes_are_those_of_the_program(drawn):
    _, _, found = drawn
    if isinstance(found, InfeasiblePlan):
        return
    total = count(found)
    assert (total.read_bytes, total.written_bytes) == (
        found.volume.read_bytes,
        found.volume.written_bytes,
    )
    assert total.row_updates == found.schedule.row_updates
    assert total.advances == found.schedule.slabs
    states = found.schedule.states.count
    assert found.schedule.resident or states == found.sweeps
    assert total.commits >= states >= min(1, found.sweeps)
    assert total.commits == states or found.schedule.commit_planes > 0


@given(plans())
def test_a_plan_survives_json(drawn):
    _, _, found = drawn
    if isinstance(found, InfeasiblePlan):
        return
    again = Plan.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again == found
    assert again.digest == found.digest


@st.composite
def refusals(draw):
    """A question that has no plan, and its refusal."""
    problem = draw(problems(with_arrays=False))
    limit = draw(st.integers(FIXED_BYTES // 2, FIXED_BYTES + (1 << 17)))
    options, machine = draw(run_options(problem, memory=limit)), draw(machines())
    if options.scheme == "overlapped" and draw(st.booleans()):
        options = msgspec.structs.replace(options, block=None)  # chosen by the rule
    try:
        plan(problem, options, machine, FIXED_BYTES)
    except InfeasiblePlan as refusal:
        return problem, options, machine, str(refusal)
    except UsageError as error:  # no room for the blocks of the rule, whatever the limit
        if "too small for blocks" not in str(error):
            raise
    return reject()


@given(refusals())
def test_a_refusal_names_the_smallest_limit_that_fits(drawn):
    problem, options, machine, words = drawn

    def refusal(limit):
        """The words of a refusal under a limit in bytes, None where there is a plan."""
        given = msgspec.structs.replace(options, memory_bytes=limit)
        try:
            found = plan(problem, given, machine, FIXED_BYTES)
        except InfeasiblePlan as error:
            return str(error)
        assert found.depth <= (options.depth or problem.steps)
        return None

    assert f"memory limit of {format_bytes(options.memory_bytes)}" in words
    (named,) = re.findall(r"a limit of (\d+ MiB) fits", words)
    least = parse_bytes(named)
    assert refusal(least) is None
    # One byte below what is needed, somewhere in the last MiB, is refused for the same limit.
    low, high = least - (1 << 20), least
    assert refusal(low) is not None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if refusal(middle) is None else (middle, high)
    assert f"a limit of {named} fits" in refusal(low)
    for depth in re.findall(r"depth (\d+) fits", words):
        assert int(depth) < options.depth
        plan(problem, msgspec.structs.replace(options, depth=int(depth)), machine, FIXED_BYTES)


@st.composite
def equal_plans(draw):
    """The same question asked twice."""
    problem = draw(problems(with_arrays=False))
    options, machine = draw(run_options(problem)), draw(machines())
    return [plan(problem, options, machine, FIXED_BYTES) for _ in range(2)]


@given(equal_plans())
def test_the_same_question_has_the_same_plan(pair):
    first, second = pair
    assert first == second
    assert first.digest == second.digest


def test_planning_opens_nothing_and_looks_at_no_clock(monkeypatch):
    problem = problems(with_arrays=False)
    examples = []

    @given(problem, st.data())
    def gather(problem, data):
        examples.append((problem, data.draw(run_options(problem)), data.draw(machines())))

    gather()

    def refuse(*arguments, **named):
        raise AssertionError(f"a plan asked for {arguments}")

    outcomes = []
    with monkeypatch.context() as patch:
        for place, name in [
            (builtins, "open"),
            (io, "open"),
            (os, "open"),
            (os, "stat"),
            (os, "getenv"),
            (os.environ.__class__, "__getitem__"),
            (time, "time"),
            (time, "perf_counter"),
            (random, "random"),
        ]:
            patch.setattr(place, name, refuse)
        for problem, options, machine in examples:
            try:
                outcomes.append(plan(problem, options, machine, FIXED_BYTES))
            except Error as refusal:
                outcomes.append(refusal)
    assert any(isinstance(outcome, Plan) for outcome in outcomes)


def test_a_digest_is_the_same_in_every_process():
    program = (
        "from outgrid.stencil.problem import Problem\n"
        "from outgrid.config import RunOptions\n"
        "from outgrid.plan.planner import plan\n"
        "from outgrid.testing.machine import MACHINE\n"
        "problem = Problem('wave:4', (400, 300, 200), steps=40, initial={'u': 0, 'c': 0.1})\n"
        "print(plan(problem, RunOptions.of(memory='1GiB'), MACHINE, 1 << 20).digest)\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
