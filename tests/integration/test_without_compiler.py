"""Runs without any C++ compiler: the reference executor makes small ones, and says so."""

import json
import random
import threading

import numpy as np
import pytest

import outgrid as og
from outgrid.__main__ import main
from outgrid.config import RunOptions
from outgrid.errors import BuildError, ExecutionError, NoCompiler
from outgrid.execute import kernels
from outgrid.testing.reference import run_reference
from outgrid.testing.threads import in_threads

WAYS = {
    "plain": {"scheme": "plain", "tier": "memory"},
    "streamed": {"tier": "direct", "depth": 3, "slab_planes": 2},
    "strips": {"tier": "direct", "depth": 2, "strip_rows": 6},
    "mapped": {"tier": "mmap", "threads": 2},
}


@og.stencil
def mixed(u, w, a, *, k):
    """Two levels, a field of another type, an offset in the same step's result, reductions."""
    change = k * og.laplacian(u) + og.exp(-a) * w[0, 0, 1]
    return [
        {"u": u + change, "moved": og.sum(change * change), "largest": og.max(u)},
        {"w": 2 * w - w.previous + 0.1 * (u[0, 1, 0] - u)},
    ]


def problem(**changes):
    given = {
        "parameters": {"k": 0.08},
        "initial": {"u": "sin(x + 2*y) * z", "w": "y/9", "a": "(x + z)/30"},
        "boundary": {"x": "periodic", "y": "neumann", "z": {"kind": "dirichlet", "value": 0.25}},
        "dtypes": {"a": "float32"},
        "dtype": "float64",
        "sources": [og.Source("u", (4, 5, 6), np.linspace(0, 1, 7))],
        "receivers": [og.Receiver("u", (5.5, 4.25, 3.0))],
        "snapshots": [og.Snapshot("w", every=3, z="::2")],
    }
    return og.Problem(mixed, (17, 12, 19), steps=7, **(given | changes))


def run(out, **options):
    return og.run(problem(), memory="512MiB", out=out, **options)


def left(result):
    """Everything that a run leaves, as bytes."""
    arrays = {name: result[name] for name in result} | {"traces": result.traces}
    arrays |= {f"snapshot {n}": frames for n, frames in enumerate(result.snapshots)}
    arrays |= dict(result.reductions)
    return {name: np.array(values).tobytes() for name, values in arrays.items()}


