"""Whole runs under a sanitizer: threads of the kernel, of the transfers and of the checksums.

The engine `threads` moves all bytes in system calls that the sanitizer sees, into and out of the
very slots that the kernel's threads update: a gate that opens too early is a race.
"""

import os
import subprocess
import sys

import numpy as np
import pytest

from outgrid import pipeline
from outgrid.build.compiler import build, find_compiler
from outgrid.codegen.kernel import generate
from outgrid.config import RunOptions
from outgrid.errors import StoreError
from outgrid.execute.kernel import Kernel
from outgrid.execute.window import Window
from outgrid.plan.program import Advance, program
from outgrid.stencil.parameters import parameter_table
from outgrid.stencil.problem import Problem

WAYS = [
    {"tier": "memory", "depth": 6, "threads": 3, "tile_rows": 8},
    {"tier": "memory", "depth": 2, "threads": 3, "tile_rows": 1},
    {"tier": "direct", "depth": 5, "slab_planes": 3, "threads": 3, "tile_rows": 6},
    {"tier": "direct", "depth": 4, "slab_planes": 2, "threads": 2, "strip_rows": 9},
    {"tier": "direct", "scheme": "overlapped", "depth": 3, "block": [14, 12, 68], "threads": 3},
]


def problem(boundary="dirichlet"):
    values = np.random.default_rng(2).random((40, 26, 70))
    initial = {"u": values, "c": 0.1}
    return Problem("wave:2", values.shape, "float64", 12, boundary=boundary, initial=initial)


def run(folder, boundary="dirichlet", **given):
    usual = {"engine": "threads", "queue_depth": 3, "request_bytes": 1 << 14, "commit_every": 0}
    options = RunOptions.of(memory="1GiB", out=folder, **(usual | given))
    result = pipeline.run(problem(boundary), options)
    return {name: np.array(result[name]).tobytes() for name in result.record.fields}


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain") / "run"
    return run(folder, tier="memory", scheme="plain", threads=1)


@pytest.mark.parametrize("way", WAYS)
def test_any_way_to_run_is_clean(way, tmp_path, answer):
    assert run(tmp_path / "run", **way) == answer


def test_so_is_a_grid_that_comes_round_again(tmp_path):
    closed = {"z": "periodic"}
    plain = run(tmp_path / "plain", closed, tier="memory", scheme="plain", threads=1)
    streamed = {"tier": "direct", "depth": 3, "slab_planes": 2, "threads": 3, "tile_rows": 6}
    assert run(tmp_path / "run", closed, **streamed) == plain


def test_so_is_a_run_that_fails_and_goes_on(tmp_path, answer, monkeypatch):
    from outgrid.storage import DirectStore

    put, calls = DirectStore.put, iter(range(10**6))

    def failing(self, *arguments):
        if next(calls) == 60:
            return self._transfers.fail(StoreError("on purpose", path=self.path, offset=0, errno=5))
        return put(self, *arguments)

    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(DirectStore, "put", failing)
        with pytest.raises(StoreError):
            run(out, tier="direct", depth=3, slab_planes=2, threads=2)
    options = RunOptions.of(memory="1GiB", out=out, engine="threads", depth=3, threads=3)
    result = pipeline.resume(out, options)
    assert {name: np.array(result[name]).tobytes() for name in result.record.fields} == answer


# What the kernel does wrong then, and what the sanitizers say of it.
SPOILT = {
    "address": [
        ("new int64_t[jobs]{}", "new int64_t[jobs - 1]{}", "heap-buffer-overflow"),
        # In the first ring that is less than a row before its memory.
        ("+ s.row_offset;", "+ s.row_offset - 520;", "use-after-poison"),
    ],
    "thread": [("wait_for(done[before.jobs + at], 1)", "(void)at", "data race")],
}
KIND = os.environ["OUTGRID_SANITIZED"]


def spoilt(case: int) -> None:
    """Advance a grid with a kernel that does something wrong."""
    given = Problem("wave:2", (40, 26, 70), "float64", 12, initial={"u": 0.5, "c": 0.1})
    options = RunOptions.of(memory="1GiB", tier="memory", depth=12, threads=3, tile_rows=4)
    plan = pipeline.plan(given, options)
    assert plan.tile.order == "diamond"
    right, wrong, _ = SPOILT[KIND][case]
    source = generate(given.stencil, given.dtype, given.edges)
    assert right in source
    library = build(source.replace(right, wrong), find_compiler())
    window = Window(plan)
    for task in program(plan):
        if isinstance(task, Advance):
            Kernel(library, parameter_table(given)).advance(plan, window, task)


@pytest.mark.parametrize("case", range(len(SPOILT[KIND])))
def test_what_a_kernel_does_wrong_is_seen(case):
    done = subprocess.run(
        [sys.executable, "-S", __file__, str(case)], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0, "nothing was found"
    assert SPOILT[KIND][case][2] in done.stderr


if __name__ == "__main__":
    spoilt(int(sys.argv[1]))
