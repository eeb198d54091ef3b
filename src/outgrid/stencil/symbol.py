"""What a definition's arguments are while it is traced: symbols that record arithmetic."""

import math
import operator
import sys
from functools import partial
from numbers import Integral, Rational, Real
from typing import Any, NoReturn, SupportsFloat, TypeAlias, TypeGuard, cast

import numpy as np

from outgrid.errors import DefinitionError
from outgrid.lines import format_count
from outgrid.stencil.derived import DERIVED
from outgrid.stencil.expression import (
    STEP,
    Access,
    Constant,
    Expression,
    Parameter,
    Profile,
    accesses,
    operation,
    shifted,
)
from outgrid.units import nearest, suggest

__all__ = [
    "AXES",
    "Condition",
    "FieldSymbol",
    "OffsetCountError",
    "Operand",
    "ParameterSymbol",
    "Symbol",
    "absolute",
    "arctan",
    "arctan2",
    "as_expression",
    "as_symbol",
    "ceil",
    "clip",
    "cos",
    "cosh",
    "exp",
    "floor",
    "hypot",
    "is_number",
    "isnan",
    "kind_of",
    "log",
    "maximum",
    "minimum",
    "round_whole",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "step",
    "tan",
    "tanh",
    "trunc",
    "where",
]

AXES = ("z", "y", "x")
"""Names of the axes, slowest first; in two dimensions the last two."""

_UFUNCS = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "true_divide": "div",
    "negative": "neg",
    "absolute": "abs",
    "fabs": "abs",
    "minimum": "min",
    "maximum": "max",
    "sqrt": "sqrt",
    "exp": "exp",
    "log": "log",
    "sin": "sin",
    "cos": "cos",
    "tanh": "tanh",
    "rint": "round",
    "mod": "remainder",
    **{name: name for name in DERIVED},
}
_LARGEST_POWER = 8
_MOVING = ("convolve", "correlate", "diff", "ediff1d", "flip", "gradient", "pad", "roll", "take")
_REDUCING = (
    "amax",
    "amin",
    "average",
    "max",
    "mean",
    "median",
    "min",
    "norm",
    "prod",
    "std",
    "sum",
)


class OffsetCountError(DefinitionError):
    """An access with as many offsets as another number of dimensions would need."""


