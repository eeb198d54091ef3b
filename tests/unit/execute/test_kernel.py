"""A box updated in place of a whole grid: only what is inside changes, and rightly."""

import os
from contextlib import suppress
from functools import partial

import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.execute.kernels import load_kernel
from outgrid.execute.window import Window
from outgrid.native import Buffer, as_array
from outgrid.plan.program import Advance, program
from outgrid.stencil.problem import Problem


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize(
    ("name", "shape", "planes", "rows"),
    [
        ("heat7", (9, 11, 37), range(1, 7), range(2, 5)),
        ("heat5", (12, 40), range(3, 9), range(1)),
    ],
)
def test_a_box_is_updated_and_what_is_around_it_stays(name, shape, planes, rows, steps):
    problem = Problem(name, shape, "float64", steps, {"k": 0.1}, "frozen", {"u": 0.0})
    plan = pipeline.plan(problem, RunOptions.of(memory="1GiB", tier="memory"))
    window = Window(plan)
    values = np.random.default_rng(steps).random(shape)
    for ring in plan.schedule.rings:
        views = window.slots(ring.field, ring.index)
        while views:
            view = views.pop()
            view[...] = values[len(views)].reshape(view.shape)
    del view
    load_kernel(problem).repeat(plan, window, steps, planes, rows)
    found = np.array(window.slots("u", steps % 2)).reshape(shape)
    window.release()

    box = tuple(slice(r.start, r.stop) for r in ((planes, rows) if len(shape) == 3 else (planes,)))
    box = (*box, slice(1, -1))
    expected = values.copy()
    for _ in range(steps):
        neighbours = sum(
            np.roll(expected, step, axis) for axis in range(len(shape)) for step in (-1, 1)
        )
        updated = expected + 0.1 * (neighbours - 2 * len(shape) * expected)
        expected[box] = updated[box]
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    outside = np.ones(shape, dtype=bool)
    outside[box] = False
    assert (found[outside] == values[outside]).all()


def affinities():
    """The processors that each thread of this process may use."""
    found = []
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):
            found.append(os.sched_getaffinity(int(thread)))
    return found


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinities here")
def test_pinned_threads_are_let_go_of_where_others_start_from_them():
    problem = Problem("heat7", (20, 12, 16), "float64", 4, {"k": 0.1}, "frozen", {"u": 0.0})
    options = RunOptions.of(memory="1GiB", tier="memory", depth=2, threads=3, pin=True)
    plan = pipeline.plan(problem, options)
    assert "each on its processor" in plan.explain()
    kernel = load_kernel(problem)
    allowed = os.sched_getaffinity(0)
    pinned = sum(len(cpus) == 1 for cpus in affinities())
    window = Window(plan, partial(kernel.touch, plan))
    assert os.sched_getaffinity(0) == allowed
    for instruction in program(plan):
        if isinstance(instruction, Advance):
            kernel.advance(plan, window, instruction)
    assert os.sched_getaffinity(0) == allowed
    if len(allowed) > 1:
        # Threads of an earlier test may serve again.
        assert sum(len(cpus) == 1 for cpus in affinities()) >= max(2, pinned)
    window.release()


def test_threads_touch_every_page():
    problem = Problem("heat7", (9, 5, 16), "float64", 1, {"k": 0.1}, "frozen", {"u": 0.0})
    plan = pipeline.plan(problem, RunOptions.of(memory="1GiB", tier="memory", threads=3))
    buffer = Buffer((5 << 20) + 1234)
    values = as_array(buffer, np.uint8)
    values[...] = 1
    load_kernel(problem).touch(plan, buffer)
    assert np.flatnonzero(values == 0).tolist() == list(range(0, values.size, 4096))
    del values
    buffer.release()


@og.stencil(ndim=3)
def staggered(a, b, c):
    """Stages that read to one side farther than to the other, two of them in place."""
    return [
        {"a": a + 0.1 * (b[2, 0, 0] - b[-1, 1, 0] + b[0, -2, 1])},
        {"b": b + 0.1 * (a[1, 0, 0] - a[-2, 0, 1])},
        {"c": 0.2 * (c[-1, 0, 0] + c[0, 1, -1]) + b * a[0, -1, 0]},
    ]


@og.stencil(ndim=2)
def across(a, b):
    return [{"a": a + 0.1 * (b[3, 0] - b[-1, 1])}, {"b": b + 0.1 * (a[1, 0] - a[-2, -1])}]


@pytest.mark.parametrize(
    ("rule", "shape", "boundary"),
    [
        (staggered, (23, 19, 21), "frozen"),
        (staggered, (23, 19, 21), {"y": "periodic", "z-": "neumann"}),
        (across, (150, 70), {"y+": "neumann"}),
    ],
)
@pytest.mark.parametrize(
    "options",
    [
        {"threads": 1, "tile_planes": 1},
        {"threads": 3, "tile_planes": 3, "tile_rows": 4},
        {"threads": 2, "tile_planes": 2, "tier": "direct", "slab_planes": 5},
    ],
    ids=str,
)
def test_stages_that_follow_each_other_through_a_step_change_no_byte(
    rule, shape, boundary, options, tmp_path
):
    initial = {name: f"sin({n} + x*1.3 + y*2.1) + 0.1" for n, name in enumerate("abc")}
    names = [field.name for field in rule.trace(len(shape)).fields]
    values = {name: initial[name] for name in names}
    problem = Problem(rule, shape, "float64", 3, {}, boundary, values)
    common = {"memory": "1GiB", "tier": "memory"}
    given = RunOptions.of(out=tmp_path / "a", scheme="plain", **common | options)
    assert pipeline.plan(problem, given).tile.order == "front"
    wanted = RunOptions.of(out=tmp_path / "b", depth=3, tile_rows=8, **common)
    assert pipeline.plan(problem, wanted).tile.order == "diamond"
    one, other = (pipeline.run(problem, option) for option in (given, wanted))
    for name in names:
        assert np.array(one[name]).tobytes() == np.array(other[name]).tobytes()


def test_where_all_planes_make_each_stage_together_none_follows_another():
    values = dict.fromkeys("abc", 0.0)
    problem = Problem(staggered, (23, 19, 21), "float64", 3, {}, "periodic", values)
    options = RunOptions.of(memory="1GiB", tier="memory", scheme="plain")
    assert pipeline.plan(problem, options).tile.order == "level"
