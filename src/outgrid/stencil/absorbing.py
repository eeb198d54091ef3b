"""Faces that absorb: what they add to a stencil, and the fixed faces that are left behind them.

A sponge multiplies the new value of a field by factors below 1 in the last cells before a face, and
the previous time level, where one is read, once more: so both levels are damped alike. A matched
face is known to the stencil already, by parameters that are profiles; they get their values here.
Nothing beyond this module knows of either, so they hold in every scheme like any other expression.
"""

import dataclasses
from collections.abc import Container, Mapping
from functools import reduce
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from outgrid.errors import DefinitionError
from outgrid.stencil import expression as ex
from outgrid.stencil.absorb import MATCHED_CELLS, SPONGE_CELLS, matched_layer, sponge
from outgrid.stencil.boundary import ABSORBING, SIDES, Boundary
from outgrid.stencil.expression import Constant, Expression, Profile, operation
from outgrid.stencil.model import Assignment, Stencil
from outgrid.stencil.region import Box, numbered
from outgrid.stencil.symbol import AXES

__all__ = ["absorbing", "memories"]

Pair = tuple[Boundary | None, Boundary | None]
"""The sponges at the low and the high face of an axis."""


def absorbing(
    stencil: Stencil, boundary: Boundary, shape: tuple[int, ...], parameters: Mapping[str, Any]
) -> tuple[Stencil, Boundary, Mapping[str, Any]]:
    """The same problem without faces that absorb: (stencil, boundary, parameters).

    A sponge leaves a fixed face of its value behind, a matched layer one that keeps its initial
    values. Raises DefinitionError.
    """
    kinds = {
        boundary.face(evolving.name, axis, side).kind
        for evolving in stencil.evolving
        for axis in AXES[-stencil.ndim :]
        for side in SIDES
    }
    given = dict(parameters)
    if "matched" in kinds:
        given |= _matched(stencil, boundary, shape, given)
    if "sponge" in kinds:
        sponges = _Sponges(stencil, boundary, shape)
        stencil = sponges.applied()
        given |= sponges.factors
    return stencil, boundary.changed(_behind), given


def memories(
    stencil: Stencil, boundary: Boundary, shape: tuple[int, ...], parameters: Mapping[str, Any]
) -> dict[str, list[Box]]:
    """Where the fields exist that matched faces need: in the cells of their layers alone.

    Each term of what such a field becomes has a factor that is 0 outside of the layers. The
    ``parameters`` are those that `absorbing` gave.
    """
    layers: dict[str, NDArray[np.bool_]] = {}
    for axis in AXES[-stencil.ndim :]:
        if any(_common(stencil, boundary, axis, side).kind == "matched" for side in SIDES):
            names = [f"{kind}{half}_{axis}" for half in ("", "_half") for kind in ("decay", "gain")]
            arrays = {name: parameters.get(name) for name in names}
            layers |= {n: a != 0 for n, a in arrays.items() if isinstance(a, np.ndarray)}
    found: dict[str, list[Box]] = {}
    for made in stencil.assignments:
        if stencil.field(made.field).levels > 1:
            continue
        profiles = _factors(made.expression, layers)
        if profiles and len({profile.axis for profile in profiles}) == 1:
            axis = profiles[0].axis
            inside = np.any([layers[profile.name] for profile in profiles], axis=0)
            ends = np.flatnonzero(np.diff(inside, prepend=False, append=False)).reshape(-1, 2)
            letter = AXES[axis - stencil.ndim]
            found[made.field] = [Box(**{letter: (int(a), int(b))}) for a, b in ends]
    return found


def _factors(value: Expression, known: Container[str]) -> list[Profile]:
    """A profile of those that are ``known`` for each term of a sum; none where a term has none."""
    match value:
        case Profile(name) if name in known:
            return [value]
        case ex.Operation("add" | "sub", (first, second)):
            both = _factors(first, known), _factors(second, known)
            return [*both[0], *both[1]] if all(both) else []
        case ex.Operation("mul", (first, second)):
            return _factors(first, known) or _factors(second, known)
        case ex.Operation("neg", (operand,)):
            return _factors(operand, known)
        case _:
            return []


