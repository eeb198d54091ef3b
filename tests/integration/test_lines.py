"""Grids of one axis, and fields of several channels."""

import json
import subprocess
import sys

import numpy as np
import pytest

import outgrid as og
from outgrid.cli import main
from outgrid.errors import DefinitionError, Stopped, UsageError
from outgrid.record import RECORD_NAME
from outgrid.stencil.problem import Problem
from outgrid.testing.device import stand_in
from outgrid.testing.reference import run_reference

CELLS = 300


@og.stencil
def heat(u, *, k):
    """One offset; a temporary, an index and chance beside."""
    slope = og.temporary(u[1] - u)
    return u + k * (slope - slope[-1]) + og.where(og.index("x") == 3, og.random(1) / 8, 0)


def line(**changes):
    given = {
        "boundary": {"x-": 0.5, "x+": "neumann"},
        "initial": {"u": np.random.default_rng(2).random(CELLS)},
        "sources": [og.Source("u", 9, 0.25)],
        "receivers": [og.Receiver("u", (7.5,))],
        "snapshots": [og.Snapshot("u", every=4, x="::3"), og.Snapshot("u", every=4, x=4)],
    }
    return og.Problem(heat, (CELLS,), "float64", 20, {"k": 0.2}, **(given | changes))


def test_a_line_is_what_numpy_makes_of_it(tmp_path):
    result = og.run(line(), memory="1GiB", out=tmp_path / "run")
    u, member = np.array(line().initial["u"].array)[0], run_reference(line())["u"][0]
    u[0] = 0.5
    for _ in range(20):
        slope = np.append(u[1:] - u[:-1], 0)  # nothing passes the upper face
        slope[-1] = 0
        flow = np.insert(slope, 0, 0)[:-1]
        new = u + 0.2 * (slope - flow)
        new[0], new[9] = 0.5, new[9] + 0.25
        u = new
    far = slice(30, None)  # out of reach of the cell that is kicked by chance
    np.testing.assert_allclose(result["u"][far], u[far], rtol=1e-12)
    np.testing.assert_allclose(result["u"], member, rtol=1e-12)
    assert result["u"].shape == (CELLS,)
    assert [frames.shape for frames in result.snapshots] == [(5, 100), (5,)]
    assert result.snapshots[1][-1] == result["u"][4]
    assert result.to_xarray()["u"].shape == (1, CELLS)


def left(result):
    return [np.array(result["u"]).tobytes(), result.traces.tobytes()] + [
        np.array(frames).tobytes() for frames in result.snapshots
    ]


def test_every_way_to_run_it_leaves_the_same_bytes(tmp_path, monkeypatch):
    wanted = left(og.run(line(), memory="1GiB", out=tmp_path / "plain", scheme="plain"))
    for n, how in enumerate(({"tier": "direct", "depth": 3}, {"tier": "mmap"}, {"depth": 20})):
        assert left(og.run(line(), memory="1GiB", out=tmp_path / str(n), **how)) == wanted
    out = tmp_path / "cut"
    with pytest.raises(Stopped):
        og.run(line(), memory="1GiB", out=out, tier="direct", depth=1, stop_after=1e-3)
    assert left(og.resume(out)) == wanted
    stand_in(monkeypatch.setattr)
    there = og.run(line(snapshots=()), memory="1GiB", out=tmp_path / "gpu", device="gpu")
    assert left(there) == wanted[:2]


def test_a_line_is_drawn_as_a_curve(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    result = og.run(line(), memory="1GiB", out=tmp_path / "run")
    (curve,) = result.plot().axes[0].lines
    assert curve.get_ydata().tolist() == result["u"].tolist()
    assert main(["report", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run/report/u.png").exists()


def test_a_line_is_kept_and_changed_as_one():
    problem = line()
    assert (problem.line, problem.shape) == (True, (1, CELLS))
    assert Problem.from_dict(problem.to_dict()) == problem
    again = problem.replace(steps=3)
    assert (again.line, again.steps, again.shape) == (True, 3, problem.shape)


def test_a_step_on_an_array_has_its_shape():
    rule = og.stencil(lambda u: u + 0.25 * (u[-1] - 2 * u + u[1]))
    assert rule.trace().radius == (0, 1)
    found = rule(np.arange(6.0) ** 2, boundary="neumann")
    assert found.tolist() == [0.25, 1.5, 4.5, 9.5, 16.5, 22.75]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: line(initial={"u": "y"}), "formula 'y' of 'u' uses another axis"),
        (lambda: line(boundary={"y": "neumann"}), "the face 'y' of a grid of one axis"),
        (lambda: line(initial={"u": np.zeros(7)}), r"shape \(7,\)"),
        (lambda: og.Problem("heat5", (9,), initial={"u": 0}), "is 2-D, not 1-D"),
        (lambda: heat.trace(2), "1 offset, in 2-D 2 are needed"),
        (lambda: og.channels(), "must have names"),
        (lambda: og.channels("r", "r"), "must differ"),
    ],
)
def test_what_is_no_line_is_told(make, words):
    with pytest.raises(DefinitionError, match=words):
        make()


