import itertools
import random
import re
import sys
from types import SimpleNamespace

import msgspec
import msgspec.structs
import pytest

import outgrid as og
from outgrid.config import RunOptions
from outgrid.errors import InfeasiblePlan, UsageError
from outgrid.machine import Accelerator
from outgrid.plan import slabs
from outgrid.plan.calibration import Calibration, Sample
from outgrid.plan.candidate import sized
from outgrid.plan.choose import Choice
from outgrid.plan.device import tables_bytes
from outgrid.plan.planner import WORTH_CUTTING, plan
from outgrid.plan.request import Request
from outgrid.plan.sweeps import deepest_of_split
from outgrid.plan.tables import steps_bytes
from outgrid.schemes import SCHEMES, Scheme
from outgrid.stencil.problem import Problem
from outgrid.testing.counting import check, count
from outgrid.testing.machine import MACHINE
from outgrid.units import parse_bytes

GIB, MIB = 1 << 30, 1 << 20


@og.stencil(ndim=3)
def summed(u):
    """A field that diffuses, and its sum."""
    return {"u": u + 0.1 * og.laplacian(u), "total": og.sum(u)}


FIXED_BYTES = 80 * MIB


def problem(shape=(1024, 1024, 1024), steps=64, name="heat7", dtype="float64"):
    names = {"heat7": ["u"], "heat5": ["u"], "wave:8": ["u", "c"]}[name]
    return Problem(name, shape, dtype, steps, initial=dict.fromkeys(names, 0.0))


def planned(asked=None, machine=MACHINE, calibration=None, **options):
    given = {"memory": "1GiB"} | options
    return plan(asked or problem(), RunOptions.of(**given), machine, FIXED_BYTES, calibration)


def disks(rate):
    """The machine with disks of that many bytes per second."""
    rates = dict.fromkeys(("read_bandwidth", "write_bandwidth", "mixed_bandwidth"), rate)
    return msgspec.structs.replace(MACHINE, **rates)


@og.stencil(ndim=3)
def driven(u, a, b, c, d, e, f, g):
    """A field that diffuses, and all that drives it: eight arrays."""
    return u + 0.1 * og.laplacian(u) + (a + b + c + d + e + f + g)


@og.stencil(ndim=3)
def fewer(u, a, b, c, d, e, f):
    """The same with seven."""
    return u + 0.1 * og.laplacian(u) + (a + b + c + d + e + f)


@pytest.mark.parametrize(
    ("rule", "tier", "lines", "between"),
    [
        (driven, "memory", False, 512 + 64),
        (driven, "direct", False, 512),
        (driven, "direct", True, 512 + 64),
        (fewer, "memory", True, 512),
        (fewer, "direct", True, 512),
    ],
)
def test_planes_of_many_arrays_begin_on_lines_in_memory_and_where_disks_take_them(
    rule, tier, lines, between
):
    names = [field.name for field in rule.trace(3).fields]
    asked = Problem(rule, (96, 128, 128), "float32", 16, initial=dict.fromkeys(names, 0.0))
    found = planned(asked, msgspec.structs.replace(MACHINE, lines=lines), tier=tier)
    assert found.schedule.resident is (tier == "memory")
    assert found.layout.pitch_bytes % 1024 == between


def test_a_grid_that_fits_stays_in_memory():
    found = planned(problem((128, 128, 128)))
    assert found.schedule.resident
    assert (found.volume.read_bytes, found.volume.written_bytes) == (128**3 * 8, 128**3 * 8)


def test_a_grid_that_does_not_fit_is_streamed_several_steps_at_a_time():
    found = planned()
    assert not found.schedule.resident
    assert found.scheme == "skewed"
    assert found.depth > 4
    assert found.depth % 2 == 0
    assert found.volume.read_bytes >= found.sweeps * 8 * GIB
    whole = planned(strip_rows=2048)
    assert whole.volume.read_bytes == whole.sweeps * 8 * GIB


@pytest.mark.parametrize("cells", [66, 6])
def test_a_block_that_is_chosen_is_one_for_the_depth_that_was_asked_for(cells):
    asked = problem((cells, cells, cells), steps=32)
    given = {"scheme": "overlapped", "depth": 16}
    with pytest.raises(InfeasiblePlan) as refused:
        planned(asked, memory="64MiB", **given)
    (limit,) = re.findall(r"a limit of (\d+) MiB fits", str(refused.value))
    assert planned(asked, memory=f"{limit}MiB", **given).depth == 16


