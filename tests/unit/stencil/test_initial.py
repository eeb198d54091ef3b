import math
from itertools import product

import numpy as np
import pytest

from outgrid.errors import DefinitionError
from outgrid.stencil import initial
from outgrid.stencil.initial import InitialExpression, evaluate


def values(text: str, shape: tuple[int, ...] = (3, 4, 5), dtype: str = "float64"):
    return evaluate(InitialExpression(text), range(shape[0]), shape, dtype)


def test_formulas_see_indices_extents_and_pi() -> None:
    z, y, x = np.meshgrid(*(np.arange(float(n)) for n in (3, 4, 5)), indexing="ij")
    cases = {
        "z": z,
        "100*z + 10*y + x": 100 * z + 10 * y + x,
        "-x**2 / nx": -(x**2) / 5,
        "nz + ny + nx + pi": np.full((3, 4, 5), 12 + math.pi),
        "where(x < nx/2, 1, 0)": np.where(x < 2.5, 1.0, 0.0),
        "(x >= 1) + (x > 1) + (y == 2) - (z != 1)": (
            (x >= 1) * 1.0 + (x > 1) * 1.0 + (y == 2) * 1.0 - (z != 1) * 1.0
        ),
        "-(x <= 1)": -1.0 * (x <= 1),
        "hypot(x, y)": np.hypot(x, y),
        "minimum(x, y) + maximum(y, z)": np.minimum(x, y) + np.maximum(y, z),
        "exp(-x) + sin(y) + cos(z) + tanh(x) + sqrt(y) + abs(-z)": (
            np.exp(-x) + np.sin(y) + np.cos(z) + np.tanh(x) + np.sqrt(y) + z
        ),
        "floor(x / 2) + ceil(y / 2) + round(x / 2) + trunc(-x / 2) + sign(y - 1)": (
            np.floor(x / 2) + np.ceil(y / 2) + np.rint(x / 2) + np.trunc(-x / 2) + np.sign(y - 1)
        ),
        "(x + 2 * y) % 3 + x // 2 + clip(x, 1, 3)": (x + 2 * y) % 3 + x // 2 + np.clip(x, 1, 3),
        "sinh(x) + cosh(y) + tan(z) + arctan(x) + arctan2(y, -x) + log(1 + x)": (
            np.sinh(x) + np.cosh(y) + np.tan(z) + np.arctan(x) + np.arctan2(y, -x) + np.log(1 + x)
        ),
        "9**9**2": np.full((3, 4, 5), 9.0**81),
        " +1 ": np.ones((3, 4, 5)),
    }
    for text, expected in cases.items():
        np.testing.assert_allclose(values(text), expected, rtol=1e-15, err_msg=text)


def test_two_dimensions() -> None:
    np.testing.assert_array_equal(values("10*y + x", (2, 3)), [[0, 1, 2], [10, 11, 12]])


def test_values_do_not_depend_on_how_planes_and_rows_are_grouped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    formula = InitialExpression("exp(-((z - 3.3)**2 + (y - ny/2)**2 + sin(x)**2) / 7) / (1 + x)")
    shape = (7, 9, 11)
    monkeypatch.setattr(initial, "_CELLS_PER_BLOCK", 40)
    whole = evaluate(formula, range(7), shape, "float32")
    assert (whole.dtype, whole.shape) == (np.float32, shape)
    for first, last in [(0, 1), (2, 7), (6, 7), (3, 3)]:
        part = evaluate(formula, range(first, last), shape, "float32")
        assert part.tobytes() == whole[first:last].tobytes()
        for threads, rows in product((1, 2, 3, 8), (range(9), range(2, 8), range(5, 6))):
            part = evaluate(formula, range(first, last), shape, "float32", rows, threads)
            assert part.tobytes() == whole[first:last, rows.start : rows.stop].tobytes()


@pytest.mark.parametrize("shape", [(7, 9), (7, 9, 11)])
def test_no_planes_have_no_values_however_many_threads_there_are(shape: tuple[int, ...]) -> None:
    formula = InitialExpression("x + y")
    for threads in (1, 2, 8):
        assert evaluate(formula, range(3, 3), shape, "float32", None, threads).shape[0] == 0
    if len(shape) == 3:
        found = evaluate(formula, range(2), shape, "float32", range(4, 4), 8)
        assert found.shape == (2, 0, 11)


def test_spelling_does_not_matter() -> None:
    assert InitialExpression(" (x)+ 1") == InitialExpression("x+1")
    assert InitialExpression("sin(x) * nz").names == {"x", "nz"}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["''", "is not valid"]),
        ("x +", ["is not valid", ".npy"]),
        ("start.csv", ["'start.csv'", "files of .npy"]),
        ("q + 1", ["'q'", "known"]),
        ("sinnh(x)", ["'sinnh'", "did you mean 'sinh'"]),
        ("hypot(x)", ["hypot takes 2 arguments, got 1"]),
        ("sin(x, out=y)", ["is not allowed"]),
        ("'a'", ["is not allowed"]),
        ("True", ["is not allowed"]),
        ("1j", ["is not allowed"]),
        ("x if y else z", ["is not allowed"]),
        ("0 < x < 2", ["0 < x < 2", "single comparisons"]),
        ("x and y", ["is not allowed"]),
        ("x @ 2", ["x @ 2"]),
        ("x.real", ["x.real"]),
        ("[x for x in y]", ["is not allowed"]),
        ("(lambda: 1)()", ["is not allowed"]),
        ("__import__('os')", ["__import__"]),
        ("1e999", ["finite"]),
        ("1" + "0" * 400, ["finite"]),
        ("(" * 1500 + "x" + ")" * 1500, ["is not valid"]),
        ("-" * 4000 + "x", ["is not valid"]),
        ("+".join(["x"] * 202), ["deeper than 200"]),
        ("x" * 5000, ["5000", "4096"]),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_anything_else_is_refused(text: str, parts: list[str]) -> None:
    with pytest.raises(DefinitionError) as caught:
        InitialExpression(text)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "dtype", "parts"),
    [
        ("1 / (x + 10*y + 100*z - 123)", "float64", ["inf", "(1, 2, 3)"]),
        ("sqrt(2 - x)", "float64", ["nan", "(0, 0, 3)"]),
        ("1e39 * (z == 2)", "float32", ["inf", "float32", "(2, 0, 0)"]),
    ],
)
@pytest.mark.parametrize("threads", [1, 3])
def test_values_must_be_finite(text: str, dtype: str, parts: list[str], threads: int) -> None:
    with pytest.raises(DefinitionError) as caught:
        evaluate(InitialExpression(text), range(3), (3, 4, 5), dtype, threads=threads)
    for part in parts:
        assert part in str(caught.value)


def test_the_cell_is_named_in_two_dimensions_too() -> None:
    with pytest.raises(DefinitionError, match=r"cell \(1, 2\)"):
        values("1 / (x + 10*y - 12)", (2, 3))
