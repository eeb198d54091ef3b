"""NaN, infinities, numbers without a leading one and negative zero travel the same on every way.

Between runs every bit is compared but those that tell one NaN from another: which of two operands'
NaNs an operation returns, and whether a negated product flips its sign, is up to the instructions
that a compiler chooses. NumPy's answer is compared in the same way.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from outgrid import open as open_result
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import StoreError
from outgrid.stencil.problem import Problem
from outgrid.storage import DirectStore
from outgrid.testing.reference import run_reference

SHAPE = (26, 14, 37)
WAYS = {
    "tiled": {"tier": "memory", "depth": 6, "tile_rows": 4, "threads": 2},
    "streamed": {"tier": "direct", "depth": 4, "slab_planes": 2},
    "odd depth": {"tier": "direct", "depth": 3, "slab_planes": 3, "engine": "threads"},
    "strips": {"tier": "direct", "depth": 4, "slab_planes": 2, "strip_rows": 5},
    "blocks": {"tier": "direct", "scheme": "overlapped", "depth": 2, "block": (9, 5, 35)},
    "mapped": {"tier": "mmap", "depth": 4, "slab_planes": 2},
    "in place": {"tier": "mmap", "in_place": True, "depth": 4, "slab_planes": 2},
    "swapped": {"tier": "swap", "depth": 4, "slab_planes": 2},
    "resumed": {"tier": "direct", "depth": 2, "slab_planes": 2, "commit_every": 0},
}
CUT = ("strips", "blocks")  # not of grids that close along the stream


def odd_values(dtype: str) -> np.ndarray:
    """Cells of which every twelfth or so is something that arithmetic treats in its own way."""
    tiny = np.finfo(dtype).smallest_subnormal
    odd = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, tiny, -tiny, 3 * tiny]
    odd += [np.finfo(dtype).tiny, np.finfo(dtype).max, np.finfo(dtype).min]
    chance = np.random.default_rng(4)
    values = chance.random(SHAPE).astype(dtype)
    values[chance.random(SHAPE) < 0.3] = -0.0
    # Few of those that spread, all in one corner; the others are everywhere.
    for value in odd:
        spreads = not np.isfinite(value)
        places = 1 if spreads else 60
        for _ in range(places):
            limits = (4, 4, 6) if spreads else SHAPE
            values[tuple(chance.integers(0, limits))] = value
    return values


def bits(array: np.ndarray) -> np.ndarray:
    """The bits of all values, as if there were one NaN only."""
    values = np.where(np.isnan(array), array.dtype.type(np.nan), array)
    return np.ascontiguousarray(values).view(f"u{array.itemsize}")


def run(problem: Problem, out, **given) -> np.ndarray:
    options = RunOptions.of(memory="512MiB", out=out, **({"threads": 1} | given))
    return np.array(pipeline.run(problem, options)["u"])


@pytest.mark.parametrize("boundary", ["dirichlet", {"z": "periodic"}], ids=["fixed", "closed"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_odd_values_travel_the_same_on_every_way(dtype, boundary, tmp_path, monkeypatch):
    start = tmp_path / "start.npy"
    np.save(start, odd_values(dtype))
    problem = Problem("heat7", SHAPE, dtype, 4, {"k": 0.125}, boundary, initial={"u": start})
    plain = run(problem, tmp_path / "plain", tier="memory", scheme="plain")
    assert np.isnan(plain).any()
    assert np.isfinite(plain).any()
    assert (np.signbit(plain) & (plain == 0)).any()
    exact = run_reference(problem)["u"]
    assert (np.isnan(plain) == np.isnan(exact)).all()
    numbers = ~np.isnan(plain)
    assert (np.isinf(plain) == np.isinf(exact))[numbers].all()
    zeroes = (plain == 0) & (exact == 0)
    assert (np.signbit(plain) == np.signbit(exact))[zeroes].all()
    closed = boundary != "dirichlet"
    for way, given in WAYS.items():
        if closed and way in CUT:
            continue
        out = tmp_path / way.replace(" ", "-")
        if way == "resumed":
            with monkeypatch.context() as patch:
                fail_at(patch, 22)
                with pytest.raises(StoreError):
                    run(problem, out, **given)
            options = RunOptions.of(memory="512MiB", out=out, threads=1, depth=3)
            found = np.array(pipeline.resume(out, options)["u"])
        else:
            found = run(problem, out, **given)
        assert (bits(found) == bits(plain)).all(), way


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_denormals_are_numbers_on_every_way(dtype, tmp_path):
    """All values are so small that none has a leading one: halved they round, to 0 at last."""
    tiny = np.finfo(dtype).smallest_subnormal
    values = np.random.default_rng(5).integers(-400, 400, SHAPE).astype(dtype) * tiny
    problem = Problem("heat7", SHAPE, dtype, 4, {"k": 0.125}, initial={"u": values})
    wanted = run_reference(problem)["u"]
    inner = (slice(5, -5),) * 3
    assert (np.abs(wanted[wanted != 0]) < np.finfo(dtype).tiny).all()
    assert (wanted[inner] != values[inner]).mean() > 0.9
    plain = run(problem, tmp_path / "plain", tier="memory", scheme="plain")
    # The reference adds in another order, each sum of such numbers is exact: only products round.
    assert (np.abs(plain - wanted) <= 8 * tiny).all()
    for way in ("tiled", "streamed", "strips", "blocks", "mapped"):
        found = run(problem, tmp_path / way, **WAYS[way])
        assert (bits(found) == bits(plain)).all(), way


RANKS = """
import sys
import numpy as np
import outgrid as og

