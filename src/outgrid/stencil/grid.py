"""What the cells of a grid mean: where they lie, and in which units. It changes no value."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from outgrid.errors import DefinitionError
from outgrid.formats.axis import Axis
from outgrid.stencil.given import value_of
from outgrid.stencil.symbol import AXES, is_number
from outgrid.units import suggest

__all__ = ["Grid", "grid_of"]

ATTRIBUTES = ("units", "long_name", "standard_name")
OFFSET = "offset"


@dataclass(frozen=True)
class Grid:
    """Coordinates of the cells, and units of axes and fields, for people and for other programs.

    Along each axis cell k lies at `origin` + k `spacing`. `spacing`, `origin` and `units` are given
    for all axes, or one of them for each. `names` are those of the axes (z, y, x); other names than
    these may stand in formulas of initial values, for the coordinate. `fields` gives a field
    "units", "long_name" or "standard_name", as the CF conventions have them, and one on a staggered
    grid its "offset": for each axis 0, or 0.5 or -0.5 where its values lie half a cell further.
    `dt` is the time of a step in seconds; without it snapshots and traces are counted in steps.
    """

    spacing: tuple[float, ...] = ()
    origin: tuple[float, ...] = ()
    units: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    fields: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict[str, Mapping[str, Any]], hash=False
    )
    dt: float = 0.0

    def axes(self, count: int, field: str = "") -> tuple[Axis, ...]:
        """The axes, or those that a field lies on.

        Of a grid of which nothing is said they are the numbers of cells along `count` axes.
        """
        if not self.names:
            return tuple(map(Axis, AXES[-count:]))
        given = zip(self.names, self.origin, self.spacing, self.units, strict=True)
        offset = self.offset(count, field)
        return tuple(
            Axis(*numbers).shifted(cells) for numbers, cells in zip(given, offset, strict=True)
        )

    def offset(self, count: int, field: str) -> tuple[float, ...]:
        """Cells along each of `count` axes that a field lies further."""
        return self.fields.get(field, {}).get(OFFSET, (0.0,) * count)

    def place(self, field: str, position: tuple[float, ...]) -> dict[str, float]:
        """Where a position in cells of a field lies, by the names of the axes."""
        count = len(position)
        cells = zip(self.axes(count), position, self.offset(count, field), strict=True)
        return {axis.name: axis.origin + axis.spacing * (k + by) for axis, k, by in cells}

    def times(self, steps: Axis) -> Axis:
        """An axis of steps as one of time, where the time of a step is known."""
        if not self.dt:
            return steps
        return Axis("time", steps.origin * self.dt, steps.spacing * self.dt, "s")

    def attributes(self, field: str) -> dict[str, str]:
        """What is said of a field, in words."""
        said = self.fields.get(field, {})
        return {key: said[key] for key in ATTRIBUTES if key in said}

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names of axes that stand for coordinates in formulas, not for numbers of cells."""
        return tuple(name for name in self.names if name not in AXES)

    def at(self, name: str, index: Any) -> Any:
        """Where cells lie along the axis of that name, from their number there."""
        axis = self.names.index(name)
        return self.origin[axis] + self.spacing[axis] * index

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        timed = {"dt": self.dt} if self.dt else {}
        return timed | {
            "spacing": list(self.spacing),
            "origin": list(self.origin),
            "units": list(self.units),
            "names": list(self.names),
            "fields": {
                name: {key: [*v] if key == OFFSET else v for key, v in said.items()}
                for name, said in self.fields.items()
            },
        }


