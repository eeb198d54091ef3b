"""The question a run answers: a stencil on a grid, for so many steps, from given values."""

import dataclasses
import hashlib
import inspect
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outgrid.errors import DefinitionError, meaning
from outgrid.stencil import expression as ex
from outgrid.stencil.absorbing import absorbing
from outgrid.stencil.boundary import STORED, Boundary, Edges, boundary_of, edges_of
from outgrid.stencil.catalog import resolve
from outgrid.stencil.components import components_of
from outgrid.stencil.definition import Definition
from outgrid.stencil.dtypes import COMPUTED, dtype_name, fields_apart, is_dtype
from outgrid.stencil.given import value_of
from outgrid.stencil.grid import Grid, grid_of
from outgrid.stencil.initial import (
    RESERVED,
    InitialExpression,
    check_along,
    evaluate_along,
    evaluate_steps,
)
from outgrid.stencil.labels import grid_of_labels
from outgrid.stencil.model import Stencil
from outgrid.stencil.points import Receiver, Source
from outgrid.stencil.snapshot import Snapshot
from outgrid.stencil.symbol import AXES, is_number
from outgrid.stencil.until import Until
from outgrid.stencil.values import (
    Initial,
    check_range,
    classify,
    initial_from_dict,
    initial_to_dict,
)
from outgrid.units import nearest, suggest

__all__ = ["PREVIOUS", "Boundary", "Problem"]

_LARGEST_BYTES = 2**63 - 1
_MOST_SNAPSHOTS = 64
ProfileValues: TypeAlias = float | tuple[float, ...] | InitialExpression
PREVIOUS = ".previous"
"""Ends the name of the previous time level, as in "u.previous"."""


