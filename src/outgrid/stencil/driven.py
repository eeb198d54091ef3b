"""Faces beyond which values are given, or follow from the cells inside by Robin's condition.

Both are affine in the mirror image of a cell: F * image + C * value, with F and C that depend on
how far beyond the face a cell is read. So the face becomes one of zero gradient, and what is read
across it is multiplied by a profile, 1 inside, and added to by another, 0 inside. Nothing beyond
this module knows of it: it holds in every scheme like any other expression.
"""

import ast
import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from outgrid.errors import DefinitionError, meaning
from outgrid.stencil import expression as ex
from outgrid.stencil import symbol
from outgrid.stencil.boundary import DRIVEN, SIDES, Boundary, edges_of
from outgrid.stencil.expression import (
    INDEX,
    STEP,
    Access,
    Constant,
    Expression,
    Operation,
    Profile,
    operation,
)
from outgrid.stencil.initial import InitialExpression
from outgrid.stencil.model import Assignment, Field, Reduction, Stencil
from outgrid.stencil.region import numbered
from outgrid.stencil.series import Series
from outgrid.stencil.symbol import AXES, Condition, Symbol, as_expression
from outgrid.syntax import expression_tree

__all__ = ["driven"]


def driven(
    stencil: Stencil, boundary: Boundary, shape: tuple[int, ...], parameters: Mapping[str, Any]
) -> tuple[Stencil, Boundary, Mapping[str, Any], Mapping[str, Series]]:
    """The same problem without such faces: (stencil, boundary, parameters, coefficients).

    The coefficients are those that hold what a face reads from files. Raises DefinitionError.
    """
    faces = [boundary, *(rules for _, rules in boundary.fields)]
    faces += [face for rules in faces for _, face in rules.faces]
    if not any(face.kind in DRIVEN for face in faces):
        return stencil, boundary, parameters, {}
    behind = boundary.changed(_behind)
    layers = edges_of(stencil, behind).layers
    inside = [range(low, extent - high) for (low, high), extent in zip(layers, shape, strict=True)]
    made = _Driven(stencil, boundary, tuple(inside), shape)
    applied = made.applied()
    needed = {profile.name for profile in applied.profiles}
    profiles = {name: made.profiles[name] for name in made.profiles if name in needed}
    return applied, behind, {**parameters, **profiles}, made.series


def _behind(face: Boundary) -> Boundary:
    """A mirror in place of a driven face."""
    if face.kind not in DRIVEN:
        return face
    return dataclasses.replace(face, kind="neumann", value=None, a=None, b=None)


