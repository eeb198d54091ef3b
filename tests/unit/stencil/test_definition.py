import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import outgrid as og
from outgrid.definition import stencil
from outgrid.errors import DefinitionError
from outgrid.stencil.components import Vector
from outgrid.stencil.expression import Access, Constant, Operation, Parameter, operation
from outgrid.stencil.initial import InitialExpression
from outgrid.stencil.laplacian import laplacian
from outgrid.stencil.model import Field
from outgrid.stencil.problem import Problem
from outgrid.stencil.symbol import absolute, maximum, minimum, sqrt, where


def expression(function: Callable[..., Any], ndim: int = 2) -> Any:
    return stencil(function).trace(ndim).assignments[0].expression


def u(*offset: int, level: int = 0) -> Access:
    return Access("u", level, offset)


def test_everything_is_derived_from_the_function() -> None:
    @stencil
    def drift(u, c, *, k, s=2):
        """Drift along x.

        More.
        """
        return u + k * c * (u[0, 2] - u.previous[-1, 0]) * s

    traced = drift.trace()
    assert drift.summary == "Drift along x."
    assert (traced.name, traced.ndim) == ("drift", 2)
    assert traced.fields == (Field("u", True, 2), Field("c", False, 1))
    assert (traced.parameters, traced.defaults) == (("k", "s"), (("s", 2.0),))
    assert traced.radius == (1, 2)
    assert traced.reach("u") == ((0, 0), (0, 2))
    assert traced.reach("u", -1) == ((-1, -1), (0, 0))
    assert traced.reach("c", -1) is None
    assert traced.coefficients == (Field("c", False, 1),)
    assert traced.flops == 5


def test_arithmetic_builds_the_tree_as_written() -> None:
    k = Parameter("k")
    here, west = u(0, 0), u(0, -1)
    cases: list[tuple[Callable[..., Any], Any]] = [
        (lambda u, *, k: u[0, -1] - k, operation("sub", west, k)),
        (lambda u, *, k: k - u, operation("sub", k, here)),
        (lambda u, *, k: 2 / u - k, operation("sub", operation("div", Constant(2.0), here), k)),
        (lambda u, *, k: -u * k, operation("mul", operation("neg", here), k)),
        (lambda u, *, k: abs(u) + k, operation("add", operation("abs", here), k)),
        (lambda u, *, k: +u * k, operation("mul", here, k)),
        (lambda u, *, k: k * u**2, operation("mul", k, operation("mul", here, here))),
        (lambda u, *, k: k * u**0.5, operation("mul", k, operation("sqrt", here))),
        (lambda u, *, k: u**3.0 + k, operation("add", _cube(here), k)),
        (
            lambda u, *, k: k / u**-3,
            operation("div", k, _cube(operation("div", Constant(1.0), here))),
        ),
        (lambda u, *, k: u**1.5 + k, operation("add", operation("pow", here, Constant(1.5)), k)),
        (lambda u, *, k: np.power(u, 9) * k, _times_k(operation("pow", here, Constant(9.0)))),
        (lambda u, *, k: u**k, operation("pow", here, k)),
        (lambda u, *, k: 2**u * k, _times_k(operation("pow", Constant(2.0), here))),
        (lambda u, *, k: minimum(u, k), operation("min", here, k)),
        (lambda u, *, k: maximum(0, u) * k, _times_k(operation("max", Constant(0.0), here))),
        (lambda u, *, k: sqrt(u) * k, _times_k(operation("sqrt", here))),
        (lambda u, *, k: absolute(u) * k, _times_k(operation("abs", here))),
        (lambda u, *, k: np.sqrt(u) * k, _times_k(operation("sqrt", here))),
        (lambda u, *, k: np.float64(2) * u * k, _times_k(operation("mul", Constant(2.0), here))),
        (lambda u, *, k: np.minimum(1, u) * k, _times_k(operation("min", Constant(1.0), here))),
        (lambda u, *, k: u[np.int64(0), -1] * k, _times_k(west)),
    ]
    for number, (function, tree) in enumerate(cases):
        assert stencil(name="case")(function).trace(2).assignments[0].expression == tree, number


def _cube(of):
    return operation("mul", operation("mul", of, of), of)


def _times_k(tree: Any) -> Operation:
    return Operation("mul", (tree, Parameter("k")))


def test_keys_of_a_returned_dictionary_may_be_fields() -> None:
    by_field = stencil(lambda u, v: [{u: u + v, v: v}]).trace(2)
    by_name = stencil(lambda u, v: [{"u": u + v, "v": v}]).trace(2)
    assert by_field.stages == by_name.stages
    with pytest.raises(DefinitionError, match=r"a value for 'u.previous', which is not one of"):
        stencil(lambda u: {u.previous: u}).trace(2)
    with pytest.raises(DefinitionError, match=r"keys .* are its fields or their names"):
        stencil(lambda u: {u[0, 1]: u}).trace(2)


