import pickle

import numpy as np
import pytest

from outgrid.errors import DefinitionError
from outgrid.stencil import expression as ex
from outgrid.stencil.contract import contract
from outgrid.stencil.expression import Access, Constant, Operation, Parameter, operation

U = Access("u", 0, (0, 0))
WEST = Access("u", 0, (0, -1))
K = Parameter("k")


def mul(a: ex.Expression, b: ex.Expression) -> ex.Expression:
    return operation("mul", a, b)


def test_equality_is_structural_and_tells_zeros_apart() -> None:
    assert mul(K, U) == mul(K, U)
    assert hash(mul(K, U)) == hash(mul(K, U))
    assert mul(K, U) != mul(U, K)
    assert Constant(0.0) != Constant(-0.0)
    assert len({Constant(0.0), Constant(-0.0), Constant(0.0)}) == 2


def test_constants_fold_in_double_precision() -> None:
    assert operation("div", Constant(1.0), Constant(3.0)) == Constant(1 / 3)
    assert operation("sqrt", Constant(2.0)) == Constant(float(np.sqrt(2.0)))
    assert operation("min", Constant(2.0), Constant(-1.0)) == Constant(-1.0)
    assert operation("neg", Constant(0.0)) == Constant(-0.0)


def test_only_exact_identities_are_dropped() -> None:
    one, zero = Constant(1.0), Constant(0.0)
    assert mul(one, U) == mul(U, one) == operation("div", U, one) == U
    assert operation("neg", operation("neg", U)) == U
    for kept in (operation("add", U, zero), mul(U, zero), operation("div", one, U)):
        assert isinstance(kept, Operation)


@pytest.mark.parametrize(
    ("build", "parts"),
    [
        (lambda: operation("plus", U, U), ["'plus'", "add"]),
        (lambda: operation("add", U), ["'add'", "2", "1"]),
        (lambda: Constant(float("inf")), ["inf", "finite"]),
        (lambda: operation("div", Constant(1.0), Constant(0.0)), ["div(1.0, 0.0)", "inf"]),
        (lambda: operation("mul", Constant(1e200), Constant(1e200)), ["1e+200", "finite"]),
        (lambda: operation("sqrt", Constant(-1.0)), ["sqrt(-1.0)", "nan"]),
        (lambda: ex.from_rows([]), ["at least 1 row"]),
        (lambda: ex.from_rows([["add", 0, 1]]), ["row 0", "operand 0"]),
        (lambda: ex.from_rows([["access", "u", 0]]), ["row 0", "access"]),
        (lambda: ex.from_rows([[]]), ["row 0"]),
    ],
)
def test_errors_contain_what_was_given(build: object, parts: list[str]) -> None:
    with pytest.raises(DefinitionError) as caught:
        build()  # type: ignore[operator]
    for part in parts:
        assert part in str(caught.value)


def test_nodes_come_operands_first_and_once() -> None:
    shared = mul(K, U)
    tree = operation("add", shared, operation("sub", shared, WEST))
    assert ex.nodes(tree) == (K, U, shared, WEST, operation("sub", shared, WEST), tree)
    assert ex.accesses(tree) == (U, WEST)
    assert ex.parameters(tree) == ("k",)


def test_flops_count_distinct_work_per_cell() -> None:
    shared = mul(K, U)
    assert ex.flops(operation("add", shared, shared)) == 2
    uniform = operation("div", K, mul(K, K))
    assert ex.is_uniform(uniform)
    assert ex.flops(uniform) == 0
    assert ex.flops(mul(uniform, U)) == 1
    assert ex.flops(operation("fma", K, U, WEST)) == 2
    assert ex.flops(operation("neg", U)) == 0


def test_shared_parts_cost_nothing() -> None:
    tree: ex.Expression = U
    for _ in range(200):
        tree = operation("add", tree, tree)
    assert ex.flops(tree) == 200
    assert ex.from_rows(ex.to_rows(tree)) == tree
    assert ex.substitute(tree, {U: WEST}) == ex.substitute(tree, {U: WEST})