def test_grids_too_small_for_blocks_of_the_rule_need_one_that_is_named():
    given = {"scheme": "overlapped", "memory": "1GiB"}
    with pytest.raises(UsageError, match="2 x 2 x 64 interior cells is too small for blocks of 2"):
        planned(problem((4, 4, 66)), **given)
    assert planned(problem((4, 4, 66)), block=[2, 2, 64], **given).schedule.blocks.core == (2, 2)


def test_what_a_device_sees_of_each_trip_is_counted_there_and_in_the_process():
    asked, accelerator = problem((16, 16, 16), steps=200_000), Accelerator(64 * MIB)

    def on_device(memory):
        options = RunOptions.of(memory=memory, depth=1, tier="direct")
        return plan(asked, options, MACHINE, FIXED_BYTES, accelerator=accelerator)

    with pytest.raises(InfeasiblePlan) as refused:
        on_device(FIXED_BYTES + steps_bytes(asked) + 22 * MIB)  # above the list of sweeps alone
    (limit,) = re.findall(r"a limit of (\d+) MiB fits", str(refused.value))
    with pytest.raises(InfeasiblePlan):
        on_device(f"{int(limit) - 1}MiB")
    found = on_device(f"{limit}MiB")
    assert found.device.used_bytes == found.memory.window_bytes + tables_bytes(asked) + 8 * 200_000


def test_planes_are_cut_into_strips_where_that_is_faster():
    """Planes of 64 MiB under 256 MiB: two levels of whole planes fit, strips carry many more."""
    large = problem((512, 2048, 4096), steps=96)
    found = planned(large, memory="256MiB")
    whole = planned(large, memory="1GiB", depth=2, tier="direct", strip_rows=4096)
    with pytest.raises(InfeasiblePlan):
        planned(large, memory="256MiB", strip_rows=4096)
    assert found.schedule.strips.count(found.depth) > 1
    assert found.depth > 16
    assert found.memory.window_bytes + found.memory.fixed_bytes <= 256 * MIB
    assert 2 * found.predicted_seconds < whole.predicted_seconds
    assert found.volume.disk_bytes > whole.volume.disk_bytes
    assert any("strips of" in note for note in found.notes)


def test_the_height_of_strips_can_be_asked_for():
    found = planned(strip_rows=100)
    assert found.schedule.strips.height == 100
    assert found.schedule.strips.count(found.depth) == -(-(1024 + found.depth) // 100)
    with pytest.raises(UsageError, match="in 2-D a plane is one row"):
        planned(problem((1000, 1000), name="heat5"), strip_rows=10)


def test_more_memory_is_never_slower():
    limits = ["300MiB", "600MiB", "1GiB", "2GiB", "6GiB"]
    seconds = [planned(memory=limit).predicted_seconds for limit in limits]
    # Whole planes are taken even if strips would be a little faster.
    assert all(more <= WORTH_CUTTING * less for less, more in itertools.pairwise(seconds))


def test_slow_storage_is_met_with_depth():
    slow = disks(2e8)
    long = problem(steps=240)
    found = planned(long, slow)
    assert found.prediction.bound_by == "read+write"
    assert found.depth > planned(long).depth


def test_fast_storage_leaves_computing_as_the_bound():
    fast = disks(1e11)
    assert planned(machine=fast).prediction.bound_by == "compute"


def test_transfers_that_have_the_time_share_the_places_of_a_slab():
    def planes(rate, **options):
        found = planned(machine=disks(rate), depth=8, slab_planes=8, **options)
        return [ring.planes for ring in found.schedule.rings]

    assert planes(1e9) == planes(1e11, tier="mmap") == [8 + 24, 8 + 8]
    assert planes(1e11) == [8 + 16, 8 + 8]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"depth": 6}, {"depth": 6}),
        ({"slab_planes": 3}, {"slab_planes": 3}),
        ({"threads": 1}, {"threads": 1}),
        ({"scheme": "plain"}, {"depth": 1, "scheme": "plain"}),
        ({"depth": 6, "tier": "memory", "memory": "40GiB"}, {"depth": 6, "resident": True}),
        ({"tier": "direct", "memory": "40GiB"}, {"resident": False}),
    ],
)
def test_what_is_asked_for_is_done(options, wanted):
    found = planned(**options)
    assert {key: found.to_dict()[key] for key in wanted} == wanted


