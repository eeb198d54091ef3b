import itertools
import threading
import time
from dataclasses import dataclass, field

import numpy as np
import pytest
from msgspec.structs import replace

from outgrid import native, pipeline
from outgrid.config import RunOptions
from outgrid.errors import ExecutionError, StoreError
from outgrid.execute import streaming
from outgrid.execute.moves import Hierarchy
from outgrid.execute.streaming import Callbacks, stream
from outgrid.execute.window import Window
from outgrid.plan.program import Advance, Get, Put, program, row_updates
from outgrid.stencil.problem import Problem
from outgrid.storage import MemoryStore, Transfers
from outgrid.testing.stores import Fault, Faulty, Shuffled


@dataclass
class Recorder:
    """Stands in for kernel and stores: notes what is asked for, in order."""

    events: list = field(default_factory=list)
    apart = True

    def advance(self, plan, window, instruction):
        self.events.append(instruction)

    def store(self, key, inner):
        return Recorded(self, key, inner)


class Recorded:
    def __init__(self, recorder, key, inner):
        self._recorder, self._key, self._inner = recorder, key, inner

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def get(self, planes, rows, into):
        self._recorder.events.append(("get", self._key, planes))
        return self._inner.get(planes, rows, into)

    def put(self, planes, rows, source):
        self._recorder.events.append(("put", self._key, planes))
        return self._inner.put(planes, rows, source)

    def flush(self):
        self._recorder.events.append(("flush", self._key, None))
        return self._inner.flush()


def plan_of(depth=3, steps=9, **options):
    problem = Problem("wave:2", (40, 4, 16), "float32", steps, initial={"u": 0.0, "c": 0.0})
    given = {"tier": "direct", "depth": depth, "slab_planes": 3, "threads": 1} | options
    return pipeline.plan(problem, RunOptions.of(memory="1GiB", **given))


def until(true, seconds=20):
    """Whether something becomes true in time."""
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.001)
    return true()


def obey(plan, transfers, recorder, **others):
    """Run the program of `plan` over stores of zeroes with a kernel that does nothing."""
    stores = {}
    for level in plan.schedule.arrivals:
        for parity in (0,) if level.constant else (0, 1):
            key = (level.field, level.level, parity)
            inner = MemoryStore("m", np.zeros(plan.schedule.shape, plan.work.dtype), transfers)
            stores[key] = recorder.store(key, inner)
    window = Window(plan)
    try:
        committed = others.pop(
            "committed", lambda point: recorder.events.append(("commit", point.state))
        )
        callbacks = {
            name: others.pop(name) for name in ("progress", "leaving", "until") if name in others
        }
        hierarchy = Hierarchy(window, stores, transfers, others.pop("seams", {}))
        return stream(plan, recorder, hierarchy, Callbacks(committed, **callbacks), **others)
    finally:
        window.release()


def test_transfers_are_looked_after_in_short_slices_and_kernels_compute_in_usual_ones():
    before, slices = native.set_slice(0), {}

    @dataclass
    class Asking(Recorder):
        def advance(self, plan, window, instruction):
            if "kernel" not in slices:
                slices["kernel"] = native.set_slice(0)

    def committed(point):
        slices["obeying"] = native.set_slice(native.PROMPT_SLICE)

    with Shuffled(1) as transfers:
        obey(plan_of(), transfers, Asking(), committed=committed)
    if before == 0:
        pytest.skip("Linux knows no slices before 6.12")
    assert slices == {"kernel": before, "obeying": native.PROMPT_SLICE}
    assert native.set_slice(0) == before


@pytest.mark.parametrize("seed", range(5))
def test_a_state_is_committed_after_its_flushes_and_before_the_next_writes_over_the_last(seed):
    plan, recorder = plan_of(), Recorder()
    with Shuffled(seed) as transfers:
        obey(plan, transfers, recorder)
    events = [event for event in recorder.events if not isinstance(event, Advance)]
    commits = [index for index, event in enumerate(events) if event[0] == "commit"]
    assert [events[index][1] for index in commits] == [1, 2, 3]
    for state, (last, commit) in enumerate(itertools.pairwise([-1, *commits]), start=1):
        since = [(what, key[2]) for what, key, _ in events[last + 1 : commit] if key[0] == "u"]
        # The file of the last durable state is left alone until this one is durable.
        assert ("put", (state + 1) % 2) not in since
        # Both levels are flushed when nothing is written to them any more.
        mine = [what for what, parity in since if parity == state % 2 and what != "get"]
        assert mine[-2:] == ["flush", "flush"]
        assert "flush" not in mine[:-2]