def test_results_may_be_a_tuple_a_dictionary_or_stages() -> None:
    def pair(u, v):
        return v, u

    def by_name(u, v):
        return {"v": u, "u": v}

    def second_only(u, v):
        return {"v": u[0, 1] + v}

    def staged(h, e):
        return [{"h": h + e[0, 1] - e}, {"e": e + h - h[0, -1]}]

    assert stencil(pair).trace(2).stages == stencil(by_name).trace(2).stages
    traced = stencil(second_only).trace()
    assert [field.evolving for field in traced.fields] == [False, True]
    assert [len(stage.assignments) for stage in stencil(staged).trace().stages] == [1, 1]


def test_vectors_and_tensors_are_fields_of_their_own() -> None:
    @stencil
    def waves(v: Vector, s: "outgrid.Tensor", rho):  # type: ignore[name-defined] # noqa: F821
        pressed = {pair: s[pair] + v.x for pair in ("xx", "xy", "yy")}
        return [{"s": pressed}, {"v": [rho * s.yx[0, 1], rho * s.xy]}]

    traced = waves.trace(2)
    assert [(field.name, field.evolving) for field in traced.fields] == [
        *((f"v_{axis}", True) for axis in "yx"),
        *((f"s_{pair}", True) for pair in ("xx", "xy", "yy")),
        ("rho", False),
    ]
    assert traced.assignments[3].expression == operation(
        "mul", Access("rho", 0, (0, 0)), Access("s_xy", 0, (0, 1))
    )
    faces = {"fields": {"v": {"x-": 2.0}, "v_y": {"x-": "neumann"}}}
    problem = Problem(waves, (4, 5), boundary=faces, initial={"v": 0.0, "s": "x", "rho": 1.0})
    assert problem.boundary.face("v_x", "x", "-").value == 2.0
    assert problem.boundary.face("v_y", "x", "-").kind == "neumann"
    assert problem.initial["s_xy"] == InitialExpression("x")
    assert Problem.from_dict(problem.to_dict()) == problem


def test_a_gradient_has_a_field_for_each_ordered_pair_of_axes() -> None:
    @stencil
    def turning(v: Vector, g: "outgrid.Gradient"):  # type: ignore[name-defined] # noqa: F821
        assert "xy" in g
        assert "xz" not in g
        assert 0 not in g
        return {"g": {a + b: 0.5 * g[a + b] + v[a] for a in v for b in v}}

    traced = turning.trace(2)
    assert [field.name for field in traced.evolving] == ["g_yy", "g_yx", "g_xy", "g_xx"]
    assert traced.assignments[1].expression == operation(
        "add",
        operation("mul", Constant(0.5), Access("g_yx", 0, (0, 0))),
        Access("v_y", 0, (0, 0)),
    )
    problem = Problem(turning, (4, 5), initial={"v": 1.0, "g": 0.0})
    assert set(problem.initial) == {"v_y", "v_x", "g_yy", "g_yx", "g_xy", "g_xx"}


def test_dimensions_are_inferred_where_offsets_tell() -> None:
    assert stencil(lambda_free_2d).trace().ndim == 2
    assert stencil(lambda_free_3d).trace().ndim == 3
    assert stencil(ndim=3)(both).trace().ndim == 3
    assert stencil(both).trace(2).ndim == 2
    with pytest.raises(DefinitionError, match="'both' works in 2-D and in 3-D"):
        stencil(both).trace()
    with pytest.raises(DefinitionError, match="'both' is 3-D, not 2-D"):
        stencil(ndim=3)(both).trace(2)
    with pytest.raises(DefinitionError, match="2 or 3 dimensions, not 4"):
        stencil(both).trace(4)


def lambda_free_2d(u):
    return u[0, 1]


def lambda_free_3d(u):
    return u[0, 0, 1]


def both(u):
    return u + laplacian(u)


# Each function breaks one rule in its last line; the message must contain the parts and that line.
def wrong_count(u):
    return u[0, 0, 1, 1]


def mixed_counts(u):
    return u[0, 1] + u[0, 0, 1]


def fractional_offset(u):
    return u[0, 0.5]


def slice_offset(u):
    return u[0, 1:2]


def boolean_offset(u):
    return u[0, True]


def comparison(u):
    return u * (u > 0)


def chained_comparison(u):
    return where(0 < u < 1, u, 0)


