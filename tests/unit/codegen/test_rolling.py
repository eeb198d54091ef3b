from hypothesis import given

from outgrid.codegen.rolling import carried, families
from outgrid.definition import stencil
from outgrid.stencil.alike import alike
from outgrid.stencil.catalog import resolve
from outgrid.stencil.contract import contract
from outgrid.stencil.expression import Access, Operation, accesses, nodes, operation, substitute
from outgrid.testing.strategies import stencils


def roots(rule):
    return [contract(each.expression) for each in rule.assignments]


def moved(expression, along, axis=-1):
    """The expression `along` cells further in x, or along another axis."""

    def place(offset):
        at = list(offset)
        at[axis] += along
        return tuple(at)

    places = {
        node: Access(node.field, node.level, place(node.offset))
        for node in nodes(expression)
        if isinstance(node, Access)
    }
    return substitute(expression, places)


def test_families_are_found_by_looking_at_each_part_a_few_times(monkeypatch):
    """Not at all below it for each, which takes the square of the time."""

    def looked_at(count):
        total = Access("u", 0, (0, 0, 0))
        for row in range(count):
            square = operation("mul", Access("u", 0, (0, row, 0)), Access("u", 0, (0, row, 1)))
            total = operation("add", total, square)
        calls = 0

        def counted(node):
            nonlocal calls
            calls += 1
            return hash_of(node)

        hash_of = Operation.__hash__
        with monkeypatch.context() as patch:
            patch.setattr(Operation, "__hash__", counted)
            families([total])
        return calls

    assert looked_at(400) < 6 * looked_at(100)


@given(stencils())
def test_every_cut_is_the_value_of_its_family_moved_along_x(rule):
    for family in families(roots(rule)):
        assert family.cuts
        for node, cut in family.cuts.items():
            assert moved(family.expression, cut) == node


@given(stencils())
def test_cuts_are_parts_of_the_expressions_and_none_holds_another(rule):
    wanted = roots(rule)
    parts = {node for root in wanted for node in nodes(root)}
    cut = [node for family in families(wanted) for node in family.cuts]
    assert parts.issuperset(cut)
    assert len(cut) == len(set(cut))


def test_a_box_by_columns_rolls_its_outer_column_while_the_middle_one_waits_as_one_value():
    (wanted,) = roots(resolve("box27").trace(3))
    outer, middle = families([wanted])
    assert sorted(outer.cuts.values()) == [-1, 1]
    assert middle.cuts == {middle.expression: 0}
    assert {access.offset[-1] for access in accesses(middle.expression)} == {0}
    assert len(accesses(middle.expression)) == 9


def test_plain_values_are_cut_where_there_are_many():
    (family,) = families(roots(resolve("wave:8").trace(3)))
    assert isinstance(family.expression, Access)
    assert sorted(family.cuts.values()) == list(range(-4, 5))


def test_the_same_part_in_two_fields_is_two_values():
    @stencil
    def rule(u, v):
        return (u[0, -1] + u[1, -1] * u[0, -1]) - (v[0, 1] + v[1, 1] * v[0, 1]), v

    assert families(roots(rule.trace(2))) == ()


def test_a_value_that_is_used_again_and_again_is_looked_at_once():
    @stencil
    def rule(u):
        value = u[0, 1] - u[0, -1]
        for _ in range(60):  # written out, the last one would have 2**60 parts
            value = value * value + 0.5 * value
        return value

    assert families(roots(rule.trace(2))) == ()


@given(stencils(ndim=3))
def test_what_a_row_carries_is_what_the_next_one_would_make(rule):
    wanted = roots(rule)
    parts = {node for root in wanted for node in nodes(root)}
    for value in carried(wanted):
        assert moved(value.made, -1, axis=1) == value.used
        assert {value.made, value.used} <= parts


def test_flows_through_the_faces_between_rows_are_carried():
    @stencil
    def rule(u, *, k):
        def flow(*face):
            size = u[face] - u
            square = size * size
            return size / (1 + k * square + square * square * (k + square * square))

        return u + flow(0, 1, 0) + flow(0, -1, 0) + flow(1, 0, 0) + flow(-1, 0, 0) + u[0, 0, 1]

    made = alike(roots(rule.trace(3)))
    (value,) = carried(made)
    assert moved(value.made, -1, axis=1) == value.used
    assert {access.offset for access in accesses(value.made)} == {(0, 0, 0), (0, 1, 0)}
    assert value.used in set(nodes(*made))
    assert carried(alike(roots(resolve("box27").trace(3)))) == ()
