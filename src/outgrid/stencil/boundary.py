"""What lies around the cells that are updated: per face a fixed layer, a mirror, or the other side.

A face is fixed for a field if the grid holds a layer of cells there that never change. Beyond a
face that is not fixed there is nothing: what a stencil reads there is the value of another cell.
Faces that absorb are turned into fixed ones and a part of the stencil before anyone else sees them
(`outgrid.stencil.absorbing`), those beyond which values are given into mirrors and such a part
(`outgrid.stencil.driven`).
"""

import math
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

from outgrid.errors import DefinitionError
from outgrid.stencil.model import Field, Stencil
from outgrid.stencil.series import Series
from outgrid.stencil.symbol import AXES, is_number
from outgrid.units import suggest

__all__ = [
    "ABSORBING",
    "DRIVEN",
    "IMAGES",
    "KINDS",
    "SIDES",
    "STORED",
    "Boundary",
    "Edges",
    "Given",
    "boundary_of",
    "by_field",
    "edges_of",
    "image",
]

FIXED = ("dirichlet", "frozen")
EVEN = {"odd": "neumann", "odd-mirror": "mirror", "zero": "neumann", "empty": "neumann"}
"""What is left of a rule that turns the sign, without that: how coefficients are continued."""
IMAGES = ("neumann", "mirror", *EVEN)
"""Kinds of faces beyond which cells of the inside are read, those next to them."""
ABSORBING = {"sponge": ("value", "width", "strength"), "matched": ("width", "courant", "frequency")}
"""Kinds of faces that swallow waves, and what each may be given."""
DRIVEN = {"given": ("value",), "robin": ("value", "a", "b")}
"""Kinds of faces beyond which cells have values that follow from a number or an expression."""
KINDS = (*FIXED, *IMAGES, "periodic", *ABSORBING, *DRIVEN)
OWN = {"dirichlet": ("value",), **ABSORBING, **DRIVEN}
NUMBERS = ("value", "width", "strength", "courant", "frequency", "a", "b")
Given: TypeAlias = float | str | Series | Callable[..., Any]
"""The value of a face: a number, or for driven faces a formula or a function of place and step, or
files of what it is in each step."""
STORED = "stored"
"""The rule of a face whose cells are there to be read."""
SIDES = ("-", "+")
_ELSEWHERE = {
    "absorbing": "sponge",
    "circular": "periodic",
    "constant": "dirichlet",
    "cyclic": "periodic",
    "edge": "neumann",
    "fixed": "dirichlet",
    "grid-wrap": "periodic",
    "nearest": "neumann",
    "no-flux": "neumann",
    "pml": "matched",
    "reflect": "mirror",
    "symmetric": "neumann",
    "inflow": "given",
    "radiation": "robin",
    "wrap": "periodic",
}
"""What kinds of faces are called by NumPy and others, and what here."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """What surrounds the interior: one kind for all faces, others for some of them.

    "dirichlet" with a `value` gives the layer of every evolving field that value; without one, and
    for "frozen", the layer keeps what `initial` gives there. It never changes. "neumann" mirrors
    cells at the face between the outermost cell and the next (zero gradient), "mirror" at the
    centre of the outermost cell; "odd" and "odd-mirror" do so with the sign turned round, so that
    fields are 0 on the face, or in the outermost cell; with "zero" they are 0 in the first cell
    beyond, and odd about it, with "empty" in all cells beyond. "periodic" goes on at the opposite
    face.

    "sponge" damps waves in the last `width` cells (20) with `strength` (0.3) towards `value` (0),
    which a fixed layer behind them keeps. "matched" fills in the parameters of a stencil with a
    C-PML: `width` cells (10) for waves of `courant` and `frequency`, as in `matched_layer`.

    With "given" all cells beyond have the `value`; with "robin" a u + b du/dn = `value` on the
    face, per cell and outwards. The value is a number, a formula of z, y, x and step, or a function
    of some of these, called with symbols as a stencil is. They are the indices of the cell beyond
    and the number of steps made. Of a Series it is a frame of the shape of the face.

    `faces` are pairs of a name, an axis ("x") or one side of it ("x-", "x+"), and a Boundary;
    `fields` pairs of the name of a field and what holds for it alone, in a problem also of a vector
    or tensor, for its components. The narrower one counts.
    """

    kind: str | None = "dirichlet"
    value: Given | None = None
    faces: tuple[tuple[str, "Boundary"], ...] = ()
    fields: tuple[tuple[str, "Boundary"], ...] = ()
    width: int | None = None
    strength: float | None = None
    courant: float | None = None
    frequency: float | None = None
    a: float | None = None
    b: float | None = None

    def __post_init__(self) -> None:
        given = cast("object", self.kind)
        if given is not None and not isinstance(given, str):
            raise DefinitionError(
                f"the kind of a boundary must be one of {', '.join(KINDS)}, not {given!r}"
                + f', or {{"value": {given!r}}}' * is_number(given)
            )
        if self.kind is not None and self.kind not in KINDS:
            meant = _ELSEWHERE.get(self.kind.lower())
            fix = f"; here it is called {meant!r}" if meant else suggest(self.kind, KINDS)
            raise DefinitionError(f"unknown boundary {self.kind!r}{fix}")
        for name in NUMBERS:
            number = getattr(self, name)
            if number is not None:
                self._check_number(name, number)
        self._check_nesting()

    def changed(self, change: Callable[["Boundary"], "Boundary"]) -> "Boundary":
        """The boundary with what it says of each face, field and all others changed alike."""
        one = change(self)
        return replace(
            one,
            faces=tuple((name, face.changed(change)) for name, face in one.faces),
            fields=tuple((name, own.changed(change)) for name, own in one.fields),
        )

    def _check_nesting(self) -> None:
        """Raise DefinitionError for what is said in the midst of a face or field."""
        for name, face in self.faces:
            if face.faces or face.fields:
                inner = (face.faces or face.fields)[0][0]
                raise DefinitionError(
                    f"the boundary of {name} says something of {inner!r}, and it holds for all "
                    f'fields of this face: write {{"fields": {{FIELD: {{{name!r}: ...}}}}}}'
                )
        for name, own in self.fields:
            if own.fields:
                raise DefinitionError(
                    f"the boundary of {name!r} says something of {own.fields[0][0]!r}: write both "
                    "side by side in fields"
                )

    def _check_number(self, name: str, number: object) -> None:
        taken = OWN.get(self.kind or "", ())
        if name not in taken:
            fix = (
                'use kind "dirichlet", or give the values of a fixed layer by the initial values'
                if name == "value"
                else f"{name} is for " + " or ".join(k for k, names in OWN.items() if name in names)
            )
            subject = f"a {self.kind} boundary" if self.kind else "a boundary without a kind"
            raise DefinitionError(f"{subject} does not use {name} = {number!r}; {fix}")
        if (
            name == "value"
            and self.kind in DRIVEN
            and (isinstance(number, str | Series) or callable(number))
        ):
            return
        if name == "value" and self.kind == "dirichlet" and isinstance(number, str):
            raise DefinitionError(
                f"the value of a fixed layer must be a number, not {number!r}; for a value that "
                'changes use kind "given"'
            )
        if not is_number(number) or not math.isfinite(number):
            raise DefinitionError(f"the boundary {name} must be a finite number, not {number!r}")
        value = float(number)
        if name == "width" and not value.is_integer():
            raise DefinitionError(f"the boundary width must be a number of cells, not {number!r}")
        object.__setattr__(self, name, int(value) if name == "width" else value)

    @property
    def number(self) -> float | None:
        """The value of a face that has the same one everywhere, at all times."""
        return float(self.value) if is_number(self.value) else None

    def face(self, field: str, axis: str, side: str) -> "Boundary":
        """What holds for a field at the face of an axis, `side` being "-" or "+"."""
        for boundary in (dict(self.fields).get(field), self):
            if boundary is None:
                continue
            faces = dict(boundary.faces)
            for name in (axis + side, axis):
                if name in faces:
                    return faces[name]
            if boundary.kind is not None:
                return boundary
        return Boundary()

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form, which `boundary_of` reads."""
        value: Any = self.value
        if isinstance(value, Series):
            value = value.to_dict()
        elif callable(value):
            value = str(value)
        data: dict[str, Any] = {"kind": self.kind, "value": value}
        apart = {name: getattr(self, name) for name in NUMBERS[1:]}
        data |= {name: number for name, number in apart.items() if number is not None}
        data |= {name: face.to_dict() for name, face in self.faces}
        if self.fields:
            data["fields"] = {name: boundary.to_dict() for name, boundary in self.fields}
        return data


