import itertools

import numpy as np
import pytest

from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.execute.window import Window
from outgrid.plan.program import Gate, Get
from outgrid.plan.schedule.subgrid import Box
from outgrid.stencil.problem import Problem


def plan_of(shape=(30, 8, 13), steps=6, **options):
    problem = Problem("wave:2", shape, "float32", steps, initial={"u": 0.0, "c": 0.0})
    given = {"tier": "direct", "depth": 2, "slab_planes": 3} | options
    return pipeline.plan(problem, RunOptions.of(memory="1GiB", **given))


def planes_of(plan, ring, sweep, first, last):
    """Whole planes of a ring, as something that moves them."""
    rows = range(plan.layout.rows)
    trip = plan.schedule.trips[sweep]
    there = Box(range(first, last), rows)
    where = (first, last, rows, None, there)
    return Get(0, trip, ring.field, 0, sweep, ring.index, *where, gate=Gate())


@pytest.fixture
def window(request):
    """A streamed window; its plan as `window.plan`."""
    plan = plan_of()
    window = Window(plan)
    yield plan, window
    window.release()


def test_a_slot_serves_every_plane_of_its_remainder(window):
    plan, window = window
    for ring in plan.schedule.rings:
        first = window.addresses(planes_of(plan, ring, 0, 0, 1))[0]
        for sweep in range(plan.sweeps):
            origin = sweep * plan.schedule.pitch_planes
            for plane in range(plan.schedule.planes):
                address = window.addresses(planes_of(plan, ring, sweep, plane, plane + 1))[0]
                slot = (origin + plane) % ring.planes
                assert address == first + slot * plan.layout.pitch_bytes


def test_a_range_of_planes_may_go_round_the_end_of_the_ring(window):
    plan, window = window
    ring = plan.schedule.rings[0]
    planes = window.addresses(planes_of(plan, ring, 0, ring.planes - 2, ring.planes + 2))
    single = [
        window.addresses(planes_of(plan, ring, 0, plane, plane + 1))[0]
        for plane in range(ring.planes - 2, ring.planes + 2)
    ]
    assert planes.tolist() == single
    assert planes[2] < planes[1]


def test_rings_do_not_touch_and_lie_on_lines(window):
    plan, window = window
    spans = []
    for ring in plan.schedule.rings:
        addresses = window.addresses(planes_of(plan, ring, 0, 0, ring.planes))
        assert (addresses % 64 == 0).all()
        spans.append((addresses.min(), addresses.max() + plan.layout.pitch_bytes))
    spans.sort()
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_views_are_the_memory_that_addresses_name(window):
    plan, window = window
    (view,) = window.views(planes_of(plan, plan.schedule.rings[0], 1, 5, 6))
    assert view.shape == plan.schedule.shape[1:]
    assert view.dtype == np.dtype(plan.work.dtype)
    assert view.ctypes.data == window.addresses(planes_of(plan, plan.schedule.rings[0], 1, 5, 6))[0]
    assert view.strides == (plan.layout.row_stride_bytes, 4)
    del view


def test_plane_tables_hold_the_address_of_every_plane_under_the_front(window):
    import ctypes

    plan, window = window
    for sweep, front in [(0, 0), (0, 12), (1, 9), (2, 30)]:
        tables = window.plane_tables(plan.schedule.trips[sweep], front)
        for ring, table in zip(plan.schedule.rings, tables.tolist(), strict=True):
            entries = ctypes.cast(table, ctypes.POINTER(ctypes.c_int64))
            lowest = max(0, front - ring.high)
            for plane in range(
                lowest, min(plan.schedule.planes, front + plan.schedule.slab_planes - ring.low)
            ):
                wanted = window.addresses(planes_of(plan, ring, sweep, plane, plane + 1))[0]
                assert entries[plane] == wanted


def test_a_resident_field_keeps_its_place_in_every_sweep():
    plan = plan_of(tier="memory")
    window = Window(plan)
    places = [
        window.addresses(planes_of(plan, plan.schedule.rings[0], sweep, 4, 9)).tolist()
        for sweep in range(plan.sweeps)
    ]
    assert places.count(places[0]) == len(places)
    window.release()
