"""Names of axes and coordinates that arrays come with: compared with the grid, or taken for it.

Those of xarray have them: `dims`, `coords` by name, and `attrs`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import DefinitionError
from outgrid.formats.axis import Axis
from outgrid.stencil.grid import ATTRIBUTES, Grid
from outgrid.stencil.symbol import AXES
from outgrid.units import format_bytes

__all__ = ["check_place", "grid_of_labels", "tolerance", "unlabelled"]

_NEAR = 1e-3  # of a cell: coordinates that are no farther apart are the same


def unlabelled(name: str, given: Any, shape: tuple[int, ...], grid: Grid | None) -> Any:
    """The array itself, its axes and coordinates those of the field `name` of the grid.

    Raises DefinitionError where they are not.
    """
    if not _has_labels(given):
        return given
    dims = tuple(map(str, given.dims))
    whole = (grid or Grid()).axes(len(shape), name.partition(".")[0])
    _check_dims(name, given, dims, [axis.name for axis in whole])
    if tuple(given.shape) != shape:
        raise DefinitionError(
            f"the initial array of {name!r} has shape {tuple(given.shape)} of {', '.join(dims)}, "
            f"the problem has {shape}"
            + (f"; choose one with .isel({dims[0]}=0)" if len(dims) > len(shape) else "")
        )
    if grid is not None:
        for dim, axis in zip(dims, whole, strict=True):
            _check_coordinates(name, given, dim, axis)
    return given.values if getattr(given, "_in_memory", False) else given


def grid_of_labels(
    initial: Mapping[str, Any], fields: Sequence[str], count: int
) -> dict[str, Any] | None:
    """What the first array with coordinates says of a grid of `count` axes; None where none does.

    Raises DefinitionError where its cells are not evenly spaced.
    """
    labelled = {
        name: given
        for name, given in initial.items()
        if _has_labels(given) and len(given.dims) == count
    }
    for name, given in labelled.items():
        _check_dims(name, given, tuple(map(str, given.dims)), [*AXES[-count:]])
        axes = [_axis(name, given, str(dim)) for dim in given.dims]
        if any(axis is not None for axis in axes):
            known = [axis or Axis(str(dim)) for axis, dim in zip(axes, given.dims, strict=True)]
            return {
                "spacing": [axis.spacing for axis in known],
                "origin": [axis.origin for axis in known],
                "units": [axis.units for axis in known],
                "names": [axis.name for axis in known],
                "fields": {
                    field: said
                    for field, array in labelled.items()
                    if field in fields and (said := _attributes(array))
                },
            }
    return None


def _has_labels(given: object) -> bool:
    return all(hasattr(given, name) for name in ("dims", "coords", "shape", "dtype"))


def _attributes(given: Any) -> dict[str, str]:
    said = cast("Mapping[str, Any]", getattr(given, "attrs", {}))
    return {key: said[key] for key in ATTRIBUTES if isinstance(said.get(key), str)}


def _check_dims(name: str, given: Any, dims: tuple[str, ...], names: list[str]) -> None:
    """Raise DefinitionError where an axis that the grid has stands in another place."""
    if len(dims) != len(names) or not any(
        dim in names and names.index(dim) != place for place, dim in enumerate(dims)
    ):
        return
    message = f"the initial array of {name!r} has the axes {', '.join(dims)}, the grid has "
    message += ", ".join(names)
    if sorted(dims) == sorted(names):
        rows = math.prod(map(int, given.shape[:-1]))
        row = format_bytes(int(given.shape[-1]) * np.dtype(given.dtype).itemsize)
        message += (
            f"; .transpose({', '.join(map(repr, names))}) transposes it, reading {rows} rows of "
            f"{row} in pieces"
        )
    raise DefinitionError(message)


def _coordinates(given: Any, dim: str) -> NDArray[Any] | None:
    coordinates: NDArray[Any] | None = given.coords[dim].values if dim in given.coords else None
    return coordinates


def _axis(name: str, given: Any, dim: str) -> Axis | None:
    """Where the cells lie along an axis that has coordinates."""
    coordinates = _coordinates(given, dim)
    if coordinates is None:
        return None
    leave = f"leave them out with .drop_vars({dim!r})"
    if coordinates.dtype.kind not in "iuf" or not np.isfinite(coordinates).all():
        raise DefinitionError(
            f"the coordinates {dim} of {name!r} must be finite numbers, not "
            f"{coordinates.dtype}; {leave}"
        )
    values = coordinates.astype(np.float64)
    first = float(values[0])
    spacing = float(values[-1] - first) / max(1, len(values) - 1) if len(values) > 1 else 1.0
    if spacing < 0:
        raise DefinitionError(
            f"the coordinates {dim} of {name!r} fall from {first:g} to {values[-1]:g}; reverse "
            f"it with .isel({dim}=slice(None, None, -1)), or {leave}"
        )
    axis = Axis(dim, first, spacing, str(given.coords[dim].attrs.get("units", "")))
    apart = abs(values - axis.values(len(values)))
    if spacing == 0 or apart.max() > tolerance(spacing, coordinates):
        at = int(apart.argmax())
        raise DefinitionError(
            f"the coordinates {dim} of {name!r} are not evenly spaced: {values[at]:g} at index "
            f"{at}, where a spacing of {spacing:g} gives {axis.values(at + 1)[-1]:g}; "
            f"interpolate it to an even grid with .interp, or {leave}"
        )
    return axis


def _check_coordinates(name: str, given: Any, dim: str, axis: Axis) -> None:
    coordinates = _coordinates(given, dim)
    if coordinates is None:
        return
    check_place(f"of {name!r}", dim, coordinates, axis, f".drop_vars({dim!r})")


def check_place(of: str, dim: str, coordinates: NDArray[Any], axis: Axis, leave_out: str) -> None:
    """Raise DefinitionError where the `coordinates` along `dim` are not those of an axis.

    `of` says whose they are, and `leave_out` how they are not compared.
    """
    if coordinates.dtype.kind not in "iuf":
        raise DefinitionError(
            f"the coordinates {dim} {of} are {coordinates.dtype}, where the grid needs numbers; "
            f"leave them out with {leave_out}"
        )
    wanted = axis.values(len(coordinates))
    apart = abs(coordinates.astype(np.float64) - wanted)
    if not (apart <= tolerance(axis.spacing, coordinates)).all():
        at = int(np.nanargmax(apart)) if not np.isnan(apart).all() else 0
        raise DefinitionError(
            f"the coordinate {dim} {of} is {coordinates[at]:g} at index {at}, that of the grid "
            f"{wanted[at]:g} {axis.units}".rstrip()
            + f" ({axis.name} = {axis.origin:g} + {axis.spacing:g} k); interpolate it, give "
            f"the grid the same coordinates, or leave them out with {leave_out}"
        )


def tolerance(spacing: float, coordinates: NDArray[Any]) -> float:
    """How far coordinates may lie from evenly spaced ones that are the same: of a cell, rounded."""
    rounding = 4 * float(np.finfo(coordinates.dtype).eps) if coordinates.dtype.kind == "f" else 0.0
    return _NEAR * abs(spacing) + rounding * float(abs(coordinates.astype(np.float64)).max())
