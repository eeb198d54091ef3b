"""Axes of arrays: their names, and where their cells lie."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

__all__ = ["Along", "Axis", "Coordinate", "coordinates", "told_apart"]


class Axis(msgspec.Struct, frozen=True):
    """Cell k lies at `origin` + k `spacing`, in `units`, which may be nothing.

    That is `shift` cells beside those of the grid, for fields of a staggered one.
    """

    name: str
    origin: float = 0.0
    spacing: float = 1.0
    units: str = ""
    shift: float = 0.0

    @property
    def attributes(self) -> dict[str, str | float]:
        """What a file says of its coordinates: CF's units, and what xgcm calls a shift (COMODO)."""
        units = {"units": self.units} if self.units else {}
        return units | ({"c_grid_axis_shift": self.shift} if self.shift else {})

    def shifted(self, cells: float) -> "Axis":
        """The axis of values that lie half a cell further: it has a name of its own."""
        if not cells:
            return self
        name = f"{self.name}_{'right' if cells > 0 else 'left'}"
        return replace(self, name=name, origin=self.origin + cells * self.spacing, shift=cells)

    def values(self, extent: int) -> NDArray[Any]:
        """Where the first `extent` cells lie."""
        return self.origin + self.spacing * np.arange(extent, dtype=np.float64)

    def of(self, cells: range) -> "Axis":
        """The same axis of some of its cells."""
        first = self.origin + self.spacing * cells.start
        return replace(self, origin=first, spacing=self.spacing * cells.step)


class Along(msgspec.Struct, frozen=True):
    """Numbers along an axis that are no place on it: where each receiver is, for example."""

    name: str
    dim: str
    values: tuple[float, ...]
    units: str = ""

    @property
    def attributes(self) -> dict[str, str]:
        """What a file says of them."""
        return {"units": self.units} if self.units else {}


class Coordinate(msgspec.Struct, frozen=True, eq=False):
    """What a file has beside its arrays of the cells along `dim`: where they lie, if so named."""

    name: str
    dim: str
    values: NDArray[np.float64]
    attributes: Mapping[str, str | float]


def coordinates(
    arrays: Iterable[tuple[tuple[Axis, ...], tuple[int, ...], tuple[Along, ...]]],
) -> dict[str, Coordinate]:
    """The coordinates of arrays that stand in one file, by name: of axes, and what is along them.

    Axes of one name must be the same, as `told_apart` makes them.
    """
    found: dict[str, Coordinate] = {}
    for axes, shape, along in arrays:
        for axis, extent in zip(axes, shape, strict=True):
            name = axis.name
            found[name] = Coordinate(name, name, axis.values(extent), axis.attributes)
        for beside in along:
            values = np.array(beside.values, np.float64)
            found[beside.name] = Coordinate(beside.name, beside.dim, values, beside.attributes)
    return found


def told_apart(
    arrays: Mapping[str, tuple[tuple[Axis, ...], tuple[int, ...]]],
) -> dict[str, tuple[Axis, ...]]:
    """The axes of arrays of some shapes, as they may stand in one file.

    Of several with one name whose cells lie elsewhere, as those of snapshots may, the first keeps
    it, and others are named after their array. A name is of an array or of an axis: where both
    have one, the axis gets another.
    """
    known: dict[str, tuple[Axis, int]] = {}
    apart: dict[str, tuple[Axis, ...]] = {}
    for name, (axes, shape) in arrays.items():
        own: list[Axis] = []
        for axis, extent in zip(axes, shape, strict=True):
            shared = known.setdefault(axis.name, (axis, extent)) == (axis, extent)
            label = axis.name if shared else f"{axis.name}_{name}"
            while label in arrays:
                label += "_axis"
            own.append(replace(axis, name=label))
        apart[name] = tuple(own)
    return apart