class Symbol:
    """An expression under construction: arithmetic gives symbols, its value cannot be known."""

    __slots__ = ("expression",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, expression: Expression) -> None:
        self.expression = expression

    def __repr__(self) -> str:
        return "<expression>"

    def __add__(self, other: "Operand") -> "Symbol":
        return _apply("add", self, other)

    def __radd__(self, other: "Operand") -> "Symbol":
        return _apply("add", other, self)

    def __sub__(self, other: "Operand") -> "Symbol":
        return _apply("sub", self, other)

    def __rsub__(self, other: "Operand") -> "Symbol":
        return _apply("sub", other, self)

    def __mul__(self, other: "Operand") -> "Symbol":
        return _apply("mul", self, other)

    def __rmul__(self, other: "Operand") -> "Symbol":
        return _apply("mul", other, self)

    def __truediv__(self, other: "Operand") -> "Symbol":
        return _apply("div", self, other)

    def __rtruediv__(self, other: "Operand") -> "Symbol":
        return _apply("div", other, self)

    def __neg__(self) -> "Symbol":
        return _apply("neg", self)

    def __pos__(self) -> "Symbol":
        return self

    def __abs__(self) -> "Symbol":
        return _apply("abs", self)

    def __pow__(self, exponent: "Operand") -> "Symbol":
        """A product for whole numbers up to 8, of inverses below 0, a root for 0.5, else a power.

        Powers of numbers below 0 are NaN unless the exponent is whole.
        """
        power = float(exponent) if is_number(exponent) else math.inf
        if power == 0.5:
            return _apply("sqrt", self)
        if not power.is_integer() or not 1 <= abs(power) <= _LARGEST_POWER:
            return _apply("pow", self, exponent)
        # The inverse of a product has a gradient that is divided by its square, which may be 0.
        factor = self if power > 0 else 1 / self
        product = factor
        for _ in range(round(abs(power)) - 1):
            product = product * factor
        return product

    def __rpow__(self, base: "Operand") -> "Symbol":
        return _apply("pow", base, self)

    def __floordiv__(self, other: "Operand") -> "Symbol":
        return _apply("floor_divide", self, other)

    def __rfloordiv__(self, other: "Operand") -> "Symbol":
        return _apply("floor_divide", other, self)

    def __mod__(self, other: "Operand") -> "Symbol":
        return _apply("remainder", self, other)

    def __rmod__(self, other: "Operand") -> "Symbol":
        return _apply("remainder", other, self)

    def __round__(self, digits: None = None) -> "Symbol":
        if digits is not None:
            raise DefinitionError(f"round(..., {digits}): a stencil rounds to whole numbers only")
        return _apply("round", self)

    def __floor__(self) -> "Symbol":
        return _apply("floor", self)

    def __ceil__(self) -> "Symbol":
        return _apply("ceil", self)

    def __trunc__(self) -> "Symbol":
        return _apply("trunc", self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> "Symbol":
        if ufunc.__name__ == "power" and method == "__call__" and not options:
            base, exponent = inputs
            return Symbol(as_expression(base)) ** exponent
        name = _UFUNCS.get(ufunc.__name__)
        if name is None or method != "__call__" or options:
            raise DefinitionError(
                f"numpy.{ufunc.__name__} cannot be used in a stencil; supported functions of "
                f"NumPy: power, {', '.join(_UFUNCS)}"
            )
        return _apply(name, *inputs)

    def __array_function__(self, function: Any, types: Any, given: Any, named: Any) -> "Symbol":
        return _of_arrays(function.__name__, given, named)

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise DefinitionError(
            "a field is not an array in a stencil: functions of arrays, such as those of "
            "SciPy, cannot"
            " be called with it; a neighbour is read by an offset, as in u[0, -1]"
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise DefinitionError(f"{self}.{name}: {_no_array(name, 'a stencil has no arrays')}")

    @property
    def ndim(self) -> int:
        """The number of axes of the fields that it reads. Raises DefinitionError if none."""
        read = accesses(self.expression)
        if not read:
            raise DefinitionError(
                f"{self} reads no field: it is the same for all cells, and has no neighbours"
            )
        return len(read[0].offset)

    def __getitem__(self, offset: object) -> "Symbol":
        """The same of the cell at that offset, one whole number per axis, slowest axis first."""
        return Symbol(shifted(self.expression, _offsets(self, offset)))

    @property
    def neighbour(self) -> str:
        """The cell before it, as it is written."""
        return f"{self}[{', '.join(['0'] * (self.ndim - 1))}, -1]"

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise DefinitionError(f"{self}(...): offsets are put in brackets, as in u[0, -1]")

    def _no_operator(self, other: object) -> NoReturn:
        raise DefinitionError(
            f"{self} with {other!r}: a stencil supports the operators + - * / // % ** and "
            "comparisons, and & | ~ for conditions"
        )

    __matmul__ = __rmatmul__ = _no_operator
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _no_operator
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _no_operator

    def __lt__(self, other: "Operand") -> "Condition":
        return _compare("lt", self, other)

    def __le__(self, other: "Operand") -> "Condition":
        return _compare("le", self, other)

    def __gt__(self, other: "Operand") -> "Condition":
        return _compare("lt", other, self)

    def __ge__(self, other: "Operand") -> "Condition":
        return _compare("le", other, self)

    def __eq__(self, other: object) -> "Condition":  # type: ignore[override]
        return _compare("eq", self, other)

    def __ne__(self, other: object) -> "Condition":  # type: ignore[override]
        return _compare("ne", self, other)

    def __bool__(self) -> NoReturn:
        raise DefinitionError(
            "a stencil cannot branch on the value of a cell: it is traced once, for all cells; use"
            " where(condition, a, b), minimum or maximum"
        )

    def _as_number(self) -> NoReturn:
        raise DefinitionError(
            "the value of a cell is not a number yet: a stencil is traced once, for all cells; use"
            " the functions of outgrid (sqrt, exp, absolute, minimum, maximum, ...)"
        )

    def _as_sequence(self) -> NoReturn:
        raise DefinitionError(
            "a field is not a sequence of values: a stencil gives the new value of one cell; "
            "for a number"
            " over all cells return a reduction, outgrid.sum, max or min"
        )

    __iter__ = __len__ = __contains__ = _as_sequence
    __float__ = __int__ = __index__ = __complex__ = _as_number


class Condition:
    """What a comparison gives: true or false in each cell. Combined by &, | and ~."""

    __slots__ = ("expression",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, expression: Expression) -> None:
        self.expression = expression

    def __repr__(self) -> str:
        return "<condition>"

    def __and__(self, other: "Condition") -> "Condition":
        return self._with("and", other)

    def __or__(self, other: "Condition") -> "Condition":
        return self._with("or", other)

    def __invert__(self) -> "Condition":
        return Condition(operation("not", self.expression))

    def _with(self, name: str, other: object) -> "Condition":
        if not isinstance(other, Condition):
            raise DefinitionError(
                f"a condition is combined with {other!r} ({type(other).__name__}), which is not "
                "a condition; put comparisons in parentheses, as in (u < 1) & (v > 0)"
            )
        return Condition(operation(name, self.expression, other.expression))

    def __bool__(self) -> NoReturn:
        raise DefinitionError(
            "a stencil cannot branch on a condition: it is traced once, for all cells; write"
            " where(condition, a, b) for if and else, maximum(a, b) for max(a, b), and &, |, ~ for"
            " and, or, not; a < b < c is (a < b) & (b < c)"
        )

    def __array_function__(self, function: Any, types: Any, given: Any, named: Any) -> Symbol:
        return _of_arrays(function.__name__, given, named)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        as_expression(self)
        raise AssertionError

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __neg__ = __abs__ = __pow__ = __rpow__ = __float__ = (
        __array_ufunc__
    ) = _refuse


Operand: TypeAlias = Symbol | float


class ParameterSymbol(Symbol):
    """A parameter: one number for all cells, or along an axis one for each index."""

    __slots__ = ("axes", "name")

    def __init__(self, name: str, ndim: int) -> None:
        super().__init__(Parameter(name))
        self.name = name
        self.axes = AXES[-ndim:]

    def __repr__(self) -> str:
        return self.name

    def __getitem__(self, offset: object) -> Symbol:
        raise DefinitionError(
            f"{self.name}[...]: the parameter {self.name} is one number for all cells; make it "
            "a field, before the bare *, if it differs from cell to cell"
        )

    def along(self, axis: str) -> Symbol:
        """The value for the updated cell's index along `axis`: "z", "y" or "x"."""
        if axis not in self.axes:
            raise DefinitionError(
                f"{self.name}.along({axis!r}): the axes are {', '.join(self.axes)}"
                f"{suggest(axis, self.axes)}"
            )
        return Symbol(Profile(self.name, self.axes.index(axis)))


class FieldSymbol(Symbol):
    """A field: by itself the updated cell's value, `u[0, 0, -1]` a neighbour's."""

    __slots__ = ("level", "name")

    def __init__(self, name: str, ndim: int, level: int = 0) -> None:
        super().__init__(Access(name, level, (0,) * ndim))
        self.name = name
        self.level = level

    def __repr__(self) -> str:
        return f"{self.name}{'.previous' if self.level else ''}"

    def __hash__(self) -> int:
        """That of the object, so that what a stencil returns may name it: ``{u: ...}``."""
        return object.__hash__(self)

    @property
    def previous(self) -> "FieldSymbol":
        """The same field one time level back."""
        if self.level != 0:
            raise DefinitionError(
                f"{self.name}.previous.previous is 2 time levels back; at most 1 can be read"
            )
        return FieldSymbol(self.name, self.ndim, -1)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in ("next", "future", "new", "following"):
            why = (
                f"the function returns the next value of {self.name!r}; a later stage of a list of "
                "stages can read it"
            )
        elif nearest(name, ("previous",)):
            why = f"a field has no {name!r}; did you mean 'previous'?"
        elif name in AXES:
            why = f"a field has no components; annotated as a vector it has, {self.name}: Vector"
        else:
            has = f"a field has offsets, as in {self.neighbour}, and {self.name}.previous"
            why = _no_array(name, has)
        raise DefinitionError(f"{self.name}.{name}: {why}")

    def __setitem__(self, offset: object, value: object) -> NoReturn:
        raise DefinitionError(
            f"{self.name}[...] cannot be assigned to: return the new value of {self.name!r} instead"
        )


def _offsets(symbol: Symbol, offset: object) -> tuple[int, ...]:
    """What is written in brackets, as one whole number per axis."""
    offsets: tuple[object, ...] = offset if isinstance(offset, tuple) else (offset,)  # type: ignore[assignment]
    ndim, shown = symbol.ndim, f"{symbol}[{', '.join(map(_written, offsets))}]"
    for part in offsets:
        if isinstance(part, slice) or part is Ellipsis:
            raise DefinitionError(
                f"{shown}: a stencil gives the new value of one cell and has no slices; offsets"
                f" count cells from the updated one, as in {symbol.neighbour}"
            )
        if isinstance(part, bool) or not isinstance(part, Integral):
            raise DefinitionError(
                f"{shown}: the offset must be a whole number, not {part!r}; offsets count cells "
                f"from the updated one, as in {symbol.neighbour}"
            )
    if len(offsets) != ndim:
        raise OffsetCountError(
            f"{shown} has {format_count(len(offsets), 'offset')}, in {ndim}-D"
            f" {ndim} are needed ({', '.join(AXES[-ndim:])})"
        )
    return tuple(operator.index(part) for part in offsets)  # type: ignore[arg-type]


def _written(offset: object) -> str:
    """An offset as it is written in brackets."""
    if isinstance(offset, slice):
        given = cast("slice[Any, Any, Any]", offset)
        parts = (given.start, given.stop, *(() if given.step is None else (given.step,)))
        return ":".join("" if part is None else repr(part) for part in parts)
    return "..." if offset is Ellipsis else repr(offset)


def kind_of(value: object) -> str:
    """What a value is called in messages."""
    if isinstance(value, Symbol):
        return "an expression"
    return "an array" if isinstance(value, np.ndarray) else f"{value!r} ({type(value).__name__})"


def _no_array(name: str, otherwise: str) -> str:
    """Why there is no attribute or function of that name, which arrays have."""
    if name in _REDUCING:
        return (
            "a stencil gives the new value of one cell; for a number over all cells return a "
            'reduction, outgrid.sum, max or min, as in {"u": ..., "total": outgrid.sum(u)}'
        )
    if name in _MOVING:
        return "a stencil has no arrays to shift; read a neighbour by an offset, as in u[0, -1]"
    if name == "clip":
        return "write outgrid.clip(u, low, high)"
    return f"{name!r} is unknown; {otherwise}"


def _of_arrays(name: str, given: tuple[Any, ...], named: dict[str, Any]) -> Symbol:
    """What a function of NumPy means that is no operation on single numbers."""
    if name in _BY_ARGUMENTS:
        if len(given) == 3 and not named:
            return _BY_ARGUMENTS[name](*given)
        raise DefinitionError(f"numpy.{name} takes {_ARGUMENTS[name]} in a stencil, by position")
    if name == "round" and len(given) == 1 and not named:
        return _apply("round", *given)
    known = f"functions of NumPy that a stencil supports: where, power, {', '.join(_UFUNCS)}"
    raise DefinitionError(f"numpy.{name}: {_no_array(name, known)}")


class AfterStep:
    """What is known when a step is over, and no value within it; ``words`` say so."""

    __slots__ = ()

    @property
    def words(self) -> str:
        """Why nothing can be calculated with it."""
        raise NotImplementedError

    def _calculated(self, *_: object) -> Any:
        raise DefinitionError(self.words)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _calculated
    __rtruediv__ = __neg__ = __abs__ = __pow__ = __rpow__ = __lt__ = __gt__ = _calculated
    __le__ = __ge__ = _calculated


def is_number(value: object) -> TypeGuard[SupportsFloat]:
    """Whether `value` is a real number that a float holds; True and False are none."""
    if not isinstance(value, Real) or isinstance(value, bool | np.bool_):
        return False
    return not isinstance(value, Rational) or abs(cast("int", value)) <= sys.float_info.max


def as_expression(value: object) -> Expression:
    """The tree that `value`, a symbol or a number, stands for; else DefinitionError."""
    if isinstance(value, Symbol):
        return value.expression
    if is_number(value):
        return Constant(float(value))
    if isinstance(value, AfterStep):
        raise DefinitionError(value.words)
    if isinstance(value, Condition):
        raise DefinitionError("a condition is not a number; use where(condition, 1, 0)")
    if isinstance(value, np.ndarray):
        raise DefinitionError(
            "a stencil cannot use an array: make it a field, with the array as initial values"
        )
    raise DefinitionError(
        f"{value!r} ({type(value).__name__}) in a stencil must be a number, or an expression of "
        "fields and parameters"
    )


def as_symbol(value: object) -> Symbol:
    """The value, a symbol or a number, as a symbol."""
    return Symbol(as_expression(value))


def _apply(name: str, *operands: object) -> Symbol:
    make = DERIVED.get(name, partial(operation, name))
    return Symbol(make(*(as_expression(operand) for operand in operands)))


def minimum(a: Operand, b: Operand) -> Symbol:
    """The smaller of two values: a where a < b, else b."""
    return _apply("min", a, b)


def maximum(a: Operand, b: Operand) -> Symbol:
    """The larger of two values: a where a > b, else b."""
    return _apply("max", a, b)


def sqrt(a: Operand) -> Symbol:
    """The square root, correctly rounded; NaN for values below 0."""
    return _apply("sqrt", a)


def absolute(a: Operand) -> Symbol:
    """The value without its sign."""
    return _apply("abs", a)


def _compare(name: str, a: object, b: object) -> Condition:
    return Condition(operation(name, as_expression(a), as_expression(b)))


def where(condition: object, a: Operand, b: Operand) -> Symbol:
    """a in cells where the condition holds, else b. Both are computed everywhere."""
    if not isinstance(condition, Condition):
        raise DefinitionError(
            f"where needs a condition such as u < 1, got {condition!r} ({type(condition).__name__})"
        )
    return Symbol(operation("where", condition.expression, as_expression(a), as_expression(b)))


def exp(a: Operand) -> Symbol:
    """The exponential function."""
    return _apply("exp", a)


def log(a: Operand) -> Symbol:
    """The natural logarithm; NaN below 0."""
    return _apply("log", a)


def sin(a: Operand) -> Symbol:
    """The sine of an angle in radians."""
    return _apply("sin", a)


def cos(a: Operand) -> Symbol:
    """The cosine of an angle in radians."""
    return _apply("cos", a)


def tanh(a: Operand) -> Symbol:
    """The hyperbolic tangent."""
    return _apply("tanh", a)


def sinh(a: Operand) -> Symbol:
    """The hyperbolic sine."""
    return _apply("sinh", a)


def cosh(a: Operand) -> Symbol:
    """The hyperbolic cosine."""
    return _apply("cosh", a)


def tan(a: Operand) -> Symbol:
    """The tangent of an angle in radians."""
    return _apply("tan", a)


def arctan(a: Operand) -> Symbol:
    """The angle in radians, of -pi/2 to pi/2, that has this tangent."""
    return _apply("arctan", a)


def arctan2(y: Operand, x: Operand) -> Symbol:
    """The angle in radians, of -pi to pi, of the point (x, y); 0 where both are 0."""
    return _apply("arctan2", y, x)


def hypot(a: Operand, b: Operand) -> Symbol:
    """The length sqrt(a*a + b*b), without squares that are too large or too small."""
    return _apply("hypot", a, b)


def floor(a: Operand) -> Symbol:
    """The largest whole number that is not above the value."""
    return _apply("floor", a)


def ceil(a: Operand) -> Symbol:
    """The smallest whole number that is not below the value."""
    return _apply("ceil", a)


def trunc(a: Operand) -> Symbol:
    """The value without what is behind its point."""
    return _apply("trunc", a)


def round_whole(a: Operand) -> Symbol:
    """The nearest whole number, the even one of two."""
    return _apply("round", a)


def sign(a: Operand) -> Symbol:
    """1 above 0, -1 below; 0 and NaN stay as they are."""
    return _apply("sign", a)


def clip(a: Operand, low: Operand, high: Operand) -> Symbol:
    """low where the value is below it, high where it is above that, else the value."""
    return _apply("clip", a, low, high)


def isnan(a: Operand) -> Condition:
    """Where the value is not a number."""
    return _compare("ne", a, a)


# Functions of NumPy that call themselves with arrays.
_BY_ARGUMENTS = {"where": where, "clip": clip}
_ARGUMENTS = {"where": "a condition and two values", "clip": "a value and two bounds"}

step = Symbol(STEP)
"""The number of the step that is being made, from 0, in the precision of the fields."""