@pytest.fixture
def no_compiler(tmp_path, monkeypatch):
    """A machine on which nothing compiles, and nothing was compiled before."""
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("OUTGRID_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("outgrid.build.compiler._by_pip", list)


@pytest.mark.usefixtures("no_compiler")
def test_the_reference_executor_leaves_what_the_reference_computes(tmp_path):
    result = run(tmp_path / "plain", **WAYS["plain"])
    wanted = run_reference(problem())
    for name in ("u", "w", "w.previous"):
        np.testing.assert_array_equal(result[name][:], wanted[name])
    assert result.record.parts[-1].compiler.startswith("reference executor, NumPy ")
    (note,) = result.record.measured.fallbacks
    assert note.startswith("there is no C++ compiler: the reference executor computes")
    for name, options in WAYS.items():
        assert left(run(tmp_path / name, overwrite=True, **options)) == left(result), name


def test_it_comes_as_near_to_kernels_as_rounding_lets_it(tmp_path, request):
    kernel = run(tmp_path / "kernel", **WAYS["plain"])
    request.getfixturevalue("no_compiler")
    result = run(tmp_path / "reference", **WAYS["streamed"])
    assert "there is no C++ compiler" in result.record.measured.fallbacks[0]
    for name in ("u", "w"):
        np.testing.assert_allclose(result[name][:], kernel[name][:], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(result.traces, kernel.traces, rtol=1e-12)
    np.testing.assert_allclose(result.snapshots[0], kernel.snapshots[0], rtol=1e-12)
    for name, numbers in kernel.reductions.items():
        np.testing.assert_allclose(result.reductions[name], numbers, rtol=1e-12)


def test_a_run_keeps_to_the_executor_that_began_it(tmp_path, monkeypatch, cut_off):
    by_kernel, cut = tmp_path / "kernel", tmp_path / "cut"
    options = {"memory": "512MiB", "out": by_kernel}
    assert "C++ compiler" not in str(og.plan(problem(), **options))
    cut_off(20, lambda: run(by_kernel, **WAYS["streamed"]))
    with monkeypatch.context() as patch:
        patch.delenv("CXX")
        patch.setenv("PATH", str(tmp_path / "empty"))
        patch.setenv("OUTGRID_CACHE", str(tmp_path / "cache"))
        patch.setattr("outgrid.build.compiler._by_pip", list)
        with pytest.raises(BuildError, match=r"apt-get install.*A kernel began this run"):
            og.resume(by_kernel)
        wanted = left(run(tmp_path / "whole", **WAYS["streamed"]))
        cut_off(20, lambda: run(cut, **WAYS["streamed"]))
    for out in (by_kernel, cut):
        assert 0 < json.loads((out / "manifest.json").read_text())["steps_done"] < 7
    result = og.resume(cut)
    assert left(result) == wanted
    assert any("began this run" in note for note in result.record.measured.fallbacks)
    og.resume(by_kernel)


@pytest.mark.usefixtures("no_compiler")
def test_a_larger_problem_is_refused_with_the_ways_to_get_a_compiler(tmp_path, capsys, monkeypatch):
    ways = r"apt-get install g\+\+.*conda.*outgrid\[compiler\].*\$CXX"
    large = og.Problem("heat7", (500, 500, 500), steps=1, parameters={"k": 0.1}, initial={"u": 0.0})
    with pytest.raises(BuildError, match=rf"(?s){ways}.*1e\+08 updates.*makes 1.25e\+08"):
        og.run(large, memory="2GiB", out=tmp_path / "large")
    assert not (tmp_path / "large").exists()
    monkeypatch.setenv("CXX", "no-such-compiler")  # is named, and not replaced by anything
    with pytest.raises(BuildError, match="looked for no-such-compiler"):
        run(tmp_path / "named")
    monkeypatch.delenv("CXX")
    job = tmp_path / "job.toml"
    job.write_text(
        'problem = { stencil = "heat7", shape = [9, 9, 9], steps = 2, parameters = { k = 0.1 }, '
        'initial = { u = "x" } }\nrun = { memory = "512MiB" }\n'
    )
    capsys.readouterr()
    assert main(["plan", str(job), "--out", str(tmp_path / "run")]) == 0
    assert "the reference executor computes, in NumPy: it is slow" in capsys.readouterr().out
    assert (
        main(["plan", str(job), "--out", str(tmp_path / "run"), "--set", "problem.steps=1000000"])
        == 3
    )
    told = capsys.readouterr()
    assert "a run would fail: no C++ compiler" in told.out
    assert "a run would fail: no C++ compiler" in told.err
    assert main(["run", str(job), "--out", str(tmp_path / "run")]) == 0
    assert "the reference executor computes, in NumPy: it is slow" in capsys.readouterr().err


@pytest.mark.usefixtures("no_compiler")
def test_it_watches_for_what_is_not_finite(tmp_path):
    growing = og.Problem("heat7", (9, 9, 9), "float32", 90, {"k": 9.0}, initial={"u": "x*x*y"})
    with pytest.raises(ExecutionError, match=r"u became infinite in step \d+ of 90, first in cell"):
        og.run(growing, memory="512MiB", out=tmp_path / "run", tier="direct", depth=2)


def test_ranks_of_which_one_has_no_compiler_are_refused(monkeypatch):
    there, load = threading.local(), kernels.load_kernel

    def loaded(problem):
        if there.rank == 1:
            raise NoCompiler("none")
        return load(problem)

    def act(comm):
        there.rank = comm.rank
        return kernels.compiled(problem(), RunOptions(memory_bytes=1 << 30), comm, None)

    monkeypatch.setattr(kernels, "load_kernel", loaded)
    with pytest.raises(BuildError, match="on the nodes of ranks 1, and kernels on the others"):
        in_threads(act, 2, random.Random(1))


@pytest.mark.usefixtures("no_compiler")
def test_each_step_of_a_deep_sweep_reads_its_frame(tmp_path):
    frames = np.random.default_rng(2).normal(size=(6, 17, 12, 19))
    np.save(tmp_path / "wind.npy", frames)
    blown = og.stencil(lambda u, wind: u + 0.1 * wind * (u[1, 0, 0] - u[-1, 0, 0]))
    initial = {"u": "sin(x + 2*y) * z", "wind": og.Series(tmp_path / "wind.npy", 5, -1)}
    posed = og.Problem(blown, (17, 12, 19), "float64", 6, initial=initial)
    ways = {"plain": 1, "deep": 3}
    plain, deep = (
        og.run(posed, out=tmp_path / name, memory="512MiB", tier="direct", depth=depth)
        for name, depth in ways.items()
    )
    assert deep.plan.schedule.depths == (3, 3)
    assert np.array_equal(deep["u"], plain["u"])
    assert np.allclose(deep["u"], run_reference(posed)["u"], rtol=0, atol=1e-12)
