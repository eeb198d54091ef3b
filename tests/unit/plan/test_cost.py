"""What a prediction is made of: what runs beside the computing, and what cannot."""

import math

import msgspec.structs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import outgrid as og
from outgrid.config import RunOptions
from outgrid.machine import describe_machine
from outgrid.plan.calibration import Calibration, Sample
from outgrid.plan.cost import (
    SLAB_SECONDS,
    Beside,
    Computing,
    Movement,
    predict,
    rates,
    transfer_seconds,
)
from outgrid.plan.planner import plan
from outgrid.plan.tiling import FRONT_PLANES
from outgrid.stencil.problem import Problem

MACHINE = msgspec.structs.replace(
    describe_machine(),
    read_bandwidth=2e9,
    write_bandwidth=1e9,
    mixed_bandwidth=1.6e9,
    flush_seconds=0.0,
)
SLOW = msgspec.structs.replace(
    MACHINE, read_bandwidth=4e8, write_bandwidth=4e8, mixed_bandwidth=4e8
)
# With a cache that it writes 2 GB/s of when it is flushed.
CACHING = msgspec.structs.replace(MACHINE, flushing_seconds=5e-10)
PROBLEM = Problem("heat7", (100, 100, 100), "float64", 10, initial={"u": 0.0})


@og.stencil(ndim=3)
def summed(u):
    """A field that diffuses, and its sum."""
    return {"u": u + 0.1 * og.laplacian(u), "total": og.sum(u)}


SIZES = st.integers(0, 1 << 40)


def predicted(rate, trips, nbytes, slab_share=1.0, request_bytes=0):
    moved = Movement(trips, nbytes, nbytes, slab_share, request_bytes)
    return predict(MACHINE, Computing(10 * PROBLEM.cells, rate, 1), moved, Beside())


def test_a_grid_in_one_slab_is_read_then_computed_then_written():
    found = predicted(rate=1e7, trips=1, nbytes=10**9)
    assert found.seconds == pytest.approx(0.5 + 1.0 + 1.0, abs=2 * SLAB_SECONDS)


def test_many_slabs_move_beside_the_computing():
    found = predicted(rate=1e7, trips=1, nbytes=4 * 10**8, slab_share=0.01)
    assert found.bound_by == "compute"
    assert found.seconds == pytest.approx(math.hypot(1.0 + 100 * SLAB_SECONDS, 0.5), rel=0.02)
    slow = predicted(rate=1e7, trips=1, nbytes=4 * 10**9, slab_share=0.01)
    assert slow.bound_by == "read+write"
    assert slow.seconds == pytest.approx(math.hypot(1.0, 8 / 1.6), rel=0.02)


@given(rate=st.floats(1e6, 1e9), nbytes=st.integers(10**6, 10**11))
def test_neither_computing_nor_moving_hides_the_other_for_nothing(rate, nbytes):
    found = predicted(rate, trips=1, nbytes=nbytes, slab_share=0.001)
    both = found.compute_seconds, found.transfer_seconds
    assert max(both) <= 1.01 * found.seconds
    assert found.seconds <= 1.01 * sum(both)
    assert found.seconds <= predicted(rate, trips=1, nbytes=2 * nbytes, slab_share=0.001).seconds


@given(read=SIZES, written=SIZES, more=st.integers(0, 1 << 30))
def test_moving_more_takes_longer_and_both_ways_at_once_is_what_was_measured(read, written, more):
    seconds = transfer_seconds(MACHINE, read, written)
    assert seconds <= transfer_seconds(MACHINE, read + more, written)
    assert seconds <= transfer_seconds(MACHINE, read, written + more)
    assert transfer_seconds(MACHINE, read, read) == pytest.approx(2 * read / 1.6e9)
    assert transfer_seconds(MACHINE, read, 0) == pytest.approx(read / 2e9)


@given(read=SIZES, written=SIZES)
def test_what_was_written_becomes_durable_in_a_time_of_its_own(read, written):
    seconds = transfer_seconds(CACHING, read, written) - transfer_seconds(MACHINE, read, written)
    assert seconds == pytest.approx(written * CACHING.flushing_seconds)


def test_a_grid_in_one_slab_becomes_durable_at_its_end():
    moved = Movement(1, 10**9, 10**9, 1.0, 0)
    more = [predict(m, Computing(1e9, 1e9, 1), moved, Beside()) for m in (CACHING, MACHINE)]
    assert more[0].seconds - more[1].seconds == pytest.approx(10**9 * CACHING.flushing_seconds)


@pytest.mark.parametrize(
    ("tier", "nbytes"),
    [("direct", 200_000_000), ("mmap", 0), ("swap", 0), ("memory", 0)],
)
def test_files_are_flushed_before_a_flush_would_take_long(tier, nbytes):
    problem = Problem("heat7", (100, 400, 400), "float64", 10, initial={"u": 0.0})
    wanted, seldom = (RunOptions.of(memory="512MiB", tier=tier, depth=d) for d in (2, 10))
    paced, unpaced = (plan(problem, wanted, each, 80 << 20) for each in (CACHING, MACHINE))
    assert (paced.flush_bytes, unpaced.flush_bytes) == (nbytes, 0)
    said = "flushed after every 191 MiB: the disk takes 500 ms for each GB"
    # Not where less than that is written.
    few = plan(problem, seldom, CACHING, 80 << 20)
    assert few.volume.written_bytes < 200_000_000
    for chosen, noted in ((paced, nbytes > 0), (unpaced, False), (few, False)):
        assert (said in " ".join(chosen.notes)) == noted