def boundary_of(given: object, default: str | None = "dirichlet") -> Boundary:
    """The boundary that a text, a number, a mapping or a Boundary means.

    A mapping has "kind", a name or a number (dirichlet), its numbers ("value", "width", ...),
    entries for faces ("z", "y-", "x+"), each a kind, a number (dirichlet) or a mapping again, and
    "fields" with a mapping by name. Raises DefinitionError.
    """
    if isinstance(given, Boundary):
        return given
    if isinstance(given, str):
        return Boundary(given)
    if is_number(given):
        return Boundary("dirichlet", float(given))
    if not isinstance(given, Mapping):
        raise DefinitionError(
            f"{given!r} is not a boundary; give one of {', '.join(KINDS)}, or a mapping "
            f"by face, such"
            ' as {"x": "periodic"}; a number is a fixed layer of that value'
        )
    entries = cast("Mapping[str, Any]", given)
    names = [axis + side for axis in AXES for side in ("", *SIDES)]
    known = ("kind", *NUMBERS, "fields", *names)
    for key in entries:
        if key not in known:
            raise DefinitionError(f"a boundary has no entry {key!r}{suggest(str(key), known)}")
    apart = entries.get("fields", {})
    if not isinstance(apart, Mapping):
        raise DefinitionError(
            'the fields of a boundary must be a mapping by name, such as {"u": "neumann"}, '
            f"not {apart!r}"
        )
    apart = cast("Mapping[str, Any]", apart)
    value: object = entries.get("value")
    usual = default if value is None else "dirichlet" if is_number(value) else "given"
    kind: object = entries.get("kind", usual)
    if is_number(kind) and value is None:  # as a number alone
        kind, value = "dirichlet", float(kind)
    return Boundary(
        cast("str | None", kind),
        cast("Given | None", value),
        tuple((name, _face_of(name, entries[name])) for name in names if name in entries),
        tuple((name, boundary_of(own, None)) for name, own in sorted(apart.items())),
        **{name: entries.get(name) for name in NUMBERS[1:]},
    )


