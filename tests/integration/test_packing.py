"""Coefficients that sweeps read packed: the same bytes, fewer of them moved, nothing left over."""

import errno
import os

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import Stopped, StoreError, UsageError
from outgrid.execute import files
from outgrid.runs.leftovers import leftovers
from outgrid.testing.machine import MACHINE
from outgrid.testing.reference import run_reference

SHAPE, STEPS = (30, 90, 120), 9
LIMIT = {"memory": "1GiB", "tier": "direct"}


@og.stencil
def diffusion(u, k, s, m):
    """A field, a smooth coefficient, one in layers, and a mask of bytes."""
    flux = k[0, 0, 1] * (u[0, 0, 1] - u) - k[1, 0, 0] * (u - u[-1, 0, 0])
    return {"u": og.where(m == 0, u + 0.1 * flux + 0.01 * s[0, 1, 0], u)}


def problem(shape=SHAPE, steps=STEPS, **given):
    z, y, x = np.ogrid[: shape[0], : shape[1], : shape[2]]
    smooth = 0.5 + 0.2 * np.sin(0.05 * x) * np.cos(0.03 * y + 0.1 * z)
    layers = np.where(z + y + 0 * x < 50, 1.0, 2.0)
    initial = {
        "u": np.random.default_rng(3).random(shape),
        "k": smooth,
        "s": layers,
        "m": (z + y + x) % 11 == 0,
    }
    dtypes = {"k": "float32", "m": "uint8"}
    return og.Problem(diffusion, shape, "float64", steps, initial=initial, dtypes=dtypes, **given)


def run(path, problem, **given):
    return pipeline.run(problem, RunOptions.of(out=path, **(LIMIT | given)))


WAYS = {
    "deep": {"depth": 4, "slab_planes": 3},
    "plain": {"depth": 1, "slab_planes": 1},
    "one thread": {"depth": 5, "slab_planes": 4, "threads": 1},
    "aio": {"depth": 3, "slab_planes": 6, "engine": "aio", "request_bytes": 4096},
    "threads": {"depth": 3, "slab_planes": 2, "engine": "threads", "queue_depth": 1},
}
BOUNDARIES = {
    "frozen": {"boundary": "frozen"},
    "periodic": {"boundary": {"z": "periodic", "y": "periodic", "x": "periodic"}},
    "in a region": {"boundary": "dirichlet", "regions": {"s": og.Box(z=(8, 17), y=(5, 50))}},
}


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_results_are_the_same_and_fewer_bytes_are_read(tmp_path, boundary):
    posed = problem(**BOUNDARIES[boundary])
    expected = run_reference(posed)["u"]
    for name, way in WAYS.items():
        plain = run(tmp_path / f"{name} plain", posed, pack="never", **way)
        packed = run(tmp_path / name, posed, pack="always", **way)
        assert packed["u"][...].tobytes() == plain["u"][...].tobytes()
        np.testing.assert_allclose(packed["u"], expected, rtol=1e-4)
        assert plain.record.planned["packed"] == ()
        assert packed.record.planned["packed"] == ("k", "s")
        before, now = plain.record.measured, packed.record.measured
        assert 0 < now.packed_bytes < 0.5 * 12 * np.prod(SHAPE)
        assert now.read_bytes < before.read_bytes
        assert now.written_bytes == before.written_bytes
        assert not [*tmp_path.rglob("*.packed")]


def test_strips_read_what_is_not_packed(tmp_path):
    posed = problem()
    ways = {"depth": 3, "strip_rows": 20, "slab_planes": 2}
    packed = run(tmp_path / "packed", posed, pack="always", **ways)
    plain = run(tmp_path / "plain", posed, pack="never", **ways)
    assert packed.record.planned["packed"] == ()
    assert packed["u"][...].tobytes() == plain["u"][...].tobytes()


def test_a_resumed_run_packs_again(tmp_path):
    posed = problem(steps=12)
    whole = run(tmp_path / "whole", posed, pack="never", depth=2)
    options = RunOptions.of(out=tmp_path / "parts", pack="always", depth=2, commit_every=0, **LIMIT)
    with pytest.raises(Stopped):
        pipeline.run(posed, msgspec.structs.replace(options, stop_after_seconds=1e-9))
    assert not [*(tmp_path / "parts").rglob("*.packed")]
    result = pipeline.resume(tmp_path / "parts", options)
    assert len(result.record.parts) == 2
    assert result.record.parts[-1].measured.packed_bytes > 0
    assert result.record.planned["packed"] == ("k", "s")
    assert result["u"][...].tobytes() == whole["u"][...].tobytes()


