"""Expressions: what one cell becomes, as a frozen tree.

A tree knows names, offsets and numbers; it knows no arrays and no grid. Trees are built bottom-up
with `operation`, which folds constants and drops exact identities. Shared parts of a tree are
visited once by everything here, and nothing recurses, so long sums are fine.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias, cast
from weakref import WeakValueDictionary

import msgspec
import numpy as np

from outgrid.errors import DefinitionError
from outgrid.stencil.philox import uniform
from outgrid.units import suggest

__all__ = [
    "INDEX",
    "OPERATIONS",
    "STEP",
    "WITHIN",
    "Access",
    "Constant",
    "Expression",
    "Leaf",
    "Operation",
    "Operator",
    "Parameter",
    "Profile",
    "accesses",
    "evaluate",
    "flops",
    "from_rows",
    "is_condition",
    "is_index",
    "is_uniform",
    "nodes",
    "operation",
    "parameters",
    "profiles",
    "shifted",
    "substitute",
    "substitute_all",
    "the_one",
    "to_rows",
]


class Constant(msgspec.Struct, frozen=True):
    """A number in double precision. Finite; -0.0 and 0.0 are different constants."""

    value: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise DefinitionError(f"the constant {self.value} must be finite")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant):
            return NotImplemented
        return self.value.hex() == other.value.hex()

    def __hash__(self) -> int:
        return hash(("constant", self.value.hex()))


class Parameter(msgspec.Struct, frozen=True):
    """A scalar that is the same for all cells; its value, or one per step, is the problem's."""

    name: str


STEP = Parameter("step")
"""The number of the step, from 0: known to every stencil and given by nobody."""

INDEX = "index_"
"""Begins the name of the profile that is the index along an axis, which nobody gives."""
WITHIN = "within "
"""Begins the name of a profile that says which indices are in a region.

No parameter has such a name, with a blank in it.
"""


class Profile(msgspec.Struct, frozen=True):
    """A number for each index along one axis, the same all across; its values are the problem's.

    `axis` counts from the slowest. `offset` is how many planes from the updated cell's own the
    value is taken, in generated code only; a definition reads it at the updated cell.
    """

    name: str
    axis: int
    offset: int = 0


class Access(msgspec.Struct, frozen=True):
    """The value of `field` at `offset` cells from the updated one.

    `level` 0 is now, -1 one time level back.
    """

    field: str
    level: int
    offset: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Operation:
    """`name` is a key of OPERATIONS, which fixes the number of operands.

    `uniform` says that no operand, and none of theirs, is an access or a profile.
    """

    name: str
    operands: tuple["Expression", ...]
    # Kept: looking at shared parts again and again would take exponential time.
    _hash: int = field(init=False, repr=False, compare=False)
    uniform: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        operator = OPERATIONS.get(self.name)
        if operator is None:
            raise DefinitionError(
                f"unknown operation {self.name!r}{suggest(self.name, OPERATIONS)}"
            )
        if len(self.operands) != operator.arity:
            raise DefinitionError(
                f"operation {self.name!r} takes {operator.arity} operands, got {len(self.operands)}"
            )
        for place, operand in enumerate(self.operands):
            if is_condition(operand) != (place in operator.conditions):
                is_there, needed = ("a condition", "a value")[:: 1 if is_condition(operand) else -1]
                raise DefinitionError(
                    f"operand {place} of {self.name!r} is {is_there} where {needed} is needed;"
                    " where(condition, a, b) turns a condition into values"
                )
        object.__setattr__(self, "_hash", hash((self.name, self.operands)))
        object.__setattr__(self, "uniform", all(map(is_uniform, self.operands)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Operation):
            return NotImplemented
        # Each pair of nodes is compared once: shared parts would take exponential time otherwise.
        pending: list[tuple[Expression, Expression]] = [(self, other)]
        seen: set[tuple[int, int]] = set()
        while pending:
            a, b = pending.pop()
            if a is b or (id(a), id(b)) in seen:
                continue
            seen.add((id(a), id(b)))
            if not (isinstance(a, Operation) and isinstance(b, Operation)):
                if a != b:
                    return False
            elif (a._hash, a.name) != (b._hash, b.name):
                return False
            else:
                pending.extend(zip(a.operands, b.operands, strict=True))
        return True

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type["Operation"], tuple[str, tuple["Expression", ...]]]:
        # String hashes differ between processes, so the cached one must not travel.
        return Operation, (self.name, self.operands)


