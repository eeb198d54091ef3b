"""Boxes cover some axes once, in order, and end at multiples of a chunk where one fits."""

from itertools import product
from math import prod

from hypothesis import given
from hypothesis import strategies as st

from outgrid.formats import boxes


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 12), st.integers(1, 7)), min_size=1, max_size=3
    ),
    st.integers(1, 300),
)
def test_boxes_cover_all_once_and_cut_chunks_only_if_they_must(axes, cells):
    ranges = [range(first, first + extent) for first, extent, _ in axes]
    chunk = [each for *_, each in axes]
    found = list(boxes(ranges, chunk, cells))
    covered = [cell for box in found for cell in product(*box)]
    assert sorted(covered) == sorted(product(*ranges))
    assert found == sorted(found, key=lambda box: [cells.start for cells in box])
    assert all(prod(map(len, box)) <= cells for box in found)
    if prod(min(a, len(b)) for a, b in zip(chunk, ranges, strict=True)) <= cells:
        for box in found:
            for each, whole, step in zip(box, ranges, chunk, strict=True):
                uncut = len(whole) <= step
                assert each.stop == whole.stop or each.stop % step == 0 or uncut
