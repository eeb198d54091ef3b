"""The answer, obviously: NumPy on whole arrays, one step at a time.

Every other way to run a problem is judged by this one. It is slow and holds everything in memory.
`reference_with_bound` says how far from it another evaluation of the same expressions may lie; the
bound is derived in docs/design/rounding.md.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import UsageError
from outgrid.formats import InputFile, open_input
from outgrid.formats.arrays import InputArray
from outgrid.numbers import unit_of
from outgrid.stencil import expression as ex
from outgrid.stencil.boundary import STORED, image
from outgrid.stencil.dtypes import casting, is_real
from outgrid.stencil.expression import Access, Constant, Leaf, Parameter, Profile
from outgrid.stencil.function import InitialFunction
from outgrid.stencil.initial import InitialExpression, evaluate
from outgrid.stencil.model import Stage
from outgrid.stencil.parameters import parameter_value
from outgrid.stencil.problem import PREVIOUS, Problem
from outgrid.stencil.region import clear_outside
from outgrid.stencil.series import Series
from outgrid.stencil.symbol import AXES
from outgrid.stencil.values import ArrayDigest, FunctionDigest, Initial
from outgrid.storage import frames_of, read_frame
from outgrid.testing.rounding import bounded, stored
from outgrid.units import suggest

__all__ = ["initial_arrays", "reference_with_bound", "run_reference"]

Arrays = dict[str, NDArray[Any]]


def initial_arrays(problem: Problem) -> Arrays:
    """What `problem.initial` gives, as new arrays of the problem's shape, each of its field's type.

    Formulas are evaluated and files read whole. Raises UsageError where a file does not fit, or
    an array is known by its digest only.
    """
    return {name: _initial_array(problem, name, value) for name, value in problem.initial.items()}


def run_reference(
    problem: Problem,
    initial: Mapping[str, NDArray[Any]] | None = None,
    seen: Callable[[Arrays], None] | None = None,
) -> Arrays:
    """The fields after all steps: by name, with "u.previous" for fields of second order in time.

    `initial` has one array of the problem's shape per name in `problem.initial`; without
    it the problem's own are taken. They are not changed. Constants and parameters are rounded to
    the dtype, expressions evaluated in it as they are written, without fused multiply-add. Fields
    of another type are converted to it as they are read, and results to that as they are stored.
    Overflow and NaN travel silently. `seen` looks at the state after every step. Raises UsageError
    if an array does not fit the problem.
    """
    state, found = _start(problem, initial), _Found(problem)
    for step in range(problem.steps):
        state |= _frames(problem, step)
        for stage in problem.stencil.stages:
            leaf = _values(problem, state, step, found.lagged(step))
            with np.errstate(all="ignore"):
                found.look(stage, leaf)
                new = {
                    assignment.field: ex.evaluate(assignment.expression, leaf)
                    for assignment in stage.assignments
                }
                _replace(problem, state, new)
            _inject(problem, state, stage, step)
        if seen is not None:
            seen(state)
    return _lasting(problem, state)


def reference_with_bound(
    problem: Problem, initial: Mapping[str, NDArray[Any]] | None = None
) -> tuple[Arrays, Arrays]:
    """The fields as `run_reference` gives them, and float64 arrays of their error bounds.

    Any evaluation of the same expressions in the problem's dtype, each operation correctly rounded,
    with or without fused multiply-adds, lies within the bound of the exact result, and so within
    twice the bound of these values. Bounds are infinite where nothing can be promised.
    """
    if problem.lagged:
        raise UsageError("no bound is known of parameters that follow a reduction")
    state = _start(problem, initial)
    bounds: Arrays = {name: np.zeros(problem.shape) for name in state}
    for step in range(problem.steps):
        state |= _frames(problem, step)
        for stage in problem.stencil.stages:
            leaf = _values_and_bounds(problem, state, bounds, step)
            new = {
                assignment.field: stored(
                    *bounded(assignment.expression, problem.dtype, leaf),
                    problem.dtype_of(assignment.field),
                )
                for assignment in stage.assignments
            }
            _replace(problem, state, {name: value for name, (value, _) in new.items()})
            _replace(problem, bounds, {name: bound for name, (_, bound) in new.items()})
            _inject(problem, state, stage, step, bounds)
    return _lasting(problem, state), _lasting(problem, bounds)


class _Found:
    """The reductions that lagged parameters follow, of all steps so far."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        followed = {lagged.reduction for lagged in problem.lagged.values()}
        self.numbers: dict[str, list[float]] = {name: [] for name in followed}

    def look(self, stage: Stage, leaf: Callable[[Leaf], Any]) -> None:
        """Find those of a stage, before it updates anything."""
        inside = tuple(map(len, self.problem.interior))
        for reduction in stage.reductions:
            if reduction.name in self.numbers:
                values = ex.evaluate(reduction.expression, leaf)
                cells = np.broadcast_to(values, inside).astype(np.float64)
                made = {"sum": np.sum, "max": np.max, "min": np.min}[reduction.kind](cells)
                self.numbers[reduction.name].append(float(made))

    def lagged(self, step: int) -> dict[str, float]:
        """The parameters that follow what is found, in a step."""
        return {
            name: self.numbers[lagged.reduction][step - lagged.lag]
            for name, lagged in self.problem.lagged.items()
            if step >= lagged.lag
        }


