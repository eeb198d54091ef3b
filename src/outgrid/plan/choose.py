"""Choosing: scheme, depth, slab and tile from a memory limit and a machine.

Every candidate is sized and priced in closed form and the cheapest that fits is taken, so the
choice can be printed with its reason and tested without a disk.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from outgrid.errors import UsageError
from outgrid.plan.candidate import Candidate, level_of, sized
from outgrid.plan.request import Request
from outgrid.plan.schedule.lifetime import row_unit
from outgrid.plan.sweeps import deepest_of_split
from outgrid.plan.tables import SWEEP_BYTES, unfinished_bytes
from outgrid.plan.tiling import whole_rows
from outgrid.tiers import PASSING_TIERS

# Slabs are sized in bytes per field: below, requests get small; above, memory is better spent on
# depth.
SLAB_BYTES = (1 << 20, 1 << 29)
RESIDENT_SLAB_PLANES = 64
RESIDENT_DEPTH = 128  # steps of the deepest sweeps of a grid in memory: two diamonds of most levels
CUT_SLAB_PLANES = 64  # of strips: beyond, memory is better spent on their height
RESIDENT_SLABS = 8
RESIDENT_SLAB_BYTES = 4 << 30
# Runs tell how far they are, and stop, between two slabs.
RESIDENT_SLAB_SECONDS = 4.0


class Choice:
    """The candidates for a request, and the best of them."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.problem, self.options, self.sizing = request.problem, request.options, request.sizing

    def best(self) -> Candidate | None:
        """The cheapest that fits; None where none does."""
        return self._cheapest(small=False) or self._cheapest(small=True)

    @property
    def goes_on(self) -> bool:
        """Whether a plan may go on at ``begin``, if one of that kind fits."""
        options, begin = self.options, self.request.begin
        if begin is None or self.request.only_resident or not self.request.can_roll:
            return False
        fixed = self.request.scheme.depth
        if begin.depth > min(self.problem.steps, fixed or begin.depth):
            return False
        if options.strip_rows is not None and (options.strip_rows,) != begin.cut:
            return False
        can_cut = self.sizing.can_cut and not self.sizing.streamed.periodic
        if begin.cut and not (can_cut and begin.cut[0] > 0):
            return False
        seams = bool(begin.cut) or self.sizing.streamed.periodic
        strips = self.sizing.strips(begin.depth, self.request.height_begun)
        begun = begin.part < strips.count(begin.depth)
        return begun and not (seams and options.tier in PASSING_TIERS)

    def _cheapest(self, small: bool) -> Candidate | None:
        best: Candidate | None = None
        for candidate in self._candidates(small):
            if self._fits(candidate) and (best is None or candidate.price < best.price * 0.999):
                best = candidate
        return best

    def _fits(self, candidate: Candidate) -> bool:
        """Whether memory and disk have room, and planes that go round are enough."""
        if candidate.needed_bytes > self.request.room:
            return False
        if self.request.accelerator is not None and level_of(self.request, candidate) is None:
            return False
        if not (candidate.schedule.resident or self.goes_round(candidate)):
            return False
        if self.sizing.least_owned(candidate.schedule.depths) > len(self.sizing.owned.planes):
            return False
        disk = self.request.part.disk_bytes if self.request.part is not None else None
        if disk is None:
            return True
        return candidate.traffic.disk_bytes() <= disk

    def goes_round(self, streamed: Candidate) -> bool:
        """Whether a grid that is periodic along the stream has planes enough to be streamed."""
        least = self.sizing.least_planes(streamed.schedule.depths, streamed.schedule.slab_planes)
        return self.problem.shape[0] >= least

    def _candidates(self, small: bool) -> Iterator[Candidate]:
        if self.problem.steps == 0:
            yield sized(self.request, 0, self.slabs()[0], resident=False)
            return
        streamed = self._small_slabs() if small else self.slabs()
        if self.request.part is not None and self.request.part.depths is not None:
            slab = self.request.part.slab or streamed[0]
            yield sized(
                self.request, max(self.request.part.depths, default=0), slab, resident=False
            )
            return
        if self.request.height_begun is not None:
            yield from self._cut_candidates(small)
            return
        if self.request.begin is not None or self.request.part is not None:
            for slab in streamed:
                for depth in self._depths(slab, resident=False):
                    yield sized(self.request, depth, slab, resident=False)
            return
        for resident in self.residencies():
            if not resident:
                yield from self._cut_candidates(small)
            if self.options.strip_rows is None:
                thickest = dict[int, int]()  # slab of each depth
                for slab in self.resident_slabs() if resident else streamed:
                    for depth in self._depths(slab, resident):
                        candidate = sized(self.request, depth, slab, resident)
                        if resident and self._fits(candidate):  # others are not worth pricing
                            candidate = self._prompt(candidate)
                        yield candidate
                        if self._fits(candidate):
                            thickest[depth] = slab
                if not (resident or self.options.slab_planes):
                    yield from filter(None, itertools.starmap(self._thicker, thickest.items()))

    def _cut_candidates(self, small: bool) -> Iterator[Candidate]:
        """Candidates of planes cut into strips; ``small``: also those of small requests."""
        circle = self.sizing.across.periodic
        if not self.sizing.can_cut or (self.request.accelerator is not None and circle):
            return
        asked = self.options.slab_planes
        for slab in [asked] if asked else self._doubling(CUT_SLAB_PLANES) or [1]:
            for candidate in self._cut(slab):
                moved = slab * candidate.schedule.strips.height * candidate.layout.row_bytes
                if small or asked or moved >= SLAB_BYTES[0]:
                    yield candidate

    def _cut(self, slab: int) -> Iterator[Candidate]:
        """Candidates of planes cut into strips, as high as memory allows for each depth."""
        for depth in self._cut_depths():
            given = self.options.strip_rows or self.request.height_begun
            height = given or self._height(depth, slab)
            if height is None:
                return
            strips = self.sizing.strips(depth, height)
            if strips.closes(depth) and (given or strips.count(depth) > 1):
                yield sized(self.request, depth, slab, resident=False, height=height)

    def _cut_depths(self) -> list[int]:
        """Depths worth pricing, in steps of about a quarter."""
        steps = self.problem.deepest
        if self.request.depth is not None:
            return self._depths(1, resident=False)
        deepest = min(steps, self.problem.shape[0] // max(1, self.sizing.streamed.skew.per_step))
        depths, depth = [1], 2
        while depth < deepest:
            depths.append(deepest_of_split(steps, depth))
            depth = max(depth + 2, depth * 5 // 4 // 2 * 2)
        return self._listable({*depths, deepest_of_split(steps, max(1, deepest))})

    def _height(self, depth: int, slab: int) -> int | None:
        """Rows of the highest strips that fit, evened out; None where not even one row does."""
        sizing = self.sizing
        rings = sizing.window.rings((depth,), slab, resident=False, seams=True)
        thinnest = sizing.layout(sizing.strips(depth, 1), depth)
        depths, room = (
            self.request.split(depth),
            self.request.room - self.request.transfer_bytes(thinnest),
        )
        row_bytes = sum(ring.planes * thinnest.of(ring.field).row_stride_bytes for ring in rings)
        beside = sizing.strips(depth, 1).beside(depth)
        rows, accelerator = sizing.strips(depth, 1).rows, self.request.accelerator
        kept_bytes = 0 if accelerator else unfinished_bytes(self.problem, depth, slab, 1.0)
        row_bytes += kept_bytes // rows
        height = (room - self.request.table_bytes(depths, 1)) // row_bytes - beside
        unit = row_unit(self.problem.stencil)
        height -= height % unit
        # A pitch is rounded up to whole sectors, and an odd number of them.
        while height > 0:
            strips = sizing.strips(depth, height)
            window = self.request.window_bytes(rings, sizing.layout(strips, depth))
            tables = self.request.table_bytes(depths, strips.count(depth))
            if window + tables + kept_bytes * height // rows <= room:
                break
            height -= unit
        least = self.least_height(depth)
        if height < least:
            return None
        total = self.problem.shape[1]
        total += 0 if sizing.across.periodic else sizing.strips(depth, height).lean(depth)
        return max(least, whole_rows(self.problem, -(-total // -(-total // height))))

    def least_height(self, depth: int) -> int:
        """Rows of the thinnest strips."""
        strips = self.sizing.strips(depth, 1)
        return max(row_unit(self.problem.stencil), strips.beside(depth) if strips.circle else 1)

    def residencies(self) -> tuple[bool, ...]:
        if self.request.part is not None:
            return (False,)
        for name in self.problem.series:
            if self.request.only_resident:
                raise UsageError(
                    f"{name} changes with every step, and each sweep reads it again; tier "
                    f"{self.options.tier} cannot do that: choose tier direct"
                )
            return (False,)
        if self.request.only_resident:
            return (True,)
        return (True, False) if self.options.tier == "auto" else (False,)

    def slabs(self) -> list[int]:
        """Slabs worth pricing."""
        if self.options.slab_planes is not None:
            return [self.options.slab_planes]
        plane_bytes = self.request.whole.pitch_bytes
        slabs = self._slabs_up_to(SLAB_BYTES[1])
        large = [slab for slab in slabs if slab * plane_bytes >= SLAB_BYTES[0]]
        return large or slabs[-1:] or [1]

    def resident_slabs(self) -> list[int]:
        """Only the first sweep waits for planes that come and only the last leaves them behind.

        Slabs let these two overlap with the transfers; between them a slab only costs a start and
        an end of the threads' work. So either one slab, or a few.
        """
        if self.options.slab_planes is not None:
            return [self.options.slab_planes]
        if self.options.in_place:
            return self.slabs()
        planes = RESIDENT_SLAB_BYTES // self.request.whole.pitch_bytes
        whole = max(RESIDENT_SLAB_PLANES, min(2 * self.problem.shape[0], planes))
        return [whole, max(1, self.problem.shape[0] // RESIDENT_SLABS)]

    def _prompt(self, candidate: Candidate) -> Candidate:
        """The candidate in memory, or one like it whose slabs do not take too long.

        Its slabs are smaller, or its sweeps are shallower where all planes make a step together.
        """
        schedule, options = candidate.schedule, self.options
        slab, depth = schedule.slab_planes, schedule.depth
        slabs = max(1.0, len(self.sizing.owned.planes) / slab)  # in a sweep
        seconds = candidate.prediction.compute_seconds / (schedule.sweeps * slabs)
        if options.slab_planes is not None or seconds <= RESIDENT_SLAB_SECONDS:
            return candidate
        less = RESIDENT_SLAB_SECONDS / seconds
        planes = int(min(slab, len(self.sizing.owned.planes)) * less)
        planes = max(1, planes // _step(planes) * _step(planes))
        smaller = sized(self.request, depth, planes, resident=True)
        if smaller.schedule.slab_planes < slab or self.request.depth is not None:
            return smaller
        steps = deepest_of_split(self.problem.deepest, max(1, int(depth * less)))
        return sized(self.request, steps, slab, resident=True)

    def _small_slabs(self) -> list[int]:
        """Slabs that are taken only where no larger one fits."""
        if self.options.slab_planes is not None:
            return []
        return self._slabs_up_to(SLAB_BYTES[0]) or [1]

    def _slabs_up_to(self, nbytes: int) -> list[int]:
        return self._doubling(nbytes // self.request.whole.pitch_bytes)

    def _doubling(self, most: int) -> list[int]:
        """Slabs of 1, 2, 4, 6, ... planes up to ``most``, fewer than the grid has."""
        slab, slabs = 1, list[int]()
        while slab < len(self.sizing.owned.planes) and slab <= most:
            slabs.append(slab)
            slab = _next(slab)
        return slabs

    def _depths(self, slab: int, resident: bool) -> list[int]:
        """Depths worth pricing: for each number of sweeps the least depth that needs no more."""
        steps = self.problem.deepest
        if self.request.depth is not None:
            return [min(self.request.depth, steps)]
        most = min(steps, self._deepest(slab, resident))
        return self._listable({deepest_of_split(steps, depth) for depth in range(1, most + 1)})

    def _listable(self, depths: set[int]) -> list[int]:
        """Those of which memory has room to list the sweeps, at least the deepest one."""
        least = -(-self.problem.steps * SWEEP_BYTES // max(1, self.request.host_room))
        return sorted({depth for depth in depths if depth >= least} or {max(depths)})

    def _thicker(self, depth: int, slab: int) -> Candidate | None:
        """The thickest slabs that fit between ``slab`` planes and the next ones that were tried."""
        step = _step(slab)
        most = min(_next(slab), len(self.sizing.owned.planes)) - 1
        for planes in range(most // step * step, slab, -step):
            candidate = sized(self.request, depth, planes, resident=False)
            if self._fits(candidate):
                return candidate
        return None

    def _deepest(self, slab: int, resident: bool) -> int:
        """No window of more steps than these fits; found by bisection.

        Memory grows with depth, but for two things: sweeps of an odd number of steps may read into
        one ring and write from another, which costs a slab more, and sweeps from some depth on
        have rings that are a slab shorter.
        """
        if resident and not self.options.in_place:
            return RESIDENT_DEPTH
        sizing = self.sizing
        room = self.request.room - self.request.transfer_bytes(self.request.whole)
        planes = self.problem.shape[0] // max(1, sizing.streamed.skew.per_step)

        def fits(depth: int) -> bool:
            rings = sizing.window.rings((depth,), slab, resident=False)
            layout = sizing.layout(sizing.strips(depth), depth)
            return self.request.window_bytes(rings, layout) <= room

        def either_fits(depth: int) -> bool:
            return fits(depth) or fits(depth + 1)

        most = max(1, min(planes, self.problem.deepest))
        shorter = sizing.shared_from or 1
        low, high = shorter if shorter <= most and either_fits(shorter) else 1, most
        while low < high:
            middle = (low + high + 1) // 2
            if either_fits(middle):
                low = middle
            else:
                high = middle - 1
        return min(low + 1, most)


def _step(slab: int) -> int:
    """Planes by which slabs from one on grow.

    Tiles advance by 2, 4 or 8 planes: the last step of a slab should be a whole one.
    """
    return 2 if slab < 6 else 4 if slab < 12 else 8


def _next(slab: int) -> int:
    """The slab to try after one of so many planes."""
    return slab * 2 if slab < 4 else slab * 3 // 2 // _step(slab) * _step(slab)
