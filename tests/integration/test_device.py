"""Whole runs with a window on a device, here one made of a processor: the same bytes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import DeviceError, ExecutionError, InfeasiblePlan, Stopped, UsageError
from outgrid.execute.stop import Stop
from outgrid.report.summary import summarise
from outgrid.stencil.catalog import lookup
from outgrid.stencil.problem import Problem
from outgrid.testing.device import stand_in
from outgrid.testing.strategies import problems

HEAT = lookup("heat7")
KILLED = """
import sys
sys.path.insert(0, sys.argv[1])
import test_device
test_device.killed(sys.argv[2])
"""


@pytest.fixture
def devices(monkeypatch):
    """Slow devices stand for GPUs; those that were opened, the last one last."""
    return stand_in(monkeypatch.setattr)


@og.stencil(ndim=3)
def squared(u):
    return u * u[0, 0, 1]


def heat(steps=12, **others):
    values = {"u": "1 + sin(7*z + y + x) + z / 9 * y - x / 30"}
    return Problem(HEAT, (40, 24, 40), "float64", steps, initial=values, **others)


def arrays(result):
    return {name: np.asarray(result[name]).tobytes() for name in result.record.fields}


TIERS = ("direct", "mmap", "swap", "memory", "auto")


@settings(max_examples=max(3, settings.default.max_examples // 8))
@given(problem=problems(), draw=st.data(), tier=st.sampled_from(TIERS), seed=st.integers(0, 999))
def test_random_problems_come_out_the_same(problem, draw, tier, seed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    wanted = og.run(problem, memory="1GiB", out=folder / "cpu", tier="memory", scheme="plain")
    least = 1 << draw.draw(st.integers(14, 20), label="device memory")
    choice = {"depth": draw.draw(st.sampled_from([None, 1, 2, 3]), label="depth")}
    with pytest.MonkeyPatch.context() as patch:
        opened = stand_in(patch.setattr, seed)
        while True:  # a little more, until it fits
            chosen = {"tier": tier, "device": "gpu", "device_memory": least} | choice
            try:
                found = og.run(problem, memory="1GiB", out=folder / "gpu", **chosen)
                break
            except InfeasiblePlan as error:
                if "periodic" in str(error):
                    return
                least *= 2
        (device,) = opened
    assert arrays(found) == arrays(wanted)
    assert device.most_bytes <= least
    assert device.allocations == 0


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wanted")
    return og.run(heat(), memory="1GiB", out=folder / "cpu")


STREAMED = {"memory": "1GiB", "device": "gpu", "tier": "direct", "depth": 4, "slab_planes": 3}


def test_a_run_is_stopped_in_mid_sweep_and_resumed(devices, wanted, tmp_path):
    stop = Stop()

    def after_a_while(progress):
        if progress.sweep == 1:
            stop.request("the test")

    options = RunOptions.of(**STREAMED, out=tmp_path / "gpu", commit_every=1e-6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("outgrid.execute.streaming.PROGRESS_SECONDS", 0)
        with pytest.raises(Stopped):
            pipeline.run(heat(), options, after_a_while, stop)
    found = og.resume(tmp_path / "gpu", memory="1GiB", device="gpu", device_memory="8MiB")
    assert arrays(found) == arrays(wanted)
    assert len(devices) == 2
    assert not any(device.allocations for device in devices)


def test_a_processor_goes_on_where_a_device_stopped(devices, wanted, tmp_path):
    options = RunOptions.of(**STREAMED, out=tmp_path / "gpu", stop_after=1e-3)
    with pytest.raises(Stopped):
        pipeline.run(heat(), options)
    assert arrays(og.resume(tmp_path / "gpu", memory="1GiB")) == arrays(wanted)


def killed(out):
    """Begin a run whose process is killed in its third sweep."""
    stand_in(setattr)

    def kill(progress):
        if progress.sweep == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    from outgrid.execute import streaming

    streaming.PROGRESS_SECONDS = 0
    pipeline.run(heat(), RunOptions.of(**STREAMED, out=out, commit_every=1e-6), kill)


def test_kill_9_costs_no_byte(devices, wanted, tmp_path):
    here = str(Path(__file__).parent)
    out = str(tmp_path / "gpu")
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, here, out], capture_output=True, check=False
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    found = og.resume(out, memory="1GiB", device="gpu", device_memory="8MiB")
    assert arrays(found) == arrays(wanted)
    assert found.record.parts[0].last_step > 0


def test_sources_and_receivers_across_a_resume(devices, tmp_path):
    points = {
        "sources": [og.Source("u", (5, 6.5, 7), np.sin(np.arange(12.0)))],
        "receivers": [og.Receiver("u", (5, 8, 9.25)), og.Receiver("u", (30, 2, 3))],
    }
    problem = heat(**points)
    wanted = og.run(problem, memory="1GiB", out=tmp_path / "cpu")
    options = RunOptions.of(**STREAMED, out=tmp_path / "gpu", stop_after=1e-3)
    with pytest.raises(Stopped):
        pipeline.run(problem, options)
    found = og.resume(tmp_path / "gpu", memory="1GiB", device="gpu")
    assert arrays(found) == arrays(wanted)
    assert found.traces.tobytes() == wanted.traces.tobytes()


@pytest.mark.parametrize("tier", ["direct", "memory"])
def test_a_value_that_becomes_infinite_is_found(devices, tier, tmp_path):
    problem = Problem(squared, (20, 6, 40), "float64", 12, initial={"u": "3.5 + z / 19"})
    said = {}
    for device in ("cpu", "gpu"):
        with pytest.raises(ExecutionError) as error:
            og.run(problem, memory="1GiB", out=tmp_path / device, tier=tier, device=device)
        said[device] = str(error.value).partition(";")[0]
    assert "infinite" in said["cpu"]
    assert said["gpu"] == said["cpu"]


def test_what_is_planned_and_recorded_names_the_device(devices, tmp_path):
    plan = og.plan(heat(), **STREAMED)
    assert plan.device.name == "a slow device"
    assert plan.memory.held_bytes == 0
    assert "a slow device:" in str(plan) == plan.explain()
    assert type(plan).from_dict(plan.to_dict()) == plan
    result = og.run(heat(), **STREAMED, out=tmp_path / "gpu")
    measured = result.record.measured
    assert measured.device == "a slow device"
    assert (measured.uploaded_bytes, measured.downloaded_bytes) == (
        plan.volume.read_bytes,
        plan.volume.written_bytes,
    )
    assert "a slow device: " in summarise(result.record)


def test_what_does_not_fit_is_named(monkeypatch):
    stand_in(monkeypatch.setattr, memory_bytes=1 << 40)
    with pytest.raises(InfeasiblePlan, match="MiB of device_memory are enough"):
        og.plan(heat(), **STREAMED, device_memory="100KiB")
    wide = Problem(
        HEAT, (40, 4000, 4000), "float64", 4, boundary={"y": "periodic"}, initial={"u": 0.0}
    )
    with pytest.raises(InfeasiblePlan, match="copies to the device need"):
        og.plan(wide, **STREAMED | {"memory": "700MiB"}, device_memory="64GiB")


@pytest.mark.parametrize(
    "odd",
    [
        {"scheme": "overlapped"},
        {"tier": "remote"},
        {"tier": "mmap", "in_place": True},
        {"preview": True},
        {"device": "cpu", "device_memory": "1GiB"},
    ],
)
def test_what_a_device_does_not_do_is_refused(devices, odd):
    with pytest.raises(UsageError, match="leave it out, or choose device"):
        og.plan(heat(), memory="1GiB", **{"device": "gpu"} | odd)


def test_snapshots_and_reductions_are_refused(devices):
    snapshots = [{"field": "u", "every": 2, "z": 3}]
    with pytest.raises(UsageError, match="snapshots are not supported on device gpu"):
        og.plan(heat(snapshots=snapshots), memory="1GiB", device="gpu")


def test_without_a_device_a_run_says_what_was_looked_for(tmp_path):
    with pytest.raises(DeviceError, match="pip install cupy-cuda12x"):
        og.run(heat(), memory="1GiB", out=tmp_path / "gpu", device="gpu", device_memory="1GiB")
    assert not (tmp_path / "gpu").exists()


def test_a_plan_for_a_device_that_is_not_here():
    plan = og.plan(heat(), **STREAMED, device_memory="16MiB")
    assert plan.device.memory_bytes == 16 << 20
    with pytest.raises(DeviceError):
        og.plan(heat(), **STREAMED)


def test_nothing_of_cuda_is_imported_unless_asked_for(tmp_path):
    program = (
        "import sys, outgrid as og\n"
        "from outgrid.stencil.catalog import lookup\n"
        "heat = lookup('heat7')\n"
        "problem = og.Problem(heat, (8, 8, 8), 'float64', 2, initial={'u': 1.0})\n"
        f"og.run(problem, memory='256MiB', out={str(tmp_path / 'run')!r})\n"
        "print([each for each in sys.modules if 'cuda' in each.lower() or each == 'cupy'])\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert ended.stdout.decode().strip() == "['outgrid.codegen.cuda']"