for dtype in ("float32", "float64"):
    for exchange in ("halos", "seams"):
        out = f"{sys.argv[1]}/{dtype}-{exchange}"
        start = f"{sys.argv[1]}/{dtype}.npy"
        shape, given = np.load(start).shape, {"parameters": {"k": 0.125}, "initial": {"u": start}}
        problem = og.Problem("heat7", shape, dtype, 4, **given)
        og.run(problem, memory="512MiB", out=out, exchange=exchange, depth=2, threads=1)
"""


@pytest.mark.mpi
def test_odd_values_travel_the_same_over_ranks(tmp_path):
    pytest.importorskip("mpi4py")
    (tmp_path / "ranks.py").write_text(RANKS)
    plain = {}
    for dtype in ("float32", "float64"):
        values = np.concatenate([odd_values(dtype)[:, ::-1], odd_values(dtype)])  # some at the cut
        start = tmp_path / f"{dtype}.npy"
        np.save(start, values)
        problem = Problem("heat7", values.shape, dtype, 4, {"k": 0.125}, initial={"u": start})
        plain[dtype] = run(problem, tmp_path / dtype, tier="memory", scheme="plain")
        assert np.isnan(plain[dtype]).any()
    mpiexec = Path(sys.executable).parent / "mpiexec"
    done = subprocess.run(
        [mpiexec, "-n", "2", sys.executable, tmp_path / "ranks.py", tmp_path],
        env=os.environ | {"MPIR_CVAR_ENABLE_BUSY_WAIT_YIELD": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    for dtype, wanted in plain.items():
        for exchange in ("halos", "seams"):
            found = np.asarray(open_result(tmp_path / f"{dtype}-{exchange}")["u"])
            assert (bits(found) == bits(wanted)).all(), (dtype, exchange)


def fail_at(patch, index: int) -> None:
    """Let one put fail."""
    put, calls = DirectStore.put, iter(range(10**6))

    def failing(self, *arguments):
        if next(calls) == index:
            return self._transfers.fail(StoreError("on purpose", path=self.path, offset=0, errno=5))
        return put(self, *arguments)

    patch.setattr(DirectStore, "put", failing)
