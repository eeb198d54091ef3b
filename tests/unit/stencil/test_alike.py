import numpy as np
import pytest
from hypothesis import given

from outgrid.definition import stencil
from outgrid.stencil.alike import alike
from outgrid.stencil.contract import contract
from outgrid.stencil.expression import Access, Constant, Operation, evaluate, nodes, operation
from outgrid.stencil.symbol import absolute, exp
from outgrid.testing.strategies import stencils

ODD = np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-310, 3e200])


def bits(expression, values):
    """Of all cells, with one NaN for all."""
    with np.errstate(all="ignore"):
        found = np.broadcast_to(evaluate(expression, values), len(ODD) ** 2).astype(np.float64)
    return np.where(np.isnan(found), np.nan, found).view(np.uint64).tolist()


@given(stencils())
def test_every_value_keeps_its_bits(rule):
    generator, known = np.random.default_rng(0), {}

    def leaf(node):
        if isinstance(node, Constant):
            return np.float64(node.value)
        return known.setdefault(node, generator.choice(ODD, len(ODD) ** 2))

    given = [contract(assignment.expression) for assignment in rule.assignments]
    for before, after in zip(given, alike(given), strict=True):
        assert bits(before, leaf) == bits(after, leaf)
        assert {n for n in nodes(before) if isinstance(n, Access)} == {
            n for n in nodes(after) if isinstance(n, Access)
        }


@pytest.mark.parametrize(
    "one", [lambda a: a * a, absolute, lambda a: 2 + a * a], ids=["square", "size", "sum"]
)
def test_differences_whose_sign_is_lost_become_one(one):
    @stencil
    def rule(u, c):
        return {"u": one(u[1, 0] - u) + exp(c[0, 1] + c), "c": one(u - u[1, 0]) * exp(c + c[0, 1])}

    first, second = (set(nodes(each)) for each in alike(roots(rule)))
    names = {node.name for node in first & second if isinstance(node, Operation)}
    assert names >= {"sub", "add", "exp"}


def test_of_a_difference_of_other_values_the_sign_that_is_met_first_is_taken():
    @stencil
    def rule(u, c):
        along = u - c[0, 1]
        return {"u": u + 0.25 * (along * along) + 0.5 * along, "c": c + (c[0, 1] - u) ** 2}

    named = [n for n in nodes(*alike(roots(rule))) if isinstance(n, Operation) and n.name == "sub"]
    assert len(named) == 1


def test_the_sign_of_a_difference_is_kept_where_it_counts():
    u, v = Access("u", 0, (0, 0)), Access("u", 0, (0, 1))
    for kept in (operation("sub", u, v), operation("min", v, u), operation("div", v, u)):
        assert alike([operation("add", kept, Constant(1.0))])[0].operands[0] == kept


def test_different_values_keep_their_order():
    u, c = Access("u", 0, (0, 5)), Access("c", 0, (0, 0))
    for name in ("add", "mul"):
        assert alike([operation(name, u, c), operation(name, c, u)]) == (
            operation(name, u, c),
            operation(name, c, u),
        )


def roots(rule):
    return [contract(assignment.expression) for assignment in rule.trace(2).assignments]
