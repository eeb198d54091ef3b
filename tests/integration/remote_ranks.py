"""What `test_remote.py` starts under mpiexec. Every rank runs all of it; rank 0 computes."""

import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import ExecutionError, InfeasiblePlan, Stopped
from outgrid.execute.stop import Stop
from outgrid.remote import lending, lifelines
from outgrid.stencil.problem import Problem

SHAPE, STEPS = (30, 23, 37), 7
LEFT = []  # until the interpreter ends
HOW = (
    {"depth": 3, "slab_planes": 4},
    {"depth": 2, "strip_rows": 7, "placement": "contiguous"},
    {"scheme": "overlapped", "block": (9, 8, 35), "depth": 3},
    {"depth": 3, "keep": "disk"},
)


def problem(steps=STEPS):
    values = np.random.default_rng(3).random(SHAPE)
    return Problem("heat7", SHAPE, "float64", steps, {"k": 0.1}, "frozen", {"u": values})


def options(out, **given):
    return RunOptions.of(
        memory="250MiB", out=out, threads=1, tier="remote", lend="100MiB", queue_depth=2, **given
    )


def runs(folder):
    """All ways of a run: every rank gets the result."""
    for number, how in enumerate(HOW):
        result = pipeline.run(problem(), options(folder / f"run{number}", **how))
        assert result["u"].shape == SHAPE


def plans(folder):
    """A script that plans first: all ranks get the plan, or are told why there is none."""
    given = {"memory": "250MiB", "tier": "remote", "depth": 3, "out": folder / "run"}
    plan = og.plan(problem(), lend="100MiB", **given)
    told = [note for note in plan.notes if "lends" in note]
    with pytest.raises(InfeasiblePlan) as refused:
        og.plan(problem(), lend="1KiB", **given)
    result = og.run(problem(), lend="100MiB", **given)
    assert told == [note for note in result.record.planned["notes"] if "lends" in note]
    sys.stdout.write(f"{told}\n{refused.value}\n")


def stores(folder):
    """The suite that every store passes, in the memory of the other ranks."""
    from outgrid.remote.lending import lending

    class Plugin:
        def pytest_configure(self, config):
            config.lenders = lenders

    with lending(256 << 20) as lenders:
        if lenders is not None:
            suite = Path(__file__).parents[1] / "conformance" / "test_stores.py"
            os.environ["OUTGRID_LENDERS"] = str(len(lenders.offers))
            arguments = ["-q", str(suite)]
            assert pytest.main(arguments, plugins=[Plugin()]) == 0


def arrays(folder):
    """Regions of arrays by get and put, and a paged array, against one in memory."""
    og.remote.start(lend="64MiB")
    choose = np.random.default_rng(2)
    for placement in ("cyclic", "contiguous"):
        remote = og.remote.array((17, 20, 3000), "float64", placement=placement)
        expected = choose.random(remote.shape)
        remote[:] = expected
        for _ in range(20):
            low = [int(choose.integers(0, extent)) for extent in remote.shape]
            region = tuple(
                slice(first, int(choose.integers(first, extent + 1)))
                for first, extent in zip(low, remote.shape, strict=True)
            )
            expected[region] += 1
            remote[region] = expected[region]
            cut = (slice(None), low[1], region[2])
            assert (remote[cut] == expected[cut]).all()
            # From and into the inner part of a block, which has gaps.
            block = np.zeros([extent + 3 for extent in expected[region].shape])
            inner = block[1:-2, 2:-1, 1:-2]
            remote.get(region, inner)
            assert (inner == expected[region]).all()
            inner += 1
            expected[region] += 1
            remote.put(region, inner)
            inner[...] = 0
            assert not block.any()
        assert (remote.get() == expected).all()
        pager = og.Pager("1MiB", page="16KiB")
        shown = remote.paged(pager=pager)
        assert (shown == expected).all()
        shown[3:5] = expected[3:5] = 7
        pager.flush()
        assert (remote.get() == expected).all()
        del shown
        pager.close()
    # Long rows of a view go one by one, shared out among threads.
    long = og.remote.array((130, 8300))
    values = choose.random((134, 8305))
    long[:] = values[1:131, 2:8302]
    values[2:4] = -1
    inner = np.zeros_like(values)
    long.start_put((slice(1, 3), slice(None)), values[2:4, 2:8302]).wait()
    long.get((), inner[1:131, 2:8302])
    assert (inner[1:131, 2:8302] == values[1:131, 2:8302]).all()
    assert not inner[0].any()
    assert not inner[:, :2].any()
    with pytest.raises(og.remote.UsageError, match="strides"):
        remote.get((0, 0), np.zeros(3000)[::-1])
    with pytest.raises(og.remote.UsageError, match="slices of step 1"):
        remote[::2]
    paged = og.remote.empty(400_000, "int64", local="1MiB", page="16KiB")
    assert paged.sum() == 0
    paged[:] = np.arange(400_000)
    assert paged[::-1].sum() == 400_000 * 399_999 // 2
    sys.stdout.write("arrays agree\n")


def leave(folder):
    """The program ends while pages are changed, and while others are being read ahead."""
    og.remote.start(lend="64MiB")
    remote = og.remote.array(4 << 20, "int64")
    remote[:] = np.arange(4 << 20)
    shown = remote.paged(pager=og.Pager("24MiB", page="1MiB", ahead=4))
    shown[-1000:] = 7
    sys.stdout.write(f"{shown[0]} {shown[131072]}\n")
    LEFT.append(shown)


def resume(folder):
    """A run that was stopped goes on in remote memory, from what was kept on disk."""
    stop = Stop()
    try:
        pipeline.run(
            problem(400), options(folder / "run", depth=2, keep="disk"), seen_by(stop), stop
        )
    except Stopped as stopped:
        (folder / f"stopped{MPI.COMM_WORLD.rank}").write_text(str(stopped))
    result = pipeline.resume(folder / "run", options(None, depth=2, keep="disk"))
    assert len(result.record.parts) == 2


def refuse(folder):
    """Rank 0 cannot reach the memory that the others have just set aside."""

    def refused(*_):
        raise OSError("cannot be reached")

    lending.MpiWindow = refused
    og.remote.start(lend="64MiB")
    og.remote.array(1 << 20, "uint8")


def miss(folder):
    """A rank does not reach rank 0 in time."""
    lifelines.GREET_SECONDS = 0.01
    lending.greeted = lambda listener, token, count: lifelines.greeted(listener, token, count + 1)
    og.remote.start(lend="64MiB")


def seen_by(stop):
    """Stops in mid-run."""
    return lambda progress: stop.request("enough") if progress.sweep > 20 else None


def lose(folder, keep):
    """A memory node dies in mid-run."""

    rank = MPI.COMM_WORLD.rank
    (folder / f"pid{rank}").write_text(str(os.getpid()))

    def kill(progress):
        if (folder / "pid2").exists():
            os.kill(int((folder / "pid2").read_text()), signal.SIGKILL)
            (folder / "pid2").unlink()

    try:
        pipeline.run(problem(4000), options(folder / "run", depth=2, keep=keep), kill)
    except ExecutionError as error:
        (folder / "said").write_text(str(error))


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
