"""Faces that absorb: how much comes back of a wave, and the same bytes however it is run."""

import random
from typing import Any

import numpy as np
import pytest

import outgrid as og
from outgrid import pipeline
from outgrid.cli import main
from outgrid.config import RunOptions
from outgrid.job import load_job
from outgrid.stencil.problem import Problem
from outgrid.testing.reference import reference_with_bound
from outgrid.testing.threads import in_threads

SHAPE = (30, 28, 37)


@og.stencil
def sound(p, v: og.Vector, *, s):
    """Pressure and velocity, each in place."""
    return [
        {"v": {axis: v[axis] - s * og.forward(p, axis) for axis in v}},
        {"p": p - s * sum(og.backward(v[axis], axis) for axis in v)},
    ]


def wave_in(boundary: Any, **changes: Any) -> Problem:
    given: dict[str, Any] = {
        "initial": {
            "u": "1 + exp(-((x - 15)**2 + (y - 12)**2 + (z - 14)**2) / 6)",
            "c": "0.1 + 0.05 * sin(0.2 * z)",
        },
        "sources": [og.Source("u", (14, 12.5, 16), 0.1)],
        "receivers": [og.Receiver("u", (20, 20, 20))],
        "snapshots": [og.Snapshot("u", every=3, y=9)],
    }
    return Problem("wave:4", SHAPE, "float64", 12, {}, boundary, **(given | changes))


SPONGES = {"kind": "sponge", "width": 8, "strength": 0.4, "value": 1.0}
AROUND = {"open": SPONGES, "under a mirror": SPONGES | {"z-": "mirror"}}
WAYS = [
    {"tier": "direct", "scheme": "plain"},
    {"tier": "direct", "depth": 5, "tile_rows": 6},
    {"tier": "direct", "depth": 4, "strip_rows": 9},
    {"tier": "mmap", "in_place": True, "depth": 6},
    {"scheme": "overlapped", "block": (9, 8, SHAPE[2] - 4), "depth": 3},
]


def run(problem: Problem, out: Any, **options: Any) -> og.Result:
    return pipeline.run(problem, RunOptions.of(memory="1GiB", threads=2, out=out, **options))


@pytest.fixture(scope="module")
def resident(tmp_path_factory):
    """Problems, and what they leave in memory."""
    folder = tmp_path_factory.mktemp("memory")
    return {
        name: (wave_in(each), run(wave_in(each), folder / name, tier="memory"))
        for name, each in AROUND.items()
    }


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_every_way_to_run_a_sponge_leaves_the_same_bytes(way, resident, tmp_path):
    problem, wanted = resident["open" if way.get("scheme") == "overlapped" else "under a mirror"]
    found = run(problem, tmp_path / "run", **way)
    for name in ("u", "u.previous"):
        assert found[name].tobytes() == wanted[name].tobytes()
    assert found.traces.tobytes() == wanted.traces.tobytes()
    assert np.array_equal(found.snapshots[0], wanted.snapshots[0])


def layers_of(kind):
    """Waves that leave a grid through absorbing faces, with sources on both sides of a cut."""
    if kind == "matched":
        given = {"kind": "matched", "width": 6, "courant": 0.4, "frequency": 0.03}
        initial = {"p": "exp(-((x - 15)**2 + (y - 12)**2 + (z - 14)**2) / 6)", "c": 0.16}
        initial |= {"slope": 0.0, "bend": 0.0}
        return Problem("acoustic_pml:4", SHAPE, "float64", 9, {}, given, initial)
    return wave_in(AROUND[kind])


@pytest.mark.parametrize("kind", [*AROUND, "matched"])
@pytest.mark.parametrize(
    ("count", "given"),
    [(2, {"exchange": "seams", "depth": 2}), (4, {"row_cuts": [6], "depth": 3})],
    ids=["seams", "halos"],
)
def test_ranks_absorb_as_one_does(kind, count, given, tmp_path):
    problem = layers_of(kind)
    alone = run(problem, tmp_path / "alone", tier="memory")
    options = RunOptions.of(memory="1GiB", threads=1, out=tmp_path / "ranks", **given)
    found = in_threads(
        lambda comm: pipeline.run(problem, options, comm=comm), count, random.Random(1)
    )[0]
    assert len(found.record.ranks) == count
    for name in alone.record.fields:
        assert np.asarray(found[name]).tobytes() == alone[name].tobytes(), name
    if problem.receivers:
        assert found.traces.tobytes() == alone.traces.tobytes()
        assert np.array_equal(found.snapshots[0], alone.snapshots[0])


def test_a_sponge_is_within_the_bound_of_the_reference(resident):
    problem, result = resident["under a mirror"]
    reference, bounds = reference_with_bound(problem)
    error = np.abs(result["u"] - reference["u"])
    assert bounds["u"].max() < 1e-7
    assert (error <= 2 * bounds["u"]).all()


