"""The steps at which a gradient is cut into runs forward and back. Integers alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

__all__ = ["Cuts", "Piece", "most_kept", "steps_forward"]


class Piece(msgspec.Struct, frozen=True):
    """A run back in time, from step `high` to `low`, `chunk` steps in each of its own."""

    low: int
    high: int
    chunk: int

    @property
    def firsts(self) -> range:
        """The steps that each of its steps goes back to."""
        return range(self.high - self.chunk, self.low - 1, -self.chunk)


class Cuts(msgspec.Struct, frozen=True):
    """Runs back in time begin at the steps `added`, where an objective looks at whole fields, and
    go `chunk` steps at once from there to the next one below, as far as these fit. No run makes
    many more than `longest` steps, if that is given: a multiple of `chunk`. Of the forward run the
    states of steps that are multiples of `every` are kept, and `chunk` is one. Chunks and histories
    begin at such states, so what a step reads depends on the step alone."""

    steps: int
    chunk: int
    added: tuple[int, ...] = ()
    longest: int | None = None
    every: int = 1

    def _kept(self, step: int) -> int:
        """The first state from a step on that is kept."""
        return -(-step // self.every) * self.every

    @property
    def begins(self) -> tuple[int, ...]:
        """The steps from which on whole chunks go back to those that are `added`."""
        return tuple(map(self._kept, self.added))

    def _intervals(self) -> list[tuple[int, int]]:
        ends = sorted({0, self.steps, *self.added})
        return list(pairwise(ends))

    def pieces(self, first: int, last: int) -> Iterator[Piece]:
        """The runs back from step `last` to `first`, which is one that `starts` has."""
        for low, high in reversed(self._intervals()):
            low, high = max(low, first), min(high, last)
            if low >= high:
                continue
            begin = min(high, self._kept(low))
            whole = begin + (high - begin) // self.chunk * self.chunk
            if whole < high:
                yield Piece(whole, high, high - whole)
            most = self.longest or self.steps * self.chunk
            for end in range(whole, begin, -most):
                yield Piece(max(begin, end - most), end, self.chunk)
            if low < begin:
                yield Piece(low, begin, begin - low)

    def parts(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The first and the last step of each run that makes the steps from `first` to `last`."""
        starts = self.starts(first, last, self.longest) if self.longest else (first,)
        return pairwise((*starts, last))

    @property
    def longest_part(self) -> int:
        """The steps of the longest run forward."""
        return max(high - low for low, high in self.parts(0, self.steps))

    def starts(self, first: int, last: int, length: int) -> tuple[int, ...]:
        """Steps at which a state is kept from `first` on, at least `length` of them apart, the last
        one from `last`; after the first there may be fewer."""
        starts = [last]
        for low, high in reversed(self._intervals()):
            for mark in reversed(range(self._kept(low), high, self.chunk)):
                if first < mark <= starts[-1] - length:
                    starts.append(mark)
        return (first, *reversed(starts[1:]))

    def lengths(self, levels: int) -> tuple[int, ...]:
        """Steps between the states that are kept, of so many levels, the first one's first.

        About as many states of each level are on disk at once as there are states of the history.
        """
        base = self.steps ** (1 / (levels + 1))
        every = [math.ceil(base ** (levels - level)) for level in range(levels)]
        return tuple(-(-one // self.chunk) * self.chunk for one in every)

    def longer(self, length: int) -> Iterator[int]:
        """Numbers of steps above `length` that cut all of them in a half, a third and so on."""
        for parts in range(2, self.steps):
            one = math.ceil(self.steps / (parts * self.chunk)) * self.chunk
            if one <= length:
                return
            yield one

    def nearly_all(self) -> Iterator[int]:
        """Nine tenths of the steps, eight, seven and six."""
        for tenths in range(9, 5, -1):
            one = self.steps * tenths // (10 * self.chunk) * self.chunk
            if one > self.steps / 2:
                yield one


def most_kept(cuts: Cuts, lengths: Sequence[int]) -> tuple[int, int]:
    """The most states that are kept at once beside a history, and the longest history."""
    kept, first, last = 0, 0, cuts.steps
    for length in lengths:
        starts = (*cuts.starts(first, last, length), last)
        kept += len(starts) - 1
        spans = list(pairwise(starts))
        first, last = max(spans, key=lambda span: span[1] - span[0])
    return kept, last - first


def steps_forward(cuts: Cuts, lengths: Sequence[int]) -> int:
    """The steps that all runs forward make: the last history of all is kept the first time."""
    return cuts.steps + sum(
        _again(cuts, first, last, lengths[1:], there=last == cuts.steps and len(lengths) == 1)
        for first, last in _spans(cuts, 0, cuts.steps, lengths)
    )


def _again(cuts: Cuts, first: int, last: int, lengths: Sequence[int], *, there: bool) -> int:
    if not lengths:
        return 0 if there else last - first
    spans = _spans(cuts, first, last, lengths)
    below = sum(_again(cuts, *span, lengths[1:], there=False) for span in spans)
    return spans[-1][0] - first + below


def _spans(cuts: Cuts, first: int, last: int, lengths: Sequence[int]) -> list[tuple[int, int]]:
    if not lengths:
        return []
    starts = (*cuts.starts(first, last, lengths[0]), last)
    return list(pairwise(starts))
