"""Cuts and depths of clusters, against sizes that a paper found for its own."""

import itertools

import pytest

from outgrid.errors import InfeasiblePlan
from outgrid.machine import Network
from outgrid_bench.cluster import (
    Cluster,
    Cut,
    Extent,
    GridSize,
    Node,
    Part,
    block_core,
    choose,
    disk_bytes,
    part_of,
    powers,
    price,
)

GIB = 1 << 30
NODE = Node(0.8e9, 96 * 10**9, 153 * GIB, 0.3e9, 0.26e9, Network(3e9, 5e-6))
CUBE, CUBOID = GridSize((4096, 4096, 4094), 256), GridSize((16384, 2048, 2046), 256)


@pytest.mark.parametrize(
    ("grid", "cut", "depth", "gib"),
    [
        (CUBE, Cut(2, 4), 32, 140.6),
        (CUBE, Cut(2, 4), 64, 153.4),
        (CUBOID, Cut(1, 8), 128, 144.3),
    ],
)
def test_a_part_takes_as_much_flash_as_published(grid, cut, depth, gib):
    assert disk_bytes(grid, cut, depth) / GIB == pytest.approx(gib, abs=0.05)


@pytest.mark.parametrize("free", [False, True], ids=["cut given", "cut chosen"])
@pytest.mark.parametrize("rate", [0.4e9, 0.8e9, 1.6e9])
@pytest.mark.parametrize(
    ("grid", "cut", "depth"), [(CUBE, Cut(2, 4), 32), (CUBOID, Cut(1, 8), 128)]
)
def test_the_published_depths_are_found_among_powers_of_two(grid, cut, depth, rate, free):
    node = Node(rate, NODE.memory_bytes, NODE.disk_bytes, 0.3e9, 0.26e9, NODE.network)
    choice = choose(grid, Cluster(8, node), "blocks", () if free else (cut,))
    assert (choice.cut, choice.depth) == (cut, depth)
    assert f"depth {2 * depth}: " in choice.why[1]
    assert "of 153.0 GiB" in choice.why[1]


def test_fewer_than_seven_nodes_are_impossible_as_published():
    for count in range(1, 7):
        with pytest.raises(InfeasiblePlan, match=f"fits {count} nodes: .* of 153.0 GiB"):
            choose(CUBE, Cluster(count, NODE), "blocks")
    assert choose(CUBE, Cluster(7, NODE), "blocks").depth == 8


def test_the_largest_block_that_fits_is_the_published_one():
    part = part_of(CUBE, Cut(2, 4))
    assert block_core(part, 32, NODE.memory_bytes) == (512, 1024)


def counted_updates(part: Part, depth: int) -> int:
    return part.x * sum(
        part.z.held(depth - step) * part.y.held(depth - step) for step in range(1, depth + 1)
    )


@pytest.mark.parametrize(
    ("z", "y"), [*itertools.product([Extent(9, 0), Extent(7, 1), Extent(12, 2)], repeat=2)]
)
def test_updates_are_those_counted_step_by_step(z, y):
    part = Part(z, y, 5, 8)
    for depth in (1, 2, 6):
        assert part.updates(depth) == counted_updates(part, depth)


def test_blocks_of_a_part_cover_it_and_meet_its_halos_at_its_ends():
    part = Part(Extent(10, 1), Extent(4, 2), 3, 8)
    blocks = list(part.blocks((4, 4)))
    assert [block.z.cells for block in blocks] == [4, 4, 2]
    assert sum(block.written_bytes for block in blocks) == part.written_bytes
    assert [block.z.halos for block in blocks] in ([1, 2, 2], [2, 2, 1])
    assert {block.y.halos for block in blocks} == {2}


def test_what_one_node_sends_another_receives():
    grid, cut, depth = GridSize((64, 48, 10), 8), Cut(3, 4), 4
    assert part_of(grid, cut, (0, 0)).exchanged_bytes(depth) < part_of(
        grid, cut, (1, 1)
    ).exchanged_bytes(depth)
    assert part_of(grid, cut, (1, 1)) == part_of(grid, cut)
    assert part_of(grid, Cut(1, 1)).exchanged_bytes(depth) == 0


def test_what_does_not_fit_is_refused_with_its_bound():
    small = Cluster(8, Node(1e9, 10**9, 100 * GIB, 1e9, 1e9, Network()))
    with pytest.raises(InfeasiblePlan, match=r"depth 1: .* of 100\.0 GiB"):
        choose(CUBE, small, "blocks", (Cut(2, 4),))
    roomy = Cluster(8, Node(1e9, 10**9, 1 << 60, 1e9, 1e9, Network()))
    assert "a window of" in str(price(CUBE, roomy, Cut(1, 8), 64, "stream"))
    assert "fewer than its neighbour's halo" in str(
        price(GridSize((64, 64, 64), 64), roomy, Cut(1, 8), 16, "stream")
    )


def test_depths_that_are_tried_are_powers_of_two():
    assert powers(1) == (1,)
    assert powers(256) == (1, 2, 4, 8, 16, 32, 64, 128, 256)
    assert powers(100)[-1] == 64
