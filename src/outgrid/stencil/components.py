"""Vectors and tensors: several fields that are declared, read and returned as one.

A vector `v` in a definition is one field per axis, `v_z`, `v_y` and `v_x`; a symmetric tensor `s`
one per pair of axes, `s_xx`, `s_xy` and so on, a gradient `g` one per ordered pair. A parameter
that is a vector is one profile per axis, each along its own. Beyond the definition there are
fields and profiles alone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from outgrid.errors import DefinitionError
from outgrid.stencil.symbol import AXES, FieldSymbol, ParameterSymbol, Symbol
from outgrid.units import suggest

__all__ = ["Gradient", "Tensor", "Vector", "channels", "components_of"]


class Vector(Mapping[str, Any]):
    """One field per axis: `v.x` or `v["x"]`; a mapping by axis, the slowest first."""

    __slots__ = ("_parts", "name")

    def __init__(self, name: str, ndim: int, part: Callable[[str], Any] | None = None) -> None:
        self.name = name
        self._parts: dict[str, Any] = {
            label: FieldSymbol(f"{name}_{label}", ndim) if part is None else part(label)
            for label in self.labels(AXES[-ndim:])
        }

    @classmethod
    def of_profiles(cls, name: str, ndim: int) -> "Vector":
        """One profile along each axis, `name_x` along x."""
        return cls(name, ndim, lambda axis: ParameterSymbol(f"{name}_{axis}", ndim).along(axis))

    @staticmethod
    def labels(axes: tuple[str, ...]) -> tuple[str, ...]:
        """What follows the name of the whole in the names of the fields."""
        return axes

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(f"{self.name}_{label}" for label in self._parts)

    def __getitem__(self, label: str) -> Any:
        key = self._key(label)
        if key not in self._parts:
            raise DefinitionError(
                f"{self.name} has no component {key!r}{suggest(key, self._parts)}"
            )
        return self._parts[key]

    def __contains__(self, label: object) -> bool:
        return isinstance(label, str) and self._key(label) in self._parts

    def __getattr__(self, label: str) -> Any:
        return self[label]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __hash__(self) -> int:
        """That of the object, so that what a stencil returns may name it: ``{v: ...}``."""
        return object.__hash__(self)

    def __len__(self) -> int:
        return len(self._parts)

    def _key(self, label: str) -> str:
        return label

    def assigned(self, values: object) -> dict[str, object]:
        """New values by the names of the fields, from a mapping by component or a sequence."""
        if isinstance(values, Mapping):
            given = cast("Mapping[str, object]", values)
            return {self[label].name: value for label, value in given.items()}
        several = isinstance(values, Iterable) and not isinstance(values, Symbol)
        parts = tuple(cast("Iterable[object]", values)) if several else ()
        if len(parts) != len(self):
            raise DefinitionError(
                f"{self.name} has {len(self)} components ({', '.join(self._parts)}); return as many"
                " values, or a dictionary by component"
            )
        return dict(zip(self.fields, parts, strict=True))

    def _whole(self, *_: object) -> Any:
        raise DefinitionError(
            f"{self.name} is several fields, not one value; name a component, as in"
            f" {self.name}.{[*self._parts][-1]}"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _whole
    __rtruediv__ = __neg__ = __abs__ = __pow__ = __lt__ = __gt__ = __le__ = __ge__ = _whole


class Tensor(Vector):
    """One field per pair of axes, symmetric: `s.xy` and `s.yx` are the same field `s_xy`."""

    __slots__ = ()

    @staticmethod
    def labels(axes: tuple[str, ...]) -> tuple[str, ...]:
        """Pairs of axes, x before y before z."""
        named = sorted(axes)
        return tuple(a + b for n, a in enumerate(named) for b in named[n:])

    def _key(self, label: str) -> str:
        return "".join(sorted(label))


class Gradient(Vector):
    """One field per ordered pair of axes: `g.xy` is of the component along x what changes along y.

    A tensor that need not be symmetric, with as many components as a vector has derivatives.
    """

    __slots__ = ()

    @staticmethod
    def labels(axes: tuple[str, ...]) -> tuple[str, ...]:
        """Ordered pairs of axes, the slowest first."""
        return tuple(a + b for a in axes for b in axes)


_LABELS = {*AXES, *Tensor.labels(AXES), *Gradient.labels(AXES)}
"""What follows the name of a vector, tensor or gradient in those of its fields."""


def channels(*labels: str) -> type[Vector]:
    """A kind of field with a component for each label, to annotate it: `RGB = channels("r", "g")`.

    `picture: RGB` is declared, read and returned like a vector, `picture.r` or `picture["r"]`.
    """
    if not labels or not all(label.isidentifier() for label in labels):
        raise DefinitionError(f"channels must have names, not {', '.join(map(repr, labels))}")
    if len({*labels}) < len(labels):
        raise DefinitionError(f"the names of channels must differ, not {', '.join(labels)}")

    class Channels(Vector):
        """One field for each label."""

        __slots__ = ()

        @staticmethod
        def labels(axes: tuple[str, ...]) -> tuple[str, ...]:
            return labels

    return Channels


def components_of(name: str, fields: Iterable[str]) -> tuple[str, ...]:
    """The fields that are called as components of a vector, tensor or gradient `name` are."""
    parts = {f"{name}_{label}" for label in _LABELS}
    return tuple(field for field in fields if field in parts)
