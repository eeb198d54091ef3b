import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outgrid.definition import stencil
from outgrid.errors import DefinitionError
from outgrid.formats import InputFile
from outgrid.stencil.catalog import lookup
from outgrid.stencil.components import Vector
from outgrid.stencil.initial import InitialExpression, evaluate
from outgrid.stencil.parameters import parameter_table
from outgrid.stencil.points import Source
from outgrid.stencil.problem import Boundary, Problem
from outgrid.stencil.symbol import step
from outgrid.stencil.values import ArrayDigest


def heat(**changes: Any) -> Problem:
    given: dict[str, Any] = {"stencil": "heat5", "shape": (6, 8), "initial": {"u": 0.0}}
    return Problem(**{**given, **changes})


def wave(**changes: Any) -> Problem:
    given: dict[str, Any] = {
        "stencil": "wave:2",
        "shape": (5, 6, 7),
        "dtype": "float32",
        "steps": 3,
        "initial": {"u": "x", "c": 0.1},
    }
    return Problem(**{**given, **changes})


def test_everything_is_normalised() -> None:
    problem = Problem(
        lookup("heat5"),
        [np.int64(6), 8],
        steps=np.int64(4),
        parameters={"k": 1},
        boundary={"kind": "dirichlet", "value": 2},
        initial={"u": "start.npy"},
    )
    assert problem.shape == (6, 8)
    assert all(type(extent) is int for extent in (*problem.shape, problem.steps))
    assert problem.parameters == {"k": 1.0}
    assert problem.boundary == Boundary("dirichlet", 2.0)
    assert problem.initial == {"u": InputFile("start.npy")}
    assert problem.stencil == lookup("heat5").trace()


def test_sizes() -> None:
    problem = wave()
    assert problem.interior == (range(1, 4), range(1, 5), range(1, 6))
    assert (problem.cells, problem.item_bytes) == (210, 4)
    assert (problem.plane_bytes, problem.field_bytes) == (168, 840)
    assert problem.updates == 3 * 4 * 5 * 3
    assert problem.flops == problem.updates * 11


def test_defaults_of_parameters_and_previous_levels_are_filled_in() -> None:
    assert heat().parameters == {"k": 0.1}
    assert wave().initial["u.previous"] == InitialExpression("x")
    assert wave(initial={"u": "x", "c": 1, "u.previous": 0}).initial["u.previous"] == 0.0


def test_arrays_are_held_and_told_apart_by_digest() -> None:
    array = np.arange(48).reshape(6, 8)
    problem = heat(initial={"u": array})
    same = heat(initial={"u": array.astype("float32")})
    assert problem == same
    assert problem.initial["u"].array is array
    assert problem.replace(steps=1).initial["u"].array is array
    digest = problem.digest
    array[0, 0] = 7
    assert problem.digest == digest
    assert heat(initial={"u": array}) != problem


def test_an_array_that_was_rounded_is_taken_whole_by_a_wider_problem() -> None:
    array = np.full((6, 8), 0.1)
    narrow = heat(dtype="float32", initial={"u": array})
    wide = narrow.replace(dtype="float64")
    assert wide == heat(dtype="float64", initial={"u": array})
    assert wide != heat(dtype="float64", initial={"u": array.astype("float32")})


def test_json_form_round_trips() -> None:
    for problem in (
        heat(),
        wave(),
        heat(boundary=Boundary("dirichlet", 1.5)),
        heat(boundary="frozen", initial={"u": Path("a/b.npy")}),
    ):
        again = Problem.from_dict(json.loads(json.dumps(problem.to_dict())))
        assert again == problem
        assert (again.digest, hash(again)) == (problem.digest, hash(problem))
        assert pickle.loads(pickle.dumps(problem)) == problem
    given = heat(initial={"u": np.zeros((6, 8))})
    again = Problem.from_dict(given.to_dict())
    assert isinstance(again.initial["u"], ArrayDigest)
    assert again == given


