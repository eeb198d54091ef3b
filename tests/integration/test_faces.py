"""Values of faces that lie in files: the same bytes in every setting, and those of a formula."""

import random
from typing import Any

import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.errors import DefinitionError, UsageError
from outgrid.testing.device import stand_in
from outgrid.testing.reference import run_reference
from outgrid.testing.threads import in_threads

SHAPE, STEPS = (14, 11, 17), 6


@og.stencil
def spread(c, *, k):
    """Diffusion, with a temporary and a cell that lies beyond two faces."""
    half = og.temporary(c + k * og.laplacian(c), name="half")
    return half + 0.05 * og.laplacian(c) + 0.02 * half[1, 1, -1]


def around(faces: Any, **given: Any) -> og.Problem:
    initial = {"c": "x / 8 + y * z"}
    return og.Problem(spread, SHAPE, "float64", STEPS, {"k": 0.125}, faces, initial, **given)


def run(problem, out, **options):
    given = {"memory": "1GiB", "tier": "direct", "scheme": "plain"} | options
    return pipeline.run(problem, RunOptions.of(out=out, **given))


@pytest.fixture
def planes(tmp_path):
    """Files of whole numbers for the faces across x, y and z, and formulas of the same."""
    z, y, x = np.indices(SHAPE)
    every = {}
    for axis, name, formula, values in (
        (0, "z", "step + 3 * y - x", 3 * y - x),
        (1, "y", "step + z * 5 + x", z * 5 + x),
        (2, "x", "step - y + 2 * z", 2 * z - y),
    ):
        plane = values.take(0, axis).astype("float32" if axis else "float64")
        np.save(tmp_path / f"{name}.npy", [plane + step for step in range(STEPS + 1)])
        every[name] = og.Series(tmp_path / f"{name}.npy"), formula
    return every


@pytest.mark.parametrize("axis", ["z", "y", "x"])
@pytest.mark.parametrize("side", ["-", "+"])
def test_a_file_gives_what_a_formula_gives(axis, side, planes, tmp_path):
    series, formula = planes[axis]
    kind = {"kind": "robin", "a": 0.5, "b": 1.0} if side == "+" else {}

    def posed(value: Any) -> og.Problem:
        face = {**kind, "value": value}
        fields = {"half": {axis + side: face}}  # read in the step that has made it
        return around({"kind": "neumann", axis + side: face, "fields": fields})

    plain = run(posed(series), tmp_path / "plain")
    wanted = run(posed(formula), tmp_path / "formula", tier="memory")
    assert np.asarray(plain["c"]).tobytes() == np.asarray(wanted["c"]).tobytes()
    expected = run_reference(posed(series))["c"]
    assert np.allclose(plain["c"], expected, rtol=1e-12, atol=0)
    ways: list[dict[str, Any]] = [
        {"scheme": "skewed", "depth": 3, "slab_planes": 2},
        {"scheme": "skewed", "depth": 2, "strip_rows": 6},
        {"scheme": "overlapped", "block": (6, 5, 17)},
        {"scheme": "skewed", "tier": "mmap"},
    ]
    for number, way in enumerate(ways):
        other = run(posed(series), tmp_path / str(number), **way)
        assert np.asarray(other["c"]).tobytes() == np.asarray(plain["c"]).tobytes(), way


def test_a_device_gets_the_values_of_each_step(planes, tmp_path, monkeypatch):
    stand_in(monkeypatch.setattr)
    posed = around({"kind": "neumann", "x+": {"value": planes["x"][0]}})
    made = run(posed, tmp_path / "run", scheme="skewed", depth=3, device="gpu", slab_planes=2)
    plain = run(posed, tmp_path / "plain")
    assert np.asarray(made["c"]).tobytes() == np.asarray(plain["c"]).tobytes()


