"""Planes of +0 ahead of a wave are neither updated nor moved, and no byte of a result tells it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.observe.still import Reach, StillPlanes
from outgrid.parts import resolve
from outgrid.plan.schedule.lifetime import dependences
from outgrid.stencil.problem import Problem
from outgrid.testing.strategies import stencils

PLANES, ROWS, COLUMNS, STEPS = 128, 10, 24, 20
MATCHED = {"kind": "matched", "width": 3, "courant": 0.4, "frequency": 0.05}


@og.stencil
def flows(u, c, *, k):
    """Diffusion by flows that are temporaries."""
    flow = og.temporary(k * og.forward(u, "z"), name="flow")
    return {"u": u + c * og.backward(flow, "z")}


@og.stencil
def staggered(p, v: og.Vector, c):
    """Pressure and velocity in place, one after the other."""
    moved = {axis: v[axis] - 0.3 * og.forward(p, axis) for axis in v}
    return [
        {"v": moved},
        {"p": p - c * og.backward(v["z"], "z") - c * og.backward(v["x"], "x")},
    ]


@og.stencil
def lagging(u, w, c):
    """A previous level that is read beside the updated cell, which takes a third ring."""
    far = u.previous[1, 0, 0] + u.previous[-1, 0, 0] - 2 * u[0, 0, 1]
    return [{"u": u + 0.1 * c * far}, {"w": w + 0.5 * (u[-2, 0, 0] - w)}]


@og.stencil
def apart(u, w):
    """Two fields that move in opposite directions, and neither reads the other."""
    return [{"u": u + 0.5 * (u[1, 0, 0] - u)}, {"w": w + 0.5 * (w[-2, 0, 0] - w)}]


STENCILS = {
    "wave:4": "wave:4",
    "heat7": "heat7",
    "acoustic_pml:4": "acoustic_pml:4",
    "flows": flows,
    "staggered": staggered,
    "lagging": lagging,
    "apart": apart,
}

AROUND = ["dirichlet", "neumann", "mirror", "odd", "frozen"]
# One boundary for each stencil, all of them among these: a pair of both is a kernel to compile.
USUAL = {
    "wave:4": ["frozen"],
    "heat7": ["neumann"],
    "acoustic_pml:4": ["dirichlet"],
    "flows": ["mirror"],
    "staggered": ["odd"],
    "lagging": ["dirichlet"],
    "apart": ["neumann"],
}


def posed(name, shape=(PLANES, ROWS, COLUMNS), boundary=None, block=range(40, 42), **given):
    """A block of values in a grid of +0, and a coefficient that varies."""
    known = STENCILS[name]
    stencil = (resolve(known) if isinstance(known, str) else known).trace(len(shape))
    rng = np.random.default_rng(7)
    initial = {field.name: np.zeros(shape) for field in stencil.lasting}
    initial |= {field.name: 0.1 + 0.05 * rng.random(shape) for field in stencil.coefficients}
    first = stencil.lasting[0].name
    if len(block):
        initial[first][block.start : block.stop, 3:-3, 4:-4] = rng.random()
    face = MATCHED if "pml" in name else boundary or "dirichlet"
    numbers = dict.fromkeys(stencil.parameters, 0.1)
    return Problem(stencil, shape, "float32", STEPS, numbers, face, initial, **given)


def made(problem, out, watch=True, **options):
    """A run in slabs: the bytes that it leaves, traces included, and its record."""
    usual = {"memory": "200MiB", "tier": "direct", "depth": 6, "slab_planes": 4, "threads": 2}
    result = pipeline.run(problem, RunOptions.of(out=out, watch=watch, **(usual | options)))
    files = {
        path.name: path.read_bytes()
        for path in sorted(out.iterdir())
        if path.suffix == ".npy" or path.name == "traces.npy"
    }
    return files, result.record


def compare(problem, folder, **options):
    """Whether looking for still planes changes a byte; the record of the run that does."""
    expected, plain = made(problem, folder / "all", watch=False, **options)
    found, record = made(problem, folder / "still", **options)
    assert plain.measured.still_updates == 0
    assert list(found) == list(expected)
    assert all(found[name] == expected[name] for name in expected), [*expected]
    assert record.checksums == plain.checksums
    return plain.measured, record.measured


@pytest.mark.parametrize("name", STENCILS)
def test_no_byte_tells_of_it(name, tmp_path):
    field = "p" if name in ("acoustic_pml:4", "staggered") else "u"
    problem = posed(
        name,
        sources=[og.Source(field, (41, 5, 12), tuple(np.sin(np.arange(STEPS))))],
        receivers=[og.Receiver(field, (z, 5, 11)) for z in (38.5, 60, 90, 120)],
        snapshots=[og.Snapshot(field, every=5)],
    )
    plain, measured = compare(problem, tmp_path)
    assert measured.still_updates > measured.updates / 10
    assert measured.read_bytes < plain.read_bytes
    assert measured.written_bytes < plain.written_bytes


@pytest.mark.parametrize("name", ["flows", "staggered", "wave:4"])
def test_coefficients_are_read_near_what_moves_alone(name, tmp_path, monkeypatch):
    """From the third sweep on: those before it tell where that is."""
    asked, known = {False: 0, True: 0}, StillPlanes.known

    def noted(self, plan, move, window):
        found = known(self, plan, move, window)
        if move.field == "c":
            asked[False] += int((~found).sum())
            asked[True] += int(found.sum())
            assert not found.any() or move.trip.sweep > 1
        return found

    monkeypatch.setattr(StillPlanes, "known", noted)
    compare(posed(name), tmp_path, depth=2)
    assert sum(asked.values()) == PLANES * STEPS // 2
    assert asked[True] > PLANES * (STEPS // 2 - 2) / 2


@settings(max_examples=settings.default.max_examples // 4)
@given(data=st.data())
def test_of_any_place_and_plan(data, tmp_path_factory):
    """Blocks that reach the ends of the grid, none at all, faces that mirror, odd depths."""
    draw = data.draw
    name = draw(st.sampled_from([*STENCILS]))
    few = settings.default.max_examples < 100
    boundary = draw(st.sampled_from(USUAL[name] if few else AROUND))
    planes = 64
    first = draw(st.integers(0, planes - 1))
    block = range(first, min(planes, first + draw(st.integers(0, 5))))
    source = draw(st.integers(8, planes - 9))
    field = "p" if name in ("acoustic_pml:4", "staggered") else "u"
    sources = (
        [og.Source(field, (source, 5, 12), (0.0, 0.0, 0.5) + (0.0,) * (STEPS - 3))]
        if draw(st.booleans())
        else []
    )
    # Rows in whole lines, with padding, and some of which parts are kept.
    columns = draw(st.sampled_from([20, 24, 32, 80]))
    problem = posed(
        name,
        (planes, ROWS, columns),
        boundary,
        block,
        sources=sources,
        snapshots=[og.Snapshot(field, every=7)],
    )
    options = {
        "depth": draw(st.sampled_from([1, 2, 3, 5, 6, 8])),
        "slab_planes": draw(st.sampled_from([2, 3, 8])),
        "threads": draw(st.integers(1, 3)),
    }
    compare(problem, tmp_path_factory.mktemp("still"), **options)


@pytest.mark.parametrize(
    ("name", "field"), [("apart", "u"), ("apart", "w"), ("flows", "u"), ("flows", "flow")]
)
def test_a_source_of_any_field_moves_it(name, field, tmp_path):
    """Also where what hangs on the first field lies elsewhere, and of a temporary."""
    values = tuple(1.0 + np.arange(STEPS))
    problem = posed(name, block=range(0), sources=[og.Source(field, (41, 5, 12), values)])
    _, measured = compare(problem, tmp_path)
    moved = "w" if field == "w" else "u"
    assert np.load(tmp_path / "still" / f"{moved}.npy").any()
    assert measured.still_updates > measured.updates / 10


def test_sweeps_of_one_step_pass_a_level_on(tmp_path):
    _, measured = compare(posed("wave:4", boundary="frozen"), tmp_path, depth=1, slab_planes=8)
    assert measured.still_updates > measured.updates / 10


@pytest.mark.parametrize("depth", [4, 5])
def test_a_run_that_is_cut_off_goes_on_to_the_same_bytes(depth, tmp_path, monkeypatch):
    problem = posed("wave:4", snapshots=[og.Snapshot("u", every=6)])
    expected, _ = made(problem, tmp_path / "all", watch=False)

    class CutOffError(Exception):
        pass

    def cut_off(progress):
        if progress.sweep >= 2 and progress.slab % 3 == 0:
            raise CutOffError

    out = tmp_path / "still"
    options = RunOptions.of(
        memory="200MiB", tier="direct", depth=depth, slab_planes=4, out=out, commit_every=0.001
    )
    monkeypatch.setattr("outgrid.execute.streaming.PROGRESS_SECONDS", 0.0)
    with pytest.raises(CutOffError):
        pipeline.run(problem, options, progress=cut_off)
    record = pipeline.resume(out, options).record
    assert len(record.parts) == 2
    found = {path.name: path.read_bytes() for path in sorted(out.glob("*.npy"))}
    assert found == {name: kept for name, kept in expected.items() if name in found}
    assert len(found) == len(expected)


def test_a_coefficient_that_is_not_finite_is_not_passed_over(tmp_path):
    """0 times infinity is no number, however far off the wave is."""
    problem = posed("wave:4")
    c = np.full(problem.shape, 0.1, "float32")
    c[120, 5, 12] = np.inf
    np.save(tmp_path / "c.npy", c)
    values = {**problem.initial, "c": str(tmp_path / "c.npy")}
    problem = Problem(problem.stencil, problem.shape, "float32", STEPS, {}, "dirichlet", values)
    compare(problem, tmp_path)
    u = np.load(tmp_path / "still" / "u.npy")
    assert np.isnan(u[120, 5, 12])


def test_a_grid_that_closes_along_the_stream_is_updated_as_a_whole(tmp_path):
    problem = posed("heat7", boundary={"kind": "mirror", "z": "periodic"})
    _, record = made(problem, tmp_path / "run")
    assert record.measured.still_updates == 0


@given(stencils(ndim=3))
def test_planes_on_which_a_step_hangs(stencil):
    """As far as marks come that every reading passes on, plane by plane."""
    reads = dependences(stencil)
    depth = 4
    levels = [(field.name, -back) for field in stencil.lasting for back in range(field.levels)]
    reach = Reach.of(reads, levels, [], depth)
    hang = {}
    for step in range(1, depth + 1):
        for stage in range(reads.stages):
            mine = {level: set() for level in levels}
            for read in reads.readings:
                if read.reader != stage or stencil.writer(read.field) is None:
                    continue
                version = step + read.version
                for offset in (read.low, read.high):
                    if version <= 0:
                        mine[read.field, version].add(offset)
                        continue
                    writer = stencil.writer(read.field)
                    for level, planes in hang[version, writer].items():
                        mine[level] |= {plane + offset for plane in planes}
            hang[step, stage] = mine
            for number, level in enumerate(levels):
                low, high = reach.low[step - 1, stage, number], reach.high[step - 1, stage, number]
                if mine[level]:
                    assert (low, high) == (min(mine[level]), max(mine[level]))
                else:
                    assert low > high
