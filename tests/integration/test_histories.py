"""Histories keep states rounded once, in any run, and another problem reads them back."""

import numpy as np
import pytest

import outgrid as og
from outgrid.errors import DefinitionError, UsageError
from outgrid.stencil.dtypes import KINDS

STEPS = 9
SHAPE = (22, 14, 19)


def wave(dtype="float32", **given):
    initial = {"u": "sin(x) * 3 + y * z / 7", "c": 0.1}
    return og.Problem("wave:4", SHAPE, dtype, steps=STEPS, initial=initial, **given)


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """The states of the wave after each step, of a plain run that keeps all of them as they are."""
    found = {}
    for dtype in ("float32", "float64"):
        out = tmp_path_factory.mktemp("plain") / "out"
        problem = wave(dtype, snapshots=[og.Snapshot("u")])
        result = og.run(problem, memory="512MiB", scheme="plain", tier="memory", out=out)
        found[dtype] = np.array(result.snapshots["u"])
    return found


RUNS = {
    "deep": {"depth": 3, "slab_planes": 2, "tier": "direct"},
    "plain": {"scheme": "plain"},
    "strips": {"depth": 2, "strip_rows": 5, "tier": "direct"},
    "blocks": {"scheme": "overlapped", "depth": 2, "tier": "direct"},
}


@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_history_is_the_states_rounded_once(dtype, options, states, tmp_path):
    right = states[dtype]
    box = og.Box(z=(3, 20), x=slice(2, 17))
    kept = [
        og.History("u", every=4, dtype="float16"),
        og.History("u", every=2, dtype="float32", region=box),
        og.Snapshot("u", first=3, every=5, dtype="float16", x="1::3"),
        og.History("u", every=3, dtype="bfloat16"),
    ]
    result = og.run(wave(dtype, snapshots=kept), out=tmp_path / "out", **options)
    wanted = [
        right[3::4].astype("float16"),
        right[1::2, 3:20, :, 2:17].astype("float32"),
        right[2::5, ..., 1::3].astype("float16"),
        right[2::3].astype("bfloat16"),
    ]
    for found, values in zip(result.snapshots, wanted, strict=True):
        assert found.dtype == values.dtype
        assert found.shape == values.shape
        assert found.tobytes() == values.tobytes()


@pytest.mark.parametrize("stop", [5, 17])
def test_a_history_of_halves_goes_on_where_a_run_was_cut_off(stop, states, tmp_path, cut_off):
    out, kept = tmp_path / "out", [og.History("u", every=2, dtype="float16")]
    given = {"memory": "512MiB", "tier": "direct"}
    often = {"depth": 4, "slab_planes": 2, "commit_every": 1e-6, **given}
    cut_off(stop, lambda: og.run(wave(snapshots=kept), out=out, **often))
    assert not (out / "snapshot.0.npy").exists()
    result = og.resume(out, depth=2, **given)
    right = states["float32"][1::2].astype("float16")
    assert result.snapshots[0].tobytes() == right.tobytes()