@pytest.mark.parametrize("boundary", [{"x": "periodic"}, {"y": "periodic", "x+": "dirichlet"}])
def test_other_faces_are_any(boundary, planes, tmp_path):
    posed = around({"kind": "mirror", "z-": {"value": planes["z"][0]}, **boundary})
    made = run(posed, tmp_path / "run", scheme="skewed", depth=3)
    assert np.allclose(made["c"], run_reference(posed)["c"], rtol=1e-12, atol=0)


@pytest.mark.parametrize("exchange", ["halos", "seams"])
def test_ranks_read_their_part_of_a_face(exchange, planes, tmp_path):
    posed = around({"kind": "neumann", "x-": {"value": planes["x"][0]}})
    plain = run(posed, tmp_path / "plain")
    given = RunOptions.of(
        memory="512MiB", threads=1, tier="direct", exchange=exchange, out=tmp_path / "run"
    )
    made = in_threads(lambda comm: pipeline.run(posed, given, comm=comm), 3, random.Random(3))
    assert np.asarray(made[0]["c"]).tobytes() == np.asarray(plain["c"]).tobytes()


@pytest.mark.parametrize("advances", [5, 11])
def test_a_run_goes_on_with_the_values_that_are_left(advances, planes, tmp_path, cut_off):
    posed = around({"kind": "neumann", "x-": {"value": planes["x"][0]}})
    out, given = tmp_path / "run", {"slab_planes": 3, "depth": 2, "commit_every": 0}
    cut_off(advances, lambda: run(posed, out, scheme="skewed", **given))
    made = pipeline.resume(out, RunOptions.of(out=out, memory="512MiB"))
    assert np.array_equal(made["c"], run(posed, tmp_path / "plain")["c"])


def test_a_plane_of_one_run_enters_another(tmp_path):
    """What a snapshot of a plane keeps is a file for the face of a grid that begins behind it."""
    heat = og.stencil(lambda u: u + 0.1 * og.laplacian(u))
    keep = og.Snapshot("u", every=1, x=5)
    bumps = {"u": "sin(x) + y"}
    whole = og.Problem(heat, (20, 30), "float64", 8, {}, "neumann", bumps, snapshots=[keep])
    found = run(whole, tmp_path / "whole", tier="memory")
    first = np.asarray(run(whole.replace(steps=0, snapshots=[]), tmp_path / "first")["u"])[:, 5]
    np.save(tmp_path / "begin.npy", first)
    files = og.Series((tmp_path / "begin.npy", tmp_path / "whole" / "snapshot.0.npy"))
    behind = og.Problem(
        heat, (20, 24), "float64", 8, {},
        {"kind": "neumann", "x-": {"value": files}}, {"u": "sin(x + 6) + y"},
    )  # fmt: skip
    assert np.array_equal(run(behind, tmp_path / "behind")["u"], np.asarray(found["u"])[:, 6:])


def test_what_does_not_fit_is_refused(planes, tmp_path):
    def refused(error, words, face="x-", **given):
        value = given.pop("value", planes["x"][0])
        with pytest.raises(error, match=words):
            run(around({"kind": "neumann", face: {"value": value}}), tmp_path / "run", **given)

    refused(UsageError, r"shape \(7, 14, 11\); the face has \(11, 17\)", "z-")
    refused(UsageError, "choose tier direct", tier="memory")
    refused(UsageError, "step 5 reads frame 10", value=og.Series(tmp_path / "x.npy", 0, 2))
    refused(
        DefinitionError, "across x and lacks the axis z",
        value=og.Series(tmp_path / "x.npy", along="z"),
    )  # fmt: skip
    with pytest.raises(DefinitionError, match="must be one of z, y, x, not 'w'"):
        og.Series("x.npy", along="w")
    posed = around({"kind": "neumann", "x-": {"value": planes["x"][0]}})
    with pytest.raises(UsageError, match="gradients do not support a Series, here face_x_1"):
        og.plan_gradient(posed, wrt=["c"], memory="512MiB")
