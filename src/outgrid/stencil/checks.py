"""What is checked of the arguments of a problem: each is returned as it is kept, or refused."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from outgrid.errors import DefinitionError, meaning
from outgrid.formats.arrays import InputArray
from outgrid.stencil import expression as ex
from outgrid.stencil.boundary import STORED, Boundary, Edges
from outgrid.stencil.catalog import resolve
from outgrid.stencil.definition import Definition
from outgrid.stencil.dtypes import COMPUTED, dtype_name, is_dtype, is_real
from outgrid.stencil.dtypes import STORED as STORED_DTYPES
from outgrid.stencil.function import InitialFunction
from outgrid.stencil.grid import Grid
from outgrid.stencil.initial import InitialExpression
from outgrid.stencil.line import check_line
from outgrid.stencil.model import Stencil
from outgrid.stencil.points import Source
from outgrid.stencil.series import Series
from outgrid.stencil.symbol import AXES
from outgrid.stencil.values import (
    Initial,
    check_range,
    classify,
)
from outgrid.units import nearest, suggest

if TYPE_CHECKING:
    from outgrid.stencil.problem import Problem

_LARGEST_BYTES = 2**63 - 1
_MOST_STEPS = 2**63 - 1
_MOST_SNAPSHOTS = 64
PREVIOUS = ".previous"
"""Ends the name of the previous time level, as in "u.previous"."""


def checked_sources(given: Iterable[Source], steps: int) -> tuple[Source, ...]:
    checked: list[Source] = []
    for number, source in enumerate(given, 1):
        with meaning(f"the values of source {number}"):
            checked.append(source.over(steps))
    return tuple(checked)


def check_together(problem: Problem) -> None:
    """Raise DefinitionError where parts of a problem do not fit each other."""
    if problem.line:
        check_line(problem.initial)
    for name in problem.series.keys() & problem.regions.keys():
        raise DefinitionError(
            f"{name!r} is a Series, whose files hold the whole grid, and cannot have a "
            "region; leave the region out, or give one array"
        )
    _check_points(problem)
    _check_snapshots(problem)
    _check_until(problem)


def _check_points(problem: Problem) -> None:
    """Raise DefinitionError where a source or a receiver does not fit the grid."""
    for point in (*problem.sources, *problem.receivers):
        kind = type(point).__name__.lower()
        if not problem.stencil.field(point.field).evolving:
            raise DefinitionError(
                f"a {kind} needs a field that is updated, and {point.field!r} never is"
            )
        inside = problem.interior if isinstance(point, Source) else tuple(map(range, problem.shape))
        if len(point.position) != problem.ndim:
            raise DefinitionError(
                f"the {kind} at {point.position} needs {problem.ndim} coordinates"
                f" ({', '.join(AXES[-problem.ndim :])})"
            )
        if not all(
            part.start <= place <= part.stop - 1
            for part, place in zip(inside, point.position, strict=True)
        ):
            allowed = ", ".join(f"{part.start}..{part.stop - 1}" for part in inside)
            raise DefinitionError(f"the {kind} at {point.position} must be within {allowed}")
        if isinstance(point, Source) and not is_real(problem.dtype_of(point.field)):
            point.amounts(problem.steps, problem.dtype_of(point.field))
        if isinstance(point, Source) and point.field in problem.regions:
            _check_inside(problem, point)
        if (
            isinstance(point, Source)
            and isinstance(point.values, tuple)
            and len(point.values) != problem.steps
        ):
            raise DefinitionError(
                f"the source at {point.position} has {len(point.values)} values for"
                f" {problem.steps} steps; give one number, or one per step"
            )


def _check_inside(problem: Problem, source: Source) -> None:
    """Raise DefinitionError where a source adds to cells in which its field does not exist."""
    cells, _ = source.amounts(problem.steps, problem.dtype_of(source.field))
    for cell in cells:
        inside = (
            all(place in part for place, part in zip(cell, box, strict=True))
            for box in problem.regions[source.field]
        )
        if not any(inside):
            raise DefinitionError(
                f"the source at {source.position} adds to {source.field!r} in the cell {cell}, "
                "outside of the region of that field"
            )


def _check_lasting(problem: Problem, subject: str, name: str) -> None:
    """Raise DefinitionError where a step leaves nothing in a field."""
    field = problem.stencil.field(name)
    if not field.evolving:
        raise DefinitionError(f"{subject} {name!r}, which is never updated")
    if field.temporary:
        raise DefinitionError(
            f"{subject} {name!r}, a temporary, which exists within a step only; make it a field"
        )


def _check_snapshots(problem: Problem) -> None:
    """Raise DefinitionError where a snapshot does not fit the grid."""
    if len(problem.snapshots) > _MOST_SNAPSHOTS:
        raise DefinitionError(
            f"{len(problem.snapshots)} snapshots, each an open file during the run; at"
            f" most {_MOST_SNAPSHOTS} are kept"
        )
    for snapshot in problem.snapshots:
        _check_lasting(problem, "a snapshot is of", snapshot.field)
        snapshot.cells(problem.shape)
        field = problem.dtype_of(snapshot.field)
        if snapshot.dtype and not is_real(field):
            raise DefinitionError(
                f"a snapshot of {snapshot.field!r} keeps {snapshot.dtype}, and the field holds"
                f" whole numbers of {field}; leave dtype out"
            )
        if snapshot.dtype and np.result_type(snapshot.dtype, field) != np.dtype(field):
            raise DefinitionError(
                f"a snapshot of {snapshot.field!r} keeps {snapshot.dtype}, and the field is"
                f" {field}; give a shorter type of numbers, or leave dtype out"
            )
    if problem.snapshot_bytes > _LARGEST_BYTES:
        raise DefinitionError(
            f"the snapshots of {problem.steps} steps take {problem.snapshot_bytes} bytes, more "
            f"than {_LARGEST_BYTES} (64 bits)"
        )


def _check_until(problem: Problem) -> None:
    """Raise DefinitionError where a run is to end by a reduction that the stencil has not."""
    names = [reduction.name for reduction in problem.stencil.reductions]
    if problem.until is not None and problem.until.reduction not in names:
        name = problem.until.reduction
        raise DefinitionError(
            f"stencil {problem.stencil.name!r} has no reduction {name!r} to end a run by"
            f"{suggest(name, names)}"
        )


def checked_shape(shape: Iterable[int]) -> tuple[int, ...]:
    if isinstance(shape, str) or not isinstance(cast("Any", shape), Iterable):
        raise DefinitionError(
            f"shape = {shape!r}: give the cells along 2 (y, x) or 3 (z, y, x) axes, such as"
            " (200, 300)"
        )
    extents = cast("tuple[Any, ...]", tuple(shape))
    if len(extents) not in (1, 2, 3):
        raise DefinitionError(
            f"shape {extents} has {len(extents)} dimensions; give 1 (x), 2 (y, x) or 3 (z, y, x)"
            " extents"
        )
    for extent in extents:
        if isinstance(extent, bool) or not isinstance(extent, Integral) or int(extent) < 1:
            raise DefinitionError(
                f"the extents in shape {extents} must be whole numbers above 0, not "
                f"{extent!r}{_as_whole(extent)}"
            )
    whole = tuple(int(extent) for extent in extents)
    if math.prod(whole) * 8 > _LARGEST_BYTES:
        raise DefinitionError(
            f"shape {whole} has {math.prod(whole)} cells, whose bytes pass {_LARGEST_BYTES}"
            f" (64 bits); at most {_LARGEST_BYTES // 8} cells fit"
        )
    return whole


def _as_whole(value: object) -> str:
    """The end of a message about a number that is whole, but not written so."""
    if isinstance(value, float) and value.is_integer() and value > 0:
        return f"; write {int(value)}"
    return ""


def listed(name: str, given: Any, example: str) -> tuple[Any, ...]:
    """The entries of an argument that takes several."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise DefinitionError(f"{name} must be a list, such as [{example}], not {given!r}")
    return tuple(cast("Iterable[Any]", given))