def grid_of(given: object, count: int, fields: Iterable[str], taken: Iterable[str]) -> Grid | None:
    """A grid of `count` axes and of these `fields`, whose names are not `taken`, or none.

    Raises DefinitionError.
    """
    if given is None:
        return None
    grid = value_of(Grid, given)
    spacing = tuple(map(float, _per_axis("spacing", _or(grid.spacing, 1.0), count, is_number)))
    origin = tuple(map(float, _per_axis("origin", _or(grid.origin, 0.0), count, is_number)))
    for name, numbers in (("spacing", spacing), ("origin", origin)):
        if not all(map(math.isfinite, numbers)) or (name == "spacing" and min(numbers) <= 0):
            above = " and above 0" if name == "spacing" else ""
            raise DefinitionError(f"the {name} {numbers} of the grid is not finite{above}")
    dt = float(grid.dt) if is_number(grid.dt) else math.nan
    if not (math.isfinite(dt) and dt >= 0):
        raise DefinitionError(
            f"dt of the grid must be a time step in seconds, above 0, not {grid.dt!r}"
        )
    units = _per_axis("units", _or(grid.units, ""), count, _is_text)
    names = _per_axis("names", _or(grid.names, AXES[-count:]), count, _is_text)
    for name in names:
        if not name.isidentifier() or name in taken or names.count(name) > 1:
            raise DefinitionError(
                "the name of an axis must be a word, such as 'depth', and differ from the "
                f"others, not {name!r}; names of this grid are {', '.join(names)}"
            )
        if name in AXES and AXES[-count:].index(name) != names.index(name):
            raise DefinitionError(
                f"axes of the grid are called {', '.join(names)}, but formulas use {name!r} for "
                f"another axis; the axes are {', '.join(AXES[-count:])}"
            )
    return Grid(spacing, origin, units, names, _checked_fields(grid.fields, [*fields], count), dt)


def _or(given: object, default: object) -> object:
    return default if given == () else given


def _per_axis(
    name: str, given: object, count: int, fits: Callable[[object], bool]
) -> tuple[Any, ...]:
    """One value for each axis, of one for all or of a list of so many."""
    several = isinstance(given, Iterable) and not isinstance(given, str | Mapping)
    values: tuple[Any, ...] = (
        tuple(cast("Iterable[Any]", given)) if several else (cast("Any", given),) * count
    )
    if len(values) != count or not all(map(fits, values)):
        raise DefinitionError(
            f"{name} of the grid must be one value or one per axis, {count} in all, not {given!r}"
        )
    return values


def _is_text(given: object) -> bool:
    return isinstance(given, str)


def _checked_fields(given: Any, names: list[str], count: int) -> dict[str, dict[str, Any]]:
    if not isinstance(given, Mapping):
        raise DefinitionError(
            f'fields = {given!r} of the grid is not a mapping, as {{"u": {{"units": "K"}}}}'
        )
    attributes: dict[str, dict[str, Any]] = {}
    for name, said in cast("Mapping[str, Any]", given).items():
        if name not in names:
            raise DefinitionError(f"the grid describes no field {name!r}{suggest(name, names)}")
        entries = dict(cast("Mapping[str, Any]", said)) if isinstance(said, Mapping) else {"": said}
        if OFFSET in entries:
            entries[OFFSET] = _checked_offset(name, entries[OFFSET], count)
        for key, value in entries.items():
            if key != OFFSET and (key not in ATTRIBUTES or not isinstance(value, str)):
                raise DefinitionError(
                    f"grid entries of {name!r} must be texts for {', '.join(ATTRIBUTES)} and "
                    f"numbers for {OFFSET}, not {said!r}"
                )
        attributes[name] = entries
    return attributes


def _checked_offset(name: str, given: Any, count: int) -> tuple[float, ...]:
    values: tuple[Any, ...] = ()
    if isinstance(given, Iterable) and not isinstance(given, str):
        values = tuple(cast("Iterable[Any]", given))
    if len(values) != count or not all(is_number(value) for value in values):
        raise DefinitionError(
            f"the offset of {name!r} must be one number for each of {count} axes, not {given!r}"
        )
    if not all(float(value) in (-0.5, 0.0, 0.5) for value in values):
        raise DefinitionError(
            f"the offset of {name!r} must be 0, 0.5 or -0.5 cells along each axis, not {given!r}"
        )
    return tuple(map(float, values))
