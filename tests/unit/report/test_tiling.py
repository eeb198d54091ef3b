"""Pictures of sweeps are those of their plans, and well-formed."""

import re
from xml.etree import ElementTree

import pytest

import outgrid as og
from outgrid.report.tiling import Sweep, diamonds_picture, sweep_of, sweep_picture

HEAT = og.Problem("heat7", (96, 64, 64), steps=24, parameters={"k": 0.1}, initial={"u": 0.0})


def plan(problem=HEAT, **options):
    return og.plan(problem, **{"memory": "96MiB", "tier": "direct", **options}).to_dict()


def test_a_sweep_has_the_numbers_of_its_plan():
    sweep = sweep_of(plan(depth=12, slab_planes=4))
    assert (sweep.planes, sweep.depth, sweep.skew, sweep.slab_planes) == (96, 12, 1, 4)
    assert 12 < sweep.window_planes < 96
    assert sweep_of(plan(tier="memory")).window_planes == 96
    assert sweep_of(plan(scheme="plain")).depth == 1


def test_blocks_and_runs_of_no_steps_have_no_picture_of_slabs():
    assert sweep_of(plan(scheme="overlapped", block=(32, 32, 62), depth=4, memory="256MiB")) is None
    assert sweep_of(plan(HEAT.replace(steps=0))) is None


@pytest.mark.parametrize(
    "sweep",
    [Sweep(96, 12, 1, 4, 20), Sweep(100_000, 64, 4, 8, 900), Sweep(3, 40, 2, 1, 3)],
    ids=["few planes", "many planes", "deeper than the grid"],
)
def test_a_picture_is_well_formed_and_of_bounded_size(sweep):
    text = sweep_picture(sweep)
    root = ElementTree.fromstring(text)
    assert "script" not in {element.tag.rpartition("}")[2] for element in root.iter()}
    assert f"{sweep.planes} planes, {sweep.depth} steps per sweep" in "".join(root.itertext())
    assert len(text) < 20_000
    (steps,) = re.findall(r"steps\((\d+)\)", text)
    assert text.count("l-") >= int(steps) - 1


def test_diamonds_are_those_of_the_tile():
    shape = plan(depth=12, tile_rows=16, tile_columns=64)
    root = ElementTree.fromstring(diamonds_picture(shape))
    assert "diamonds of 16 rows, 16 steps high" in "".join(root.itertext())
    assert diamonds_picture(plan(scheme="plain")) == ""
