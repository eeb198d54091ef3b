"""Reverse mode: some steps of a stencil, back in time, as one stencil of many stages.

What a step reads at an offset, its transpose adds there. It is written as a gather: cotangents are
first multiplied by the derivative where that is, and the products read at the negated offset, so
that nothing is read further than by the stencil itself. What lies beyond a face that mirrors is a
linear map of the inside, whose transpose is a profile per offset (docs/design/gradients.md).
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import product
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from outgrid.errors import DefinitionError
from outgrid.stencil import expression as ex
from outgrid.stencil.adjoint_names import AdjointNames
from outgrid.stencil.boundary import EVEN, SIDES, STORED, image
from outgrid.stencil.derivatives import Linear, derivatives, summed
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

__all__ = ["SOURCES", "Reverse", "reverse"]

SOURCES = "sources"
"""The name of all values of all sources among what is differentiated by."""

_Sums = dict[str, list[Expression]]

_ZERO = Constant(0.0)


class Reverse(msgspec.Struct, frozen=True):
    """Some steps of a problem back in time, the last one first, as one step of `stencil`.

    It begins and ends with the cotangents of what the forward steps left, with what an objective
    adds to them right there.

    `cotangents` are the names of its fields that are cotangents of fields, and of previous levels;
    `gradients` those of gradients by coefficients and profiles.

    `states` are the fields of it that a state of the forward run goes into: by name, the field and
    how many steps after the beginning of the first of these steps it is, -1 for the one before.
    `given` are its parameters that have the value of a parameter, by name: it, and how many steps
    after the first; `weights` those that have a derivative of the objective by a reduction, and
    `summed` the reductions that belong to a parameter. `left` are the names of the cotangents of
    what one of the steps, counted from the first, wrote to a field, where these are of their own.
    """

    stencil: Stencil
    boundary: Boundary
    profiles: Mapping[str, NDArray[np.float64]]
    states: Mapping[str, tuple[str, int]]
    summed: Mapping[str, tuple[str, int]]
    given: Mapping[str, tuple[str, int]]
    weights: Mapping[str, tuple[str, int]]
    cotangents: Mapping[str, str]
    gradients: Mapping[str, str]
    left: Mapping[tuple[str, int], str]
    steps: int

    def written(self, field: str, step: int) -> str:
        """The cotangent of what `step`, counted from the first of these, wrote to `field`.

        Of step -1, the last one of those before: what a step of `stencil` leaves.
        """
        return self.cotangents[field] if step < 0 else self.left[field, step]

    def parameters(
        self,
        problem: Problem,
        firsts: Sequence[int],
        weights: Mapping[str, Sequence[float]],
    ) -> dict[str, Any]:
        """What the parameters of the stencil are where its steps go back to those of `firsts`.

        `weights` are the derivatives of the objective by reductions, by name: one per step. By one
        that they do not name it is 0.
        """
        values: dict[str, Any] = dict(self.profiles)
        for name, (of, after) in self.given.items():
            values[name] = tuple(
                float(parameter_value(problem, of, first + after)) for first in firsts
            )
        for name, (of, after) in self.weights.items():
            along = weights.get(of)
            values[name] = tuple(
                0.0 if along is None else float(along[first + after]) for first in firsts
            )
        own = {profile.name for profile in self.stencil.given_profiles} - values.keys()
        return values | {name: problem.profile_values(name) for name in own}


def reverse(
    problem: Problem,
    steps: int,
    wrt: Iterable[str] = (),
    reduced: Iterable[str] = (),
    every: int = 1,
    phase: int = 0,
    *,
    alike: bool = True,
) -> Reverse:
    """`steps` steps of the problem back in time, with gradients by the coefficients, profiles and
    parameters that are among `wrt`, of an objective that depends on the reductions `reduced`, too.

    Of the forward run every `every`-th state is there, in place of those after it; the first of the
    steps begins `phase` steps after one of them. The steps before go back in the same way where
    they are `alike`, else more or fewer at once. Raises DefinitionError for what has no derivative.
    """
    alike = alike and steps == 1
    return _Reversal(problem, steps, tuple(wrt), tuple(reduced), every, phase, alike).made()


class _Reversal:
    def __init__(
        self,
        problem: Problem,
        steps: int,
        wrt: tuple[str, ...],
        reduced: tuple[str, ...],
        every: int,
        phase: int,
        alike: bool,
    ) -> None:
        self.problem, self.steps, self.wrt = problem, steps, wrt
        self.reduced, self.every, self.phase, self.alike = reduced, every, phase, alike
        self.rule = problem.stencil
        self.stages: list[Stage] = []
        self.made_fields: list[str] = []
        self.states: dict[str, tuple[str, int]] = {}
        self.given: dict[str, tuple[str, int]] = {}
        self.weights: dict[str, tuple[str, int]] = {}
        self.left: dict[tuple[str, int], str] = {}
        self.images: dict[tuple[int, tuple[str, str], int, int, bool], str] = {}
        self.profiles: dict[str, NDArray[np.float64]] = {}
        self.centre = (0,) * problem.ndim
        self.fixed = {field.name for field in self.rule.coefficients}
        self.names = AdjointNames(self.rule)
        self.bars, self.gradients = self.names.cotangents, self.names.gradients
        self.grads: dict[str, list[Expression]] = {n: [] for n in self.gradients if n in wrt}
        self.sums: dict[tuple[str, int], list[Expression]] = {}
        self.rules_here = {
            temporary: self._rules_here(temporary=temporary) for temporary in (False, True)
        }

    def made(self) -> Reverse:
        rule = self.rule
        for reduction in rule.reductions:
            if reduction.name in self.reduced and reduction.kind != "sum":
                raise DefinitionError(
                    f"the {reduction.kind} {reduction.name!r} has no derivative; objectives "
                    "need sums"
                )
        now: _Sums = {f.name: [] for f in rule.evolving}
        now |= {f.name: [self._at(self.bars[f.name])] for f in rule.lasting}
        past: _Sums = {f.name: [self._past(f.name)] if f.levels == 2 else [] for f in rule.evolving}
        for back in range(self.steps):
            older: _Sums = {f.name: [] for f in rule.evolving}
            for number in reversed(range(len(rule.stages))):
                self._stage(number, back, {0: now, -1: past, -2: older})
            now, past = past, older
        second = [f.name for f in rule.evolving if f.levels == 2]
        waits = {name for name in second if self._can_wait(name, summed(past[name]))}
        for name in waits:
            # What the next step begins with, made there of what this one began with.
            begun: dict[Expression, Expression]
            begun = {self._at(self.bars[name]): Access(self.bars[name], -1, self.centre)}
            before = ex.substitute(summed(past[name]), begun)
            now[name] = [before if each == self._past(name) else each for each in now[name]]
        last = [Assignment(self.bars[f.name], summed(now[f.name])) for f in rule.lasting]
        last += [
            Assignment(self.bars[name + PREVIOUS], summed(past[name]))
            for name in second
            if name not in waits
        ]
        sought = [
            Assignment(self.gradients[name], summed([self._at(self.gradients[name]), *terms]))
            for name, terms in self.grads.items()
        ]
        if sought:  # apart from the cotangents, so that addresses and values stay in registers
            self.stages.append(Stage(tuple(sought)))
        by_name = {
            self.names.one(f"{name}_grad{back}", "sum", name, back): (name, back)
            for name, back in self.sums
        }
        reductions = tuple(
            Reduction(name, "sum", summed(self.sums[key])) for name, key in by_name.items()
        )
        self.stages.append(Stage((self._reaching(last), *last[1:]), reductions))
        evolving = [*self.made_fields, *(assignment.field for assignment in (*last, *sought))]
        expressions = [value for stage in self.stages for value in stage.expressions]
        read = {access.field for value in expressions for access in ex.accesses(value)}
        others = [name for name in sorted(read) if name not in evolving]
        used = dict.fromkeys(name for value in expressions for name in ex.parameters(value))
        levels = {self.bars[name] for name in waits}
        stencil = Stencil(
            f"{rule.name}_adjoint",
            rule.ndim,
            (
                *(
                    Field(n, True, 1 + (n in levels), temporary=n in self.made_fields)
                    for n in evolving
                ),
                *(Field(n, False) for n in others),
            ),
            tuple(used),
            tuple(self.stages),
        )
        summed_at = {key: (p, self.steps - 1 - back) for key, (p, back) in by_name.items()}
        states = {name: self.states[name] for name in others if name in self.states}
        return Reverse(
            stencil,
            self._boundary(),
            self.profiles,
            states,
            summed_at,
            {name: of for name, of in self.given.items() if name in used},
            {name: of for name, of in self.weights.items() if name in used},
            {name: self.bars[name] for name in self.bars if self.bars[name] in evolving},
            {name: self.gradients[name] for name in self.grads},
            self.left,
            self.steps,
        )

    def _stage(self, number: int, back: int, bars: dict[int, _Sums]) -> None:
        """One stage of one step: cotangents of what it wrote become those of what it read."""
        stage = self.rule.stages[number]
        bar_of: dict[str, Expression] = {}
        for written in stage.assignments:
            name, bar = written.field, summed(bars[0][written.field])
            bar_of[name] = bar
            if back or bar != self._at(self.bars[name]) or SOURCES in self.wrt:
                own = self.names.one(f"{self.bars[name]}{back}", "left", name, back)
                self.left[name, self.steps - 1 - back] = own
                bar_of[name] = self._at(own)
        self._add(
            [
                Assignment(bar.field, summed(bars[0][name]))
                for name, bar in bar_of.items()
                if isinstance(bar, Access) and bar != self._at(self.bars[name])
            ]
        )
        read: list[tuple[Access, Expression, Expression]] = []
        made: list[tuple[Expression, Expression]] = [
            (written.expression, bar_of[written.field]) for written in stage.assignments
        ]
        made += [
            (reduction.expression, self._weight(reduction.name, back))
            for reduction in stage.reductions
            if reduction.name in self.reduced
        ]
        for expression, bar in made:
            leaves = [node for node in ex.nodes(expression) if self._is_active(node)]
            for leaf, linear in derivatives(expression, leaves).items():
                for rest, scale in self._named(linear, number, back).items():
                    here = bar if rest is None else operation("mul", rest, bar)
                    if isinstance(leaf, Parameter):
                        term = operation("mul", scale, here)
                        self.sums.setdefault((leaf.name, back), []).append(term)
                        continue
                    if isinstance(leaf, Profile):
                        self.grads[leaf.name].append(operation("mul", scale, here))
                        continue
                    assert isinstance(leaf, Access)
                    read.append((leaf, scale, here))
        beside = (here for leaf, _, here in read if leaf.offset != self.centre)
        wanted = dict.fromkeys(here for here in beside if not self._is_short(here))
        products: dict[Expression, str] = {
            here: self.names.one(f"product{back}_{number}_{n}", "product", back, number, n)
            for n, here in enumerate(wanted)
        }
        self._add([Assignment(name, value) for value, name in products.items()])
        # What is multiplied by the same number is added first.
        gathered: dict[tuple[str, int], dict[Expression, list[Expression]]] = {}
        for leaf, scale, here in read:
            name = products.get(here)
            value = here if name is None else self._at(name)
            key = leaf.field, self.rule.version(number, leaf)
            alike = gathered.setdefault(key, {}).setdefault(scale, [])
            alike.extend(self._gathered(leaf, value))
        for (name, version), by_scale in gathered.items():
            into = self.grads.get(name)
            if into is None:
                into = bars[version][name]
            into.extend(operation("mul", scale, summed(alike)) for scale, alike in by_scale.items())

    def _add(self, assignments: list[Assignment]) -> None:
        if assignments:
            self.stages.append(Stage(tuple(assignments)))
            self.made_fields += [assignment.field for assignment in assignments]

    def _is_short(self, product: Expression) -> bool:
        """Whether what is gathered of a product is best made where it is read: a cotangent, or one
        times a coefficient. Temporaries would hold back the next step behind all that read them."""
        match product:
            case Access():
                return True
            case Operation("mul", (Access(name, _, offset), Access())):
                fixed = name in self.fixed
                return fixed and offset == self.centre
            case _:
                return False

    def _can_wait(self, name: str, past: Expression) -> bool:
        """Whether the cotangent of the previous level of a field follows from the one that a step
        began with, by what no step changes, so that the step after it can make it."""
        if not self.alike or name in self.wrt or name + PREVIOUS in self.wrt:
            return False
        there = {Access(each, 0, self.centre) for each in (self.bars[name], *self.fixed)}
        return not any(ex.parameters(past)) and there.issuperset(ex.accesses(past))

    def _past(self, field: str) -> Access:
        return self._at(self.bars[field + PREVIOUS])

    def _is_active(self, node: Expression) -> bool:
        """Whether the derivative by a leaf is wanted."""
        match node:
            case Access(field):
                return self.rule.field(field).evolving or field in self.grads
            case Profile(name):
                return name in self.grads
            case Parameter(name):
                return name in self.wrt
            case _:
                return False

    def _weight(self, reduction: str, back: int) -> Parameter:
        """The derivative of the objective by a reduction of a step."""
        name = self.names.one(f"{reduction}_weight_{back}", "weight", reduction, back)
        self.weights[name] = (reduction, self.steps - 1 - back)
        return Parameter(name)

    def _at(self, field: str) -> Access:
        return Access(field, 0, self.centre)

    def _named(self, linear: Linear, number: int, back: int) -> Linear:
        """Derivatives with states of the forward run, and parameters of its step, by their name."""
        named: Linear = {}
        for rest, scale in linear.items():
            parts = (scale,) if rest is None else (scale, rest)
            scale, *rests = self._there(parts, number, back)
            key = rests[0] if rests else None
            named[key] = operation("add", named[key], scale) if key in named else scale
        return named

    def _there(self, parts: Sequence[Expression], number: int, back: int) -> tuple[Expression, ...]:
        """Expressions of a forward stage, with what its step read under the name it has here."""
        names: dict[Expression, Expression] = {}
        for node in ex.nodes(*parts):
            if isinstance(node, Parameter):
                given = self.names.one(f"{node.name}_{back}", "given", node.name, back)
                self.given[given] = (node.name, self.steps - 1 - back)
                names[node] = Parameter(given)
            elif isinstance(node, Access):
                name = node.field
                if self.rule.field(node.field).temporary:
                    name = self._made_again(node.field, back)
                elif self.rule.field(node.field).evolving:
                    after = self.steps - back + self.rule.version(number, node)
                    after -= (after + self.phase) % self.every
                    count = after + self.every
                    name = self.names.one(f"{node.field}_at{count}", "state", node.field, count)
                    self.states[name] = (node.field, after)
                names[node] = self._seen_as(node.field, Access(name, 0, node.offset))
        return tuple(ex.substitute_all(tuple(parts), names))

    def _made_again(self, name: str, back: int) -> str:
        """A temporary of a forward step, made once more of the states that it was made of."""
        if any(source.field == name for source in self.problem.sources):
            raise DefinitionError(
                f"derivatives read the temporary {name!r}, which has a source; gradients make it "
                "again without what the source adds: make it a field"
            )
        again = self.names.one(f"{name}_again{back}", "again", name, back)
        if again not in self.made_fields:
            number = self.rule.writer(name)
            assert number is not None
            (made,) = (a for a in self.rule.stages[number].assignments if a.field == name)
            (expression,) = self._there((made.expression,), number, back)
            self._add([Assignment(again, expression)])
        return again

    def _seen_as(self, field: str, access: Access) -> Expression:
        """What the forward run read as `access` of its `field`, also beyond faces.

        Where that is continued in another way here, images are read where they are, by weights.
        """
        here = self.rules_here[self.rule.field(field).temporary]
        read: list[tuple[list[Profile], tuple[int, ...]]] = [([], access.offset)]
        for axis, offset in enumerate(access.offset):
            rules = self.problem.edges.rule(field, axis)
            if not offset or rules == here[axis]:
                continue
            along = self._images(axis, rules, offset, transposed=False)
            read = [
                ([*weights, weight], (*at[:axis], apart, *at[axis + 1 :]))
                for weights, at in read
                for weight, apart in along
            ]
        return summed(
            reduce(lambda value, weight: operation("mul", weight, value), weights, moved)
            for weights, moved in ((w, Access(access.field, 0, at)) for w, at in read)
        )

    def _rules_here(self, *, temporary: bool) -> list[tuple[str, str]]:
        """Per axis what lies beyond both faces for fields that are only read, or temporaries."""
        boundary, rules = self._boundary(), list[tuple[str, str]]()
        for axis, reach in enumerate(self.rule.radius):
            letter = AXES[axis - self.rule.ndim]
            kinds = [str(boundary.face("", letter, side).kind) for side in SIDES]
            fixed = "empty" if temporary else STORED
            kinds = [
                fixed if kind == "dirichlet" else kind if temporary else EVEN.get(kind, kind)
                for kind in kinds
            ]
            rules.append((STORED, STORED) if reach == 0 else (kinds[0], kinds[1]))
        return rules

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
        return [*self._images(axis, rules, offset, transposed=True)]

    def _images(
        self, axis: int, rules: tuple[str, str], offset: int, *, transposed: bool
    ) -> list[tuple[Profile, int]]:
        """What is read at an offset along an axis, as weights of what lies inside: by offsets.

        Or its transpose: which cells read a cell, and by what they multiply it.
        """
        weights: dict[int, NDArray[np.float64]] = {}
        inside = self.problem.interior[axis]
        for index in inside:
            place, sign = image(index + offset, inside, rules)
            if not sign or (transposed and place not in inside):
                continue
            at, apart = (place, index - place) if transposed else (index, place - index)
            along = weights.setdefault(apart, np.zeros(self.problem.shape[axis]))
            along[at] += sign
        read: list[tuple[Profile, int]] = []
        for apart, values in sorted(weights.items()):
            key = (axis, rules, offset, apart, transposed)
            if key not in self.images:
                name = f"image_{AXES[axis - self.rule.ndim]}{len(self.images)}"
                self.images[key] = self.names.one(name, "image", *key)
                self.profiles[self.images[key]] = values
            read.append((Profile(self.images[key], axis), apart))
        return read

    def _reaching(self, last: Sequence[Assignment]) -> Assignment:
        """The first of the last assignments, reading as far as the forward stencil where no other
        expression does: fixed layers are as wide then."""
        made = (*self.made_fields, self.bars[self.rule.lasting[0].name])[0]
        assignment, value = last[0], last[0].expression
        expressions = [expression for stage in self.stages for expression in stage.expressions]
        expressions += [one.expression for one in last]
        offsets = [access.offset for one in expressions for access in ex.accesses(one)]
        for axis, reach in enumerate(self.rule.radius):
            if reach > max(abs(offset[axis]) for offset in offsets):
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
