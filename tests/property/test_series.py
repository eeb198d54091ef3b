"""Programs of coefficients that change with every step: right in whatever order transfers end."""

import random

import pytest

from outgrid.config import RunOptions
from outgrid.definition import stencil
from outgrid.pipeline import plan
from outgrid.stencil.problem import Problem
from outgrid.stencil.series import Series
from outgrid.testing.counting import check


@stencil
def blown(u, wind, *, k):
    return u + k * (wind[1, 0, 0] * u[0, 1, 0] - wind[-1, 0, 0] * u[-1, 0, 0])


@pytest.mark.parametrize(
    "way",
    [
        {"depth": 4, "slab_planes": 2},
        {"depth": 5, "slab_planes": 1, "commit_every": 0},
        {"depth": 3, "slab_planes": 3, "strip_rows": 9},
    ],
)
def test_each_step_of_a_sweep_reads_a_ring_of_its_own(way):
    initial = {"u": 0.0, "wind": Series("wind.npy")}
    problem = Problem(blown, (30, 24, 8), steps=11, parameters={"k": 0.1}, initial=initial)
    chosen = plan(problem, RunOptions.of(memory="512MiB", tier="direct", **way))
    rings = [ring for ring in chosen.schedule.rings if ring.field == "wind"]
    assert [ring.index for ring in rings] == [*range(way["depth"])]
    for seed in range(4):
        total = check(chosen, problem.stencil, random.Random(seed))
        assert total.read_bytes == chosen.volume.read_bytes
        assert total.written_bytes == chosen.volume.written_bytes
