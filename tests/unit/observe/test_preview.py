import numpy as np
import pytest

from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.execute import streaming
from outgrid.formats.npy import read_header
from outgrid.observe import preview
from outgrid.observe.preview import PREVIEW_NAME
from outgrid.stencil.problem import Problem


def run(tmp_path, shape, steps=6, name="heat5", **others):
    values = np.random.default_rng(2).random(shape)
    problem = Problem(name, shape, "float64", steps, initial={"u": values})
    given = {"tier": "direct", "depth": 2, "slab_planes": 3, "preview": 8} | others
    result = pipeline.run(problem, RunOptions.of(memory="256MiB", out=tmp_path / "run", **given))
    return problem, result, np.load(result.out / PREVIEW_NAME)


def states(problem, tmp_path, steps):
    """The first field after each of `steps`."""
    for number, each in enumerate(steps):
        if each == 0:
            yield np.asarray(problem.initial["u"])
            continue
        shorter = Problem(problem.stencil, problem.shape, "float64", each, initial=problem.initial)
        out = tmp_path / f"state{number}"
        yield pipeline.run(shorter, RunOptions.of(memory="256MiB", out=out))["u"]


def test_frames_of_a_2d_field_are_every_nth_cell_after_each_sweep(tmp_path):
    problem, result, frames = run(tmp_path, (41, 30))
    assert result.record.preview == PREVIEW_NAME
    assert frames.dtype == np.float32
    for frame, state in zip(frames, states(problem, tmp_path, [0, 2, 4, 6]), strict=True):
        assert (frame == state[::6, ::6].astype(np.float32)).all()


def test_frames_of_a_3d_field_are_its_middle_plane(tmp_path):
    problem, _, frames = run(tmp_path, (11, 20, 9), name="heat7")
    for frame, state in zip(frames, states(problem, tmp_path, [0, 2, 4, 6]), strict=True):
        assert (frame == state[5, ::3, ::3].astype(np.float32)).all()


def test_of_very_many_sweeps_some_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(preview, "MOST_FRAMES", 3)
    problem, _, frames = run(tmp_path, (20, 20), steps=8, depth=1)
    wanted = list(states(problem, tmp_path, [0, 3, 6]))
    assert len(frames) == 3
    for frame, state in zip(frames, wanted, strict=True):
        assert (frame == state[::3, ::3].astype(np.float32)).all()


@pytest.mark.parametrize("steps", [0, 3])
def test_a_run_in_memory_shows_its_beginning_and_its_end(tmp_path, steps):
    problem, _, frames = run(tmp_path, (20, 20), steps=steps, tier="memory", depth=None)
    wanted = list(states(problem, tmp_path, [0, steps] if steps else [0]))
    assert len(frames) == len(wanted)
    for frame, state in zip(frames, wanted, strict=True):
        assert (frame == state[::3, ::3].astype(np.float32)).all()


def test_no_preview_leaves_no_file(tmp_path):
    out = tmp_path / "run"
    problem = Problem("heat5", (20, 20), steps=2, initial={"u": 0.0})
    result = pipeline.run(problem, RunOptions.of(memory="256MiB", out=out))
    assert result.record.preview is None
    assert not (out / PREVIEW_NAME).exists()


@pytest.mark.parametrize("shape", [(41, 30), (23, 20, 9)])
def test_a_run_that_is_resumed_adds_to_its_frames(shape, tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "PROGRESS_SECONDS", 0.0)
    stencil = f"heat{2 * len(shape) + 1}"
    problem, _, whole = run(tmp_path / "whole", shape, steps=12, name=stencil)
    out = tmp_path / "run"

    def stop(progress):
        if progress.sweep == 3:
            raise KeyboardInterrupt

    given = {"tier": "direct", "depth": 2, "slab_planes": 3, "preview": 8, "commit_every": 0}
    options = RunOptions.of(memory="256MiB", out=out, **given)
    with pytest.raises(KeyboardInterrupt):
        pipeline.run(problem, options, stop)
    kept = read_header(out / f"{PREVIEW_NAME}.new", 0).shape[0]
    result = pipeline.resume(out, options)
    frames = np.load(out / PREVIEW_NAME)
    assert kept > 0
    assert result.record.preview == PREVIEW_NAME
    assert (frames[-1] == whole[-1]).all()
    wanted = {frame.tobytes(): number for number, frame in enumerate(whole)}
    numbers = [wanted[frame.tobytes()] for frame in frames]
    assert numbers == sorted(set(numbers))
    assert len(numbers) >= len(whole) - 1  # the sweep that was cut in two has none
