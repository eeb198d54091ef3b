"""Runs that end by a reduction: after the same step, in the same state, however they are run."""

import random
import threading
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import DefinitionError, ExecutionError
from outgrid.execute.kernel import Kernel
from outgrid.job import load_job
from outgrid.observe.accumulators import CELLS
from outgrid.record import combine_ranks
from outgrid.runs.state import RunFolder
from outgrid.stencil.problem import Problem
from outgrid.testing.reference import run_reference
from outgrid.testing.strategies import run_options
from outgrid.testing.threads import Threads, in_threads


@og.stencil
def relaxed(u, *, k):
    """Heat, and how much it changes."""
    change = k * og.laplacian(u)
    return {"u": u + change, "largest": og.max(og.absolute(change)), "heat": og.sum(u)}


STEPS, END, BELOW = 40, 18, 0.0045
SHAPE = (30, 17, 43)


def relaxing(every=6, *, steps=STEPS, boundary="dirichlet", below=BELOW, first=None, **given):
    """Ends after step 18 of 40 where it is looked at every 6 steps."""
    until = og.Until("largest", every, below=below, first=first) if every else None
    values = np.random.default_rng(4).random(SHAPE)
    parameters = {"k": np.linspace(0.1, 0.08, STEPS)[:steps]}
    initial = {"u": values}
    return Problem(
        relaxed, SHAPE, "float64", steps, parameters, boundary, initial, until=until, **given
    )


def run(problem, out, **options):
    given = {"memory": "512MiB", "threads": 1} | options
    return pipeline.run(problem, RunOptions.of(out=out, **given))


def check(result, problem, wanted):
    """That it ended like ``wanted``, a run of as many steps and no more."""
    steps = wanted.record.steps
    value = wanted.reductions["largest"][steps - 1]
    below = problem.until.below
    assert result.record.steps == steps
    assert result.record.ended == f"largest = {value:.6g} is below {below:g} after step {steps}"
    assert np.asarray(result["u"]).tobytes() == wanted["u"].tobytes()
    for name, values in wanted.reductions.items():
        assert result.reductions[name].tobytes() == values.tobytes()
    assert result.record.measured.updates == wanted.record.measured.updates
    assert result.record.measured.io_over_ideal >= 1
    assert Problem.from_dict(result.record.problem) == Problem.from_dict(problem.to_dict())
    assert not list(result.out.rglob("*.new"))
    assert not (result.out / "scratch").exists()


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """The first 18 steps, one at a time, and nothing that might end them."""
    out = tmp_path_factory.mktemp("until") / "plain"
    return run(relaxing(None, steps=END), out, scheme="plain", tier="memory")


WAYS = {
    "deep": {"tier": "direct", "depth": 5, "slab_planes": 3, "threads": 2},
    "plain": {"tier": "direct", "scheme": "plain", "slab_planes": 2},
    "deepest": {"tier": "direct", "depth": 12},
    "memory": {"tier": "memory", "depth": 11, "tile_rows": 8, "tile_planes": 3, "threads": 2},
    "kept": {"tier": "memory", "depth": 2, "commit_every": 1e-6},
    "mapped": {"tier": "mmap", "depth": 4},
    "in place": {"tier": "mmap", "in_place": True, "depth": 4},
    "swap": {"tier": "swap", "depth": 4},
    "strips": {"tier": "direct", "depth": 3, "strip_rows": 5},
    "blocks": {"scheme": "overlapped", "block": [9, 6, 41], "depth": 2, "inner": [3, 4, 16]},
}


@pytest.mark.parametrize("name", WAYS)
def test_a_run_ends_after_the_same_step_however_it_is_run(name, wanted, tmp_path):
    problem = relaxing()
    check(run(problem, tmp_path / "out", **WAYS[name]), problem, wanted)