Expression: TypeAlias = Constant | Parameter | Profile | Access | Operation
Leaf: TypeAlias = Constant | Parameter | Profile | Access


class Operator(msgspec.Struct, frozen=True):
    """One row of OPERATIONS: operands, floating-point operations counted, and NumPy meaning.

    `condition` says that the result is one, `conditions` which operands are.
    """

    arity: int
    flops: int
    function: Callable[..., Any]
    condition: bool = False
    conditions: tuple[int, ...] = ()


# min and max are what one vector instruction does: the second operand where the two are unordered
# or both zero.
def _minimum(a: Any, b: Any) -> Any:
    return cast("Any", np.where(a < b, a, b))


def _maximum(a: Any, b: Any) -> Any:
    return cast("Any", np.where(a > b, a, b))


def _fma(a: Any, b: Any, c: Any) -> Any:
    """a*b + c rounded once, but for the last bit of some values; NumPy has no fused form.

    The product is exact in two parts, and so is its sum with c (T. J. Dekker, 1971; D. E. Knuth).
    Where parts are too large or too small for that, it is rounded twice.
    """
    product = a * b
    total = product + c
    back = total - product
    lost = (product - (total - back)) + (c - back) + _lost(a, b, product)
    told = np.isfinite(lost) & (lost != 0)  # else a sum of -0 would become +0
    return cast("Any", np.where(told, total + lost, total))


