"""Stencils as scripts define them: `@stencil` makes a function one that can be tried on arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast, overload

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import DefinitionError
from outgrid.stencil import definition
from outgrid.stencil.boundary import Boundary
from outgrid.stencil.components import Vector
from outgrid.stencil.problem import PREVIOUS, Problem
from outgrid.stencil.symbol import Symbol

__all__ = ["Definition", "stencil"]


@dataclass(frozen=True, slots=True, repr=False)
class Definition(definition.Definition):
    """A stencil as its author wrote it: a function of fields and, keyword-only, parameters.

    `ndim` is 2, 3, or None when the function may serve both. `name` names the stencil. Called with
    arrays it makes one step; within another stencil it is a part of that.
    """

    def __call__(
        self,
        *fields: Any,
        boundary: str | float | Mapping[str, Any] | Boundary = "dirichlet",
        previous: Mapping[str, Any] | None = None,
        **parameters: Any,
    ) -> Any:
        """One step on NumPy arrays of one shape, to try a stencil: `heat(u, k=0.1)`.

        `fields` are arrays, or numbers for fields that are the same everywhere; of a vector a
        sequence with one for each component. `previous` gives fields of second order in time their
        values one time level back, by name; left out, they are those of now. `boundary` and
        `parameters` are as in Problem. Returns the new array of the field that is updated, of
        several a dictionary by name; what is given stays as it is. Computed in float32 where all
        arrays of real numbers are, else in float64, by NumPy and without fused operations: a run
        may differ in the last bits. Raises DefinitionError.
        """
        if any(
            isinstance(parameter, Symbol | Vector) for parameter in (*fields, *parameters.values())
        ):
            return self.function(*fields, **parameters)
        names = [
            parameter.name
            for parameter in inspect.signature(self.function).parameters.values()
            if parameter.kind is not parameter.KEYWORD_ONLY
        ]
        if len(fields) > len(names):
            raise DefinitionError(
                f"stencil {self.name!r} has {len(names)} fields ({', '.join(names)}) but was "
                f"called with {len(fields)} arrays; pass parameters by name"
            )
        given = dict(zip(names, fields, strict=False))
        given |= {name: parameters.pop(name) for name in names if name in parameters}
        given |= {f"{name}{PREVIOUS}": values for name, values in (previous or {}).items()}
        shape = next((array.shape for array in map(_array, given.values()) if array.ndim), None)
        if shape is None:
            raise DefinitionError(
                f"stencil {self.name!r} is called without an array; give NumPy arrays to try it, or"
                " a Problem to run it"
            )
        stencil = self.trace(len(shape))
        initial: dict[str, Any] = {}
        for name, values in given.items():
            parts = stencil.components(name)
            if parts in ((), (name,)) or not isinstance(values, list | tuple):
                initial[name] = _values(values)
                continue
            several = cast("list[Any]", values)
            if len(several) != len(parts):
                raise DefinitionError(
                    f"{name} has {len(parts)} components ({', '.join(parts)}) but "
                    f"{len(several)} arrays are given"
                )
            initial |= dict(zip(parts, map(_values, several), strict=True))
        problem = Problem(
            stencil,
            shape,
            _computed_in(initial.values()),
            1,
            parameters,
            boundary,
            initial,
        )
        from outgrid.testing.reference import run_reference  # a definition alone needs no executor

        answer = run_reference(problem)
        new = {field.name: answer[field.name].reshape(shape) for field in stencil.lasting}
        return new if len(new) > 1 else next(iter(new.values()))


def _array(values: Any) -> NDArray[Any]:
    """The values of a field, or of its first component."""
    if isinstance(values, list | tuple):
        several = cast("list[Any]", values)
        return np.asarray(several[0] if any(np.ndim(one) > 1 for one in several) else several)
    return np.asarray(values)


def _values(values: Any) -> Any:
    array = np.asarray(values)
    return array if array.ndim else values


def _computed_in(values: Iterable[Any]) -> str:
    arrays = [cast("NDArray[Any]", array) for array in values if isinstance(array, np.ndarray)]
    real = [array.dtype for array in arrays if array.dtype.kind == "f"]
    return "float32" if real and np.result_type(*real).itemsize <= 4 else "float64"


@overload
def stencil(function: Callable[..., Any], /) -> Definition: ...


@overload
def stencil(
    *, name: str | None = None, ndim: int | None = None
) -> Callable[[Callable[..., Any]], Definition]: ...


def stencil(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    ndim: int | None = None,
) -> Definition | Callable[[Callable[..., Any]], Definition]:
    """Make a function the definition of a stencil: `@stencil`, or `@stencil(name=..., ndim=...)`.

    Positional arguments are fields: `u` is the value of the updated cell, `u[0, 0, -1]` that of a
    neighbour (whole numbers, axes slowest first), `u.previous` and `u.previous[...]` the same one
    time level back. Annotated with Vector, Tensor or Gradient they are several fields, one per axis
    or pair of axes: `v.x[0, 0, -1]`. Keyword-only arguments are parameters, whose defaults are
    kept; a Vector of them is one profile along each axis. The function returns the new value of
    the first field; or a tuple for the first fields; or a dictionary by field name; or a list of
    such dictionaries, one per stage, where each stage sees what the stages before it wrote. A
    dictionary may give reductions (outgrid.sum, max, min) names of their own.

    What it makes can be called with NumPy arrays, and then makes one step.
    """

    def define(function: Callable[..., Any]) -> Definition:
        traced = definition.stencil(name=name, ndim=ndim)(function)
        return Definition(traced.function, traced.name, traced.ndim)

    return define if function is None else define(function)