def _behind(face: Boundary) -> Boundary:
    """What is behind the layer of a face that absorbs."""
    if face.kind not in ABSORBING:
        return face
    value = (face.number or 0.0) if face.kind == "sponge" else None
    numbers = dict.fromkeys(("width", "strength", "courant", "frequency"))
    return dataclasses.replace(face, kind="dirichlet", value=value, **numbers)


class _Sponges(msgspec.Struct):
    """The sponges of a problem; `factors` are the values of the profiles that they need so far."""

    stencil: Stencil
    boundary: Boundary
    shape: tuple[int, ...]
    factors: dict[str, NDArray[np.float64]] = msgspec.field(
        default_factory=dict[str, NDArray[np.float64]]
    )
    names: dict[tuple[int, Pair, int], str] = msgspec.field(
        default_factory=dict[tuple[int, Pair, int], str]
    )

    def applied(self) -> Stencil:
        """The stencil with all new values, and what it reads of previous ones, damped."""
        stages = tuple(
            replace(stage, assignments=tuple(map(self._damped, stage.assignments)))
            for stage in self.stencil.stages
        )
        return replace(self.stencil, stages=stages)

    def _damped(self, assignment: Assignment) -> Assignment:
        centre = (0,) * self.stencil.ndim
        previous: dict[Expression, Expression] = {
            access: self._towards(access.field, access, access.offset)
            for access in ex.accesses(assignment.expression)
            if access.level == -1
        }
        new = ex.substitute(assignment.expression, previous)
        if not self.stencil.field(assignment.field).temporary:
            new = self._towards(assignment.field, new, centre)
        return Assignment(assignment.field, new)

    def _towards(self, name: str, value: Expression, offset: tuple[int, ...]) -> Expression:
        """The value of a field at an offset, damped towards the rest of its sponges."""
        factors = [
            Profile(self._factor(axis, self._pair(name, axis), offset[axis]), axis)
            for axis in range(self.stencil.ndim)
            if any(self._pair(name, axis))
        ]
        if not factors:
            return value
        factor = reduce(
            lambda product, next_factor: operation("mul", product, next_factor), factors
        )
        rest = self._rest(name)
        if rest == 0:
            return operation("mul", value, factor)
        departed = operation("sub", value, Constant(rest))
        return operation("add", Constant(rest), operation("mul", departed, factor))

    def _pair(self, name: str, axis: int) -> Pair:
        """The sponges of a field along an axis."""
        axes = AXES[-self.stencil.ndim :]
        low, high = (self.boundary.face(name, axes[axis], side) for side in SIDES)
        return low if low.kind == "sponge" else None, high if high.kind == "sponge" else None

    def _rest(self, name: str) -> float:
        """What a field is damped towards."""
        faces = (face for axis in range(self.stencil.ndim) for face in self._pair(name, axis))
        rests = sorted({face.number or 0.0 for face in faces if face is not None})
        if len(rests) > 1:
            raise DefinitionError(
                f"the sponges of {name!r} must damp it towards one value, not "
                f"{' and '.join(map(str, rests))}"
            )
        return rests[0]

    def _factor(self, axis: int, pair: Pair, offset: int) -> str:
        """The name of the profile with the factors of two sponges, `offset` cells on."""
        key = (axis, pair, offset)
        if key not in self.names:
            letter, extent = AXES[axis - self.stencil.ndim], self.shape[axis]
            layers = [self.stencil.radius[axis] if face is not None else 0 for face in pair]
            others = sum(1 for other, _, _ in self.names if other == axis)
            name = f"sponge_{letter}" + (f"_{others + 1}" if others else "")
            self.names[key] = self.stencil.free(name)
            inside = extent - sum(layers)
            _check_room(letter, pair, inside, SPONGE_CELLS)
            numbered(letter, extent)
            factor = np.ones(inside)
            for side, face in zip(SIDES, pair, strict=True):
                if face is not None:
                    factor *= sponge(inside, sides=side, **_given(face, "width", "strength"))
            # A layer has the value that any factor leaves as it is.
            at = np.clip(np.arange(extent) + offset - layers[0], 0, inside - 1)
            self.factors[self.names[key]] = factor[at]
        return self.names[key]


