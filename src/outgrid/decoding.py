"""Tables as text has them, decoded once and strictly: kinds of values, and what is none in words.

A table is decoded key by key. The kind of a key is what the decoder of msgspec takes; a dataclass
stands for a table of its fields, and checks itself.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

import msgspec

from outgrid.errors import UsageError, meaning
from outgrid.units import nearest, nearest_three

__all__ = ["choice", "decoded_table", "shown"]

LONGEST_SHOWN = 200

# How the decoder calls kinds of values; what may be left out need not be said.
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "",
}


def choice(*names: str) -> Any:
    """The kind of one of ``names``."""
    return cast("Any", Literal)[names]


def decoded_table(
    written: Mapping[str, Any],
    kinds: Mapping[str, Any],
    place: str = "",
    source: str = "",
    *,
    needed: Collection[str] = (),
    elsewhere: Mapping[str, Collection[str]] | None = None,
) -> dict[str, Any]:
    """What is ``written`` in the table at ``place`` (such as "run") of the file ``source``.

    Without a source it is keywords of a call. ``elsewhere`` are keys of other tables, by the place
    of these. Raises UsageError for keys that are none of ``kinds``, with the nearest one, for
    ``needed`` ones that are missing and for values of another kind; DefinitionError for those that
    mean nothing.
    """
    _check_keys(written, kinds, place, source, elsewhere or {})
    for key in needed:
        if key not in written:
            raise UsageError(f"{_table(place, source)} lacks the key {key!r}")
    prefix = f"{place}." if place else ""
    return {
        key: _decoded(value, kinds[key], f"{prefix}{key}", source) for key, value in written.items()
    }


def shown(text: str) -> str:
    """As much of what was written as a message has room for."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _decoded(value: Any, kind: Any, path: str, source: str) -> Any:
    entry, *_ = get_args(kind) or (None,)
    if get_origin(kind) is tuple and dataclasses.is_dataclass(entry) and isinstance(value, list):
        several = cast("list[Any]", value)
        return tuple(_decoded(one, entry, f"{path}[{n}]", source) for n, one in enumerate(several))
    if isinstance(value, Mapping):
        table = cast("Mapping[str, Any]", value)
        if get_origin(kind) is dict and get_args(kind)[1] is not Any:
            inner = get_args(kind)[1]
            return {
                key: _decoded(item, inner, f"{path}.{key}", source) for key, item in table.items()
            }
        for member in filter(dataclasses.is_dataclass, (kind, *get_args(kind))):
            fields = [field.name for field in dataclasses.fields(member)]
            _check_keys(table, fields, path, source, {})
    try:
        with meaning(f"{source}: {path}" if source else path):
            return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise UsageError(_explained(str(error), value, kind, path, source)) from None


def _check_keys(
    written: Mapping[str, Any],
    known: Collection[str],
    place: str,
    source: str,
    elsewhere: Mapping[str, Collection[str]],
) -> None:
    for key in written:
        if key in known:
            continue
        other = next((name for name, keys in elsewhere.items() if key in keys), None)
        hint = f"it belongs in [{other}]" if other else f"did you mean {nearest_three(key, known)}?"
        if not source:
            raise UsageError(f"unknown option {shown(key)!r}; {hint}")
        raise UsageError(f"{_table(place, source)}: unknown key {shown(key)!r}; {hint}")


def _table(place: str, source: str) -> str:
    return f"[{place}] of {source}" if place else source


def _explained(message: str, value: Any, kind: Any, path: str, source: str) -> str:
    """The decoder's message with the file, the value that was written and what would be valid."""
    reason, _, within = message.partition(" - at `$")
    within = within.rstrip("`")
    reason = reason.replace("`", "")
    missing = re.fullmatch(r"Object missing required field (\w+)", reason)
    if missing is not None:
        return f"{_table(path + within, source)} lacks the key {missing[1]!r}"
    written = _at(value, within)
    if reason.startswith("Invalid enum value"):
        names = _choices(kind, re.findall(r"\w+", path + within)[-1])
        guess = nearest(str(written), names)
        reason = f"expected one of {', '.join(names)}"
        reason += f"; did you mean {guess!r}?" if guess else ""
    kinds = re.fullmatch(r"Expected (.+), got (.+)", reason)
    if kinds is not None:
        wanted = dict.fromkeys(_KINDS.get(name, name) for name in kinds[1].split(" | "))
        reason = f"expected {' or '.join(word for word in wanted if word)}"
    told = f"{path}{within} = {shown(repr(written))}: {reason[:1].lower()}{reason[1:]}"
    return f"{source}: {told}" if source else told


def _choices(kind: Any, key: str) -> list[str]:
    """The names that a kind has to choose from, or one of a table for a key of it."""
    if get_origin(kind) is Literal:
        return [name for name in get_args(kind) if name]
    inner = get_args(kind)
    if hasattr(kind, "__annotations__"):  # a table
        inner = (get_type_hints(kind).get(key),)
    return [*dict.fromkeys(name for member in inner for name in _choices(member, key))]


def _at(value: Any, path: str) -> Any:
    """The value at a path like ".shape[1]", None where there is none."""
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        try:
            value = value[int(index)] if index else value[name]
        except (KeyError, IndexError, TypeError):
            return None
    return value