@settings(max_examples=settings.default.max_examples // 5)
@given(data=st.data())
def test_it_ends_alike_for_any_settings(data, wanted, tmp_path_factory):
    every = data.draw(st.sampled_from([2, 3, 6, 9, 18]))
    first = data.draw(st.sampled_from([None, 18, 18 % every or every]))
    most = data.draw(st.sampled_from([18, 19, 27, STEPS]))
    problem = relaxing(every, first=first, steps=most)
    out = tmp_path_factory.mktemp("drawn") / "out"
    options = data.draw(run_options(problem, memory="512MiB", out=out))
    check(pipeline.run(problem, options), problem, wanted)


def test_a_grid_that_closes_along_the_stream_ends_alike(tmp_path):
    found = relaxing(boundary={"z": "periodic"}, below=0.0055)
    steps = 18
    wanted = run(relaxing(None, steps=steps, boundary={"z": "periodic"}), tmp_path / "plain")
    for depth in (2, 4):
        result = run(found, tmp_path / f"{depth}", tier="direct", depth=depth, slab_planes=1)
        check(result, found, wanted)


@pytest.mark.parametrize("stop", [3, 30, 60])
@pytest.mark.parametrize("tier", ["direct", "memory"])
def test_it_ends_alike_after_it_was_cut_off(tier, stop, wanted, tmp_path, cut_off):
    problem, out = relaxing(), tmp_path / "cut"
    options = {"tier": tier, "depth": 2, "slab_planes": 4, "commit_every": 1e-6}
    cut_off(stop, lambda: run(problem, out, **options))
    found = pipeline.resume(out, RunOptions.of(memory="512MiB", depth=3, tier="direct"))
    check(found, problem, wanted)


def test_a_run_cut_off_when_it_had_ended_only_puts_its_results_in_place(
    wanted, tmp_path, monkeypatch
):
    kept = [og.Snapshot("u", every=4, z=9)]
    problem, out = relaxing(snapshots=kept), tmp_path / "cut"

    def failing(*given):
        raise OSError("cut off")

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "place_results", failing)
        with pytest.raises(OSError, match="cut off"):
            run(problem, out, tier="direct", depth=2)
    found = pipeline.resume(out, RunOptions.of(memory="512MiB", tier="direct"))
    check(found, problem, wanted)
    assert found.snapshots[0].shape == (4, 17, 43)


def test_what_was_seen_ends_with_the_run(wanted, tmp_path):
    seen = {
        "snapshots": [og.Snapshot("u", every=4, z=9), og.Snapshot("u", every=20)],
        "receivers": [og.Receiver("u", (9, 4, 5))],
        "sources": [og.Source("u", (3, 3, 3), np.zeros(STEPS))],
    }
    result = run(relaxing(**seen), tmp_path / "out", tier="direct", depth=5, preview=16)
    assert result.traces.shape == (END, 1)
    first, second = result.snapshots
    assert (first.shape, second.shape) == ((4, 17, 43), (0, *SHAPE))
    states = []
    problem = relaxing(None, steps=END)
    run_reference(problem, seen=lambda state: states.append(state["u"].copy()))
    np.testing.assert_allclose(first, [states[step][9] for step in (3, 7, 11, 15)], rtol=1e-12)
    np.testing.assert_array_equal(result.traces[15::-4, 0][::-1], first[:, 4, 5])
    assert result["u"].tobytes() == wanted["u"].tobytes()


def test_a_run_that_never_comes_so_far_makes_all_steps_and_says_so(tmp_path):
    problem = relaxing(7, below=1e-9)
    result = run(problem, tmp_path / "out", tier="direct", depth=4)
    value = result.reductions["largest"][34]
    assert result.record.steps == STEPS
    assert result.record.ended == f"largest = {value:.6g} is not below 1e-09 after step 35"


