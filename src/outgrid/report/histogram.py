"""How often values of a field occur, counted plane by plane."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import UsageError
from outgrid.report.picture import new_axes

__all__ = ["histogram"]


def histogram(field: Any, name: str, units: str = "", bins: int = 100) -> Any:
    """A figure of the number of cells per value, in so many ``bins`` between the extremes.

    The field is read twice, a plane at a time. Values that are not finite are left out, and the
    title says how many. Raises UsageError for fewer than one bin and where nothing is finite.
    """
    if bins < 1:
        raise UsageError(f"bins must be at least 1, not {bins}")
    low, high, cells, finite = np.inf, -np.inf, 0, 0
    for values in _planes(field):
        good = values[np.isfinite(values)]
        cells, finite = cells + values.size, finite + good.size
        if good.size:
            low, high = min(low, float(good.min())), max(high, float(good.max()))
    if not finite:
        raise UsageError(f"{name or 'the field'} has no finite values to count")
    if low == high:
        low, high = low - 0.5, high + 0.5
    counts, edges = np.zeros(bins, np.int64), np.linspace(low, high, bins + 1)
    for values in _planes(field):
        counts += np.histogram(values[np.isfinite(values)], edges)[0]
    figure, (axes,) = new_axes((9, 4))
    axes.stairs(counts, edges, fill=True)
    axes.set_yscale("log")
    axes.set(xlabel=f"{name} ({units})" if units else name, ylabel="cells")
    left_out = f"; {cells - finite:,} are not finite" if finite < cells else ""
    axes.set_title(f"{finite:,} cells{left_out}", parse_math=False)
    return figure


def _planes(field: Any) -> Iterator[NDArray[Any]]:
    for number in range(field.shape[0]):
        yield np.asarray(field[number]).ravel()
