"""Grids that are periodic along their first axis, shared by a ring of ranks."""

import random

import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import ExecutionError, InfeasiblePlan, UsageError
from outgrid.stencil.problem import Problem
from outgrid.testing.threads import in_threads

SHAPE, STEPS = (48, 11, 18), 8


@og.stencil
def drift(u, c, *, k):
    """What spreads and drifts, farther one way than the other, with a temporary and sums."""
    half = og.temporary(u + k.along("z") * c * (u[-1, 0, 0] - u) / 2)
    new = u + 0.1 * og.laplacian(half) - 0.05 * (half - half[-2, 0, 1])
    return {"u": new, "heat": og.sum(u), "most": og.max(u * og.index("z"))}


def problem(boundary="periodic", **given):
    values = np.random.default_rng(3).random(SHAPE)
    signal = np.sin(np.arange(STEPS))
    return Problem(
        drift,
        SHAPE,
        "float64",
        STEPS,
        {"k": "0.1 + z / 100"},
        boundary,
        {"u": values, "c": "1 + cos(2 * pi * z / nz)"},
        sources=[og.Source("u", (z, 3, 5), signal) for z in (0, 14, 46.5)],
        receivers=[og.Receiver("u", (z, 4.5, 6)) for z in (0, 9, 24, 47)],
        snapshots=[og.Snapshot("u", every=3, y=2), og.Snapshot("u", every=4, stride=3)],
        **given,
    )


def options(out, **given):
    usual = {"memory": "512MiB", "threads": 1, "tier": "direct", "slab_planes": 2, "out": out}
    return RunOptions.of(**usual | given)


def on_ranks(count, posed, given, act=pipeline.run):
    return in_threads(lambda comm: act(posed, given, comm=comm), count, random.Random(count))[0]


def bytes_of(result):
    kept = [np.asarray(result["u"]), result.traces, *result.snapshots]
    kept += [result.reductions[name] for name in ("heat", "most")]
    return [np.ascontiguousarray(array).tobytes() for array in kept]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    out = tmp_path_factory.mktemp("rings") / "plain"
    return bytes_of(pipeline.run(problem(), options(out, scheme="plain", tier="memory")))


@pytest.mark.parametrize(
    ("count", "given"),
    [
        (2, {"depth": 2}),
        (3, {"depth": 3, "tier": "mmap"}),
        (3, {"scheme": "plain"}),
        (5, {"depth": 4, "threads": 2}),
        (2, {"scheme": "overlapped", "block": [7, 5, 18], "depth": 2, "slab_planes": None}),
        (3, {"scheme": "overlapped", "block": [20, 11, 18], "depth": 3, "slab_planes": None}),
    ],
)
def test_a_ring_of_ranks_leaves_the_bytes_of_one(count, given, plain, tmp_path):
    found = on_ranks(count, problem(), options(tmp_path / "run", **given))
    assert bytes_of(found) == plain
    assert found.record.fields == {"u": "rank.*/u.npy"}
    assert len(list(tmp_path.glob(f"run/{found.record.fields['u']}"))) == count
    for rank in found.record.ranks:
        for name in ("read_bytes", "written_bytes", "sent_bytes", "received_bytes"):
            assert getattr(rank.measured, name) == rank.planned[name], name


def test_uneven_cuts_and_cut_rows(tmp_path):
    posed = problem({"z": "periodic", "y": "neumann", "x": "periodic"})
    wanted = pipeline.run(posed, options(tmp_path / "plain", scheme="plain", tier="memory"))
    uneven = on_ranks(3, posed, options(tmp_path / "uneven", depth=2, cuts=[4, 25]))
    assert bytes_of(uneven) == bytes_of(wanted)
    rows = on_ranks(4, posed, options(tmp_path / "rows", depth=2, row_cuts=[5]))
    assert bytes_of(rows) == bytes_of(wanted)


@pytest.mark.parametrize("advances", [30, 75])
@pytest.mark.parametrize("others", [2, 3, 1])
def test_a_ring_that_was_cut_off_goes_on(advances, others, plain, tmp_path, cut_off):
    given = options(tmp_path / "run", depth=2)
    cut_off(advances, lambda: on_ranks(3, problem(), given))
    if others == 1:
        found = pipeline.resume(tmp_path / "run", given)
    else:
        found = on_ranks(others, tmp_path / "run", given, pipeline.resume)
    assert bytes_of(found) == plain


def test_the_cell_that_is_not_finite_first_is_found(tmp_path):
    spike = "(z == 47) * (y == 3) * (x == 5) * 5e307"
    posed = problem().replace(initial={"u": spike, "c": 1.0}, receivers=[], snapshots=[])
    with pytest.raises(ExecutionError, match=r"step 1 of 8, first in cell .* = \(47, 3, 5\)"):
        on_ranks(3, posed, options(tmp_path / "run", depth=3))


def test_what_does_not_fit_says_so(tmp_path):
    with pytest.raises(UsageError, match="a first axis that is not periodic"):
        on_ranks(2, problem(), options(tmp_path / "run", exchange="seams"))
    with pytest.raises(InfeasiblePlan, match=r"more than the 48 .* depth 3 fits, or more ranks"):
        on_ranks(2, problem(), options(tmp_path / "run", depth=6))
