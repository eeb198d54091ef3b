"""Any stencil, not only those of the catalogue: what is derived, and that nothing is lost."""

import json
import pickle
from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrid.stencil import expression as ex
from outgrid.stencil.contract import contract
from outgrid.stencil.expression import Access, Constant, Expression, Operation, Parameter
from outgrid.stencil.model import Assignment, Field, Stage, Stencil
from outgrid.stencil.problem import Problem
from outgrid.testing.reference import run_reference

COMPARISONS = [
    name for name, each in ex.OPERATIONS.items() if each.condition and not each.conditions
]
# A random number is made of a seed, a step and a cell, which are whole numbers.
APART = ("fma", "random")
WRITTEN = [name for name, each in ex.OPERATIONS.items() if name not in APART and not each.condition]
FINITE = st.floats(-4, 4, allow_nan=False)


def leaves(ndim: int) -> st.SearchStrategy[Expression]:
    offset = st.tuples(*[st.integers(-3, 3)] * ndim)
    return st.one_of(
        FINITE.map(Constant),
        st.sampled_from(["k", "q"]).map(Parameter),
        st.builds(Access, st.sampled_from(["u", "v"]), st.sampled_from([0, -1]), offset),
        st.builds(Access, st.just("c"), st.just(0), offset),
    )


def operations(
    operands: st.SearchStrategy[Expression], names: list[str] = WRITTEN
) -> st.SearchStrategy[Expression]:
    return st.one_of(
        [
            st.builds(
                Operation,
                st.just(name),
                st.tuples(
                    *(
                        conditions(operands)
                        if place in ex.OPERATIONS[name].conditions
                        else operands
                        for place in range(ex.OPERATIONS[name].arity)
                    )
                ),
            )
            for name in names
        ]
    )


def conditions(operands: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    compared = operations(operands, COMPARISONS)
    return compared | st.builds(
        Operation, st.sampled_from(["and", "or"]), st.tuples(compared, compared)
    )


@cache  # what is made anew for each example takes longer than what is drawn from it
def expressions(ndim: int) -> st.SearchStrategy[Expression]:
    return st.recursive(leaves(ndim), operations, max_leaves=12)


@st.composite
def stencils(draw: st.DrawFn) -> Stencil:
    ndim = draw(st.sampled_from([2, 3]))
    trees = {"u": draw(expressions(ndim)), "v": draw(expressions(ndim))}
    reads = {access for tree in trees.values() for access in ex.accesses(tree)}
    second = {access.field for access in reads if access.level == -1}
    return Stencil(
        "any",
        ndim,
        (
            Field("u", True, 1 + ("u" in second)),
            Field("v", True, 1 + ("v" in second)),
            Field("c", False),
        ),
        ("k", "q"),
        (Stage(tuple(Assignment(name, tree) for name, tree in trees.items())),),
        (("k", draw(FINITE)), ("q", draw(FINITE))),
    )


@settings(max_examples=40)
@given(stencils())
def test_json_and_pickle_round_trip(stencil: Stencil) -> None:
    again = Stencil.from_dict(json.loads(json.dumps(stencil.to_dict())))
    assert again == stencil
    assert again.digest == stencil.digest
    assert hash(again) == hash(stencil)
    assert pickle.loads(pickle.dumps(stencil)) == stencil


@settings(max_examples=40)
@given(stencils())
def test_radius_and_reach_are_those_of_the_offsets(stencil: Stencil) -> None:
    offsets: dict[tuple[str, int], list[tuple[int, ...]]] = {}
    for each in stencil.assignments:
        for access in ex.accesses(each.expression):
            offsets.setdefault((access.field, access.level), []).append(access.offset)
    everything = [offset for group in offsets.values() for offset in group]
    for axis, radius in enumerate(stencil.radius):
        assert radius == max((abs(offset[axis]) for offset in everything), default=0)
    for field in stencil.fields:
        for level in (0, -1):
            reach = stencil.reach(field.name, level)
            group = offsets.get((field.name, level))
            if group is None:
                assert reach is None
                continue
            assert reach == tuple((min(along), max(along)) for along in zip(*group, strict=True))


WHOLE = st.integers(-3, 3).map(float).map(Constant)
EXACT_ON_WHOLE_NUMBERS = ["add", "sub", "mul", "neg", "abs", "min", "max"]


@given(
    st.recursive(
        WHOLE | leaves(2).filter(lambda leaf: not isinstance(leaf, Constant)),
        lambda operands: operations(operands, EXACT_ON_WHOLE_NUMBERS),
        max_leaves=16,
    )
)
def test_contracting_changes_nothing_but_roundings(tree: Expression) -> None:
    fused = contract(tree)
    numbers = {leaf: float(number % 5 - 2) for number, leaf in enumerate(ex.nodes(tree))}

    def leaf(node: Constant | Parameter | Access) -> float:
        return node.value if isinstance(node, Constant) else numbers[node]

    assert float(ex.evaluate(fused, leaf)) == float(ex.evaluate(tree, leaf))
    assert contract(fused) == fused


@given(expressions(2))
def test_contracting_leaves_no_sum_of_products_behind(tree: Expression) -> None:
    for node in ex.nodes(contract(tree)):
        if isinstance(node, Operation) and node.name in ("add", "sub"):
            for operand in node.operands:
                product = isinstance(operand, Operation) and operand.name == "mul"
                assert not product or ex.is_uniform(operand)


@settings(max_examples=30)
@given(stencils(), st.sampled_from(["float32", "float64"]))
def test_the_reference_computes_each_cell_as_the_tree_says(stencil: Stencil, dtype: str) -> None:
    shape = tuple(2 * radius + 2 for radius in stencil.radius)
    names = [f.name + suffix for f in stencil.fields for suffix in ("", ".previous")[: f.levels]]
    given_values = {
        name: f"0.1 * sin({number + 1} * x + y * {number - 2})" for number, name in enumerate(names)
    }
    problem = Problem(stencil, shape, dtype, 1, initial=given_values)
    before = run_reference(Problem(stencil, shape, dtype, 0, initial=given_values))
    after = run_reference(problem)
    number = np.dtype(dtype).type
    cell = tuple(inside[-1] for inside in problem.interior)

    def leaf(node: Constant | Parameter | Access) -> np.floating:
        if isinstance(node, Access):
            array = before[node.field + ("" if node.level == 0 else ".previous")]
            return array[tuple(a + b for a, b in zip(cell, node.offset, strict=True))]
        return number(node.value if isinstance(node, Constant) else problem.parameters[node.name])

    for each in stencil.assignments:
        with np.errstate(all="ignore"):
            expected = ex.evaluate(each.expression, leaf)
        np.testing.assert_equal(after[each.field][cell], number(expected))