def _lost(a: Any, b: Any, product: Any) -> Any:
    """What rounding took from a product."""
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _halves(a: Any) -> tuple[Any, Any]:
    """Two numbers of half as many bits, of which the value is the sum."""
    scaled = a * (2.0 ** ((np.finfo(np.result_type(a)).nmant + 2) // 2) + 1.0)
    high = scaled - (scaled - a)
    return high, a - high


OPERATIONS: dict[str, Operator] = {
    "add": Operator(2, 1, np.add),
    "sub": Operator(2, 1, np.subtract),
    "mul": Operator(2, 1, np.multiply),
    "div": Operator(2, 1, np.divide),
    "neg": Operator(1, 0, np.negative),
    "abs": Operator(1, 0, np.abs),
    "min": Operator(2, 1, _minimum),
    "max": Operator(2, 1, _maximum),
    "sqrt": Operator(1, 1, np.sqrt),
    "round": Operator(1, 1, np.rint),
    "fma": Operator(3, 2, _fma),
    "exp": Operator(1, 1, np.exp),
    "log": Operator(1, 1, np.log),
    "sin": Operator(1, 1, np.sin),
    "cos": Operator(1, 1, np.cos),
    "tanh": Operator(1, 1, np.tanh),
    "pow": Operator(2, 1, np.power),
    "random": Operator(6, 1, uniform),
    "lt": Operator(2, 1, np.less, condition=True),
    "le": Operator(2, 1, np.less_equal, condition=True),
    "eq": Operator(2, 1, np.equal, condition=True),
    "ne": Operator(2, 1, np.not_equal, condition=True),
    "and": Operator(2, 0, np.logical_and, condition=True, conditions=(0, 1)),
    "or": Operator(2, 0, np.logical_or, condition=True, conditions=(0, 1)),
    "not": Operator(1, 0, np.logical_not, condition=True, conditions=(0,)),
    "where": Operator(3, 0, np.where, conditions=(0,)),
}


def is_condition(node: Expression) -> bool:
    """Whether the node is true or false in a cell, and not a number."""
    return isinstance(node, Operation) and OPERATIONS[node.name].condition


def operation(name: str, *operands: Expression) -> Expression:
    """A node, with constants folded in double precision and x*1, 1*x, x/1 and -(-x) dropped.

    Equal nodes are the same object, so that comparing them takes no time.

    These identities are exact; x + 0 is kept, since it is not for x = -0.0. fma of constants is
    kept too, since folding it would round twice, and so are comparisons.
    """
    node = _KNOWN.get((name, operands))
    if node is not None:
        return node
    node = Operation(name, operands)
    folds = name != "fma" and not is_condition(node)
    if folds and all(isinstance(operand, Constant) for operand in operands):
        return _folded(node)
    one = Constant(1.0)
    if name == "mul" and operands[0] == one:
        return operands[1]
    if name in ("mul", "div") and operands[1] == one:
        return operands[0]
    if name == "neg" and isinstance(operands[0], Operation) and operands[0].name == "neg":
        return operands[0].operands[0]
    return the_one(node)


_KNOWN: WeakValueDictionary[tuple[str, tuple[Expression, ...]], Operation] = WeakValueDictionary()


def the_one(node: Operation) -> Operation:
    """The first of all nodes that are equal to this one."""
    return _KNOWN.setdefault((node.name, node.operands), node)


def _folded(node: Operation) -> Constant:
    values = [operand.value for operand in node.operands if isinstance(operand, Constant)]
    with np.errstate(all="ignore"):
        value = float(OPERATIONS[node.name].function(*(np.float64(value) for value in values)))
    if not math.isfinite(value):
        given = ", ".join(str(value) for value in values)
        raise DefinitionError(f"{node.name}({given}) is {value}; constants must be finite")
    return Constant(value)


def nodes(*expressions: Expression) -> tuple[Expression, ...]:
    """All distinct nodes, operands before their operations, left to right."""
    ordered: dict[Expression, None] = {}
    pending = [(expression, False) for expression in reversed(expressions)]
    while pending:
        node, operands_done = pending.pop()
        if node in ordered:
            continue
        if operands_done or not isinstance(node, Operation):
            ordered[node] = None
        else:
            pending.append((node, True))
            pending.extend((operand, False) for operand in reversed(node.operands))
    return tuple(ordered)


@lru_cache(maxsize=1024)  # plans ask again and again for those of the same few trees
def accesses(expression: Expression) -> tuple[Access, ...]:
    """Distinct accesses, in order of first use."""
    return tuple(node for node in nodes(expression) if isinstance(node, Access))


def profiles(*expressions: Expression) -> tuple[Profile, ...]:
    """Distinct profiles, in order of first use."""
    return tuple(node for node in nodes(*expressions) if isinstance(node, Profile))


def parameters(expression: Expression) -> tuple[str, ...]:
    """Distinct parameter names, in order of first use."""
    return tuple(node.name for node in nodes(expression) if isinstance(node, Parameter))


def is_index(profile: Profile) -> bool:
    """Whether the profile is the index along its axis."""
    return profile.name.startswith(INDEX)


def is_uniform(expression: Expression) -> bool:
    """Whether the value is the same for all cells: it may be computed once per run."""
    if isinstance(expression, Operation):
        return expression.uniform
    return not isinstance(expression, Access | Profile)


def flops(*expressions: Expression) -> int:
    """Floating-point operations per cell.

    Each distinct operation counts once, those uniform over the grid not at all.
    """
    return sum(
        OPERATIONS[node.name].flops
        for node in nodes(*expressions)
        if isinstance(node, Operation) and not node.uniform
    )


def substitute(expression: Expression, replacements: Mapping[Expression, Expression]) -> Expression:
    """The tree with each node that is a key of `replacements` replaced; folds new constants."""
    return substitute_all((expression,), replacements)[0]


def substitute_all(
    expressions: Sequence[Expression], replacements: Mapping[Expression, Expression]
) -> tuple[Expression, ...]:
    """What `substitute` makes of each tree; parts that they share are looked at once."""
    done: dict[Expression, Expression] = {}
    for node in nodes(*expressions):
        if node in replacements:
            done[node] = replacements[node]
        elif isinstance(node, Operation):
            done[node] = operation(node.name, *(done[operand] for operand in node.operands))
        else:
            done[node] = node
    return tuple(done[expression] for expression in expressions)


def shifted(expression: Expression, offset: tuple[int, ...]) -> Expression:
    """The tree as it is `offset` cells from the updated one: what it reads is read so much further.

    An index goes on beyond the faces: -1, and so many as the grid has.

    Raises DefinitionError where it reads a profile along an axis that the offset moves.
    """
    moved: dict[Expression, Expression] = {}
    for node in nodes(expression):
        if isinstance(node, Operation) and node.name == "random" and any(offset):
            raise DefinitionError(
                "random numbers cannot be read at an offset, since they belong to the updated "
                "cell; store them in a temporary"
            )
        if isinstance(node, Access):
            place = tuple(a + b for a, b in zip(node.offset, offset, strict=True))
            moved[node] = Access(node.field, node.level, place)
        elif isinstance(node, Profile) and offset[node.axis] and is_index(node):
            moved[node] = operation("add", node, Constant(float(offset[node.axis])))
        elif isinstance(node, Profile) and offset[node.axis]:
            raise DefinitionError(
                f"an expression with {node.name}.along(...) is read at an offset along the same "
                "axis, and profiles are read at the updated cell; make it a field, or multiply "
                "after the difference"
            )
    return substitute(expression, moved)


def evaluate(expression: Expression, leaf: Callable[[Leaf], Any]) -> Any:
    """The value of the tree with NumPy arithmetic; `leaf` gives the values of the leaves."""
    values: dict[Expression, Any] = {}
    for node in nodes(expression):
        if isinstance(node, Operation):
            operands = (values[operand] for operand in node.operands)
            values[node] = OPERATIONS[node.name].function(*operands)
        else:
            values[node] = leaf(node)
    return values[expression]


def to_rows(expression: Expression) -> list[list[Any]]:
    """JSON-able form: one row per distinct node, the last being the root.

    An operation names its operands by their row numbers.
    """
    numbers: dict[Expression, int] = {}
    rows: list[list[Any]] = []
    for node in nodes(expression):
        match node:
            case Constant(value):
                row: list[Any] = ["constant", value]
            case Parameter(name):
                row = ["parameter", name]
            case Profile(name, axis):
                row = ["profile", name, axis]
            case Access(name, level, offset):
                row = ["access", name, level, list(offset)]
            case Operation(name, operands):
                row = [name, *(numbers[operand] for operand in operands)]
        numbers[node] = len(rows)
        rows.append(row)
    return rows


def _earlier(built: list[Expression], number: int) -> Expression:
    if not 0 <= number < len(built):
        raise DefinitionError(f"operand {number} must be the number of an earlier row")
    return built[number]


def from_rows(rows: Sequence[Sequence[Any]]) -> Expression:
    """The inverse of `to_rows`. Raises DefinitionError, naming the row, for anything else."""
    built: list[Expression] = []
    for number, row in enumerate(rows):
        try:
            kind = str(row[0])
            rest: list[Any] = list(row[1:])
            if kind == "constant":
                (value,) = rest
                built.append(Constant(float(value)))
            elif kind == "parameter":
                (name,) = rest
                built.append(Parameter(str(name)))
            elif kind == "profile":
                name, axis = rest
                built.append(Profile(str(name), int(axis)))
            elif kind == "access":
                name, level, offset = rest
                built.append(Access(str(name), int(level), tuple(int(part) for part in offset)))
            else:
                operands = tuple(_earlier(built, index) for index in rest)
                built.append(the_one(Operation(kind, operands)))
        except (DefinitionError, IndexError, TypeError, ValueError) as error:
            raise DefinitionError(f"expression row {number}, {row!r}: {error}") from error
    if not built:
        raise DefinitionError("an expression needs at least 1 row")
    return built[-1]
