"""Fields of whole numbers and of halves that are updated: what a store makes of a result."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outgrid as og
from outgrid.cli import main
from outgrid.errors import DefinitionError, Stopped
from outgrid.testing.device import stand_in
from outgrid.testing.reference import run_reference

ROWS, COLUMNS = 24, 40


@og.stencil
def taken(u, given):
    """The field becomes what is given."""
    return given[0, 0]


def stored(values: np.ndarray, kept: str, dtype: str, out: Path) -> np.ndarray:
    """What a kernel makes of values computed in ``dtype`` in a field that is kept in ``kept``."""
    problem = og.Problem(
        taken,
        values.shape,
        dtype,
        1,
        boundary="neumann",
        initial={"u": 0, "given": values},
        dtypes={"u": kept},
    )
    found = np.array(og.run(problem, memory="1GiB", out=out, watch=False)["u"])
    assert found.tobytes() == run_reference(problem)["u"].tobytes()
    return found


@pytest.mark.parametrize("kept", ["uint8", "int8", "uint16", "int16", "int32"])
def test_a_result_becomes_the_nearest_number_that_the_type_holds(kept, tmp_path):
    limits = np.iinfo(kept)
    ends = [float(limits.min), float(limits.max)]
    near = [-1e30, -1.5, -0.5, -0.0, 0.49, 0.5, 1.5, 2.5, 77.0, 1e30]
    values = np.array([*near, *ends, *(end + 0.5 for end in ends), *(end - 0.5 for end in ends)])
    found = stored(np.tile(values, (3, 2)), kept, "float64", tmp_path / "run")
    wanted = np.clip(np.rint(values), *ends).astype(kept)
    assert found.tolist() == np.tile(wanted, (3, 2)).tolist()


@og.stencil
def nothing(u, given):
    """No number where the field given is 0."""
    return given / given


def test_what_is_no_number_becomes_the_lowest_one(tmp_path):
    given = np.array([[0.0, 3.0] * 8] * 3)
    problem = og.Problem(
        nothing, given.shape, steps=1, initial={"u": 7, "given": given}, dtypes={"u": "int8"},
        boundary="neumann",
    )  # fmt: skip
    found = og.run(problem, memory="1GiB", out=tmp_path / "run")["u"]
    assert np.array(found).tolist() == [[-128, 1] * 8] * 3


@pytest.mark.parametrize(("kept", "beyond"), [("float16", 0x7C00), ("bfloat16", 0x7F80)])
def test_a_half_is_rounded_as_numpy_rounds_it(kept, beyond, tmp_path):
    """Every half, the floats halfway between two of them, and those next to these."""
    pytest.importorskip("ml_dtypes")
    halves = np.arange(beyond, dtype=np.uint16).view(kept).astype(np.float32)
    between = ((halves[:-1].astype(float) + halves[1:]) / 2).astype(np.float32)
    ends = np.array([65519.996, 65520, 65536, 1e30, 3.3895e38, 3.3962e38, 3e-8, 1e-40], np.float32)
    values = np.concatenate(
        [
            halves,
            between,
            np.nextafter(between, np.float32(0)),
            np.nextafter(between, ends[5]),
            ends,
        ]
    )
    values = np.concatenate([values, -values]).astype(np.float32)
    values = np.resize(values, (256, -(-values.size // 256)))
    found = stored(values, kept, "float32", tmp_path / "run")
    with np.errstate(over="ignore"):
        assert found.tobytes() == values.astype(kept).tobytes()
    given = halves.astype(kept).reshape(128, -1)
    read = og.Problem(
        taken,
        given.shape,
        "float32",
        1,
        boundary="neumann",
        initial={"u": 0, "given": given},
        dtypes={"given": kept},
    )
    back = np.array(og.run(read, memory="1GiB", out=tmp_path / "back")["u"])
    assert back.ravel().tolist() == halves.tolist()


def test_numbers_of_bfloat16_go_to_other_programs(tmp_path):
    pytest.importorskip("ml_dtypes")
    h5py, zarr = pytest.importorskip("h5py"), pytest.importorskip("zarr")
    start = np.linspace(-3, 9, ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
    changed = problem(
        dtypes={"heat": "bfloat16", "count": "uint8"},
        initial={"heat": start.astype("bfloat16"), "count": 3},
    )
    plain = og.run(changed, memory="1GiB", out=tmp_path / "plain", scheme="plain", tier="memory")
    deep = og.run(
        changed, memory="1GiB", out=tmp_path / "deep", depth=4, slab_planes=3, tier="direct"
    )
    assert left(plain) == left(deep)
    heat = np.array(plain["heat"])
    assert heat.dtype == "bfloat16"
    loaded = np.load(plain.path("heat"))
    assert (loaded.dtype, loaded.view("bfloat16").tobytes()) == ("V2", heat.tobytes())
    group = zarr.open_group(tmp_path / "plain", mode="r")
    assert group["heat"].attrs["bits_of"] == "bfloat16"
    assert np.asarray(group["heat"][:]).view("bfloat16").tobytes() == heat.tobytes()
    again = og.Problem(
        taken, heat.shape, "float32", 1, boundary="neumann", dtypes={"given": "bfloat16"},
        initial={"u": 0, "given": str(plain.path("heat"))},
    )  # fmt: skip
    assert np.array(og.run(again, memory="1GiB", out=tmp_path / "again")["u"]).tobytes() == (
        heat.astype(np.float32).tobytes()
    )
    command = ["export", str(plain.out), "--field", "heat", "--to", str(tmp_path / "heat.h5")]
    assert main(command) == 0
    with h5py.File(tmp_path / "heat.h5") as file:
        assert file["heat"].dtype == "float32"
        assert file["heat"][:].tobytes() == heat.astype(np.float32).tobytes()


@og.stencil
def spreading(heat, count, *, k):
    """A half that spreads, and whole numbers that count up round 256 and watch it."""
    warmer = heat + k * og.laplacian(heat)
    return warmer, (count + 3 * count[1, 0] + og.round(10 * heat[0, -1])) % 256


def problem(**changes: Any) -> og.Problem:
    given: dict[str, Any] = {
        "parameters": {"k": 0.2},
        "initial": {"heat": "sin(x / 3) + y / 9", "count": "(x * x + 5 * y) % 256"},
        "boundary": {"y-": "neumann", "y+": "zero", "x": "periodic"},
        "dtypes": {"heat": "float16", "count": "uint8"},
        "sources": [og.Source("heat", (9, 9), 0.3), og.Source("count", (8, 7), 200)],
        "receivers": [og.Receiver("count", (8, 7)), og.Receiver("heat", (9, 9.5))],
        "snapshots": [og.Snapshot("count", every=3, x=4), og.Snapshot("heat", every=3, y=9)],
    }
    return og.Problem(spreading, (ROWS, COLUMNS), "float32", 11, **(given | changes))


def left(result: og.Result) -> list[bytes]:
    """The bytes of all that a run leaves."""
    kept = [result["heat"], result["count"], *result.snapshots, result.traces]
    return [np.asarray(values).tobytes() for values in kept]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    out = tmp_path_factory.mktemp("plain") / "run"
    return left(og.run(problem(), memory="1GiB", out=out, scheme="plain", tier="memory"))


def test_the_numbers_are_those_of_the_reference(plain):
    wanted = run_reference(problem())
    assert plain[1] == wanted["count"].tobytes()
    heat = np.frombuffer(plain[0], np.float16).astype(float)
    assert np.abs(heat - wanted["heat"].ravel()).max() < 0.02  # some roundings, of 0.001 each


@pytest.mark.parametrize(
    "how",
    [
        {"tier": "direct", "depth": 4, "slab_planes": 3},
        {"tier": "direct", "depth": 2, "slab_planes": 1},
        {"tier": "mmap", "depth": 5},
    ],
    ids=str,
)
def test_every_way_to_run_it_leaves_the_same_bytes(how, plain, tmp_path):
    assert left(og.run(problem(), memory="1GiB", out=tmp_path / "run", **how)) == plain


def test_a_run_that_is_cut_off_goes_on_to_the_same_bytes(plain, tmp_path):
    how = {"memory": "1GiB", "tier": "direct", "depth": 3, "slab_planes": 2, "commit_every": 1e-6}
    with pytest.raises(Stopped):
        og.run(problem(), out=tmp_path / "run", stop_after=1e-3, **how)
    assert left(og.resume(tmp_path / "run")) == plain


def test_a_device_makes_the_same_bytes(monkeypatch, tmp_path):
    stand_in(monkeypatch.setattr)
    there = problem(snapshots=())
    found, wanted = (
        og.run(there, memory="1GiB", out=tmp_path / str(n), tier="direct", depth=3, **device)
        for n, device in enumerate(({"device": "gpu"}, {}))
    )
    assert left(found) == left(wanted)


def test_sums_with_sources_stay_in_the_range(tmp_path):
    @og.stencil
    def kept(u):
        return u[0, 0]

    there = og.Problem(
        kept, (4, 9), steps=3, boundary="neumann", initial={"u": 100}, dtypes={"u": "uint8"},
        sources=[og.Source("u", (1, 1), 90), og.Source("u", (2, 8), -60)],
    )  # fmt: skip
    found = np.array(og.run(there, memory="1GiB", out=tmp_path / "run")["u"])
    assert (found[1, 1], found[2, 8], found[0, 0]) == (255, 0, 100)
    assert found.tobytes() == run_reference(there)["u"].tobytes()


def test_a_source_between_cells_of_whole_numbers_is_refused(tmp_path):
    there = {"sources": [og.Source("count", (8, 7.5), 1)]}
    with pytest.raises(DefinitionError, match=r"adds 0.5 to a cell of 'count'.*uint8"):
        problem(**there)


def test_a_gradient_through_whole_numbers_is_refused(tmp_path):
    last = og.Cotangents(final={"count": np.ones((ROWS, COLUMNS))})
    with pytest.raises(DefinitionError, match=r"no derivative.*fields of whole numbers"):
        og.gradient(problem(snapshots=()), last, wrt=["heat"], out=tmp_path / "run")
