"""Refusals: why nothing fits, and the nearest values that would."""

from __future__ import annotations

from collections.abc import Iterator

from outgrid.errors import InfeasiblePlan
from outgrid.machine import Accelerator
from outgrid.plan.candidate import Candidate, beside_device, sized
from outgrid.plan.choose import RESIDENT_DEPTH, Choice
from outgrid.plan.device import LEAST_PARTS
from outgrid.plan.request import MOST_LISTED, Request
from outgrid.plan.sweeps import deepest_of_split
from outgrid.plan.tables import held_bytes
from outgrid.units import format_bytes


def refusal(request: Request) -> InfeasiblePlan:
    """What is missing, and the nearest values that fit."""
    return _Refusal(request).refusal()


class _Refusal:
    """What is asked for, and what would be chosen from."""

    def __init__(self, request: Request) -> None:
        self.request, self.choice = request, Choice(request)
        self.problem, self.options, self.sizing = request.problem, request.options, request.sizing

    def refusal(self) -> InfeasiblePlan:
        """What is missing, and the nearest values that fit."""
        options = self.options
        candidates = list(self._candidates_at_least())
        if not candidates:
            return self._cannot_go_round()
        smallest = min(candidates, key=lambda c: c.needed_bytes)
        least, owned = (
            self.sizing.least_owned(smallest.schedule.depths),
            len(self.sizing.owned.planes),
        )
        if least > owned:
            return self._too_thin(smallest.schedule.depths, least, owned)
        disk = self.request.part.disk_bytes if self.request.part is not None else None
        if disk is not None and smallest.needed_bytes <= self.request.room:
            wanted, depth = smallest.traffic.disk_bytes(), smallest.schedule.depth
            return InfeasiblePlan(
                f"a sweep of {depth} steps keeps {format_bytes(wanted)} on the disk of a rank, "
                f"which has {format_bytes(disk)}; "
                + f"use {'a lower depth, or ' if depth > 1 else ''}more ranks on other disks"
            )
        if self.request.accelerator is not None:
            return self._device_infeasible(smallest, self.request.accelerator)
        needed = smallest.needed_bytes + self.request.fixed_bytes
        asked = "" if options.depth is None else f" for depth {options.depth}"
        slab = (
            f" with slabs of {smallest.schedule.slab_planes} planes" if options.slab_planes else ""
        )
        message = (
            f"the window{asked}{slab} needs {format_bytes(smallest.held_bytes)} and the program "
            f"itself {format_bytes(needed - smallest.held_bytes)}, which exceeds the memory "
            f"limit of {format_bytes(options.memory_bytes)}; "
        )
        held = held_bytes(self.request.problem)
        if held:
            message += (
                f"{format_bytes(held)} of that are the initial arrays; as files they would need "
                "no memory; "
            )
        fits = None
        if options.depth is not None and options.depth > 1:
            fits = self._deepest_that_fits(smallest.schedule.slab_planes)
        if fits:
            message += f"depth {fits} fits, or "
        # Rounded up, and in whole units: what is said here is going to be typed.
        return InfeasiblePlan(message + f"a limit of {-(-needed // (1 << 20))} MiB fits")

    def _too_thin(self, depths: tuple[int, ...], least: int, owned: int) -> InfeasiblePlan:
        """Why a rank has no room for the seams at its cuts, and what would do."""
        fits = [depth for depth in range(1, max(depths)) if self._thick_enough(depth)]
        ways = [f"depth {fits[-1]}"] if fits else []
        ways += ["fewer ranks", "exchange = 'halos'"]
        return InfeasiblePlan(
            f"seams need ranks of at least {least} planes in sweeps of {max(depths)} steps, and "
            f"a rank has {owned}; use {' or '.join(ways)}"
        )

    def _thick_enough(self, depth: int) -> bool:
        return self.sizing.least_owned((depth,)) <= len(self.sizing.owned.planes)

    def _device_infeasible(self, smallest: Candidate, of: Accelerator) -> InfeasiblePlan:
        """What is missing on a device, or in the memory of the process beside it."""
        missing = smallest.needed_bytes - self.request.room
        if missing > 0:
            needed = of.memory_bytes + missing
            return InfeasiblePlan(
                f"the window needs {format_bytes(smallest.needed_bytes)} of the device's memory "
                f"and tables {format_bytes(of.memory_bytes - self.request.room)}, which exceeds "
                f"the limit of {format_bytes(of.memory_bytes)}; {-(-needed // (1 << 20))} MiB "
                "of device_memory are enough"
            )
        layout, own = smallest.layout, self.request.fixed_bytes
        least = LEAST_PARTS * layout.window_rows * layout.row_bytes + beside_device(
            self.request, smallest
        )
        return InfeasiblePlan(
            f"copies to the device need at least {format_bytes(least)} of memory and the "
            f"program itself {format_bytes(own)}, which exceeds the memory limit of "
            f"{format_bytes(self.options.memory_bytes)}; a limit of "
            f"{-(-(least + own) // (1 << 20))} MiB fits"
        )

    def _cannot_go_round(self) -> InfeasiblePlan:
        """Why a grid that is periodic along the stream cannot be streamed, and what would do."""
        options, planes, axis = self.options, self.problem.shape[0], self.request.streamed
        depth, slab = min(options.depth or 1, self.problem.deepest), options.slab_planes or 1
        least = self.sizing.least_planes(self.request.split(depth), slab)
        fits = [d for d in range(1, depth) if self.sizing.least_planes((d,), slab) <= planes]
        if self.sizing.domain.subgrid.ring:
            way = f"depth {fits[-1]} fits, or more ranks" if fits else "start more ranks"
            return InfeasiblePlan(
                f"in sweeps of {depth} steps a rank of this ring holds {least} planes with its"
                f" halos, more than the {planes} that the grid has; {way}"
            )
        smaller = slab > 1 and self.sizing.least_planes(self.request.split(depth), 1) <= planes
        ways = [f"depth {fits[-1]} fits"] if fits else []
        ways += ["smaller slabs fit"] if smaller else []
        return InfeasiblePlan(
            f"a grid that is periodic along {axis} needs at least {least} planes to be streamed "
            f"with {depth} steps in slabs of {slab} planes, and has {planes}; "
            + ", or ".join([*ways, "leave tier out, and the grid is updated in memory"])
        )

    def _candidates_at_least(self) -> Iterator[Candidate]:
        """Candidates among which is the one that needs least."""
        for resident in self.choice.residencies():
            slabs = self.choice.resident_slabs() if resident else [1, *self.choice.slabs()[:1]]
            for slab in slabs[-1:] if self.options.slab_planes else slabs:
                for depth in self._depths_at_least():
                    for height in (None,) if resident else self._heights_at_least(depth):
                        candidate = sized(self.request, depth, slab, resident, height)
                        if resident or self.choice.goes_round(candidate):
                            yield candidate

    def _depths_at_least(self) -> list[int]:
        """The shallowest sweeps, whose window is the smallest, and deeper ones, whose list is."""
        steps = self.problem.deepest
        if self.request.depth is not None or self.request.part is not None:
            return [min(self.request.depth or 1, steps)]
        depths = {deepest_of_split(steps, depth) for depth in range(1, RESIDENT_DEPTH + 1)}
        listed = [deep for deep in depths if self.problem.steps <= deep * MOST_LISTED]
        return sorted(listed) or [max(depths)]

    def _heights_at_least(self, depth: int) -> tuple[int | None, ...]:
        if self.options.strip_rows is not None:
            return (self.options.strip_rows,)
        thinnest = self.choice.least_height(depth)
        if not self.sizing.can_cut or self.request.only_resident:
            return (None,)
        return (None, thinnest) if self.sizing.strips(depth, thinnest).closes(depth) else (None,)

    def _deepest_that_fits(self, slab: int) -> int | None:
        """The largest depth below the one asked for that fits, in whole planes or in strips."""
        if self.request.only_resident:
            return None
        low, high = 0, (self.options.depth or 1) - 1
        while low < high:
            middle = (low + high + 1) // 2
            fits = any(
                candidate.needed_bytes <= self.request.room and self.choice.goes_round(candidate)
                for candidate in (
                    sized(self.request, middle, slab, resident=False, height=height)
                    for height in self._heights_at_least(middle)
                )
            )
            low, high = (middle, high) if fits else (low, middle - 1)
        return low or None