@pytest.mark.parametrize("name", ["heat7", "wave:8"])
@pytest.mark.parametrize("rate", [1.2e9, 1.5e9, 1.8e9])  # rings shorter from other depths on
@pytest.mark.parametrize("memory", [*range(256, 1024, 97), 204, 314])
def test_every_depth_that_fits_is_priced(name, memory, rate):
    """Memory falls where depth becomes even, or transfers take little of a sweep."""
    asked = problem((1000, 256, 256), 72, name)
    options = RunOptions.of(memory=f"{memory}MiB", tier="direct")
    request = Request(asked, options, disks(rate), FIXED_BYTES, None)
    choice, deepest = Choice(request), 1000 // request.sizing.streamed.skew.per_step
    splits = {deepest_of_split(72, depth) for depth in range(1, min(72, deepest) + 1)}
    for slab in choice.slabs():
        fitting = {n for n in splits if sized(request, n, slab, False).needed_bytes <= request.room}
        assert fitting <= {*choice._depths(slab, resident=False)}


@pytest.mark.parametrize("name", ["heat7", "wave:8"])
@pytest.mark.parametrize("shape", [(1024, 512, 512), (200, 2048, 2048), (12, 4096, 8192)])
@pytest.mark.parametrize("periodic", [(), ("z",)])
def test_a_run_in_memory_can_be_stopped_every_few_seconds(name, shape, periodic):
    initial = {"u": 0.0} | ({"c": 0.1} if name == "wave:8" else {})
    boundary = dict.fromkeys(periodic, "periodic")
    asked = Problem(name, shape, "float64", 1000, boundary=boundary, initial=initial)
    for scheme in ("auto", "plain"):
        found = planned(asked, memory="64GiB", scheme=scheme)
        assert found.schedule.resident
        share = min(1.0, found.schedule.slab_planes / shape[0])
        assert found.prediction.compute_seconds / found.schedule.sweeps * share < 6


def test_a_depth_beyond_the_steps_makes_them_in_one_sweep():
    assert planned(problem(steps=5), depth=8).schedule.depths == (5,)


def test_a_measured_rate_is_used_and_said():
    samples = tuple(Sample(levels, 2, 1e9 / levels) for levels in (1, 2, 4, 8, 16))
    found = planned(calibration=Calibration(samples))
    assert "kernel rate measured" in found.notes
    assert "kernel rate estimated" in planned().notes
    assert found.prediction.updates_per_second <= 1e9


REFUSALS = [
    # A whole number of MiB that fits is named, and a depth where one was asked for.
    ({"memory": "50MiB"}, ["memory limit of 50.0 MiB", "the program itself 80.0 MiB"]),
    ({"memory": "80100KiB"}, ["memory limit of 78.2 MiB", "the window needs"]),
    ({"memory": "120MiB", "depth": 64}, ["for depth 64", "memory limit of 120 MiB"]),
    ({"memory": "84MiB", "slab_planes": 90}, ["slabs of 90 planes", "memory limit of 84.0 MiB"]),
    ({"memory": "1GiB", "tier": "memory"}, ["the window needs 16.", "memory limit of 1.00 GiB"]),
]


@pytest.mark.parametrize(("options", "words"), REFUSALS)
def test_refusals_say_the_values_and_what_fits(options, words):
    with pytest.raises(InfeasiblePlan) as caught:
        planned(**options)
    said = str(caught.value)
    assert [word for word in words if word not in said] == []
    (limit,) = re.findall(r"a limit of (\d+ MiB) fits", said)
    found = planned(**(options | {"memory": limit}))
    assert found.memory.window_bytes + found.memory.fixed_bytes <= parse_bytes(limit)
    smaller = parse_bytes(limit) - 2 * MIB
    with pytest.raises(InfeasiblePlan):
        planned(**(options | {"memory": smaller}))


def test_a_depth_that_is_too_deep_names_the_deepest_that_fits():
    with pytest.raises(InfeasiblePlan) as caught:
        planned(problem(steps=120), depth=60, memory="120MiB")
    (depth,) = re.findall(r"depth (\d+) fits", str(caught.value))
    again = problem(steps=2 * int(depth))
    assert planned(again, depth=int(depth), memory="120MiB").depth == int(depth)
    deeper = problem(steps=2 * int(depth) + 4)
    with pytest.raises(InfeasiblePlan):
        planned(deeper, depth=int(depth) + 2, memory="120MiB")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scheme": "plain", "depth": 3}, ["depth 3", "one step per sweep", "leave depth out"]),
        ({"slab_planes": 1025}, ["not 1025", "1..1024"]),
    ],
)
def test_values_out_of_range_are_told_with_their_range(options, words):
    with pytest.raises(UsageError) as caught:
        planned(**options)
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"scheme": "skew"}, "skew"), ({"depth": 0}, "at least 1"), ({"threads": 0}, "at least 1")],
)
def test_values_that_bypass_the_job_file_are_checked_too(changes, words):
    options = msgspec.structs.replace(RunOptions.of(memory="1GiB"), **changes)
    with pytest.raises(UsageError, match=words):
        plan(problem(), options, MACHINE, FIXED_BYTES)


