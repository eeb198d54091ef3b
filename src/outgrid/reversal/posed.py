"""A problem with other values in place of some that it was given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from outgrid.errors import UsageError
from outgrid.stencil.problem import Problem
from outgrid.units import suggest

__all__ = ["check_names", "posed"]


def check_names(problem: Problem, names: tuple[str, ...]) -> None:
    """Raise UsageError for a name that is neither a field nor a parameter that was given."""
    known = [*problem.initial, *problem.parameters, *problem.given_profiles]
    for name in names:
        if name not in known:
            raise UsageError(
                f"the problem has no field or parameter {name!r}{suggest(name, known)}"
            )


def posed(problem: Problem, values: Mapping[str, Any]) -> Problem:
    """The problem with `values` of fields, arrays of its shape, and of parameters and profiles, by
    name."""
    given = {name: np.asanyarray(value) for name, value in values.items()}
    initial = {
        name: given.get(name, value)
        for name, value in problem.initial.items()
        if name not in problem.alike or name in given
    }
    parameters: dict[str, Any] = {**problem.parameters}
    parameters |= {name: problem.profile_values(name) for name in problem.profiles}
    parameters |= {n: a.tolist() for n, a in given.items() if n not in problem.initial}
    return problem.replace(initial=initial, parameters=parameters)
