"""Fields that exist in a part of the grid: +0 outside, and the same bytes for all settings."""

import random
from pathlib import Path

import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.cli import main
from outgrid.config import RunOptions
from outgrid.errors import DefinitionError, ExecutionError
from outgrid.execute.window import Window
from outgrid.plan.layout import plane_bytes
from outgrid.plan.schedule.rings import Ring
from outgrid.stencil.problem import Problem
from outgrid.testing.counting import check
from outgrid.testing.reference import run_reference
from outgrid.testing.threads import in_threads

SHAPE, STEPS = (31, 17, 41), 7
BOX = {"z": [9, 14], "y": [3, 9], "x": [12, 30]}


@og.stencil
def coupled(u, m, j, c, *, k):
    """A field everywhere, one near faces, one with two levels in boxes, a coefficient in one."""
    return [
        {"m": 0.5 * m + 0.1 * (u[0, 0, 1] - u[0, 0, -1] + u[1, 0, 0])},
        {"j": j + 0.3 * (j - j.previous) + m[0, 1, 0] * j[0, 0, 1] + 0.01},
        {"u": u + k * og.laplacian(u) + 0.2 * (m[1, 0, 0] - m[0, -1, 0]) - 0.1 * j * c[0, 0, -1]},
    ]


def problem(regions=None, **given):
    rng = np.random.default_rng(5)
    initial = {name: rng.random(SHAPE) - 0.5 for name in ("u", "m", "j", "c")}
    usual = {
        "m": og.Shell(4, axes="z"),
        "j": [og.Box(**{axis: tuple(ends) for axis, ends in BOX.items()}), og.Box(z=(25, 27))],
        "c": og.Box(z=(11, 20)),
    }
    return Problem(
        coupled,
        SHAPE,
        "float64",
        STEPS,
        {"k": 0.1},
        {"z": "neumann", "y": "mirror"},
        initial,
        regions=usual if regions is None else regions,
        **given,
    )


def outside(posed, name):
    absent = np.ones(SHAPE, bool)
    for box in posed.regions[name]:
        absent[tuple(slice(part.start, part.stop) for part in box)] = False
    return absent


def bytes_of(result):
    return {name: np.asarray(result[name]).tobytes() for name in ("u", "m", "j", "j.previous")}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    out = tmp_path_factory.mktemp("regions") / "plain"
    return pipeline.run(problem(), RunOptions.of(memory="512MiB", scheme="plain", out=out))


def test_it_is_what_the_reference_makes(plain):
    posed = problem()
    for name, cells in run_reference(posed).items():
        if name == "c":
            assert not cells[outside(posed, name)].any()
            continue
        made = np.asarray(plain[name])
        assert np.allclose(made, cells, rtol=1e-12, atol=1e-12)
        if name in posed.regions:
            assert not made[outside(posed, name)].tobytes().strip(b"\0")
            assert made.any()


@pytest.mark.parametrize(
    "given",
    [
        {"tier": "direct", "depth": 3, "slab_planes": 2},
        {"tier": "direct", "depth": 2, "strip_rows": 8},
        {"tier": "mmap", "depth": 7},
        {"depth": 4, "threads": 2},
    ],
    ids=str,
)
def test_all_settings_give_the_same_bytes(given, plain, tmp_path):
    made = pipeline.run(problem(), RunOptions.of(memory="512MiB", out=tmp_path / "r", **given))
    assert bytes_of(made) == bytes_of(plain)


def test_a_region_of_all_cells_is_none():
    assert not problem({"m": og.Shell(40), "j": og.Box()}).regions


def test_problems_are_read_as_they_were_written():
    posed = problem().replace(initial={"u": 0.5, "m": 1.0, "j": "z", "c": 2.0})
    assert Problem.from_dict(posed.to_dict()) == posed
    smaller = posed.replace(shape=(30, 17, 41))
    assert smaller.regions["m"][1][0] == range(26, 30)


def test_kernels_do_not_depend_on_where_regions_are():
    other = problem({"m": og.Shell(5, "z"), "j": [BOX, {"z": [20, 30]}], "c": og.Box(z=(1, 2))})
    assert other.stencil == problem().stencil


