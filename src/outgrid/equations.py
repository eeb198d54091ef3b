"""Continuous equations, as SymPy writes them, as stencils: finite differences in space and time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from keyword import iskeyword
from typing import Any, TypeAlias

import msgspec

from outgrid.definition import Definition
from outgrid.errors import DefinitionError, UsageError
from outgrid.stencil import symbol as functions
from outgrid.stencil.difference import derivative
from outgrid.stencil.symbol import AXES, Symbol
from outgrid.stencil.temporary import index
from outgrid.units import suggest

__all__ = ["from_sympy"]

Value: TypeAlias = Any
"""A symbol of a stencil, or a number; SymPy's own expressions are of type Any here."""

FUNCTIONS: Mapping[str, Callable[..., Value]] = {
    "exp": functions.exp,
    "log": functions.log,
    "sin": functions.sin,
    "cos": functions.cos,
    "tan": functions.tan,
    "atan": functions.arctan,
    "atan2": functions.arctan2,
    "sinh": functions.sinh,
    "cosh": functions.cosh,
    "tanh": functions.tanh,
    "Abs": functions.absolute,
    "sign": functions.sign,
    "floor": functions.floor,
    "ceiling": functions.ceil,
    "Max": functions.maximum,
    "Min": functions.minimum,
}
"""SymPy's functions by name, as a stencil has them."""

COMPARED = {"StrictLessThan": "__lt__", "LessThan": "__le__", "Equality": "__eq__"} | {
    "StrictGreaterThan": "__gt__",
    "GreaterThan": "__ge__",
    "Unequality": "__ne__",
}

TIME_STEP = "dt"


def from_sympy(
    *equations: Any,
    name: str = "equation",
    accuracy: int = 2,
    spacing: float | Sequence[float] = 1.0,
) -> Definition:
    """A stencil of equations of SymPy, each with a time derivative of a function of t and x, y, z.

    `u(t, y, x)` is a field that is updated, a function of coordinates alone a coefficient; other
    symbols are parameters, and so is the time step, `dt`. Derivatives in space are centered, of an
    even `accuracy`, on cells that are `spacing` apart: a number, or one per axis, the slowest
    first. A first derivative in time is Euler's forward difference. Where the second is there, both
    are centered: (new - 2 u + old) / dt^2 and (new - old) / (2 dt). Each equation is solved for
    the new value. t is `dt` times the number of the step, x the index of the cell times the
    spacing.

    `pip install 'outgrid[sympy]'` brings SymPy. Raises UsageError where it is not there, and
    DefinitionError for what has no meaning as a stencil.
    """
    try:
        import sympy  # type: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise UsageError(
            "equations are read by SymPy; install it with: pip install 'outgrid[sympy]'"
        ) from error
    if not equations:
        raise DefinitionError("from_sympy needs an equation, such as Eq(u.diff(t), u.diff(x, 2))")
    return _Equations(sympy, equations, accuracy, spacing).stencil(name)


class _Update(msgspec.Struct, frozen=True):
    """The new value of a field, of symbols for its own levels."""

    field: str
    value: Any


