"""Blocks of several vectors: only for long chains, and with their repetitions found."""

import itertools

from outgrid.codegen.block import LEAST_PLANES, block, block_vectors, runs
from outgrid.definition import stencil
from outgrid.stencil.catalog import resolve
from outgrid.stencil.contract import contract
from outgrid.stencil.expression import Access, nodes, substitute


def weighted(u, *reach):
    """The sum over a box, all weights different."""
    offsets = list(itertools.product(*(range(-r, r + 1) for r in reach)))
    total = 0.9 * u[offsets[0]]
    for number, offset in enumerate(offsets[1:]):
        total = total + u[offset] * (1 + 0.01 * number)
    return total / len(offsets)


@stencil(ndim=2)
def mask(u):
    return weighted(u, 5, 5)


@stencil(ndim=3)
def cube(u, c, *, k):
    return u - u.previous + k * c[0, 1, 20] * weighted(u, 2, 1, 2)


def planes_of(rule, count):
    """The new values of ``count`` neighbouring planes."""
    root = contract(rule.assignments[0].expression)
    moves = [
        {
            node: Access(node.field, node.level, (node.offset[0] + plane, *node.offset[1:]))
            for node in nodes(root)
            if isinstance(node, Access)
        }
        for plane in range(count)
    ]
    return [substitute(root, dict(move)) for move in moves]


def test_only_long_chains_are_worth_a_block():
    assert block_vectors(planes_of(mask.trace(2), 4)) > 1
    assert block_vectors(planes_of(cube.trace(3), 4)) > 1
    for name in ("heat5", "heat7", "box27", "wave:8"):
        rule = resolve(name)
        assert block_vectors(planes_of(rule.trace(2 if name == "heat5" else 3), 4)) == 1


def test_planes_in_the_middle_of_a_mask_are_one_loop():
    found = block(planes_of(mask.trace(2), 4), lambda _: "", repr)
    cut = list(runs(found.statements))
    (loop,) = [run for run in cut if len(run.planes) >= LEAST_PLANES]
    # Plane -1 is the first after all four sums have begun, plane 5 ends one of them.
    assert [plane for _, _, plane in loop.planes] == list(range(-1, 5))
    # Every statement is in one run or in a turn of the loop, and none is lost.
    turns = [len(run.statements) * max(1, len(run.planes)) for run in cut]
    assert sum(turns) == len(found.statements)