@pytest.mark.parametrize("given", [(), ("x - 20",)], ids=["the default", "a formula"])
def test_a_parameter_may_be_called_as_if_it_were_of_a_region(given, tmp_path):
    def other(u, m, *, c=0.5):
        kept = og.where(c.along("x") > 0, 0.5 * m + 0.1 * u[1, 0, 0], 0.0)
        return {"u": u + c.along("x") * m[0, 0, 1], "m": kept}

    def like(u, m, *, within_x_1=0.5):
        return other(u, m, c=within_x_1)

    def made(rule, name):
        initial = {field: np.random.default_rng(3).random(SHAPE) for field in ("u", "m")}
        numbers = dict(zip((name,), given, strict=False))
        regions = {"m": og.Box(x=(12, 30))}
        posed = Problem(rule, SHAPE, "float64", 4, numbers, initial=initial, regions=regions)
        result = pipeline.run(posed, RunOptions.of(memory="512MiB", out=tmp_path / name))
        return [np.asarray(result[field]).tobytes() for field in ("u", "m")]

    assert made(og.stencil(like), "within_x_1") == made(og.stencil(other), "c")


def test_lines_and_vectors_have_regions():
    @og.stencil
    def still(v: og.Vector):
        return {"v": {axis: v[axis] for axis in v}}

    posed = Problem(still, (20, 30), initial={"v": 1.0}, regions={"v": {"width": 3, "axes": "x"}})
    assert {*posed.regions} == {"v_y", "v_x"}
    for parts in ({"v": og.Shell(2), "v_x": og.Box()}, {"v_x": og.Box(), "v": og.Shell(2)}):
        assert {*posed.replace(regions=parts).regions} == {"v_y"}
    for types in ({"v": "float32", "v_x": "float64"}, {"v_x": "float64", "v": "float32"}):
        assert posed.replace(dtypes=types).dtypes == {"v_y": "float32"}
    apart = Problem(
        og.stencil(lambda u, u_x: (u, u_x)), (9, 9), initial={"u": 1, "u_x": 1},
        regions={"u": og.Shell(2)},
    )  # fmt: skip
    assert {*apart.regions} == {"u"}
    line = Problem(og.stencil(lambda u: u), (30,), initial={"u": 1.0}, regions={"u": og.Shell(4)})
    assert np.array_equal(run_reference(line)["u"][0, :5], [1, 1, 1, 1, 0])


@pytest.mark.parametrize(
    ("regions", "words"),
    [
        ({"q": og.Shell(3)}, "no field 'q'"),
        ({"m": 3}, "give outgrid.Shell"),
        ({"m": og.Shell(3), "j": []}, "give outgrid.Shell"),
        ({"m": {"x": 3}}, "must be a range"),
        ({"m": {"x": (30, 10)}}, "no cell"),
        ({"m": {"x": (0, 10, 2)}}, "must be a range"),
        ({"m": {"wide": 3}}, "no entry 'wide'"),
        ([3], "such as"),
    ],
    ids=str,
)
def test_mistakes_are_told(regions, words):
    with pytest.raises(DefinitionError, match=words):
        problem(regions)


def test_a_source_outside_of_a_region_is_refused():
    with pytest.raises(DefinitionError, match="outside of the region"):
        problem(sources=[og.Source("m", (15, 5, 5), 1.0)])
    problem(sources=[og.Source("m", (2, 5, 5), 1.0)])


def test_blocks_hold_a_mask():
    mask = np.zeros((30, 40))
    mask[3:5, 4:6] = mask[20:25, 10:12] = mask[3, 30] = 1
    found = og.blocks(mask, beside=1)
    inside = np.zeros(mask.shape, bool)
    for box in found:
        inside[slice(*box.y), slice(*box.x)] = True
    assert len(found) == 3
    assert inside[mask > 0].all()
    assert inside.sum() < 80
    with pytest.raises(DefinitionError, match="at least one cell that is not 0"):
        og.blocks(np.zeros((3, 4)))


def planned(**given):
    return pipeline.plan(problem(), RunOptions.of(memory="512MiB", **given))


