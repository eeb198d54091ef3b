import numpy as np
import pytest

from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import StoreError, UsageError
from outgrid.execute import fill as filling
from outgrid.execute.fill import InitialValues, fill, initial_name
from outgrid.plan.schedule.rings import Arrival
from outgrid.runs.pace import Pace
from outgrid.stencil import initial
from outgrid.stencil.problem import Problem
from outgrid.storage import DirectStore, MemoryStore
from outgrid.testing.reference import initial_arrays, run_reference
from outgrid.testing.stores import Fault, Faulty, Shuffled

SHAPE = (23, 6, 9)
CURRENT, PREVIOUS, SPEED = (
    Arrival("u", 0, 0, constant=False),
    Arrival("u", -1, 1, constant=False),
    Arrival("c", 0, 1, constant=True),
)
LEVELS = (CURRENT, PREVIOUS, SPEED)


@pytest.fixture(autouse=True, params=[5 * 6 * 9 * 8, 4 * 9 * 8, 1])
def small_chunks(request, monkeypatch):
    """Blocks of some planes, of some rows of a plane, of single rows."""
    monkeypatch.setattr(filling, "CHUNK_BYTES", request.param)
    monkeypatch.setattr(initial, "_CELLS_PER_BLOCK", 2 * 9)


@pytest.fixture(params=range(3))
def transfers(request):
    with Shuffled(request.param) as transfers:
        yield transfers


def filled(problem, transfers, levels=LEVELS, wrap=lambda store: store, seen=None):
    """What the stores hold after the fill, by name, and what it noticed."""
    stores = {
        level: MemoryStore(initial_name(level), np.full(SHAPE, np.nan, problem.dtype), transfers)
        for level in levels
    }
    found = fill(InitialValues(problem), levels, lambda level: wrap(stores[level]), transfers, seen)
    return {initial_name(level): stores[level].array for level in levels}, found


def values(seed=0, dtype="float64"):
    return np.random.default_rng(seed).random(SHAPE).astype(dtype)


def problem_of(boundary="dirichlet", dtype="float64", **initial):
    initial = {"u": "x + 10 * y + 100 * z", "c": 0.25} | {
        name.replace("_", "."): value for name, value in initial.items()
    }
    return Problem("wave:4", SHAPE, dtype, 0, boundary=boundary, initial=initial)


@pytest.mark.parametrize("boundary", ["frozen", "dirichlet", {"kind": "dirichlet", "value": 7.5}])
@pytest.mark.parametrize("previous", [None, 0.5, "z / nz", "array", lambda z, y, x: y - x])
def test_stores_hold_what_the_reference_begins_with(transfers, boundary, previous):
    given = {"u": values(1)}
    if previous is not None:
        given["u_previous"] = values(2) if previous == "array" else previous
    problem = problem_of(boundary, **given)
    found, _ = filled(problem, transfers)
    for name, wanted in run_reference(problem).items():
        assert (found[name] == wanted).all(), name


