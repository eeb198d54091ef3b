"""Fields that are kept in other types than the one that is computed in: files, restarts, words."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.cli import main
from outgrid.config import RunOptions
from outgrid.definition import stencil
from outgrid.errors import Stopped, UsageError
from outgrid.execute.stop import Stop
from outgrid.job import load_job
from outgrid.testing.reference import reference_with_bound

SHAPE = (30, 26, 37)
DTYPES = {"u": "float32", "c": "float32", "solid": "uint8"}


@stencil
def melting(u, v, c, solid, *, k):
    """Two fields that are updated, one of them kept in less, and two that are only read."""
    warmed = u + k * c * og.laplacian(u)
    return og.where(solid > 0, u, warmed), v + k * (u[1, 0, 0] - v[0, -1, 1])


def problem(**changes: Any) -> og.Problem:
    given: dict[str, Any] = {
        "dtypes": DTYPES,
        "initial": {
            "u": "sin(0.3 * x) + 0.1 * y + 0.01 * z",
            "v": "cos(0.2 * z * x)",
            "c": "0.5 + 0.4 * sin(z + x * y)",
            "solid": "where(hypot(x - 18, y - 13) > 6, 0, 200)",
        },
        "snapshots": [og.Snapshot("u", every=4, z=9), og.Snapshot("v", every=4, y=9)],
        "receivers": [og.Receiver("u", (9, 9, 9)), og.Receiver("v", (9, 9.5, 9))],
        "sources": [og.Source("u", (9, 9, 10.5), 0.3), og.Source("v", (8, 9, 10), 0.1)],
    }
    return og.Problem(melting, SHAPE, "float64", 12, {"k": 0.1}, **(given | changes))


def options(out: Path, **others: Any) -> RunOptions:
    return RunOptions.of(**({"memory": "1GiB", "out": out, "threads": 2} | others))


def left(result: og.Result) -> dict[str, np.ndarray]:
    """All that a run leaves."""
    found = {name: np.asarray(result[name]) for name in ("u", "v")}
    found |= {f"snapshot {n}": np.asarray(each) for n, each in enumerate(result.snapshots)}
    return found | {"traces": result.traces}


def assert_same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    for name, values in wanted.items():
        assert found[name].dtype == values.dtype, name
        assert found[name].tobytes() == values.tobytes(), name


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """What plain sweeps leave."""
    out = tmp_path_factory.mktemp("plain") / "run"
    return left(pipeline.run(problem(), options(out, scheme="plain", tier="direct")))


@pytest.mark.parametrize(
    "how",
    [
        {"tier": "memory"},
        {"tier": "direct", "depth": 5, "tile_rows": 6},
        {"tier": "mmap", "depth": 4},
        {"tier": "mmap", "in_place": True},
        {"tier": "direct", "depth": 4, "strip_rows": 7},
        {"scheme": "overlapped", "block": (7, 9, SHAPE[-1] - 2), "depth": 3},
    ],
    ids=str,
)
def test_every_way_to_run_it_leaves_the_same_bytes(how, wanted, tmp_path):
    result = pipeline.run(problem(), options(tmp_path / "run", **how))
    assert_same(left(result), wanted)


def test_results_are_within_the_bound_and_in_their_types(wanted):
    reference, bounds = reference_with_bound(problem())
    for name, dtype in (("u", np.float32), ("v", np.float64)):
        assert reference[name].dtype == wanted[name].dtype == dtype
        error = np.abs(wanted[name].astype(np.float64) - reference[name])
        assert np.isfinite(bounds[name]).all()
        assert (error <= 2 * bounds[name]).all()
    assert bounds["u"].max() > 1e-8  # of single precision
    assert (wanted["snapshot 0"].dtype, wanted["snapshot 1"].dtype) == (np.float32, np.float64)


def test_a_run_is_stopped_in_mid_sweep_and_resumed(wanted, tmp_path, monkeypatch):
    stop = Stop()

    def after_a_while(progress):
        if progress.sweep == 1:
            stop.request("the test")

    monkeypatch.setattr("outgrid.execute.streaming.PROGRESS_SECONDS", 0)
    streamed = {"tier": "direct", "depth": 4, "slab_planes": 2, "commit_every": 1e-6}
    with pytest.raises(Stopped):
        pipeline.run(problem(), options(tmp_path / "run", **streamed), after_a_while, stop)
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "run/scratch").glob("*.npy")}
    cells = np.prod(SHAPE)
    assert {name: nbytes - 4096 for name, nbytes in sizes.items()} == {
        "u.0.npy": 4 * cells,
        "u.1.npy": 4 * cells,
        "v.0.npy": 8 * cells,
        "v.1.npy": 8 * cells,
        "c.npy": 4 * cells,
        "solid.npy": cells,
    }
    assert_same(left(og.resume(tmp_path / "run", memory="1GiB")), wanted)


def test_a_plan_counts_the_bytes_of_each_field(tmp_path):
    streamed = options(tmp_path / "run", tier="direct", depth=3, slab_planes=2)
    chosen = pipeline.plan(problem(), streamed)
    whole = pipeline.plan(problem(dtypes={}), streamed)
    cells, sweeps = np.prod(SHAPE), 4
    assert chosen.volume.fill_bytes == (4 + 8 + 4 + 1) * cells
    assert chosen.volume.read_bytes == sweeps * chosen.volume.fill_bytes
    assert chosen.volume.written_bytes == sweeps * (4 + 8) * cells
    assert chosen.volume.disk_bytes == (2 * (4 + 8) + 4 + 1) * cells
    for found in (chosen, whole):
        pitches = {
            ring.field: found.layout.of(ring.field).pitch_bytes for ring in found.schedule.rings
        }
        assert found.memory.window_bytes == sum(
            ring.planes * pitches[ring.field] for ring in found.schedule.rings
        )
    assert chosen.memory.window_bytes < 0.6 * whole.memory.window_bytes
    heading = chosen.explain().splitlines()[0]
    assert "float64 (u in float32, c in float32, solid in uint8)" in heading
    measured = pipeline.run(problem(), streamed).record.measured
    assert (measured.read_bytes, measured.written_bytes) == (
        chosen.volume.read_bytes,
        chosen.volume.written_bytes,
    )
    assert measured.fill_written_bytes == chosen.volume.fill_bytes
    assert measured.snapshot_bytes == 3 * (4 * SHAPE[1] * SHAPE[2] + 8 * SHAPE[0] * SHAPE[2])


def test_planes_of_a_smaller_type_fit_whole_where_others_are_cut(tmp_path):
    streamed = {"tier": "direct", "depth": 3, "slab_planes": 2}
    chosen, other = (
        pipeline.plan(problem(dtypes=each), options(tmp_path / "run", **streamed))
        for each in (DTYPES, {})
    )
    assert chosen.memory.transfer_bytes == other.memory.transfer_bytes
    window = (chosen.memory.held_bytes + other.memory.held_bytes) // 2  # room for one of them
    limit = window + chosen.memory.transfer_bytes + chosen.memory.fixed_bytes
    small = {"memory": limit, **streamed}
    for dtypes, whole in ((DTYPES, True), ({}, False)):
        found = pipeline.plan(problem(dtypes=dtypes), options(tmp_path / "run", **small))
        assert (found.schedule.strips.count(found.depth) == 1) == whole
        assert (
            found.memory.held_bytes + found.memory.transfer_bytes + found.memory.fixed_bytes
            <= limit
        )


JOB = """
[problem]
stencil = "{stencil}:smoothed"
shape = [20, 31]
steps = 5
dtypes = {{image = "uint8"}}
initial = {{u = 0.0, image = "photo.npy"}}
[run]
memory = "256MiB"
"""
STENCIL = """
import outgrid as og

