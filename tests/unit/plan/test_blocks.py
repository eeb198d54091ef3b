import re

import msgspec.structs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outgrid.config import RunOptions
from outgrid.errors import InfeasiblePlan, UsageError
from outgrid.plan.planner import plan
from outgrid.plan.schedule.blocks import Blocks, paper_block, paper_block_bytes
from outgrid.plan.schedule.skew import Halo
from outgrid.stencil.problem import Problem
from outgrid.testing import machine
from outgrid.testing.counting import count

GIB = 1 << 30
MACHINE = msgspec.structs.replace(machine.MACHINE, memory_bytes=32 * GIB)

# GiB of the problem, interior cells (x, y, z), of one block buffer, of one buffer, of all four:
# Table 2 of Midorikawa and Tan (2014), 32 GiB of memory, 256 steps, depth 128.
TABLE_2 = [
    (16, (1022, 1024, 1024), 5.62, 8.03, 27.34),
    (32, (2046, 1024, 1024), 10.12, 16.06, 52.36),
    (64, (2046, 2048, 1024), 10.12, 32.09, 84.42),
    (128, (2046, 2048, 2048), 10.12, 64.13, 148.48),
    (256, (2046, 2048, 4096), 10.12, 128.19, 276.61),
    (512, (2046, 4096, 4096), 10.12, 256.25, 532.73),
]


@pytest.mark.parametrize(("gib", "domain", "block_gib", "buffer_gib", "total_gib"), TABLE_2)
def test_sizes_are_those_of_table_2(gib, domain, block_gib, buffer_gib, total_gib):
    x, y, z = domain

    def fits(block, depth):
        return 2 * paper_block_bytes(block, depth, 8) <= 32 * GIB

    block, depth = paper_block((z, y, x), 256, fits)
    assert (block, depth) == ((512, 512, x), 128)
    found = paper_block_bytes(block, depth, 8) / GIB
    buffer = (z + 2) * (y + 2) * (x + 2) * 8 / GIB
    assert found == pytest.approx(block_gib, abs=0.03)
    assert buffer == pytest.approx(buffer_gib, abs=0.03)
    assert 2 * (found + buffer) == pytest.approx(total_gib, abs=0.03)


@pytest.mark.parametrize(("_", "domain", "block_gib", "buffer_gib", "total_gib"), TABLE_2)
def test_the_planner_takes_the_blocks_of_table_2(_, domain, block_gib, buffer_gib, total_gib):
    problem = Problem(
        "heat7", tuple(n + 2 for n in reversed(domain)), "float64", 256, initial={"u": 0.0}
    )
    found = plan(problem, RunOptions.of(memory="32GiB", scheme="overlapped"), MACHINE, 80 << 20)
    assert found.schedule.blocks.core == (512, 512)
    assert found.schedule.depths == (128, 128)
    # Rows have no halo here, since x is not cut.
    assert found.memory.window_bytes <= 2 * block_gib * GIB


@given(
    st.tuples(st.integers(5, 90), st.integers(5, 60)),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(*2 * (st.builds(Halo, st.integers(0, 3), st.just((1,)), st.just((0,))),)),
    st.booleans(),
    st.integers(1, 6),
)
def test_blocks_that_are_alike_are_counted_once(extents, core, halos, closes, depth):
    owned = None if extents[0] % 2 else ((2, extents[0] - 1), (0, extents[1]))
    blocks = Blocks(*extents, core, halos, ((1, 1), (2, 1)), owned, (closes, False))
    every = [
        [blocks.interval(axis, depth, part) for axis in (0, 1)] for part in range(blocks.count())
    ]
    reads = [tuple(len(interval.read) for interval in block) for block in every]
    assert blocks.held(depth) == tuple(map(max, zip(*reads, strict=True)))
    assert blocks.moved_rows(depth) == blocks.moved_rows(depth, blocks.count())
    assert blocks.updated_rows(depth) == sum(
        len(planes.covered(step)) * len(rows.covered(step))
        for planes, rows in every
        for step in range(1, depth + 1)
    )