def _values(
    problem: Problem, state: Arrays, step: int, lagged: Mapping[str, float] | None = None
) -> Callable[[Leaf], Any]:
    number = np.dtype(problem.dtype).type

    def leaf(node: Leaf) -> Any:
        match node:
            case Constant(value):
                return number(value)
            case Parameter(name):
                known = (lagged or {}).get(name)
                return number(parameter_value(problem, name, step) if known is None else known)
            case Profile(name, axis):
                inside = problem.interior[axis]
                values = problem.profile_values(name)[inside.start : inside.stop]
                return values.reshape(-1, *(1,) * (problem.ndim - 1 - axis))
            case Access():
                return _read(problem, state, node).astype(problem.dtype)

    return leaf


def _values_and_bounds(
    problem: Problem, state: Arrays, bounds: Arrays, step: int
) -> Callable[[Leaf], tuple[Any, Any]]:
    values = _values(problem, state, step)

    def leaf(node: Leaf) -> tuple[Any, Any]:
        bound = abs(_read(problem, bounds, node)) if isinstance(node, Access) else np.float64(0)
        return values(node), bound

    return leaf


def _read(problem: Problem, arrays: Arrays, access: Access) -> NDArray[Any]:
    """The values read by all interior cells: the interior, moved by the offset."""
    name = access.field if access.level == 0 else f"{access.field}{PREVIOUS}"
    along = [
        _moved(inside, offset, problem.edges.rule(access.field, axis))
        for axis, (inside, offset) in enumerate(zip(problem.interior, access.offset, strict=True))
    ]
    values = arrays[name][np.ix_(*(places for places, _ in along))]
    for axis, (_, signs) in enumerate(along):
        if (signs != 1).any():
            shape = (-1, *(1,) * (problem.ndim - 1 - axis))
            computed = problem.dtype if values.dtype != np.float64 else np.float64
            values = values.astype(computed) * signs.astype(computed).reshape(shape)
    return values


