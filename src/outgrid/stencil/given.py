"""What users give: values, or mappings of their keyword arguments as job files have them."""

from collections.abc import Mapping
from dataclasses import MISSING, Field
from numbers import Integral
from typing import Any, ClassVar, Protocol, TypeGuard, TypeVar, cast

from outgrid.errors import DefinitionError
from outgrid.units import suggest

__all__ = ["checked_count", "is_whole", "next_of", "value_of"]

_LARGEST = 2**62


class _Value(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


V = TypeVar("V", bound=_Value)


def value_of(kind: type[V], given: object) -> V:
    """A value of ``kind``, or what a mapping of its arguments makes. Raises DefinitionError."""
    if isinstance(given, kind):
        return given
    name = kind.__name__
    if not isinstance(given, Mapping):
        needed = [name for name, member in kind.__dataclass_fields__.items() if _is_needed(member)]
        raise DefinitionError(
            f"expected {name}({', '.join(needed)}), or a mapping of these, not {given!r}"
        )
    entries, known = cast("Mapping[str, Any]", given), kind.__dataclass_fields__
    for entry in entries:
        if entry not in known:
            raise DefinitionError(f"a {name} has no entry {entry!r}{suggest(str(entry), known)}")
    for entry, field in known.items():
        if entry not in entries and _is_needed(field):
            raise DefinitionError(f"a {name} needs the entry {entry!r}")
    return kind(**entries)


def _is_needed(member: Field[Any]) -> bool:
    return member.default is MISSING and member.default_factory is MISSING


def checked_count(what: str, name: str, given: object) -> int:
    """A whole number above 0. Raises DefinitionError with ``name``, an entry of ``what``."""
    if not is_whole(given) or int(given) < 1:
        raise DefinitionError(f"{name} of a {what} must be a whole number above 0, not {given!r}")
    return int(given)


def next_of(first: int, every: int, steps: int) -> int:
    """The first of the steps ``first``, ``first + every``, ... that is left after ``steps`` steps.

    It counts from 1 behind them.
    """
    rest = first - steps
    return rest if rest > 0 else every - -rest % every


def is_whole(given: object) -> TypeGuard[Integral]:
    """Whether it is a whole number of at most 64 bits."""
    return (
        not isinstance(given, bool)
        and isinstance(given, Integral)
        and -_LARGEST <= int(given) <= _LARGEST
    )
