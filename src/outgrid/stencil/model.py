"""The stencil as a value: fields, parameters and stages; all else is derived from them."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from outgrid.errors import DefinitionError
from outgrid.folding import Folding
from outgrid.stencil import expression as ex
from outgrid.stencil.components import components_of
from outgrid.stencil.expression import Access, Expression, Profile
from outgrid.units import suggest

T = TypeVar("T")

KINDS = ("sum", "max", "min")
"""Kinds of reductions."""

__all__ = ["KINDS", "Assignment", "Field", "Reach", "Reduction", "Stage", "Stencil"]

Reach = tuple[tuple[int, int], ...]
"""Per axis the smallest and the largest offset read."""


class Field(msgspec.Struct, frozen=True):
    """A named array on the grid.

    `evolving` says whether the stencil updates it; a coefficient field is only read. `levels` is
    the number of time levels that are read: 2 if the stencil reads the previous level (second
    order in time), else 1. A `temporary` is made anew in each step, for the stages after it: it is
    no part of the answer and has no initial values.
    """

    name: str
    evolving: bool
    levels: int = 1
    temporary: bool = False

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        data: dict[str, Any] = {"name": self.name, "evolving": self.evolving, "levels": self.levels}
        return data | ({"temporary": True} if self.temporary else {})


class Assignment(msgspec.Struct, frozen=True):
    """The new value of `field` in every interior cell."""

    field: str
    expression: Expression


class Reduction(msgspec.Struct, frozen=True):
    """A number per step: the "sum", "max" or "min" of an expression over all interior cells."""

    name: str
    kind: str
    expression: Expression


class Stage(msgspec.Struct, frozen=True):
    """Assignments, and reductions, that all read the values from before the stage."""

    assignments: tuple[Assignment, ...]
    reductions: tuple[Reduction, ...] = ()

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """What is evaluated in each interior cell."""
        return tuple(made.expression for made in (*self.assignments, *self.reductions))

    @property
    def updated(self) -> tuple[str, ...]:
        """The fields that it updates."""
        return tuple(made.field for made in self.assignments)


Staging = tuple[tuple[str, ...], ...]
"""The fields that each stage updates, in order."""


class Stencil(msgspec.Struct, frozen=True):
    """An update rule: one step applies the stages in order.

    `parameters` are scalar names, `defaults` the values of those that have one, and of profiles,
    which are known by their use. A field is updated
    by at most one stage. Later stages see what earlier ones wrote; level -1 of a field may not be
    read after the stage that updates it. Temporaries that are `recomputed` are computed again where
    they are read, except near faces; rows may be `folded`: the values are the same, and so is the
    JSON-able form. `stages` may be `staged`, the stages of another stencil in parts.
    `wholes` are the names of what was declared as one, with the fields that are its components,
    where their names do not tell that. Raises DefinitionError when the parts do not fit together.
    """

    name: str
    ndim: int
    fields: tuple[Field, ...]
    parameters: tuple[str, ...]
    stages: tuple[Stage, ...]
    defaults: tuple[tuple[str, float], ...] = ()
    recomputed: tuple[str, ...] = ()
    folded: Folding | None = None
    staged: Staging = ()
    wholes: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __post_init__(self) -> None:
        _check_names(self)
        _check_stages(self)

    def _repr_html_(self) -> str:
        """What a notebook shows: the update rule, how far it reads, what it costs."""
        from outgrid.stencil.formula import shown  # which is written of this

        return shown(self)

    @property
    def evolving(self) -> tuple[Field, ...]:
        """The fields that the stencil updates, temporaries included."""
        return tuple(field for field in self.fields if field.evolving)

    @property
    def lasting(self) -> tuple[Field, ...]:
        """The fields that a step leaves: those that are updated and are no temporaries."""
        return tuple(field for field in self.evolving if not field.temporary)

    @property
    def arrays(self) -> int:
        """Arrays that a step works with: each level of each field."""
        return sum(field.levels for field in self.fields)

    @property
    def recomputed_set(self) -> frozenset[str]:
        """The temporaries that are computed again where they are read."""
        return frozenset(self.recomputed)

    @property
    def coefficients(self) -> tuple[Field, ...]:
        """The fields that the stencil only reads."""
        return tuple(field for field in self.fields if not field.evolving)

    @property
    def assignments(self) -> tuple[Assignment, ...]:
        """The assignments of all stages, in order."""
        return tuple(assignment for stage in self.stages for assignment in stage.assignments)

    @property
    def reductions(self) -> tuple[Reduction, ...]:
        """The reductions of all stages, in order."""
        return tuple(reduction for stage in self.stages for reduction in stage.reductions)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """What all stages evaluate in each interior cell, in order."""
        return tuple(expression for stage in self.stages for expression in stage.expressions)

    @property
    def accesses(self) -> tuple[Access, ...]:
        """Distinct accesses of all expressions, in order of first use."""
        return _accesses(self)

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """Distinct profiles of all expressions, in order of first use."""
        return _profiles(self)

    @property
    def given_profiles(self) -> tuple[Profile, ...]:
        """The profiles that a problem has to give: all but the indices themselves."""
        return tuple(one for one in self.profiles if not ex.is_index(one))

    def writer(self, field: str) -> int | None:
        """The number of the stage that updates `field`; None for a coefficient."""
        for number, stage in enumerate(self.stages):
            if any(assignment.field == field for assignment in stage.assignments):
                return number
        return None

    def version(self, stage: int, access: Access) -> int:
        """What a stage reads: 0 the level that this step makes, -1 that of the step before, ..."""
        writer = self.writer(access.field)
        return access.level - (0 if writer is not None and writer < stage else 1)

    @property
    def radius(self) -> tuple[int, ...]:
        """Per axis the largest distance read, in cells, over all fields and levels."""
        return _radius(self)

    def reach(self, field: str, level: int = 0) -> Reach | None:
        """Per axis the (smallest, largest) offset at which `field` is read at `level`.

        None if it is not read at that level. Raises DefinitionError for an unknown field.
        """
        self.field(field)
        offsets = [
            access.offset
            for access in self.accesses
            if access.field == field and access.level == level
        ]
        if not offsets:
            return None
        return tuple((min(along), max(along)) for along in zip(*offsets, strict=True))

    @property
    def flops(self) -> int:
        """Floating-point operations per cell and step, without what is uniform over the grid.

        What several assignments of a stage have in common is computed once.
        """
        return sum(
            ex.flops(*(assignment.expression for assignment in stage.assignments))
            for stage in self.stages
        )

    def field(self, name: str) -> Field:
        """The field called `name`. Raises DefinitionError with the nearest name."""
        for field in self.fields:
            if field.name == name:
                return field
        known = [field.name for field in self.fields]
        raise DefinitionError(f"stencil {self.name!r} has no field {name!r}{suggest(name, known)}")

    def free(self, name: str) -> str:
        """The name, with "_" behind it as often as the stencil has something that is called so."""
        taken = {one.name for one in (*self.fields, *self.profiles, *self.reductions)}
        while name in taken or name in self.parameters:
            name += "_"
        return name

    def components(self, name: str) -> tuple[str, ...]:
        """The fields that `name` stands for: itself, or its components where it is no field."""
        names = tuple(field.name for field in self.fields)
        if name in names:
            return (name,)
        return dict(self.wholes).get(name) or components_of(name, names)

    def wholes_first(self, given: Iterable[tuple[str, T]]) -> list[tuple[str, T]]:
        """What is given by name, with what names fields last: it holds in place of the rest."""
        names = {field.name for field in self.fields}
        return sorted(given, key=lambda pair: pair[0] in names)

    def naming(self, names: Iterable[str]) -> "Stencil":
        """The stencil where each of some names stands for fields: else for those that begin so.

        That is how stencils are read that were written without their `wholes`.
        """
        unknown = [name for name in names if not self.components(name)]
        begun = {
            name: tuple(field.name for field in self.fields if field.name.startswith(f"{name}_"))
            for name in unknown
        }
        found = tuple((name, parts) for name, parts in begun.items() if parts)
        return msgspec.structs.replace(self, wholes=(*self.wholes, *found)) if found else self

    @property
    def rule(self) -> dict[str, Any]:
        """The JSON-able form without `wholes`, on which no answer depends."""
        return {key: value for key, value in self.to_dict().items() if key != "wholes"}

    @property
    def digest(self) -> str:
        """sha256 in hex of the canonical JSON form: equal for equal rules, on every machine.

        It differs where other temporaries are recomputed or rows folded, since kernels do.
        """
        form = self.rule | ({"recomputed": self.recomputed} if self.recomputed else {})
        if self.folded is not None:
            form |= {"folded": [self.folded.rows, self.folded.vector_bytes]}
        text = json.dumps(form, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form; `from_dict` gives an equal stencil back."""
        wholes = {name: list(parts) for name, parts in self.wholes}
        return ({"wholes": wholes} if wholes else {}) | {
            "name": self.name,
            "ndim": self.ndim,
            "fields": [field.to_dict() for field in self.fields],
            "parameters": list(self.parameters),
            "defaults": [[name, value] for name, value in self.defaults],
            "stages": [
                [
                    {"field": assignment.field, "expression": ex.to_rows(assignment.expression)}
                    for assignment in stage.assignments
                ]
                + [
                    {
                        "reduction": reduction.name,
                        "kind": reduction.kind,
                        "expression": ex.to_rows(reduction.expression),
                    }
                    for reduction in stage.reductions
                ]
                for stage in self.stages
            ],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Stencil":
        """The inverse of `to_dict`. Raises DefinitionError for missing, unknown or wrong parts."""
        known = ("name", "ndim", "fields", "parameters", "defaults", "stages")
        for key in data:
            if key not in (*known, "wholes"):
                raise DefinitionError(f"a stencil has no entry {key!r}{suggest(key, known)}")
        try:
            return cls(
                name=data["name"],
                ndim=data["ndim"],
                fields=tuple(Field(**field) for field in data["fields"]),
                parameters=tuple(data["parameters"]),
                stages=tuple(
                    Stage(
                        tuple(
                            Assignment(row["field"], ex.from_rows(row["expression"]))
                            for row in stage
                            if "field" in row
                        ),
                        tuple(
                            Reduction(
                                row["reduction"], row["kind"], ex.from_rows(row["expression"])
                            )
                            for row in stage
                            if "field" not in row
                        ),
                    )
                    for stage in data["stages"]
                ),
                defaults=tuple((name, float(value)) for name, value in data["defaults"]),
                wholes=tuple((name, tuple(of)) for name, of in data.get("wholes", {}).items()),
            )
        except KeyError as error:
            raise DefinitionError(f"the stencil lacks the entry {error.args[0]!r}") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise DefinitionError(f"the stencil cannot be read: {error}") from error


def _check_names(stencil: Stencil) -> None:
    if stencil.ndim not in (2, 3):
        raise DefinitionError(
            f"stencil {stencil.name!r} has {stencil.ndim} dimensions; 2 or 3 are supported"
        )
    if not stencil.fields:
        raise DefinitionError(f"stencil {stencil.name!r} has 0 fields; it needs at least 1")
    profiles = [profile.name for profile in stencil.profiles]
    names = [stencil.name, *(field.name for field in stencil.fields)]
    names += [*stencil.parameters, *dict.fromkeys(profiles)]
    names += [reduction.name for reduction in stencil.reductions]
    for profile in stencil.profiles:
        if profiles.count(profile.name) > 1 or not 0 <= profile.axis < stencil.ndim:
            raise DefinitionError(
                f"{profile.name!r} is a profile along {profiles.count(profile.name)} axes of "
                f"the {stencil.ndim}-D stencil {stencil.name!r}; a profile lies along one axis"
            )
    regions = {name for name in profiles if name.startswith(ex.WITHIN)}
    for name in names:
        if not (name.isidentifier() or name in regions):
            raise DefinitionError(
                f"names in stencil {stencil.name!r} must be identifiers, not {name!r}"
            )
    for name in dict.fromkeys(names[1:]):
        if names[1:].count(name) > 1:
            raise DefinitionError(
                f"stencil {stencil.name!r} has {names[1:].count(name)} fields, parameters,"
                f" profiles or reductions called {name!r}; names must differ"
            )
    if ex.STEP.name in names[1:]:
        raise DefinitionError(
            f"stencil {stencil.name!r} cannot call a field or parameter {ex.STEP.name!r}, the "
            "number of the step; use another name, or outgrid.step"
        )
    for part in (part for _, parts in stencil.wholes for part in parts):
        stencil.field(part)
    for name, value in stencil.defaults:
        if name not in names:
            raise DefinitionError(
                f"stencil {stencil.name!r} has a default for {name!r}, which is not one "
                f"of its parameters"
                f"{suggest(name, stencil.parameters)}"
            )
        if not math.isfinite(value):
            raise DefinitionError(f"the default of {name} must be finite, not {value}")


def _check_stages(stencil: Stencil) -> None:
    updated: list[str] = []
    previous_read: set[str] = set()
    for stage in stencil.stages:
        if not stage.expressions:
            raise DefinitionError(
                f"stencil {stencil.name!r} has a stage without assignments or reductions"
            )
        for assignment in stage.assignments:
            if ex.is_condition(assignment.expression):
                raise DefinitionError(
                    f"the new value of {assignment.field!r} in stencil {stencil.name!r} must be "
                    "a number, not a condition; use where(condition, 1, 0)"
                )
        for reduction in stage.reductions:
            if reduction.kind not in KINDS:
                raise DefinitionError(
                    f"unknown reduction {reduction.kind!r}{suggest(reduction.kind, KINDS)}"
                )
            if ex.is_condition(reduction.expression):
                raise DefinitionError(
                    f"the {reduction.kind} {reduction.name!r} in stencil {stencil.name!r} needs "
                    "a number, not a condition; use where(condition, 1, 0)"
                )
        for expression in stage.expressions:
            for access in ex.accesses(expression):
                _check_access(stencil, access)
                if stencil.field(access.field).temporary and access.field not in updated:
                    raise DefinitionError(
                        f"stencil {stencil.name!r} reads the temporary {access.field!r} before it"
                        " is made; make it in an earlier stage"
                    )
                if access.level == -1 and stencil.field(access.field).temporary:
                    raise DefinitionError(
                        f"{access.field}.previous: a temporary exists within a step only; make "
                        "it a field to read its previous value"
                    )
                if access.level == -1:
                    previous_read.add(access.field)
                    if access.field in updated:
                        raise DefinitionError(
                            f"stencil {stencil.name!r} reads {access.field}.previous after the"
                            f" stage that updates {access.field!r}; read it there or before"
                        )
            for name in ex.parameters(expression):
                if name not in (*stencil.parameters, ex.STEP.name):
                    raise DefinitionError(
                        f"stencil {stencil.name!r} has no parameter {name!r}"
                        f"{suggest(name, stencil.parameters)}"
                    )
        for assignment in stage.assignments:
            stencil.field(assignment.field)
            if assignment.field in updated:
                raise DefinitionError(
                    f"stencil {stencil.name!r} must update {assignment.field!r} once in a step, "
                    "not twice"
                )
            updated.append(assignment.field)
    if all(stencil.field(name).temporary for name in updated):
        raise DefinitionError(f"stencil {stencil.name!r} updates no field")
    for field in stencil.fields:
        _check_field(stencil, field, field.name in updated, field.name in previous_read)


def _check_access(stencil: Stencil, access: Access) -> None:
    stencil.field(access.field)
    if access.level not in (0, -1):
        raise DefinitionError(
            f"{access.field!r} is read at time level {access.level}; levels 0 (now) and -1"
            " (previous) exist"
        )
    if len(access.offset) != stencil.ndim:
        raise DefinitionError(
            f"{access.field}[{', '.join(map(str, access.offset))}] has {len(access.offset)}"
            f" offsets, the stencil {stencil.name!r} has {stencil.ndim} dimensions"
        )


def _check_field(stencil: Stencil, field: Field, updated: bool, previous_read: bool) -> None:
    if field.evolving != updated:
        state = "updated" if updated else "not updated"
        raise DefinitionError(
            f"field {field.name!r} of stencil {stencil.name!r} is {state} but marked"
            f" evolving={field.evolving}"
        )
    if previous_read and not updated:
        raise DefinitionError(
            f"stencil {stencil.name!r} reads {field.name}.previous, but {field.name!r} is never "
            "updated and has no previous level; use its current value"
        )
    levels = 2 if previous_read else 1
    if field.levels != levels:
        raise DefinitionError(
            f"field {field.name!r} of stencil {stencil.name!r} is read at {levels} time levels but"
            f" marked levels={field.levels}"
        )


@lru_cache(maxsize=64)
def _accesses(stencil: Stencil) -> tuple[Access, ...]:
    read = (access for expression in stencil.expressions for access in ex.accesses(expression))
    return tuple(dict.fromkeys(read))


@lru_cache(maxsize=64)
def _profiles(stencil: Stencil) -> tuple[Profile, ...]:
    return ex.profiles(*stencil.expressions)


@lru_cache(maxsize=64)
def _radius(stencil: Stencil) -> tuple[int, ...]:
    offsets = [access.offset for access in stencil.accesses]
    return tuple(
        max((abs(offset[axis]) for offset in offsets), default=0) for axis in range(stencil.ndim)
    )
