"""The reference against the same rules written out by hand, slice by slice."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outgrid.definition import stencil
from outgrid.errors import UsageError
from outgrid.stencil.problem import Problem
from outgrid.stencil.values import ArrayDigest
from outgrid.testing.reference import initial_arrays, run_reference

RANDOM = np.random.default_rng(7)


def random(shape: tuple[int, ...], dtype: str = "float64") -> np.ndarray:
    return RANDOM.uniform(-1, 1, shape).astype(dtype)


def shifted(array: np.ndarray, radius: int, *offset: int) -> np.ndarray:
    """The interior of `array`, moved by `offset`."""
    return array[
        tuple(
            slice(radius + move, extent - radius + move)
            for move, extent in zip(offset, array.shape, strict=True)
        )
    ]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_heat7(dtype: str) -> None:
    start = random((5, 6, 7), dtype)
    result = run_reference(
        Problem("heat7", start.shape, dtype, 3, {"k": 0.125}, initial={"u": start})
    )["u"]
    u = start
    number = np.dtype(dtype).type
    for _ in range(3):
        new = u.copy()
        centre = u[1:-1, 1:-1, 1:-1]
        x = u[1:-1, 1:-1, :-2] + u[1:-1, 1:-1, 2:]
        y = u[1:-1, :-2, 1:-1] + u[1:-1, 2:, 1:-1]
        z = u[:-2, 1:-1, 1:-1] + u[2:, 1:-1, 1:-1]
        new[1:-1, 1:-1, 1:-1] = centre + number(0.125) * (number(-6) * centre + ((x + y) + z))
        u = new
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, u)


def test_box27() -> None:
    start = random((5, 6, 7))
    weights = {"c0": 0.5, "c1": 0.05, "c2": 0.02, "c3": -0.03}
    result = run_reference(
        Problem("box27", start.shape, steps=2, parameters=weights, initial={"u": start})
    )["u"]
    u = start
    for _ in range(2):
        new = u.copy()
        new[1:-1, 1:-1, 1:-1] = sum(
            weights[f"c{abs(z) + abs(y) + abs(x)}"] * shifted(u, 1, z, y, x)
            for z in (-1, 0, 1)
            for y in (-1, 0, 1)
            for x in (-1, 0, 1)
        )
        u = new
    np.testing.assert_allclose(result, u, rtol=0, atol=1e-14)


@pytest.mark.parametrize("shape", [(9, 10), (5, 6, 7)])
def test_wave_of_fourth_order(shape: tuple[int, ...]) -> None:
    now, before, c = random(shape), random(shape), abs(random(shape))
    given = {"u": now, "u.previous": before, "c": c}
    result = run_reference(Problem("wave:4", shape, steps=3, initial=given))
    before = np.where(interior_mask(shape, 2), before, now)
    still = (0,) * len(shape)
    for _ in range(3):
        laplacian = -2.5 * len(shape) * shifted(now, 2, *still)
        for axis in range(len(shape)):
            for distance, weight in ((1, 4 / 3), (2, -1 / 12)):
                for sign in (-1, 1):
                    offset = [0] * len(shape)
                    offset[axis] = sign * distance
                    laplacian = laplacian + weight * shifted(now, 2, *offset)
        new = now.copy()
        new[interior_mask(shape, 2)] = (
            2 * shifted(now, 2, *still)
            - shifted(before, 2, *still)
            + shifted(c, 2, *still) * laplacian
        ).ravel()
        now, before = new, now
    np.testing.assert_allclose(result["u"], now, rtol=0, atol=1e-12)
    np.testing.assert_allclose(result["u.previous"], before, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(result["c"], c)


def interior_mask(shape: tuple[int, ...], radius: int) -> np.ndarray:
    mask = np.zeros(shape, bool)
    mask[(slice(radius, -radius),) * len(shape)] = True
    return mask


SEA = {"g": 9.81, "dt": 0.5, "dx": 100.0}


def test_shallow_water() -> None:
    eta, h = random((8, 9)), RANDOM.uniform(-200, 800, (8, 9))
    result = run_reference(
        Problem("shallow_water", (8, 9), steps=1, parameters=SEA, initial={"eta": eta, "h": h})
    )["eta"]
    factor = 9.81 * 0.5**2 / 100.0**2
    expected = eta.copy()
    for y in range(1, 7):
        for x in range(1, 8):
            total = 0.0
            for dy, dx in ((0, 1), (0, -1), (1, 0), (-1, 0)):
                both = h[y, x], h[y + dy, x + dx]
                depth = sum(both) / 2 if min(both) > 0 else 0.0
                total += depth * (eta[y + dy, x + dx] - eta[y, x])
            expected[y, x] = eta[y, x] + factor * total
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-14)


def test_land_is_a_wall_and_water_is_conserved() -> None:
    shape = (12, 14)
    h = RANDOM.uniform(10, 500, shape)
    land = ~interior_mask(shape, 1)
    land[5:8, 6:9] = True
    h[land] = -RANDOM.uniform(0, 50, land.sum())
    eta = random(shape)
    result = run_reference(
        Problem("shallow_water", shape, steps=200, parameters=SEA, initial={"eta": eta, "h": h})
    )["eta"]
    np.testing.assert_array_equal(result[land], eta[land])
    assert not np.allclose(result[~land], eta[~land])
    assert result[~land].sum() == pytest.approx(eta[~land].sum(), abs=1e-10)
    assert abs(result).max() < 5


def test_the_boundary_layer_never_changes() -> None:
    start = random((7, 8))
    kept = run_reference(Problem("heat5", start.shape, steps=5, initial={"u": start}))["u"]
    layer = ~interior_mask(start.shape, 1)
    np.testing.assert_array_equal(kept[layer], start[layer])
    fixed = run_reference(
        Problem("heat5", start.shape, steps=5, boundary={"value": 3}, initial={"u": start})
    )["u"]
    assert (fixed[layer] == 3).all()


def test_a_boundary_value_is_not_for_coefficients_but_for_previous_levels() -> None:
    given = {"u": 1.0, "u.previous": 2.0, "c": 0.25}
    result = run_reference(
        Problem("wave:2", (5, 5), boundary={"value": 7}, initial=given)  # no step at all
    )
    layer = ~interior_mask((5, 5), 1)
    assert (result["u"][layer] == 7).all()
    assert (result["u.previous"][layer] == 7).all()
    assert (result["u.previous"][~layer] == 2).all()
    assert (result["c"] == 0.25).all()


@stencil(ndim=2)
def staggered(h, e, *, k):
    return [{"h": h + k * (e[0, 1] - e)}, {"e": e + k * (h - h[0, -1])}]


@stencil(ndim=2)
def swapped(a, b):
    return b[0, 1], a


def test_stages_see_what_earlier_ones_wrote_and_one_stage_reads_old_values() -> None:
    h, e = random((4, 6)), random((4, 6))
    problem = Problem(staggered, (4, 6), steps=1, parameters={"k": 0.5}, initial={"h": h, "e": e})
    result = run_reference(problem)
    new_h = h.copy()
    new_h[:, 1:-1] += 0.5 * (e[:, 2:] - e[:, 1:-1])
    new_e = e.copy()
    new_e[:, 1:-1] += 0.5 * (new_h[:, 1:-1] - new_h[:, :-2])
    np.testing.assert_allclose(result["h"], new_h, atol=1e-15)
    np.testing.assert_allclose(result["e"], new_e, atol=1e-15)
    result = run_reference(Problem(swapped, (4, 6), steps=1, initial={"a": h, "b": e}))
    np.testing.assert_array_equal(result["a"][:, 1:-1], e[:, 2:])
    np.testing.assert_array_equal(result["b"][:, 1:-1], h[:, 1:-1])


def test_initial_values_of_every_kind(tmp_path: Path) -> None:
    stored = np.arange(30.0).reshape(5, 6)
    np.save(tmp_path / "c.npy", stored)
    given: dict[str, Any] = {"u": "10*y + x", "u.previous": 4, "c": tmp_path / "c.npy"}
    arrays = initial_arrays(Problem("wave:2", (5, 6), "float32", initial=given))
    assert {array.dtype for array in arrays.values()} == {np.dtype("float32")}
    np.testing.assert_array_equal(arrays["u"][2], [20, 21, 22, 23, 24, 25])
    np.testing.assert_array_equal(arrays["u.previous"], np.full((5, 6), 4))
    np.testing.assert_array_equal(arrays["c"], stored)


def test_given_arrays_are_left_alone() -> None:
    start = random((5, 6))
    before = start.copy()
    run_reference(
        Problem("heat5", (5, 6), steps=2, boundary={"value": 1}, initial={"u": 0}), {"u": start}
    )
    np.testing.assert_array_equal(start, before)


def test_arrays_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    problem = Problem("heat5", (5, 6), initial={"u": 0})
    cases: list[tuple[dict[str, np.ndarray], str]] = [
        ({}, "'u' is missing"),
        ({"u": np.zeros((5, 6)), "w": np.zeros((5, 6))}, "'w'; known: u"),
        ({"u": np.zeros((6, 5))}, r"float64 of shape \(6, 5\).*float64 of shape \(5, 6\)"),
        ({"u": np.zeros((5, 6), "float32")}, "is float32"),
    ]
    for arrays, message in cases:
        with pytest.raises(UsageError, match=message):
            run_reference(problem, arrays)
    np.save(tmp_path / "u.npy", np.zeros((2, 3)))
    with pytest.raises(UsageError, match=r"shape \(2, 3\)"):
        run_reference(Problem("heat5", (5, 6), initial={"u": tmp_path / "u.npy"}))
    with pytest.raises(UsageError, match="an array in memory, of which only a digest"):
        run_reference(Problem("heat5", (5, 6), initial={"u": ArrayDigest("0123456789abcdef")}))


def test_overflow_travels_silently() -> None:
    problem = Problem("heat5", (5, 5), "float32", 40, {"k": 1e30}, initial={"u": "x**2"})
    assert not np.isfinite(run_reference(problem)["u"]).all()
