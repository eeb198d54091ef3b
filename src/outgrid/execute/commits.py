"""Commits: what is written is flushed, made known to be durable, and agreed on by all ranks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from outgrid.execute.exchange import Exchange
from outgrid.execute.gates import Watermarks
from outgrid.execute.moves import Hierarchy, check
from outgrid.plan.model import Plan
from outgrid.plan.program import Commit, Gate, Mark, Move, Point
from outgrid.plan.schedule.seam import SeamKey
from outgrid.storage import Completion, Store


class Commits:
    """The commits of a program, of which one at a time is under way.

    ``make_known`` is called when everything up to a point is durable in its stores.
    """

    def __init__(
        self,
        begin: Point,
        hierarchy: Hierarchy[Any],
        exchange: Exchange,
        marks: Watermarks,
        make_known: Callable[[Point], None],
    ) -> None:
        self.hierarchy, self.exchange, self.marks = hierarchy, exchange, marks
        self.make_known = make_known
        self.queue: deque[Commit] = deque()
        self.ahead: deque[Mark] = deque()
        # How far everything is written, and how far that is known durably.
        self.reached = self.kept = begin
        self.unflushed: set[SeamKey] = set()
        self.unflushed_bytes = 0
        self.flushing: dict[int, Store] = {}
        self.pacing: dict[int, Store] = {}  # flushed between commits
        self.flushed = False  # all of the first one, which is still to be made known
        self.agreeing: Commit | None = None  # other ranks have not all come as far

    @property
    def pending(self) -> bool:
        """Whether any is queued or under way."""
        return bool(self.queue or self.transferring or self.agreeing)

    @property
    def transferring(self) -> bool:
        """Whether anything is being flushed."""
        return bool(self.flushing or self.pacing)

    def written(self, plan: Plan, move: Move, nbytes: int) -> None:
        """So much was written, which is flushed with the next commit, or before if it is much.

        A disk then never has to make more durable than it does in a moment.
        """
        if move.seam is not None:
            self.unflushed.add(move.seam)
        self.unflushed_bytes += nbytes
        if self.unflushed_bytes >= plan.flush_bytes > 0 and not self.transferring:
            store = self.hierarchy.store(move)
            self.pacing[store.flush()] = store
            self.unflushed_bytes = 0

    def start(self, plan: Plan, settled: int) -> None:
        """Flush for the first one if its gate is open, and its sweeps are up to ``settled``."""
        while self.ahead and self.marks.open(self.ahead[0].gate):
            self.reached = self.ahead.popleft().point
        if not self.queue or self.flushing or self.flushed or self.agreeing:
            return
        known = plan.schedule.states.sweeps_until(self.queue[0].point.state) <= settled
        if known and self.marks.open(self.queue[0].gate):
            self._flush(plan, self.queue[0])

    def end(self, completion: Completion) -> None:
        """A flush has ended, if it was one. Raises StoreError if it failed."""
        if completion.ticket in self.pacing:
            check(completion, self.pacing.pop(completion.ticket), "flush")
        elif completion.ticket in self.flushing:
            store = self.flushing.pop(completion.ticket)
            check(completion, store, "flush")
            self.flushed = not self.flushing

    def finish(self) -> None:
        """Make known that the first one, which is flushed, is durable, and tell other ranks."""
        self.flushed = False
        commit = self.queue.popleft()
        self.make_known(commit.point)
        self.kept = commit.point
        self.agreeing = commit
        self.exchange.agree()

    def agree(self) -> None:
        """It is complete as soon as all ranks have come as far."""
        if self.agreeing is not None and self.exchange.agreed:
            self.marks.committed.complete(self.agreeing.index)
            self.agreeing = None

    def only_reached(self) -> bool:
        """Commit what is written and nothing else; False where that is known already."""
        if self.reached <= self.kept:
            return False
        self.queue.clear()
        self.queue.append(Commit(self.marks.committed.count, self.reached, Gate()))
        return True

    def _flush(self, plan: Plan, commit: Commit) -> None:
        """Make what was written to the files of a state durable, all of them at once.

        So are seams where a restart may need them.
        """
        state, hierarchy = commit.point.begun % 2, self.hierarchy
        stores = [
            hierarchy.stores[departure.field, departure.level, state]
            for departure in plan.schedule.departures
        ]
        if plan.schedule.commit_planes:
            stores += [hierarchy.seams[key] for key in sorted(self.unflushed)]
            self.unflushed.clear()
        for store in stores:
            self.flushing[store.flush()] = store
        self.unflushed_bytes = 0