def test_a_gradient_on_a_line_is_refused(tmp_path):
    last = og.Cotangents(final={"u": np.ones(CELLS)})
    with pytest.raises(UsageError, match=r"shape \(1, 300\)"):
        og.gradient(line(snapshots=()), last, wrt=["u"], out=tmp_path / "g")


RGB = og.channels("r", "g", "b")


@og.stencil
def blurred(picture: RGB, *, k):
    """Each channel alone."""
    return {"picture": {c: picture[c] + k * og.laplacian(picture[c]) for c in picture}}


@og.stencil
def sheared(v: og.Vector, g: og.Gradient):
    """Of a gradient only what is beside its diagonal."""
    return [{"g": {"xy": v.x[1, 0] - v.x}}, {"v": {"x": v.x + 0.1 * (g.xy - g.xy[-1, 0])}}]


@pytest.mark.parametrize("first", [True, False], ids=["channels first", "channels last"])
def test_a_picture_is_one_array(first, tmp_path):
    picture = np.random.default_rng(3).integers(0, 256, (12, 20, 3), np.uint8)
    given = np.moveaxis(picture, -1, 0) if first else picture
    problem = og.Problem(
        blurred, (12, 20), "float32", 2, {"k": 0.2}, "neumann", {"picture": given},
        dtypes={"picture": "uint8"},
    )  # fmt: skip
    result = og.run(problem, memory="1GiB", out=tmp_path / "run")
    assert list(result) == ["picture_r", "picture_g", "picture_b"]
    found = np.stack([*result.components("picture").values()], axis=-1)
    wanted = picture.astype(np.float32)
    for _ in range(2):
        around = np.pad(wanted, ((1, 1), (1, 1), (0, 0)), mode="symmetric")
        near = around[2:, 1:-1] + around[:-2, 1:-1] + around[1:-1, 2:] + around[1:-1, :-2]
        wanted = np.rint(wanted + np.float32(0.2) * (near - 4 * wanted))
    assert (found == wanted).mean() > 0.99  # a fused sum may round a half to the other side
    assert np.abs(found - wanted).max() <= 1


READ = """
import sys
import outgrid as og
result = og.open(sys.argv[1])
og.Problem.from_dict(result.record.problem)
print(*result.components("picture"))
"""


def test_channels_are_known_by_their_name_in_another_process(tmp_path):
    boundary = {"kind": "dirichlet", "fields": {"picture": "neumann"}}
    picture = np.random.default_rng(3).random((12, 20, 3))
    problem = og.Problem(
        blurred, (12, 20), "float32", 2, {"k": 0.2}, boundary, {"picture": picture}
    )
    result = og.run(problem, memory="1GiB", out=tmp_path / "run")
    command = [sys.executable, "-c", READ, str(result.out)]
    left = subprocess.run(command, capture_output=True, text=True, check=True)
    assert left.stdout.split() == [*result.components("picture")] == [*result]
    # As earlier versions wrote it.
    record = json.loads((result.out / RECORD_NAME).read_text())
    del record["problem"]["stencil"]["wholes"]
    record["problem"]["boundary"]["fields"] = {"picture": {"kind": "neumann", "value": None}}
    (result.out / RECORD_NAME).write_text(json.dumps(record))
    assert Problem.from_dict(record["problem"]) == problem
    assert [*og.open(result.out).components("picture")] == [*result]
    again = og.run(problem, memory="1GiB", out=result.out, resume=True)
    assert again.record.started == result.record.started


@og.stencil
def noted(v: og.Vector, v_xx, p: og.channels("old", "new"), p_mean):
    """Scalars beside a vector and channels, called as if they were components of them."""
    moved = {axis: v[axis] + v_xx for axis in v}
    return {"v": moved, "v_xx": v_xx + p_mean, "p": {"old": p.new, "new": p.old}, "p_mean": p_mean}


def test_components_are_those_that_were_declared(tmp_path):
    initial = {"v": "x", "v_xx": 0.5, "p": "y", "p_mean": 0.25}
    regions = {"v": og.Box(x=(2, 6)), "p": og.Box(y=(1, 3))}
    posed = og.Problem(noted, (6, 8), steps=1, initial=initial, regions=regions)
    assert {*posed.regions} == {"v_y", "v_x", "p_old", "p_new"}
    assert og.Problem.from_dict(posed.to_dict()) == posed
    assert [*og.run(posed, out=tmp_path / "run").components("v")] == ["v_y", "v_x"]

    @og.stencil
    def apart(u_old, u_new, v_x):
        return u_new, u_old, v_x

    with pytest.raises(DefinitionError, match="no field for initial values 'u'"):
        og.Problem(apart, (6, 8), initial={"u": 1.0, "v": 1.0})
    with pytest.raises(DefinitionError, match="no field 'u'"):
        posed.replace(
            stencil=apart, initial={"u_old": 1.0, "u_new": 1.0, "v": 1.0}, regions={},
            boundary={"fields": {"u": "neumann"}},
        )  # fmt: skip


def unused(u, g: og.Gradient):
    return u + 1


def test_components_that_are_not_used_are_no_fields():
    names = [field.name for field in sheared.trace(2).fields]
    assert names == ["v_x", "g_xy"]
    with pytest.raises(DefinitionError, match="'g_yy' is neither read nor updated"):
        og.stencil(unused).trace(2)
