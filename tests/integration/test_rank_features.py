"""All of the language in one problem, shared by ranks: the bytes of one process."""

import random
import threading
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.build.compiler import vector_bytes
from outgrid.config import RunOptions
from outgrid.errors import UsageError
from outgrid.observe.snapshots import Snapshots
from outgrid.runs.verify import verify
from outgrid.testing.threads import in_threads

SHAPE, STEPS = (48, 13, 40), 8


@og.stencil
def everything(u, m, *, k, fastest):
    """A temporary, a field of a region, random numbers, and a reduction that feeds later steps."""
    half = og.temporary(u + k / og.maximum(fastest, 1.0) * og.laplacian(u), name="half")
    kick = 0.01 * (og.random(3) - 0.5)
    return {
        "u": half + 0.05 * og.laplacian(half) + 0.1 * m[1, 0, 0] + kick,
        "m": 0.9 * m + 0.1 * og.backward(half, "y"),
        "speed": og.max(og.absolute(u)),
        "heat": og.sum(u),
    }


def posed(boundary: Any) -> og.Problem:
    return og.Problem(
        everything,
        SHAPE,
        "float32",
        STEPS,
        {"k": 0.1, "fastest": og.Lagged("speed", lag=3, first=1.0)},
        boundary,
        {"u": "random(1) + sin(z / 5)", "m": 0.0},
        regions={"m": [og.Box(z=(10, 22), y=(2, 9)), og.Box(x=(0, 3))]},
        snapshots=[og.Snapshot("u", every=3, y=5)],
    )


def bytes_of(result):
    kept = [np.asarray(result["u"]), np.asarray(result["m"]), *result.snapshots]
    kept += [result.reductions[name] for name in ("speed", "heat")]
    return [np.ascontiguousarray(array).tobytes() for array in kept]


def options(out, **given):
    usual = {"memory": "1GiB", "threads": 1, "tier": "direct", "slab_planes": 2, "depth": 2}
    return RunOptions.of(**usual | {"out": out} | given)


BOUNDARIES = {
    "open": {"z": "neumann", "y": "mirror", "x": "periodic"},
    "closed": {"z": "periodic", "y": "neumann", "x": "dirichlet"},
}
CASES = [
    ("open", 2, {"exchange": "seams"}),
    ("open", 3, {"exchange": "halos"}),
    ("open", 4, {"row_cuts": [6]}),
    ("open", 2, {"scheme": "overlapped", "slab_planes": None, "block": [9, 6, 40]}),
    ("closed", 2, {}),
    ("closed", 3, {"scheme": "plain", "depth": None}),
    ("closed", 2, {"scheme": "overlapped", "slab_planes": None, "block": [9, 6, 38]}),
]


FOLDED = [
    ("frozen", 2, {"exchange": "seams"}),
    ("frozen", 3, {"exchange": "halos", "depth": 3}),
    ("mirror", 2, {"tile_rows": 8}),
    ("periodic", 2, {}),
]


@pytest.mark.parametrize(("kind", "count", "given"), CASES, ids=str)
def test_ranks_leave_the_bytes_of_one(kind, count, given, tmp_path):
    problem = posed(BOUNDARIES[kind])
    alone = pipeline.run(problem, options(tmp_path / "alone", scheme="plain", depth=None))
    shared = options(tmp_path / "shared", **given)
    made = in_threads(
        lambda comm: pipeline.run(problem, shared, comm=comm), count, random.Random(count)
    )[0]
    assert bytes_of(made) == bytes_of(alone)


def folding(rule, shape, along, steps):
    """A wave whose rows can be folded."""
    begins, speeds = np.random.default_rng(steps).random((2, *shape)).astype("f4")
    return og.Problem(
        rule,
        shape,
        "float32",
        steps,
        boundary={"z": along, "y": "frozen", "x": "frozen"},
        initial={"u": begins, "c": 0.1 * speeds},
        snapshots=[og.Snapshot("u", every=3, y="2::5")],
        receivers=[og.Receiver("u", tuple(n / 2 for n in shape))],
    )


def bytes_of_wave(result):
    kept = [np.asarray(result[name]) for name in ("u", "u.previous")]
    return [array.tobytes() for array in (*kept, result.snapshots[0][:], result.traces)]


UNFOLDED = {"scheme": "plain", "depth": None, "slab_planes": None, "fold": "never"}
wide = pytest.mark.skipif(not vector_bytes(), reason="vectors have less than 32 bytes")


@wide
@pytest.mark.parametrize("rule", ["wave:8", "wave:4"])
@pytest.mark.parametrize("shape", [(70, 24, 32), (67, 19, 29)])
@pytest.mark.parametrize(("along", "count", "given"), FOLDED, ids=str)
def test_ranks_fold_rows_where_they_share_no_planes(rule, shape, along, count, given, tmp_path):
    problem = folding(rule, shape, along, 7)
    alone = pipeline.run(problem, options(tmp_path / "alone", **UNFOLDED))
    shared = options(tmp_path / "shared", fold="always", **given)
    made = in_threads(
        lambda comm: pipeline.run(problem, shared, comm=comm), count, random.Random(count)
    )[0]
    assert made.record.plan.folded is not None
    assert bytes_of_wave(made) == bytes_of_wave(alone)


