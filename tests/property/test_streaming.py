"""Any way to run a problem gives the same bytes, and they lie where the reference says."""

import errno
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrid import pipeline
from outgrid.build.compiler import build, find_compiler
from outgrid.codegen.kernel import generate
from outgrid.config import RunOptions
from outgrid.definition import stencil
from outgrid.errors import StoreError
from outgrid.execute.fill import InitialValues, fill
from outgrid.execute.kernel import Kernel
from outgrid.execute.moves import Hierarchy
from outgrid.execute.streaming import Callbacks, stream
from outgrid.execute.window import Window
from outgrid.runs.seals import level_name
from outgrid.stencil.boundary import boundary_of
from outgrid.stencil.catalog import resolve
from outgrid.stencil.problem import Problem
from outgrid.storage import DirectStore, MemoryStore, Planes, Transfers
from outgrid.testing.counting import count
from outgrid.testing.reference import reference_with_bound
from outgrid.testing.stores import Fault, Faulty, Shuffled
from outgrid.testing.strategies import problems, run_options, stencils

SEEDS = st.integers(0, 2**32 - 1)
SHARE = settings.default.max_examples  # costly tests take a part of it
MOST_BOUNDED = 10**6  # updates of which a bound is computed: NumPy takes a microsecond for each


@stencil
def coupled(u, v, c, *, k):
    """Two fields and a coefficient, each read to another side."""
    return (
        u + k * (v[1, 0, -1] - u) * c[0, 1, 0],
        v + k * (u[-1, 1, 0] + u[0, 0, 1] - v - v[0, -1, 0]),
    )


@stencil
def one_sided(u, *, k):
    """Reads to one side only, farther along the streamed axis than along the other."""
    return u + k * (u[-2, 0] - u) + k * u[-1, -1]


@stencil
def leaning(u, *, k):
    """The previous level beside its cell: three rings."""
    return u + k * (u.previous[1, 0] - u.previous[-1, 0])


@stencil
def pointwise(u, v):
    """No neighbour at all, and a field that is only passed on."""
    return 0.5 * (u + v), v


@stencil
def staggered(e, h, c, *, k):
    """Two stages, each field in place."""
    return [
        {"h": h + k * c * (e[1, 0, 0] - e + e[0, 2, 0] - e[0, -1, 1])},
        {"e": e + k * (h - h[-1, 0, 0] + h[0, 1, 0])},
    ]


@stencil
def chained(u, v, w, c, *, k):
    """Three stages of unequal reach, each to another side: some fields in place, one not."""
    return [
        {"u": u + k * c * (w[0, 1, 0] - w + u[1, -1, 0] - u)},
        {"v": v + k * c[0, -1, 0] * (u[0, -2, 1] - u)},
        {"w": w + k * (v[-1, 1, 0] - v[0, 3, 0])},
    ]


RULES = [
    *(resolve(name).trace(2) for name in ("heat5", "wave:4", "shallow_water")),
    *(resolve(name).trace(3) for name in ("heat7", "box27", "wave:2", "wave:8")),
    *(rule.trace() for rule in (coupled, one_sided, leaning, staggered, chained)),
    pointwise.trace(3),
]
# Few boundaries, since each of them is compiled for each rule.
AROUND = ["dirichlet", "frozen", 0.5, {"x": "periodic", "y-": "neumann", "y+": "mirror"}]
KNOWN = problems(
    st.sampled_from(RULES),
    around=st.sampled_from(AROUND).map(lambda each: boundary_of(each, None)),
    dtypes={},
)

