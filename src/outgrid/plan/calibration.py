"""Measured rates of one kernel, as a value that a plan is made from."""

from __future__ import annotations

from functools import cached_property

import msgspec

from outgrid.plan.cost import slabbed_rate
from outgrid.plan.model import MOST_GROUP, Tile

DISTURBING_SHARE = 0.1  # of the processors, taken by other programs
ALIKE = 0.97  # of the best rate, which is within what rates differ by from one time to the next


class Sample(msgspec.Struct, frozen=True):
    """Updates per second of diamonds of ``levels`` levels, ``planes`` per step of the front.

    Measured with a front that is not broken by slabs. ``levels`` 1 stands for the plain sweep,
    ``columns`` 0 for whole rows, ``band`` 0 for all rows of a diamond at once. Rows were updated in
    ``group`` planes at once, at most, with edges fetched or stored past the caches, as in a `Tile`.
    """

    levels: int
    planes: int
    updates_per_second: float
    columns: int = 0
    band: int = 0
    group: int = MOST_GROUP
    fetch: bool = False
    stream: bool = False
    border_seconds: float | None = None  # of this tile, where it was measured over thin slabs

    def rate(self, depth: int) -> float:
        """Updates per second in sweeps of ``depth`` steps.

        A diamond is two times ``levels`` high; a sweep less deep fills that share of it.
        """
        if self.levels == 1:
            return self.updates_per_second
        return self.updates_per_second * min(1.0, depth / (2 * self.levels))


class Calibration(msgspec.Struct, frozen=True, dict=True):
    """What was measured of a kernel on rows like those of the problem, with the plan's threads.

    Over slabs of n planes one update takes ``border_seconds / n`` more than on an unbroken front:
    at every border each level meets planes that have left the cache. None where not measured.
    It is that of diamonds which have none of their own.

    A ``patient`` one is of more tiles and repetitions. Meanwhile other programs took
    ``others_share`` of the processors.
    """

    samples: tuple[Sample, ...]
    border_seconds: float | None = None
    patient: bool = False
    others_share: float = 0.0

    @property
    def disturbed(self) -> bool:
        """Whether other programs took so much that the rates are what they left over."""
        return self.others_share >= DISTURBING_SHARE

    def replaces(self, before: Calibration | None) -> bool:
        """Whether it is to be kept in place of what was measured ``before``."""
        if before is None or not self.disturbed:
            return True
        return before.disturbed and self.others_share <= before.others_share

    def border(self, sample: Sample) -> float | None:
        """What a border between slabs costs a tile, in seconds.

        A plain sweep begins each step anew there, so diamonds do not tell what it costs: one that
        has no measurement of its own has the largest that was measured of others.
        """
        if sample.border_seconds is not None:
            return sample.border_seconds
        if sample.levels > 1:
            return self.border_seconds
        plain = (s.border_seconds for s in self.samples if s.levels == 1)
        return max((border for border in plain if border is not None), default=None)

    def best(self, depth: int, slab: int | None = None) -> Sample | None:
        """The fastest tile for sweeps of ``depth`` steps, None where nothing fits was measured.

        Over slabs of ``slab`` planes, or on a front that is not broken. A sweep of several steps
        may go level by level too, at the rate of the plain sweep but for borders: so do stencils of
        very many operations, which memory does not hold up. It stores nothing past the caches, and
        is not compared over slabs where borders were measured of diamonds alone. Of tiles that are
        about as fast over slabs it is the one of the fewest levels: transfers take some of the
        caches from it, which no measurement knows.
        """
        if depth < 2:
            return self.plain(alone=True)
        told = slab is None or self.border_seconds is None
        fitting = [s for s in self.samples if not s.stream and (told or self.border(s) is not None)]
        rates = {sample: self.rate(sample, depth, slab) for sample in fitting}
        fastest = max(fitting, key=rates.__getitem__, default=None)
        if fastest is None or slab is None or fastest.levels == 1:
            return fastest
        alike = (s for s in fitting if s.levels > 1 and rates[s] >= ALIKE * rates[fastest])
        return min(alike, key=lambda sample: (sample.levels, -rates[sample]))

    @cached_property
    def _plain(self) -> Sample | None:
        """The fastest plain sweep that may be one of several, which each rate is compared with."""
        return self.plain(alone=False)

    def plain(self, alone: bool) -> Sample | None:
        """The fastest plain sweep, None where none was measured.

        What it stores past the caches is far for another step, so that is for steps ``alone``.
        """
        fitting = [s for s in self.samples if s.levels == 1 and (alone or not s.stream)]
        return max(fitting, key=lambda sample: sample.updates_per_second, default=None)

    def rate(
        self, sample: Sample, depth: int, slab: int | None = None, unknown: float = 0.0
    ) -> float:
        """Updates per second of a tile over slabs of ``slab`` planes, or on an unbroken front.

        ``unknown`` is what a border costs where none was measured. Sweeps of one step have none.
        """
        rate = self._unbroken(sample, depth)
        if slab is None or depth == 1:
            return rate
        border = self.border(sample)
        return slabbed_rate(rate, unknown if border is None else border, slab)

    def _unbroken(self, sample: Sample, depth: int) -> float:
        """The rate of a tile on an unbroken front.

        Diamonds of H levels were measured in sweeps of 2*H steps. A sweep of d steps has d/H + 1
        rows of them, and each row passes through the whole grid: so many passes fewer per step. A
        pass costs no less than what the plain sweep, which makes one per step, takes longer; and
        those of the measurement took no longer than the measurement.
        """
        rate, measured, plain = sample.rate(depth), 2 * sample.levels, self._plain
        if sample.levels == 1 or depth <= measured or plain is None:
            return rate
        seconds = 1 / rate
        longer = max(0.0, 1 / plain.updates_per_second - seconds)
        pass_seconds = min(longer, seconds / (1 / sample.levels + 1 / measured))
        return 1 / (seconds - pass_seconds * (1 / measured - 1 / depth))

    def of(self, levels: int, tile: Tile) -> Sample | None:
        """The sample of one tile of so many levels, if it was measured."""

        def about(of: Sample | Tile) -> tuple[int | bool, ...]:
            return of.planes, of.columns, of.band, of.group, of.fetch, of.stream

        same = (s for s in self.samples if s.levels == levels and about(s) == about(tile))
        return next(same, None)