def test_ragged_rows_take_staging_buffers_out_of_the_limit():
    ragged = problem((1000, 999, 1001))
    found = planned(ragged, queue_depth=4, request_bytes="1MiB")
    assert found.memory.transfer_bytes == 4 * MIB
    assert planned().memory.transfer_bytes == 0
    with pytest.raises(InfeasiblePlan, match=r"itself 84\.0 MiB"):
        planned(ragged, queue_depth=4, request_bytes="1MiB", memory="84MiB")


def test_a_grid_larger_than_the_machine_is_planned():
    found = planned(problem((4096, 4096, 4096), 256), memory="32GiB", strip_rows=8192)
    assert found.depth > 4
    assert found.volume.disk_bytes == 2 * 4096**3 * 8
    assert found.memory.window_bytes < 32 * GIB
    wave = planned(problem((2048, 2048, 2048), 1000, "wave:8"), memory="8GiB")
    assert wave.volume.disk_bytes >= 5 * 2048**3 * 8
    assert wave.schedule.skew.per_step == 4


def closed(shape=(64, 64, 64), axis="z"):
    boundary = {axis: "periodic"}
    return Problem("heat7", shape, "float64", 100, boundary=boundary, initial={"u": 0.0})


def test_a_grid_that_is_closed_along_the_stream_stays_in_memory_only_where_it_fits():
    found = planned(closed())
    assert found.schedule.resident
    assert (found.tile.order, found.depth > 1) == ("diamond", True)
    assert "are updated again at the end of each sweep" in found.explain()
    plain = planned(closed(), scheme="plain")
    few = planned(closed((5, 64, 64)), depth=10)
    for each in (plain, few):
        assert each.schedule.resident
        assert not each.schedule.seams
        assert each.schedule.slab_planes == each.schedule.shape[0] + each.depth
        assert "periodic along z: every step updates the whole grid" in each.explain()
    found = planned(closed((1024, 1024, 1024)))
    assert (found.schedule.resident, found.tile.order, found.schedule.redundancy) == (
        False,
        "diamond",
        0,
    )
    assert "are updated again" in found.explain()
    assert found.volume.disk_bytes > 2 * 1024**3 * 8


def test_large_planes_of_a_closed_grid_pass_in_strips():
    found = planned(closed((256, 2048, 2048)), memory="192MiB", tier="direct")
    assert found.schedule.strips.count(found.depth) > 1
    assert all(found.schedule.cutting.closing(depth, 0) for depth in found.schedule.depths)
    assert (found.schedule.redundancy, found.schedule.commit_planes) == (0, 0)
    around = {"boundary": {"z": "periodic", "y": "periodic"}, "initial": {"u": 0.0}}
    torus = Problem("heat7", (256, 2048, 2048), "float64", 32, **around)
    found = planned(torus, memory="192MiB", tier="direct")
    assert found.schedule.strips.circle
    assert found.schedule.strips.count(found.depth) > 1
    assert all(
        found.schedule.cutting.closing(depth, axis)
        for depth in found.schedule.depths
        for axis in (0, 1)
    )


@pytest.mark.parametrize("faces", [{}, {"z": "periodic"}, {"y": "periodic"}, "periodic"])
@pytest.mark.parametrize("name", ["heat7", "wave:4"])
def test_the_bytes_of_very_many_strips_are_those_of_the_program(name, faces):
    values = {"heat7": {"u": 0.0}, "wave:4": {"u": 0.0, "c": 0.1}}[name]
    given = Problem(name, (48, 480, 16), "float32", 9, boundary=faces, initial=values)
    found = planned(given, tier="direct", depth=4, slab_planes=4, strip_rows=21)
    assert found.schedule.strips.count(4) > 20
    made = count(found)
    volume = found.volume
    assert (made.read_bytes, made.written_bytes) == (volume.read_bytes, volume.written_bytes)