def test_values_that_are_not_finite_beyond_the_end_are_nobodys_concern(tmp_path):
    @og.stencil(ndim=2)
    def growing(u, *, k):
        return {"u": u * k, "most": og.max(u)}

    problem = Problem(
        growing, (40, 50), "float64", 30, {"k": [2.0] * 12 + [1e308] * 18}, "neumann", {"u": 1.0},
        until={"reduction": "most", "above": 1000, "every": 3},
    )  # fmt: skip
    for name, options in (("files", {"tier": "direct"}), ("memory", {"tier": "memory"})):
        result = run(problem, tmp_path / name, depth=1, slab_planes=40, **options)
        assert (result.record.steps, result["u"][3, 4]) == (12, 4096.0)
    late = Problem.from_dict(problem.to_dict() | {"until": {"reduction": "most", "every": 14,
                                                           "above": 1e300}})  # fmt: skip
    with pytest.raises(ExecutionError, match="u became infinite in step 13"):
        run(late, tmp_path / "late", depth=2, tier="direct")


def test_a_job_file_says_until_when(tmp_path):
    (tmp_path / "rule.py").write_text(
        "import outgrid as og\n"
        "@og.stencil(ndim=2)\n"
        "def fading(u):\n"
        "    return {'u': 0.5 * u, 'most': og.max(u)}\n"
    )
    job = tmp_path / "job.toml"
    job.write_text(
        '[problem]\nstencil = "rule.py:fading"\nshape = [9, 9]\nsteps = 20\n'
        '[problem.initial]\nu = 1\n[problem.until]\nreduction = "most"\nevery = 2\n'
        "below = 0.2\n"
    )
    found = load_job(job)
    assert found.problem.until == og.Until("most", 2, below=0.2)
    plan = og.plan(found.problem, memory="256MiB")
    assert "most is below 0.2, checked every 2 steps" in plan.explain()
    assert sum(plan.schedule.depths) == 20
    assert max(plan.schedule.depths) == 2


@pytest.mark.parametrize(
    ("until", "part"),
    [
        ({"reduction": "larges", "every": 2, "below": 1}, "did you mean 'largest'?"),
        ({"reduction": "largest", "every": 0, "below": 1}, "not 0"),
        ({"reduction": "largest", "every": 2}, "give below or above"),
        ({"reduction": "largest", "every": 2, "below": 1, "above": 2}, "give below"),
        ({"reduction": "largest", "every": 2, "below": float("nan")}, "not nan"),
        ({"reduction": "largest", "below": 1}, "needs the entry 'every'"),
        ({"reduction": 3, "every": 2, "below": 1}, "not 3"),
    ],
)
def test_conditions_that_mean_nothing_are_refused(until, part):
    with pytest.raises(DefinitionError) as caught:
        Problem(relaxed, SHAPE, "float64", 5, {"k": 0.1}, initial={"u": 0.0}, until=until)
    assert part in str(caught.value)


def test_stretches_and_what_is_left_of_them():
    until = og.Until("a", 10, below=1, first=4)
    assert until.stretches(25) == (4, 10, 10, 1)
    assert until.stretches(24) == (4, 10, 10)
    assert until.stretches(3) == (3,)
    assert until.stretches(0) == ()
    for made in range(30):
        rest = until.after(made)
        assert [step for step in range(1, 60) if until.looks(step + made)] == [
            step for step in range(1, 60) if rest.looks(step)
        ]


RANKS = {
    "seams": (2, {"exchange": "seams"}),
    "four with seams": (4, {"exchange": "seams", "slab_planes": 1}),
    "halos": (3, {"exchange": "halos"}),
    "rows": (4, {"row_cuts": [7]}),
    "mapped": (2, {"tier": "mmap", "exchange": "seams"}),
    "mapped rows": (3, {"tier": "mmap", "row_cuts": (6, 11)}),
}


SMALL = {"memory": "512MiB", "threads": 1, "depth": 2, "slab_planes": 2}


def run_ranks(problem, out, count, **given):
    options = RunOptions.of(out=out, **(SMALL | given))

    def act(comm):
        return pipeline.run(problem, options, comm=comm)

    return in_threads(act, count, random.Random(count))[0]


def resume_ranks(out, count, **given):
    options = RunOptions.of(**(SMALL | given))

    def act(comm):
        return pipeline.resume(out, options, comm=comm)

    return in_threads(act, count, random.Random(count))[0]


