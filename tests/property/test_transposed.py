"""A problem with its first axis and another exchanged has the answer of the problem, exchanged."""

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.runs.verify import verify
from outgrid.stencil.boundary import boundary_of
from outgrid.stencil.catalog import resolve
from outgrid.stencil.transposed import why_not_transposed
from outgrid.storage import MemoryStore, Planes, Transfers, TransposedStore
from outgrid.testing.reference import initial_arrays, run_reference
from outgrid.testing.strategies import problems, stencils


@given(
    problem=problems(stencils(ndim=3, temporaries=True), most_steps=5, most_planes=9),
    axis=st.sampled_from([1, 2]),
)
def test_the_answer_of_any_problem(problem, axis):
    assume(not why_not_transposed(problem))
    turned = problem.transpose(axis)
    nz, ny, nx = problem.shape
    assert turned.shape == ((ny, nz, nx) if axis == 1 else (nx, ny, nz))
    assert turned.updates == problem.updates
    initial = initial_arrays(problem)
    expected = run_reference(problem, initial)
    begun = {name: exchanged(cells, axis) for name, cells in initial.items()}
    found = run_reference(turned, begun)
    for name, cells in expected.items():
        assert exchanged(found[name], axis).tobytes() == cells.tobytes()


@given(
    problem=problems(stencils(ndim=3), most_steps=5, most_planes=9), axis=st.sampled_from([1, 2])
)
def test_twice_is_not_at_all(problem, axis):
    assume(not why_not_transposed(problem))
    again = problem.transpose(axis).transpose(axis)
    assert not again.transposed
    assert again.stencil == problem.stencil
    assert (again.shape, again.edges) == (problem.shape, problem.edges)


RULES = [resolve(name).trace(3) for name in ("heat7", "wave:4", "box27")]
AROUND = ["dirichlet", "frozen", {"x": "periodic", "y-": "neumann", "z+": "mirror"}]
LEFT = problems(
    st.sampled_from(RULES),
    around=st.sampled_from(AROUND).map(lambda each: boundary_of(each, None)),
    dtypes={},
    most_planes=40,
)


@settings(max_examples=settings.default.max_examples // 2)
@given(problem=LEFT, depth=st.integers(1, 4), in_files=st.booleans())
def test_what_a_run_along_the_last_axis_leaves(problem, depth, in_files):
    """Its values are those of a run along the first, and lie in Fortran order."""
    assume(not why_not_transposed(problem))
    with tempfile.TemporaryDirectory() as name:
        folder, initial = Path(name), initial_arrays(problem)
        if in_files:
            for field, cells in initial.items():
                np.save(folder / f"{field}.npy", cells)
            initial = {field: str(folder / f"{field}.npy") for field in initial}
        begun = problem.replace(initial=initial)
        for axis in "zx":
            options = {"memory": "300MiB", "tier": "direct", "depth": depth, "stream_axis": axis}
            pipeline.run(begun, RunOptions.of(out=folder / axis, **options))
            assert verify(folder / axis).errors == ()
        left = [path.name for path in (folder / "z").glob("*.npy")]
        assert left
        for file in left:
            expected, found = np.load(folder / "z" / file), np.load(folder / "x" / file)
            assert found.flags.f_contiguous
            assert np.ascontiguousarray(found).tobytes() == expected.tobytes()


@given(data=st.data())
def test_regions_of_a_store(data):
    """Planes may lie anywhere in memory, as the slots of a ring do."""
    draw = data.draw
    shape = tuple(draw(st.integers(1, 6)) for _ in range(3))
    cells = np.random.default_rng(draw(st.integers(0, 99))).random(shape)
    planes = draw(spans(shape[1]))
    rows = draw(spans(shape[0]))
    slots = draw(st.permutations(range(len(planes) + 2)))[: len(planes)]
    window = np.zeros((len(planes) + 2, len(rows), shape[2] + 3))
    memory = Planes(
        window.ctypes.data + window.strides[0] * np.array(slots, np.int64),
        window.strides[1],
        window,
    )
    with Transfers("threads") as transfers:
        base = MemoryStore("u", cells.copy(), transfers)
        store = TransposedStore(base, transfers)
        assert store.shape == (shape[1], shape[0], shape[2])
        assert store.plane_bytes * store.planes == base.plane_bytes * base.planes
        store.get(planes, rows, memory)
        assert len(transfers.drain()) == 1
        part = cells[rows.start : rows.stop, planes.start : planes.stop]
        assert (window[slots, :, : shape[2]] == exchanged(part)).all()
        window += 1
        store.put(planes, rows, memory)
        assert len(transfers.drain()) == 1
    part += 1
    assert (base.array == cells).all()


def spans(extent):
    """Ranges of some of so many cells."""
    ends = st.tuples(st.integers(0, extent - 1), st.integers(1, extent))
    return ends.filter(lambda pair: pair[0] < pair[1]).map(lambda pair: range(*pair))


def exchanged(cells, axis=1):
    return np.ascontiguousarray(cells.swapaxes(0, axis))