@pytest.mark.parametrize("kind", ["second order", "staggered"])
def test_as_much_comes_back_as_the_factors_say(kind, tmp_path):
    """A packet falls on a sponge at a right angle and goes through all of it twice."""
    courant, columns, width, strength = 0.5, 700, 160, 0.1
    sponge = {"kind": "sponge", "width": width, "strength": strength}
    around = {"y": "periodic", "x-": 0.0, "x+": sponge}

    def packet(at: float) -> str:
        return f"exp(-((x - {at}) / 30)**2) * cos(0.2 * (x - {at}))"

    def shape_after(steps: int) -> np.ndarray:
        common = ((4, columns), "float64", steps)
        if kind == "second order":
            initial = {"u": packet(300), "u.previous": packet(300 - courant), "c": courant**2}
            rule: Any = Problem("wave:8", *common, {}, around, initial)
        else:  # velocities lie half a cell on and half a step back
            initial = {"p": packet(300), "v_y": 0.0, "v_x": packet(299.5 - courant / 2)}
            rule = Problem(sound, *common, {"s": courant}, around, initial)
        name = rule.stencil.fields[0].name
        return run(rule, tmp_path / f"{kind} {steps}", tier="memory")[name][2]

    before = shape_after(20)
    after = shape_after(int((2 * (columns - 300)) / courant))
    returned = np.linalg.norm(after) / np.linalg.norm(before)
    factors = og.sponge(columns, width, strength, "+")
    wanted = np.prod(factors) ** (2 / courant)
    assert 0.1 < wanted < 0.2
    assert returned == pytest.approx(wanted, rel=0.03)


@pytest.mark.parametrize("order", [4, 6, 8])
def test_noise_does_not_grow_in_matched_layers_of_low_frequency(order, tmp_path):
    """A matched layer damps slow waves most, where errors of differences are left alone."""
    shape, velocity = (36, 34), 0.54
    noise = np.zeros(shape)
    noise[4:-4, 4:-4] = np.random.default_rng(order).standard_normal((28, 26))
    problem = Problem(
        f"acoustic_pml:{order}",
        shape,
        "float64",
        2000,
        boundary={"kind": "matched", "courant": velocity, "frequency": 1e-4},
        initial={"p": noise, "c": velocity**2, "slope": 0.0, "bend": 0.0},
    )
    left = run(problem, tmp_path / "run", tier="memory")["p"]
    assert np.sum(left**2) < 0.5 * np.sum(noise**2)


@pytest.mark.parametrize("order", [2, 8])
def test_a_matched_layer_sends_next_to_nothing_back_at_every_order(order, tmp_path):
    """Fixed cells, of which there are as many as a stencil reads far, are no part of its width."""
    width, steps = 10, 350
    wave = {"courant": 0.4, "frequency": 0.02}

    def heard(extent, boundary):
        middle, time = extent // 2, np.pi * (np.arange(steps) / 50 - 1.5)
        ears = [(middle + 30, middle), (middle, middle - 30), (middle + 30, middle - 30)]
        problem = Problem(
            f"acoustic_pml:{order}",
            (extent, extent),
            "float64",
            steps,
            boundary=boundary,
            initial={"p": 0.0, "c": 0.16, "slope": 0.0, "bend": 0.0},
            sources=[og.Source("p", (middle, middle), (1 - 2 * time**2) * np.exp(-(time**2)))],
            receivers=[og.Receiver("p", ear) for ear in ears],
        )
        return run(problem, tmp_path / f"{extent}", tier="memory").traces

    silent = heard(321, {"kind": "matched", "width": 20, **wave})
    back = heard(97, {"kind": "matched", "width": width, **wave}) - silent
    assert np.sum(back**2) < 1e-6 * np.sum(silent**2)


JOB = """
[problem]
stencil = "wave:4"
shape = [60, 70]
steps = 40
initial = {u = "exp(-((x - 30)**2 + (y - 20)**2) / 8)", c = 0.2}

[problem.boundary]
kind = "sponge"
width = 10
"y-" = "odd-mirror"
"x+" = {kind = "sponge", width = 16, strength = 0.5}

[run]
memory = "256MiB"
"""


def test_a_job_says_it_in_the_same_words(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    boundary = {
        "kind": "sponge",
        "width": 10,
        "y-": "odd-mirror",
        "x+": {"kind": "sponge", "width": 16, "strength": 0.5},
    }
    initial = {"u": "exp(-((x - 30)**2 + (y - 20)**2) / 8)", "c": 0.2}
    wanted = Problem("wave:4", (60, 70), "float64", 40, {}, boundary, initial)
    assert load_job(path).problem == wanted
    assert main(["run", str(path), "--quiet"]) == 0
    found = np.load(tmp_path / "job.run/u.npy")
    assert 0 < np.abs(found).max() < 0.5
    assert main(["verify", str(tmp_path / "job.run")]) == 0
