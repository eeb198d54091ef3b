"""Snapshots: the values of a part of a field, a plane or every n-th cell, after every n-th step."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numpy as np

from outgrid.errors import DefinitionError, UsageError
from outgrid.formats.axis import Axis
from outgrid.numbers import BFLOAT16, number_type
from outgrid.stencil.dtypes import dtype_name
from outgrid.stencil.given import checked_count, is_whole, next_of
from outgrid.stencil.symbol import AXES
from outgrid.units import suggest

__all__ = ["Snapshot", "snapshots_by_file"]

ENCODED = ("float16", BFLOAT16, "float32")
"""Types that values may be rounded to as they are kept."""

if TYPE_CHECKING:
    Selected: TypeAlias = int | str | slice | None
else:
    Selected = int | str | None  # tables have no slices
S = TypeVar("S")
_NUMBER = r"-?[0-9]{1,18}"
_SLICE = re.compile(rf"({_NUMBER})?:({_NUMBER})?(?::({_NUMBER})?)?")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Keeps a part of `field` after the steps `first`, `first + every`, ..., counted from 1.

    Along each axis it is an index, or a slice as Python has them, also as text ("10:90:2"); all of
    the axis where left out. Slices without a step of their own take every `stride`-th cell.
    Values are kept in the type of the field, or rounded once to `dtype`, a shorter one.
    """

    field: str
    every: int = 1
    z: Selected = None
    y: Selected = None
    x: Selected = None
    stride: int = 1
    first: int | None = None
    dtype: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "every", checked_count("snapshot", "every", self.every))
        object.__setattr__(self, "stride", checked_count("snapshot", "stride", self.stride))
        first = self.every if self.first is None else self.first
        object.__setattr__(self, "first", checked_count("snapshot", "first", first))
        if not isinstance(cast("object", self.field), str):
            raise DefinitionError(f"field of a snapshot must be a name, not {self.field!r}")
        for axis in AXES:
            object.__setattr__(self, axis, _checked(axis, getattr(self, axis)))
        if self.dtype is not None:
            name = dtype_name(self.dtype)
            if name not in ENCODED:
                raise DefinitionError(f"dtype = {name!r} of a snapshot{suggest(name, ENCODED)}")
            try:
                number_type(name)
            except UsageError as error:
                raise DefinitionError(f"the dtype of a snapshot: {error}") from error
            object.__setattr__(self, "dtype", name)

    @property
    def begin(self) -> int:
        """The first step after which it is taken."""
        return self.every if self.first is None else self.first

    def taken(self, steps: int) -> int:
        """How often it is taken in so many steps."""
        return max(0, (steps - self.begin) // self.every + 1)

    def after(self, steps: int) -> "Snapshot":
        """The same snapshot with `steps` of the steps made."""
        return replace(self, first=next_of(self.begin, self.every, steps))

    def cells(self, shape: tuple[int, ...]) -> tuple[range, ...]:
        """Per axis the indices that are kept. Raises DefinitionError where there are none."""
        names = AXES[-len(shape) :]
        for axis in AXES:
            if axis not in names and getattr(self, axis) is not None:
                raise DefinitionError(
                    f"a snapshot at {axis} of a grid with the axes {', '.join(names)}"
                )
        return tuple(map(self._along, names, shape))

    def kept(self, shape: tuple[int, ...]) -> tuple[range, range, range]:
        """The planes, rows and columns that are kept; in 2-D a plane has one row."""
        planes, *rows, columns = self.cells(shape)
        return planes, rows[0] if rows else range(1), columns

    def frame(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of what is kept after a step: axes with an index are left out."""
        names = AXES[-len(shape) :]
        kept = zip(names, self.cells(shape), strict=True)
        return tuple(len(cells) for axis, cells in kept if not isinstance(self._at(axis), int))

    def shape(self, shape: tuple[int, ...], steps: int) -> tuple[int, ...]:
        """The shape of all that is kept in so many steps."""
        return self.taken(steps), *self.frame(shape)

    def axes(self, shape: tuple[int, ...], axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        """The axes of all that is kept, of those of the grid: numbers of steps come first."""
        kept = zip(AXES[-len(shape) :], axes, self.cells(shape), strict=True)
        left = (axis.of(cells) for name, axis, cells in kept if not isinstance(self._at(name), int))
        return Axis("step", self.begin, self.every), *left

    def frame_bytes(self, shape: tuple[int, ...], dtype: str) -> int:
        """Bytes of what is kept after a step."""
        return math.prod(self.frame(shape)) * np.dtype(dtype).itemsize

    def part_bytes(self, shape: tuple[int, ...], dtype: str, part: tuple[range, ...]) -> int:
        """Bytes of what is kept after a step of a part of the grid: of some indices of each axis.

        Axes that ``part`` does not reach to are whole.
        """
        cells = self.cells(shape)
        counts = [len(cell) for cell in cells]
        for axis, (kept, mine) in enumerate(zip(cells, part, strict=False)):
            below, above = (
                len(range(kept.start, min(kept.stop, max(kept.start, end)), kept.step))
                for end in (mine.start, mine.stop)
            )
            counts[axis] = above - below
        return math.prod(counts) * np.dtype(dtype).itemsize

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form, the keyword arguments of a Snapshot."""
        data = {"field": self.field, "every": self.every, "first": self.first}
        axes = {axis: self._at(axis) for axis in AXES if self._at(axis) is not None}
        encoded = {} if self.dtype is None else {"dtype": self.dtype}
        return data | {"stride": self.stride} | axes | encoded

    def _at(self, axis: str) -> int | str | None:
        return getattr(self, axis)

    def _along(self, axis: str, extent: int) -> range:
        at = self._at(axis)
        if isinstance(at, int):
            if not -extent <= at < extent:
                raise DefinitionError(
                    f"{axis} of a snapshot must be within the grid, 0..{extent - 1}, not {at}"
                )
            return range(extent)[at : at + 1 or None]
        low, high, step = _ends(at or ":")
        cells = range(extent)[slice(low, high, step or self.stride)]
        if not cells:
            raise DefinitionError(
                f"{axis} of a snapshot must select some of the indices 0..{extent - 1}; "
                f"{at!r} selects none"
            )
        return cells


def snapshots_by_file(snapshots: Iterable[S]) -> dict[str, S]:
    """The snapshots of a problem, or what tells of each, by the name of the file it is left in."""
    return {f"snapshot.{number}.npy": snapshot for number, snapshot in enumerate(snapshots)}


def _checked(axis: str, given: object) -> int | str | None:
    """An index, or a slice as text of one form."""
    if given is None:
        return None
    if is_whole(given):
        return int(given)
    text = given
    if isinstance(given, slice):
        whole = cast("slice[Any, Any, Any]", given)
        parts = (whole.start, whole.stop, whole.step)
        text = ":".join("" if part is None else str(part) for part in parts)
    if not isinstance(text, str) or _SLICE.fullmatch(text.strip()) is None:
        raise DefinitionError(
            f"{axis} of a snapshot must be an index, or a slice such as '10:90:2', not {given!r}"
        )
    low, high, step = ("" if part is None else str(part) for part in _ends(text.strip()))
    if step and int(step) < 1:
        raise DefinitionError(f"{axis} of a snapshot must have a step above 0, not {given!r}")
    return f"{low}:{high}:{step}" if step else f"{low}:{high}"


def _ends(text: str) -> tuple[int | None, int | None, int | None]:
    match = _SLICE.fullmatch(text)
    parts = match.groups() if match is not None else (None, None, None)
    low, high, step = (None if part is None else int(part) for part in parts)
    return low, high, step