def _given(face: Boundary, *names: str) -> dict[str, Any]:
    """Those of its numbers that a face was given."""
    numbers = {name: getattr(face, name) for name in names}
    return {name: number for name, number in numbers.items() if number is not None}


def _matched(
    stencil: Stencil, boundary: Boundary, shape: tuple[int, ...], given: Mapping[str, Any]
) -> dict[str, NDArray[np.float64]]:
    """Decay and gain of the matched faces, and of the others none, for a stencil that takes them.

    The outermost cell of a layer is fixed: the waves end there. Fixed cells behind it have its
    values. What is `given` is left as it is.
    """
    known = {profile.name for profile in stencil.profiles}
    profiles: dict[str, NDArray[np.float64]] = {}
    for axis, extent, radius in zip(AXES[-stencil.ndim :], shape, stencil.radius, strict=True):
        low, high = (_common(stencil, boundary, axis, side) for side in SIDES)
        pair = low if low.kind == "matched" else None, high if high.kind == "matched" else None
        names = [f"{kind}{half}_{axis}" for half in ("", "_half") for kind in ("decay", "gain")]
        if any(pair) and not known.issuperset(names):
            raise DefinitionError(
                f"stencil {stencil.name!r} has no matched layers along {axis}: they need the"
                f' profiles {", ".join(names)}; kind "sponge" works with any stencil'
            )
        behind = [max(radius - 1, 0) if face is not None else 0 for face in pair]
        inside = numbered(axis, extent) - sum(behind)
        _check_room(axis, pair, inside - 1, MATCHED_CELLS)
        layers = [np.zeros(inside) for _ in names]
        for side, face in zip(SIDES, pair, strict=True):
            if face is None:
                continue
            if face.courant is None or face.frequency is None:
                raise DefinitionError(
                    f"the matched boundary {axis + side} needs courant, the largest velocity * dt"
                    " / h, and frequency, in cycles per step"
                )
            numbers = _given(face, "width", "courant", "frequency")
            for half in (0, 1):
                layer = matched_layer(inside, half=bool(half), sides=side, **numbers)
                for number, values in enumerate(layer, start=2 * half):
                    layers[number] += values
        profiles |= {
            name: np.pad(values, behind, mode="edge")
            for name, values in zip(names, layers, strict=True)
        }
    return {name: values for name, values in profiles.items() if name in known - given.keys()}


def _common(stencil: Stencil, boundary: Boundary, axis: str, side: str) -> Boundary:
    """What holds at a face that is matched: the same for all fields."""
    faces = {lasting.name: boundary.face(lasting.name, axis, side) for lasting in stencil.lasting}
    matched = [face for face in faces.values() if face.kind == "matched"]
    if matched and len(set(faces.values())) > 1:
        named = ", ".join(f"{name}: {face.kind}" for name, face in faces.items())
        raise DefinitionError(
            f"the face {axis + side} must be matched with the same numbers for all fields that "
            f"are updated, not in part ({named})"
        )
    return next(iter(faces.values()))


def _check_room(axis: str, pair: Pair, room: int, width: int) -> None:
    """Raise DefinitionError where the layers at both ends of an axis overlap."""
    faces = [face for face in pair if face is not None]
    widths = [width if face.width is None else face.width for face in faces]
    if sum(widths) > room:
        raise DefinitionError(
            f"absorbing layers of {' and '.join(map(str, widths))} cells do not fit the {room} "
            f"cells along {axis} that are free for them"
        )