def flushes(events):
    return [n for n, event in enumerate(events) if isinstance(event, tuple) and event[0] == "flush"]


@pytest.mark.parametrize("seed", range(5))
def test_what_is_written_is_flushed_before_it_is_much(seed):
    plan = plan_of()
    slab_bytes = plan.schedule.slab_planes * plan.plane_bytes("u")
    paced, recorder = replace(plan, flush_bytes=4 * slab_bytes), Recorder()
    with Shuffled(seed) as transfers:
        tally = obey(paced, transfers, recorder)
    events = [event for event in recorder.events if not isinstance(event, Advance)]
    of_commits = {
        index
        for commit, event in enumerate(events)
        if event[0] == "commit"
        for index in flushes(events[:commit])[-2:]
    }
    between = [index for index in flushes(events) if index not in of_commits]
    assert between
    for number, index in enumerate(between, start=1):
        puts = [event for event in events[:index] if event[0] == "put"]
        put_bytes = sum(len(planes) for _, _, planes in puts) * plan.plane_bytes("u")
        assert put_bytes >= number * paced.flush_bytes
        assert events[index][1] in [key for _, key, _ in puts]
    seldom = replace(plan, flush_bytes=tally.written_bytes + 1)
    for rarely in (plan, seldom):
        recorder = Recorder()
        with Shuffled(seed) as transfers:
            obey(rarely, transfers, recorder)
        assert len(flushes(recorder.events)) == 2 * plan.sweeps


def test_a_flush_between_commits_that_fails_ends_the_run():
    class Failing(Recorder):
        def store(self, key, inner):
            return Faulty(super().store(key, inner), transfers, [Fault("flush", 0)])

    plan, recorder = plan_of(), Failing()
    paced = replace(plan, flush_bytes=plan.plane_bytes("u"))
    with Shuffled() as transfers, pytest.raises(StoreError, match="flush: flush failed on purpose"):
        obey(paced, transfers, recorder)
    assert "commit" not in [event[0] for event in recorder.events if isinstance(event, tuple)]


def test_the_next_slab_is_being_read_while_one_is_updated():
    def asked(events):
        gets = [event[2].stop for event in events if event[:2] == ("get", ("u", 0, 0))]
        return max(gets, default=0)

    class Slow(Recorder):
        def advance(self, plan, window, instruction):
            front = (instruction.index + 1) * plan.schedule.slab_planes
            wanted = min(plan.schedule.planes, front + plan.schedule.slab_planes)
            self.given_up |= not until(lambda: asked([*self.events]) >= wanted)

        given_up = False

    plan, recorder = plan_of(steps=3), Slow()
    with Transfers("threads") as transfers:
        obey(plan, transfers, recorder)
    assert not recorder.given_up
    assert asked(recorder.events) == plan.schedule.planes


def test_what_comes_after_a_slab_is_prepared_while_that_is_updated():
    class Slow(Recorder):
        def advance(self, plan, window, instruction):
            if threading.current_thread() is not threading.main_thread():  # transfers are under way
                self.slabs += 1
                self.given_up |= not until(lambda: len(given) > instruction.index + 1)

        slabs, given_up = 0, False

    plan, recorder, given = plan_of(), Slow(), []

    def instructions():
        for each in program(plan):
            if isinstance(each, Advance):
                given.append(each)
            yield each
        given.append(None)

    with Transfers("threads") as transfers:
        obey(plan, transfers, recorder, instructions=instructions())
    assert not recorder.given_up
    assert len(given) == plan.schedule.slabs + 1
    assert recorder.slabs > plan.schedule.slabs // 2


def test_the_tally_counts_bytes_and_updates():
    plan, recorder = plan_of(), Recorder()
    with Shuffled() as transfers:
        tally = obey(plan, transfers, recorder)
    assert (tally.read_bytes, tally.written_bytes) == (
        plan.volume.read_bytes,
        plan.volume.written_bytes,
    )
    assert tally.row_updates == plan.schedule.planes * plan.layout.rows * 9
    assert 0 <= tally.wait_seconds <= tally.seconds
    assert 0 < tally.compute_processor_seconds / plan.threads < tally.processor_seconds
    assert 0 <= tally.compute_seconds <= tally.seconds
    updates = [row_updates(plan, each) for each in recorder.events if isinstance(each, Advance)]
    assert sum(updates) == plan.schedule.planes * plan.layout.rows * 9