# Fields that are kept in other types than the one computed in, which is float64 or float32.
MIXED = st.one_of(
    *(
        problems(st.just(rule), around=st.just(boundary_of(around, None)), dtypes=dtypes)
        for rule, around, dtypes in (
            (resolve("heat7").trace(3), "dirichlet", {"u": "float32"}),
            (resolve("wave:4").trace(2), {"x": "periodic"}, {"u": "float32", "c": "float32"}),
            (resolve("wave:8").trace(3), "frozen", {"c": "int8"}),
            (coupled.trace(), 0.5, {"v": "float32", "c": "uint8"}),
            (coupled.trace(), {"z": "periodic"}, {"u": "float32", "v": "float32", "c": "int32"}),
            (coupled.trace(), {"y": "periodic"}, {"u": "float32", "c": "int16"}),
            (resolve("wave:4").trace(3), {"y": "periodic", "z-": "odd"}, {"u": "float32"}),
            (one_sided.trace(), {"y-": "odd"}, {"u": "float32"}),
            (coupled.trace(), {"y": "periodic"}, {"u": "uint8", "v": "float16"}),
            (leaning.trace(), {"x-": "odd"}, {"u": "int32"}),
            (leaning.trace(), {"y": "periodic"}, {"u": "float32"}),
            (staggered.trace(), {"y+": "mirror", "x": "zero"}, {"h": "float32", "c": "int16"}),
            (resolve("shallow_water").trace(2), "neumann", {"eta": "float32", "h": "int16"}),
            (pointwise.trace(3), "dirichlet", {"v": "float32"}),
        )
    )
)

# Grids whose first plane is the neighbour of the last one.
CLOSED = st.one_of(
    *(
        problems(
            st.just(rule), around=st.just(boundary_of(around, None)), most_planes=60, dtypes={}
        )
        for rule, around in (
            (resolve("wave:4").trace(2), {"y": "periodic", "x-": "neumann"}),
            (leaning.trace(), {"y": "periodic"}),
            (resolve("heat7").trace(3), {"z": "periodic", "y": "periodic"}),
            (coupled.trace(), {"z": "periodic", "x": "periodic"}),
            (staggered.trace(), {"z": "periodic", "y+": "mirror"}),
            (chained.trace(), {"z": "periodic", "y-": "neumann"}),
            (resolve("wave:2").trace(3), {"z": "periodic", "y+": "neumann"}),
        )
    )
)

# Grids whose tiles close round a circle: rows in 3-D, columns in 2-D.
CIRCLES = st.one_of(
    *(
        problems(
            st.just(rule), around=st.just(boundary_of(around, None)), most_cells=cells, dtypes={}
        )
        for rule, around, cells in (
            (resolve("heat7").trace(3), {"y": "periodic"}, 30),
            (resolve("wave:4").trace(3), {"y": "periodic", "x": "periodic", "z+": "mirror"}, 30),
            (coupled.trace(), {"y": "periodic", "z": "periodic"}, 30),
            (staggered.trace(), {"y": "periodic", "x-": "neumann"}, 30),
            (chained.trace(), {"y": "periodic"}, 40),
            (resolve("heat5").trace(2), {"x": "periodic"}, 200),
            (resolve("wave:8").trace(2), {"x": "periodic", "y-": "neumann"}, 200),
            (resolve("shallow_water").trace(2), {"x": "periodic", "y": "periodic"}, 200),
            (one_sided.trace(), {"x": "periodic"}, 200),
        )
    )
)


@cache
def library_of(rule, dtype, edges, apart):
    return build(generate(rule, dtype, edges, dict(apart)), find_compiler())


def kernel_of(problem):
    apart = tuple(problem.dtypes.items())
    return Kernel.of(library_of(problem.stencil, problem.dtype, problem.edges, apart), problem)


def make_stores(problem, plan, transfers, folder):
    """Two stores for each evolving level and one for a coefficient, in memory without a folder."""
    stores = {}
    for level in plan.schedule.arrivals:
        for parity in (0, 1):
            if level.constant and parity:
                continue
            name, shape = f"{level_name(level)}.{parity}", problem.shape
            dtype = problem.dtype_of(level.field)
            stores[level.field, level.level, parity] = (
                MemoryStore.create(name, shape, dtype, transfers)
                if folder is None
                else DirectStore.create(folder / f"{name}.npy", shape, dtype, transfers)
            )
    return stores