@pytest.mark.parametrize("way", RANKS)
@pytest.mark.parametrize("every", [6, 9])
def test_ranks_end_alike(way, every, wanted, tmp_path):
    count, given = RANKS[way]
    problem = relaxing(every)
    found = run_ranks(problem, tmp_path / "out", count, **given)
    check(found, problem, wanted)
    for rank in found.record.ranks:
        for name in ("written_bytes", "sent_bytes", "received_bytes"):  # reading runs ahead
            assert getattr(rank.measured, name) == rank.planned[name], name


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize(
    ("way", "stop"), [("seams", 30), ("seams", 100), ("rows", 200), ("mapped", 100)]
)
def test_ranks_end_alike_after_they_were_cut_off(way, stop, others, wanted, tmp_path, cut_off):
    problem, out = relaxing(9), tmp_path / "cut"
    count, given = RANKS[way]
    cut_off(stop, lambda: run_ranks(problem, out, count, depth=3, **given))
    if others:
        cut_off(20, lambda: resume_ranks(out, 3))
        count = 1
    found = resume_ranks(out, count)
    check(found, problem, wanted)
    if others:
        check_all_is_told(found.record)


def check_all_is_told(record):
    """That it has what was done before the ranks that ended the run, and what these did."""
    parts = record.parts
    assert parts[0].first_step == 0
    assert all(part.last_step == later.first_step for part, later in pairwise(parts))
    last = combine_ranks([rank.measured for rank in record.ranks])
    before = sum(part.measured.seconds for part in parts[:-1])
    assert before > 0
    assert record.measured.seconds == pytest.approx(before + last.seconds)
    for name in ("updates", "flops", "read_bytes", "written_bytes"):
        before = sum(getattr(part.measured, name) for part in parts[:-1])
        assert getattr(record.measured, name) == before + getattr(last, name), name


def test_ranks_end_alike_where_one_process_was_cut_off(wanted, tmp_path, cut_off):
    problem, out = relaxing(), tmp_path / "cut"
    cut_off(60, lambda: run(problem, out, tier="direct", depth=3, slab_planes=2))
    found = resume_ranks(out, 2, depth=3)
    check(found, problem, wanted)
    check_all_is_told(found.record)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_ranks_cut_off_when_they_had_ended_only_put_their_results_in_place(
    count, wanted, tmp_path, monkeypatch
):
    seen = {
        "receivers": [og.Receiver("u", (9, 4, 5))],
        "snapshots": [og.Snapshot("u", every=4, z=9)],
    }
    problem, out = relaxing(**seen), tmp_path / "cut"
    send, late = Threads.send, []

    def failing(*given):
        raise OSError("cut off")

    def sent_late(self, peer, channel, source):
        """What is told of a reduction is under way so long that all of the state is written."""
        with self._group.lock:
            ticket = send(self, peer, channel, source)
            if source.nbytes == 8 * CELLS:
                late.append(ticket)
                queue = self._group.sent[self.rank, peer, channel]
                threading.Timer(0.2, queue.append, [queue.pop()]).start()
        return ticket

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "place_results", failing)
        patch.setattr(Threads, "send", sent_late)
        with pytest.raises(OSError, match="cut off"):
            run_ranks(problem, out, 2)
    assert len(late) == 2 * END / 6
    with monkeypatch.context() as patch:
        patch.setattr(Kernel, "advance", failing)
        found = resume_ranks(out, count)
    check(found, problem, wanted)
    assert found.traces.shape == (END, 1)
    assert found.snapshots[0].shape == (4, 17, 43)


def test_ranks_that_never_come_so_far_make_all_steps_and_say_so(tmp_path):
    problem = relaxing(7, below=1e-9)
    alone = run(problem, tmp_path / "alone", tier="direct", depth=4)
    found = run_ranks(problem, tmp_path / "out", 2, depth=4)
    assert found.record.steps == STEPS
    assert found.record.ended == alone.record.ended
    assert np.asarray(found["u"]).tobytes() == alone["u"].tobytes()