@pytest.mark.parametrize(
    "given",
    [
        {"tier": "direct", "depth": 3, "slab_planes": 2},
        {"tier": "direct", "depth": 2, "strip_rows": 8},
        {"tier": "mmap", "depth": 7, "slab_planes": 1},
    ],
    ids=str,
)
def test_planes_without_a_field_are_not_moved(given):
    plan, stencil = planned(**given), problem().stencil
    for seed in range(3):
        total = check(plan, stencil, random.Random(seed))
        assert total.read_bytes == plan.volume.read_bytes
        assert total.written_bytes == plan.volume.written_bytes
    whole = pipeline.plan(problem({}), RunOptions.of(memory="512MiB", **given))
    assert plan.volume.disk_bytes < 0.6 * whole.volume.disk_bytes
    assert plan.volume.fill_bytes < 0.6 * whole.volume.fill_bytes


def test_the_planes_that_are_kept_are_those_of_the_regions():
    posed, schedule = problem(), planned(tier="direct", depth=3).schedule
    assert schedule.bands("u") is None
    for name in posed.regions:
        planes = (~outside(posed, name)).any(axis=(1, 2))
        kept = [plane for first, end in schedule.bands(name) for plane in range(first, end)]
        assert kept == np.flatnonzero(planes).tolist()


def test_a_plane_that_is_left_out_by_mistake_is_noticed(monkeypatch):
    plan = planned(tier="direct", depth=3, slab_planes=2)
    right = Ring.present

    def short(ring, planes):
        for part in right(ring, planes):
            yield part[:-1] if part.stop == 27 else part

    monkeypatch.setattr(Ring, "present", short)
    with pytest.raises(ExecutionError):
        check(plan, problem().stencil, random.Random(1))


NARROW = {"m": og.Shell(3, axes="y"), "c": og.Box(z=(11, 20))}


def test_rows_that_are_kept_are_those_of_whole_planes_in_front_of_files():
    def rows(regions=None, **given):
        found = pipeline.plan(problem(regions or NARROW), RunOptions.of(memory="512MiB", **given))
        return found.schedule.row_bands("m")

    streamed = {"depth": 3, "slab_planes": 2}
    assert rows(tier="direct", **streamed) == ((0, 4), (13, 17))
    assert rows({"m": og.Shell(6, axes="y")}, tier="direct", **streamed) is None  # most of them
    assert rows({"m": og.Shell(3)}, tier="direct", **streamed) is None
    assert rows(tier="direct", depth=3, require="mlock", slab_planes=2) is None
    assert rows(tier="direct", depth=2, strip_rows=8) is None
    assert rows(tier="mmap", **streamed) is None
    assert rows(depth=7) is None  # the grid is resident


@pytest.mark.parametrize("advances", [5, 20])
def test_narrow_fields_leave_the_same_bytes(advances, tmp_path, cut_off):
    posed, given = problem(NARROW), {"memory": "512MiB", "tier": "direct"}
    plain = pipeline.run(posed, RunOptions.of(**given, scheme="plain", out=tmp_path / "p"))
    run = RunOptions.of(**given, depth=3, slab_planes=2, commit_every=0, out=tmp_path / "r")
    cut_off(advances, lambda: pipeline.run(posed, run))
    assert bytes_of(pipeline.resume(tmp_path / "r", run)) == bytes_of(plain)
    assert main(["verify", str(tmp_path / "r")]) == 0


def test_memory_of_rows_without_a_field_is_never_written(monkeypatch, tmp_path):
    @og.stencil
    def pair(u, m):
        return [
            {"m": 0.5 * m + 0.1 * u[0, 1, 0]},
            {"u": u + 0.1 * og.laplacian(u) + 0.1 * (m[0, 1, 0] - m[0, -2, 0])},
        ]

    shape, release, seen = (60, 512, 64), Window.release, {}
    values = np.random.default_rng(2).random(shape, np.float32)
    regions = {"m": og.Shell(9, axes="y")}
    posed = Problem(pair, shape, "float32", 12, initial={"u": values, "m": values}, regions=regions)

    def looked(window):
        for ring, buffer in zip(window._plan.schedule.rings, window._buffers, strict=True):
            seen[ring.field] = ring, window._plan, memory_given(buffer.address)
        release(window)

    monkeypatch.setattr(Window, "release", looked)
    run = RunOptions.of(memory="256MiB", tier="direct", depth=6, slab_planes=4, out=tmp_path / "r")
    made = pipeline.run(posed, run)
    ring, plan, given = seen["m"]
    assert ring.rows == ((0, 16), (496, 512))
    counted = ring.held * plane_bytes(ring, plan.layout)
    assert 0.5 * counted < given <= counted
    assert counted < 0.2 * ring.held * plan.layout.pitch_bytes < seen["u"][2]
    expected = run_reference(posed)
    assert np.allclose(np.asarray(made["m"]), expected["m"], rtol=1e-5, atol=1e-5)