def test_a_closed_grid_of_few_planes_is_not_streamed():
    given = {"tier": "direct", "slab_planes": 8}
    with pytest.raises(InfeasiblePlan, match=r"at least 84 planes .* and has 64; depth 40"):
        planned(closed(), depth=60, **given)
    with pytest.raises(InfeasiblePlan, match=r"26 planes .* and has 24; smaller slabs fit"):
        planned(closed((24, 64, 64)), depth=1, **given)
    assert not planned(closed(), depth=40, **given).schedule.resident


def test_tiles_close_round_a_periodic_axis_as_many_as_threads():
    around = {"boundary": {"y": "periodic"}, "initial": {"u": 0.0}}
    found = planned(Problem("heat7", (1024, 256, 1024), "float64", 100, **around))
    assert (found.schedule.resident, found.tile.order, found.depth > 1) == (False, "diamond", True)
    given = ("heat7", (1024, 40, 64), "float64", 100)
    small = Problem(*given, **around)
    wide = planned(Problem(*given, initial={"u": 0.0}), threads=4, depth=40).tile.rows
    assert planned(small, threads=4, depth=40).tile.rows == 40 // 4 < wide
    assert planned(small, threads=64, depth=40).tile.rows == 2
    assert planned(small, threads=4, depth=40, tile_rows=30).tile.rows == 30


def test_diamonds_of_long_rows_take_some_columns_at_a_time():
    long = Problem("heat7", (512, 512, 4096), "float64", 64, initial={"u": 0.0})
    whole = planned(long, depth=32, tile_columns=4096)
    assert (whole.tile.order, whole.tile.columns) == ("diamond", 0)
    cut = planned(long, depth=32)
    assert (cut.tile.columns, cut.tile.rows > whole.tile.rows) == (512, True)
    assert any("512 columns at a time" in note for note in cut.notes)
    short = Problem("heat7", (512, 512, 512), "float64", 64, initial={"u": 0.0})
    assert planned(short, depth=32).tile.columns == 0
    assert planned(short, depth=32, tile_columns=100).tile.columns == 100


def test_wide_diamonds_go_in_bands_that_fit_the_second_level_cache():
    problem = Problem("heat7", (512, 512, 512), "float64", 64, initial={"u": 0.0})
    tile = planned(problem, depth=64).tile
    front = tile.planes + 2
    kept = 8 * 512 * (front * (tile.band + 2) + tile.planes * tile.band)
    assert tile.planes <= tile.band < tile.rows
    assert kept <= MACHINE.l2_bytes < 2 * kept
    assert planned(problem, depth=64, tile_band=5).tile.band == 5
    assert planned(problem, depth=64, tile_band=512).tile.band == 0
    assert any(f"in bands of {tile.band} rows" in note for note in planned(problem, depth=64).notes)
    flat = Problem("heat5", (512, 512), "float64", 64, initial={"u": 0.0})
    with pytest.raises(UsageError, match=r"tile_band = 5: .*not rows; leave it out"):
        planned(flat, depth=8, tile_band=5)


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (Problem("heat5", (512, 512), "float64", 64, initial={"u": 0.0}), "width of diamonds"),
        (closed(axis="x"), "a periodic axis is not cut into diamonds; leave it out"),
    ],
)
def test_rows_that_are_not_cut_are_named(problem, words):
    with pytest.raises(UsageError, match=rf"tile_columns = 64: .*{words}"):
        planned(problem, depth=8, tile_columns=64)


@pytest.mark.parametrize("given", [{"tile_columns": 64}, {"tile_band": 3}])
def test_who_asks_for_an_extent_of_diamonds_gets_them_where_other_orders_are_faster(given):
    heat = Problem("heat7", (512, 512, 512), "float64", 64, initial={"u": 0.0})
    level = Calibration((Sample(levels=1, planes=8, updates_per_second=1e12),))
    assert planned(heat, MACHINE, level, depth=32).tile.order == "level"
    tile = planned(heat, MACHINE, level, depth=32, **given).tile
    assert (tile.order, tile.columns or 64, tile.band or 3) == ("diamond", 64, 3)


def test_where_nothing_was_measured_only_planes_of_one_row_go_level_by_level():
    fast = msgspec.structs.replace(MACHINE, memory_bandwidth=1e14)
    for name, shape, order in (
        ("heat5", (4096, 4096), "level"),
        ("heat7", (256, 256, 256), "diamond"),
    ):
        heat = Problem(name, shape, "float64", 64, initial={"u": 0.0})
        assert planned(heat, fast, depth=32).tile.order == order
        assert planned(heat, MACHINE, depth=32).tile.order == "diamond"