def test_digest_sees_every_part() -> None:
    problems = [
        heat(),
        heat(shape=(8, 6)),
        heat(steps=1),
        heat(dtype="float32"),
        heat(parameters={"k": 0.2}),
        heat(boundary="frozen"),
        heat(boundary=Boundary("dirichlet", 0.0)),
        heat(initial={"u": 1.0}),
        heat(initial={"u": "x"}),
        heat(initial={"u": "x.npy"}),
    ]
    assert len({problem.digest for problem in problems}) == len(problems)


@stencil(ndim=2)
def huge(u):
    return u * 1e300


REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    ({"stencil": "heet5"}, ["'heet5'", "'heat5'"]),
    ({"stencil": 5}, ["not 5", "@stencil"]),
    ({"stencil": "heat7"}, ["'heat7'", "3-D", "2-D"]),
    ({"stencil": lookup("heat7").trace()}, ["'heat7'", "3-D", "2 extents"]),
    ({"shape": (6,)}, ["'heat5'", "2-D, not 1-D"]),
    ({"shape": (6, 6, 6, 6)}, ["(6, 6, 6, 6)", "4 dimensions"]),
    ({"shape": 6}, ["shape = 6", "2 (y, x)"]),
    ({"shape": (6, 2)}, ["extent 2 along x", "(6, 2)", "'heat5'", "reaches 1", "at least 3"]),
    ({"shape": (0, 6)}, ["0", "(0, 6)"]),
    ({"shape": (6, 8.0)}, ["8.0"]),
    ({"shape": (6, True)}, ["True"]),
    ({"shape": (2**31, 2**30)}, [str(2**61), str(2**63 - 1), str((2**63 - 1) // 8)]),
    ({"dtype": "float46"}, ["'float46'", "'float64'"]),
    ({"dtype": "int8"}, ["'int8'", "float32 or float64"]),
    ({"dtypes": "float32"}, ["not 'float32'", '{"u": "float32"}']),
    ({"dtypes": {"v": "float32"}}, ["'heat5'", "'v'", "known: u"]),
    ({"dtypes": {"u": "float16"}}, ["'u'", "float16", "float64", "give the problem dtype float32"]),
    ({"dtype": "float16"}, ["'float16'", 'dtypes={"u": "float16"}']),
    ({"dtype": "bfloat16"}, ["'bfloat16'", "computed in float32 or float64"]),
    ({"parameters": {"k": [[1, 2], [3, 4], [5, 6]]}}, ["k", "shape (3, 2)", "a field"]),
    ({"dtypes": {"u": "float8"}}, ["'u'", "'float8'", "'float64'"]),
    ({"dtypes": {"u": "int32"}, "dtype": "float32"}, ["'u'", "int32", "16777216", "float64"]),
    ({"dtypes": {"u": "uint8"}, "boundary": 0.5}, ["u = 0.5", "uint8", "0 to 255"]),
    ({"dtypes": {"u": "int8"}, "boundary": 200}, ["u = 200", "int8", "-128 to 127"]),
    ({"dtypes": {"u": "float64"}, "dtype": "float32"}, ["'u'", "float64", "float32", "dtype"]),
    ({"dtypes": {"u": "float32"}, "initial": {"u": 1e39}}, ["u = 1e+39", "float32"]),
    ({"dtypes": {"u": "float32"}, "boundary": {"value": 1e39}}, ["1e+39", "float32"]),
    ({"steps": -1}, ["-1", "at least 0"]),
    ({"steps": 1.5}, ["1.5"]),
    ({"steps": True}, ["True"]),
    ({"parameters": {"kk": 1}}, ["'kk'", "'heat5'", "did you mean 'k'"]),
    ({"parameters": {"k": "1"}}, ["parameter k must", "not '1'"]),
    ({"parameters": {"k": float("nan")}}, ["parameter k must", "not nan"]),
    ({"parameters": {"k": 1e39}, "dtype": "float32"}, ["k = 1e+39", "float32", "3.40282"]),
    ({"stencil": huge, "dtype": "float32"}, ["constant 1e+300", "float32"]),
    ({"stencil": "shallow_water", "initial": {}}, ["dt, dx"]),
    ({"boundary": "dirichlett"}, ["'dirichlett'", "'dirichlet'"]),
    ({"boundary": {"kin": "frozen"}}, ["'kin'", "'kind'"]),
    ({"boundary": {"kind": "frozen", "value": 1}}, ["frozen", "1", "dirichlet"]),
    ({"boundary": {"value": float("inf")}}, ["inf"]),
    ({"boundary": {"value": -1e39}, "dtype": "float32"}, ["-1e+39", "float32"]),
    ({"boundary": [3]}, ["[3] is not a boundary", "dirichlet, frozen"]),
    ({"initial": {}}, ["'heat5'", "'u'", ".npy"]),
    ({"initial": {"u": 0, "v": 0}}, ["'v'", "'heat5'"]),
    ({"initial": {"u": 0, "u.previous": 0}}, ["'u.previous'", "'heat5'"]),
    ({"initial": {"u": "z"}}, ["'z'", "(6, 8)", "y, x"]),
    ({"initial": {"u": "nz * x"}}, ["nz * x", "(6, 8)"]),
    ({"initial": {"u": Path("u.csv")}}, ["u.csv", "'.csv'", ".npy"]),
    ({"initial": {"u": float("nan")}}, ["value of u must", "not nan"]),
    ({"initial": {"u": 1e39}, "dtype": "float32"}, ["u = 1e+39", "float32"]),
    ({"initial": {"u": None}}, ["'u'", "None"]),
    ({"initial": {"u": np.zeros((8, 6))}}, ["'u'", "(8, 6)", "(6, 8)"]),
    ({"initial": {"u": np.zeros((6, 8), complex)}}, ["'u'", "complex128", "real"]),
    ({"initial": {"u": np.full((6, 8), np.nan)}}, ["'u'", "nan", "(0, 0)"]),
]


@pytest.mark.parametrize(("changes", "parts"), REFUSED, ids=lambda value: str(value)[:40])
def test_errors_contain_the_values_and_the_nearest_fix(
    changes: dict[str, Any], parts: list[str]
) -> None:
    with pytest.raises(DefinitionError) as caught:
        heat(**changes)
    for part in parts:
        assert part in str(caught.value)


@stencil(ndim=2)
def masked(u, c, m: Vector):
    return u + c * m["x"] - m["y"]


def mixed(**changes: Any) -> Problem:
    given: dict[str, Any] = {
        "dtypes": {"u": "float64", "c": "float32", "m": "uint8"},
        "initial": {"u": "x", "c": 0.1, "m": "x > 3"},
    }
    return Problem(masked, (6, 8), steps=2, **(given | changes))


def test_fields_have_types_of_their_own() -> None:
    problem = mixed()
    assert problem.dtypes == {"c": "float32", "m_y": "uint8", "m_x": "uint8"}
    assert [problem.dtype_of(name) for name in ("u", "c", "m_x")] == ["float64", "float32", "uint8"]
    assert [problem.row_bytes(name) for name in ("u", "c", "m_x")] == [64, 32, 8]
    assert [problem.stored_bytes(name) for name in ("u", "c", "m_x")] == [384, 192, 48]
    again = Problem.from_dict(json.loads(json.dumps(problem.to_dict())))
    assert again == problem
    assert again.dtypes == problem.dtypes
    assert problem.digest not in (mixed(dtypes={}).digest, mixed(dtypes={"c": "float32"}).digest)
    assert mixed(dtypes={}).digest == mixed(dtypes={"u": "float64"}).digest


def test_a_problem_of_one_type_says_nothing_of_others() -> None:
    assert "dtypes" not in heat().to_dict()


def test_whole_numbers_are_kept_exactly_or_refused() -> None:
    given = np.arange(48, dtype=np.uint8).reshape(6, 8)
    assert np.asarray(mixed(initial={"u": 0, "c": 0, "m": given}).initial["m_x"]).dtype == np.uint8
    for value, parts in (
        (256, ["256", "uint8 holds whole numbers from 0 to 255"]),
        (-1, ["-1", "0 to 255"]),
        (0.5, ["0.5", "uint8 holds whole numbers"]),
        (given.astype(np.int64), ["int64", "array.astype('uint8')"]),
        (given / 2, ["float64", "array.astype('uint8')"]),
    ):
        with pytest.raises(DefinitionError) as caught:
            mixed(initial={"u": 0, "c": 0, "m": value})
        for part in parts:
            assert part in str(caught.value)


@pytest.mark.parametrize(
    ("formula", "parts"),
    [
        ("x / 2", ["'x / 2'", "is 0.5 at cell (0, 1)", "uint8 holds whole numbers from 0 to 255"]),
        ("y - 1", ["is -1.0 at cell (0, 0)", "0 to 255"]),
        ("100 * y", ["is 300.0 at cell (3, 0)", "0 to 255"]),
        ("1 / x", ["is inf at cell (0, 0)", "0 to 255"]),
    ],
)
def test_formulas_of_whole_numbers_name_the_cell(formula: str, parts: list[str]) -> None:
    with pytest.raises(DefinitionError) as caught:
        evaluate(InitialExpression(formula), range(6), (6, 8), "uint8")
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    "given", ["exp(-x)", 0.5, np.ones((4, 5), "float32"), lambda y, x: x + 0.0 * y]
)
def test_one_value_of_both_levels_is_one_in_a_problem_that_is_given_those_of_another(given):
    of = Problem("wave:2", (4, 5), initial={"u": given, "c": 1})
    for other in (Problem("wave:2", (4, 5), initial=dict(of.initial)), of.replace(steps=3)):
        assert other.initial["u"] is other.initial["u.previous"]


def test_previous_level_of_a_misspelt_field_is_suggested() -> None:
    with pytest.raises(DefinitionError, match=r"'u\.prevous'; did you mean 'u\.previous'"):
        wave(initial={"u": 0, "c": 0, "u.prevous": 0})


def test_from_dict_refuses_unknown_and_missing_entries() -> None:
    data = heat().to_dict()
    with pytest.raises(DefinitionError, match=r"no entry 'shap'; did you mean 'shape'"):
        Problem.from_dict({**data, "shap": 1})
    with pytest.raises(DefinitionError, match="needs the entry 'steps'"):
        Problem.from_dict({name: value for name, value in data.items() if name != "steps"})
    with pytest.raises(DefinitionError, match="initial entry of 'u'"):
        Problem.from_dict({**data, "initial": {"u": {"file": "x"}}})


def forced(**changes: Any) -> Problem:
    rule = stencil(name="forced", ndim=2)(lambda u, *, k, g: u + k * g * step)
    given: dict[str, Any] = {
        "stencil": rule,
        "shape": (4, 5),
        "steps": 3,
        "parameters": {"k": 2, "g": [1, 2, 4]},
        "initial": {"u": 0.0},
    }
    return Problem(**{**given, **changes})


def test_parameters_are_numbers_or_tables_of_one_number_per_step() -> None:
    problem = forced(first_step=7)
    assert parameter_table(problem).tolist() == [[2, 1, 7], [2, 2, 8], [2, 4, 9]]
    assert Problem.from_dict(problem.to_dict()) == problem
    rest = problem.after(2)
    assert (rest.steps, rest.first_step, rest.parameters["g"]) == (1, 9, (4.0,))
    assert parameter_table(rest).tolist() == parameter_table(problem)[2:].tolist()


@pytest.mark.parametrize(
    ("value", "parts"),
    [([1, 2], ["g", "2 values", "3 steps"]), ([1, np.nan, 2], ["g[1]", "nan"]), ("x", ["'x'"])],
)
def test_a_table_that_does_not_fit_is_refused(value: Any, parts: list[str]) -> None:
    with pytest.raises(DefinitionError) as caught:
        forced(parameters={"k": 1, "g": value})
    for part in parts:
        assert part in str(caught.value)


@stencil(ndim=2)
def tapered(u, *, taper, k=1.0):
    """A profile and a number."""
    return k * taper.along("x") * u


def test_a_profile_is_a_number_a_formula_or_one_value_per_index() -> None:
    for given in (0.5, "x / nx", [0.0, 0.25, 0.5], np.array([0.0, 0.25, 0.5])[None, :]):
        problem = Problem(tapered, (4, 3), parameters={"taper": given}, initial={"u": 1.0})
        assert problem.profile_values("taper").shape == (3,)
        assert Problem.from_dict(problem.to_dict()) == problem
    assert problem.parameters == {"k": 1.0}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([1.0, 2.0], "the parameter taper has 2 values along x"),
        ("y / 2", "'y / 2' uses y, but must depend on one axis, as a profile along x"),
        ("1 / x", "is inf in float64 at cell (0)"),
        ([1.0, float("nan"), 2.0], "taper[1] must be a finite number, not nan"),
    ],
)
def test_a_profile_that_does_not_fit_is_refused(given: object, told: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(told)):
        Problem(tapered, (4, 3), parameters={"taper": given}, initial={"u": 1.0})