def memory_given(address):
    """Bytes of memory that the mapping at an address takes."""
    there = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *words = line.split()
        if name.count("-") == 1 and not name.endswith(":"):
            first, end = (int(part, 16) for part in name.split("-"))
            there = first <= address < end
        elif there and name == "Rss:":
            return int(words[0]) << 10
    raise AssertionError(hex(address))


@pytest.mark.parametrize("given", [{}, {"strip_rows": 8}], ids=str)
@pytest.mark.parametrize("advances", [9, 14, 23])
def test_a_run_that_was_cut_off_goes_on(given, advances, plain, tmp_path, cut_off):
    out = tmp_path / "r"
    settings = {"memory": "512MiB", "tier": "direct", "depth": 2, "slab_planes": 2}
    run = RunOptions.of(out=out, commit_every=0, **settings | given)
    cut_off(advances, lambda: pipeline.run(problem(), run))
    assert bytes_of(pipeline.resume(out, run)) == bytes_of(plain)
    assert main(["verify", str(out)]) == 0


def test_files_have_no_space_for_planes_without_a_field(tmp_path):
    run = RunOptions.of(memory="512MiB", tier="direct", depth=2, slab_planes=2, out=tmp_path / "r")
    result = pipeline.run(problem({"m": og.Box(z=(3, 5))}), run)
    kept, whole = (result.path(name).stat() for name in ("m", "u"))
    assert kept.st_size == whole.st_size
    assert kept.st_blocks < 0.5 * whole.st_blocks
    assert main(["verify", str(tmp_path / "r")]) == 0


@pytest.mark.parametrize("count", [2])
@pytest.mark.parametrize("scheme", ["skewed", "overlapped"])
def test_ranks_and_blocks_leave_the_same_bytes(scheme, count, tmp_path):
    posed = one_stage()
    answer = pipeline.run(posed, RunOptions.of(memory="1GiB", scheme="plain", out=tmp_path / "p"))
    given = RunOptions.of(memory="1GiB", scheme=scheme, depth=2, threads=1, out=tmp_path / "r")
    made = in_threads(
        lambda comm: pipeline.run(posed, given, comm=comm), count, random.Random(count)
    )[0]
    for name in ("u", "m"):
        assert np.array_equal(np.asarray(made[name]), np.asarray(answer[name]))
    assert not np.asarray(made["m"])[10:].any()


def one_stage():
    @og.stencil
    def pair(u, m):
        return {"u": u + 0.1 * og.laplacian(u) + m[1, 0, 0], "m": 0.9 * m + 0.1 * u[0, 0, 1]}

    values = np.random.default_rng(1).random((40, 12, 13))
    regions = {"m": og.Shell(6, "z", "low")}
    return Problem(pair, values.shape, steps=5, initial={"u": values, "m": values}, regions=regions)


def test_gradients_know_regions(tmp_path):
    @og.stencil
    def pair(u, m, c):
        slope = 0.5 * m + 0.1 * (u[0, 1] - u[0, -1])
        return [{"m": slope}, {"u": u + 0.1 * og.laplacian(u) + 0.2 * c * (m[1, 0] - m[0, -1])}]

    rng = np.random.default_rng(0)
    initial = {name: rng.random((14, 15)) for name in "umc"}
    posed = Problem(
        pair,
        (14, 15),
        steps=5,
        initial=initial,
        regions={"m": og.Box(y=(3, 9), x=(2, 8)), "c": og.Box(y=(4, 12))},
        receivers=[og.Receiver("u", (6, 5)), og.Receiver("u", (8, 7))],
    )
    made = og.gradient(
        posed,
        og.LeastSquares(np.zeros((5, 2))),
        wrt=["c", "m", "u"],
        memory="256MiB",
        out=tmp_path / "g",
    )
    for name in ("c", "m"):
        inside = np.zeros((14, 15), bool)
        for box in posed.regions[name]:
            inside[tuple(slice(part.start, part.stop) for part in box)] = True
        assert not np.asarray(made[name])[~inside].any()
    direction = {name: np.pad(rng.random((12, 13)), 1) for name in "umc"}
    size, values = 1e-6, []
    for sign in (-1, 1):
        moved = {name: initial[name] + sign * size * direction[name] for name in "umc"}
        values.append(half_of_squares(posed.replace(initial=moved)))
    slope = sum((np.asarray(made[name]) * direction[name]).sum() for name in "umc")
    assert np.isclose(slope, (values[1] - values[0]) / (2 * size), rtol=1e-7)


