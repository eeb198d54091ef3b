"""Sums and extremes over the grid: in each step, the same for all ways to run a problem."""

import math
import random
from fractions import Fraction

import msgspec
import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import DefinitionError, StoreError
from outgrid.observe.accumulators import added, nothing, numbers, totals_of
from outgrid.observe.totals import Totals, joined
from outgrid.runs.manifest import write_manifest
from outgrid.runs.samples import read_samples, totals_file, write_samples
from outgrid.runs.state import RunFolder
from outgrid.stencil.model import Stencil
from outgrid.stencil.problem import Problem
from outgrid.testing.reference import run_reference
from outgrid.testing.threads import in_threads

STEPS = 11


@og.stencil
def relaxed(u, c, *, k):
    """One field and a coefficient: what changes, and how large it is."""
    change = k * (og.laplacian(u) + c[0, -1, 0] * 0.1)
    return {
        "u": u + change,
        "residual": og.sum(change * change),
        "largest": og.max(u),
        "smallest": og.min(change),
    }


@og.stencil(ndim=2)
def flat(e, h, *, k):
    """Two stages, the second one of which sums up what the first one made."""
    new = h + k * (e[1, 0] - e[0, -1])
    return [
        {"h": new, "before": og.max(og.absolute(h))},
        {"e": e + k * (h - h[-1, 0]), "energy": og.sum(e * e + h * h)},
    ]


def relaxing(shape=(40, 17, 43), dtype="float64", steps=STEPS, boundary="dirichlet", **given):
    values = np.random.default_rng(4).standard_normal(shape)
    initial = {"u": values, "c": "x / nx"}
    return Problem(relaxed, shape, dtype, steps, {"k": 0.1}, boundary, initial, **given)


def flowing(dtype="float64", boundary="dirichlet"):
    values = np.random.default_rng(7).standard_normal((2, 60, 150))
    return Problem(
        flat, (60, 150), dtype, STEPS, {"k": 0.3}, boundary, {"e": values[0], "h": values[1]}
    )


def run(problem, out, **options):
    given = {"memory": "512MiB", "threads": 1} | options
    return pipeline.run(problem, RunOptions.of(out=out, **given))


WAYS = {
    "deep": {"tier": "direct", "depth": 5, "slab_planes": 3, "threads": 2},
    "tiles": {"tier": "direct", "depth": 4, "slab_planes": 2, "tile_rows": 16, "threads": 3},
    "memory": {"tier": "memory", "depth": 11, "tile_rows": 8, "tile_planes": 3, "threads": 2},
    "strips": {"tier": "direct", "depth": 3, "strip_rows": 5},
    "blocks": {"scheme": "overlapped", "block": [9, 6, 41], "depth": 2, "inner": [3, 4, 16]},
}


def same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        assert found[name].tobytes() == values.tobytes(), name


@og.stencil(ndim=2)
def still(u):
    """Nothing changes, and all of it is looked at."""
    return {"u": u, "sum": og.sum(u), "largest": og.max(u), "smallest": og.min(u)}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(4))
