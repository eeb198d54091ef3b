"""Who lends how much, and where bytes lie: every byte once, in the order that was asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outgrid.errors import InfeasiblePlan
from outgrid.remote.placement import cut, shares, spread

BLOCK = 64
OFFERS = st.lists(st.integers(0, 40 * BLOCK), min_size=1, max_size=5)


@given(OFFERS, st.integers(1, 60 * BLOCK), st.sampled_from(["cyclic", "contiguous"]), st.data())
def test_every_byte_has_one_place(offers, needed, placement, data):
    room = sum(offer // BLOCK for offer in offers)
    if -(-needed // BLOCK) > room:
        with pytest.raises(InfeasiblePlan, match=f"{len(offers)} nodes lend"):
            shares(needed, offers, BLOCK)
        return
    amounts = shares(needed, offers, BLOCK)
    assert sum(amounts) == -(-needed // BLOCK) * BLOCK
    assert all(amount <= offer for amount, offer in zip(amounts, offers, strict=True))
    parts = spread(amounts, placement, BLOCK)
    where = np.concatenate([rank * 10**6 + place + np.arange(n) for n, rank, place in parts])
    assert len(set(where.tolist())) == len(where) == sum(amounts)
    first = data.draw(st.integers(0, needed))
    last = data.draw(st.integers(first, needed))
    inside = cut(parts, first, last)
    found = [rank * 10**6 + place + np.arange(n) for n, rank, place in inside]
    assert np.concatenate([*found, np.empty(0, int)]).tolist() == where[first:last].tolist()


def test_shares_are_as_even_as_offers_allow():
    assert shares(10 * BLOCK, [100 * BLOCK] * 2, BLOCK) == [5 * BLOCK, 5 * BLOCK]
    assert shares(10 * BLOCK, [2 * BLOCK, 100 * BLOCK, BLOCK - 1], BLOCK) == [
        2 * BLOCK,
        8 * BLOCK,
        0,
    ]
