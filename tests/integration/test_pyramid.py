"""Coarser levels that a run leaves beside its results: equal to those of an export."""

import os
from math import prod

import numpy as np
import pytest

import outgrid as og
from outgrid.errors import UsageError
from outgrid.observe import pyramid
from outgrid.runs.leftovers import leftovers
from outgrid.runs.verify import verify
from outgrid.serving import Served

zarr = pytest.importorskip("zarr")

GIVEN = {"memory": "256 MiB", "threads": 1, "pyramid": True}


def heat(shape=(70, 130, 66), **others):
    given = {"steps": 4, "dtype": "float32", "initial": {"u": "sin(x/9)*cos(y/7) + z/70"}}
    return og.Problem("heat7", shape, parameters={"k": 0.1}, **given | others)


def wave():
    initial = {"u": "sin(x/9)*cos(y/7)", "c": 0.1}
    return og.Problem("wave:2", (66, 131, 40), steps=4, dtype="float64", initial=initial)


def flat():
    grid = og.Grid(spacing=(2, 0.5), origin=(1, -3), units="m")
    initial = {"u": "sin(x/9)*cos(y/7)"}
    return og.Problem("heat5", (200, 130), steps=4, initial=initial, grid=grid)


@og.stencil
def counting(u):
    """Whole numbers that count up."""
    return u + 1


def counted():
    initial, dtypes = {"u": "x + 3*y + z"}, {"u": "int16"}
    return og.Problem(counting, (65, 66, 67), steps=4, initial=initial, dtypes=dtypes)


def as_exported(result, folder):
    """All levels of all fields, as an export makes them of the finished result."""
    for name in [name for name in result if not name.endswith(".previous")]:
        exported = zarr.open(
            og.export(result, folder / f"{name}.zarr", fields=[name], levels=True).path
        )
        wanted, found = exported[name], zarr.open(result.out / f"{name}.pyramid", mode="r")
        assert dict(found.attrs) == {"ome": wanted.attrs["ome"]}
        assert {*found} == {*wanted} >= {"0", "1"}
        for level in found:
            assert found[level].dtype == wanted[level].dtype
            assert found[level][...].tobytes() == wanted[level][...].tobytes()
    return found


@pytest.mark.parametrize(
    ("problem", "given"),
    [
        (heat, {"tier": "direct", "depth": 2}),
        (heat, {"tier": "memory"}),
        (wave, {"tier": "mmap"}),
        (flat, {"tier": "direct"}),
    ],
)
def test_levels_are_those_of_an_export(tmp_path, problem, given):
    # Other tests of the process may have left it larger than 256 MiB, of which a run warns.
    result = og.run(problem(), out=tmp_path / "run", **GIVEN | {"memory": "4GiB"} | given)
    found = as_exported(result, tmp_path)
    assert found["1"].chunks == tuple(min(64, extent) for extent in found["1"].shape)
    assert zarr.open(result.out, mode="r")["u.pyramid/1"].shape == found["1"].shape
    assert os.path.samefile(
        result.path("u"), result.out / f"u.pyramid/0/c/{'/'.join('0' * found['0'].ndim)}"
    )
    with Served(result.out) as served:
        assert {"u", "u.pyramid"} <= {*served.arrays}
    assert not result.record.warnings
    assert not verify(result.out).errors


def test_a_seventh_more_bytes(tmp_path):
    result = og.run(heat((128, 128, 256)), out=tmp_path / "run", tier="direct", **GIVEN)
    levels = result.out.glob("u.pyramid/[1-9]/c/0/0/0")
    assert sum(path.stat().st_size for path in levels) <= prod((128, 128, 256)) * 4 / 7
    as_exported(result, tmp_path)


def test_planes_that_leave_in_parts_are_read_from_the_result(tmp_path):
    result = og.run(heat(), out=tmp_path / "run", tier="direct", strip_rows=40, **GIVEN)
    assert "read from the result" in " ".join(result.record.warnings)
    as_exported(result, tmp_path)


@pytest.mark.parametrize("advances", [1, 20, 60])
def test_a_run_that_is_cut_off_is_resumed(tmp_path, cut_off, advances):
    out = tmp_path / "run"
    given = GIVEN | {"tier": "direct", "depth": 2, "slab_planes": 2, "commit_every": "1us"}
    cut_off(advances, lambda: og.run(heat(), out=out, **given))
    assert [*out.glob("u.pyramid/*/c/0/0/0.new")]
    as_exported(og.resume(out), tmp_path)
    assert not [*out.glob("u.pyramid/*/c/0/0/0.new")]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_run_that_is_cut_off_at_its_levels_is_resumed(tmp_path, monkeypatch, number):
    def cut(folder, count=[]):  # noqa: B006 - it counts
        count.append(folder)
        if len(count) > number:
            raise KeyboardInterrupt

    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(pyramid, "sync_folder", cut)
        with pytest.raises(KeyboardInterrupt):
            og.run(heat((260, 20, 20)), out=out, tier="direct", **GIVEN)
    as_exported(og.resume(out), tmp_path)


def test_what_a_run_has_begun_is_cleaned_and_overwritten(tmp_path, cut_off):
    out = tmp_path / "run"
    cut_off(3, lambda: og.run(heat(), out=out, tier="direct", depth=2, slab_planes=2, **GIVEN))
    leftovers(out, delete=True)
    assert not [*out.glob("u.pyramid*")]
    og.run(heat(), out=out, tier="direct", **GIVEN)
    again = og.run(heat((40, 30, 80)), out=out, tier="direct", overwrite=True, **GIVEN)
    assert {*zarr.open(out / "u.pyramid", mode="r")} == {"0", "1"}
    as_exported(again, tmp_path)


def test_levels_that_a_resume_asks_for_are_cleaned(tmp_path, cut_off):
    out, given = tmp_path / "run", GIVEN | {"tier": "direct", "depth": 2, "slab_planes": 2}
    cut_off(1, lambda: og.run(heat(), out=out, **given | {"pyramid": False}))
    cut_off(1, lambda: og.resume(out, pyramid=True))
    assert [*out.glob("u.pyramid/*/c/0/0/0.new")]
    leftovers(out, delete=True)
    assert not [*out.rglob("*.new")]


def test_a_plan_counts_its_planes():
    with_levels = og.plan(heat((256, 512, 512)), memory="256MiB", pyramid=True)
    without = og.plan(heat((256, 512, 512)), memory="256MiB")
    assert with_levels.memory.fixed_bytes - without.memory.fixed_bytes > 8 * 256 * 256


def test_one_file_has_no_levels(tmp_path):
    with pytest.raises(UsageError, match="pyramid = true is for results that stay in a folder"):
        og.run(heat(), out=tmp_path / "u.h5", **GIVEN)


def test_whole_numbers_are_rounded(tmp_path):
    result = og.run(counted(), out=tmp_path / "run", tier="direct", **GIVEN)
    found = as_exported(result, tmp_path)
    cells = np.asarray(result["u"])[:2, :2, :2].astype(float)
    assert found["1"][0, 0, 0] == np.rint(cells.mean())
