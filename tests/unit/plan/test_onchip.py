"""Several levels in one launch: which stencils, in which slabs, cut how."""

import pytest

import outgrid as og
from outgrid.machine import SHARED_BYTES
from outgrid.plan.onchip import ChipTile, Reached, tile_of
from outgrid.stencil.catalog import lookup
from outgrid.stencil.problem import Problem

HEAT = ChipTile(1, 0, 0, (Reached("u", 1, 1),), 8, 64, 8)


def tile(rule, dtype="float64", boundary="dirichlet", shared_bytes=SHARED_BYTES, **others):
    stencil = rule.trace(3)
    initial = dict.fromkeys((field.name for field in stencil.fields), 0.0)
    problem = Problem(rule, (12, 12, 12), dtype, 4, {}, boundary, initial, **others)
    return tile_of(problem, shared_bytes)


@og.stencil(ndim=3)
def stepped(u):
    return u + og.step


@og.stencil(ndim=3)
def far(u):
    return u + u[0, 0, 3]


@og.stencil(ndim=3)
def unread(u):
    return 2 * u


@og.stencil(ndim=3)
def two(u, v):
    return {"u": u + v[1, 0, 0], "v": v + u[-1, 0, 0]}


@og.stencil(ndim=3)
def in_two_stages(u, v):
    return [{"u": u + v[1, 0, 0]}, {"v": v + u}]


def test_tiles_of_the_catalogue():
    assert tile(lookup("heat7")) == HEAT
    assert tile(lookup("heat7"), "float32").block == (64, 16, 1)
    box = tile(lookup("box27"))
    assert (box.first, box.last, box.of_a_warp, box.lag) == (-1, 1, True, 2)
    for one in (HEAT, box, tile(lookup("box27"), "float32")):
        assert one.shared_bytes <= SHARED_BYTES
        assert min(one.stored) > 0


@pytest.mark.parametrize(
    ("kib", "downs"),
    [(227, (8, 16, 16)), (163, (8, 16, 8)), (99, (8, 16, 8)), (64, (4, 8, 4)), (24, (None,) * 3)],
)
def test_tiles_have_fewer_rows_where_a_block_shares_less(kib, downs):
    given = ("heat7", "float64"), ("heat7", "float32"), ("box27", "float64")
    tiles = [tile(lookup(name), dtype, shared_bytes=kib << 10) for name, dtype in given]
    assert tuple(one and one.down for one in tiles) == downs
    assert all(one is None or one.shared_bytes <= kib << 10 for one in tiles)


@pytest.mark.parametrize("rule", [stepped, far, unread, in_two_stages, lookup("wave:4")])
def test_others_are_made_level_by_level(rule):
    assert tile(rule) is None


def test_threads_are_as_many_as_have_registers():
    threads = {dtype: tile(two, dtype) for dtype in ("float32", "float64")}
    assert threads["float64"] is None
    assert threads["float32"].block == (64, 8, 1)
    assert tile(lookup("heat7"), "float32").kept_share == tile(lookup("heat7")).kept_share


def test_images_and_shorter_types_are_made_level_by_level():
    assert tile(lookup("heat7"), boundary={"x": "periodic"}) is None
    assert tile(lookup("heat7"), "float32", dtypes={"u": "float16"}) is None


@pytest.mark.parametrize(
    ("ranges", "planes", "together"),
    [
        ([(8, 17), (7, 16), (6, 15)], 40, True),
        ([(0, 17), (0, 16), (0, 15)], 40, True),
        ([(1, 17), (0, 16), (0, 15)], 40, True),
        ([(30, 40), (29, 40), (28, 40)], 40, True),
        ([(30, 40), (29, 39), (28, 38)], 40, True),
        ([(0, 40), (0, 40), (0, 40)], 40, True),
        ([(8, 17), (6, 15), (4, 13)], 40, False),  # a slope of 2
        ([(8, 17), (9, 18), (10, 19)], 40, False),  # planes that fall
        ([(8, 17), (8, 17), (8, 17)], 40, False),
        ([(8, 17), (7, 17), (6, 17)], 40, False),
    ],
)
def test_levels_that_make_a_chain(ranges, planes, together):
    assert HEAT.chain([range(*one) for one in ranges], planes) == together


@pytest.mark.parametrize(
    ("planes", "tiles"), [(512, 720), (1024, 180), (24, 180), (3, 1), (400, 1)]
)
def test_parts_are_thick_enough_and_keep_processors_busy(planes, tiles):
    parts = HEAT.parts(planes, tiles, 132)
    deep = -(-planes // parts)
    assert parts == 1 or deep >= 2 * HEAT.halo
    if planes == 400:  # one tile alone would leave all processors but one idle
        assert parts > 10