def _face_of(name: str, given: object) -> Boundary:
    """The boundary of a face, or of both faces of an axis."""
    own = boundary_of(given, None)
    if own.kind is None:
        raise DefinitionError(
            f"the boundary of {name} lacks a kind: {given!r}; give one of {', '.join(KINDS)}"
        )
    return own


def by_field(boundary: Boundary, stencil: Stencil) -> Boundary:
    """The boundary with what holds for vectors and tensors as that of their components.

    Raises DefinitionError for a name that is none of a stencil's.
    """
    found: dict[str, Boundary] = {}
    for name, rules in stencil.wholes_first(boundary.fields):
        for part in stencil.components(name) or (stencil.field(name).name,):
            found[part] = _over(rules, found[part]) if part in found else rules
    return replace(boundary, fields=tuple(sorted(found.items(), key=lambda pair: pair[0])))


def _over(own: Boundary, whole: Boundary) -> Boundary:
    """What holds for a field, with what holds for the whole that it is a part of behind it."""
    if own.kind is not None:
        return own
    narrower = {name for name, _ in own.faces}
    rest = (face for face in whole.faces if narrower.isdisjoint((face[0], face[0][0])))
    return replace(whole, faces=(*own.faces, *rest))


@dataclass(frozen=True, slots=True)
class Edges:
    """What a boundary means for a stencil.

    `layers` are the widths of the fixed layer, low and high, of each axis. `rules` say for each
    field and axis what lies beyond the low and the high end of the interior: STORED cells, or a
    image of the interior by the kind of that name.
    """

    layers: tuple[tuple[int, int], ...]
    rules: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]

    @classmethod
    def fixed(cls, stencil: Stencil) -> "Edges":
        """A fixed layer on all sides."""
        stored = ((STORED, STORED),) * stencil.ndim
        return cls(
            tuple((radius, radius) for radius in stencil.radius),
            tuple((field.name, stored) for field in stencil.fields),
        )

    def rule(self, field: str, axis: int) -> tuple[str, str]:
        """What lies beyond both ends of the interior along an axis, for one field."""
        return dict(self.rules)[field][axis]

    def mirrored(self, field: str, axis: int) -> bool:
        """Whether a field is read as its mirror image beyond a face of the axis."""
        return any(rule in IMAGES for rule in self.rule(field, axis))

    def odd(self, axis: int) -> tuple[bool, bool]:
        """Whether some field turns its sign beyond the low and the high face of the axis."""
        low, high = (any(rules[axis][side] in EVEN for _, rules in self.rules) for side in (0, 1))
        return low, high

    def with_layers_of(self, temporaries: Container[str]) -> "Edges":
        """The same for temporaries that hold 0 in fixed layers: there they are read as they are."""
        rules = tuple(
            (
                name,
                tuple(
                    (
                        STORED if below and low == "empty" else low,
                        STORED if above and high == "empty" else high,
                    )
                    for (low, high), (below, above) in zip(along, self.layers, strict=True)
                )
                if name in temporaries
                else along,
            )
            for name, along in self.rules
        )
        return replace(self, rules=rules)

    def stored(self, axis: int) -> bool:
        """Whether both faces of the axis are fixed for all fields."""
        return all(rules[axis] == (STORED, STORED) for _, rules in self.rules)

    def periodic(self, axis: int) -> bool:
        """Whether the axis goes on at its other end."""
        return any(rules[axis][0] == "periodic" for _, rules in self.rules)


