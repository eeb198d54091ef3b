"""Arrays on disk as arrays of xarray, with names and coordinates, read when they are used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from outgrid.formats.axis import Axis
from outgrid.formats.registry import library

__all__ = ["dataset"]


def dataset(
    arrays: Mapping[str, tuple[Any, tuple[Axis, ...], Mapping[str, Any]]],
    attributes: Mapping[str, Any],
) -> Any:
    """An `xarray.Dataset` of arrays with axes and attributes.

    Axes of one name whose cells lie elsewhere, as those of snapshots may, are named after their
    array. Raises UsageError where xarray is not there.
    """
    xarray: Any = library("xarray", "a dataset", "xarray")
    known: dict[str, tuple[Axis, int]] = {}
    variables: dict[str, Any] = {}
    for name, (array, axes, said) in arrays.items():
        dims: list[str] = []
        for axis, extent in zip(axes, array.shape, strict=True):
            shared = known.setdefault(axis.name, (axis, extent)) == (axis, extent)
            dim = axis.name if shared else f"{axis.name}_{name}"
            known[dim] = axis, extent
            dims.append(dim)
        variables[name] = xarray.Variable(dims, _lazy(array), dict(said))
    coordinates = {
        dim: xarray.Variable(dim, axis.values(extent), axis.attributes)
        for dim, (axis, extent) in known.items()
    }
    return xarray.Dataset(variables, coordinates, {"Conventions": "CF-1.8", **attributes})


def _lazy(array: Any) -> Any:
    """The array, of which xarray reads what it needs."""
    backends: Any = importlib.import_module("xarray.backends")
    indexing: Any = importlib.import_module("xarray.core.indexing")

    class OnDisk(backends.BackendArray):
        """What xarray asks for slices."""

        shape, dtype = tuple(array.shape), np.dtype(array.dtype)

        def __getitem__(self, key: Any) -> Any:
            basic = indexing.IndexingSupport.BASIC
            return indexing.explicit_indexing_adapter(key, self.shape, basic, self.read)

        def read(self, key: tuple[Any, ...]) -> Any:
            """Numbers and slices of the array."""
            return np.asarray(array[key])

    return indexing.LazilyIndexedArray(OnDisk())