class _Driven(msgspec.Struct):
    """The driven faces of a problem; `profiles` are the values that they need so far."""

    stencil: Stencil
    boundary: Boundary
    inside: tuple[range, ...]
    shape: tuple[int, ...]
    profiles: dict[str, NDArray[np.float64]] = msgspec.field(
        default_factory=dict[str, NDArray[np.float64]]
    )
    names: dict[tuple[int, bytes], str] = msgspec.field(
        default_factory=dict[tuple[int, bytes], str]
    )
    series: dict[str, Series] = msgspec.field(default_factory=dict[str, Series])

    def applied(self) -> Stencil:
        """The stencil with all that is read across driven faces as it is there."""
        stages = tuple(
            replace(
                stage,
                assignments=tuple(
                    Assignment(made.field, self._read(number, made.expression))
                    for made in stage.assignments
                ),
                reductions=tuple(
                    Reduction(made.name, made.kind, self._read(number, made.expression))
                    for made in stage.reductions
                ),
            )
            for number, stage in enumerate(self.stencil.stages)
        )
        coefficients = (Field(name, evolving=False) for name in self.series)
        return replace(self.stencil, stages=stages, fields=(*self.stencil.fields, *coefficients))

    def _read(self, stage: int, expression: Expression) -> Expression:
        """An expression of a stage."""
        across = {access: self._across(stage, access) for access in ex.accesses(expression)}
        return ex.substitute(expression, {key: value for key, value in across.items() if value})

    def _across(self, stage: int, access: Access) -> Expression | None:
        """What an access reads, beyond driven faces too; None where it goes over none."""
        value: Expression = access
        if not self.stencil.field(access.field).evolving:
            return None
        for axis, offset in enumerate(access.offset):
            side = SIDES[offset > 0]
            face = self.boundary.face(access.field, AXES[axis - self.stencil.ndim], side)
            if offset and face.kind in DRIVEN:
                value = self._beyond(stage, access, axis, face, value)
        return None if value is access else value

    def _beyond(
        self, stage: int, access: Access, axis: int, face: Boundary, value: Expression
    ) -> Expression:
        """The value of an access, with what a face has for cells that lie beyond it."""
        offset, inside = access.offset[axis], self.inside[axis]
        letter = AXES[axis - self.stencil.ndim]
        place = np.arange(numbered(letter, self.shape[axis])) + offset
        apart = inside.start - 1 - place if offset < 0 else place - inside.stop
        factor, share = np.ones(len(place)), np.zeros(len(place))
        for k in range(abs(offset)):
            factor[apart == k], share[apart == k] = _weights(face, k)
        value = operation("mul", value, self._profile(axis, factor))
        own = self.stencil.field(access.field)
        if own.temporary and access.field not in dict(self.boundary.fields):
            return value  # as the change of a field has it, whose value at the face is given
        later = 0 if own.temporary else self.stencil.version(stage, access) + 1
        if isinstance(face.value, Series):
            read = self._read_from(face.value.after(later), access.offset, axis)
            return operation("add", value, self._beyond_only(self._profile(axis, share), read))
        given = self._given(face.value)
        # Version -1 is what the step before has left: the number of steps made by then is `step`.
        if later:
            given = ex.substitute(given, {STEP: operation("add", STEP, Constant(float(later)))})
        given = self._folded(ex.shifted(given, access.offset), axis, access.offset)
        if isinstance(given, Constant):
            share = share * given.value
            return operation("add", value, self._profile(axis, share)) if share.any() else value
        weight = self._profile(axis, share)
        if any(isinstance(node, Profile) and ex.is_index(node) for node in ex.nodes(given)):
            return operation("add", value, self._beyond_only(weight, given))
        return operation("add", value, operation("mul", weight, given))

    @staticmethod
    def _beyond_only(weight: Profile, given: Expression) -> Expression:
        """What is added beyond a face. Inside, where it counts for nothing, it may be no number."""
        beyond = operation("ne", weight, Constant(0.0))
        return operation("where", beyond, operation("mul", weight, given), Constant(0.0))

    def _read_from(self, series: Series, offset: tuple[int, ...], across: int) -> Access:
        """What the frame of a step holds for the cell beyond; it is a coefficient's value."""
        along = AXES[across - self.stencil.ndim]
        if series.along not in (None, along):
            raise DefinitionError(
                f"{series} is the value of a face across {along} and lacks the axis "
                f"{series.along}; leave along out"
            )
        frames = dataclasses.replace(series, along=along)
        name = next((name for name, one in self.series.items() if one == frames), None)
        if name is None:
            name = self.stencil.free(f"face_{along}_{len(self.series) + 1}")
            self.series[name] = frames
        return Access(name, 0, tuple(0 if n == across else o for n, o in enumerate(offset)))

    def _given(self, value: float | str | Callable[..., Any] | None) -> Expression:
        """The value of a face as an expression of the indices of the cell beyond, and the step."""
        axes = AXES[-self.stencil.ndim :]
        variables: dict[str, Any] = {
            axis: Symbol(Profile(INDEX + axis, number)) for number, axis in enumerate(axes)
        }
        variables["step"] = symbol.step
        if isinstance(value, str):
            numbers = {f"n{axis}": float(n) for axis, n in zip(axes, self.shape, strict=True)}
            with meaning("the value of a boundary"):
                text = InitialExpression(value).text
                tree = expression_tree(text)
                return as_expression(_of(tree, variables | numbers | {"pi": math.pi}, text))
        if callable(value):
            with meaning("the value of a boundary"):
                wanted = inspect.signature(value).parameters
                for name in wanted:
                    if name not in variables:
                        raise DefinitionError(
                            f"a function must depend on {', '.join(variables)}, not on {name}"
                        )
                return as_expression(value(**{name: variables[name] for name in wanted}))
        return Constant(value or 0.0)

    def _folded(self, given: Expression, across: int, offset: tuple[int, ...]) -> Expression:
        """The value with what depends on one index alone as a profile of its numbers.

        Indices are taken within the grid, and along the axis ``across`` the face beyond it.
        """
        along: dict[Expression, frozenset[int | None]] = {}
        for node in ex.nodes(given):
            own: frozenset[int | None] = frozenset()
            if isinstance(node, Profile):
                own = frozenset({node.axis})
            elif not isinstance(node, Constant | Operation):
                own = frozenset({None})
            parts = node.operands if isinstance(node, Operation) else ()
            along[node] = own.union(*(along[part] for part in parts))
        profiles: dict[Expression, Expression] = {}
        for node, depends in along.items():
            axis = next(iter(depends), None)
            if len(depends) == 1 and axis is not None and not ex.is_condition(node):
                profiles[node] = self._numbers(node, axis, axis == across, offset[axis])
        return ex.substitute(given, profiles)

    def _numbers(self, node: Expression, axis: int, across: bool, offset: int) -> Expression:
        inside, extent = self.inside[axis], self.shape[axis]
        place = np.arange(numbered(AXES[axis - self.stencil.ndim], extent)) + offset
        if not across:
            place = np.clip(place, 0, extent - 1)
        elif offset < 0:
            place = np.minimum(place, inside.start - 1)
        else:
            place = np.maximum(place, inside.stop)
        index = (place - offset).astype(np.float64)

        def leaf(part: ex.Leaf) -> Any:
            return index if isinstance(part, Profile) else cast("Constant", part).value

        with np.errstate(all="ignore"):
            values = np.broadcast_to(ex.evaluate(node, leaf), index.shape)
        return self._profile(axis, values.astype(np.float64))

    def _profile(self, axis: int, values: NDArray[np.float64]) -> Profile:
        """A profile of these numbers."""
        key = axis, values.tobytes()
        if key not in self.names:
            name = f"beyond_{AXES[axis - self.stencil.ndim]}_{len(self.names) + 1}"
            self.names[key] = self.stencil.free(name)
            self.profiles[self.names[key]] = values
        return Profile(self.names[key], axis)


