from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrid.codegen.vanishing import vanished
from outgrid.stencil.expression import (
    Access,
    Constant,
    Operation,
    Profile,
    evaluate,
    flops,
    operation,
)

U, V, GONE = (Access(name, 0, (0, 0, 0)) for name in ("u", "v", "gone"))
ENDS = Profile("ends", 0)
ZERO = Constant(0.0)


def vanishes(leaf):
    return leaf in (GONE, ENDS)


def left(expression, dtype="float64"):
    return vanished([expression], vanishes, dtype)[0]


def numbers(dtype):
    """Of each kind some, all pairs of them."""
    least, most = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max
    some = [0.0, 1.0, 1.5, float(least), float(least) * 3, float(most), np.inf]
    both = np.array([*some, *(-one for one in some), np.nan], dtype)
    return np.array([*product(both, both)], dtype).T


def values(expression, dtype):
    u, v = numbers(dtype)

    def leaf(node):
        if isinstance(node, Constant):
            return np.full_like(u, node.value)
        return {U: u, V: v, GONE: np.zeros_like(u), ENDS: np.zeros_like(u)}[node]

    with np.errstate(all="ignore"):
        return np.broadcast_to(evaluate(expression, leaf), u.shape)


leaves = st.sampled_from(
    [U, V, GONE, GONE, ENDS, ZERO, Constant(-0.0), Constant(1.5), Constant(-2.0)]
)


def compound(some):
    conditions = st.builds(operation, st.sampled_from(["lt", "le", "eq"]), some, some)
    conditions |= st.builds(operation, st.sampled_from(["and", "or"]), conditions, conditions)
    pairs = st.sampled_from(["add", "add", "sub", "mul", "min"])
    return (
        st.builds(lambda name, a, b: Operation(name, (a, b)), pairs, some, some)
        | st.builds(lambda *given: Operation("fma", given), some, some, some)
        | st.builds(lambda a: Operation("neg", (a,)), some)
        | st.builds(lambda *given: Operation("where", given), conditions, some, some)
    )


@given(st.recursive(leaves, compound, max_leaves=14), st.sampled_from(["float32", "float64"]))
@settings(deadline=None, max_examples=400)
def test_no_bit_changes_of_any_number(expression, dtype):
    whole, rest = values(expression, dtype), values(left(expression, dtype), dtype)
    kind = f"u{np.dtype(dtype).itemsize}"
    ordinary = ~np.isnan(whole)
    assert (np.isnan(rest) == ~ordinary).all()
    assert (rest.view(kind)[ordinary] == whole.astype(dtype).view(kind)[ordinary]).all()


def add(a, b):
    return operation("add", a, b)


def test_all_zeroes_of_a_sum_are_added_as_one_at_its_end():
    both = add(add(U, GONE), add(V, operation("mul", Constant(3.0), GONE)))
    assert left(both) == add(add(U, V), ZERO)
    assert left(operation("sub", add(U, GONE), V)) == add(operation("sub", U, V), ZERO)


def test_a_zero_that_does_not_count_is_not_added():
    assert left(operation("sub", U, GONE)) == U
    assert left(add(U, operation("mul", Constant(-3.0), GONE))) == U
    assert left(operation("fma", Constant(-3.0), GONE, U)) == U


def test_what_is_not_exact_stays():
    for name in ("mul", "sub"):  # NaN or -0; 0 - u is no -u
        assert left(operation(name, GONE, U)) == operation(name, ZERO, U)
    late = add(U, ZERO)
    assert left(operation("fma", U, V, add(U, GONE))) == operation("fma", U, V, late)
    assert left(operation("sub", V, add(U, GONE))) == operation("sub", V, late)
    assert left(operation("neg", add(U, GONE))) == operation("neg", late)


def test_what_ends_in_a_region_is_chosen_by_place():
    inside = operation("lt", ZERO, ENDS)
    chosen = operation("where", inside, operation("mul", U, V), ZERO)
    assert left(add(V, add(U, chosen))) == add(add(V, U), ZERO)
    other = operation("or", inside, operation("lt", ZERO, Profile("others", 1)))
    assert flops(left(operation("where", other, U, ZERO))) > 0


def test_a_constant_that_is_infinite_in_the_type_is_not_multiplied():
    scaled = operation("mul", Constant(1e300), GONE)
    assert left(scaled, "float64") == ZERO
    assert left(scaled, "float32") != ZERO