class _Equations:
    def __init__(
        self, sympy: Any, given: Sequence[Any], accuracy: int, spacing: float | Sequence[float]
    ) -> None:
        self.sympy = sympy
        self.accuracy = accuracy
        self.given = [one if hasattr(one, "lhs") else sympy.Eq(one, 0) for one in given]
        unknowns = {f for one in self.given for f in one.atoms(sympy.core.function.AppliedUndef)}
        self.unknowns = {function.func.__name__: function for function in unknowns}
        if len(unknowns) != len(self.unknowns):
            raise DefinitionError("a function has different arguments in different places")
        coordinates = {str(part) for function in unknowns for part in function.args} - {"t"}
        if unknown := coordinates - {*AXES}:
            raise DefinitionError(
                f"fields depend on t, {', '.join(AXES)}, not on {', '.join(sorted(unknown))}"
            )
        self.axes = AXES[-max((3 - AXES.index(axis) for axis in coordinates), default=0) :]
        widths = [spacing] * len(self.axes) if not isinstance(spacing, Sequence) else [*spacing]
        if len(widths) != len(self.axes):
            raise DefinitionError(
                f"{len(widths)} spacings for {len(self.axes)} axes ({', '.join(self.axes)})"
            )
        self.widths = dict(zip(self.axes, map(float, widths), strict=True))
        self.time, self.new, self.old = (sympy.Dummy(name) for name in ("dt", "new", "old"))
        self.updates = [self._update(one) for one in self.given]

    def stencil(self, name: str) -> Definition:
        evolving = [update.field for update in self.updates]
        if len({*evolving}) < len(evolving):
            raise DefinitionError(f"{evolving[0]} has {evolving.count(evolving[0])} equations")
        for field, function in self.unknowns.items():
            if "t" in map(str, function.args) and field not in evolving:
                raise DefinitionError(f"{function} depends on t, but has no equation")
        fields = [*evolving, *sorted({*self.unknowns} - {*evolving})]
        free = {symbol for update in self.updates for symbol in update.value.free_symbols}
        parameters = sorted({symbol.name for symbol in free - {self.old}} - {"t", *AXES})
        for one in (*fields, *parameters):
            if not one.isidentifier() or iskeyword(one):
                raise DefinitionError(f"{one!r} cannot name a field or parameter; use another name")

        def rule(*given: Symbol, **numbers: Symbol) -> dict[str, Symbol]:
            known = dict(zip(fields, given, strict=True))
            return {u.field: self._value(u.value, u.field, known, numbers) for u in self.updates}

        kinds = inspect.Parameter
        rule.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [kinds(field, kinds.POSITIONAL_OR_KEYWORD) for field in fields]
            + [kinds(number, kinds.KEYWORD_ONLY) for number in parameters]
        )
        made = Definition(rule, name, len(self.axes))
        try:
            made.trace()
        except DefinitionError as error:  # which points at a line of this module
            raise DefinitionError(str(error.__cause__ or error)) from None
        return made

    def _update(self, equation: Any) -> _Update:
        """An equation with differences in time, solved for the new value."""
        sympy = self.sympy
        t = next((symbol for symbol in equation.free_symbols if symbol.name == "t"), None)
        rates = [
            rate
            for rate in equation.atoms(sympy.Derivative)
            if isinstance(rate.expr, sympy.core.function.AppliedUndef)
            and [str(variable) for variable, _ in rate.variable_count] == ["t"]
        ]
        fields = {rate.expr for rate in rates}
        orders = {int(rate.variable_count[0][1]) for rate in rates}
        if len(fields) != 1 or not orders <= {1, 2}:
            raise DefinitionError(
                f"{equation} has to have a first or second time derivative, of one function"
            )
        (field,) = fields
        if 2 in orders:
            first = (self.new - self.old) / (2 * self.time)
            known = {
                sympy.Derivative(field, (t, 2)): (self.new - 2 * field + self.old) / self.time**2,
                sympy.Derivative(field, t): first,
            }
        else:
            known = {sympy.Derivative(field, t): (self.new - field) / self.time}
        discrete = (equation.lhs - equation.rhs).xreplace(known)
        slope = sympy.simplify(discrete.diff(self.new))
        if slope == 0 or self.new in slope.free_symbols:
            raise DefinitionError(f"{equation} is not linear in the time derivative of {field}")
        value = sympy.expand_mul(-discrete.xreplace({self.new: sympy.Integer(0)}) / slope)
        return _Update(field.func.__name__, value.xreplace({self.time: sympy.Symbol(TIME_STEP)}))

    def _value(
        self, value: Any, own: str, known: Mapping[str, Symbol], numbers: Mapping[str, Symbol]
    ) -> Value:
        """An expression of SymPy as one of a stencil, in SymPy's own order."""
        sympy = self.sympy

        def of(part: Any) -> Value:
            return self._value(part, own, known, numbers)

        if value.is_Number or value.is_NumberSymbol:
            return float(value)
        if value == self.old:
            return known[own].previous  # type: ignore[attr-defined]
        if isinstance(value, sympy.Symbol):
            return self._symbol(value.name, numbers)
        if isinstance(value, sympy.core.function.AppliedUndef):
            return known[value.func.__name__]
        if isinstance(value, sympy.Derivative):
            return self._derivative(of(value.expr), value)
        if isinstance(value, sympy.Add | sympy.Mul):
            first, *rest = (of(part) for part in value.as_ordered_terms()) if value.is_Add else (
                of(part) for part in value.as_ordered_factors()
            )  # fmt: skip
            for part in rest:
                first = first + part if value.is_Add else first * part
            return first
        if isinstance(value, sympy.Pow):
            base, exponent = of(value.base), of(value.exp)
            return base**exponent
        if isinstance(value, sympy.Piecewise):
            return self._chosen(value, of)
        function = FUNCTIONS.get(type(value).__name__)
        if function is None:
            raise DefinitionError(
                f"stencils do not support {value}{suggest(type(value).__name__, FUNCTIONS)}"
            )
        first, *rest = (of(part) for part in value.args)
        if not rest:
            return function(first)
        for part in rest:
            first = function(first, part)
        return first

    def _symbol(self, name: str, numbers: Mapping[str, Symbol]) -> Value:
        if name == "t":
            return numbers[TIME_STEP] * functions.step
        return index(name) * self.widths[name] if name in self.axes else numbers[name]

    def _derivative(self, value: Value, written: Any) -> Value:
        if not isinstance(value, Symbol):
            raise DefinitionError(f"{written} is the derivative of a number")
        for variable, order in written.variable_count:
            axis = str(variable)
            if axis not in self.axes:
                raise DefinitionError(
                    f"{written} remains in the equation, which cannot be solved for one "
                    "derivative in time"
                )
            width = self.widths[axis]
            value = derivative(value, axis, int(order), self.accuracy, spacing=width)
        return value

    def _chosen(self, value: Any, of: Callable[[Any], Value]) -> Value:
        *parts, last = value.args
        if last.cond != self.sympy.true:
            raise DefinitionError(
                f"{value} is undefined where none of its conditions holds; add a last branch "
                "(value, True)"
            )
        chosen = of(last.expr)
        for part in reversed(parts):
            compared = COMPARED.get(type(part.cond).__name__)
            if compared is None:
                raise DefinitionError(f"a condition must compare two values, not {part.cond}")
            left = functions.as_symbol(of(part.cond.lhs))
            condition = getattr(left, compared)(of(part.cond.rhs))
            chosen = functions.where(condition, of(part.expr), chosen)
        return chosen
