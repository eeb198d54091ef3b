"""Functions made of others have the values that NumPy's functions of the same names have."""

import numpy as np
import pytest

import outgrid as og
from outgrid.stencil.derivatives import derivatives
from outgrid.stencil.expression import Access, evaluate
from outgrid.stencil.symbol import FieldSymbol, Symbol

RANDOM = np.random.default_rng(4)
ODD = [0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 0.3, 1e20, -1e20, np.inf, -np.inf, np.nan, 5e-324]
ODD += [2.0**52 + 1, 1.5e308, -2.0, 1.0]
LEFT = np.concatenate([20 * RANDOM.normal(size=5000), RANDOM.uniform(-1, 1, 5000), ODD])
RIGHT = np.concatenate([20 * RANDOM.normal(size=10000), ODD[3:], ODD[:3]])
U, V = FieldSymbol("u", 2), FieldSymbol("v", 2)

with np.errstate(all="ignore"):
    CASES = {
        "floor": (og.floor(U), np.floor(LEFT), 0),
        "ceil": (og.ceil(U), np.ceil(LEFT), 0),
        "trunc": (og.trunc(U), np.trunc(LEFT), 0),
        "round": (og.round(U), np.rint(LEFT), 0),
        "sign": (og.sign(U), np.sign(LEFT), 0),
        "clip": (og.clip(U, -0.5, V), np.where(LEFT > RIGHT, RIGHT, np.maximum(LEFT, -0.5)), None),
        "remainder": (U % 2, LEFT % 2, 0),
        "floor_divide": (U // 2, LEFT // 2, 0),
        "hypot": (og.hypot(U, V), np.hypot(LEFT, RIGHT), 3),
        "cosh": (og.cosh(U), np.cosh(LEFT), 4),
        "sinh": (og.sinh(U), np.sinh(LEFT), 4),
        "tan": (og.tan(U), np.tan(LEFT), 3),
        "arctan": (og.arctan(U), np.arctan(LEFT), 3),
        "arctan2": (og.arctan2(U, V), np.arctan2(LEFT, RIGHT), 3),
    }


def values(symbol, left=LEFT, right=RIGHT):
    def leaf(node):
        if isinstance(node, Access):
            return {"u": left, "v": right}[node.field]
        return np.float64(node.value)

    with np.errstate(all="ignore"):
        return evaluate(symbol.expression, leaf)


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2] is not None])
def test_values_are_those_of_numpy(name):
    symbol, wanted, ulps = CASES[name]
    found = values(symbol)
    zeros = (LEFT == 0) & ((RIGHT == 0) | ~(LEFT > 0)) if name == "arctan2" else LEFT != LEFT
    if name in ("remainder", "floor_divide"):  # of infinite numbers NumPy makes none
        zeros = np.isinf(LEFT)
    np.testing.assert_array_equal(np.isnan(found)[~zeros], np.isnan(wanted)[~zeros])
    sure = ~np.isnan(wanted) & ~zeros
    with np.errstate(all="ignore"):
        apart = np.where(found == wanted, 0, np.abs(found - wanted) / np.spacing(np.abs(wanted)))
    assert apart[sure].max() <= ulps
    if name != "sign":  # NumPy's sign of -0.0 is 0.0
        np.testing.assert_array_equal(np.signbit(found)[sure], np.signbit(wanted)[sure])


