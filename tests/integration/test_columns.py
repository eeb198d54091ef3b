"""Which fields are kept in the columns alone that they exist in, and what runs do with them."""

import ctypes
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
from outgrid.execute.moves import parts_of_rows
from outgrid.execute.window import Window
from outgrid.native import Buffer
from outgrid.plan.presence import Presence, column_bands
from outgrid.plan.program import Gate, Get
from outgrid.plan.schedule.subgrid import Box
from outgrid.storage import MemoryStore, Planes, Transfers
from outgrid.testing.counting import check


@og.stencil
def shelled(u, m, n, w, *, k, g=0.1):
    """A field everywhere, two near faces of x that read far, and one in another part."""
    return [
        {
            "m": 0.5 * m + g * (u[0, 0, 2] - u[0, 0, -1] + u[1, 0, 0] - u[0, -1, 0]),
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


SHAPE = (24, 12, 96)
SHELL = og.Shell(5, axes="x")
BOX = Box(range(3), range(SHAPE[1]))
STREAMED = {"memory": "512MiB", "tier": "direct", "depth": 3, "slab_planes": 2}


def narrow(plan):
    """The fields whose rows are kept in parts, and these."""
    return {ring.field: ring.columns for ring in plan.schedule.rings if ring.columns is not None}


def some(steps=8, regions=None, **given):
    rng = np.random.default_rng(3)
    initial = {name: rng.random(SHAPE) - 0.5 for name in NAMES}
    regions = {"m": SHELL, "n": SHELL} if regions is None else regions
    how = {"parameters": {"k": 0.1}, "initial": initial, "regions": regions} | given
    return og.Problem(shelled, SHAPE, "float32", steps=steps, **how)


def test_columns_are_kept_apart_where_whole_planes_are_streamed_in_front_of_files():
    def kept(problem, **given):
        return narrow(pipeline.plan(problem, RunOptions.of(**STREAMED | given)))

    bands = ((0, 16), (80, 96))
    assert kept(some()) == {"m": bands, "n": bands}
    assert kept(some(regions={"m": SHELL, "n": SHELL, "w": og.Shell(2, axes="y")}))
    # In the planner's words.
    said = "\n".join(pipeline.plan(some(), RunOptions.of(**STREAMED)).notes)
    assert "of m, n the columns that exist are kept" in said
    unlike = [
        some(regions={"m": og.Shell(30, axes="x"), "n": og.Shell(30, axes="x")}),  # most columns
        some(regions={"m": SHELL}),  # read by a stage that is not told where it is absent
        some(regions={"m": og.Shell(5), "n": og.Shell(5)}),  # of rows and planes, too
        some(boundary={"x": "periodic"}),
        some(boundary={"y": "mirror"}),
        some(receivers=[og.Receiver("m", (5, 5, 5))]),
        some(snapshots=[og.Snapshot("n", every=2)]),
        some(sources=[og.Source("m", (5, 5, 4), 1.0)]),
    ]
    assert [n for n, problem in enumerate(unlike) if kept(problem)] == []
    assert not kept(some(), tier="mmap")
    assert not kept(some(), require="mlock")
    assert not kept(some(), depth=2, slab_planes=None, strip_rows=6)
    assert not kept(some(), depth=8, tier="memory", slab_planes=None)


@pytest.mark.parametrize("advances", [5, 20])
def test_a_run_that_was_cut_off_goes_on_to_the_same_bytes(advances, tmp_path, cut_off):
    plain = pipeline.run(some(), RunOptions.of(memory="512MiB", scheme="plain", out=tmp_path / "p"))
    run = RunOptions.of(**STREAMED, commit_every=0, out=tmp_path / "r")
    cut_off(advances, lambda: pipeline.run(some(), run))
    made = pipeline.resume(tmp_path / "r", run)
    for name in NAMES:
        assert np.asarray(made[name]).tobytes() == np.asarray(plain[name]).tobytes()


@pytest.mark.parametrize("place", [(7, 3, 2), (7, 9, 3), (7, 9, 92)])
def test_what_becomes_infinite_is_found_where_it_is(place, tmp_path):
    """Where rows are kept in parts, other rows' values lie between those of one."""
    grows = {"u": np.zeros(SHAPE, np.float32)}
    grows["u"][place] = 3e38
    given = {"k": 0.1, "g": 9.0}
    posed = some(initial=dict.fromkeys(NAMES, 0.0) | grows, parameters=given)
    said: list[str] = []
    for name, how in (("plain", {"memory": "512MiB", "scheme": "plain"}), ("made", STREAMED)):
        with pytest.raises(og.ExecutionError, match="m became infinite in step 1 ") as failed:
            pipeline.run(posed, RunOptions.of(**how, out=tmp_path / name))
        said.append(str(failed.value).partition(", first in cell")[2].partition(";")[0])
    assert said[0] == said[1]


def test_a_window_gives_whole_rows_of_what_it_keeps_in_parts():
    """Also where something is not +0, and the memory that a plane is in."""
    plan = pipeline.plan(some(), RunOptions.of(**STREAMED))
    ring = plan.schedule.ring_of["m", 0]
    rows, columns = SHAPE[1:]
    rng = np.random.default_rng(1)
    planes = np.zeros((3, rows, columns), np.float32)
    for first, end in ring.columns:
        planes[:, :, first:end] = rng.random((3, rows, end - first)) + 1
    window = Window(plan, take=lambda _, nbytes: Buffer(nbytes))
    move = Get(0, plan.schedule.trips[0], "m", 0, 0, 0, 0, 3, range(rows), None, BOX, gate=Gate())
    with Transfers("threads") as transfers:
        store = MemoryStore("m", planes.copy(), transfers)
        there = Planes(
            window.addresses(move),
            plan.layout.of("m").row_stride_bytes,
            window,
            parts=parts_of_rows(plan, "m"),
        )
        store.get(range(3), range(rows), there)
        transfers.wait(10)
        for view, plane in zip(window.views(move), planes, strict=True):
            assert (view == plane).all()
        assert window.some_set(move, [(4, 3)]).tolist() == [True] * 3
        assert window.some_set(move, [(4, 40), (3, 79)]).tolist() == [False] * 3
        for slot in range(3):
            for address, nbytes in window.slot_memory("m", 0, slot):
                ctypes.memset(address, 0, nbytes)
        assert not any(view.any() for view in window.views(move))
        store.get(range(1, 2), range(rows), there.part(slice(1, 2)))
        transfers.wait(10)
        assert [view.any() for view in window.views(move)] == [False, True, False]
    window.release()


@pytest.fixture(scope="module", params=[1, 4 << 20], ids=["pieces", "whole"])
def pieces(request):
    """Also what small slabs move, in pieces."""
    with patch("outgrid.plan.program.PIECE_BYTES", request.param):
        yield


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


@pytest.mark.usefixtures("pieces")
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


@pytest.mark.usefixtures("pieces")
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