def test_progress_goes_up_to_the_end(monkeypatch):
    monkeypatch.setattr(streaming, "PROGRESS_SECONDS", 0.0)
    plan, told = plan_of(), []
    with Shuffled() as transfers:
        obey(plan, transfers, Recorder(), progress=told.append)
    assert len(told) == plan.schedule.slabs
    assert [each.slab for each in told] == list(range(plan.schedule.slabs))
    done = [each.updates_done for each in told]
    assert done == sorted(done)
    assert done[-1] == plan.work.updates == told[-1].updates_total
    assert all(each.sweeps == plan.sweeps and 0 <= each.sweep < plan.sweeps for each in told)
    assert told[-1].read_bytes == plan.volume.read_bytes


def test_leaving_sees_every_result_before_it_is_written():
    plan, recorder = plan_of(), Recorder()
    with Shuffled() as transfers:
        obey(plan, transfers, recorder, leaving=lambda put, window: recorder.events.append(put))
    events = recorder.events
    leaving = [index for index, event in enumerate(events) if isinstance(event, Put)]
    assert len(leaving) == sum(1 for each in program(plan) if isinstance(each, Put))
    for index in leaving:
        assert events[index + 1][0] == "put"
        assert events[index + 1][2] == range(events[index].first, events[index].last)


def test_a_program_that_cannot_go_on_says_what_waits_for_what():
    plan = plan_of()
    stuck = [
        replace(each, gate=replace(each.gate, put=1)) if isinstance(each, Get) else each
        for each in program(plan)
    ]
    with Shuffled() as transfers, pytest.raises(ExecutionError) as caught:
        obey(plan, transfers, Recorder(), instructions=stuck)
    assert "is stuck" in str(caught.value)
    assert "Get(index=0" in str(caught.value)
    assert "waits for 0 of 1 puts" in str(caught.value)


def test_an_error_of_the_kernel_or_of_a_commit_is_passed_on():
    class Failing(Recorder):
        def advance(self, plan, window, instruction):
            raise ExecutionError("the kernel failed with status 3")

    with Shuffled() as transfers, pytest.raises(ExecutionError, match="status 3"):
        obey(plan_of(), transfers, Failing())

    def committed(point):
        raise OSError(28, "no space")

    with Shuffled() as transfers, pytest.raises(OSError, match="no space"):
        obey(plan_of(), transfers, Recorder(), committed=committed)


class Slow(Recorder):
    """A kernel that takes its time for each slab; ``running`` while it does."""

    running = False

    def advance(self, plan, window, instruction):
        super().advance(plan, window, instruction)
        self.running = True
        self.compute(instruction)
        self.running = False

    def compute(self, instruction):
        time.sleep(2e-3)


def test_what_waits_for_a_transfer_is_started_while_a_slab_is_updated():
    class Patient(Slow):
        meanwhile = ()

        def compute(self, instruction):
            for _ in range(30):
                time.sleep(1e-3)
                self.meanwhile += tuple(self.events[self.events.index(instruction) + 1 :])

    problem = Problem("heat7", (40, 4, 16), "float32", 8, {"k": 0.1}, initial={"u": 0.0})
    options = RunOptions.of(memory="1GiB", tier="direct", depth=2, slab_planes=3, threads=1)
    recorder = Patient()
    with Shuffled(haste=0.5) as transfers:
        obey(pipeline.plan(problem, options), transfers, recorder)
    assert "get" in {event[0] for event in recorder.meanwhile}


@pytest.mark.parametrize("seed", range(3))
def test_no_commit_looks_at_what_a_kernel_is_changing(seed):
    recorder, seen = Slow(), []
    with Shuffled(seed, haste=0.9) as transfers:
        obey(plan_of(), transfers, recorder, committed=lambda _: seen.append(recorder.running))
    assert seen == [False] * 3


def test_a_failed_transfer_ends_the_run_when_the_kernel_has_let_go_of_the_window():
    recorder, plan = Slow(), plan_of()
    inner = recorder.store

    def store(key, found):
        return Faulty(inner(key, found), transfers, [Fault("put", 1)])

    recorder.store = store
    with Shuffled(haste=0.9) as transfers, pytest.raises(StoreError, match="put failed on purpose"):
        obey(plan, transfers, recorder)
    assert not recorder.running


def test_a_plan_of_no_steps_does_nothing():
    plan, recorder = plan_of(steps=0, depth=None), Recorder()
    with Shuffled() as transfers:
        tally = obey(plan, transfers, recorder)
    assert recorder.events == []
    assert (tally.read_bytes, tally.row_updates) == (0, 0)
