"""All of the language in one problem, shared by ranks: the bytes of one process."""

import random
from typing import Any

import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
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


@pytest.mark.parametrize(("kind", "count", "given"), CASES, ids=str)
def test_ranks_leave_the_bytes_of_one(kind, count, given, tmp_path):
    problem = posed(BOUNDARIES[kind])
    alone = pipeline.run(problem, options(tmp_path / "alone", scheme="plain", depth=None))
    shared = options(tmp_path / "shared", **given)
    made = in_threads(
        lambda comm: pipeline.run(problem, shared, comm=comm), count, random.Random(count)
    )[0]
    assert bytes_of(made) == bytes_of(alone)


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