def test_the_reference_executor_keeps_the_same(tmp_path, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("OUTGRID_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("outgrid.build.compiler._by_pip", list)
    kept = [og.Snapshot("u"), og.History("u", every=4, dtype="float16")]
    result = og.run(wave(snapshots=kept), out=tmp_path / "out", depth=2, tier="direct")
    every, some = map(np.array, result.snapshots)
    assert some.tobytes() == every[3::4].astype("float16").tobytes()


def test_doubles_between_two_halves_are_rounded_once(tmp_path):
    """A double next to the middle of two halves, which a float would be rounded to."""
    middle = 1 + 2.0**-11
    values = [middle, middle + 2.0**-40, middle - 2.0**-40, -middle - 2.0**-40, 2.0**-25 + 2.0**-60]
    values += [65519.99999999, 65520.0, 1e300, -1e300, 1e-300, 0.0, -0.0, 6e-8, 1 / 3]
    given = np.broadcast_to(np.array(values), (4, len(values))).copy()

    @og.stencil
    def same(u):
        return 1.0 * u

    problem = og.Problem(same, given.shape, "float64", steps=1, initial={"u": given})
    keep = og.History("u", dtype="float16")
    result = og.run(problem.replace(snapshots=[keep]), out=tmp_path / "out")
    with np.errstate(over="ignore"):
        right = given.astype("float16")
    assert np.array(result.snapshots["u"])[0].tobytes() == right.tobytes()


def test_doubles_between_two_numbers_of_bfloat16_are_rounded_once(tmp_path):
    """Of two numbers side by side the nearer one, in whole-number arithmetic on the doubles."""
    middle = 1 + 2.0**-8
    values = [middle, middle + 2.0**-40, middle - 2.0**-40, -middle - 2.0**-40, 3 * middle, 1 / 3]
    wanted = [1.0, 1 + 2.0**-7, 1.0, -1 - 2.0**-7, 3.015625, 0.333984375]
    given = np.broadcast_to(np.array(values), (4, len(values))).copy()

    @og.stencil
    def same(u):
        return u + 0.0

    kept = [og.History("u", dtype="bfloat16")]
    problem = og.Problem(same, given.shape, steps=1, initial={"u": given}, snapshots=kept)
    found = np.array(og.run(problem, out=tmp_path / "out").snapshots["u"])[0]
    assert found.astype("float64").tolist() == [wanted] * 4


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("kept_as", ["float16", "bfloat16"])
def test_another_problem_reads_a_history_in_reverse(kept_as, depth, states, tmp_path):
    kept = [og.History("u", every=2, dtype=kept_as, region=og.Box(y=(2, 12)))]
    run = og.run(wave(snapshots=kept), out=tmp_path / "forward", depth=4, tier="direct")

    @og.stencil
    def gather(total, state, *, weight):
        return {"total": total + weight * state}

    series = run.history("u", reverse=True)
    problem = og.Problem(
        gather,
        (22, 10, 19),
        "float32",
        steps=4,
        parameters={"weight": [1.0, 0.5, 0.25, 3.0]},
        initial={"total": 0.0, "state": series},
        dtypes={"state": kept_as},
    )
    found = np.array(og.run(problem, out=tmp_path / "back", depth=depth, tier="direct")["total"])
    right = np.array(og.run(problem, out=tmp_path / "plain", scheme="plain")["total"])
    assert found.tobytes() == right.tobytes()
    frames = states["float32"][1::2, :, 2:12].astype(kept_as).astype("float64")
    sums = sum(w * f for w, f in zip([1.0, 0.5, 0.25, 3.0], frames[::-1], strict=True))
    assert np.abs(found - sums).max() <= 8 * 2.0**-24 * np.abs(sums).max()


def test_plans_count_the_bytes_that_are_kept():
    one = og.plan(wave(snapshots=[og.History("u", every=4, dtype="float16")]))
    assert one.volume.snapshot_bytes == 2 * 2 * np.prod(SHAPE)
    assert "dtype" not in wave(snapshots=[og.History("u")]).to_dict()["snapshots"][0]
    assert [KINDS[name] for name in ("float32", "float64", "float16")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dtype": "float64"}, "dtype = 'float64' of a snapshot"),
        ({"dtype": "half"}, None),
        ({"region": og.Shell(3)}, "must be one Box"),
        ({"every": 0}, "every of a snapshot must be a whole number above 0, not 0"),
        ({"region": og.Box(y=(3, 3))}, "must select some of the indices"),
    ],
)
def test_histories_that_cannot_be_kept_are_refused(given, words):
    if words is None:
        assert wave(snapshots=[og.History("u", **given)]).snapshots[0].dtype == "float16"
        return
    with pytest.raises(DefinitionError, match=words):
        wave(snapshots=[og.History("u", **given)])


def test_a_longer_type_than_that_of_the_field_is_refused():
    with pytest.raises(DefinitionError, match="keeps float32, and the field is float16"):
        wave(dtypes={"u": "float16"}, snapshots=[og.History("u", dtype="float32")])
    life = og.Problem("heat5", (9, 9), "float32", dtypes={"u": "int8"}, steps=1, initial={"u": 1.0})
    with pytest.raises(DefinitionError, match="holds whole numbers"):
        life.replace(snapshots=[og.History("u", dtype="float16")])


def test_a_history_that_is_not_there_is_refused(tmp_path):
    two = [og.History("u"), og.Snapshot("u", z=3)]
    result = og.run(wave(snapshots=two), out=tmp_path / "out")
    with pytest.raises(UsageError, match="2 files of snapshots of 'u'"):
        result.history("u")
    late = og.run(wave(snapshots=[og.History("u", every=99)]), out=tmp_path / "late")
    with pytest.raises(UsageError, match="holds no frame"):
        late.history("u")
