"""Applications against answers from elsewhere, in memory and through a small window."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.stencil.problem import Problem

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_both_ways(problem, folder, **options):
    """The result in memory, after a run through a small window has given the same bytes."""
    given = {"memory": "512MiB", "threads": 1}
    whole = pipeline.run(problem, RunOptions.of(out=folder / "memory", tier="memory", **given))
    given |= {"out": folder / "disk", "tier": "direct"} | options
    plan = pipeline.plan(problem, RunOptions.of(**given))
    fields = sum(ring.index == 0 for ring in plan.rings) * problem.field_bytes
    assert plan.sweeps > 1
    assert plan.depth > 1
    assert plan.window_bytes * 4 < fields
    streamed = pipeline.run(problem, RunOptions.of(**given))
    for name in whole.record.fields:
        assert streamed[name].tobytes() == whole[name].tobytes()
    if problem.receivers:
        assert streamed.traces.tobytes() == whole.traces.tobytes()
    return whole


@pytest.mark.parametrize(
    ("size", "steps", "residual"), [("XS", 3, 6.227474e-03), ("S", 3, 3.288628e-03)]
)
def test_himeno_has_the_residual_that_the_reference_code_prints(size, steps, residual, tmp_path):
    himeno = example("himeno")
    result = run_both_ways(himeno.problem(size, steps), tmp_path, depth=2, slab_planes=1)
    # The reference adds up half a million squares in single precision.
    assert himeno.squared(result["residual"]) == pytest.approx(residual, rel=3e-3)


def test_a_cavity_rings_at_the_frequency_of_the_scheme(tmp_path):
    cavity = example("maxwell_cavity")
    result = run_both_ways(cavity.problem(), tmp_path, depth=4, slab_planes=1)
    np.testing.assert_allclose(result.traces[:, 0], cavity.exact(), atol=1e-12)


def test_sound_arrives_in_time_and_with_the_right_strength(tmp_path):
    sound = example("acoustic")
    result = run_both_ways(sound.problem(), tmp_path, depth=2, slab_planes=1)
    wanted = sound.exact()
    assert abs(result.traces[:, 0] - wanted).max() < 0.01 * wanted.max()


def test_soil_creeps_on_real_terrain_as_its_cosine_modes_do(tmp_path):
    hillslope = example("hillslope")
    land = hillslope.terrain()
    result = run_both_ways(hillslope.problem(land), tmp_path, depth=10, slab_planes=4)
    np.testing.assert_allclose(result["h"], hillslope.exact(land), rtol=1e-12)
    assert result["h"].mean() == pytest.approx(land.mean(), rel=1e-12)


@pytest.mark.parametrize("width", [3, 5])
def test_a_picture_is_smoothed_like_by_shifted_copies(width, tmp_path):
    mask = example("image_mask")
    pixels = mask.picture()
    result = run_both_ways(mask.problem(pixels, width, 4), tmp_path, depth=2, slab_planes=4)
    np.testing.assert_allclose(result["u"], mask.exact(pixels, width, 4), rtol=1e-13)


def test_gray_scott_keeps_a_uniform_state_and_spreads_spots(tmp_path):
    rule = example("gray_scott").gray_scott
    spot = "where(hypot(x - 60, y - 100) < 6, {}, {})"
    initial = {"u": spot.format(0.5, 1.0), "v": spot.format(0.25, 0.0)}
    problem = Problem(rule, (200, 120), "float64", 400, boundary="neumann", initial=initial)
    result = run_both_ways(problem, tmp_path, depth=8, slab_planes=2)
    # Far from the spot nothing has happened; u + v of the spot has symmetric neighbours.
    np.testing.assert_allclose(result["u"][0], 1.0, rtol=1e-12)
    np.testing.assert_allclose(result["u"][:, 59], result["u"][:, 61], rtol=1e-10)
    assert (result["v"] > 0.1).sum() > 150
