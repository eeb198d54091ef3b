from hypothesis import given

from outgrid.codegen.interleave import interleaved, longest_chain, most_live, varying
from outgrid.definition import stencil
from outgrid.stencil.contract import contract
from outgrid.stencil.expression import Access, Operation
from outgrid.testing.strategies import stencils


def roots(rule):
    return [contract(each.expression) for each in rule.assignments]


@given(stencils())
def test_everything_that_varies_is_ordered_once_after_its_operands(rule):
    order = interleaved(roots(rule))
    needed = varying(roots(rule))
    assert len(order) == len(needed)
    assert set(order) == set(needed)
    place = {node: at for at, node in enumerate(order)}
    for node in order:
        if isinstance(node, Operation):
            assert all(place[o] < place[node] for o in node.operands if o in place)


def row_of(count):
    """A chain of weighted sums along x."""

    def rule(u):
        total = 0.5 * u[0, 0]
        for x in range(1, count):
            total = total + (x + 0.25) * u[0, x]
        return total

    return contract(stencil(name="row")(rule).trace(2).assignments[0].expression)


def test_rows_that_read_the_same_values_advance_side_by_side():
    def shifted(expression, along):
        if isinstance(expression, Access):
            y, x = expression.offset
            return Access(expression.field, expression.level, (y, x + along))
        if isinstance(expression, Operation):
            return Operation(expression.name, tuple(shifted(o, along) for o in expression.operands))
        return expression

    rows = [shifted(row_of(12), along) for along in range(4)]
    assert longest_chain(rows[0]) == 12
    # A sum per row and few values that are being added; one after the other they would need
    # all 15 values at once, or load each of them up to four times.
    assert most_live(interleaved(rows), rows) < 8