def test_a_plan_tells_what_comes_after_its_steps():
    after = {"snapshots": [og.Snapshot("u", every=9), og.Snapshot("u", every=8)]}
    until = {"reduction": "total", "every": 20, "above": 1e300}
    sums = Problem(summed, (64, 64, 64), "float64", 8, initial={"u": 0.0}, until=until, **after)
    for scheme in ("skewed", "overlapped"):
        notes = planned(sums, tier="direct", scheme=scheme).notes
        assert [note for note in notes if "away" in note] == [
            "snapshot.0.npy gets nothing: its next state is 9 steps away, and 8 steps will be made",
            "total ends nothing: its next check is 20 steps away, and 8 steps will be made",
        ]


def test_a_plan_tells_what_was_asked_for_in_vain():
    def vain(problem, **given):
        return [note for note in planned(problem, **given).notes if " has no effect: " in note]

    once = Problem("heat7", (64, 64, 64), "float64", 1, initial={"u": 0.0})
    assert vain(once, tile_columns=32, tile_band=2, tile_rows=8) == [
        f"{name} has no effect: planes are updated step by step, without diamonds"
        for name in ("tile_columns", "tile_band")
    ]
    around = closed(axis="z")
    assert vain(around, tier="memory", depth=1, slab_planes=4) == [
        "slab_planes has no effect: every step updates the whole grid"
    ]
    assert vain(around, tier="memory") == []
    sums = Problem(summed, (64, 64, 64), "float64", 8, initial={"u": 0.0})
    for given in ({}, {"scheme": "overlapped"}):
        (note,) = vain(sums, tier="direct", commit_every="1s", **given)
        assert note.startswith("commit_every has no effect: reductions must count every cell once")
    assert vain(sums, tier="memory", commit_every="1s") == []


def test_planes_of_a_periodic_axis_pass_in_strips_that_close_the_circle():
    around = {"boundary": {"y": "periodic"}, "initial": {"u": 0.0}}
    large = Problem("heat7", (512, 4096, 2048), "float64", 64, **around)
    found = planned(large, memory="256MiB", tier="direct")
    assert found.schedule.strips.circle
    assert found.schedule.strips.count(found.depth) == -(-4096 // found.schedule.strips.height) > 1
    assert (found.tile.order, found.schedule.redundancy) == ("diamond", 0)
    assert "also across the periodic end" in found.explain()
    small = Problem("heat7", (64, 40, 64), "float64", 64, **around)
    with pytest.raises(UsageError, match="at least 6 rows and a grid of at least 12"):
        planned(small, depth=5, strip_rows=5)
    with pytest.raises(UsageError, match="at least 21 rows and a grid of at least 42"):
        planned(small, depth=20, strip_rows=30)
    assert planned(small, tier="direct", depth=19, strip_rows=20).schedule.strips.count(19) == 2


def test_the_depth_of_blocks_is_bounded_by_the_way_round():
    for boundary in ({"y": "periodic"}, {"z": "periodic"}):
        problem = Problem("heat7", (12, 12, 66), "float64", 99, {}, boundary, {"u": 0.0})
        columns = len(problem.interior[-1])
        given = {"scheme": "overlapped", "block": [40, 40, columns]}
        assert planned(problem, **given, depth=12).depth == 12
        with pytest.raises(InfeasiblePlan, match="comes round after 12; depth 12 fits"):
            planned(problem, **given, depth=13)


def test_a_scheme_is_a_module_and_a_line(monkeypatch):
    """Nothing else of the planner knows its name, and what it chooses runs."""

    def thin(request):
        options = msgspec.structs.replace(request.options, scheme=None, slab_planes=1)
        return msgspec.structs.replace(
            slabs.plan(msgspec.structs.replace(request, options=options)), scheme="thin"
        )

    rules = SimpleNamespace(plan=thin, plan_from=lambda request, begin: None)
    monkeypatch.setitem(sys.modules, "outgrid.plan.thin", rules)
    monkeypatch.setitem(SCHEMES, "thin", Scheme("thin", module="thin"))
    cube = problem((24, 6, 6), 4)
    options = msgspec.structs.replace(RunOptions.of(memory="1GiB", tier="direct"), scheme="thin")
    found = plan(cube, options, MACHINE, FIXED_BYTES)
    assert (found.scheme, found.schedule.slab_planes) == ("thin", 1)
    assert check(found, cube.stencil, random.Random(0)).row_updates == 24 * 6 * 4
