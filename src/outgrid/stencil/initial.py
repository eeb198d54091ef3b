"""Initial values written as a formula of the cell's indices, such as "exp(-((x - nx/2)**2)/50)".

Only a small arithmetic language is understood: formulas come from job files and are not programs.
"""

import ast
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import DefinitionError
from outgrid.formats.registry import suffixes
from outgrid.numbers import is_real
from outgrid.stencil.dtypes import in_words, keep
from outgrid.stencil.function import InitialFunction
from outgrid.stencil.grid import Grid
from outgrid.stencil.philox import BEFORE, checked_seed, halves_of, uniform
from outgrid.stencil.symbol import AXES
from outgrid.syntax import expression_tree
from outgrid.units import suggest

__all__ = [
    "RESERVED",
    "InitialExpression",
    "check_along",
    "evaluate",
    "evaluate_along",
    "evaluate_steps",
]

_FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "exp": (1, np.exp),
    "sin": (1, np.sin),
    "cos": (1, np.cos),
    "tanh": (1, np.tanh),
    "sqrt": (1, np.sqrt),
    "abs": (1, np.abs),
    "minimum": (2, np.minimum),
    "maximum": (2, np.maximum),
    "log": (1, np.log),
    "tan": (1, np.tan),
    "arctan": (1, np.arctan),
    "arctan2": (2, np.arctan2),
    "sinh": (1, np.sinh),
    "cosh": (1, np.cosh),
    "floor": (1, np.floor),
    "ceil": (1, np.ceil),
    "trunc": (1, np.trunc),
    "round": (1, np.rint),
    "sign": (1, np.sign),
    "hypot": (2, np.hypot),
    "clip": (3, np.clip),
    "where": (3, np.where),
    "random": (1, uniform),
}
_BINARY: dict[type[ast.operator], Callable[..., Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.mod,
}
_UNARY: dict[type[ast.unaryop], Callable[..., Any]] = {ast.UAdd: np.positive, ast.USub: np.negative}
_COMPARE: dict[type[ast.cmpop], Callable[..., Any]] = {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}
_NAMES = (*AXES, *(f"n{axis}" for axis in AXES), "pi", "step")
RESERVED = (*(name for name in _NAMES if name not in AXES), *_FUNCTIONS)
"""Words of formulas that no axis may be called."""

_LONGEST_TEXT = 4096
_DEEPEST_NESTING = 200
_CELLS_PER_BLOCK = 2**16


@dataclass(frozen=True, slots=True)
class InitialExpression:
    """A formula of z, y, x (indices from 0), the extents nz, ny, nx, and pi; of step in job files.

    Numbers, + - * / // % **, one comparison at a time, and exp log sin cos tan arctan arctan2 sinh
    cosh tanh sqrt abs minimum maximum floor ceil trunc round sign hypot, clip(a, low, high),
    where(condition, a, b) and random(seed), numbers in [0, 1); of the coordinates that a `grid` has
    names for. `text` is kept in canonical spelling. Raises DefinitionError, with the part at fault,
    for anything else.
    """

    text: str
    grid: Grid | None = None

    def __post_init__(self) -> None:
        if len(self.text) > _LONGEST_TEXT:
            raise DefinitionError(
                f"a formula of {len(self.text)} characters is too long; at most"
                f" {_LONGEST_TEXT} are read; store the field as a .npy file instead"
            )
        try:
            tree = expression_tree(self.text.strip())
            coordinates = self.grid.coordinates if self.grid is not None else ()
            _check(tree, self.text, _DEEPEST_NESTING, (*_NAMES, *coordinates))
            canonical = ast.unparse(tree)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else error
            raise DefinitionError(
                f"the formula {self.text!r} is not valid: {reason}; known are files of {_files()}"
            ) from error
        object.__setattr__(self, "text", canonical)

    def __str__(self) -> str:
        """What it is called in messages."""
        return f"the formula {self.text!r}"

    @property
    def names(self) -> frozenset[str]:
        """The variables that the formula uses."""
        tree = expression_tree(self.text)
        return frozenset(
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and node.id not in _FUNCTIONS
        )


def evaluate(
    source: InitialExpression | InitialFunction,
    planes: range,
    shape: tuple[int, ...],
    dtype: str,
    rows: range | None = None,
    threads: int = 1,
) -> NDArray[Any]:
    """Values of a formula or a function on the given planes of axis 0.

    They are an array of shape (len(planes), *shape[1:]).

    Computed in double precision and rounded once to `dtype`, or held by it exactly where it is one
    of whole numbers, in the same blocks of a few rows
    whichever planes are asked for together, so that values do not depend on that; the working
    memory is a few MiB beyond the result. `planes` has step 1. In 3-D, `rows` are those wanted of
    each plane; whole multiples of `rows_together` are made without anything beside them. `threads`
    evaluate a formula at the same time, each with as much memory; functions are called by one.
    Raises DefinitionError, naming the first cell, where a value is not finite, or not held, in
    `dtype`.
    """
    wanted = range(shape[1]) if rows is None or len(shape) == 2 else rows
    rest = (len(wanted), shape[2]) if len(shape) == 3 else shape[1:]
    values = np.empty((len(planes), *rest), dtype)
    threads = 1 if isinstance(source, InitialFunction) else threads
    together = rows_together(shape)
    if len(planes) >= threads or len(shape) == 2:
        cuts = [(part, range(len(wanted))) for part in _parts(len(planes), threads)]
    else:
        cuts = [(range(len(planes)), part) for part in _parts(len(wanted), threads, together)]

    def make(cut: tuple[range, range]) -> None:
        (first, last), (low, high) = ((part.start, part.stop) for part in cut)
        _evaluate(source, planes[first:last], shape, wanted[low:high], values[first:last, low:high])

    if len(cuts) == 1:
        make(cuts[0])
        return values
    from concurrent.futures import ThreadPoolExecutor  # which definitions do without

    with ThreadPoolExecutor(len(cuts)) as pool:
        for _ in pool.map(make, cuts):
            pass
    return values


def _parts(count: int, parts: int, unit: int = 1) -> list[range]:
    """As many equal parts of ``count``, each but the last of whole units; at least one."""
    size = max(unit, -(-count // max(1, parts) // unit) * unit)
    return [range(first, min(count, first + size)) for first in range(0, max(1, count), size)]


def _evaluate(
    source: InitialExpression | InitialFunction,
    planes: range,
    shape: tuple[int, ...],
    wanted: range,
    values: NDArray[Any],
) -> None:
    """Values of the rows that are ``wanted`` of some planes."""
    given = _formula(source, shape) if isinstance(source, InitialExpression) else source.plane
    rows_per_block = rows_together(shape)
    with np.errstate(all="ignore"):
        for plane, into in zip(planes, values, strict=True):
            if len(shape) == 2:
                _keep(source, given((plane, 0), (1, shape[1])), into, (plane, 0))
                continue
            aligned = wanted.start - wanted.start % rows_per_block
            for first in range(aligned, wanted.stop, rows_per_block):
                last = min(first + rows_per_block, shape[1])
                made = np.empty((last - first, shape[2]), values.dtype)
                block = given((plane, first, 0), (1, *made.shape))
                _keep(source, block, made, (plane, first, 0))
                low, high = max(first, wanted.start), min(last, wanted.stop)
                into[low - wanted.start : high - wanted.start] = made[low - first : high - first]


def _formula(
    expression: InitialExpression, shape: tuple[int, ...]
) -> Callable[[tuple[int, ...], tuple[int, ...]], Any]:
    """What gives the values in a block of one plane, from where it begins and its shape."""
    tree = expression_tree(expression.text)
    names = AXES[-len(shape) :]
    variables: dict[str, Any] = {"pi": np.float64(math.pi)}
    for name, extent in zip(names, shape, strict=True):
        variables[f"n{name}"] = np.float64(extent)
    variables["x"] = np.arange(shape[-1], dtype=np.float64)

    def values(origin: tuple[int, ...], extents: tuple[int, ...]) -> Any:
        variables[names[0]] = np.float64(origin[0])
        if len(shape) == 3:
            rows = np.arange(origin[1], origin[1] + extents[1], dtype=np.float64)
            variables["y"] = rows[:, None]
        grid = expression.grid or Grid()
        for name in grid.coordinates:
            variables[name] = grid.at(name, variables[names[grid.names.index(name)]])
        return _value(tree, variables)

    return values


def evaluate_along(
    expression: InitialExpression, axis: int, shape: tuple[int, ...], dtype: str
) -> NDArray[Any]:
    """Values of a formula of one axis alone, one for each index, rounded once to `dtype`.

    Raises DefinitionError where it uses another axis or a value is not finite in `dtype`.
    """
    blocks = [*_along(expression, axis, shape, dtype)]
    return np.concatenate(blocks) if len(blocks) > 1 else blocks[0]


def check_along(
    expression: InitialExpression, axis: int, shape: tuple[int, ...], dtype: str
) -> None:
    """Raise what `evaluate_along` does, without memory for the values of a long axis."""
    for _ in _along(expression, axis, shape, dtype):
        pass


def _along(
    expression: InitialExpression, axis: int, shape: tuple[int, ...], dtype: str
) -> Iterator[NDArray[Any]]:
    names = AXES[-len(shape) :]
    others = expression.names & ({*AXES, "step"} - {names[axis]})
    if others:
        raise DefinitionError(
            f"{expression.text!r} uses {', '.join(sorted(others))}, but must depend on one "
            f"axis, as a profile along {names[axis]}"
        )
    variables: dict[str, Any] = {"pi": np.float64(math.pi)}
    for name, extent in zip(names, shape, strict=True):
        variables[f"n{name}"] = np.float64(extent)
    return _blocks(expression, names[axis], variables, shape[axis], dtype)


def evaluate_steps(expression: InitialExpression, steps: int) -> tuple[float, ...]:
    """Values of a formula of step, for steps from 0 on. Raises DefinitionError."""
    others = expression.names - {"step", "pi"}
    if others:
        raise DefinitionError(
            f"{expression.text!r} uses {', '.join(sorted(others))}, but must depend on step only"
        )
    blocks = _blocks(expression, "step", {"pi": np.float64(math.pi)}, steps, "float64")
    return tuple(value for block in blocks for value in block.tolist())


def _blocks(
    expression: InitialExpression, name: str, variables: dict[str, Any], count: int, dtype: str
) -> Iterator[NDArray[Any]]:
    """Values for the numbers from 0 to `count`, which the formula calls `name`, a block at a time.

    Blocks are whole multiples of vectors, so that a value does not depend on how many there are.
    """
    tree = expression_tree(expression.text)
    for first in range(0, count, _CELLS_PER_BLOCK):
        last = min(count, first + _CELLS_PER_BLOCK)
        block = np.empty(last - first, dtype)
        with np.errstate(all="ignore"):
            given = variables | {name: np.arange(first, last, dtype=np.float64)}
            _keep(expression, _value(tree, given), block, (first,))
        yield block


def rows_together(shape: tuple[int, ...]) -> int:
    """Rows that are evaluated at once."""
    return max(1, _CELLS_PER_BLOCK // shape[-1])


def _keep(
    source: InitialExpression | InitialFunction,
    values: Any,
    into: NDArray[Any],
    origin: tuple[int, ...],
) -> None:
    """Store what a formula or a function gave.

    Raises DefinitionError, naming the cell, where that cannot be.
    """
    held = keep(values, into)
    if held.all():
        return
    inside = tuple(int(index) for index in np.argwhere(~held)[0])
    first = len(origin) - into.ndim
    cell = (*origin[:first], *(a + b for a, b in zip(origin[first:], inside, strict=True)))
    where = f"at cell ({', '.join(map(str, cell))})"
    if not is_real(into.dtype):
        given = np.broadcast_to(values, into.shape)[inside]
        raise DefinitionError(f"{source} is {given} {where}; {in_words(into.dtype.name)}")
    raise DefinitionError(
        f"{source} is {into[inside]} in {into.dtype} {where}; initial values must be finite"
    )


def _value(node: ast.expr, variables: dict[str, Any]) -> Any:
    match node:
        case ast.Constant(value):
            return np.float64(value)  # type: ignore[arg-type]
        case ast.Name(name):
            return variables[name]
        case ast.BinOp(left, operator, right):
            return _BINARY[type(operator)](_value(left, variables), _value(right, variables))
        case ast.UnaryOp(operator, operand):
            return _UNARY[type(operator)](_value(operand, variables))
        case ast.Compare(left, [operator], [right]):
            # As numbers, so that sums of conditions count and do not saturate.
            holds = _COMPARE[type(operator)](_value(left, variables), _value(right, variables))
            return np.asarray(holds, dtype=np.float64)
        case ast.Call(ast.Name("random"), [ast.Constant(seed)]):
            low, high = (np.float64(half) for half in halves_of(seed))  # type: ignore[arg-type]
            place = (variables.get(axis, np.float64(0)) for axis in AXES)
            return uniform(low, high, variables.get("step", np.float64(BEFORE)), *place)
        case ast.Call(ast.Name(name), arguments):
            return _FUNCTIONS[name][1](*(_value(argument, variables) for argument in arguments))
        case _:
            raise AssertionError(f"unchecked {ast.dump(node)}")


def _check(node: ast.expr, text: str, depth: int, names: tuple[str, ...] = _NAMES) -> None:
    if depth == 0:
        _refuse(
            text,
            f"it nests deeper than {_DEEPEST_NESTING} operations; store the field as a .npy file"
            " instead",
        )
    match node:
        case ast.Constant(value) if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                finite = math.isfinite(float(value))
            except OverflowError:
                finite = False
            if not finite:
                _refuse(text, f"the number {ast.unparse(node)} must be finite in double precision")
            operands: list[ast.expr] = []
        case ast.Name(name):
            if name not in names:
                _refuse(text, f"unknown name {name!r}{suggest(name, names)}")
            operands = []
        case ast.BinOp(left, operator, right) if type(operator) in _BINARY:
            operands = [left, right]
        case ast.UnaryOp(operator, operand) if type(operator) in _UNARY:
            operands = [operand]
        case ast.Compare(left, [operator], [right]) if type(operator) in _COMPARE:
            operands = [left, right]
        case ast.Call(ast.Name(name), arguments, []):
            if name not in _FUNCTIONS:
                _refuse(text, f"unknown function {name!r}{suggest(name, _FUNCTIONS)}")
            count = _FUNCTIONS[name][0]
            if len(arguments) != count:
                _refuse(text, f"{name} takes {count} arguments, got {len(arguments)}")
            if name == "random":
                _check_seed(text, arguments[0])
            operands = arguments
        case _:
            _refuse(
                text,
                f"{ast.unparse(node)!r} is not allowed; formulas consist of numbers, "
                f"{' '.join(names)}, + - * / // % **, single comparisons and "
                f"{' '.join(_FUNCTIONS)}",
            )
            return
    for operand in operands:
        _check(operand, text, depth - 1, names)


def _check_seed(text: str, seed: ast.expr) -> None:
    """Raise DefinitionError unless it is written as a number that is one."""
    try:
        checked_seed(seed.value if isinstance(seed, ast.Constant) else ast.unparse(seed))
    except DefinitionError as error:
        _refuse(text, str(error))


def _files() -> str:
    return ", ".join(suffixes())


def _refuse(text: str, reason: str) -> None:
    if re.fullmatch(r"[^\s()*+]*\.[A-Za-z]\w*", text.strip()):
        reason = f"if this is a file, known are files of {_files()}"
    elif re.search(r"\b(np|numpy|math|og)\.", text):
        reason += "; write functions without np, as in exp(x)"
    raise DefinitionError(f"the formula {text!r}: {reason}")