@wide
@pytest.mark.parametrize("along", ["frozen", "periodic"])
@pytest.mark.parametrize("advances", [40, 90])
def test_ranks_that_fold_rows_go_on(along, advances, tmp_path, cut_off):
    problem = folding("wave:8", (67, 19, 29), along, 8)
    alone = pipeline.run(problem, options(tmp_path / "alone", **UNFOLDED))
    shared = options(tmp_path / "shared", fold="always")

    def on_ranks(act: Any) -> Any:
        return in_threads(lambda comm: act(comm), 2, random.Random(1))[0]

    cut_off(advances, lambda: on_ranks(lambda comm: pipeline.run(problem, shared, comm=comm)))
    made = on_ranks(lambda comm: pipeline.resume(tmp_path / "shared", shared, comm=comm))
    assert made.record.plan.folded is not None
    assert bytes_of_wave(made) == bytes_of_wave(alone)


def test_rows_of_planes_that_ranks_share_are_not_folded(tmp_path):
    problem = og.Problem("wave:8", (40, 40, 32), "float32", 4, initial={"u": 0.0, "c": 0.1})
    for fold in ("auto", "always"):
        shared = options(tmp_path / fold, fold=fold, row_cuts=[16])

        def on_ranks(shared: RunOptions = shared) -> Any:
            return in_threads(
                lambda comm: pipeline.run(problem, shared, comm=comm), 2, random.Random(2)
            )[0]

        if fold == "auto":
            assert on_ranks().record.plan.folded is None
        else:
            with pytest.raises(UsageError, match="ranks that share planes"):
                on_ranks()


@pytest.mark.parametrize("kind", [*BOUNDARIES])
@pytest.mark.parametrize("advances", [30, 75])
def test_ranks_that_were_cut_off_go_on(kind, advances, tmp_path, cut_off):
    problem = posed(BOUNDARIES[kind])
    alone = pipeline.run(problem, options(tmp_path / "alone", scheme="plain", depth=None))
    shared = options(tmp_path / "shared")

    def on_ranks(act: Any) -> Any:
        return in_threads(lambda comm: act(comm), 2, random.Random(1))[0]

    cut_off(advances, lambda: on_ranks(lambda comm: pipeline.run(problem, shared, comm=comm)))
    made = on_ranks(lambda comm: pipeline.resume(tmp_path / "shared", shared, comm=comm))
    assert bytes_of(made) == bytes_of(alone)


@pytest.fixture
def committing(monkeypatch):
    """``with committing(late, killed, at):`` ranks that are ``late`` commit a state after all
    others, and one is killed when it is to commit the first state of at least so many steps."""
    commit = Snapshots.commit

    @contextmanager
    def context(late, killed, at):
        steps, changed = {}, threading.Condition()

        def tell(rank, reached):
            with changed:
                steps[rank] = reached
                changed.notify_all()

        def when_it_may(self, reached, manifest):
            rank, others = self.run.comm.rank, {*range(self.run.comm.size)} - late
            if rank in late:
                with changed:  # not for ever: they may wait for messages of this one
                    changed.wait_for(
                        lambda: all(steps.get(one, -1) >= reached.steps for one in others), 0.2
                    )
            if rank == killed and reached.steps >= at:
                tell(rank, STEPS_OF_FRAMES)
                raise RuntimeError("killed")
            manifest = commit(self, reached, manifest)
            tell(rank, reached.steps)
            return manifest

        with monkeypatch.context() as patch:
            patch.setattr(Snapshots, "commit", when_it_may)
            with pytest.raises(RuntimeError, match="killed"):
                yield

    return context


STEPS_OF_FRAMES = 24
FRAMES = [
    og.Snapshot("e", every=5, y=4),
    og.Snapshot("h", first=2, every=3, stride=3),
    og.Snapshot("e"),
]


@og.stencil
def two_stages(e, h, *, k):
    """Their faces at a cut lie at different planes."""
    return [
        {"h": h + k * (e[1, 0, 0] - e + e[0, 1, 0] - e[0, 0, 1])},
        {"e": e + k * (h - h[-2, 0, 0] + h[0, -1, 0] - h[0, 0, -1])},
    ]


@pytest.mark.parametrize(
    ("count", "late", "killed", "more"),
    [
        (2, {1}, 1, 2),
        (2, {0}, 0, 3),
        (3, {1}, 0, 2),
        (3, {1}, 1, 3),
        (3, {0, 2}, 1, 4),
    ],
    ids=str,
)
def test_frames_are_summed_by_who_makes_them(
    count, late, killed, more, tmp_path, committing, sums_of_others
):
    """Whichever ranks are slow, and where one is killed before all have committed a state."""
    initial = {"e": "random(1)", "h": "random(2)"}
    given = {"initial": initial, "snapshots": FRAMES}
    problem = og.Problem(two_stages, (72, 10, 12), "float32", STEPS_OF_FRAMES, {"k": 0.1}, **given)
    alone = pipeline.run(problem, options(tmp_path / "alone", scheme="plain", depth=None))
    out = tmp_path / "shared"
    shared = options(out, exchange="seams", depth=3)

    def on_ranks(act: Any, ranks: int) -> Any:
        return in_threads(lambda comm: act(comm), ranks, random.Random(ranks))[0]

    def resumed(comm: Any) -> Any:
        return pipeline.resume(out, shared, comm=comm)

    with committing(late, killed, at=9):
        on_ranks(lambda comm: pipeline.run(problem, shared, comm=comm), count)
    found = verify(out)
    assert found.steps in (6, 9)
    assert not found.errors
    sums_of_others(out)
    with committing(late, min(killed, more - 1), at=18):
        on_ranks(resumed, more)
    found = verify(out)
    assert found.steps in (15, 18)
    assert not found.errors
    made = on_ranks(resumed, more)
    assert not verify(out).errors
    for name in "eh":
        assert np.array_equal(made[name], alone[name])
    for mine, theirs in zip(made.snapshots, alone.snapshots, strict=True):
        assert np.array_equal(mine, theirs)