def make_seams(problem, plan, transfers, folder):
    """A store for the seams of each ring."""
    return {
        key: MemoryStore.create("seam", shape, problem.dtype_of(key[0]), transfers)
        if folder is None
        else DirectStore.create(
            folder / f"{'.'.join(map(str, key))}.seam.npy",
            shape,
            problem.dtype_of(key[0]),
            transfers,
        )
        for key, shape in plan.schedule.places.items()
    }


def run_over(problem, options, transfers, folder=None, wrap=None):
    """The final fields by name, and what the executor counted, over stores of our own."""
    plan = pipeline.plan(problem, options)
    stores = make_stores(problem, plan, transfers, folder)
    fill(
        InitialValues(problem),
        plan.schedule.arrivals,
        lambda a: stores[a.field, a.level, 0],
        transfers,
    )
    if wrap is not None:
        stores = {key: wrap(key, store) for key, store in stores.items()}
    seams = make_seams(problem, plan, transfers, folder)
    if wrap is not None:
        seams = {key: wrap(key, store) for key, store in seams.items()}
    window, commits = Window(plan), []

    def note(point):
        commits.append(point)

    try:
        kernel = kernel_of(problem.folding(plan.folded))
        tally = stream(plan, kernel, Hierarchy(window, stores, transfers, seams), Callbacks(note))
        result = {}
        for level in plan.schedule.departures:
            store = stores[level.field, level.level, plan.schedule.states.count % 2]
            result[level_name(level)] = values_of(store, transfers)
    finally:
        transfers.drain()
        window.release()
        for store in (*stores.values(), *seams.values()):
            store.close()
    assert commits == sorted(set(commits))
    states = [point.state for point in commits if point.begun == point.state]
    assert states == list(range(1, plan.schedule.states.count + 1))
    return result, tally, plan


def values_of(store, transfers):
    values = np.empty((store.planes, store.rows_per_plane, store.shape[-1]), store.dtype)
    store.get(range(store.planes), range(store.rows_per_plane), Planes.of(values))
    transfers.drain()
    return values.reshape(store.shape)


def plain(problem):
    """The answer of one step per sweep in memory."""
    options = RunOptions.of(memory="1GiB", scheme="plain", tier="memory", threads=1)
    with Transfers("threads") as transfers:
        return run_over(problem, options, transfers)[0]


def assert_same_bytes(found, wanted):
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        bits = f"u{values.itemsize}"
        cells = np.argwhere(np.asarray(found[name]).view(bits) != values.view(bits))
        assert not len(cells), f"{name} differs at {len(cells)} cells, first {cells[:3].tolist()}"


def assert_within_bound(found, problem):
    if problem.updates > MOST_BOUNDED:
        return
    reference, bounds = reference_with_bound(problem)
    for name, values in found.items():
        exact, bound = reference[name].astype(np.float64), bounds[name]
        promised = np.isfinite(bound)
        error = np.abs(values.astype(np.float64) - exact)
        assert (error <= 2 * bound)[promised].all(), name


def assert_right(problem, options, seed):
    """Bytes as of plain sweeps, values as of NumPy, and as much moved and updated as was said."""
    with Shuffled(seed) as transfers:
        found, tally, plan = run_over(problem, options, transfers)
    assert_same_bytes(found, plain(problem))
    assert_within_bound(found, problem)
    assert (tally.read_bytes, tally.written_bytes) == (
        plan.volume.read_bytes,
        plan.volume.written_bytes,
    )
    assert tally.row_updates == plan.schedule.row_updates


