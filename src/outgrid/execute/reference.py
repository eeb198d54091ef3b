"""The answer, obviously: NumPy on whole arrays, one step at a time.

Every other way to run a problem is judged by this one. It is slow and holds everything in memory.
`reference_with_bound` says how far from it another evaluation of the same expressions may lie; the
bound is derived in docs/design/language.md.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import UsageError
from outgrid.execute.rounding import bounded
from outgrid.stencil import expression as ex
from outgrid.stencil.expression import Access, Constant, Parameter
from outgrid.stencil.initial import InitialExpression, evaluate
from outgrid.stencil.problem import PREVIOUS, Problem
from outgrid.stencil.values import ArrayDigest, Initial
from outgrid.units import suggest

__all__ = ["initial_arrays", "reference_with_bound", "run_reference"]

Arrays = dict[str, NDArray[Any]]


def initial_arrays(problem: Problem) -> Arrays:
    """What `problem.initial` gives, as new arrays of the problem's shape and dtype, by name.

    Formulas are evaluated and files read whole. Raises UsageError where a file does not fit, or
    an array is known by its digest only.
    """
    return {name: _initial_array(problem, name, value) for name, value in problem.initial.items()}


def run_reference(problem: Problem, initial: Mapping[str, NDArray[Any]] | None = None) -> Arrays:
    """The fields after all steps: by name, with "u.previous" for fields of second order in time.

    `initial` has one array of the problem's shape and dtype per name in `problem.initial`; without
    it the problem's own are taken. They are not changed. Constants and parameters are rounded to
    the dtype, expressions evaluated in it as they are written, without fused multiply-add.
    Overflow and NaN travel silently. Raises UsageError if an array does not fit the problem.
    """
    state = _start(problem, initial)
    for step in range(problem.steps):
        for stage in problem.stencil.stages:
            leaf = _values(problem, state, step)
            with np.errstate(all="ignore"):
                new = {each.field: ex.evaluate(each.expression, leaf) for each in stage.assignments}
            _replace(problem, state, new)
    return state


def reference_with_bound(
    problem: Problem, initial: Mapping[str, NDArray[Any]] | None = None
) -> tuple[Arrays, Arrays]:
    """The fields as `run_reference` gives them, and float64 arrays of their error bounds.

    Any evaluation of the same expressions in the problem's dtype, each operation correctly rounded,
    with or without fused multiply-adds, lies within the bound of the exact result, and so within
    twice the bound of these values. Bounds are infinite where nothing can be promised.
    """
    state = _start(problem, initial)
    bounds: Arrays = {name: np.zeros(problem.shape) for name in state}
    for step in range(problem.steps):
        for stage in problem.stencil.stages:
            leaf = _values_and_bounds(problem, state, bounds, step)
            new = {
                each.field: bounded(each.expression, problem.dtype, leaf)
                for each in stage.assignments
            }
            _replace(problem, state, {name: value for name, (value, _) in new.items()})
            _replace(problem, bounds, {name: bound for name, (_, bound) in new.items()})
    return state, bounds


def _values(
    problem: Problem, state: Arrays, step: int
) -> Callable[[Constant | Parameter | Access], Any]:
    number = np.dtype(problem.dtype).type

    def leaf(node: Constant | Parameter | Access) -> Any:
        match node:
            case Constant(value):
                return number(value)
            case Parameter(name):
                return number(problem.parameter(name, step))
            case Access():
                return _read(problem, state, node)

    return leaf


def _values_and_bounds(
    problem: Problem, state: Arrays, bounds: Arrays, step: int
) -> Callable[[Constant | Parameter | Access], tuple[Any, Any]]:
    values = _values(problem, state, step)

    def leaf(node: Constant | Parameter | Access) -> tuple[Any, Any]:
        bound = _read(problem, bounds, node) if isinstance(node, Access) else np.float64(0)
        return values(node), bound

    return leaf


def _read(problem: Problem, arrays: Arrays, access: Access) -> NDArray[Any]:
    """The values read by all interior cells: the interior, moved by the offset."""
    name = access.field if access.level == 0 else f"{access.field}{PREVIOUS}"
    return arrays[name][
        tuple(
            slice(inside.start + offset, inside.stop + offset)
            for inside, offset in zip(problem.interior, access.offset, strict=True)
        )
    ]


def _replace(problem: Problem, arrays: Arrays, new: Mapping[str, Any]) -> None:
    inside = _interior(problem)
    for name, values in new.items():
        updated = arrays[name].copy()
        updated[inside] = values
        if problem.stencil.field(name).levels == 2:
            arrays[f"{name}{PREVIOUS}"] = arrays[name]
        arrays[name] = updated


def _interior(problem: Problem) -> tuple[slice, ...]:
    return tuple(slice(inside.start, inside.stop) for inside in problem.interior)


def _start(problem: Problem, initial: Mapping[str, NDArray[Any]] | None) -> Arrays:
    """Checked copies of the initial arrays, with the boundary rule applied."""
    given = initial_arrays(problem) if initial is None else initial
    for name in given:
        if name not in problem.initial:
            raise UsageError(f"no field begins as {name!r}{suggest(name, problem.initial)}")
    state: Arrays = {}
    for name in problem.initial:
        if name not in given:
            raise UsageError(f"the initial array of {name!r} is missing")
        _check_fit(problem, name, given[name].shape, given[name].dtype)
        state[name] = np.array(given[name])
    inside = _interior(problem)
    for field in problem.stencil.evolving:
        if problem.boundary.value is not None:
            _fill_layer(state[field.name], problem.boundary.value, inside)
        if field.levels == 2:
            _fill_layer(state[f"{field.name}{PREVIOUS}"], state[field.name], inside)
    return state


def _fill_layer(array: NDArray[Any], values: Any, inside: tuple[slice, ...]) -> None:
    kept = array[inside].copy()
    array[...] = values
    array[inside] = kept


def _check_fit(problem: Problem, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if shape != problem.shape or dtype != np.dtype(problem.dtype):
        raise UsageError(
            f"the initial array of {name!r} is {dtype} of shape {shape}; the problem needs"
            f" {problem.dtype} of shape {problem.shape}"
        )


def _initial_array(problem: Problem, name: str, value: Initial) -> NDArray[Any]:
    match value:
        case Path():
            stored = np.load(value, allow_pickle=False)
            if stored.shape != problem.shape:
                _check_fit(problem, name, stored.shape, stored.dtype)
            return stored.astype(problem.dtype, order="C", casting="same_kind")
        case InitialExpression():
            return evaluate(value, range(problem.shape[0]), problem.shape, problem.dtype)
        case ArrayDigest(sha256):
            raise UsageError(
                f"the initial array of {name!r} is known only by its digest {sha256[:12]}...; give"
                " the array itself"
            )
        case np.ndarray():
            return value.copy()
        case _:
            return np.full(problem.shape, value, problem.dtype)