@pytest.mark.parametrize("shape", [(8, 8), (8,)])
def test_formulas_of_step_are_those_of_other_steps(shape):
    def posed(steps, first_step=0):
        forced = stencil(name="forced")(lambda u, *, k: u + k)
        sources = [Source("u", (3,) * len(shape), "sin(0.3 * step)")]
        return Problem(
            forced, shape, steps=steps, parameters={"k": "0.1 + 0.001 * step"},
            boundary={"value": "step"}, initial={"u": 0.0}, sources=sources, first_step=first_step,
        )  # fmt: skip

    assert posed(3).replace(steps=6) == posed(6)
    assert posed(6).replace(steps=2).replace(steps=3) == posed(3)
    assert posed(3).replace(first_step=2).parameters == posed(3).parameters
    with pytest.raises(DefinitionError, match="6 values for 5 steps"):
        posed(6).replace(parameters={"k": [1.0] * 6}, steps=5)


def test_formulas_of_step_are_numbers_of_the_steps():
    rule = stencil(name="forced", ndim=2)(lambda u, *, k: u + k * u[0, 1])
    given = {
        "parameters": {"k": "0.1 * step"},
        "sources": [
            Source("u", (3, 3), "step + 1"),
            {"field": "u", "position": (2, 2), "values": 1},
        ],
    }
    problem = Problem(rule, (8, 8), steps=3, initial={"u": 0.0}, **given)
    assert problem.parameters["k"] == pytest.approx((0.0, 0.1, 0.2))
    assert [source.values for source in problem.sources] == [(1.0, 2.0, 3.0), 1.0]
    with pytest.raises(DefinitionError, match="source 1: 'x' uses x, but must depend on step only"):
        problem.replace(sources=[Source("u", (3, 3), "x")])
    with pytest.raises(
        DefinitionError, match=r"the parameter k: the formula '0.1 \*' is not valid"
    ):
        problem.replace(parameters={"k": "0.1 *"})


HUGE = 10**400


@pytest.mark.parametrize(
    "given",
    [
        {"parameters": {"k": HUGE}},
        {"parameters": {"k": np.ma.array([0.1, 0.2, 0.3], mask=[0, 1, 0])}},
        {"parameters": {"k": np.ma.masked}},
        {"initial": {"u": HUGE}},
        {"boundary": HUGE},
        {"boundary": {"x": {"kind": "robin", "a": HUGE, "b": 1.0, "value": 0.0}}},
        {"grid": {"spacing": HUGE}},
        {"sources": [{"field": "u", "position": (3, 3), "values": HUGE}]},
        {"sources": [{"field": "u", "position": (3, 3), "values": np.ma.masked}]},
        {"receivers": [{"field": "u", "position": (HUGE, 3)}]},
        {"steps": HUGE},
    ],
)
def test_numbers_that_are_none_in_float64_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        heat(**({"steps": 3, "parameters": {"k": 0.1}} | given))


def test_the_value_of_a_source_may_be_an_array_of_one_number() -> None:
    assert Source("u", (3, 3), np.array(2.5)).values == 2.5  # pyright: ignore[reportArgumentType]