def mapped(name: str, given: Any, example: str) -> Mapping[str, Any]:
    """The entries of an argument that takes them by name."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        shown = "an array" if isinstance(given, np.ndarray) else repr(given)
        raise DefinitionError(f"{name} = {shown} does not say what it is for; write {example}")
    return cast("Mapping[str, Any]", given)


def checked_stencil(stencil: object, ndim: int) -> Stencil:
    if isinstance(stencil, str):
        stencil = resolve(stencil)
    if isinstance(stencil, Definition):
        return stencil.trace(ndim)
    if inspect.isfunction(stencil):
        name = stencil.__name__
        fix = (
            "outgrid.stencil(lambda u: ...)" if name == "<lambda>" else "@outgrid.stencil above it"
        )
        raise DefinitionError(f"the function {name} is not a stencil; write {fix}")
    if not isinstance(stencil, Stencil):
        raise DefinitionError(
            f"a stencil must be a function decorated with @stencil, or a name, not {stencil!r}"
        )
    if ndim == 1 and stencil.ndim == 2 and not stencil.radius[0]:
        return stencil
    if stencil.ndim != ndim:
        raise DefinitionError(
            f"stencil {stencil.name!r} is {stencil.ndim}-D, but the shape has {ndim} extents"
        )
    return stencil


def least_extent(axis: int, stencil: Stencil, edges: Edges) -> int:
    """Cells along an axis without which a grid has no interior."""
    rules = {rule for field in stencil.fields for rule in edges.rule(field.name, axis)}
    # An image is that of cells inside.
    centred = bool(rules & {"mirror", "odd-mirror"})
    inside = stencil.radius[axis] + centred if rules != {STORED} else 1
    return sum(edges.layers[axis]) + max(1, inside)


def check_extents(shape: tuple[int, ...], stencil: Stencil, edges: Edges) -> None:
    names = AXES[-len(shape) :]
    for axis, (name, extent, radius) in enumerate(zip(names, shape, stencil.radius, strict=True)):
        least = least_extent(axis, stencil, edges)
        if extent < least:
            raise DefinitionError(
                f"extent {extent} along {name} in shape {shape} leaves no interior: stencil"
                f" {stencil.name!r} reaches {radius} cells, so at least {least} are needed"
            )


def check_counts(shape: tuple[int, ...], stencil: Stencil, dtype: str, steps: int) -> None:
    """Raise DefinitionError where float32 does not hold all indices, or steps, that are used."""
    most = 2**24
    if dtype == "float64":
        return
    for profile in stencil.profiles:
        if ex.is_index(profile) and shape[profile.axis] > most:
            raise DefinitionError(
                f"stencil {stencil.name!r} uses indices up to {shape[profile.axis] - 1}, above "
                f"the largest that float32 represents exactly, {most}; give the problem dtype "
                "float64"
            )
    known = (node for value in stencil.expressions for node in ex.nodes(value))
    random = any(isinstance(node, ex.Operation) and node.name == "random" for node in known)
    if random and steps > most:
        raise DefinitionError(
            f"random numbers of {steps} steps, above the largest number that float32 represents "
            f"exactly, {most}; give the problem dtype float64"
        )


def checked_dtype(dtype: object, stencil: Stencil) -> str:
    name = dtype_name(dtype)
    if name not in COMPUTED:
        guess = nearest(name, COMPUTED) if name == dtype and not is_dtype(name) else None
        first, kept = stencil.evolving[0].name, name in STORED_DTYPES
        raise DefinitionError(
            f"dtype {name!r}: problems are computed in {' or '.join(COMPUTED)}"
            + (f'; dtypes={{"{first}": "{name}"}} keeps a field in it' if kept else "")
            + (f"; did you mean {guess!r}?" if guess and "float16" not in name else "")
        )
    for assignment in stencil.assignments:
        for node in ex.nodes(assignment.expression):
            if isinstance(node, ex.Constant):
                check_range("the constant", node.value, name)
    return name


def checked_steps(name: str, steps: object) -> int:
    if isinstance(steps, bool) or not isinstance(steps, Integral) or int(steps) < 0:
        raise DefinitionError(
            f"{name} must be a whole number of at least 0, not {steps!r}{_as_whole(steps)}"
        )
    if int(steps) > _MOST_STEPS:
        raise DefinitionError(f"{name} must be at most {_MOST_STEPS}, not {steps}")
    return int(steps)


def check_boundary(
    boundary: Boundary, stencil: Stencil, dtype: str, apart: Mapping[str, str]
) -> None:
    """Raise DefinitionError where a field cannot hold what it is to have in a fixed layer."""
    parts = [boundary, *(part for _, part in boundary.fields)]
    parts += [face for part in parts for _, face in part.faces]
    for part in parts:
        if part.number is not None:
            check_range("the boundary value", part.number, dtype)
    faces = [(axis, side) for axis in AXES[-stencil.ndim :] for side in "-+"]
    for name in (field.name for field in stencil.lasting if field.name in apart):
        for axis, side in faces:
            value = boundary.face(name, axis, side).number
            if value is not None:
                check_range(f"the boundary value {name} =", value, apart[name])


def _channel(given: Any, number: int, count: int, shape: tuple[int, ...]) -> Any:
    """What a component begins with: of an array with an axis for components, first or last, one."""
    extents = tuple(getattr(given, "shape", ()))
    if extents == (*shape, count):
        return given[..., number]
    return given[number] if extents == (count, *shape) else given


def checked_initial(
    given: Mapping[str, Any],
    stencil: Stencil,
    shape: tuple[int, ...],
    dtype: str,
    apart: Mapping[str, str],
    grid: Grid | None,
) -> tuple[Mapping[str, Initial], frozenset[str]]:
    """What each level begins with, and the previous levels that begin as their fields do."""
    names = [field.name for field in stencil.fields]
    whole = {name: stencil.components(name) for name in given if name not in names}
    given = {
        part: _channel(given[name], n, len(parts), shape)
        for name, parts in whole.items()
        for n, part in enumerate(parts)
    } | {name: value for name, value in given.items() if not whole.get(name)}
    lasting = [field for field in stencil.fields if not field.temporary]
    wanted = [field.name for field in lasting]
    wanted += [f"{field.name}{PREVIOUS}" for field in stencil.fields if field.levels == 2]
    for name in given:
        if name in names and name not in wanted:
            raise DefinitionError(
                f"a temporary such as {name!r} takes no initial values; leave them out"
            )
        if name not in wanted:
            raise DefinitionError(
                f"stencil {stencil.name!r} has no field for initial values "
                f"{name!r}{suggest(name, wanted)}"
            )
    for field in lasting:
        if field.name not in given:
            raise DefinitionError(
                f"stencil {stencil.name!r} needs initial values for {field.name!r}; give a .npy"
                " file, a number, a formula of z, y, x, a function of them, or an array"
            )
    values = {
        name: classify(name, value, shape, apart.get(name.removesuffix(PREVIOUS), dtype), grid)
        for name, value in given.items()
        if not _is_of_field(name, given)
    }
    for name, value in values.items():
        if isinstance(value, Series) and (name not in names or stencil.field(name).evolving):
            raise DefinitionError(
                f"{name!r} is updated and needs one initial array; a Series is for fields that "
                "are only read"
            )
    begun = {name: values.get(name, values[name.removesuffix(PREVIOUS)]) for name in sorted(wanted)}
    return begun, frozenset(begun.keys() - values.keys())


def _is_of_field(name: str, given: Mapping[str, Any]) -> bool:
    """Whether a problem that is given what another one has begins a previous level like its field:
    with one value for both, which is made once."""
    value, field = given[name], name.removesuffix(PREVIOUS)
    made = isinstance(value, InitialExpression | InitialFunction | InputArray)
    return made and name != field and value is given.get(field)