def edges_of(stencil: Stencil, boundary: Boundary) -> Edges:
    """Layers and rules. Raises DefinitionError where a boundary does not fit the stencil."""
    _check_names(stencil, boundary)
    axes = AXES[-stencil.ndim :]
    layers: list[tuple[int, int]] = []
    rules: dict[str, list[tuple[str, str]]] = {field.name: [] for field in stencil.fields}
    for axis, radius in zip(axes, stencil.radius, strict=True):
        kinds = {
            field.name: tuple(_kind(boundary, field, axis, side) for side in SIDES)
            for field in sorted(stencil.evolving, key=lambda field: field.temporary)
        }
        _check_periodic(stencil, axis, kinds)
        low, high = (
            radius if any(of[side] in FIXED for of in kinds.values()) else 0 for side in (0, 1)
        )
        layers.append((low, high))
        common = tuple(EVEN.get(kind, kind) for kind in next(iter(kinds.values())))
        for field in stencil.fields:
            own = kinds.get(field.name, common)
            stored = [width > 0 and not field.evolving for width in (low, high)]
            rules[field.name].append(
                (
                    STORED if stored[0] or own[0] in FIXED or radius == 0 else own[0],
                    STORED if stored[1] or own[1] in FIXED or radius == 0 else own[1],
                )
            )
    return Edges(tuple(layers), tuple((name, tuple(pairs)) for name, pairs in rules.items()))


def _kind(boundary: Boundary, field: Field, axis: str, side: str) -> str:
    """What lies beyond a face for a field that is updated; temporaries have no layer."""
    kind = str(boundary.face(field.name, axis, side).kind)
    return "empty" if field.temporary and kind in FIXED else kind


def _check_names(stencil: Stencil, boundary: Boundary) -> None:
    absent = AXES[: -stencil.ndim]
    for faces in (boundary.faces, *(rules.faces for _, rules in boundary.fields)):
        for name, _ in faces:
            if name[0] in absent:
                raise DefinitionError(
                    f"stencil {stencil.name!r} is {stencil.ndim}-D and has no face {name!r}"
                )
    for name, own in boundary.fields:
        field = stencil.field(name)
        if not field.evolving:
            raise DefinitionError(
                f"{name!r} is never updated, and boundaries are set for fields that are "
                "updated; coefficients follow them"
            )
        kinds = {own.kind, *(face.kind for _, face in own.faces)}
        if field.temporary and not kinds <= {None, *IMAGES, "periodic"}:
            raise DefinitionError(
                f"{name!r} is a temporary without a boundary layer; give it one of "
                f"{', '.join(IMAGES)}"
            )


def _check_periodic(stencil: Stencil, axis: str, kinds: dict[str, tuple[str, ...]]) -> None:
    periodic = {kind == "periodic" for of in kinds.values() for kind in of}
    if len(periodic) > 1:
        named = ", ".join(f"{name}: {low} and {high}" for name, (low, high) in kinds.items())
        raise DefinitionError(
            f"stencil {stencil.name!r} must be periodic along {axis} at both faces and for all "
            f"evolving fields, not in part ({named})"
        )


def image(index: int, inside: range, rules: tuple[str, str]) -> tuple[int, int]:
    """Along an axis: where the value is that is read at `index`, and by what it is multiplied.

    `inside` are the cells that are updated, `rules` what lies beyond both ends of them.
    """
    if index in inside:
        return index, 1
    low = index < inside.start
    rule = rules[0] if low else rules[1]
    if rule == STORED:
        return index, 1
    if rule == "periodic":
        return index + len(inside) if low else index - len(inside), 1
    edge = inside.start if low else inside.stop - 1
    # The mirror is in the outermost cell, beside it, or in the next.
    apart = 0 if rule in ("mirror", "odd-mirror") else 2 if rule == "zero" else 1
    place = 2 * edge - apart - index if low else 2 * edge + apart - index
    sign = -1 if rule in EVEN else 1
    if rule == "empty" or (rule == "zero" and index in (inside.start - 1, inside.stop)):
        sign = 0
    return place if place in inside else edge, sign
