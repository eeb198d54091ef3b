"""Parameters of a problem: numbers, or one number per step or per index of an axis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import DefinitionError, meaning
from outgrid.formats.arrays import FILL
from outgrid.stencil import expression as ex
from outgrid.stencil.given import value_of
from outgrid.stencil.initial import (
    InitialExpression,
    check_along,
    evaluate_steps,
)
from outgrid.stencil.lagged import Lagged
from outgrid.stencil.model import Stencil
from outgrid.stencil.symbol import AXES, is_number
from outgrid.stencil.values import (
    check_range,
)
from outgrid.units import suggest

if TYPE_CHECKING:
    from outgrid.stencil.problem import Problem

ParameterValues: TypeAlias = float | tuple[float, ...] | Lagged
ProfileValues: TypeAlias = float | tuple[float, ...] | InitialExpression


def over_steps(name: str, given: Any, steps: int) -> Any:
    """A formula of step as one number per step; anything else as it is."""
    if isinstance(given, str):
        with meaning(f"the parameter {name}"):
            formula = InitialExpression(given)
            if ex.STEP.name in formula.names:
                return evaluate_steps(formula, steps)
    return given


def checked_parameters(
    given: Mapping[str, Any], stencil: Stencil, dtype: str, steps: int
) -> Mapping[str, ParameterValues]:
    known = [*stencil.parameters, *(profile.name for profile in stencil.given_profiles)]
    fields = [field.name for field in stencil.fields]
    for name in given:
        if name in fields:
            others = ", ".join(field for field in fields if field not in given)
            raise DefinitionError(
                f"{name!r} is a field of stencil {stencil.name!r}, with a value in every cell; "
                f"to make it a parameter, write it after a bare *: ({others}, *, {name})"
            )
        if name not in known:
            raise DefinitionError(
                f"stencil {stencil.name!r} has no parameter {name!r}{suggest(str(name), known)}"
            )
    values: dict[str, Any] = {**dict(stencil.defaults), **given}
    missing = [name for name in known if name not in values]
    if missing:
        raise DefinitionError(
            f"stencil {stencil.name!r} needs a value for the parameters {', '.join(missing)}"
        )
    return {
        name: _checked_parameter(stencil, name, values[name], dtype, steps)
        for name in stencil.parameters
    }


def checked_profiles(
    given: Mapping[str, Any], stencil: Stencil, shape: tuple[int, ...], dtype: str
) -> Mapping[str, ProfileValues]:
    values: dict[str, Any] = {**dict(stencil.defaults), **given}
    return {
        profile.name: _checked_profile(profile, values[profile.name], shape, dtype)
        for profile in stencil.given_profiles
    }


def _checked_profile(
    profile: ex.Profile, value: object, shape: tuple[int, ...], dtype: str
) -> ProfileValues:
    """A number, a formula that is finite everywhere, or one number per index."""
    name, extent = profile.name, shape[profile.axis]
    if isinstance(value, str):
        with meaning(f"the parameter {name}"):
            formula = InitialExpression(value)
            check_along(formula, profile.axis, shape, dtype)
        return formula
    if isinstance(value, Lagged | Mapping):
        raise DefinitionError(
            f"the parameter {name} is a profile and cannot follow a reduction, which is one "
            "number for all cells; use a parameter without along"
        )
    if not isinstance(value, Iterable):
        return _checked_number(name, value, dtype)
    numbers = tuple(np.ravel(cast("Any", value)).tolist())
    if len(numbers) != extent:
        axis = AXES[profile.axis - len(shape)]
        raise DefinitionError(
            f"the parameter {name} has {len(numbers)} values along {axis}, but the shape "
            f"{shape} needs {extent}; give a number, a formula of {axis}, or {extent} values"
        )
    return tuple(_checked_number(f"{name}[{n}]", number, dtype) for n, number in enumerate(numbers))


def value_to_json(value: ParameterValues | ProfileValues) -> Any:
    """JSON-able form, which a Problem reads."""
    if isinstance(value, InitialExpression):
        return value.text
    if isinstance(value, Lagged):
        return value.to_dict()
    return list(value) if isinstance(value, tuple) else value


def _checked_parameter(
    stencil: Stencil, name: str, value: object, dtype: str, steps: int
) -> ParameterValues:
    """A number, one per step, or what it follows."""
    if isinstance(value, Lagged | Mapping):
        lagged = value_of(Lagged, cast("object", value))
        known = [reduction.name for reduction in stencil.reductions]
        if lagged.reduction not in known:
            raise DefinitionError(
                f"the parameter {name} follows {lagged.reduction!r}, which is not a reduction "
                f"of stencil {stencil.name!r}{suggest(lagged.reduction, known)}"
            )
        check_range(f"the first value of the parameter {name} =", lagged.first, dtype)
        return lagged
    if np.ma.is_masked(value):
        raise DefinitionError(f"the parameter {name} has masked values; {FILL}")
    nested = isinstance(value, list | tuple) and any(
        isinstance(one, Iterable) and not isinstance(one, str) for one in cast("list[Any]", value)
    )
    if isinstance(value, np.ndarray) or nested:
        given = np.asarray(cast("Any", value), None if isinstance(value, np.ndarray) else object)
        if given.ndim > 1:
            raise DefinitionError(
                f"the parameter {name} is an array of shape {given.shape}; a parameter must be "
                "one number, or one per step; make it a field (before the bare *) if it "
                "differs from cell to cell"
            )
        value = given.tolist()
    if isinstance(value, Iterable) and not isinstance(value, str):
        table = tuple(cast("Iterable[Any]", value))
        if len(table) != steps:
            raise DefinitionError(
                f"the parameter {name} has {len(table)} values for {steps} steps; give one number,"
                " or one per step"
            )
        return tuple(
            _checked_number(f"{name}[{step}]", number, dtype) for step, number in enumerate(table)
        )
    return _checked_number(name, value, dtype)


def _checked_number(name: str, value: object, dtype: str) -> float:
    if not is_number(value) or not math.isfinite(float(value)):
        raise DefinitionError(f"the parameter {name} must be a finite number, not {value!r}")
    check_range(f"the parameter {name} =", float(value), dtype)
    return float(value)


def parameter_value(problem: Problem, name: str, step: int) -> float:
    """The value of a parameter in a step, counted from 0; "step" is the step's own number.

    Of one that follows a reduction the first value.
    """
    if name == ex.STEP.name:
        return float(problem.first_step + step)
    value = _listed(problem.parameters[name])
    return value[step] if isinstance(value, tuple) else value


def parameter_table(problem: Problem, steps: int | None = None) -> NDArray[np.float64]:
    """One row per step: the values of all parameters, in the order of the stencil, and "step".

    Those that follow a reduction have their first value in all of them.

    `steps` rows, if given, else as many as the problem has steps.
    """
    names, rows = problem.stencil.parameters, problem.steps if steps is None else steps
    table = np.empty((rows, len(names) + 1))
    for column, name in enumerate(names):
        value = _listed(problem.parameters[name])
        table[:, column] = value[:rows] if isinstance(value, tuple) else value
    table[:, -1] = np.arange(problem.first_step, problem.first_step + rows)
    return table


def _listed(value: ParameterValues) -> float | tuple[float, ...]:
    return value.first if isinstance(value, Lagged) else value
