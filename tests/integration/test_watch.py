"""A run that turns into NaN or infinity ends: it says where that began, and keeps what was good."""

import re
from functools import partial

import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import ExecutionError
from outgrid.runs import ledger
from outgrid.runs.manifest import how_far
from outgrid.runs.state import RunFolder
from outgrid.stencil.problem import Problem
from outgrid.testing.reference import run_reference

SHAPE = (26, 14, 37)
STEPS = 12


@og.stencil(ndim=3)
def squares(u, v, c):
    """Powers of two, exact in any order; what is infinite is NaN around it one step later."""
    return {
        "u": u * u + 0.0 * og.laplacian(u),
        "v": v + c * (v - v.previous) + 0.0 * og.laplacian(u),
    }


@og.stencil(ndim=2)
def roots(u, w):
    """The second stage is spoilt in the same step, in a cell that comes before."""
    return [{"u": og.sqrt(u - 1) + 0.0 * og.laplacian(u)}, {"w": w + 0.0 * u[0, 1]}]


def squaring(boundary="dirichlet", cells=((13, 7, 20), (13, 7, 19), (14, 2, 3))):
    u = np.full(SHAPE, 0.5, np.float32)
    for cell in cells:
        u[cell] = 2.0
    return Problem(squares, SHAPE, "float32", STEPS, {}, boundary, {"u": u, "v": 1.0, "c": 0.25})


def rooting():
    u = np.full((60, 150), 26.0)
    u[31, 67] = u[31, 80] = u[40, 2] = 5.0
    return Problem(roots, (60, 150), "float64", STEPS, {}, "mirror", {"u": u, "w": 0.5})


def origin(problem: Problem) -> tuple[int, tuple[int, ...], str]:
    """Step, cell and field of the first value that is not finite, by plain NumPy."""
    found = []

    def seen(state) -> None:
        seen.step += 1
        for name in (field.name for field in problem.stencil.evolving):
            odd = np.argwhere(~np.isfinite(state[name]))
            if len(odd) and not found:
                found.append((seen.step, tuple(odd[0].tolist()), name))

    seen.step = 0
    with np.errstate(all="ignore"):
        run_reference(problem, seen=seen)
    return found[0]


def where(error: pytest.ExceptionInfo[ExecutionError]) -> tuple[int, tuple[int, ...], str]:
    words = r"(\w+) became \w+ in step (\d+) of 12, first in cell \(.*\) = \((.*?)\);"
    found = re.match(words, str(error.value))
    assert found is not None, error.value
    return int(found[2]), tuple(map(int, found[3].split(", "))), found[1]


def options(out, **given):
    return RunOptions.of(out=out, **({"memory": "512MiB", "threads": 1} | given))


STRIPS = {"tier": "direct", "depth": 4, "slab_planes": 2, "strip_rows": 5}
WAYS = {
    "streamed": {"tier": "direct", "depth": 5, "slab_planes": 2, "threads": 2},
    "commits": {"tier": "direct", "depth": 3, "slab_planes": 2, "commit_every": 0},
    "one step": {"tier": "direct", "depth": 1},
    "strips": STRIPS,
    "strips and commits": {**STRIPS, "commit_every": 0},
    "blocks": {"tier": "direct", "scheme": "overlapped", "depth": 2, "block": (9, 5, 35)},
    "mapped": {"tier": "mmap", "depth": 4, "slab_planes": 2},
    "in place": {"tier": "mmap", "in_place": True, "depth": 4, "slab_planes": 2},
    "memory": {"tier": "memory", "depth": 4, "tile_rows": 4, "threads": 2},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_run_says_where_it_went_wrong_and_keeps_what_was_good(way, tmp_path):
    problem, out = squaring(), tmp_path / "out"
    first = origin(problem)
    assert first == (7, (13, 7, 19), "u")
    for carry in (partial(pipeline.run, problem), partial(pipeline.resume, out)):
        with pytest.raises(ExecutionError) as error:
            carry(options(out, **WAYS[way]))
        assert where(error) == first
        folder, manifest = RunFolder.of_manifest(out)
        assert manifest.steps_done < first[0]
        assert f"; {how_far(manifest)} in " in str(error.value)
        for name in ("u", "v", "v.previous"):
            state = np.load(folder.scratch / f"{name}.{manifest.parity}.npy")
            assert np.isfinite(state).all()
    found = pipeline.resume(out, options(out, watch=False))
    wanted = pipeline.run(problem, options(tmp_path / "plain", watch=False, scheme="plain"))
    for name in ("u", "v"):
        assert np.array(found[name]).tobytes() == np.array(wanted[name]).tobytes()


def test_strips_that_were_durable_before_it_are_given_up_with_their_sweep(tmp_path, monkeypatch):
    """What is repeated to find the first value writes over the seams that they left."""
    out, reached = tmp_path / "out", []
    problem = squaring(cells=((13, 7, 20), (13, 7, 19)))  # in the third strip
    write = ledger.write_manifest

    def seen(out, manifest):
        reached.append((manifest.steps_done, manifest.part, manifest.planes > 0))
        write(out, manifest)

    monkeypatch.setattr(ledger, "write_manifest", seen)
    with pytest.raises(ExecutionError) as error:
        pipeline.run(problem, options(out, **STRIPS, commit_every=0))
    assert where(error) == (7, (13, 7, 19), "u")
    assert (4, 1, False) in reached  # the second one waits for it to write its seam
    assert reached[-1] == (4, 0, False)
    _, manifest = RunFolder.of_manifest(out)
    assert (manifest.steps_done, manifest.part, manifest.planes) == (4, 0, 0)


@pytest.mark.parametrize("tier", ["direct", "memory", "swap"])
def test_grids_of_rows_and_those_that_close_along_the_stream_are_watched(tier, tmp_path):
    given = {"tier": tier, "depth": 3, "slab_planes": 2, "threads": 2}
    periodic = squaring({"z": "periodic", "kind": "neumann"}, ((25, 0, 36), (0, 13, 0)))
    for number, problem in enumerate((rooting(), periodic)):
        with pytest.raises(ExecutionError) as error:
            pipeline.run(problem, options(tmp_path / f"{number}", **given))
        assert where(error) == origin(problem)


def test_a_run_that_begins_with_them_is_not_watched(tmp_path):
    mask = np.full(SHAPE, 0.5, np.float32)
    mask[3, 3, 3] = np.nan
    np.save(tmp_path / "u.npy", mask)
    initial = {"u": tmp_path / "u.npy", "v": 1.0, "c": 0.25}
    problem = Problem(squares, SHAPE, "float32", STEPS, {}, initial=initial)
    result = pipeline.run(problem, options(tmp_path / "out", depth=2, tier="direct"))
    assert np.isnan(np.array(result["u"])).any()
    assert any("not watched" in warning for warning in result.record.warnings)


def test_a_finite_run_is_the_same_with_and_without(tmp_path):
    problem = squaring(cells=())
    watched = pipeline.run(problem, options(tmp_path / "a", depth=4, tier="direct"))
    plain = pipeline.run(problem, options(tmp_path / "b", watch=False))
    for name in ("u", "v"):
        assert np.array(watched[name]).tobytes() == np.array(plain[name]).tobytes()
