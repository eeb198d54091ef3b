"""Arrays on disk as arrays of xarray, with names and coordinates, read when they are used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from outgrid.formats.axis import Along, Axis, told_apart
from outgrid.formats.registry import library
from outgrid.formats.shard import chunk_of

__all__ = ["dataset"]


def dataset(
    arrays: Mapping[str, tuple[Any, tuple[Axis, ...], Mapping[str, Any]]],
    attributes: Mapping[str, Any],
    along: Sequence[Along] = (),
) -> Any:
    """An `xarray.Dataset` of arrays with axes and attributes.

    What is `along` an axis are coordinates as well. Raises UsageError where xarray is not
    there.
    """
    xarray: Any = library("xarray", "a dataset", "xarray")
    apart = told_apart({name: (axes, array.shape) for name, (array, axes, _) in arrays.items()})
    variables: dict[str, Any] = {}
    coordinates: dict[str, Any] = {}
    for name, (array, _, said) in arrays.items():
        names = [axis.name for axis in apart[name]]
        together = chunk_of(array.shape, np.dtype(array.dtype).itemsize)
        chunks = {"preferred_chunks": dict(zip(names, together, strict=True))}
        variables[name] = xarray.Variable(names, _lazy(array), dict(said), chunks)
        for axis, extent in zip(apart[name], array.shape, strict=True):
            given = axis.values(extent), axis.attributes
            coordinates[axis.name] = xarray.Variable(axis.name, *given)
    for coordinate in along:
        coordinates[coordinate.name] = xarray.Variable(
            coordinate.dim, [*coordinate.values], coordinate.attributes
        )
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