@dataclass(frozen=True, slots=True, init=False, eq=False)
class Problem:
    """A stencil, a grid, a number of steps and the values to begin with.

    `shape` counts all cells, slowest axis first, the boundary layer included. `dtype` is the type
    that all arithmetic is made in, and that fields are kept in, but for those in `dtypes`.
    `initial` has an entry for every array that is read at the first step: each field (a vector or
    tensor has one for all of its components, or one for each), and "u.previous" for a field u of
    second order in time, which begins as u does unless given (zero velocity). The boundary layer of
    u.previous is that of u. `edges` is what `boundary` means for the stencil; where it absorbs,
    faces have become fixed ones, and the rest a part of `stencil` and `profiles`.
    `parameters` are numbers, or sequences of one number per step, also given as a formula of
    `step`; of a parameter that is used along
    an axis, `profiles` has what was given: a number, a formula of that axis, or a sequence of one
    number per index. Steps are counted from
    `first_step`, which `outgrid.step` begins with. `sources` and `receivers` are Source and
    Receiver values, or mappings of their arguments, and so are `snapshots`. Where a condition
    `until` is given, an Until or a mapping, `steps` are the most that are made. Problems with equal
    `digest` have equal answers, as long as the files they name do not change.
    """

    stencil: Stencil
    shape: tuple[int, ...]
    dtype: str
    dtypes: Mapping[str, str]
    steps: int
    parameters: Mapping[str, float | tuple[float, ...]]
    profiles: Mapping[str, ProfileValues]
    boundary: Boundary
    initial: Mapping[str, Initial]
    first_step: int
    edges: Edges
    sources: tuple[Source, ...]
    receivers: tuple[Receiver, ...]
    snapshots: tuple[Snapshot, ...]
    until: Until | None
    grid: Grid | None
    _given: Mapping[str, Any] = dataclasses.field(
        repr=False
    )  # arguments that other things are derived from

    def __init__(
        self,
        stencil: Definition | Stencil | str,
        shape: Iterable[int],
        dtype: DTypeLike = "float64",
        steps: int = 0,
        parameters: Mapping[str, Any] | None = None,
        boundary: str | float | Mapping[str, Any] | Boundary = "dirichlet",
        initial: Mapping[str, Any] | None = None,
        first_step: int = 0,
        sources: Iterable[Any] = (),
        receivers: Iterable[Any] = (),
        snapshots: Iterable[Any] = (),
        until: Any = None,
        dtypes: Mapping[str, DTypeLike] | None = None,
        grid: Any = None,
    ) -> None:
        """Check and normalise. `stencil` may be a name in the catalogue or "path.py:function".

        `dtypes` gives fields, or vectors and tensors whole, a type of their own: "float32" where
        the problem is computed in "float64", and for fields that are only read "int8", "uint8",
        "int16", "uint16" or "int32".

        `initial` maps names to a file (its path, or an InputFile), a number, a formula of z, y, x,
        an array of `shape`; or to a function of arrays z, y, x of such indices (float64), which is
        called block by block and returns what broadcasts to them. An array is held, not copied, and
        must not be changed before the run has begun; others than those of NumPy (xarray, dask,
        h5py, zarr, or whatever has a shape, a dtype and slices) are read slice by slice then.
        `grid`, a Grid or a mapping of its arguments, says where cells lie and in which units; left
        out, it is what the first array of xarray with coordinates says. Raises DefinitionError.
        """
        extents = _checked_shape(shape)
        parameters = _mapped("parameters", parameters, '{"k": 0.1}')
        initial = _mapped("initial", initial, '{"u": ...}')
        steps = _checked_steps("steps", steps)
        parameters = {name: _over_steps(name, each, steps) for name, each in parameters.items()}
        traced = _checked_stencil(stencil, len(extents))
        asked = boundary_of(boundary)
        rule, around, numbers = absorbing(traced, asked, extents, parameters)
        dtype = _checked_dtype(dtype, rule)
        apart = fields_apart(dtypes or {}, rule, dtype)
        narrow = any(apart.get(field.name) == "float32" for field in rule.evolving)
        _check_boundary(around, "float32" if narrow else dtype)
        edges = edges_of(rule, around)
        _check_extents(extents, rule, edges)
        names = [each.name for each in rule.fields]
        if grid is None:
            grid = grid_of_labels(initial, names, len(extents))
        described = grid_of(grid, len(extents), names, RESERVED)
        for attribute, value in {
            "stencil": rule,
            "shape": extents,
            "dtype": dtype,
            "dtypes": apart,
            "steps": steps,
            "first_step": _checked_steps("first_step", first_step),
            "parameters": _checked_parameters(numbers, rule, dtype, steps),
            "profiles": _checked_profiles(numbers, rule, extents, dtype),
            "boundary": around,
            "edges": edges,
            "sources": _checked_sources(sources, steps),
            "receivers": tuple(
                value_of(Receiver, each)
                for each in _listed("receivers", receivers, 'Receiver("u", (5, 6))')
            ),
            "snapshots": tuple(
                value_of(Snapshot, each)
                for each in _listed("snapshots", snapshots, 'Snapshot("u", every=10)')
            ),
            "until": None if until is None else value_of(Until, until),
            "grid": described,
            "initial": _checked_initial(initial, rule, extents, dtype, apart, described),
        }.items():
            object.__setattr__(self, attribute, value)
        values = {**self.parameters, **self.profiles}
        given = {
            "stencil": traced,
            "boundary": asked,
            "parameters": {
                name: _profile_to_json(values[name]) for name in values if name in parameters
            },
            "dtypes": dict(dtypes or {}),
        }
        object.__setattr__(self, "_given", given)
        _check_points(self)
        _check_snapshots(self)
        _check_until(self)

    def replace(self, **changes: Any) -> "Problem":
        """The problem with some of its arguments replaced: `problem.replace(steps=100)`.

        They are those of Problem, each as a whole, and checked anew with what has stayed: a formula
        is one of the new shape, an array has to fit it. Raises DefinitionError.
        """
        names = [each.name for each in dataclasses.fields(self) if not each.name.startswith("_")]
        known = [name for name in names if name not in ("profiles", "edges")]
        for name in changes:
            if name not in known:
                raise DefinitionError(f"a problem has no argument {name!r}{suggest(name, known)}")
        stays = {name: getattr(self, name) for name in known} | dict(self._given)
        stays["initial"] = {
            name: value
            for name, value in self.initial.items()
            if not (name.endswith(PREVIOUS) and value is self.initial[name.removesuffix(PREVIOUS)])
        }
        return Problem(**(stays | changes))

    def parameter(self, name: str, step: int) -> float:
        """The value of a parameter in a step, counted from 0; "step" is the step's own number."""
        if name == ex.STEP.name:
            return float(self.first_step + step)
        value = self.parameters[name]
        return value[step] if isinstance(value, tuple) else value

    def profile_values(self, name: str) -> NDArray[Any]:
        """The values of a profile along its axis, rounded to the dtype."""
        axis = next(each.axis for each in self.stencil.profiles if each.name == name)
        given = self.profiles[name]
        if isinstance(given, InitialExpression):
            return evaluate_along(given, axis, self.shape, self.dtype)
        values = np.empty(self.shape[axis], self.dtype)
        values[:] = given
        return values

    def parameter_table(self, steps: int | None = None) -> NDArray[np.float64]:
        """One row per step: the values of all parameters, in the order of the stencil, and "step".

        `steps` rows, if given, else as many as the problem has steps.
        """
        names, rows = self.stencil.parameters, self.steps if steps is None else steps
        table = np.empty((rows, len(names) + 1))
        for column, name in enumerate(names):
            value = self.parameters[name]
            table[:, column] = value[:rows] if isinstance(value, tuple) else value
        table[:, -1] = np.arange(self.first_step, self.first_step + rows)
        return table

    def after(self, steps: int) -> "Problem":
        """The same problem with `steps` of its steps made."""
        data = self.to_dict()
        data["steps"] -= steps
        data["first_step"] += steps
        data["sources"] = [source.after(steps).to_dict() for source in self.sources]
        data["snapshots"] = [snapshot.after(steps).to_dict() for snapshot in self.snapshots]
        data["until"] = self.until.after(steps).to_dict() if self.until is not None else None
        return self._of_steps(data, slice(steps, None))

    def ending(self, steps: int) -> "Problem":
        """The first `steps` steps of the problem, all of which are made."""
        data = self.to_dict()
        data["steps"] = steps
        data["until"] = None
        data["sources"] = [source.ending(steps).to_dict() for source in self.sources]
        return self._of_steps(data, slice(steps))

    def _of_steps(self, data: dict[str, Any], steps: slice) -> "Problem":
        """Of the JSON-able form `data`, with what parameters are in `steps`."""
        data["parameters"] |= {
            name: value[steps]
            for name, value in self.parameters.items()
            if isinstance(value, tuple)
        }
        return Problem.from_dict(data)

    @property
    def stretches(self) -> tuple[int, ...]:
        """Steps between which a run may end; they are those of the problem in all."""
        if self.until is not None:
            return self.until.stretches(self.steps)
        return (self.steps,) if self.steps else ()

    @property
    def deepest(self) -> int:
        """The most steps that a sweep may make."""
        return max(self.stretches, default=0)

    @property
    def ndim(self) -> int:
        """2 or 3."""
        return len(self.shape)

    @property
    def interior(self) -> tuple[range, ...]:
        """Per axis the indices of the cells that are updated."""
        return tuple(
            range(low, extent - high)
            for (low, high), extent in zip(self.edges.layers, self.shape, strict=True)
        )

    @property
    def cells(self) -> int:
        """All cells of the grid, boundary layer included."""
        return math.prod(self.shape)

    @property
    def updates(self) -> int:
        """Cell updates in all: interior cells times steps."""
        return math.prod(len(inside) for inside in self.interior) * self.steps

    @property
    def flops(self) -> int:
        """Floating-point operations in all, each needed update counted once."""
        return self.updates * self.stencil.flops

    def dtype_of(self, field: str) -> str:
        """The type that a field is kept in."""
        return self.dtypes.get(field, self.dtype)

    def row_bytes(self, field: str) -> int:
        """Bytes of a row of a field: of all columns of one index of the other axes."""
        return self.shape[-1] * np.dtype(self.dtype_of(field)).itemsize

    def stored_bytes(self, field: str) -> int:
        """Bytes of a field as it is kept."""
        return math.prod(self.shape[:-1]) * self.row_bytes(field)

    @property
    def item_bytes(self) -> int:
        """Bytes of one value of `dtype`: no field has larger ones."""
        return np.dtype(self.dtype).itemsize

    @property
    def plane_bytes(self) -> int:
        """Bytes of one index of axis 0 of a field of `dtype`."""
        return math.prod(self.shape[1:]) * self.item_bytes

    @property
    def field_bytes(self) -> int:
        """Bytes of a field of `dtype`."""
        return self.cells * self.item_bytes

    @property
    def snapshot_bytes(self) -> int:
        """Bytes of all snapshots of all steps."""
        return self.kept_bytes(self.steps)

    def kept_bytes(self, steps: int, part: tuple[range, ...] = ()) -> int:
        """Bytes of all snapshots of the first `steps` steps; of a ``part`` of the grid, if given:
        of some planes, or some rows of these."""
        return sum(
            each.taken(steps) * each.part_bytes(self.shape, self.dtype_of(each.field), part)
            for each in self.snapshots
        )

    @property
    def digest(self) -> str:
        """sha256 in hex of the canonical JSON form."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Problem):
            return NotImplemented
        return self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self.digest)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form; an array is represented by the sha256 of its bytes."""
        apart = {"dtypes": dict(self.dtypes)} if self.dtypes else {}
        apart |= {"grid": self.grid.to_dict()} if self.grid is not None else {}
        return apart | {
            "stencil": self.stencil.to_dict(),
            "shape": list(self.shape),
            "dtype": self.dtype,
            "steps": self.steps,
            "first_step": self.first_step,
            "parameters": {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in sorted(self.parameters.items())
            }
            | {name: _profile_to_json(value) for name, value in sorted(self.profiles.items())},
            "boundary": self.boundary.to_dict(),
            "sources": [source.to_dict() for source in self.sources],
            "receivers": [receiver.to_dict() for receiver in self.receivers],
            "snapshots": [snapshot.to_dict() for snapshot in self.snapshots],
            "until": self.until.to_dict() if self.until is not None else None,
            "initial": {name: initial_to_dict(self.initial[name]) for name in sorted(self.initial)},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Problem":
        """The inverse of `to_dict`, except that an array comes back as its ArrayDigest."""
        known = (
            *("stencil", "shape", "dtype", "steps", "first_step"),
            *("parameters", "boundary", "initial", "sources", "receivers", "snapshots", "until"),
        )
        for key in data:
            if key not in (*known, "dtypes", "grid"):
                raise DefinitionError(f"a problem has no entry {key!r}{suggest(key, known)}")
        for key in known:
            if key not in data:
                raise DefinitionError(f"the problem lacks the entry {key!r}")
        try:
            return cls(
                Stencil.from_dict(data["stencil"]),
                data["shape"],
                data["dtype"],
                data["steps"],
                data["parameters"],
                data["boundary"],
                {name: initial_from_dict(name, value) for name, value in data["initial"].items()},
                data["first_step"],
                data["sources"],
                data["receivers"],
                data["snapshots"],
                data["until"],
                data.get("dtypes"),
                data.get("grid"),
            )
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise DefinitionError(f"an entry of the problem is none: {error!r}") from error


def _over_steps(name: str, given: Any, steps: int) -> Any:
    """A formula of step as one number per step; anything else as it is."""
    if isinstance(given, str):
        with meaning(f"the parameter {name}"):
            formula = InitialExpression(given)
            if ex.STEP.name in formula.names:
                return evaluate_steps(formula, steps)
    return given


def _checked_sources(given: Iterable[Any], steps: int) -> tuple[Source, ...]:
    found: list[Source] = []
    for number, each in enumerate(_listed("sources", given, 'Source("u", (5, 6), 1.0)'), 1):
        source = value_of(Source, each)
        with meaning(f"the values of source {number}"):
            found.append(source.over(steps))
    return tuple(found)


def _check_points(problem: Problem) -> None:
    """Raise DefinitionError where a source or a receiver does not fit the grid."""
    for point in (*problem.sources, *problem.receivers):
        kind = type(point).__name__.lower()
        if not problem.stencil.field(point.field).evolving:
            raise DefinitionError(f"a {kind} is at {point.field!r}, which is never updated")
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
            raise DefinitionError(
                f"the {kind} at {point.position} is outside the cells it may be at, {allowed}"
            )
        if (
            isinstance(point, Source)
            and isinstance(point.values, tuple)
            and len(point.values) != problem.steps
        ):
            raise DefinitionError(
                f"the source at {point.position} has {len(point.values)} values for"
                f" {problem.steps} steps; give one number, or one per step"
            )


def _check_snapshots(problem: Problem) -> None:
    """Raise DefinitionError where a snapshot does not fit the grid."""
    if len(problem.snapshots) > _MOST_SNAPSHOTS:
        raise DefinitionError(
            f"{len(problem.snapshots)} snapshots, each a file that is open while a run goes on; at"
            f" most {_MOST_SNAPSHOTS} are kept"
        )
    for each in problem.snapshots:
        if not problem.stencil.field(each.field).evolving:
            raise DefinitionError(f"a snapshot is of {each.field!r}, which is never updated")
        each.cells(problem.shape)
    if problem.snapshot_bytes > _LARGEST_BYTES:
        raise DefinitionError(
            f"the snapshots of {problem.steps} steps take {problem.snapshot_bytes} bytes, which"
            f" pass {_LARGEST_BYTES} (64 bits)"
        )


def _check_until(problem: Problem) -> None:
    """Raise DefinitionError where a run is to end by a reduction that the stencil has not."""
    names = [each.name for each in problem.stencil.reductions]
    if problem.until is not None and problem.until.reduction not in names:
        name = problem.until.reduction
        raise DefinitionError(
            f"stencil {problem.stencil.name!r} has no reduction {name!r} to end a run by"
            f"{suggest(name, names)}"
        )


def _checked_shape(shape: Iterable[int]) -> tuple[int, ...]:
    if isinstance(shape, str) or not isinstance(cast("Any", shape), Iterable):
        raise DefinitionError(
            f"shape = {shape!r}: give the cells along 2 (y, x) or 3 (z, y, x) axes, such as"
            " (200, 300)"
        )
    extents = cast("tuple[Any, ...]", tuple(shape))
    if len(extents) not in (2, 3):
        raise DefinitionError(
            f"shape {extents} has {len(extents)} dimensions; give 2 (y, x) or 3 (z, y, x) extents"
        )
    for extent in extents:
        if isinstance(extent, bool) or not isinstance(extent, Integral) or int(extent) < 1:
            raise DefinitionError(
                f"the extent {extent!r} in shape {extents} is not a whole number above 0"
                f"{_as_whole(extent)}"
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


def _listed(name: str, given: Any, example: str) -> tuple[Any, ...]:
    """The entries of an argument that takes several."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise DefinitionError(f"{name} = {given!r} is no list; write [{example}]")
    return tuple(cast("Iterable[Any]", given))


def _mapped(name: str, given: Any, example: str) -> Mapping[str, Any]:
    """The entries of an argument that takes them by name."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        shown = "an array" if isinstance(given, np.ndarray) else repr(given)
        raise DefinitionError(f"{name} = {shown} does not say what it is for; write {example}")
    return cast("Mapping[str, Any]", given)


def _checked_stencil(stencil: object, ndim: int) -> Stencil:
    if isinstance(stencil, str):
        stencil = resolve(stencil)
    if isinstance(stencil, Definition):
        return stencil.trace(ndim)
    if inspect.isfunction(stencil):
        name = stencil.__name__
        fix = (
            "outgrid.stencil(lambda u: ...)" if name == "<lambda>" else "@outgrid.stencil above it"
        )
        raise DefinitionError(f"the function {name} is no stencil yet; write {fix}")
    if not isinstance(stencil, Stencil):
        raise DefinitionError(
            f"{stencil!r} is no stencil; give a function decorated with @stencil, or a name"
        )
    if stencil.ndim != ndim:
        raise DefinitionError(
            f"stencil {stencil.name!r} is {stencil.ndim}-D, but the shape has {ndim} extents"
        )
    return stencil


def _check_extents(shape: tuple[int, ...], stencil: Stencil, edges: Edges) -> None:
    names = AXES[-len(shape) :]
    for axis, (name, extent, radius) in enumerate(zip(names, shape, stencil.radius, strict=True)):
        layer = sum(edges.layers[axis])
        rules = {rule for field in stencil.fields for rule in edges.rule(field.name, axis)}
        # An image is that of cells inside.
        centred = bool(rules & {"mirror", "odd-mirror"})
        inside = max(1, radius + centred if rules != {STORED} else 1)
        if extent < layer + inside:
            raise DefinitionError(
                f"extent {extent} along {name} in shape {shape} leaves no interior: stencil"
                f" {stencil.name!r} reaches {radius} cells, so at least {layer + inside} are needed"
            )


def _checked_dtype(dtype: object, stencil: Stencil) -> str:
    name = dtype_name(dtype)
    if name not in COMPUTED:
        guess = nearest(name, COMPUTED) if name == dtype and not is_dtype(name) else None
        raise DefinitionError(
            f"dtype {name!r}: problems are computed in {' or '.join(COMPUTED)}"
            + (f"; did you mean {guess!r}?" if guess else "")
        )
    for assignment in stencil.assignments:
        for node in ex.nodes(assignment.expression):
            if isinstance(node, ex.Constant):
                check_range("the constant", node.value, name)
    return name


def _checked_steps(name: str, steps: object) -> int:
    if isinstance(steps, bool) or not isinstance(steps, Integral) or int(steps) < 0:
        raise DefinitionError(
            f"{name} = {steps!r} is not a whole number of at least 0{_as_whole(steps)}"
        )
    return int(steps)


def _checked_parameters(
    given: Mapping[str, Any], stencil: Stencil, dtype: str, steps: int
) -> Mapping[str, float | tuple[float, ...]]:
    known = [*stencil.parameters, *(profile.name for profile in stencil.profiles)]
    fields = [field.name for field in stencil.fields]
    for name in given:
        if name in fields:
            others = ", ".join(field for field in fields if field not in given)
            raise DefinitionError(
                f"{name!r} is a field of stencil {stencil.name!r}, of which every cell has a value;"
                f" to make it a parameter, write it after a bare *: ({others}, *, {name})"
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
        name: _checked_parameter(name, values[name], dtype, steps) for name in stencil.parameters
    }


def _checked_profiles(
    given: Mapping[str, Any], stencil: Stencil, shape: tuple[int, ...], dtype: str
) -> Mapping[str, ProfileValues]:
    values: dict[str, Any] = {**dict(stencil.defaults), **given}
    return {
        each.name: _checked_profile(each, values[each.name], shape, dtype)
        for each in stencil.profiles
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
    if not isinstance(value, Iterable):
        return _checked_number(name, value, dtype)
    numbers = tuple(np.ravel(cast("Any", value)).tolist())
    if len(numbers) != extent:
        axis = AXES[profile.axis - len(shape)]
        raise DefinitionError(
            f"the parameter {name} has {len(numbers)} values along {axis}, where the shape"
            f" {shape} has {extent} indices; give a number, a formula of {axis}, or {extent} values"
        )
    return tuple(_checked_number(f"{name}[{n}]", each, dtype) for n, each in enumerate(numbers))


def _profile_to_json(value: ProfileValues) -> float | str | list[float]:
    if isinstance(value, InitialExpression):
        return value.text
    return list(value) if isinstance(value, tuple) else value


def _checked_parameter(
    name: str, value: object, dtype: str, steps: int
) -> float | tuple[float, ...]:
    """A number, or one per step."""
    if isinstance(value, np.ndarray):
        given = cast("NDArray[Any]", value)
        if given.ndim > 1:
            raise DefinitionError(
                f"the parameter {name} is an array of shape {given.shape}; a parameter is one"
                " number, or one per step; what differs from cell to cell is a field, before the"
                " bare *"
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
            _checked_number(f"{name}[{step}]", each, dtype) for step, each in enumerate(table)
        )
    return _checked_number(name, value, dtype)


def _checked_number(name: str, value: object, dtype: str) -> float:
    if not is_number(value) or not math.isfinite(float(value)):
        raise DefinitionError(f"the parameter {name} = {value!r} is not a finite number")
    check_range(f"the parameter {name} =", float(value), dtype)
    return float(value)


def _check_boundary(boundary: Boundary, dtype: str) -> None:
    parts = [boundary, *(each for _, each in boundary.fields)]
    parts += [face for part in parts for _, face in part.faces]
    for part in parts:
        if part.value is not None:
            check_range("the boundary value", part.value, dtype)


def _checked_initial(
    given: Mapping[str, Any],
    stencil: Stencil,
    shape: tuple[int, ...],
    dtype: str,
    apart: Mapping[str, str],
    grid: Grid | None,
) -> Mapping[str, Initial]:
    names = [field.name for field in stencil.fields]
    whole = {name: components_of(name, names) for name in given if name not in names}
    given = {part: given[name] for name, parts in whole.items() for part in parts} | {
        name: value for name, value in given.items() if not whole.get(name)
    }
    wanted = [field.name for field in stencil.fields]
    wanted += [f"{field.name}{PREVIOUS}" for field in stencil.fields if field.levels == 2]
    for name in given:
        if name not in wanted:
            raise DefinitionError(
                f"stencil {stencil.name!r} has no field {name!r} to begin with"
                f"{suggest(name, wanted)}"
            )
    for field in stencil.fields:
        if field.name not in given:
            raise DefinitionError(
                f"stencil {stencil.name!r} needs initial values for {field.name!r}; give a .npy"
                " file, a number, a formula of z, y, x, a function of them, or an array"
            )
    values = {
        name: classify(name, value, shape, apart.get(name.removesuffix(PREVIOUS), dtype), grid)
        for name, value in given.items()
    }
    return {
        name: values[name] if name in values else values[name.removesuffix(PREVIOUS)]
        for name in sorted(wanted)
    }