def test_a_file_that_is_called_like_a_copy_stays(tmp_path):
    mine = tmp_path / "work" / "k.packed"
    mine.parent.mkdir()
    mine.write_text("mine")
    given = {"scratch": mine.parent, "pack": "always", "depth": 3}
    with pytest.raises(UsageError, match=r"k\.packed exists and is not overwritten"):
        run(tmp_path / "run", problem(), **given)
    assert mine.read_text() == "mine"


def test_a_copy_that_a_killed_process_has_named_is_removed(tmp_path, monkeypatch):
    unlink = os.unlink

    def killed(path, **given):
        if str(path).endswith(".packed") and os.path.exists(path):
            raise KeyboardInterrupt
        unlink(path, **given)

    with monkeypatch.context() as patched:
        patched.setattr("outgrid.execute.packing.os.unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "run", problem(), pack="always", depth=3)
    (copy,) = (tmp_path / "run").rglob("*.packed")
    assert copy in leftovers(tmp_path / "run").files
    leftovers(tmp_path / "run", delete=True)
    assert not [*(tmp_path / "run").rglob("*.packed")]


def test_a_disk_without_room_for_a_copy_is_told(tmp_path, monkeypatch):
    def full(store, path, *_):
        raise StoreError("no space", path=path, errno=errno.ENOSPC)

    monkeypatch.setattr(files, "packed", full)
    posed = problem()
    result = run(tmp_path / "full", posed, pack="always", depth=3)
    told = [line for line in result.record.measured.fallbacks if "is not packed" in line]
    assert len(told) == 2
    plain = run(tmp_path / "plain", posed, pack="never", depth=3)
    assert result["u"][...].tobytes() == plain["u"][...].tobytes()


def test_a_disk_that_fails_ends_the_run_which_goes_on_later(tmp_path, monkeypatch):
    def broken(store, path, *_):
        raise StoreError("the disk is broken", path=path, errno=errno.EIO)

    posed = problem()
    with monkeypatch.context() as patched:
        patched.setattr(files, "packed", broken)
        with pytest.raises(StoreError, match="broken"):
            run(tmp_path / "run", posed, pack="always", depth=3)
    options = RunOptions.of(out=tmp_path / "run", pack="always", depth=3, **LIMIT)
    result = pipeline.resume(tmp_path / "run", options)
    plain = run(tmp_path / "plain", posed, pack="never", depth=3)
    assert result["u"][...].tobytes() == plain["u"][...].tobytes()


SLOW = replace(MACHINE, read_bandwidth=2e8, write_bandwidth=2e8, mixed_bandwidth=2e8)


def test_a_plan_packs_where_the_disk_bounds_the_run():
    formulas = {"u": "sin(x)", "k": "0.5 + 0.1*sin(0.01*x)", "s": "1.0", "m": "0"}
    posed = og.Problem(diffusion, (2000, 256, 256), "float32", 500, initial=formulas)
    options = RunOptions.of(memory="128MiB", tier="direct")
    slow = pipeline.plan(posed, options, SLOW)
    assert set(slow.packed) >= {"k", "s"}
    assert any("k is packed before the first sweep" in note for note in slow.notes)
    assert slow.volume.packed_bytes > 0
    fast = replace(SLOW, read_bandwidth=1e13, write_bandwidth=1e13, mixed_bandwidth=1e13)
    assert pipeline.plan(posed, options, fast).packed == ()
    never = RunOptions.of(memory="128MiB", tier="direct", pack="never")
    whole = pipeline.plan(posed, never, SLOW)
    assert whole.packed == ()
    assert whole.predicted_seconds > slow.predicted_seconds


def test_noise_is_not_packed():
    noise = {"u": "sin(x)", "k": "random(1) - 0.5", "s": "random(2) - 0.5", "m": "0"}
    posed = og.Problem(diffusion, (2000, 256, 256), "float32", 50, initial=noise)
    options = RunOptions.of(memory="128MiB", tier="direct", pack="always")
    assert "k" not in pipeline.plan(posed, options, SLOW).packed
