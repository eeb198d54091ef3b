"""The rounding bound against evaluations in higher precision and with fused operations."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from outgrid.definition import stencil
from outgrid.stencil import expression as ex
from outgrid.stencil.contract import contract
from outgrid.stencil.problem import Problem
from outgrid.stencil.symbol import (
    arctan2,
    cos,
    cosh,
    exp,
    floor,
    hypot,
    log,
    maximum,
    minimum,
    sin,
    sqrt,
    tanh,
    where,
)
from outgrid.testing.reference import reference_with_bound, run_reference
from outgrid.testing.rounding import bounded

RANDOM = np.random.default_rng(11)
SHAPE_2D, SHAPE_3D = (11, 12), (10, 11, 12)


@stencil(ndim=2)
def everything(u, c, *, k):
    ratio = (u[0, 1] - k * u[1, 0]) / (2 + c)
    return minimum(maximum(-ratio, u.previous), 3) + sqrt(abs(u) + 1) * c - abs(ratio) * 0.1


PROBLEMS: list[tuple[Any, tuple[int, ...], dict[str, float], tuple[str, ...]]] = [
    ("heat5", SHAPE_2D, {}, ("u",)),
    ("heat7", SHAPE_3D, {}, ("u",)),
    ("box27", SHAPE_3D, {"c0": 0.3, "c1": 0.07, "c2": 0.02}, ("u",)),
    ("wave", SHAPE_3D, {}, ("u", "c")),
    ("wave:4", SHAPE_2D, {}, ("u", "c")),
    ("shallow_water", SHAPE_2D, {"dt": 0.3, "dx": 2.0}, ("eta", "h")),
    (everything, SHAPE_2D, {"k": 0.7}, ("u", "c")),
]


def problem_of(
    case: tuple[Any, tuple[int, ...], dict[str, float], tuple[str, ...]], dtype: str
) -> Problem:
    rule, shape, parameters, names = case
    # Float32 values, constants aside, so that both precisions begin with the same numbers.
    given = {
        name: RANDOM.uniform(0.01, 1, shape).astype("float32").astype("float64") for name in names
    }
    return Problem(rule, shape, dtype, 6, parameters, initial=given)


def evolve(
    problem: Problem, precision: Any, trees: dict[str, ex.Expression], fma: Any
) -> dict[str, Any]:
    """The problem in another precision: constants and parameters rounded as the problem says."""
    number = np.dtype(problem.dtype).type
    start = run_reference(
        Problem(
            problem.stencil,
            problem.shape,
            problem.dtype,
            0,
            problem.parameters,
            initial=problem.initial,
        )
    )
    state = {name: array.astype(precision) for name, array in start.items()}
    for _ in range(problem.steps):
        (stage,) = problem.stencil.stages
        for each in stage.assignments:
            values: dict[ex.Expression, Any] = {}
            for node in ex.nodes(trees[each.field]):
                match node:
                    case ex.Constant(value):
                        values[node] = precision(number(value))
                    case ex.Parameter(name):
                        values[node] = precision(number(problem.parameters[name]))
                    case ex.Access(name, level, offset):
                        source = state[name + (".previous" if level else "")]
                        values[node] = source[
                            tuple(
                                slice(inside.start + move, inside.stop + move)
                                for inside, move in zip(problem.interior, offset, strict=True)
                            )
                        ]
                    case ex.Operation("fma", operands):
                        values[node] = fma(*(values[each] for each in operands))
                    case ex.Operation(name, operands):
                        function = ex.OPERATIONS[name].function
                        values[node] = function(*(values[each] for each in operands))
            new = state[each.field].copy()
            new[tuple(slice(i.start, i.stop) for i in problem.interior)] = values[trees[each.field]]
            if problem.stencil.field(each.field).levels == 2:
                state[f"{each.field}.previous"] = state[each.field]
            state[each.field] = new
    return state


def as_written(problem: Problem) -> dict[str, ex.Expression]:
    return {each.field: each.expression for each in problem.stencil.assignments}


def fused(problem: Problem) -> dict[str, ex.Expression]:
    return {each.field: contract(each.expression) for each in problem.stencil.assignments}


def fma_in_single_precision(a: Any, b: Any, c: Any) -> Any:
    # A product of two float32 is exact in longdouble; the sum there rounds far below float32.
    wide = np.asarray(a, np.longdouble) * np.asarray(b, np.longdouble) + np.asarray(
        c, np.longdouble
    )
    return wide.astype(np.float32)


IDS = ["heat5", "heat7", "box27", "wave", "wave4-2d", "shallow_water", "everything"]


@pytest.mark.parametrize("case", PROBLEMS, ids=IDS)
def test_values_with_bound_are_the_reference_values(case: Any) -> None:
    problem = problem_of(case, "float64")
    values, bounds = reference_with_bound(problem)
    plain = run_reference(problem)
    for name, array in plain.items():
        np.testing.assert_array_equal(values[name], array)
        assert bounds[name].shape == array.shape
        assert bounds[name].dtype == np.float64


@pytest.mark.parametrize(
    ("dtype", "precision"), [("float32", np.float64), ("float64", np.longdouble)]
)
@pytest.mark.parametrize("case", PROBLEMS, ids=IDS)
def test_the_error_is_within_the_bound_and_the_bound_is_useful(
    case: Any, dtype: str, precision: Any
) -> None:
    problem = problem_of(case, dtype)
    values, bounds = reference_with_bound(problem)
    exact = evolve(problem, precision, as_written(problem), None)
    for field in problem.stencil.evolving:
        error = np.abs(values[field.name].astype(precision) - exact[field.name])
        slack = 6 * 40 * np.finfo(precision).eps * (1 + np.abs(exact[field.name]))
        assert (error <= bounds[field.name] + slack).all()
        largest = np.abs(values[field.name]).max()
        assert bounds[field.name].max() < 1e4 * np.finfo(dtype).eps * max(largest, 1)
        layer = np.ones(problem.shape, bool)
        layer[tuple(slice(i.start, i.stop) for i in problem.interior)] = False
        assert (bounds[field.name][layer] == 0).all()


@pytest.mark.parametrize("case", PROBLEMS, ids=IDS)
def test_fused_evaluation_is_within_twice_the_bound(case: Any) -> None:
    problem = problem_of(case, "float32")
    values, bounds = reference_with_bound(problem)
    other = evolve(problem, np.float32, fused(problem), fma_in_single_precision)
    for field in problem.stencil.evolving:
        difference = np.abs(values[field.name].astype(float) - other[field.name].astype(float))
        assert (difference <= 2 * bounds[field.name]).all()
        assert difference.max() > 0, "fusing changed nothing: the test shows nothing"


def test_bounds_are_infinite_where_nothing_can_be_promised() -> None:
    u = ex.Access("u", 0, (0, 0))
    reads = {u: (np.array([4.0, 1.0, 0.0, -1.0]), np.array([0.5, 0.5, 0.0, 0.0]))}
    quotient = ex.operation("div", ex.Constant(1.0), u)
    root = ex.operation("sqrt", u)

    def leaf(node: Any) -> Any:
        return reads[node] if node in reads else (np.float64(node.value), np.float64(0))

    np.testing.assert_array_equal(
        np.isfinite(bounded(quotient, "float64", leaf)[1]), [True, False, False, True]
    )
    np.testing.assert_array_equal(
        np.isfinite(bounded(root, "float64", leaf)[1]), [True, True, True, False]
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_one_operation_against_exact_rational_arithmetic(name: str, dtype: str) -> None:
    """Also for results below the normal range, where the relative error has no bound."""
    number = np.dtype(dtype).type
    scale = float(np.sqrt(np.finfo(dtype).tiny))
    a, b = ex.Access("a", 0, (0, 0)), ex.Access("b", 0, (0, 0))
    pairs = RANDOM.uniform(0.1, 1, (200, 2)) * np.array([scale, scale])
    if name == "div":
        pairs[:, 1] = 1 / pairs[:, 1]
    left, right = (pairs[:, column].astype(number) for column in (0, 1))
    reads = {a: (left, np.zeros(200)), b: (right, np.zeros(200))}
    values, bounds = bounded(ex.operation(name, a, b), dtype, lambda leaf: reads[leaf])  # type: ignore[index]
    exact = {
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y,
        "mul": lambda x, y: x * y,
        "div": lambda x, y: x / y,
    }[name]
    for x, y, value, bound in zip(left, right, values, bounds, strict=True):
        error = abs(Fraction(float(value)) - exact(Fraction(float(x)), Fraction(float(y))))
        assert error <= Fraction(float(bound))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_fused_operation_against_exact_rational_arithmetic(dtype: str) -> None:
    """Also where all but the rounding of the product cancels."""
    number = np.dtype(dtype).type
    leaves = a, b, c = tuple(ex.Access(name, 0, (0, 0)) for name in "abc")
    one, other = RANDOM.uniform(-9, 9, (2, 300)).astype(number)
    added = -one * other * RANDOM.choice([1, 1 + 1e-3, 0.5, -7], 300).astype(number)
    given = (one, other, added.astype(number))
    reads = dict(zip(leaves, ((each, np.zeros(300)) for each in given), strict=True))
    tree = ex.operation("fma", a, b, c)
    values, bounds = bounded(tree, dtype, lambda leaf: reads[leaf])  # type: ignore[index]
    assert values.dtype == number
    assert (np.abs(values) < np.abs(added) * np.finfo(dtype).eps).any()
    for x, y, z, value, bound in zip(*given, values, bounds, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        error = abs(Fraction(float(value)) - exact)
        assert error <= Fraction(float(np.spacing(np.abs(value)))) * Fraction(501, 1000)
        assert error <= Fraction(float(bound))


def functions(a: Any, b: Any) -> Any:
    powers = ((a + 2) ** 1.7 / 9, (b + 2) ** (a - b) / 9, (a - 3) ** 11 / 3**11)
    values = (exp(a), log(a + 3), sin(5 * a), cos(5 * b), tanh(b), *powers)
    values += (floor(4 * a), round(5 * b), (3 * a) % 1, arctan2(a, b), cosh(a), hypot(a, b))
    return (sum(values[1:], values[0]) + where((a < b) | (a == 0), a * b, a - b)) / 9


def test_functions_and_choices_stay_within_their_bounds() -> None:
    rule = stencil(name="rule")(lambda u: functions(u[0, 1] / 3, u[1, 0] * u[0, -1])).trace(2)
    values = RANDOM.uniform(-1, 1, (40, 40)).astype("f4")
    problem = Problem(rule, values.shape, "float32", 4, initial={"u": values})
    wide = Problem(rule, values.shape, "float64", 4, initial={"u": values.astype("f8")})
    found, bounds = reference_with_bound(problem)
    error = np.abs(found["u"] - run_reference(wide)["u"])
    promised = np.isfinite(bounds["u"])
    assert (error <= bounds["u"])[promised].all()
    assert (error > 0).any()
    assert np.median(bounds["u"][1:-1, 1:-1]) < 1e-2


def test_the_bound_of_a_choice_covers_both_sides_where_it_is_open() -> None:
    u, v = ex.Access("u", 0, (0, 0)), ex.Access("v", 0, (0, 0))
    tree = ex.operation("where", ex.operation("lt", u, v), ex.Constant(10.0), ex.Constant(1.0))
    reads = {u: (np.array([1.0, 1.0]), np.array([0.1, 0.5])), v: (np.array([2.0, 2.0]), 0.1)}
    leaf = lambda leaf: reads[leaf] if leaf in reads else (np.float64(leaf.value), 0.0)  # noqa: E731
    values, bounds = bounded(tree, "float64", leaf)  # type: ignore[arg-type]
    np.testing.assert_array_equal(values, [10, 10])
    assert bounds[0] == 0
    assert 9 <= bounds[1] < 9.1
