"""Fields of any regions: what is kept and moved of them suffices, and no byte depends on it."""

import random
import tempfile
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import InfeasiblePlan, UsageError
from outgrid.plan.presence import Presence
from outgrid.plan.schedule.rings import (
    most_together,
    numbered_plane,
    parts_within,
    planes_below,
)
from outgrid.testing.counting import check

SHARE = settings.default.max_examples
AXES = "zyx"


@pytest.fixture(autouse=True, scope="module", params=[1, 4 << 20], ids=["pieces", "whole"])
def pieces(request):
    """Also what small slabs move, in pieces."""
    with patch("outgrid.plan.program.PIECE_BYTES", request.param):
        yield


@og.stencil
def layered(u, m, j, *, k):
    """A field everywhere, one that is updated in place, one of two levels."""
    return [
        {"m": 0.5 * m + 0.1 * (u[0, 1, 0] - u[0, 0, -1] + u[2, 0, 0])},
        {
            "j": j + 0.3 * (j - j.previous) + 0.1 * m[0, -1, 0] * j[0, 1, 0],
            "u": u + k * og.laplacian(u) + 0.2 * (m[1, 0, 0] - m[0, 1, 0]) - 0.1 * j,
        },
    ]


@st.composite
def boxes(draw, shape):
    """A box that is cut along some axes."""
    ends = {}
    for axis, extent in zip(AXES, shape, strict=True):
        if draw(st.booleans()):
            first = draw(st.integers(0, extent - 1))
            ends[axis] = first, draw(st.integers(first + 1, extent))
    return og.Box(**ends)


@st.composite
def posed(draw):
    """Problems with fields of regions, some of them with planes that are whole blocks of a file."""
    blocks = draw(st.booleans())
    rows = 32 if blocks else draw(st.integers(9, 24))
    shape = (draw(st.integers(9, 60)), rows, 64 if blocks else draw(st.integers(9, 40)))
    shells = st.builds(og.Shell, st.integers(1, 3), st.sampled_from(["z", "y", "x", "zy", "zyx"]))
    region = st.lists(boxes(shape), min_size=1, max_size=3) | shells
    regions = {name: draw(region) for name in draw(st.sampled_from(["m", "j", "mj"]))}
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return og.Problem(
        layered,
        shape,
        draw(st.sampled_from(["float32", "float64"])),
        steps=draw(st.integers(1, 9)),
        parameters={"k": 0.1},
        boundary=draw(st.sampled_from(["frozen", "neumann", {"x": "periodic", "z": "mirror"}])),
        initial={name: rng.random(shape) - 0.5 for name in "umj"},
        regions=regions,
    )


@st.composite
def settings_of(draw, problem):
    """How a window may be filled and used."""
    strip = draw(st.none() | st.none() | st.integers(6, 12))
    return {
        "memory": "512MiB",
        "tier": "direct",
        "depth": draw(st.integers(1, problem.steps)),
        "threads": draw(st.sampled_from([1, 2])),
    } | ({"slab_planes": draw(st.integers(1, 6))} if strip is None else {"strip_rows": strip})


def planned(problem, given):
    try:
        return pipeline.plan(problem, RunOptions.of(**given))
    except (InfeasiblePlan, UsageError):
        reject()


@given(data=st.data())
def test_every_plan_moves_what_its_updates_read(data):
    problem = data.draw(posed())
    found = planned(problem, data.draw(settings_of(problem)))
    for seed in range(2):
        total = check(found, problem.stencil, random.Random(seed))
        assert total.read_bytes == found.volume.read_bytes
        assert total.written_bytes == found.volume.written_bytes


@given(data=st.data())
@settings(max_examples=max(10, SHARE // 5))
def test_no_byte_depends_on_what_is_kept(data):
    problem = data.draw(posed())
    given = data.draw(settings_of(problem))
    planned(problem, given)
    with tempfile.TemporaryDirectory() as folder:
        plain, made = (
            pipeline.run(problem, RunOptions.of(**how, out=Path(folder) / name))
            for name, how in (("plain", {"memory": "512MiB", "scheme": "plain"}), ("made", given))
        )
        for name in ("u", "m", "j", "j.previous"):
            assert np.asarray(made[name]).tobytes() == np.asarray(plain[name]).tobytes()


@given(data=st.data())
def test_the_most_planes_together_are_those_of_some_place(data):
    extent = data.draw(st.integers(1, 40))
    ends = sorted(data.draw(st.sets(st.integers(0, extent), min_size=2, max_size=6)))
    bands = tuple(zip(ends[::2], ends[1::2], strict=False))
    planes = data.draw(st.integers(1, 100))
    there = np.zeros(extent, int)
    for first, end in bands:
        there[first:end] = 1
    stream = np.tile(there, 2 + planes // extent)
    counts = [stream[first : first + planes].sum() for first in range(extent)]
    assert most_together(bands, extent, planes) == max(counts)
    for plane in range(extent + 1):
        assert planes_below(bands, plane) == there[:plane].sum()
    assert [numbered_plane(bands, n) for n in range(there.sum())] == np.flatnonzero(there).tolist()


@given(problem=posed())
def test_rows_that_are_kept_hold_all_that_is_updated(problem):
    presence = Presence.of(problem)
    given = {"memory": "512MiB", "tier": "direct", "depth": 1, "slab_planes": 2}
    schedule = planned(problem, given).schedule
    for name in problem.regions:
        rows = schedule.row_bands(name)
        if rows is None:
            continue
        assert name == "m"  # what has two levels has layers that are copied
        kept = {row for first, end in rows for row in range(first, end)}
        assert presence is not None
        assert kept >= {row for part in presence.along(name, 1) for row in part}
        for box in problem.regions[name]:
            assert kept >= {*box[1]}
        assert sum(map(len, parts_within(rows, range(problem.shape[1])))) == len(kept)