@og.stencil
def smoothed(u, image):
    return u + 0.1 * (image / 255 - u) + 0.1 * og.laplacian(u)
"""


@pytest.fixture
def job(tmp_path):
    (tmp_path / "rule.py").write_text(STENCIL)
    path = tmp_path / "job.toml"
    path.write_text(JOB.format(stencil="rule.py"))
    return path


def test_an_image_is_read_as_it_is(job, capsys):
    photo = np.random.default_rng(3).integers(0, 256, (20, 31), np.uint8)
    np.save(job.with_name("photo.npy"), photo)
    assert main(["run", str(job)]) == 0
    assert main(["verify", str(job.with_suffix(".run"))]) == 0
    found = np.load(job.with_suffix(".run") / "u.npy")
    u, source = np.zeros((20, 31)), photo / 255
    for _ in range(5):
        near = u[1:-1, :-2] + u[1:-1, 2:] + u[:-2, 1:-1] + u[2:, 1:-1] - 4 * u[1:-1, 1:-1]
        new = u[1:-1, 1:-1] + 0.1 * (source - u)[1:-1, 1:-1] + 0.1 * near
        u[1:-1, 1:-1] = new
    np.testing.assert_allclose(found, u, rtol=1e-13, atol=1e-15)
    capsys.readouterr()
    assert main(["show", "kernel", str(job)]) == 0
    assert "f1 = field 1, kept in uint8" in capsys.readouterr().out


@pytest.mark.parametrize("given", [np.int64, np.float32, np.int8])
def test_an_image_that_would_not_be_kept_exactly_is_refused(given, job):
    np.save(job.with_name("photo.npy"), np.zeros((20, 31), given))
    loaded = load_job(job)
    with pytest.raises(UsageError, match=rf"photo.npy holds {np.dtype(given)},.*as uint8"):
        pipeline.run(loaded.problem, loaded.options)


def test_a_type_that_no_field_has_is_refused_in_a_job(job, capsys):
    job.write_text(job.read_text().replace('image = "uint8"', 'image = "uint9"'))
    assert main(["plan", str(job)]) != 0
    assert "did you mean 'uint8'" in capsys.readouterr().err
