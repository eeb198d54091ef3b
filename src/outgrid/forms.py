"""The forms in which a problem may be computed, and which of them takes least time.

Along which axis its planes pass, whether temporaries are kept, and whether rows share vectors: each
form is a problem of its own, whose results are those of the others.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

import msgspec

from outgrid.axes import LAST, NAMES, in_fortran_order
from outgrid.comm import Comm
from outgrid.config import AUTO, RunOptions
from outgrid.errors import DefinitionError, InfeasiblePlan, StoreError, UsageError
from outgrid.folding import Folding
from outgrid.machine import Machine
from outgrid.plan.calibration import Calibration
from outgrid.plan.cost import rates
from outgrid.plan.model import Plan
from outgrid.plan.sizing import Sizing
from outgrid.plan.staging import staging_of
from outgrid.runs.group import Durable
from outgrid.runs.places import is_spread
from outgrid.schemes import DEFAULT, SCHEMES
from outgrid.stencil.folded import folding_of, why_not_folded
from outgrid.stencil.problem import Problem
from outgrid.stencil.recomputed import recomputable
from outgrid.stencil.transposed import why_not_transposed
from outgrid.units import format_seconds

__all__ = ["Axis", "Folds", "Settled", "Stages", "Temporaries"]

# Rows that a stencil reads beyond a cell, from which on folded rows are worth what they take of
# transfers: beyond memory an acoustic wave of order 4 in layers loses 10 to 25 % by them, elastic
# waves of order 4 lose 4 %, and a wave of order 8 makes 1.4 to 1.5 times as many updates.
WORTH_FOLDING = 3

# Planes pass along another axis where that takes less than this share of the time.
WORTH_TRANSPOSING = 0.9
# Plans look at the last axis, which is taken on demand only, of runs that take seconds at least.
WORTH_TELLING_UPDATES = 1e10


class Planner(Protocol):
    """Whoever plans problems for all ranks of ``comm``; see `planning.Planning`."""

    @property
    def options(self) -> RunOptions: ...
    @property
    def machine(self) -> Machine: ...
    @property
    def comm(self) -> Comm: ...
    @property
    def shared(self) -> bool: ...
    @property
    def vector_bytes(self) -> int: ...
    def chosen(self, problem: Problem, calibration: Calibration | None) -> Plan: ...
    def rates_of(self, *forms: Problem) -> list[Calibration | None]: ...


class Settled(msgspec.Struct, frozen=True):
    """A problem in the form in which it is to be computed, and why."""

    problem: Problem
    told: tuple[str, ...] = ()


class Axis(msgspec.Struct, frozen=True):
    """Which axis comes first, along which planes pass through memory."""

    by: Planner

    def settled(self, problem: Problem, durable: Durable | None = None) -> Settled:
        """The problem, with the axis first along which its planes pass through memory.

        That is its own first axis, or its second where planes are smaller and less time is taken;
        its last where that is asked for, because files are then in another order.
        A run of which something is ``durable`` goes on along the axis that it was begun along,
        unless another one is asked for. Raises UsageError where that cannot be had.
        """
        asked = self.by.options.stream_axis
        axis = 0 if asked == AUTO else NAMES.index(asked)
        if axis and (reason := self._why_not(problem, axis)):
            raise UsageError(f"stream_axis = {asked!r} is not for this run: {reason}; leave it out")
        if durable is not None:
            return self._going_on(problem, durable)
        if axis:
            order = "; results are in Fortran order" if in_fortran_order(axis) else ""
            told = f"planes pass along {asked}: stream_axis = {asked}{order}"
            return Settled(problem.transpose(axis), (told,))
        if asked != AUTO:
            return Settled(problem)
        if self._why_not(problem, 1) or not self._may_transpose(problem, 1):
            return self._told_of_last(problem, Settled(problem))
        return self._told_of_last(problem, self._shorter(problem))

    def _going_on(self, problem: Problem, durable: Durable) -> Settled:
        """The problem of a run that goes on, along the axis that is asked for or that it had."""
        asked = self.by.options.stream_axis
        before = max(int(share.manifest.transposed) for share in durable.shares)
        axis = before if asked == AUTO else NAMES.index(asked)
        reason = self._why_not(problem, before) if before else ""
        fortran = in_fortran_order(before)
        if in_fortran_order(axis) != fortran or (fortran and reason):
            order = "in Fortran order" if fortran else "not in Fortran order"
            why = f": {reason}" if reason else ""
            raise UsageError(
                f"the run was begun along {NAMES[before]}, so its files are {order}, and it goes "
                f"on with such files only{why}; leave out what asks for others"
            )
        if asked != AUTO:
            told = (f"planes pass along {asked}: stream_axis = {asked}",) if axis else ()
            return Settled(problem.transpose(axis) if axis else problem, told)
        if before and not reason:
            told = f"planes pass along {NAMES[before]}, as the run was begun"
            return Settled(problem.transpose(before), (told,))
        return Settled(problem)

    def _why_not(self, problem: Problem, axis: int) -> str:
        """Why planes cannot pass along another axis than the first; empty where they can."""
        options = self.by.options
        if options.preview or options.pyramid:
            return "previews and levels for viewers are made of planes along z"
        if self.by.shared or options.device != "cpu":
            return "ranks and devices stream along z"
        if in_fortran_order(axis):
            if options.tier not in (AUTO, "direct") or options.in_place or is_spread(options):
                return "fields in Fortran order are kept in files of tier direct, in one place"
            if options.file:
                return f"fields of the one file {options.file} are not in Fortran order"
        return why_not_transposed(problem)

    def _may_transpose(self, problem: Problem, axis: int) -> bool:
        """Whether the plan compares an axis with the first: where planes of it are smaller."""
        options = self.by.options
        blocks = SCHEMES[options.scheme or DEFAULT.name].blocks
        sized = options.slab_planes or options.strip_rows  # planes, and rows of these
        streams = options.tier in (AUTO, "direct")
        return problem.shape[0] < problem.shape[axis] and streams and not (blocks or sized)

    def _shorter(self, problem: Problem) -> Settled:
        """The problem, or the transposed one if that takes less time."""
        other = problem.transpose()
        found = self.by.rates_of(problem, other)
        try:
            along = self.by.chosen(problem, found[0])
        except InfeasiblePlan:  # planes are too large, in strips too
            along = None
        if along is not None and along.schedule.resident:
            return Settled(problem)
        with suppress(InfeasiblePlan):
            across = self.by.chosen(other, found[1])
            times = f"planes pass along y, {format_seconds(across.predicted_seconds)}"
            if along is None:
                return Settled(other, (f"{times}; along z they do not fit",))
            if across.predicted_seconds < WORTH_TRANSPOSING * along.predicted_seconds:
                seconds = format_seconds(along.predicted_seconds)
                return Settled(other, (f"{times}; along z {seconds}",))
        return Settled(problem)

    def _told_of_last(self, given: Problem, found: Settled) -> Settled:
        """What was ``found`` for the ``given`` problem, with a word on its last axis.

        That is where planes that pass along it take less time. Nobody gets files in another order
        unasked.
        """
        problem = found.problem
        if problem.ndim != 3 or problem.updates < WORTH_TELLING_UPDATES:
            return found
        smaller = self._may_transpose(given, LAST) and problem.shape[0] < given.shape[LAST]
        if not smaller or self._why_not(given, LAST):
            return found
        with suppress(InfeasiblePlan):
            other = given.transpose(LAST)
            rates = self.by.rates_of(problem, other)
            before = self.by.chosen(problem, rates[0])
            after = before if before.schedule.resident else self.by.chosen(other, rates[1])
            if after.predicted_seconds < WORTH_TRANSPOSING * before.predicted_seconds:
                seconds = format_seconds(after.predicted_seconds)
                told = f"with stream_axis = 'x' it would take {seconds}, results in Fortran order"
                return Settled(problem, (*found.told, told))
        return found


class Temporaries(msgspec.Struct, frozen=True):
    """Whether temporaries are kept, or computed again where they are read."""

    by: Planner

    def settled(self, problem: Problem, durable: Durable | None = None) -> Settled:
        """The problem with temporaries kept or computed again, whichever takes less time."""
        named = [field.name for field in problem.stencil.fields if field.temporary]
        asked = self.by.options.temporaries or "auto"
        if not named:
            return Settled(problem)
        if self.by.options.device != "cpu":
            return Settled(problem, ("temporaries are kept, as on all devices",))
        if durable is not None:
            before = [name for share in durable.shares[:1] for name in share.manifest.recomputed]
            how = f"{', '.join(before)} computed again where read" if before else "all kept"
            told = (f"temporaries are as the run was begun: {how}",)
            return Settled(problem.recomputing(before) if before else problem, told)
        why = recomputable(problem)
        able = [name for name in named if not why[name]]
        if asked == "keep":
            return Settled(problem, ("temporaries are kept: temporaries = keep",))
        if asked == "recompute":
            told = (f"{name} is kept: {why[name]}" for name in named if why[name])
            return Settled(problem.recomputing(able) if able else problem, tuple(told))
        return self._cheaper(problem)

    def forms(self, problem: Problem) -> tuple[Problem, ...]:
        """The problem with all of them kept, and with those computed again that this is worth for.

        Only the first where there are none of these, and only what options ask for.
        """
        options = self.by.options
        if options.device != "cpu" or (options.temporaries or "auto") != "auto":
            return (self.settled(problem).problem,)
        threads = options.threads or self.by.machine.cores
        chosen: tuple[str, ...] = ()
        least = _seconds(problem, chosen, self.by.machine, threads)
        able = [name for name, why in recomputable(problem).items() if not why]
        for name in reversed(able):
            more = (name, *chosen)
            seconds = _seconds(problem, more, self.by.machine, threads)
            if seconds < least:
                chosen, least = more, seconds
        return (problem, problem.recomputing(chosen)) if chosen else (problem,)

    def _cheaper(self, problem: Problem) -> Settled:
        """The form of a problem that takes less time.

        Plans say so. They know what was measured of kernels where that is known of both.
        """
        _, *others = self.forms(problem)
        if not others:
            return Settled(problem, ("temporaries are kept: to compute them again takes longer",))
        (again,) = others
        found = self.by.rates_of(problem, again)
        kept, other = self.by.chosen(problem, found[0]).predicted_seconds, None
        with suppress(InfeasiblePlan, UsageError):
            other = self.by.chosen(again, found[1]).predicted_seconds
        every = self.by.comm.share((kept, other))
        slow = [seconds for _, seconds in every if seconds is not None]
        if len(slow) < len(every):
            return Settled(problem, ("temporaries are kept: there is no room for more rings",))
        kept, other = max(seconds for seconds, _ in every), max(slow)
        listed = ", ".join(again.stencil.recomputed)
        times = f"{format_seconds(other)} computed again where read, {format_seconds(kept)} kept"
        worth = other < kept
        told = f"{listed}: {times}" if worth else f"temporaries are kept; {listed}: {times}"
        return Settled(again if worth else problem, (told,))


class Stages(msgspec.Struct, frozen=True):
    """Whether stages are made in parts, so that a step trails the one before it by fewer planes."""

    by: Planner

    def settled(self, problem: Problem, durable: Durable | None = None) -> Settled:
        """The problem with stages in parts, where sweeps make several steps on a processor.

        A run of which something is ``durable`` goes on with the stages that it was begun with:
        its seams are theirs. Raises StoreError where its stencil has no such stages.
        """
        if durable is not None:
            return self._going_on(problem, durable)
        options, scheme = self.by.options, SCHEMES[self.by.options.scheme or DEFAULT.name]
        passes = scheme.blocks or 1 in (scheme.depth, options.depth)
        if passes or options.device != "cpu":
            return Settled(problem)
        return Settled(problem.in_stages(staging_of(problem)))

    def _going_on(self, problem: Problem, durable: Durable) -> Settled:
        """The problem of a run that goes on, with the stages that it had."""
        for share in durable.shares[:1]:
            try:
                return Settled(problem.in_stages(share.manifest.staged))
            except DefinitionError as error:
                raise StoreError(f"{share.folder.out}: {error}") from None
        return Settled(problem)


class Folds(msgspec.Struct, frozen=True):
    """Whether neighbouring rows share each vector."""

    by: Planner

    def settled(self, problem: Problem, durable: Durable | None = None) -> Settled:
        """The problem with folded rows, where these are possible and worth it.

        A stencil that reads two rows away gains less by them than transfers lose, so it has them
        where the grid stays in memory, unless planes begin at lines there, which is the better
        choice. Raises UsageError where they are asked for in vain.
        """
        asked = self.by.options.fold
        how = folding_of(problem, self.by.vector_bytes)
        if reason := self._why_not(problem, how, durable):
            if asked == "always":
                raise UsageError(f"fold = 'always' is not for this run: {reason}; leave it out")
            return Settled(problem)
        other, far = problem.folding(how), problem.stencil.radius[1] >= WORTH_FOLDING
        if asked == "always" and not self.by.shared:
            return Settled(other)
        if not (far or asked == "always" or not Sizing(problem).on_lines(resident=True)):
            return Settled(problem)
        resident = whole = False
        rates = self.by.rates_of(other)
        with suppress(InfeasiblePlan):
            schedule = self.by.chosen(other, *rates).schedule
            resident, whole = schedule.resident, len(schedule.domain.subgrid.bounds[1]) == 2
        if asked == "always" and not whole:
            raise UsageError("fold = 'always' is not for ranks that share planes; leave it out")
        folds = whole and (far or resident or asked == "always")
        return Settled(other if all(self.by.comm.share(folds)) else problem)

    def _why_not(self, problem: Problem, how: Folding | None, durable: Durable | None) -> str:
        """Why rows cannot be folded, in words; empty where they can."""
        options, vector_bytes = self.by.options, self.by.vector_bytes
        if options.fold == "never":
            return "it is not wanted"
        tiers = (AUTO, "direct", "memory")
        if options.device != "cpu" or options.tier not in tiers:
            return "rows are folded in windows of processors, in front of files"
        if options.row_cuts:
            return "ranks that share planes do not begin with folded rows"
        if SCHEMES[options.scheme or DEFAULT.name].blocks or options.in_place:
            return "rows of blocks, and of rings in files, are not folded"
        if problem.in_rows_of_files:
            return "planes that pass along y are made of rows in files"
        if durable is not None and any(share.manifest.cut for share in durable.shares):
            return "the run was begun in strips"
        if not vector_bytes:
            return "kernels compute with vectors of less than 32 bytes here"
        if how is None:
            return why_not_folded(problem) or "it reads less than two rows beyond a cell"
        if (options.strip_rows or 0) % how.rows:
            return f"strips of {options.strip_rows} rows are not whole groups of {how.rows}"
        return ""


def _seconds(problem: Problem, again: tuple[str, ...], machine: Machine, threads: int) -> float:
    """What an update takes of cores and caches where temporaries are computed ``again``."""
    bounds = rates(problem.recomputing(again), machine, threads)
    return 1 / min(bounds.cores, bounds.cache)