def test_a_grid_of_very_many_blocks_is_planned_at_once():
    problem = Problem("heat7", (2**31 + 5, 8, 8), "float64", 16, initial={"u": 0.0})
    options = RunOptions.of(memory="8GiB", scheme="overlapped", tier="direct")
    assert plan(problem, options, MACHINE, 80 << 20).schedule.blocks.count() > 2**20


def test_blocks_cover_the_grid_once_and_read_a_halo_where_the_grid_goes_on():
    blocks = Blocks(12, 9, (4, 5), (Halo(1, (), ()), Halo(2, (), ())), ((1, 1), (2, 2)))
    spans = [
        [blocks.interval(axis, 2, part).span for axis in (0, 1)] for part in range(blocks.count())
    ]
    cores = [
        (plane, row)
        for planes, rows in spans
        for plane in planes.at(2, 12)
        for row in rows.at(2, 9)
    ]
    assert sorted(cores) == [(plane, row) for plane in range(12) for row in range(9)]
    # Interior planes 1..10 in parts of 4; the first block has the layer, and a halo above.
    assert spans[0][0].at(0, 12) == range(7)
    assert spans[0][0].at(1, 12) == range(6)
    assert spans[1][0].at(0, 12) == range(3, 11)
    assert blocks.held(2) == (8, 9)


def planned(shape=(130, 130, 66), steps=16, **options):
    problem = Problem("heat7", shape, "float64", steps, initial={"u": 0.0})
    given = {"memory": "200MiB", "scheme": "overlapped"} | options
    return plan(problem, RunOptions.of(**given), MACHINE, 80 << 20)


def test_traffic_is_predicted_exactly():
    found = planned(depth=4, block=[30, 40, 64])
    total = count(found)
    assert (total.read_bytes, total.written_bytes) == (
        found.volume.read_bytes,
        found.volume.written_bytes,
    )
    assert total.row_updates == found.schedule.row_updates
    assert found.volume.written_bytes == found.sweeps * 130 * 130 * 66 * 8
    assert found.volume.read_bytes > found.volume.written_bytes
    assert 0 < found.schedule.redundancy < 1


@pytest.mark.parametrize(
    ("inner", "steps", "words"),
    [
        (None, 1, "1 step in blocks of 32 rows"),
        ([8, 16, 32], 1, "1 step in blocks of 16 rows, 8 planes and 32 columns"),
        ([8, 16, 32], 3, "3 steps in diamonds of 6 rows, 8 planes and 32 columns at a time"),
        ([1, 16, 64], 9, "4 steps in diamonds of 8 rows, 1 plane at a time"),
    ],
)
def test_the_plan_tells_the_second_level(inner, steps, words):
    found = planned(depth=4, block=[30, 40, 64], inner=inner, inner_depth=steps)
    assert f"second level: {words}" in found.notes


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"block": [8, 8]}, UsageError, "give 3, of z, y, x"),
        ({"block": [8, 8, 32]}, UsageError, "must be that of the grid, 64 interior cells"),
        ({"block": [0, 8, 64]}, UsageError, "at least 1 cell"),
        ({"inner": [8]}, UsageError, "give 3 extents"),
        ({"block": [128, 128, 64], "depth": 8, "memory": "96MiB"}, InfeasiblePlan, "depth 8 need"),
        ({"memory": "80MiB"}, InfeasiblePlan, "a limit of"),
    ],
)
def test_refusals_say_what_fits(options, error, words):
    with pytest.raises(error, match=re.escape(words)):
        planned(**options)


def test_a_limit_that_is_named_fits():
    with pytest.raises(InfeasiblePlan) as caught:
        planned(block=[128, 128, 64], depth=8, memory="96MiB")
    (limit,) = re.findall(r"a limit of (\d+ MiB) fits", str(caught.value))
    assert planned(block=[128, 128, 64], depth=8, memory=limit).depth == 8
