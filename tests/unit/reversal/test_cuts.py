"""Cuts of a gradient: every step goes back once, and begins at the same steps in all strategies."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from outgrid.reversal.cuts import Cuts, most_kept, steps_forward


@st.composite
def cuts(draw):
    steps = draw(st.integers(1, 60))
    added = draw(st.sets(st.integers(1, steps), max_size=4))
    every = draw(st.integers(1, min(4, steps)))
    chunk = every * draw(st.integers(1, steps // every))
    longest = draw(st.none() | st.integers(1, 3).map(lambda count: count * chunk))
    return Cuts(steps, chunk, tuple(sorted(added)), longest, every)


def made(cuts, first, last, lengths, runs):
    """The runs back from `last` to `first`, as a gradient makes them."""
    if not lengths:
        runs += cuts.pieces(first, last)
        return
    starts = (*cuts.starts(first, last, lengths[0]), last)
    for low, high in reversed(list(pairwise(starts))):
        made(cuts, low, high, lengths[1:], runs)


@given(cuts(), st.integers(0, 3))
def test_all_steps_go_back_once_from_the_last_to_the_first(cuts, levels):
    runs, steps = [], []
    made(cuts, 0, cuts.steps, cuts.lengths(levels), runs)
    assert all(run.high == below.low for run, below in zip(runs[1:], runs, strict=False))
    for run in runs:
        for low in run.firsts:
            steps += reversed(range(low, low + run.chunk))
        assert not any(run.low < step < run.high for step in cuts.added)
    assert steps == list(reversed(range(cuts.steps)))


@given(cuts(), st.integers(1, 3))
def test_strategies_go_back_in_the_same_chunks(cuts, levels):
    chunks = []
    for lengths in ((), cuts.lengths(levels)):
        runs = []
        made(cuts, 0, cuts.steps, lengths, runs)
        chunks.append([(low, run.chunk) for run in runs for low in run.firsts])
    assert chunks[0] == chunks[1]


@given(cuts(), st.integers(0, 3), st.integers(1, 20))
def test_histories_and_chunks_begin_at_states_that_are_kept(cuts, levels, length):
    for lengths in (cuts.lengths(levels), (length,)):
        first, last = 0, cuts.steps
        for length in lengths:
            starts = cuts.starts(first, last, length)
            assert not any(start % cuts.every for start in starts)
            first, last = starts[-1], cuts.steps
    assert not any(low % cuts.every for low, _ in cuts.parts(0, cuts.steps))
    for run in cuts.pieces(0, cuts.steps):
        assert len(run.firsts) == 1 or not any(low % cuts.every for low in run.firsts)


@given(cuts(), st.integers(0, 3))
def test_each_level_makes_the_steps_once_more_at_most(cuts, levels):
    lengths = cuts.lengths(levels)
    assert cuts.steps <= steps_forward(cuts, lengths) <= (levels + 1) * cuts.steps
    kept, history = most_kept(cuts, lengths)
    assert 1 <= history <= cuts.steps
    assert kept <= (levels > 0) * cuts.steps * levels
