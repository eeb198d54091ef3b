"""A calibration chooses tiles by what a sweep can fill of them."""

import pytest

from outgrid.plan.calibration import Calibration, Sample
from outgrid.plan.model import Tile

MEASURED = Calibration((Sample(1, 2, 1e9), Sample(4, 4, 2e9), Sample(16, 4, 3e9)))


@pytest.mark.parametrize(("depth", "levels"), [(1, 1), (2, 1), (8, 4), (24, 16), (64, 16)])
def test_the_fastest_tile_that_a_sweep_fills(depth, levels):
    best = MEASURED.best(depth)
    assert best is not None
    assert best.levels == levels


def test_deeper_sweeps_are_never_slower():
    rates = [MEASURED.best(depth).rate(depth) for depth in range(2, 65)]
    assert rates == sorted(rates)
    assert rates[0] < rates[-1] == 3e9


def test_a_deeper_sweep_spares_passes():
    slow, fast = MEASURED.samples[1:]
    # Of 4 levels: 8 steps in 3 passes, 12 in 4, 96 in 25; a pass costs the 0.5 ns that plain is
    # slower by.
    for depth, passes in ((8, 3), (12, 4), (96, 25)):
        seconds = 1 / 2e9 - 0.5e-9 * (3 / 8 - passes / depth)
        assert MEASURED.rate(slow, depth) == pytest.approx(1 / seconds)
    assert MEASURED.rate(fast, 33) > MEASURED.rate(fast, 32) == 3e9
    assert MEASURED.rate(MEASURED.samples[0], 96) == 1e9
    # Nothing is known of a pass that took no longer, and no measurement was all passes and more.
    for plain, least in ((2e9, 2e9), (1e3, 2e9 * 1.44)):
        other = Calibration((Sample(1, 2, plain), slow))
        assert other.rate(slow, 96) == pytest.approx(least)


def test_thin_slabs_prefer_a_tile_whose_borders_cost_less():
    wide = Sample(16, 8, 3.2e9, band=15, border_seconds=2e-9)
    calibration = Calibration((*MEASURED.samples, wide), 0.5e-9)
    assert calibration.best(64) == calibration.best(64, 200) == wide
    assert calibration.best(64, 8) == Sample(16, 4, 3e9)
    assert (calibration.border(wide), calibration.border(MEASURED.samples[1])) == (2e-9, 0.5e-9)


def test_of_tiles_that_are_alike_over_slabs_the_smaller_one_is_taken():
    small, large = Sample(8, 4, 2.95e9), Sample(16, 4, 3e9)
    calibration = Calibration((Sample(4, 4, 2.8e9), small, large), 0.1e-9)
    assert calibration.best(64, 8) == small
    assert calibration.best(64) == large  # nothing is moved meanwhile
    plain = Calibration((Sample(1, 4, 2.99e9, border_seconds=0.1e-9), large), 0.1e-9)
    assert plain.best(64, 8) == large


def test_level_by_level_borders_cost_too():
    plain = Sample(1, 4, 3.1e9, border_seconds=1e-9)
    calibration = Calibration((plain, Sample(16, 4, 3e9, border_seconds=0.1e-9)), 0.1e-9)
    assert calibration.best(64) == calibration.best(1, 8) == plain
    assert calibration.rate(plain, 1, 8) == 3.1e9
    assert calibration.best(64, 8) == Sample(16, 4, 3e9, border_seconds=0.1e-9)


def test_plain_sweeps_do_not_have_the_border_of_diamonds():
    plain, pairs = Sample(1, 4, 3.1e9, border_seconds=1e-9), Sample(1, 4, 3.05e9, group=2)
    diamond = Sample(16, 4, 3e9, border_seconds=0.1e-9)
    calibration = Calibration((plain, pairs, diamond), 0.1e-9)
    assert calibration.border(pairs) == 1e-9
    assert calibration.best(64, 8) == diamond
    untold = Calibration((pairs, diamond), 0.1e-9)
    assert untold.border(pairs) is None
    assert untold.best(64, 8) == diamond
    assert untold.best(64) == untold.best(1, 8) == pairs


def test_what_is_stored_past_the_caches_is_for_steps_alone():
    stream, plain = Sample(1, 4, 3.2e9, stream=True), Sample(1, 4, 2e9)
    calibration = Calibration((stream, plain, Sample(16, 4, 3e9)))
    assert calibration.best(64) == Sample(16, 4, 3e9)
    assert calibration.best(1) == calibration.plain(alone=True) == stream
    assert calibration.plain(alone=False) == plain


def test_nothing_measured_nothing_chosen():
    assert Calibration(()).best(8) is None
    assert MEASURED.of(16, Tile("diamond", 32, 4)) == Sample(16, 4, 3e9)
    assert MEASURED.of(16, Tile("diamond", 32, 8)) is None
    assert MEASURED.of(16, Tile("diamond", 32, 4, group=2)) is None
