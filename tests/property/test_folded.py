"""Folded rows change no byte: not of a result, a snapshot, a receiver or a message."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import outgrid as og
from outgrid import pipeline
from outgrid.build.compiler import vector_bytes
from outgrid.config import RunOptions
from outgrid.errors import ExecutionError, InfeasiblePlan, UsageError
from outgrid.folding import Folding
from outgrid.plan.tiling import columns_cut, tile_slope, whole_rows
from outgrid.stencil.folded import folding_of, why_not_folded

WIDE = vector_bytes()
MOST = WIDE // 16  # rows of a group
SHARE = settings.default.max_examples

pytestmark = pytest.mark.skipif(
    WIDE == 0, reason="kernels compute with vectors of less than 32 bytes here"
)


@og.stencil
def crossing(u, v, *, k):
    """Rows and columns at once, to both sides unalike."""
    far = u[0, 2, 1] - u[0, -1, -2] + u[1, 1, 0] * v[0, -2, 2]
    return u + k * (far - v[-1, 2, 0] * u[0, 2, -2])


@og.stencil
def staged(p, q, s, *, k, damp_x, damp_y):
    """Two stages in place, with profiles along rows and columns."""
    steep = s[0, 0, 1] - s + 0.1 * (s[0, 0, 2] - s[0, 0, -1])
    high = s[0, 1, 0] - s + 0.1 * (s[0, 2, 0] - s[0, -1, 0])
    return [
        {"p": p + k * steep * damp_x.along("x"), "q": q + k * high * damp_y.along("y")},
        {"s": s + k * (p - p[0, 0, -1] + q - q[0, -2, 0] + 0.1 * p[1, 0, 0])},
    ]


@og.stencil
def high_only(u, c):
    """Three rows to one side, the level before beside its cell."""
    return u + 0.25 * (u.previous - u) + c * (u[0, 3, 0] - u[-1, 0, 2])


RULES = ("wave:4", "wave:6", "wave:8", crossing, staged, high_only)


@st.composite
def folded_problems(draw, rules=RULES, most_steps=9):
    """Problems whose rows can be folded."""
    rule = draw(st.sampled_from(rules))
    dtype = draw(st.sampled_from(["float32", "float64"]))
    columns = 64 // np.dtype(dtype).itemsize
    shape = (
        draw(st.integers(13, 40)),
        draw(st.integers(13, 50) | st.sampled_from([16, 32, 48])),
        draw(st.integers(13, 99) | st.sampled_from([2 * columns, 6 * columns])),
    )
    steps = draw(st.integers(1, most_steps))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    fields = {"u": "uc", crossing: "uv", staged: "pqs", high_only: "uc"}
    names = fields.get(rule, "uc")
    parameters = {} if isinstance(rule, str) or rule is high_only else {"k": 0.05}
    if rule is staged:
        parameters |= {"damp_x": random.random(shape[2]), "damp_y": random.random(shape[1])}
    values = {name: random.random(shape) * 0.1 for name in names}
    along = draw(st.sampled_from(["frozen", "periodic", "mirror"]))
    faces = {"z": along}
    for side in ("y-", "y+", "x-", "x+"):
        faces[side] = draw(st.sampled_from(["frozen", "frozen", "neumann", "mirror"]))
    if draw(st.booleans()):
        faces |= {"x-": "periodic", "x+": "periodic"}
    seen = names[0]
    inside = [st.integers(extent // 3, extent // 2) for extent in shape]
    places = [tuple(draw(one) for one in inside) for _ in range(3)]
    return og.Problem(
        rule,
        shape,
        dtype,
        steps,
        parameters,
        faces,
        values,
        sources=[og.Source(seen, places[0], list(random.random(steps)))],
        receivers=[og.Receiver(seen, place) for place in places[1:]],
        snapshots=[
            og.Snapshot(seen, every=2, z="::3", y="1:-2:2", x=draw(st.sampled_from([":", "2::3"])))
        ],
    )


@st.composite
def ways(draw):
    """Ways to run a problem with folded rows."""
    tier = draw(st.sampled_from(["direct", "memory"]))
    depth = draw(st.integers(1, 6))
    given = {
        "tier": tier,
        "depth": depth,
        "slab_planes": draw(st.none() | st.integers(1, 6)) if tier == "direct" else None,
        "threads": draw(st.integers(1, 3)),
        "tile_rows": draw(st.none() | st.integers(1, 40)),
        "tile_group": draw(st.none() | st.sampled_from([1, 2, 4, 8])),
        "request_bytes": draw(st.sampled_from([1 << 12, 1 << 16])),
    }
    if tier == "direct":
        given["strip_rows"] = draw(st.none() | st.sampled_from([4, 8, 12, 20]))
    if depth > 1:
        given["tile_band"] = draw(st.none() | st.integers(1, 12))
        given["tile_columns"] = draw(st.none() | st.integers(1, 60))
        given["tile_fetch"] = draw(st.none() | st.booleans())
    return given


def answer(problem, folder, **options):
    """All that a run leaves: fields, what receivers saw, snapshots."""
    out = folder / f"{options['fold']}"
    result = pipeline.run(problem, RunOptions.of(memory="1GiB", out=out, **options))
    assert (result.record.plan.folded is not None) == (options["fold"] == "always")
    fields = {field.name: np.array(result[field.name]) for field in problem.stencil.lasting}
    frames = [np.array(frames) for frames in result.snapshots]
    return [*fields.values(), result.traces, *frames]


@settings(max_examples=max(8, SHARE // 2))
@given(problem=folded_problems(), way=ways())
def test_any_way_gives_the_bytes_of_rows_that_are_not_folded(problem, way):
    if columns_cut(problem):
        way["tile_columns"] = None
    with tempfile.TemporaryDirectory() as folder:
        plain = {"fold": "never", "tier": "memory", "scheme": "plain"}
        expected = answer(problem, Path(folder), **plain)
        try:
            found = answer(problem, Path(folder), fold="always", **way)
        except InfeasiblePlan:  # a closed grid needs so many planes for a slab and a depth
            reject()
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


@given(problem=folded_problems(), levels=st.integers(1, 20))
def test_edges_of_tiles_lie_between_folded_rows(problem, levels):
    rows = folding_of(problem, WIDE).rows
    assert rows == (2 if problem.stencil.radius[1] == 2 else MOST)
    other = problem.folding(folding_of(problem, WIDE))
    assert other == problem
    assert other.stencil.digest != problem.stencil.digest
    slope = tile_slope(other.stencil, other.dtype, other.edges)
    assert {n % rows for n in (slope.unit, slope.per_step, *slope.falls, *slope.rises)} == {0}
    assert slope.per_step >= tile_slope(problem.stencil, problem.dtype, problem.edges).per_step
    assert levels <= whole_rows(other, levels) < levels + rows
    assert whole_rows(other, levels) % rows == 0
    assert whole_rows(problem, levels) == levels


@pytest.mark.parametrize(
    ("rule", "change", "reason"),
    [
        ("heat7", {}, "less than two rows"),
        ("wave:8", {"boundary": {"y": "periodic", "x": "frozen", "z": "frozen"}}, "come round"),
        ("wave:8", {"boundary": {"x": "odd", "y": "frozen", "z": "frozen"}}, "change their sign"),
        ("wave:8", {"dtypes": {"c": "float16"}}, "other types"),
    ],
)
def test_what_cannot_be_folded_is_told(tmp_path, rule, change, reason):
    shape = (20, 32, 32)
    dtypes = change.get("dtypes", {})
    initial = {"u": 1.0} if rule == "heat7" else {"u": 1.0, "c": 0.1}
    around = change.get("boundary", "frozen")
    problem = og.Problem(rule, shape, "float32", 2, boundary=around, initial=initial, dtypes=dtypes)
    assert folding_of(problem, WIDE) is None
    options = RunOptions.of(memory="1GiB", out=tmp_path / "out", fold="always")
    with pytest.raises(UsageError, match=f"fold = 'always' is not for this run: .*{reason}"):
        pipeline.run(problem, options)
    told = pipeline.run(problem, RunOptions.of(memory="1GiB", out=tmp_path / "out")).record.plan
    assert told.folded is None


def test_two_dimensions_have_one_row_for_a_plane():
    problem = og.Problem("wave:8", (40, 64), "float32", 1, initial={"u": 0.0, "c": 0.1})
    assert folding_of(problem, WIDE) is None
    assert "one row" in why_not_folded(problem)


def test_two_rows_are_worth_it_in_memory_only(tmp_path):
    initial = {"u": 0.0, "c": 0.1}
    near, far = (
        og.Problem(rule, (600, 512, 512), "float32", 48, initial=initial)
        for rule in ("wave:4", "wave:6")
    )

    def folded(problem, memory):
        return pipeline.plan(problem, RunOptions.of(memory=memory, out=tmp_path / "out")).folded

    assert folded(near, "256MiB") is None
    assert folded(near, "8GiB") == Folding(2, WIDE)
    assert folded(far, "256MiB") == folded(far, "8GiB") == Folding(MOST, WIDE)


def test_strips_are_whole_folded_rows(tmp_path):
    initial = {"u": 0.0, "c": 0.1}
    problem = og.Problem("wave:8", (600, 2048, 1024), "float32", 48, initial=initial)
    for memory in ("256MiB", "400MiB", "1GiB"):
        chosen = pipeline.plan(problem, RunOptions.of(memory=memory, out=tmp_path / "out"))
        assert chosen.folded == Folding(MOST, WIDE)
        assert f"folded: {MOST} rows share each vector" in chosen.notes
        assert chosen.schedule.cutting.trips(chosen.depth) > 1
        assert chosen.schedule.strips.height % MOST == chosen.layout.window_rows % MOST == 0
    other = RunOptions.of(memory="1GiB", out=tmp_path / "out", strip_rows=33)
    assert pipeline.plan(problem, other).folded is None


@pytest.mark.parametrize("rule", ["wave:8", "wave:6"])
@pytest.mark.parametrize("rows", [2048, 2047, 2045])
def test_the_window_of_strips_holds_whole_groups(tmp_path, rule, rows):
    problem = og.Problem(rule, (600, rows, 1021), "float32", 48, initial={"u": 0.0, "c": 0.1})
    for memory in ("256MiB", "300MiB", "400MiB"):
        options = RunOptions.of(memory=memory, out=tmp_path / "out", fold="always")
        chosen = pipeline.plan(problem, options)
        schedule, held = chosen.schedule, chosen.layout.window_rows
        assert schedule.cutting.trips(chosen.depth) > 1
        for trip in schedule.trips:
            origin = schedule.passage(trip).row_origin
            assert origin % chosen.folded.rows == 0
            last = min(rows, origin + schedule.window_rows)
            assert last + -last % chosen.folded.rows - origin <= held


@pytest.mark.parametrize("shape", [(24, 32, 48), (24, 33, 50)])
@pytest.mark.parametrize("fold", ["never", "always"])
def test_the_first_value_that_is_not_finite_is_found_where_it_is(tmp_path, fold, shape):
    values = np.full(shape, 1e-3, np.float32)
    values[11, 17, shape[2] - 9] = 3e38
    problem = og.Problem("wave:8", values.shape, "float32", 6, initial={"u": values, "c": 3.0})
    options = RunOptions.of(memory="1GiB", out=tmp_path / "out", fold=fold, depth=4)
    with pytest.raises(ExecutionError) as caught:
        pipeline.run(problem, options)
    told[shape, fold] = str(caught.value).replace(str(tmp_path), "")
    assert len({text for (of, _), text in told.items() if of == shape}) == 1


told = {}  # by the grid and how rows lie


@pytest.mark.parametrize("before", ["never", "always"])
def test_a_run_goes_on_however_its_rows_lay(tmp_path, before):
    shape = (64, 31, 45)
    values = {"u": "sin(3 * x + y * z)", "c": "0.1 + 0.01 * cos(x)"}
    problem = og.Problem("wave:8", shape, "float32", 12, initial=values)
    rest = {"memory": "1GiB", "tier": "direct", "depth": 3, "slab_planes": 4}
    expected = pipeline.run(problem, RunOptions.of(out=tmp_path / "whole", fold="never", **rest))
    half = problem.ending(6)
    first = pipeline.run(half, RunOptions.of(out=tmp_path / "half", fold=before, **rest))
    after = "always" if before == "never" else "never"
    begun = {"u": np.array(first["u"]), "u.previous": np.array(first["u.previous"])}
    problem = og.Problem("wave:8", shape, "float32", 6, initial=begun | {"c": values["c"]})
    found = pipeline.run(problem, RunOptions.of(out=tmp_path / "rest", fold=after, **rest))
    np.testing.assert_array_equal(np.array(found["u"]), np.array(expected["u"]))


@pytest.mark.parametrize(
    ("order", "shape", "width"),
    [(4, (52, 51, 61), 7), (8, (60, 44, 96), 10), (8, (60, 46, 93), 10)],
)
@pytest.mark.parametrize(
    "way",
    [
        {"tier": "memory", "scheme": "plain"},
        {"tier": "direct", "depth": 7, "slab_planes": 2, "strip_rows": 20},
        {"tier": "direct", "depth": 4, "slab_planes": 4, "tile_group": 2},
    ],
    ids=["plain", "strips", "planes"],
)
def test_fields_of_layers_are_there_and_absent_in_folded_rows(tmp_path, order, shape, width, way):
    layers = og.matched_layers(shape, width, courant=0.4, frequency=0.02)
    middle = "".join(f" + ({axis} - {n // 2})**2" for axis, n in zip("zyx", shape, strict=True))
    begun = {
        "p": f"exp(-(0{middle}) / 10)",
        "slope": 0.0,
        "bend": 0.0,
        "c": "0.16 - 0.05 * (z > 20)",
    }
    problem = og.Problem(f"acoustic_pml:{order}", shape, "float32", 36, layers, initial=begun)
    plain = {"tier": "memory", "scheme": "plain"}
    found = {}
    for fold, options in (("never", plain), ("always", way)):
        out = tmp_path / fold
        result = pipeline.run(problem, RunOptions.of(memory="1GiB", out=out, fold=fold, **options))
        found[fold] = {
            field.name: np.array(result[field.name]) for field in problem.stencil.lasting
        }
    for name, values in found["never"].items():
        np.testing.assert_array_equal(values, found["always"][name], err_msg=name)
    assert np.abs(found["never"]["p"]).max() > 0.01