@lru_cache(maxsize=256)  # every step reads the same
def _moved(
    inside: range, offset: int, rules: tuple[str, str]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where cells `inside` an axis read at an offset, and by what they multiply what they read."""
    read = [index + offset for index in inside]
    images = np.array([image(index, inside, rules) for index in read], np.int64).reshape(-1, 2)
    return images[:, 0], images[:, 1]


def _replace(problem: Problem, arrays: Arrays, new: Mapping[str, Any]) -> None:
    inside = _interior(problem)
    for name, values in new.items():
        updated = arrays[name].copy()
        updated[inside] = values
        if problem.stencil.field(name).levels == 2:
            arrays[f"{name}{PREVIOUS}"] = arrays[name]
        arrays[name] = updated


def _inject(
    problem: Problem, state: Arrays, stage: Stage, step: int, bounds: Arrays | None = None
) -> None:
    """Add the sources of the fields that a stage has updated, each sum rounded once."""
    updated = {assignment.field for assignment in stage.assignments}
    for source in problem.sources:
        if source.field in updated:
            dtype = problem.dtype_of(source.field)
            cells, amounts = source.amounts(problem.steps, dtype)
            for cell, amount in zip(cells, amounts[step], strict=True):
                if not is_real(dtype):
                    limits = np.iinfo(dtype)
                    total = float(state[source.field][cell]) + amount
                    state[source.field][cell] = min(max(total, limits.min), limits.max)
                    continue
                unit = unit_of(dtype)
                state[source.field][cell] += amount.astype(dtype)
                if bounds is not None:
                    size = abs(float(state[source.field][cell])) + 2 * bounds[source.field][cell]
                    bounds[source.field][cell] += 2 * unit * size


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
    for field in problem.stencil.fields:
        if field.temporary:  # made before it is read
            dtype = problem.dtype_of(field.name)
            state[field.name] = np.full(problem.shape, np.nan if is_real(dtype) else 0, dtype)
    for field in problem.stencil.lasting:
        layers = [part for part in _layers(problem) if _is_fixed(problem, field.name, *part[:2])]
        for axis, side, part in layers:
            value = problem.boundary.face(field.name, AXES[axis - problem.ndim], side).number
            if value is not None:
                state[field.name][part] = value
        if field.levels == 2:
            for _, _, part in layers:
                state[f"{field.name}{PREVIOUS}"][part] = state[field.name][part]
    for name, cells in state.items():
        region = problem.regions.get(name.removesuffix(PREVIOUS))
        if region is not None:
            clear_outside(cells, region, (0,) * problem.ndim)
    return state


def _lasting(problem: Problem, arrays: Arrays) -> Arrays:
    """What a step leaves: no temporaries."""
    return {name: arrays[name] for name in problem.initial}


def _layers(problem: Problem) -> list[tuple[int, str, tuple[slice, ...]]]:
    """(axis, side, cells) of the fixed layers, later ones over earlier ones."""
    layers: list[tuple[int, str, tuple[slice, ...]]] = []
    for axis, inside in enumerate(problem.interior):
        before = (slice(None),) * axis
        layers.append((axis, "-", (*before, slice(0, inside.start))))
        layers.append((axis, "+", (*before, slice(inside.stop, None))))
    return layers


def _is_fixed(problem: Problem, field: str, axis: int, side: str) -> bool:
    return problem.edges.rule(field, axis)[side == "+"] == STORED


def _check_fit(problem: Problem, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    wanted = problem.dtype_of(name.removesuffix(PREVIOUS))
    if shape != problem.shape or dtype != np.dtype(wanted):
        raise UsageError(
            f"the initial array of {name!r} is {dtype} of shape {shape}; the problem needs"
            f" {wanted} of shape {problem.shape}"
        )


def _initial_array(problem: Problem, name: str, value: Initial) -> NDArray[Any]:
    dtype = problem.dtype_of(name.removesuffix(PREVIOUS))
    match value:
        case InputFile():
            source = open_input(value, problem.shape)
            given = source.read(tuple(map(range, problem.shape)))
            source.close()
            return given.astype(dtype, order="C", casting=casting(dtype))
        case InitialExpression() | InitialFunction():
            return evaluate(value, range(problem.shape[0]), problem.shape, dtype)
        case ArrayDigest() | FunctionDigest():
            raise UsageError(
                f"the initial values of {name!r} were {value}, of which only a digest is "
                "stored; pass them again"
            )
        case InputArray():
            return np.array(value).astype(dtype, order="C")
        case Series():
            return _frame(problem, name, value, 0)
        case _:
            return np.full(problem.shape, value, dtype)


def _frames(problem: Problem, step: int) -> Arrays:
    """The coefficients that change with every step, as a step reads them."""
    return {name: _frame(problem, name, one, step) for name, one in problem.series.items()}


def _frame(problem: Problem, name: str, series: Series, step: int) -> NDArray[Any]:
    lacks, dtype = series.lacks(problem.ndim), problem.dtype_of(name)
    frames = frames_of(series.paths, name, problem.shape, dtype, lacks)
    held = read_frame(frames[series.number(step)]).astype(dtype)
    if lacks is not None:
        held = np.expand_dims(held, lacks)
    return np.array(np.broadcast_to(held, problem.shape))