def condition_with_a_number(u):
    return where((u > 0) & 1, u, 0)


def choice_by_a_value(u):
    return where(u, u, 0)


def number_of_a_condition(u):
    return -(u > 0)


def branch(u):
    return u if u else -u


def number_wanted(u):
    return math.sin(u)


def unknown_ufunc(u):
    return np.arcsin(u)


def assignment(u):
    u[0, 0] = 1


def foreign_operand(u):
    return u + "1"


def foreign_method(u):
    return u + np.array([1.0, 2.0])


def two_levels_back(u):
    return u.previous.previous


def offset_by_a_field(u):
    return u[u.previous, 0]


def looped(u):
    return sum(value for value in u)


def one_offset(u):
    return u[1]


def future(u):
    return u.next


def misspelt_level(u):
    return u.prevous


def unknown_component(u: Vector):
    return {"u": {"x": u.w, "y": u.y}}


def vector_as_a_value(u: Vector):
    return 2 * u


def foreign_axis(u, *, k):
    return u * k.along("z")


def zero_division(u):
    return u + 1 / 0


def constant_fold(u):
    return u + sqrt(-1)


def unknown_order(u):
    return laplacian(u, order=3)


def spacing_count(u):
    return laplacian(u, spacing=(1, 2, 3))


def spacing_zero(u):
    return laplacian(u, spacing=0)


def laplacian_of_a_number(u):
    return laplacian(1.5)


LOCATED = [
    (wrong_count, ["u[0, 0, 1, 1]", "4 offsets", "2-D", "(y, x)"]),
    (mixed_counts, ["u[0, 0, 1]", "3 offsets"]),
    (fractional_offset, ["0.5", "whole number", "u[0, -1]"]),
    (slice_offset, ["u[0, 1:2]", "no slices"]),
    (offset_by_a_field, ["u[u.previous, 0]", "whole number"]),
    (boolean_offset, ["True", "whole number"]),
    (comparison, ["a condition is not a number", "where"]),
    (chained_comparison, ["(a < b) & (b < c)"]),
    (condition_with_a_number, ["(int)", "parentheses"]),
    (choice_by_a_value, ["needs a condition such as u < 1", "FieldSymbol"]),
    (number_of_a_condition, ["a condition is not a number"]),
    (branch, ["cannot branch"]),
    (number_wanted, ["not a number yet"]),
    (unknown_ufunc, ["numpy.arcsin", "arctan"]),
    (assignment, ["u[...]", "return the new value of 'u'"]),
    (foreign_operand, ["'1' (str)"]),
    (foreign_method, ["cannot use an array", "make it a field"]),
    (two_levels_back, ["u.previous.previous", "2 time levels"]),
    (looped, ["a field is not a sequence", "outgrid.sum"]),
    (one_offset, ["u[1] has 1 offset,", "2-D 2 are needed (y, x)"]),
    (future, ["the function returns the next value of 'u'", "later stage"]),
    (misspelt_level, ["no 'prevous'", "did you mean 'previous'"]),
    (unknown_component, ["u has no component 'w'", "y, x"]),
    (vector_as_a_value, ["u is several fields", "u.x"]),
    (foreign_axis, ["k.along('z')", "y, x"]),
    (zero_division, ["ZeroDivisionError"]),
    (constant_fold, ["sqrt(-1.0)", "nan"]),
    (unknown_order, ["not 3", "2, 4, 6, 8", "nearest is 2"]),
    (spacing_count, ["3 spacings", "2 axes"]),
    (spacing_zero, ["spacing along x", "not 0", "above 0"]),
    (laplacian_of_a_number, ["needs a field or an expression", "1.5"]),
]


@pytest.mark.parametrize(
    ("function", "parts"), LOCATED, ids=lambda value: getattr(value, "__name__", "")
)
def test_errors_point_at_the_users_line(function: Callable[..., Any], parts: list[str]) -> None:
    with pytest.raises(DefinitionError) as caught:
        stencil(function).trace(2)
    lines, first = inspect.getsourcelines(function)
    last = first + len(lines) - 1
    message = str(caught.value)
    assert message.startswith(f"{__file__}:{last}: stencil {function.__name__!r}: ")
    for part in parts:
        assert part in message


def no_fields(*, k):
    return k


def field_default(u, v=1):
    return u + v


def variadic(u, *rest):
    return u


def text_default(u, *, k="1"):
    return u * k


def returns_nothing(u):
    u + 1


def too_many(u):
    return u, u


def unknown_field(rho):
    return {"rha": rho}


def unused_field(u, c):
    return u * 2


def unused_parameter(u, *, k):
    return u * 2