@settings(max_examples=SHARE * 3 // 8)
@given(KNOWN, st.data(), SEEDS)
def test_transfers_that_end_in_any_order_give_the_bytes_of_plain_sweeps(problem, data, seed):
    assert_right(problem, data.draw(run_options(problem)), seed)


@given(CLOSED, st.data(), SEEDS)
def test_grids_that_close_along_the_stream_give_them_too(problem, data, seed):
    assert_right(problem, data.draw(run_options(problem)), seed)


@given(CIRCLES, st.data(), SEEDS)
def test_so_do_tiles_that_close_round_a_circle(problem, data, seed):
    assert_right(problem, data.draw(run_options(problem)), seed)


@given(MIXED, st.data(), SEEDS)
def test_so_do_fields_of_different_types(problem, data, seed):
    assert_right(problem, data.draw(run_options(problem)), seed)


@stencil
def behind(u):
    """Reads rows before its own; the image of the first ones at a mirror lies behind them."""
    return 0.5 * (u + u[1, -2, 0])


@pytest.mark.parametrize("height", [1, 2, 3])
def test_images_arrive_with_the_strip_that_reads_them(height):
    around, values = {"y-": "mirror"}, np.random.default_rng(2).random((12, 9, 7))
    problem = Problem(behind.trace(), values.shape, "float64", 4, {}, around, {"u": values})
    options = RunOptions.of(memory="1GiB", tier="direct", depth=2, strip_rows=height)
    assert_right(problem, options, seed=height)


@settings(max_examples=SHARE // 8)
@given(problems(stencils(), most_planes=30), st.data(), SEEDS)
def test_so_does_any_stencil(problem, data, seed):
    options = data.draw(run_options(problem))
    with Shuffled(seed) as transfers:
        found, _, _ = run_over(problem, options, transfers)
    assert_same_bytes(found, plain(problem))
    assert_within_bound(found, problem)


@settings(max_examples=SHARE // 4)
@given(KNOWN | MIXED, st.data(), SEEDS)
def test_files_in_any_order(problem, data, seed):
    options = data.draw(run_options(problem))
    with tempfile.TemporaryDirectory() as folder, Shuffled(seed) as transfers:
        found, _, _ = run_over(problem, options, transfers, Path(folder))
    assert_same_bytes(found, plain(problem))


@settings(max_examples=SHARE // 3)
@given(KNOWN | MIXED, st.data())
def test_a_run_moves_what_its_plan_says(problem, data):
    with tempfile.TemporaryDirectory() as folder:
        options = data.draw(run_options(problem, out=Path(folder) / "run"))
        plan = pipeline.plan(problem, options)
        result = pipeline.run(problem, options)
        found = {name: np.array(result[name]) for name in result.record.fields}
        assert {path.name for path in result.out.iterdir()} == {
            "record.json",
            *result.record.fields.values(),
            *(f"{name}.xxh3" for name in result.record.fields.values()),
            *(Path(name).parts[0] for name in result.record.left),
        }
    assert_same_bytes(found, plain(problem))
    measured, counted = result.record.measured, count(plan)
    assert measured.read_bytes == plan.volume.read_bytes == counted.read_bytes
    assert measured.written_bytes == plan.volume.written_bytes == counted.written_bytes
    assert measured.fill_written_bytes == plan.volume.fill_bytes
    assert measured.updates == plan.work.updates == problem.updates


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("operation", ["get", "put", "flush"])
def test_a_failed_request_stops_the_run_with_its_place(operation, seed, tmp_path):
    problem_fields = {"u": "x / nx", "c": 0.1}
    problem = Problem("wave:2", (40, 16, 32), "float64", 12, initial=problem_fields)
    options = RunOptions.of(memory="1GiB", tier="direct", depth=4, slab_planes=3, threads=1)
    failing = ("u", -1, 1) if operation != "get" else ("u", 0, seed % 2)
    fault = Fault(operation, 0 if operation == "flush" else 2 * seed)

    def wrap(key, store):
        return Faulty(store, transfers, [fault]) if key == failing else store

    with Shuffled(seed) as transfers, pytest.raises(StoreError) as caught:
        run_over(problem, options, transfers, tmp_path, wrap)
    error = caught.value
    assert error.errno == errno.EIO
    assert error.path is not None
    assert str(error.path) in str(error)
    assert "errno 5" in str(error)
    if operation != "flush":
        assert error.offset is not None
        assert f"offset {error.offset}" in str(error)
        words = "reading" if operation == "get" else "writing"
        assert f"{words} planes" in str(error)
