"""The JSON-able form of a plan, by which records and tools know it.

It is flat: what belongs together in a plan lies side by side there. Forms outlive the classes that
they were made of, so names here stay when classes change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_type_hints

import msgspec

FLAT = ("work", "schedule", "memory", "volume")
"""The values whose entries lie beside each other."""

SKEWS = {"skew": "shifts", "face": "face_shifts"}
"""The entries of a schedule that are two there: what comes of each step, and of stages."""

PAIRS = {"bounds": ("plane_bounds", "row_bounds"), "beyond": ("beyond", "row_beyond")}
"""The entries of a subgrid that are two there, of planes and of rows."""

LIMIT = "limit_bytes", "memory_bytes"

Shape = TypeVar("Shape")


def of(plan: Any) -> dict[str, Any]:
    """The form of a plan."""
    plain = msgspec.to_builtins(plan)
    schedule = plain["schedule"]
    for name, shifts in SKEWS.items():
        moves = schedule[name]
        schedule |= {name: moves["per_step"], shifts: moves["shifts"]}
    if schedule["subgrid"] is not None:
        subgrid = dict[str, Any](schedule["subgrid"])
        pairs = {name: subgrid.pop(name) for name in PAIRS}
        for name, both in PAIRS.items():
            subgrid |= zip(both, pairs[name], strict=True)
        schedule["subgrid"] = subgrid
    memory = plain["memory"]
    memory[LIMIT[1]] = memory.pop(LIMIT[0])
    for name in FLAT:
        plain |= plain.pop(name)
    return plain


def read(plain: Mapping[str, Any], kind: type[Shape]) -> Shape:
    """The plan of a form. Raises msgspec.ValidationError for what is no plan."""
    given = dict(plain)
    for name, shifts in SKEWS.items():
        given[name] = {"per_step": plain[name], "shifts": plain[shifts]}
    if plain["subgrid"] is not None:
        pairs = {name: [plain["subgrid"][key] for key in both] for name, both in PAIRS.items()}
        given["subgrid"] = {**plain["subgrid"], **pairs}
    given[LIMIT[0]] = plain[LIMIT[1]]
    parts = get_type_hints(kind)
    for name in FLAT:
        members = parts[name].__struct_fields__
        given[name] = {member: given[member] for member in members if member in given}
    return msgspec.convert({name: given[name] for name in parts if name in given}, kind)