def test_coefficients_have_no_boundary_layer(transfers):
    problem = problem_of({"kind": "dirichlet", "value": 7.5}, c=values(4))
    found, _ = filled(problem, transfers)
    assert (found["c"] == initial_arrays(problem)["c"]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("stored", ["float32", "float64", "int16", ">f8"])
def test_files_are_read_in_pieces_and_converted(transfers, tmp_path, dtype, stored):
    stored_values = (1000 * values(5)).astype(stored)
    np.save(tmp_path / "u.npy", stored_values)
    problem = problem_of(dtype=dtype, u=tmp_path / "u.npy")
    found, noted = filled(problem, transfers, (CURRENT,))
    assert (found["u"] == stored_values.astype(dtype)).all()
    assert noted.written_bytes == found["u"].nbytes
    assert noted.read_bytes == stored_values.nbytes
    assert noted.warnings == ()


def test_a_file_of_the_previous_level_takes_the_layer_of_the_current_one(transfers, tmp_path):
    np.save(tmp_path / "a.npy", values(6))
    np.save(tmp_path / "b.npy", values(7))
    problem = problem_of(u=tmp_path / "a.npy", u_previous=tmp_path / "b.npy")
    found, _ = filled(problem, transfers)
    inside = tuple(slice(part.start, part.stop) for part in problem.interior)
    wanted = values(6)
    wanted[inside] = values(7)[inside]
    assert (found["u.previous"] == wanted).all()


def test_values_that_are_not_finite_are_counted_by_level(transfers, tmp_path):
    holes = values(8)
    holes[3, 2, 1], holes[22, 5, 8] = np.nan, -np.inf
    np.save(tmp_path / "u.npy", holes)
    _, noted = filled(problem_of(u=tmp_path / "u.npy"), transfers)
    words = [warning for warning in noted.warnings if "'u'" in warning]
    assert len(words) == 1
    assert "2 values that are NaN or infinite" in words[0]


def test_every_block_is_seen_in_order(transfers):
    seen = []
    problem = problem_of(u=values(9))

    def look(level, planes, rows, cells):
        assert cells.shape == (len(planes), len(rows), SHAPE[2])
        seen.extend((level, plane, row) for plane in planes for row in rows)

    filled(problem, transfers, seen=look)
    for level in LEVELS:
        places = [(plane, row) for each, plane, row in seen if each == level]
        assert places == [(plane, row) for plane in range(SHAPE[0]) for row in range(SHAPE[1])]


@pytest.mark.parametrize("index", [0, 2, 4])
def test_a_write_that_fails_is_an_error(transfers, index):
    def wrap(store):
        return Faulty(store, transfers, [Fault("put", index)]) if store.name == "u" else store

    with pytest.raises(StoreError, match="put failed on purpose") as caught:
        filled(problem_of(), transfers, wrap=wrap)
    assert caught.value.errno == 5


def test_a_file_that_changed_its_shape_is_refused(transfers, tmp_path):
    np.save(tmp_path / "u.npy", values()[:-1])
    with pytest.raises(UsageError, match=r"\(22, 6, 9\).*\(23, 6, 9\)"):
        filled(problem_of(u=tmp_path / "u.npy"), transfers)


def test_a_run_tells_how_much_of_its_initial_values_is_in_place(tmp_path, monkeypatch):
    for module in ("execution", "execute.streaming"):
        monkeypatch.setattr(f"outgrid.{module}.PROGRESS_SECONDS", 0.0)
    told, given = [], {"u": "x + 10 * y + 100 * z", "c": 0.25}
    problem = Problem("wave:4", SHAPE, "float64", 2, initial=given)
    options = RunOptions.of(memory="1GiB", tier="direct", out=tmp_path / "run")
    result = pipeline.run(problem, options, told.append)
    seen = [event for event in told if event.filling]
    assert [event.filled for event in seen] == sorted(event.filled for event in seen)
    assert all(event.updates_done == 0 for event in seen)
    assert seen[-1].written_bytes == result.record.measured.fill_written_bytes
    assert len(seen) > 2
    pace, swept = Pace(), told[len(seen) :]
    assert swept
    for event in swept:  # counters begin again with the sweeps
        assert not event.filling
        assert pace.figures(event).written_bytes_per_second >= 0


def test_blocks_of_zeroes_are_not_written_to_new_files(tmp_path, monkeypatch):
    put, puts = DirectStore.put, []

    def counted(store, planes, rows, source):
        puts.extend((store.path.name, plane) for plane in planes)
        return put(store, planes, rows, source)

    some = {"u": "where(z > 7, where(z < 12, x - y, 0), 0)", "u.previous": 0.0, "c": 0.1}
    problem = Problem("wave:4", SHAPE, "float64", 0, boundary="frozen", initial=some)
    monkeypatch.setattr(DirectStore, "put", counted)
    pipeline.run(problem, RunOptions.of(memory="1GiB", tier="direct", out=tmp_path / "none"))
    changed = {plane for name, plane in puts if name.startswith("u")}
    assert changed >= set(range(8, 12))
    assert changed <= set(range(5, 15))
    made = [
        pipeline.run(
            problem.replace(steps=3),
            RunOptions.of(memory="1GiB", tier=tier, depth=1, out=tmp_path / tier),
        )
        for tier in ("direct", "memory")
    ]
    for name in ("u", "u.previous"):
        one, other = (np.array(result[name]) for result in made)
        assert one.any()
        assert one.tobytes() == other.tobytes()
