"""Snapshots hold what the plain run has after each step, however the steps are computed."""

import errno
import os

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.definition import stencil
from outgrid.errors import DefinitionError, StoreError, UsageError
from outgrid.job import load_job
from outgrid.observe import snapshots as files
from outgrid.runs.verify import verify
from outgrid.stencil.points import Source
from outgrid.stencil.problem import Problem
from outgrid.stencil.snapshot import Snapshot
from outgrid.storage import outlet

STEPS = 9
AXES = "zyx"


@stencil
def staggered(p, v, *, k):
    """Two stages: velocity from pressure, pressure from velocity."""
    return [
        {"v": v - k * (p[1, 0, 0] - p + p[0, 1, 1] - p)},
        {"p": p - k * (v - v[-1, 0, 0] + v - v[0, -1, -1])},
    ]


def staggered_problem(**given):
    given |= {"initial": {"p": "x / nx + z", "v": "y / ny"}}
    drive = [Source("p", (5.5, 4, 9), 0.5)]
    return Problem(staggered, (22, 12, 19), "float32", STEPS, {"k": 0.2}, sources=drive, **given)


def wave(**given):
    initial = {"u": "sin(x) + y * z", "c": 0.1}
    return Problem("wave:4", (24, 22, 17), "float64", STEPS, initial=initial, **given)


def flat(**given):
    return Problem("heat5", (40, 50), "float64", STEPS, initial={"u": "sin(x * y)"}, **given)


def ring(**given):
    return staggered_problem(boundary={"z": "periodic", "x": "neumann"}, **given)


BLOCKS = {"wave": (9, 8, 13), "flat": (7, 48)}
PROBLEMS = {"staggered": staggered_problem, "wave": wave, "flat": flat, "ring": ring}


def run(problem, out, **options):
    given = {"memory": "512MiB", "threads": 2, "tier": "direct"} | options
    return pipeline.run(problem, RunOptions.of(out=out, **given))