def test_sums_of_numbers_of_all_sizes_are_exact(dtype, seed, tmp_path):
    """With one number in each line of 64 bytes, of which nothing is rounded before the end."""
    random, kind = np.random.default_rng(seed), np.dtype(dtype).type
    bounds = np.finfo(dtype)
    sizes = random.integers(bounds.minexp - bounds.nmant, bounds.maxexp - 1, (40, 12))
    found = np.ldexp(random.standard_normal(sizes.shape), sizes).astype(kind)
    found.flat[:6] = [bounds.max, -bounds.max, bounds.tiny, bounds.smallest_subnormal, -0.0, 0.0]
    values = np.zeros((40, 12 * 64 // kind().itemsize), kind)
    values[:, 5 :: 64 // kind().itemsize] = found
    problem = Problem(still, values.shape, dtype, 1, initial={"u": values})
    result = run(problem, tmp_path / "run", tier="memory").reductions
    exact = sum(map(Fraction, found.astype(float).flat), Fraction(0))
    assert result["sum"][0] == float(exact)
    assert (result["largest"][0], result["smallest"][0]) == (found.max(), found.min())


@pytest.mark.parametrize("column", [3, 21])
def test_a_root_that_is_none_is_not_lost_among_others(column, tmp_path):
    @og.stencil(ndim=2)
    def rooted(u):
        root = og.sqrt(u)
        return {"u": u, "sum": og.sum(root), "largest": og.max(root), "smallest": og.min(root)}

    values = np.ones((9, 64))
    values[4, column], values[5] = -1.0, 7.0
    problem = Problem(rooted, values.shape, "float64", 1, initial={"u": values})
    result = run(problem, tmp_path / "run", tier="memory").reductions
    assert all(math.isnan(result[name][0]) for name in ("sum", "largest", "smallest"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_reductions_are_those_of_the_reference_however_they_are_computed(dtype, tmp_path):
    problem = relaxing(dtype=dtype)
    states = []
    run_reference(problem, seen=lambda state: states.append(state["u"].astype(np.float64).copy()))
    wanted = run(problem, tmp_path / "plain", scheme="plain", tier="memory")
    inside = (slice(1, -1),) * 3
    before = [np.asarray(problem.initial["u"], dtype).astype(np.float64), *states[:-1]]
    changes = [new[inside] - old[inside] for old, new in zip(before, states, strict=True)]
    tolerance = {"rtol": 1e-10 if dtype == "float64" else 1e-3}
    found = wanted.reductions
    assert list(found) == ["residual", "largest", "smallest"]
    np.testing.assert_allclose(found["residual"], [np.sum(c * c) for c in changes], **tolerance)
    np.testing.assert_allclose(found["largest"], [b[inside].max() for b in before], **tolerance)
    np.testing.assert_allclose(found["smallest"], [c.min() for c in changes], **tolerance)
    for name, options in WAYS.items():
        result = run(problem, tmp_path / name, **options)
        same(result.reductions, found)
        assert result["u"].tobytes() == wanted["u"].tobytes()


@pytest.mark.parametrize("boundary", ["dirichlet", {"y": "periodic", "x": "mirror"}])
def test_rows_that_tiles_cut_and_stages_give_the_same_sums(boundary, tmp_path):
    problem = flowing(boundary=boundary)
    wanted = run(problem, tmp_path / "plain", scheme="plain", tier="memory").reductions
    assert (np.diff(wanted["energy"]) != 0).all()
    for name in ("deep", "tiles", "memory"):
        same(run(problem, tmp_path / name, **WAYS[name]).reductions, wanted)


def test_sums_go_on_where_a_run_was_cut_off(tmp_path, cut_off):
    problem = relaxing(boundary={"z": "periodic"})
    options = {"tier": "direct", "depth": 3, "slab_planes": 2}
    wanted = run(problem, tmp_path / "whole", **options)
    out = tmp_path / "cut"
    cut_off(60, lambda: run(problem, out, **options))
    found = pipeline.resume(out, RunOptions.of(memory="512MiB", depth=2, tier="direct"))
    same(found.reductions, wanted.reductions)
    assert not list(out.glob("*.new"))


def as_before(out, kinds):
    """Make of a run that was cut off what the version before has left: numbers, and no totals."""
    folder, manifest = RunFolder.of_manifest(out)
    totals = Totals(*totals_file(folder.out, manifest), kinds)
    values = np.zeros((manifest.problem["steps"], len(kinds)))
    values[: manifest.steps_done] = numbers(kinds, totals.read(range(manifest.steps_done)))
    totals.close()
    totals.path.unlink()
    seen = read_samples(folder.out, manifest)
    manifest = write_samples(folder.out, manifest, np.hstack([seen, values]))
    write_manifest(folder.out, msgspec.structs.replace(manifest, format=4))


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_of_the_version_before_goes_on_with_its_numbers(ranks, tmp_path, cut_off):
    problem = relaxing(steps=17, receivers=[og.Receiver("u", (20.5, 8, 21))])
    wanted = run(problem, tmp_path / "whole", tier="memory")
    out = tmp_path / "cut"
    cut_off(40, lambda: run(problem, out, tier="direct", depth=3, slab_planes=2))
    assert RunFolder.of_manifest(out)[1].steps_done > 0
    as_before(out, tuple(each.kind for each in problem.stencil.reductions))
    if ranks == 1:
        found = pipeline.resume(out, RunOptions.of(memory="512MiB", depth=2, tier="direct"))
    else:
        found = resume_ranks(out, ranks, depth=2)
    same(found.reductions, wanted.reductions)
    assert found.traces.tobytes() == wanted.traces.tobytes()
    assert not list(out.rglob("*.new"))


def test_totals_that_are_gone_are_missed(tmp_path, cut_off):
    problem = relaxing(steps=17, receivers=[og.Receiver("u", (20.5, 8, 21))])
    out = tmp_path / "cut"
    cut_off(40, lambda: run(problem, out, tier="direct", depth=3, slab_planes=2))
    folder, manifest = RunFolder.of_manifest(out)
    totals_file(folder.out, manifest)[0].unlink()
    with pytest.raises(StoreError, match="reductions of some steps are missing"):
        pipeline.resume(out, RunOptions.of(memory="512MiB", tier="direct"))


RANKS = {
    "seams": (2, {"exchange": "seams"}),
    "halos": (3, {"exchange": "halos"}),
    "rows": (4, {"row_cuts": [7]}),
}


def run_ranks(problem, out, count, **given):
    options = RunOptions.of(memory="512MiB", threads=1, out=out, depth=3, slab_planes=2, **given)
    return in_threads(
        lambda comm: pipeline.run(problem, options, comm=comm), count, random.Random(count)
    )[0]


def resume_ranks(out, count, **given):
    options = RunOptions.of(memory="512MiB", threads=1, **given)
    return in_threads(
        lambda comm: pipeline.resume(out, options, comm=comm), count, random.Random(count)
    )[0]


@pytest.mark.parametrize("way", RANKS)
def test_ranks_add_up_to_the_sums_of_one(way, tmp_path):
    count, given = RANKS[way]
    for problem in (relaxing(), flowing(boundary={"x": "periodic"})):
        if problem.ndim == 2 and way == "rows":
            continue
        name = problem.stencil.name
        wanted = run(problem, tmp_path / f"{name} alone", tier="memory")
        found = run_ranks(problem, tmp_path / name, count, **given)
        same(found.reductions, wanted.reductions)
        assert not list((tmp_path / name).rglob("*.new"))


def test_ranks_go_on_with_the_sums_of_others(tmp_path, cut_off):
    problem = relaxing(
        steps=17, receivers=[og.Receiver("u", (20, 8, 21))], boundary={"y": "neumann"}
    )
    wanted = run(problem, tmp_path / "whole", tier="memory")
    out = tmp_path / "cut"
    cut_off(40, lambda: run(problem, out, tier="direct", depth=3, slab_planes=2))
    cut_off(30, lambda: resume_ranks(out, 2, depth=2))
    done = [RunFolder.of_manifest(out / f"rank.{rank}")[1].steps_done for rank in (0, 1)]
    assert min(done) > 0
    cut_off(5, lambda: resume_ranks(out, 2))
    cut_off(25, lambda: resume_ranks(out, 3, depth=2, row_cuts=[5, 9]))
    found = resume_ranks(out, 1, depth=3)
    same(found.reductions, wanted.reductions)
    assert found.traces.tobytes() == wanted.traces.tobytes()
    assert np.asarray(found["u"]).tobytes() == wanted["u"].tobytes()
    assert not list(out.rglob("*.new"))


def test_totals_stand_for_numbers_and_their_file_is_checked(tmp_path):
    kinds = ("sum", "max", "min")
    values = np.array([[0.1, -2.5, 3.0], [-1e300, 5e-324, -0.0], [0.0, math.inf, -math.inf]])
    values = np.vstack([values, [[-math.inf, math.nan, 1.0], [math.nan, -math.inf, 1e-310]]])
    table = totals_of(kinds, values)
    np.testing.assert_array_equal(numbers(kinds, table), values)
    np.testing.assert_array_equal(numbers(kinds, added(kinds, table, nothing(kinds, 5))), values)
    both = added(kinds, table, totals_of(kinds, values[::-1]))
    sums = [math.nan, -math.inf, 0.0, -math.inf, math.nan]
    np.testing.assert_array_equal(numbers(kinds, both)[:, 0], sums)
    path = tmp_path / "totals"
    file = Totals(path, "one", kinds)
    file.write(0, table)
    assert (file.read(range(1, 4)) == table[1:4]).all()
    file.close()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match="the reductions of step 3 do not match their checksum"):
        list(joined([(path, "one")], kinds, 5))
    with pytest.raises(StoreError, match="of step 1 do not match their checksum, or belong to ano"):
        list(joined([(path, "another")], kinds, 5))
    with pytest.raises(StoreError, match="reductions of some steps are missing"):
        list(joined([(path, "one")], kinds, 6))


def test_a_sum_is_exact_where_rows_cancel_and_says_where_it_is_none(tmp_path):
    @og.stencil(ndim=2)
    def kept(u):
        return {"u": u, "total": og.sum(u), "top": og.max(u), "root": og.sum(og.sqrt(u))}

    values = np.zeros((6, 40))
    values[1, 3], values[2, 9], values[4, 30] = 1e300, -1e300, 1e-300
    problem = Problem(kept, values.shape, "float64", 2, boundary="neumann", initial={"u": values})
    found = run(problem, tmp_path / "run").reductions
    assert found["total"].tolist() == [1e-300, 1e-300]
    assert found["top"].tolist() == [1e300, 1e300]
    assert all(map(math.isnan, found["root"]))


def test_reductions_are_part_of_the_stencil():
    rule = relaxed.trace()
    assert Stencil.from_dict(rule.to_dict()) == rule
    assert [each.name for each in rule.reductions] == ["residual", "largest", "smallest"]

    @og.stencil
    def wrong(u):
        return {"u": og.sum(u)}

    with pytest.raises(DefinitionError, match="returns a sum for the field 'u'"):
        wrong.trace(2)

    @og.stencil
    def twice(u):
        return {"u": u, "total": og.sum(og.max(u))}

    with pytest.raises(DefinitionError, match="the sum of a max is not supported"):
        twice.trace(2)