def _weights(face: Boundary, k: int) -> tuple[float, float]:
    """By what the image of a cell, and the value of a face, is multiplied k cells beyond it.

    a u + b du/dn = value, where u on the face is the mean of the cell and its image, 2k + 1 cells
    apart, and du/dn their difference over that.
    """
    if face.kind == "given":
        return 0.0, 1.0
    a, b = face.a or 0.0, (face.b or 0.0) / (2 * k + 1)
    if b + a / 2 == 0:
        raise DefinitionError(
            f"a robin boundary of a = {a:g} and b = {face.b or 0.0:g} does not define the cell "
            "beyond it; a and b must not both be 0, nor cancel"
        )
    return (b - a / 2) / (b + a / 2), 1 / (b + a / 2)


_OPERATORS: dict[type[ast.operator] | type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
}
_NAMED = {"abs": "absolute", "round": "round_whole"}


def _of(node: ast.expr, variables: Mapping[str, Any], text: str) -> Any:
    """What a formula means of symbols."""
    match node:
        case ast.Constant(value):
            return Symbol(Constant(float(cast("float", value))))
        case ast.Name(name):
            if name not in variables:
                raise DefinitionError(
                    f"the formula {text!r} uses {name}; known are {', '.join(variables)}"
                )
            value = variables[name]
            return value if isinstance(value, Symbol) else Symbol(Constant(value))
        case ast.BinOp(left, named, right):
            power = isinstance(named, ast.Pow) and isinstance(right, ast.Constant)
            second = cast("Any", right).value if power else _of(right, variables, text)
            return _OPERATORS[type(named)](_of(left, variables, text), second)
        case ast.UnaryOp(named, operand):
            value = _of(operand, variables, text)
            return -value if isinstance(named, ast.USub) else value
        case ast.Compare(left, [named], [right]):
            sides = _of(left, variables, text), _of(right, variables, text)
            return symbol.where(_OPERATORS[type(named)](*sides), 1.0, 0.0)
        case ast.Call(ast.Name(name), arguments):
            if name == "random":
                raise DefinitionError(
                    f"the formula {text!r} uses random, and the cells beyond a face have no random "
                    "numbers; give the values as files, outgrid.Series"
                )
            values = [_of(argument, variables, text) for argument in arguments]
            if name == "where" and not isinstance(values[0], Condition):
                values[0] = values[0] != 0.0
            return getattr(symbol, _NAMED.get(name, name))(*values)
        case _:
            raise AssertionError(f"unchecked {ast.dump(node)}")
