import pytest

from outgrid.probe.caches import Point, find_caches

MIB = 1 << 20


def curve(rates: dict[float, float]) -> list[Point]:
    return [Point(int(size * MIB), rate) for size, rate in rates.items()]


STEPS = {0.25: 100.0, 0.5: 100.0, 1: 100.0, 2: 50.0, 4: 50.0, 8: 50.0, 16: 10.0, 32: 10.0}


def test_caches_end_where_the_rate_falls_through_the_mean():
    found = find_caches(curve(STEPS), l2_bytes=1 * MIB, memory_rate=10.0)
    assert found.l2_rate == 100
    assert found.l3_rate == 50
    assert 1 * MIB < found.l2_bytes < 2 * MIB
    assert found.l3_bytes == pytest.approx(8 * MIB * 2**0.5)


def test_a_disturbed_point_changes_nothing():
    disturbed = STEPS | {0.5: 20.0, 4: 5.0}
    assert find_caches(curve(disturbed), MIB, 10.0) == find_caches(curve(STEPS), MIB, 10.0)


def test_a_cache_claimed_but_not_seen_is_not_counted():
    found = find_caches(curve({0.5: 100.0, 1: 100.0, 2: 11.0, 4: 10.0, 8: 10.0}), MIB, 10.0)
    assert found.l3_bytes == found.l2_bytes
    assert found.l3_rate == found.l2_rate


def test_a_cache_larger_than_every_set_is_as_large_as_the_largest():
    found = find_caches(curve({0.5: 100.0, 1: 100.0, 2: 50.0, 4: 50.0}), MIB, 10.0)
    assert found.l3_bytes == 4 * MIB


def test_few_points_still_give_an_answer():
    found = find_caches(curve({0.125: 100.0}), MIB, 10.0)
    assert found.l2_bytes == found.l3_bytes == MIB // 8