class States(dict):
    """The values of each problem after each step. Too much to be shown."""

    def __repr__(self):
        return "States()"


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The values of each problem after each step, of plain runs of so many steps."""
    found = States()
    for name, make in PROBLEMS.items():
        whole = make()
        states = []
        for steps in range(1, STEPS + 1):
            problem = Problem.from_dict(whole.to_dict() | {"steps": steps})
            out = tmp_path_factory.mktemp("plain") / "out"
            result = run(problem, out, scheme="plain", tier="memory")
            evolving = [field.name for field in whole.stencil.evolving]
            states.append({field: np.array(result[field]) for field in evolving})
        found[name] = states
    return found


def wanted(states, snapshot, shape):
    """What a snapshot has to hold, by indexing whole fields."""
    at = []
    for axis in AXES[-len(shape) :]:
        given = getattr(snapshot, axis)
        if isinstance(given, str):
            low, high, step = (int(part) if part else None for part in f"{given}:".split(":")[:3])
            given = slice(low, high, step or snapshot.stride)
        at.append(slice(None, None, snapshot.stride) if given is None else given)
    steps = [s for s in range(1, STEPS + 1) if s >= snapshot.first]
    steps = [s for s in steps if (s - snapshot.first) % snapshot.every == 0]
    frames = [states[step - 1][snapshot.field][tuple(at)] for step in steps]
    empty = states[0][snapshot.field][tuple(at)]
    return np.array(frames).reshape(len(frames), *empty.shape)


def compare(result, problem, states):
    assert len(result.snapshots) == len(problem.snapshots)
    for found, snapshot in zip(result.snapshots, problem.snapshots, strict=True):
        right = wanted(states, snapshot, problem.shape)
        assert found.dtype == np.dtype(problem.dtype)
        assert found.shape == right.shape
        assert found.tobytes() == right.tobytes()


@st.composite
def selections(draw, shape):
    """Along each axis nothing, an index or a slice."""
    found = {}
    for axis, extent in zip(AXES[-len(shape) :], shape, strict=True):
        low = draw(st.integers(0, extent - 1))
        high = draw(st.integers(low + 1, extent))
        step = draw(st.sampled_from([None, 1, 2, 5]))
        kinds = [None, low, low - extent, slice(low, high, step), slice(low - extent, None, step)]
        found[axis] = draw(st.sampled_from(kinds))
    return found


@st.composite
def cases(draw):
    name = draw(st.sampled_from(sorted(PROBLEMS)))
    make = PROBLEMS[name]
    shape, evolving = make().shape, [field.name for field in make().stencil.evolving]
    kept = [
        Snapshot(
            draw(st.sampled_from(evolving)),
            every=draw(st.integers(1, 5)),
            first=draw(st.sampled_from([None, 1, 2, 7, 30])),
            stride=draw(st.integers(1, 4)),
            **draw(selections(shape)),
        )
        for _ in range(draw(st.integers(1, 3)))
    ]
    options = draw(
        st.fixed_dictionaries(
            {"depth": st.integers(1, STEPS), "slab_planes": st.integers(1, 6)},
            optional={"tile_rows": st.integers(1, 12), "tile_planes": st.integers(1, 4)},
        )
    )
    kinds = [{}, {"tier": "memory"}, {"tier": "mmap", "in_place": True}, {"scheme": "plain"}]
    if name in BLOCKS:
        kinds += [{"scheme": "overlapped"}]
    if name == "wave":
        kinds += [{"strip_rows": 9, "depth": min(4, options["depth"])}]
    return name, make(snapshots=kept), options | draw(st.sampled_from(kinds))


@settings(max_examples=settings.default.max_examples // 2, phases=[Phase.generate])
@given(case=cases())
def test_snapshots_are_those_of_the_plain_run(case, plain, tmp_path_factory):
    name, problem, options = case
    if options.get("scheme") in ("plain", "overlapped"):
        options = {key: options[key] for key in options if key != "slab_planes"}
    if options.get("scheme") == "overlapped":
        options |= {"depth": min(3, options["depth"]), "block": BLOCKS[name]}
    if options.get("scheme") == "plain":
        options.pop("depth")
    out = tmp_path_factory.mktemp("run") / "out"
    result = run(problem, out, **options)
    compare(result, problem, plain[name])
    for field, values in plain[name][-1].items():
        assert result[field].tobytes() == values.tobytes()
    assert not list(out.glob("*.new"))


EVERYWHERE = [Snapshot("p", every=2), Snapshot("v", first=1, every=3, z="::3", x=4)]


@pytest.mark.parametrize("name", ["staggered", "ring"])
@pytest.mark.parametrize("stop", [3, 17, 30])
def test_snapshots_go_on_where_a_run_was_cut_off(
    name, stop, plain, tmp_path, cut_off, sums_of_others
):
    problem = PROBLEMS[name](snapshots=EVERYWHERE)
    out = tmp_path / "cut"
    cut_off(stop, lambda: run(problem, out, depth=4, slab_planes=2, commit_every=1e-6))
    assert not (out / "snapshot.0.npy").exists()
    assert sums_of_others(out) == len(EVERYWHERE)
    found = pipeline.resume(out, RunOptions.of(memory="512MiB", depth=2, tier="direct"))
    compare(found, problem, plain[name])
    assert found.record.measured.snapshot_bytes == problem.snapshot_bytes
    assert not list(out.glob("*.new"))
    assert not verify(out).errors


def test_what_cannot_be_written_is_told(tmp_path, monkeypatch):
    problem = wave(snapshots=[Snapshot("u")])
    opened = outlet.own

    def readable(path, flags):
        return opened(path, os.O_RDONLY)

    monkeypatch.setattr(outlet, "own", readable)
    with pytest.raises(StoreError, match="cannot write a snapshot") as caught:
        run(problem, tmp_path / "out")
    assert caught.value.errno == errno.EBADF
    assert caught.value.path == tmp_path / "out" / "snapshot.0.npy.new"


def test_snapshots_are_counted_and_overwrite_nothing(tmp_path):
    problem = wave(snapshots=[Snapshot("u", every=3, z=4), Snapshot("u", stride=2, first=10)])
    assert problem.snapshot_bytes == 3 * 22 * 17 * 8
    out = tmp_path / "out"
    options = RunOptions.of(memory="512MiB", out=out)
    chosen = pipeline.plan(problem, options)
    assert chosen.volume.snapshot_bytes == problem.snapshot_bytes
    assert "snapshots" in chosen.explain()
    out.mkdir()
    (out / "snapshot.1.npy").write_bytes(b"mine")
    with pytest.raises(UsageError, match=r"snapshot\.1\.npy exists"):
        run(problem, out)
    assert (out / "snapshot.1.npy").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"every": 0}, ["not 0", "above 0"]),
        ({"every": 2.5}, ["not 2.5"]),
        ({"first": -1}, ["not -1"]),
        ({"z": 24}, ["not 24", "0..23"]),
        ({"z": "9:3"}, ["'9:3'", "0..23"]),
        ({"z": "::-1"}, ["step"]),
        ({"y": "all"}, ["'all'", "'10:90:2'"]),
        ({"y": 0.5}, ["0.5"]),
        ({"z": "9" * 5000 + ":"}, ["must be an index"]),
        ({"field": "c"}, ["never updated"]),
        ({"field": "q"}, ["no field 'q'"]),
        ({"stride": True}, ["stride"]),
        ({"evry": 3}, ["evry", "every"]),
    ],
)
def test_a_snapshot_that_means_nothing_is_refused(wrong, words):
    with pytest.raises(DefinitionError) as caught:
        wave(snapshots=[{"field": "u"} | wrong])
    assert all(word in str(caught.value) for word in words)


def test_snapshots_of_axes_that_are_not_there_and_too_many_are_refused():
    with pytest.raises(DefinitionError, match="z of a grid with the axes y, x"):
        flat(snapshots=[Snapshot("u", z=1)])
    with pytest.raises(DefinitionError, match="at most 64"):
        flat(snapshots=[Snapshot("u")] * 65)
    with pytest.raises(DefinitionError, match="64 bits"):
        Problem("heat5", (40, 50), steps=10**18, initial={"u": 0}, snapshots=[Snapshot("u")])
    with pytest.raises(DefinitionError, match="needs the entry 'field'"):
        flat(snapshots=[{"every": 3}])


def test_a_file_of_snapshots_that_is_another_is_refused(tmp_path):
    problem = wave(snapshots=[Snapshot("u", z=3)])
    files.reserve(tmp_path, problem)
    files.SnapshotTable.open(tmp_path, problem, 4, 0).outlet.close()
    with pytest.raises(StoreError, match="shape"):
        files.SnapshotTable.open(tmp_path, wave(snapshots=[Snapshot("u", z=3, every=2)]), 4, 0)
    (tmp_path / "snapshot.0.npy.new").unlink()
    with pytest.raises(StoreError, match="cannot"):
        files.SnapshotTable.open(tmp_path, problem, 4, 0)


def test_a_job_has_snapshots(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(
        """
[problem]
stencil = "heat7"
shape = [12, 13, 14]
steps = 7
initial = { u = "x" }
[[problem.snapshots]]
field = "u"
every = 2
z = 6
x = "2:12"
stride = 3
"""
    )
    (found,) = load_job(path).problem.snapshots
    assert found == Snapshot("u", every=2, z=6, x=slice(2, 12), stride=3)
    assert found.shape((12, 13, 14), 7) == (3, 5, 4)
    path.write_text(path.read_text().replace("z = 6", "z = [1, 2]"))
    with pytest.raises(UsageError, match=r"problem\.snapshots\[0\]\.z"):
        load_job(path)