def choose(border, machine=MACHINE, by_level=None, **options):
    tiles = tuple(Sample(levels, 4, 2e9) for levels in (4, 8, 16))
    plain = Sample(1, FRONT_PLANES, 5e8, border_seconds=by_level)
    calibration = Calibration((plain, *tiles), border)
    problem = Problem("heat7", (2048, 512, 512), "float64", 96, initial={"u": 0.0})
    wanted = RunOptions.of(memory="512MiB", **options)
    return plan(problem, wanted, machine, 80 << 20, calibration)


def test_what_is_moved_takes_processors_from_what_computes_on_all_of_them():
    computing, moved = (
        Computing(1e9, 1e8, 1, threads=2),
        Movement(1, 3 * 10**9, 10**9, 0.01, 2 << 20),
    )
    costly = msgspec.structs.replace(MACHINE, cores=2, moving_seconds=3e-10)
    free = msgspec.structs.replace(costly, moving_seconds=0.0)
    more = [predict(m, computing, moved, Beside()).compute_seconds for m in (costly, free)]
    assert more[0] - more[1] == pytest.approx(4e9 * 3e-10 / 2)
    alone = msgspec.structs.replace(computing, threads=1)  # another core has time for it
    less = [predict(m, alone, moved, Beside()).compute_seconds for m in (costly, free)]
    assert less[0] == less[1]


def test_costly_borders_ask_for_thick_slabs():
    slabs = [choose(border, SLOW).schedule.slab_planes for border in (0.0, 1e-8, 3e-8)]
    assert slabs[0] < slabs[1] < slabs[2]
    assert choose(1e-7, SLOW).tile.order == "diamond"
    assert choose(1e-7, SLOW, by_level=0.0).tile.order == "level"


def test_a_run_held_up_by_the_disk_moves_slabs_of_many_requests():
    """Thin slabs would leave the device without requests at the end of each."""
    found = choose(0.0, SLOW, depth=2)
    assert found.prediction.bound_by == "read+write"
    assert (
        found.schedule.slab_planes * found.plane_bytes("u")
        >= 4 * RunOptions(memory_bytes=0).request_bytes
    )
    thin = choose(0.0, SLOW, depth=2, slab_planes=1)
    assert thin.predicted_seconds > 1.2 * found.predicted_seconds


def test_a_plain_sweep_has_its_own_measured_rate_whatever_a_border_costs():
    found = choose(1e-7, scheme="plain")
    assert found.prediction.updates_per_second == 5e8


def test_the_measured_cost_of_a_border_is_in_the_rate():
    found = choose(1e-9, slab_planes=4, depth=8)
    assert found.prediction.updates_per_second == pytest.approx(1 / (1 / 2e9 + 1e-9 / 4))


COMMIT_SECONDS = 0.5


def committing(stencil="heat7", steps=12, given=None, **options):
    """Seconds that commits add to a run, in those of one."""
    given = {"initial": {"u": 0.0}} | (given or {})
    problem = Problem(stencil, (100, 100, 100), "float64", steps, **given)
    wanted = RunOptions.of(memory="512MiB", **({"depth": 2, "tier": "direct"} | options))
    machines = (
        msgspec.structs.replace(MACHINE, flush_seconds=each) for each in (0.0, COMMIT_SECONDS)
    )
    free, costly = (plan(problem, wanted, machine, 80 << 20) for machine in machines)
    assert free.schedule.depths == costly.schedule.depths
    return (costly.predicted_seconds - free.predicted_seconds) / COMMIT_SECONDS


def about(count):
    """Of plans whose slabs may differ."""
    return pytest.approx(count, rel=0.01)


def test_each_state_that_becomes_durable_takes_its_time():
    assert committing() == about(6)
    assert committing(steps=24) == about(12)
    assert committing(tier="memory") == about(1)
    assert committing(tier="swap") == about(1)
    assert committing(scheme="overlapped") == about(6)
    assert committing(steps=0) == 0


def test_so_does_what_is_kept_of_steps_beside():
    receivers = {"receivers": [{"field": "u", "position": [50, 50, each]} for each in (40, 50)]}
    snapshots = {"snapshots": [{"field": "u", "every": 3, "z": each} for each in (40, 50)]}
    assert committing(given=receivers) == about(12)
    assert committing(given=snapshots) == about(18)
    assert committing(summed) == about(12)


def test_so_do_commits_that_are_asked_for_more_often():
    planes = PROBLEM.shape[0]
    assert committing(commit_every=0) == about(6 * planes)
    assert committing(commit_every=0, tier="memory") == about(6)
    assert committing(summed, commit_every=0) == about(12)


def test_reductions_are_computed_as_well():
    with_sum = Problem(summed, (100, 100, 100), "float64", 10, initial={"u": 0.0})
    plain, reduced = (rates(each, MACHINE, 2) for each in (PROBLEM, with_sum))
    assert reduced.cores < plain.cores
    assert reduced.update_bytes == plain.update_bytes
