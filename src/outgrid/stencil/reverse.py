"""Reverse mode: some steps of a stencil, back in time, as one stencil of many stages.

What a step reads at an offset, its transpose adds there. It is written as a gather: cotangents are
first multiplied by the derivative where that is, and the products read at the negated offset, so
that nothing is read further than by the stencil itself. What lies beyond a face that mirrors is a
linear map of the inside, whose transpose is a profile per offset (docs/design/gradients.md).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import DefinitionError
from outgrid.stencil import expression as ex
from outgrid.stencil.boundary import STORED, Edges, edges_of, image
from outgrid.stencil.expression import (
    Access,
    Constant,
    Expression,
    Operation,
    Parameter,
    Profile,
    operation,
)
from outgrid.stencil.model import Assignment, Field, Reduction, Stage, Stencil
from outgrid.stencil.parameters import parameter_value
from outgrid.stencil.problem import PREVIOUS, Boundary, Problem
from outgrid.stencil.symbol import AXES

__all__ = ["Reverse", "cotangent", "derivatives", "reverse"]

Linear = dict[Expression | None, Expression]
"""A sum of factors that differ from cell to cell (None: 1), each with what is the same for all."""
_Sums = dict[str, list[Expression]]

_ZERO, _ONE = Constant(0.0), Constant(1.0)


def cotangent(name: str) -> str:
    """What the cotangent of a field, or of its previous level, is called."""
    return f"{name.removesuffix(PREVIOUS)}_past_bar" if name.endswith(PREVIOUS) else f"{name}_bar"


@dataclass(frozen=True, slots=True)
class Reverse:
    """Some steps of a problem back in time, the last one first, as one step of `stencil`.

    `states` are the fields of it that a state of the forward run goes into: by name, the field and
    how many steps after the first of these steps it is, -1 for the one before. `summed` are the
    reductions that belong to a parameter, by name: it, and how many steps after the first.
    """

    stencil: Stencil
    boundary: Boundary
    profiles: Mapping[str, NDArray[np.float64]]
    states: Mapping[str, tuple[str, int]]
    summed: Mapping[str, tuple[str, int]]
    steps: int

    def written(self, field: str, step: int) -> str:
        """The cotangent of what `step`, counted from the first of these, wrote to `field`."""
        return f"{cotangent(field)}{self.steps - 1 - step}"

    def parameters(self, problem: Problem, first: int) -> dict[str, Any]:
        """What the parameters of the stencil are where the steps begin at `first`."""
        values: dict[str, Any] = dict(self.profiles)
        for name in self.stencil.parameters:
            whole, _, back = name.rpartition("_")
            values[name] = parameter_value(problem, whole, first + self.steps - 1 - int(back))
        own = {profile.name for profile in self.stencil.given_profiles} - values.keys()
        return values | {name: problem.profile_values(name) for name in own}


def derivatives(expression: Expression, active: Iterable[Expression]) -> dict[Expression, Linear]:
    """The derivative of an expression by each of the `active` leaves that it depends on.

    Raises DefinitionError where there is none.
    """
    wanted = set(active)
    order = ex.nodes(expression)
    depends: set[Expression] = set()
    for node in order:
        if node in wanted or (
            isinstance(node, Operation)
            and any(
                operand in depends and not ex.is_condition(operand) for operand in node.operands
            )
            and not ex.is_condition(node)
        ):
            depends.add(node)
    bars: dict[Expression, Linear] = {expression: {None: _ONE}}
    for node in reversed(order):
        if node not in depends or node not in bars or not isinstance(node, Operation):
            continue
        for operand, factor in zip(node.operands, _partial(node), strict=True):
            if operand in depends and factor is not None:
                bar = bars.setdefault(operand, {})
                for rest, scale in _times(bars[node], factor).items():
                    bar[rest] = operation("add", bar[rest], scale) if rest in bar else scale
    return {leaf: bars[leaf] for leaf in order if leaf in wanted and leaf in bars}


def _times(bar: Linear, factor: Expression) -> Linear:
    if ex.is_uniform(factor):
        return {rest: operation("mul", scale, factor) for rest, scale in bar.items()}
    if list(bar) == [None]:
        return {factor: bar[None]}
    if len(bar) == 1:
        ((rest, scale),) = bar.items()
        assert rest is not None
        return {operation("mul", rest, factor): scale}
    return {operation("mul", _whole(bar), factor): _ONE}


def _whole(bar: Linear) -> Expression:
    """The sum as one expression."""
    return _sum(
        scale if rest is None else operation("mul", scale, rest) for rest, scale in bar.items()
    )


def _sum(terms: Iterable[Expression]) -> Expression:
    parts = list(terms)
    return reduce(lambda a, b: operation("add", a, b), parts) if parts else _ZERO


def _partial(node: Operation) -> tuple[Expression | None, ...]:
    """The derivative by each operand; None for conditions, which have none."""
    minus = Constant(-1.0)
    a, *others = node.operands
    b = others[0] if others else a
    match node.name:
        case "add":
            return _ONE, _ONE
        case "sub":
            return _ONE, minus
        case "neg":
            return (minus,)
        case "mul":
            return b, a
        case "div":
            return (
                operation("div", _ONE, b),
                operation("neg", operation("div", a, operation("mul", b, b))),
            )
        case "fma":
            return b, a, _ONE
        case "abs":
            below, above = operation("lt", a, _ZERO), operation("lt", _ZERO, a)
            rising = operation("where", above, _ONE, _ZERO)
            return (operation("where", below, minus, rising),)
        case "min" | "max":
            first = operation("lt", *((a, b) if node.name == "min" else (b, a)))
            return operation("where", first, _ONE, _ZERO), operation("where", first, _ZERO, _ONE)
        case "where":
            return None, operation("where", a, _ONE, _ZERO), operation("where", a, _ZERO, _ONE)
        case "sqrt":
            return (operation("div", Constant(0.5), node),)
        case "exp":
            return (node,)
        case "log":
            return (operation("div", _ONE, a),)
        case "sin":
            return (operation("cos", a),)
        case "cos":
            return (operation("neg", operation("sin", a)),)
        case "tanh":
            return (operation("sub", _ONE, operation("mul", node, node)),)
        case "pow":
            lower = operation("pow", a, operation("sub", b, _ONE))
            by_base = operation("mul", b, lower)
            known = isinstance(b, Constant)  # the logarithm is for exponents that differ
            return by_base, None if known else operation("mul", node, operation("log", a))
        case _:
            raise DefinitionError(
                f"{node.name!r} of a value that the gradient depends on has no derivative; floor,"
                " ceil, trunc, round, // and % are made of it"
            )


def reverse(problem: Problem, steps: int, wrt: Iterable[str]) -> Reverse:
    """`steps` steps of the problem back in time, with gradients by the coefficients and parameters
    that are among `wrt`. Raises DefinitionError for what has no derivative."""
    return _Reversal(problem, steps, tuple(wrt)).made()


class _Reversal:
    def __init__(self, problem: Problem, steps: int, wrt: tuple[str, ...]) -> None:
        self.problem, self.steps, self.wrt = problem, steps, wrt
        self.rule = problem.stencil
        self.stages: list[Stage] = []
        self.made_fields: list[str] = []
        self.states: dict[str, tuple[str, int]] = {}
        self.weights: dict[tuple[int, tuple[str, str], int, int], str] = {}
        self.profiles: dict[str, NDArray[np.float64]] = {}
        self.centre = (0,) * problem.ndim
        self.reads: dict[tuple[str, int], str] = {}  # what the rule of a field is at an axis
        self.grads: dict[str, list[Expression]] = {
            field.name: [] for field in self.rule.coefficients if field.name in wrt
        }
        self.sums: dict[tuple[str, int], list[Expression]] = {}

    def made(self) -> Reverse:
        rule = self.rule
        now: _Sums = {f.name: [] for f in rule.evolving}
        now |= {f.name: [self._at(cotangent(f.name))] for f in rule.lasting}
        past: _Sums = {
            f.name: [self._at(cotangent(f.name + PREVIOUS))] if f.levels == 2 else []
            for f in rule.evolving
        }
        for back in range(self.steps):
            older: _Sums = {f.name: [] for f in rule.evolving}
            for number in reversed(range(len(rule.stages))):
                self._stage(number, back, {0: now, -1: past, -2: older})
            now, past = past, older
        last = [Assignment(cotangent(f.name), _sum(now[f.name])) for f in rule.lasting]
        last += [
            Assignment(cotangent(f.name + PREVIOUS), _sum(past[f.name]))
            for f in rule.evolving
            if f.levels == 2
        ]
        last += [
            Assignment(f"{name}_grad", _sum([self._at(f"{name}_grad"), *terms]))
            for name, terms in self.grads.items()
        ]
        summed = {f"{name}_grad{back}": (name, back) for name, back in self.sums}
        reductions = tuple(
            Reduction(name, "sum", _sum(self.sums[key])) for name, key in summed.items()
        )
        self.stages.append(Stage((self._reaching(last[0]), *last[1:]), reductions))
        evolving = [*self.made_fields, *(assignment.field for assignment in last)]
        expressions = [value for stage in self.stages for value in stage.expressions]
        read = {access.field for value in expressions for access in ex.accesses(value)}
        others = [name for name in sorted(read) if name not in evolving]
        used = dict.fromkeys(name for value in expressions for name in ex.parameters(value))
        brief = {*self.made_fields} - self._seen()
        stencil = Stencil(
            f"{rule.name}_adjoint",
            rule.ndim,
            (
                *(Field(n, True, temporary=n in brief) for n in evolving),
                *(Field(n, False) for n in others),
            ),
            tuple(used),
            tuple(self.stages),
        )
        boundary = self._boundary()
        self._check_rules(stencil, edges_of(stencil, boundary))
        summed_at = {key: (p, self.steps - 1 - back) for key, (p, back) in summed.items()}
        states = {name: self.states[name] for name in others if name in self.states}
        return Reverse(stencil, boundary, self.profiles, states, summed_at, self.steps)

    def _seen(self) -> set[str]:
        """The cotangents that sources add to, which traces are, and that receivers read."""
        fields = {receiver.field for receiver in self.problem.receivers}
        fields |= {source.field for source in self.problem.sources}
        return {f"{cotangent(name)}{back}" for name in fields for back in range(self.steps)}

    def _stage(self, number: int, back: int, bars: dict[int, _Sums]) -> None:
        """One stage of one step: cotangents of what it wrote become those of what it read."""
        stage = self.rule.stages[number]
        self._add(
            [
                Assignment(f"{cotangent(written.field)}{back}", _sum(bars[0][written.field]))
                for written in stage.assignments
            ]
        )
        products: dict[Expression, str] = {}
        for assignment in stage.assignments:
            bar = self._at(f"{cotangent(assignment.field)}{back}")
            leaves = [
                node
                for node in ex.nodes(assignment.expression)
                if (isinstance(node, Access) and self._is_active(node.field))
                or (isinstance(node, Parameter) and node.name in self.wrt)
            ]
            for leaf, linear in derivatives(assignment.expression, leaves).items():
                for rest, scale in self._named(linear, number, back).items():
                    here = bar if rest is None else operation("mul", rest, bar)
                    if isinstance(leaf, Parameter):
                        term = operation("mul", scale, here)
                        self.sums.setdefault((leaf.name, back), []).append(term)
                        continue
                    assert isinstance(leaf, Access)
                    if leaf.offset == self.centre or rest is None:
                        gathered = self._gathered(leaf, here)
                    else:
                        if here not in products:
                            products[here] = f"product{back}_{number}_{len(products)}"
                        gathered = self._gathered(leaf, self._at(products[here]))
                    into = self.grads.get(leaf.field)
                    if into is None:
                        into = bars[self.rule.version(number, leaf)][leaf.field]
                    into.extend(operation("mul", scale, term) for term in gathered)
        self._add([Assignment(name, value) for value, name in products.items()])

    def _add(self, assignments: list[Assignment]) -> None:
        if assignments:
            self.stages.append(Stage(tuple(assignments)))
            self.made_fields += [assignment.field for assignment in assignments]

    def _is_active(self, field: str) -> bool:
        return self.rule.field(field).evolving or field in self.grads

    def _at(self, field: str) -> Access:
        return Access(field, 0, self.centre)

    def _named(self, linear: Linear, number: int, back: int) -> Linear:
        """Derivatives with states of the forward run, and parameters of its step, by their name."""
        named: Linear = {}
        for rest, scale in linear.items():
            parts = (scale,) if rest is None else (scale, rest)
            names: dict[Expression, Expression] = {}
            for node in ex.nodes(*parts):
                if isinstance(node, Parameter):
                    names[node] = Parameter(f"{node.name}_{back}")
                elif isinstance(node, Access) and self.rule.field(node.field).evolving:
                    if self.rule.field(node.field).temporary:
                        raise DefinitionError(
                            f"the gradient needs the values of the temporary {node.field!r}, which"
                            " no run keeps; make it a field"
                        )
                    after = self.steps - back + self.rule.version(number, node)
                    name = f"{node.field}_at{after + 1}"
                    self.states[name] = (node.field, after)
                    names[node] = Access(name, 0, node.offset)
            scale, *rests = ex.substitute_all(parts, names)
            key = rests[0] if rests else None
            named[key] = operation("add", named[key], scale) if key in named else scale
        return named

    def _gathered(self, leaf: Access, value: Expression) -> list[Expression]:
        """What the transpose of reading at an offset gathers of `value` in each cell."""
        if leaf.offset == self.centre:
            return [value]
        terms: list[Expression] = []
        along = [self._transposed(leaf, axis) for axis in range(self.rule.ndim)]
        for parts in product(*along):
            term = ex.shifted(value, tuple(offset for _, offset in parts))
            for weight, _ in parts:
                term = term if weight is None else operation("mul", weight, term)
            terms.append(term)
        return terms

    def _transposed(self, leaf: Access, axis: int) -> list[tuple[Profile | None, int]]:
        """Along an axis: at which offsets the transpose reads, and what it multiplies that by."""
        offset, rules = leaf.offset[axis], self.problem.edges.rule(leaf.field, axis)
        if offset == 0:
            return [(None, 0)]
        if rules == (STORED, STORED) or rules[0] == "periodic":
            return [(None, -offset)]
        inside = self.problem.interior[axis]
        weights: dict[int, NDArray[np.float64]] = {}
        for index in inside:
            place, sign = image(index + offset, inside, rules)
            if place in inside and sign:
                along = weights.setdefault(index - place, np.zeros(self.problem.shape[axis]))
                along[place] += sign
        read: list[tuple[Profile | None, int]] = []
        for apart, values in sorted(weights.items()):
            key = (axis, rules, offset, apart)
            if key not in self.weights:
                self.weights[key] = f"image_{AXES[axis - self.rule.ndim]}{len(self.weights)}"
                self.profiles[self.weights[key]] = values
            read.append((Profile(self.weights[key], axis), apart))
        return read

    def _reaching(self, assignment: Assignment) -> Assignment:
        """The assignment, reading as far as the forward stencil: fixed layers are as wide then."""
        made = self.made_fields[0]
        value = assignment.expression
        for axis, reach in enumerate(self.rule.radius):
            if reach:
                offset = tuple(reach if other == axis else 0 for other in range(self.rule.ndim))
                value = operation("add", value, operation("mul", _ZERO, Access(made, 0, offset)))
        return Assignment(assignment.field, value)

    def _boundary(self) -> Boundary:
        """Fixed layers where the problem has them, else what its first field has."""
        first = self.rule.lasting[0].name
        faces: list[tuple[str, Boundary]] = []
        for axis, layers in enumerate(self.problem.edges.layers):
            rules = self.problem.edges.rule(first, axis)
            for side, width, rule in zip("-+", layers, rules, strict=True):
                kind = "dirichlet" if width or rule == STORED else rule
                faces.append((AXES[axis - self.rule.ndim] + side, Boundary(kind)))
        return Boundary("dirichlet", faces=tuple(faces))

    def _check_rules(self, stencil: Stencil, edges: Edges) -> None:
        """Raise DefinitionError where a state would be continued in another way than it was."""
        for access in stencil.accesses:
            name = self.states.get(access.field, (access.field, 0))[0]
            if stencil.field(access.field).evolving:
                continue
            for axis, offset in enumerate(access.offset):
                there, here = self.problem.edges.rule(name, axis), edges.rule(access.field, axis)
                if offset and there != here:
                    raise DefinitionError(
                        f"the gradient needs {name!r} beyond the faces of axis"
                        f" {AXES[axis - self.rule.ndim]}, where it is {' and '.join(there)}:"
                        " derivatives that read states there are made for fields that all have"
                        " one rule which keeps the sign"
                    )