def test_long_sums_do_not_recurse() -> None:
    tree: ex.Expression = U
    for number in range(5000):
        tree = operation("add", tree, Access("u", 0, (0, number)))
    assert len(ex.accesses(contract(tree))) == 5000
    assert len(ex.to_rows(tree)) == 10000


def test_pickling_keeps_equality() -> None:
    tree = operation("add", mul(K, U), WEST)
    assert pickle.loads(pickle.dumps(tree)) == tree


def test_substitute_folds_what_becomes_constant() -> None:
    tree = mul(mul(K, K), U)
    assert ex.substitute(tree, {K: Constant(3.0)}) == mul(Constant(9.0), U)
    assert ex.substitute(tree, {K: Constant(1.0)}) == U


def test_min_and_max_take_the_second_operand_when_unordered() -> None:
    values = {U: np.array([1.0, np.nan, 2.0, np.nan]), WEST: np.array([3.0, 4.0, np.nan, np.nan])}
    smaller = ex.evaluate(operation("min", U, WEST), lambda leaf: values[leaf])  # type: ignore[index]
    larger = ex.evaluate(operation("max", U, WEST), lambda leaf: values[leaf])  # type: ignore[index]
    np.testing.assert_array_equal(smaller, [1.0, 4.0, np.nan, np.nan])
    np.testing.assert_array_equal(larger, [3.0, 4.0, np.nan, np.nan])


A, B, C, D = (Access(name, 0, (0, 0)) for name in "abcd")
PRODUCT = mul(A, B)


@pytest.mark.parametrize(
    ("tree", "contracted"),
    [
        (operation("add", PRODUCT, C), operation("fma", A, B, C)),
        (operation("add", C, PRODUCT), operation("fma", A, B, C)),
        (operation("sub", PRODUCT, C), operation("fma", A, B, operation("neg", C))),
        (operation("sub", C, PRODUCT), operation("fma", operation("neg", A), B, C)),
        (operation("add", PRODUCT, mul(C, D)), operation("fma", A, B, mul(C, D))),
        (
            operation("sub", PRODUCT, mul(C, D)),
            operation("fma", A, B, operation("neg", mul(C, D))),
        ),
        (operation("sub", C, mul(Constant(2.0), A)), operation("fma", Constant(-2.0), A, C)),
        (operation("sub", PRODUCT, Constant(2.0)), operation("fma", A, B, Constant(-2.0))),
        (mul(A, operation("add", B, C)), mul(A, operation("add", B, C))),
        (operation("add", mul(K, K), A), operation("add", mul(K, K), A)),
        (operation("add", mul(K, K), PRODUCT), operation("fma", A, B, mul(K, K))),
        (
            operation("add", mul(A, operation("add", PRODUCT, C)), D),
            operation("fma", A, operation("fma", A, B, C), D),
        ),
    ],
)
def test_contract_fuses_by_one_rule(tree: ex.Expression, contracted: ex.Expression) -> None:
    assert contract(tree) == contracted
    assert contract(contracted) == contracted


def test_what_is_equal_is_one_object_once_contracted_too():
    u, v = ex.Access("u", 0, (0, 1)), ex.Access("v", 0, (0, 0))
    product = ex.operation("mul", u, v)
    shared = ex.operation("add", ex.operation("sub", product, u), v)
    first, second = (contract(ex.operation(name, shared, u)) for name in ("min", "max"))
    assert first.operands[0] is second.operands[0]


def test_parts_that_trees_share_are_replaced_by_one_object():
    u, v = ex.Access("u", 0, (0, 1)), ex.Access("v", 0, (0, 0))
    product = ex.operation("mul", u, v)
    trees = [ex.operation("add", product, u), product, v]
    found = ex.substitute_all(trees, {u: v})
    assert found == tuple(ex.substitute(tree, {u: v}) for tree in trees)
    assert found[0].operands[0] is found[1]
