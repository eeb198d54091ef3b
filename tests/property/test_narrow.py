"""Fields that exist in some columns: kept in those alone, with the bytes of whole rows."""

import random
import tempfile
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import event, given, reject, settings
from hypothesis import strategies as st

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import InfeasiblePlan, UsageError
from outgrid.plan.presence import Presence, column_bands
from outgrid.testing.counting import check


@pytest.fixture(autouse=True, scope="module", params=[1, 4 << 20], ids=["pieces", "whole"])
def pieces(request):
    """Also what small slabs move, in pieces."""
    with patch("outgrid.plan.program.PIECE_BYTES", request.param):
        yield


@og.stencil
def shelled(u, m, n, w, *, k):
    """A field everywhere, two near faces of x that read far, and one in another part."""
    return [
        {
            "m": 0.5 * m + 0.1 * (u[0, 0, 2] - u[0, 0, -1] + u[1, 0, 0] - u[0, -1, 0]),
            "w": 0.3 * w + 0.1 * u[0, 1, 1],
        },
        {
            "n": 0.4 * n + 0.2 * (m[0, 0, 1] - m[0, 0, -2]) + 0.1 * w[0, 0, 1],
            "u": u
            + k * og.laplacian(u)
            + 0.2 * (m[1, 0, 0] - m[0, -1, 0] + m[0, 0, 1] - m[0, 0, -1])
            - 0.1 * (n + w),
        },
    ]


NAMES = ("u", "m", "n", "w")


@st.composite
def columns(draw, extent):
    """Boxes of some columns, or a shell at the faces of x."""
    if draw(st.booleans()):
        return og.Shell(draw(st.integers(1, 12)), axes="x")
    ends = sorted(draw(st.sets(st.integers(0, extent), min_size=2, max_size=4)))
    ends = ends[: len(ends) // 2 * 2]
    return [og.Box(x=pair) for pair in zip(ends[::2], ends[1::2], strict=True)]


@st.composite
def posed(draw):
    """Problems with fields that exist in some columns, most of them in few."""
    blocks = draw(st.booleans())
    dtype = draw(st.sampled_from(["float32", "float64"]))
    line = 64 // np.dtype(dtype).itemsize
    rows = 16 if blocks else draw(st.integers(9, 20))
    extent = draw(st.integers(4, 8)) * line + (0 if blocks else draw(st.integers(0, line - 1)))
    shape = (draw(st.integers(9, 40)), rows, extent)
    there = draw(columns(extent))
    other = draw(st.none() | st.builds(og.Shell, st.integers(1, 3), st.sampled_from(["z", "y"])))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return og.Problem(
        shelled,
        shape,
        dtype,
        steps=draw(st.integers(1, 9)),
        parameters={"k": 0.1},
        boundary=draw(st.sampled_from(["frozen", "frozen", "frozen", {"z": "neumann"}])),
        initial={name: rng.random(shape) - 0.5 for name in NAMES},
        regions={"m": there, "n": there} | ({"w": other} if other else {}),
        dtypes=draw(
            st.sampled_from([{}, {}, {"m": "float16" if dtype == "float32" else "float32"}])
        ),
        receivers=draw(st.sampled_from([[], [], [], [og.Receiver("n", (4, 4, extent // 2))]])),
    )


@st.composite
def settings_of(draw, problem):
    """How a window may be filled and used."""
    return {
        "memory": "512MiB",
        "tier": "direct",
        "depth": draw(st.integers(1, problem.steps)),
        "threads": draw(st.sampled_from([1, 2])),
        "slab_planes": draw(st.integers(1, 6)),
        "require": draw(st.sampled_from([(), (), ("mlock",)])),
    }


def planned(problem, given):
    try:
        return pipeline.plan(problem, RunOptions.of(**given))
    except (InfeasiblePlan, UsageError):
        reject()


def narrow(plan):
    """The fields whose rows are kept in parts, and these."""
    return {ring.field: ring.columns for ring in plan.schedule.rings if ring.columns is not None}


@given(data=st.data())
def test_no_byte_depends_on_the_columns_that_are_kept(data):
    problem = data.draw(posed())
    given = data.draw(settings_of(problem))
    found = narrow(planned(problem, given))
    event(f"narrow: {bool(found)}")
    with tempfile.TemporaryDirectory() as folder:
        plain, made = (
            pipeline.run(problem, RunOptions.of(**how, out=Path(folder) / name))
            for name, how in (("plain", {"memory": "512MiB", "scheme": "plain"}), ("made", given))
        )
        assert narrow(made.record.plan) == found
        assert not narrow(plain.record.plan)
        for name in NAMES:
            assert np.asarray(made[name]).tobytes() == np.asarray(plain[name]).tobytes()


@given(data=st.data())
@settings(max_examples=50)
def test_columns_that_are_kept_hold_all_that_is_updated(data):
    problem = data.draw(posed())
    plan = planned(problem, data.draw(settings_of(problem)))
    check(plan, problem.stencil, random.Random(1))
    found = narrow(plan)
    assert not found or found == column_bands(problem)[0]
    for name, bands in found.items():
        assert name in "mn"
        kept = {column for first, end in bands for column in range(first, end)}
        presence = Presence.of(problem)
        assert presence is not None
        assert kept == {column for part in presence.along(name, 2) for column in part}
        own = plan.layout.of(name)
        assert own.row_stride_bytes <= 0.75 * plan.layout.row_stride_bytes
        tail = (plan.layout.window_rows - 1) * own.row_stride_bytes + own.row_bytes
        assert tail <= own.pitch_bytes <= plan.layout.of("u").pitch_bytes