def test_remainders_of_whole_numbers_are_exact():
    left = RANDOM.integers(-(2**40), 2**40, LEFT.size).astype(float)
    right = RANDOM.integers(1, 2**12, LEFT.size) * RANDOM.choice((-1.0, 1.0), LEFT.size)
    np.testing.assert_array_equal(values(U % V, left, right), left % right)
    np.testing.assert_array_equal(values(U // V, left, right), left // right)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_divided_next_to_a_multiple_is_left_between_0_and_the_divisor(tmp_path, dtype):
    """There the quotient is rounded to a whole number that it does not reach."""
    divisors = RANDOM.uniform(0.05, 3, 3000).astype(dtype) * RANDOM.choice((-1, 1), 3000)
    right = divisors.astype(dtype)
    left = (RANDOM.integers(-1000, 1000, 3000) * right).astype(dtype)
    left += RANDOM.integers(-2, 3, 3000).astype(dtype) * np.spacing(left)
    assert (np.floor(left / right) != left // right).any()
    np.testing.assert_array_equal(values(U % V, left, right), left % right)
    np.testing.assert_array_equal(values(U // V, left, right), left // right)
    for divisor in right[0], right[right < 0][0], right[right > 0][0]:
        found = values(U % float(divisor), left, right)
        np.testing.assert_array_equal(found, left % divisor)

    @og.stencil(ndim=2)
    def divided(u, v):
        return {"u": u % v}

    problem = og.Problem(
        divided,
        (30, 100),
        dtype,
        1,
        initial={"u": left.reshape(30, 100), "v": right.reshape(30, 100)},
    )
    found = og.run(problem, out=tmp_path / "run")["u"]
    np.testing.assert_array_equal(found, (left % right).reshape(30, 100))


def test_what_is_clipped_is_between_and_nan_stays():
    found = values(og.clip(U, -0.5, 3))
    np.testing.assert_array_equal(found, np.clip(LEFT, -0.5, 3))


def test_a_value_that_is_no_number_is_told():
    found = values(og.where(og.isnan(U), 1.0, 0.0))
    np.testing.assert_array_equal(found, np.isnan(LEFT) * 1.0)


def test_the_operators_and_functions_of_python_mean_the_same():
    import math

    pairs = [
        (round(U), og.round(U)),
        (math.floor(U), og.floor(U)),
        (math.ceil(U), og.ceil(U)),
        (math.trunc(U), og.trunc(U)),
        (np.floor(U), og.floor(U)),
        (np.mod(U, V), U % V),
        (np.floor_divide(U, 3), U // 3),
        (7 % U, np.mod(7, U)),
        (np.clip(U, 0, 1), og.clip(U, 0, 1)),
        (np.round(U), og.round(U)),
    ]
    for one, other in pairs:
        assert one.expression == other.expression


def test_digits_are_refused():
    with pytest.raises(og.DefinitionError, match="rounds to whole numbers only"):
        round(U, 2)


TIES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 0.3, 3.7, -41.0, float(np.tan(np.pi / 8))]
A, B = (each.ravel() for each in np.meshgrid(TIES, TIES))
SQUARES = np.where((A == 0) & (B == 0), np.inf, A * A + B * B)
# (by u, by v) where u is A and v is B; 0 at the corner of a cone, which has none.
SLOPES = {
    "sign": (og.sign(U), 0 * A, 0 * A),
    "clip": (og.clip(U, -2, 1), 1.0 * ((A >= -2) & (A <= 1)), 0 * A),
    "hypot": (og.hypot(U, V), A / np.sqrt(SQUARES), B / np.sqrt(SQUARES)),
    "cosh": (og.cosh(U), np.sinh(A), 0 * A),
    "sinh": (og.sinh(U), np.cosh(A), 0 * A),
    "tan": (og.tan(U), 1 + np.tan(A) ** 2, 0 * A),
    "arctan": (og.arctan(U), 1 / (1 + A * A), 0 * A),
    "arctan2": (og.arctan2(U, V), B / SQUARES, -A / SQUARES),
}


@pytest.mark.parametrize("name", SLOPES)
def test_derivatives_are_exact_also_where_values_are_0_or_equal(name):
    symbol, *wanted = SLOPES[name]
    leaves = [U.expression, V.expression]
    found = derivatives(symbol.expression, leaves)
    for leaf, exact in zip(leaves, wanted, strict=True):
        slope = np.zeros(A.size)
        for rest, scale in found.get(leaf, {}).items():
            factors = [scale] if rest is None else [scale, rest]
            slope += np.prod([values(Symbol(each), A, B) + 0 * A for each in factors], axis=0)
        np.testing.assert_allclose(slope, exact, rtol=1e-12, atol=1e-14)


# The derivatives by u and by v.
FAR = [
    (U / V, lambda u, v: 1 / v, lambda u, v: -u / v / v),
    (og.hypot(U, V), lambda u, v: u / np.hypot(u, v), lambda u, v: v / np.hypot(u, v)),
    (
        og.arctan2(U, V),
        lambda u, v: v / np.hypot(u, v) / np.hypot(u, v),
        lambda u, v: -u / np.hypot(u, v) / np.hypot(u, v),
    ),
    (og.tanh(U / V), lambda u, v: np.cosh(u / v) ** -2 / v, None),
    (V**-2, None, lambda u, v: -2 / v / v / v),
    (V**-6, None, lambda u, v: -6 * (1 / v) ** 6 / v),
    (U**V, None, lambda u, v: np.where(u == 0, 0, u**v * np.log(np.where(u == 0, 1, u)))),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "case", FAR, ids=["quotient", "hypot", "arctan2", "tanh", "-2", "-6", "pow"]
)
def test_derivatives_are_right_at_very_large_and_small_values(case, dtype):
    symbol, *wanted = case
    sizes = [1e-20, 1e-12, 1e-5, 0.3, 1.0, 12.0, 1e6, 1e20]
    if dtype is np.float64:
        sizes += [1e-200, 1e-170, 1e170, 1e200]
    sizes.append(0.0)
    left, right = (each.ravel().astype(dtype) for each in np.meshgrid(sizes, sizes[:-1]))

    def value(expression):
        def leaf(node):
            if isinstance(node, Access):
                return {"u": left, "v": right}[node.field]
            return dtype(node.value)

        return evaluate(expression, leaf)

    found = derivatives(symbol.expression, [U.expression, V.expression])
    limits = np.finfo(dtype)
    for leaf, exact in zip((U, V), wanted, strict=True):
        if exact is None:
            continue
        slope = sum(
            value(scale) if rest is None else value(scale) * value(rest)
            for rest, scale in found[leaf.expression].items()
        )
        exact = exact(left.astype(np.longdouble), right.astype(np.longdouble))
        size = np.abs(exact)
        sure = np.isfinite(value(symbol.expression)) & (size < limits.max)
        sure &= (size == 0) | (size > limits.tiny)
        apart = np.abs(slope - exact)[sure]
        assert (apart <= 80 * limits.eps * size[sure] + limits.tiny).all()


def test_signs_need_no_states():
    assert derivatives((U - og.sign(U)).expression, [U.expression]) == {
        U.expression: derivatives(U.expression, [U.expression])[U.expression]
    }
