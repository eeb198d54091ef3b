"""Functions of indices as initial values."""

import pickle

import numpy as np
import pytest

from outgrid.errors import DefinitionError
from outgrid.stencil import initial
from outgrid.stencil.function import InitialFunction
from outgrid.stencil.initial import InitialExpression, evaluate
from outgrid.stencil.problem import Problem
from outgrid.stencil.values import FunctionDigest


def heat(function, shape=(6, 8), dtype="float64") -> Problem:
    stencil = "heat5" if len(shape) == 2 else "heat7"
    return Problem(stencil, shape, dtype, initial={"u": function})


@pytest.mark.parametrize("cells", [1, 24, 2**16])
def test_values_are_those_of_the_formula_however_they_are_grouped(cells, monkeypatch):
    monkeypatch.setattr(initial, "_CELLS_PER_BLOCK", cells)
    shape = (4, 5, 8)
    formula = evaluate(InitialExpression("exp(-x / 8) + y * z"), range(4), shape, "float32")
    source = InitialFunction(lambda z, y, x: np.exp(-x / 8) + y * z, 3)
    assert evaluate(source, range(4), shape, "float32").tobytes() == formula.tobytes()
    part = evaluate(source, range(1, 3), shape, "float32", range(2, 5))
    assert part.tobytes() == formula[1:3, 2:5].tobytes()


def test_arguments_are_found_by_name_else_in_the_order_of_axes():
    shape = (3, 4)
    wanted = np.arange(3.0)[:, None] * 10 + np.arange(4.0)
    for function in (
        lambda y, x: 10 * y + x,
        lambda x, y: 10 * y + x,
        lambda a, b: 10 * a + b,
    ):
        assert (evaluate(InitialFunction(function, 2), range(3), shape, "float64") == wanted).all()
    only = evaluate(InitialFunction(lambda x: x, 2), range(3), shape, "float64")
    assert (only == np.arange(4.0)).all()
    assert (evaluate(InitialFunction(np.hypot, 2), range(1), shape, "float64") == range(4)).all()


def test_indices_are_float64_arrays_that_broadcast():
    seen = []

    def function(z, y, x):
        seen.append((z, y, x))
        return x > 2  # a condition is 0 or 1

    values = evaluate(InitialFunction(function, 3), range(2), (2, 3, 5), "float32")
    assert (values == np.array([0, 0, 0, 1, 1])).all()
    for axes in seen:
        assert [each.shape for each in axes] == [(1, 1, 1), (1, 3, 1), (1, 1, 5)]
        assert {each.dtype.name for each in axes} == {"float64"}


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda z, y, x: x, ["takes z", "2 dimensions", "y, x"]),
        (lambda a: a, ["does not take 2 arguments", "lambda y, x"]),
        (lambda y, x: None, ["returns nothing"]),
        (lambda y, x: x * 1j, ["complex values", "real numbers"]),
        (lambda y, x: "x", ["<U1 values", "real numbers"]),
        (lambda y, x: np.zeros((6, 8)), ["(6, 8)", "block by block", "x of shape (1, 2)"]),
        (lambda y, x: x[0] / [1, 2, 3], ["ValueError", "for the cells (0..0, 0..1)"]),
    ],
)
def test_what_is_no_function_of_a_block_is_refused_at_once(function, words):
    with pytest.raises(DefinitionError) as error:
        heat(function)
    said = str(error.value)
    assert [word for word in ("initial values of 'u'", *words) if word not in said] == []
    assert "test_function.py" in said


def test_the_cell_with_a_value_that_is_not_finite_is_named():
    problem = heat(lambda z, y, x: 1 / (x + y + z - 5), (4, 5, 8))
    with pytest.raises(DefinitionError, match=r"is inf in float64 at cell \(0, 0, 5\)"):
        evaluate(problem.initial["u"], range(4), (4, 5, 8), "float64")


def test_a_manifest_keeps_what_the_function_was():
    problem = heat(lambda y, x: x)
    again = Problem.from_dict(problem.to_dict())
    assert isinstance(again.initial["u"], FunctionDigest)
    assert again == problem
    assert again.digest == problem.digest
    assert pickle.loads(pickle.dumps(again)) == problem
    assert "lambda" in str(again.initial["u"])
    digests = {heat(lambda y, x, a=a: a * x).digest if a else heat(1).digest for a in (0, 1, 2)}
    assert len(digests | {problem.digest, heat(lambda y, x: 2 * x).digest}) == 5