def half_of_squares(posed):
    squares = []

    def seen(state):
        squares.extend(state["u"][place] ** 2 / 2 for place in ((6, 5), (8, 7)))

    run_reference(posed, seen=seen)
    return sum(squares)


@pytest.mark.parametrize("zero", [0, "0", " 0.0"])
def test_memories_stay_in_their_layers_where_a_problem_is_replaced(zero):
    layers = {"kind": "matched", "width": 5, "courant": 0.4, "frequency": 0.02}
    initial = {"p": "x", "c": 0.1, "slope": zero, "bend": zero}
    posed = Problem("acoustic_pml:2", (30, 32), "float32", 2, None, layers, initial)
    assert {*posed.regions} == {"slope_y", "slope_x", "bend_y", "bend_x"}
    assert posed.replace(steps=2) == posed


def test_memories_of_matched_layers_may_be_kept_to_them(tmp_path):
    settings = {"memory": "256MiB", "tier": "direct", "depth": 4, "slab_planes": 2}
    layers = {"kind": "matched", "width": 10, "courant": 0.4, "frequency": 0.02}
    start = "exp(-((x - 16)**2 + (y - 15)**2 + (z - 22)**2) / 20)"
    initial = {"p": start, "c": 0.1, "slope": 0.0, "bend": 0.0}
    names = [f"{name}_{axis}" for axis in "zyx" for name in ("slope", "bend")]
    made = []
    start_of = {"slope": "0 * x", "bend": "0 * x"}  # which are not looked at
    for begin, regions in (
        (start_of, {}),
        (start_of, {name: og.Shell(12, name[-1]) for name in names}),
        ({}, {}),
    ):
        posed = Problem(
            "acoustic_pml:2",
            (45, 30, 32),
            "float32",
            20,
            boundary=layers,
            initial=initial | begin,
            regions=regions,
        )
        out = tmp_path / str(len(made))
        made.append(pipeline.run(posed, RunOptions.of(out=out, **settings)))
    for other in made[1:]:
        for name in ("p", *names):
            assert np.asarray(made[0][name]).tobytes() == np.asarray(other[name]).tobytes()
        assert other.record.measured.read_bytes < 0.95 * made[0].record.measured.read_bytes


@pytest.mark.parametrize(
    "given",
    [
        {"tier": "direct", "depth": 4, "slab_planes": 4},
        {"tier": "direct", "depth": 2, "strip_rows": 20},
        {"tier": "direct", "depth": 2, "scheme": "overlapped"},
        {"tier": "memory", "depth": 4, "threads": 2, "tile_rows": 16, "tile_planes": 4},
        {"tier": "memory", "scheme": "plain", "tile_group": 1},
    ],
    ids=str,
)
def test_layers_of_one_axis_are_updated_without_the_memories_of_others(given, tmp_path):
    layers = {"kind": "matched", "width": 8, "courant": 0.4, "frequency": 0.02}
    start = "exp(-((x - 50)**2 + (y - 23)**2 + (z - 21)**2) / 20)"
    made = []
    for begin in ("0 * x", "0"):  # the first of which is not looked at
        initial = {"p": start, "c": 0.1, "slope": begin, "bend": begin}
        posed = Problem(
            "acoustic_pml:2", (41, 44, 96), "float32", 12, boundary=layers, initial=initial
        )
        assert bool(posed.regions) == (begin == "0")
        options = RunOptions.of(memory="256MiB", out=tmp_path / str(len(made)), **given)
        made.append(pipeline.run(posed, options))
    whole, parts = made
    for field in posed.stencil.evolving:
        assert np.asarray(whole[field.name]).tobytes() == np.asarray(parts[field.name]).tobytes()
    assert np.asarray(parts["bend_x"])[20, 20, :8].any()  # the wave has come to the layers
