"""Sources and receivers: what is added to a field, and looked at, in single places at each step."""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np

from outgrid.errors import DefinitionError
from outgrid.stencil.dtypes import is_real
from outgrid.stencil.initial import InitialExpression, evaluate_steps
from outgrid.stencil.symbol import is_number

P = TypeVar("P", "Source", "Receiver")

LARGEST_ADDED = 2**31 - 1
"""The largest number that a source adds to whole numbers."""

__all__ = ["Receiver", "Source", "corners"]


def corners(position: tuple[float, ...]) -> list[tuple[tuple[int, ...], float]]:
    """The cells around a position, and their multilinear weights; those of weight 0 left out."""
    sides: list[list[tuple[int, float]]] = []
    for place in position:
        cell, rest = math.floor(place), place - math.floor(place)
        sides.append([(cell, 1 - rest), (cell + 1, rest)] if rest else [(cell, 1.0)])
    return [
        (tuple(cell for cell, _ in corner), math.prod(weight for _, weight in corner))
        for corner in itertools.product(*sides)
    ]


@dataclass(frozen=True, slots=True)
class Source:
    """Adds `values[step]` to `field` at `position` once a step has updated it.

    The position is in cells, slowest axis first; between cells the value is shared among the
    cells around by multilinear weights. A single number is added at every step; a text is a
    formula of `step`, which a problem turns into the values of its steps, counted from 0.
    """

    field: str
    position: tuple[float, ...]
    values: tuple[float, ...] | float | str

    def __post_init__(self) -> None:
        object.__setattr__(self, "position", _checked_position("source", self.position))
        given = cast("object", self.values)
        if isinstance(given, str):
            return
        if isinstance(given, np.ndarray):  # of one number, too; None where a value is masked
            given = cast("object", given.tolist())
        if isinstance(given, Iterable):
            values = tuple(_checked_value(value) for value in cast("Iterable[object]", given))
            object.__setattr__(self, "values", values)
        else:
            object.__setattr__(self, "values", _checked_value(given))

    def value(self, step: int) -> float:
        """What is added in a step."""
        return float(self.values[step] if isinstance(self.values, tuple) else self.values)

    def over(self, steps: int) -> "Source":
        """The same source with numbers for a formula of step. Raises DefinitionError."""
        if not isinstance(self.values, str):
            return self
        return replace(self, values=evaluate_steps(InitialExpression(self.values), steps))

    def after(self, steps: int) -> "Source":
        """The same source with `steps` of the steps made."""
        values = self.values[steps:] if isinstance(self.values, tuple) else self.values
        return Source(self.field, self.position, values)

    def ending(self, steps: int) -> "Source":
        """The same source in the first `steps` of the steps."""
        values = self.values[:steps] if isinstance(self.values, tuple) else self.values
        return Source(self.field, self.position, values)

    def amounts(self, steps: int, dtype: str) -> tuple[list[tuple[int, ...]], np.ndarray]:
        """Cells, and what is added to them: float64 of shape (steps, cells), rounded to dtype.

        Raises DefinitionError where whole numbers are kept and others would be added.
        """
        around = corners(self.position)
        values = np.array([self.value(step) for step in range(steps)]).reshape(steps, 1)
        amounts = values * np.array([[weight for _, weight in around]])
        if is_real(dtype):
            return [cell for cell, _ in around], amounts.astype(dtype).astype(np.float64)
        odd = amounts[(amounts != np.rint(amounts)) | (np.abs(amounts) > LARGEST_ADDED)]
        if odd.size:
            raise DefinitionError(
                f"the source at {self.position} adds {odd[0]} to a cell of {self.field!r}, "
                f"which is stored in {dtype}; values must be whole numbers up to {LARGEST_ADDED}"
            )
        return [cell for cell, _ in around], amounts

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form, the keyword arguments of a Source."""
        values = list(self.values) if isinstance(self.values, tuple) else self.values
        return {"field": self.field, "position": list(self.position), "values": values}


@dataclass(frozen=True, slots=True)
class Receiver:
    """Keeps the value of `field` at `position` after each step.

    The position is in cells, slowest axis first; between cells it is interpolated multilinearly.
    """

    field: str
    position: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "position", _checked_position("receiver", self.position))

    @property
    def corners(self) -> list[tuple[tuple[int, ...], float]]:
        """The cells around it, and their weights; see `corners`."""
        return corners(self.position)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form, the keyword arguments of a Receiver."""
        return {"field": self.field, "position": list(self.position)}


def _checked_position(what: str, given: object) -> tuple[float, ...]:
    several = cast("Iterable[Any]", given if isinstance(given, Iterable) else (given,))
    parts = tuple(several)
    if not parts or not all(is_number(part) and math.isfinite(float(part)) for part in parts):
        raise DefinitionError(
            f"the position of a {what} must be a sequence of numbers, one per axis, not {given!r}"
        )
    return tuple(float(part) for part in parts)


def in_row(point: P, line: bool) -> P:
    """A source or receiver on a line as that of its row."""
    one = line and len(point.position) == 1
    return replace(point, position=(0.0, *point.position)) if one else point


def _checked_value(value: object) -> float:
    if not is_number(value) or not math.isfinite(float(value)):
        raise DefinitionError(f"the values of a source must be finite numbers, not {value!r}")
    return float(value)