def previous_of_coefficient(u, c):
    return u + c.previous


def no_update(u):
    return {}


def late_previous(u, v):
    return [{"u": u + 1}, {"v": u.previous + v}]


def updated_twice(u):
    return [{"u": u + 1}, {"u": u + 2}]


def empty_stages(u):
    return []


def condition_returned(u):
    return u == u[0, 1]


def a_step_of_its_own(u, *, step):
    return u + step


def too_few_components(u: Vector):
    return {"u": [u.x]}


REFUSED = [
    (too_few_components, ["2 components (y, x)"]),
    (no_fields, ["0 fields"]),
    (field_default, ["'v'", "(u, *, v=1)"]),
    (variadic, ["*rest"]),
    (text_default, ["of k must", "not '1'"]),
    (returns_nothing, ["returns nothing", "'u'"]),
    (too_many, ["2 values for 1 fields"]),
    (unknown_field, ["'rha'", "did you mean 'rho'"]),
    (unused_field, ["'c' is neither read nor updated"]),
    (unused_parameter, ["'k' is not used"]),
    (previous_of_coefficient, ["c.previous", "never updated"]),
    (no_update, ["'u' is neither read nor updated"]),
    (empty_stages, ["'u' is neither read nor updated"]),
    (late_previous, ["u.previous"]),
    (updated_twice, ["update 'u' once"]),
    (condition_returned, ["a condition is not a number"]),
    (a_step_of_its_own, ["'step'", "outgrid.step"]),
]


@pytest.mark.parametrize(
    ("function", "parts"), REFUSED, ids=lambda value: getattr(value, "__name__", "")
)
def test_what_defines_no_stencil_is_refused(function: Callable[..., Any], parts: list[str]) -> None:
    with pytest.raises(DefinitionError) as caught:
        stencil(function).trace(2)
    message = str(caught.value)
    assert message.startswith(f"{__file__}:")
    for part in [f"stencil {function.__name__!r}", *parts]:
        assert part in message


def test_only_functions_with_a_usable_name_define() -> None:
    with pytest.raises(DefinitionError, match="must be a function"):
        stencil(functools.partial(both))  # type: ignore[call-overload]
    with pytest.raises(DefinitionError, match="'my rule'"):
        stencil(name="my rule")(lambda u: u).trace(2)
    with pytest.raises(DefinitionError, match="not 4"):
        stencil(ndim=4)(both)


def test_errors_inside_called_functions_point_at_the_stencils_file() -> None:
    def average(u):
        return (u[0, 1] + u[0, 0.5]) / 2

    def calls(u):
        return average(u)

    with pytest.raises(DefinitionError) as caught:
        stencil(calls).trace(2)
    line = inspect.getsourcelines(average)[1] + 1
    assert f"{__file__}:{line}:" in str(caught.value)


@pytest.mark.parametrize("way", ["mapping", "by name", "list", "tuple", "whole", "beside"])
def test_components_are_returned_in_any_form(way):
    @stencil(ndim=2)
    def moving(v: Vector, p):
        y, x = v.y + p[0, 1], v.x - p
        forms = {
            "mapping": {"v": {"y": y, "x": x}},
            "by name": {"v_y": y, "v_x": x},
            "list": [y, x],
            "tuple": (y, x),
            "whole": {"v": (y, x)},
            "beside": ([y, x],),
        }
        return forms[way]

    (stage,) = moving.trace().stages
    assert [each.field for each in stage.assignments] == ["v_y", "v_x"]


def test_a_vector_may_be_returned_itself():
    @stencil(ndim=2)
    def kept(v: Vector, p):
        return [v, {"p": p + v.x}]

    stages = kept.trace().stages
    assert [[each.field for each in stage.assignments] for stage in stages] == [
        ["v_y", "v_x"],
        ["p"],
    ]


@pytest.mark.parametrize(
    "use",
    [
        lambda u, m: u / m,
        lambda u, m: m / u,
        lambda u, m: 2 * m,
        lambda u, m: -m,
        lambda u, m: m < u,
    ],
)
def test_a_reduction_is_no_number_within_the_step(use):
    def scaled(u):
        return use(u, og.max(u))

    with pytest.raises(DefinitionError, match="known only after the step") as caught:
        stencil(scaled).trace(2)
    assert '{"largest": outgrid.max(u)}' in str(caught.value)
    assert "Access" not in str(caught.value)


def test_a_lambda_is_a_stencil_without_a_name():
    assert stencil(lambda u: u + laplacian(u)).trace(2).name == "unnamed"
    assert stencil(name="mine")(lambda u: u).trace(2).name == "mine"
