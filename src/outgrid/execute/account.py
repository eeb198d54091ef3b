"""What one process does for a run, measured: its entry in the manifest and in the record."""

from __future__ import annotations

import datetime
import os
import socket
from collections.abc import Callable, Sequence
from fractions import Fraction

from outgrid.execute.fill import Filled
from outgrid.execute.tally import Tally
from outgrid.machine import device_bytes, peak_memory_bytes, reset_peak_memory
from outgrid.observe.still import StillPlanes
from outgrid.plan.instruction import Point
from outgrid.plan.model import Plan
from outgrid.record import Measured, Part
from outgrid.runs.manifest import Manifest
from outgrid.stencil.problem import Problem
from outgrid.storage import Transfers
from outgrid.units import format_bytes

__all__ = ["Account"]


class Account:
    """Opened before the first byte is moved; ``before`` is where this process found the run.

    ``done`` are steps made before the first state of this process.
    """

    def __init__(
        self, problem: Problem, chosen: Plan, transfers: Transfers, before: Manifest, done: int
    ) -> None:
        self.problem, self.plan, self.transfers = problem, chosen, transfers
        self.before, self.done = before, done
        self.tally, self.filled = Tally(), Filled()
        self.fill_seconds = self.window_seconds = self.export_seconds = 0.0
        self.packing_seconds, self.packed_bytes = 0.0, 0
        self.exported_bytes = 0
        self.device = ""  # that makes the updates, if it is not the processor
        self.compiler = ""  # that made the kernel
        self.copied: Callable[[], tuple[int, int]] = lambda: (0, 0)  # bytes to it, and from it
        self.still: StillPlanes | None = None  # what is not updated
        self.started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self._counted = transfers.statistics()
        self._device_before = device_bytes()
        reset_peak_memory()
        self._resident_before = peak_memory_bytes()

    def fill_ended(self, filled: Filled, seconds: float) -> None:
        """What was moved up to here brought in the initial values, and is counted apart."""
        self.filled, self.fill_seconds = filled, seconds
        self._counted = self.transfers.statistics()

    def packed(self, seconds: float) -> None:
        """What was moved since the initial values were there packed coefficients."""
        statistics = self.transfers.statistics()
        self.packing_seconds = seconds
        self.packed_bytes = statistics.written_bytes - self._counted.written_bytes
        self._counted = statistics

    def end(self, problem: Problem, plan: Plan) -> None:
        """The run ends early: with so many steps, by the plan of these."""
        self.problem, self.plan = problem, plan

    def share(self, point: Point) -> Fraction:
        """The share of this process's steps that is made where a run has come to ``point``."""
        begun = self._begun() if self.problem.steps else Fraction(1)
        if begun == 1:  # all that is left is to put planes in their places
            return Fraction(1)
        return (self._steps(point) / self.problem.steps - begun) / (1 - begun)

    def _still_updates(self) -> int:
        rows = self.plan.schedule.row_updates
        spared = self.still.spared if self.still is not None else 0
        return round(self.plan.work.updates * spared / rows) if rows else 0

    def part(
        self, steps: int, share: Fraction, ended: str, limit: int, fallbacks: Sequence[str]
    ) -> Part:
        """What this process did up to step ``steps``, a ``share`` of what there was to do."""
        statistics, before = self.transfers.statistics(), self._counted
        moved = self.plan.volume.read_bytes + self.plan.volume.written_bytes
        first, begun = self.done, self._begun()
        updates = int(self.plan.work.updates * (1 - begun) * share)
        if share == 1:  # what earlier parts have rounded off
            whole = self._whole_updates()
            updates = whole - sum(part.measured.updates for part in self.before.parts)
        system_read, system_written = device_bytes()
        uploaded, downloaded = self.copied()
        measured = Measured(
            seconds=self.tally.seconds,
            compute_seconds=self.tally.compute_seconds,
            wait_seconds=self.tally.wait_seconds,
            fill_seconds=self.fill_seconds,
            window_seconds=self.window_seconds,
            processor_seconds=self.tally.processor_seconds,
            compute_processor_seconds=self.tally.compute_processor_seconds,
            queued_seconds=self.tally.strain.queued_seconds,
            stolen_seconds=self.tally.strain.stolen_seconds,
            major_faults=self.tally.strain.major_faults,
            checksum_seconds=statistics.sum_seconds
            - before.sum_seconds
            + (statistics.fold_seconds - before.fold_seconds),
            packing_seconds=self.packing_seconds,
            packed_bytes=self.packed_bytes,
            unpack_seconds=statistics.unpack_seconds - before.unpack_seconds,
            read_bytes=statistics.read_bytes - before.read_bytes - self.exported_bytes,
            written_bytes=statistics.written_bytes - before.written_bytes - self.exported_bytes,
            system_read_bytes=system_read - self._device_before[0],
            system_written_bytes=system_written - self._device_before[1],
            exported_bytes=self.exported_bytes,
            export_seconds=self.export_seconds,
            snapshot_bytes=self.problem.kept_bytes(
                steps - first, self.plan.schedule.domain.carried
            ),
            fill_read_bytes=self.filled.read_bytes,
            fill_written_bytes=self.filled.written_bytes,
            ideal_bytes=int(moved * share),
            buffered_bytes=statistics.buffered_bytes - before.buffered_bytes,
            updates=updates,
            still_updates=self._still_updates(),
            flops=updates * self.problem.stencil.flops,
            peak_memory_bytes=peak_memory_bytes(),
            memory_limit_bytes=limit,
            engine=self.transfers.engine,
            fallbacks=tuple(fallbacks),
            sent_bytes=self.tally.sent_bytes,
            received_bytes=self.tally.received_bytes,
            device=self.device,
            uploaded_bytes=uploaded,
            downloaded_bytes=downloaded,
            **{f"{cause}_seconds": s for cause, s in self.tally.waited_for.items()},
        )
        return Part(
            started=self.started,
            host=socket.gethostname(),
            pid=os.getpid(),
            first_step=first,
            last_step=steps,
            ended=ended,
            measured=measured,
            compiler=self.compiler,
        )

    def beyond(self, limit: int) -> tuple[str, ...]:
        """A warning where the process took more memory than it may."""
        peak = peak_memory_bytes()
        if peak <= limit:
            return ()
        return (
            f"peak memory {format_bytes(peak)} passed the limit of {format_bytes(limit)}: "
            f"{format_bytes(self._resident_before)} were resident before the run began, of which "
            f"the plan counts {format_bytes(self.plan.memory.fixed_bytes)}; run it in a process of "
            "its own (outgrid run), or raise memory by the difference",
        )

    def _begun(self) -> Fraction:
        """The share of the steps from ``steps_done`` on that was made before this process began."""
        begin = self.plan.schedule.begin
        return self._steps(begin) / self.problem.steps if begin.begun else Fraction(0)

    def _steps(self, point: Point) -> Fraction:
        """Steps up to a point, a part of a sweep as a part of its steps."""
        plan, sweeps = self.plan, self.plan.schedule.states.sweeps_until(point.state)
        steps = Fraction(sum(plan.schedule.depths[:sweeps]))
        if point.begun == point.state:
            return steps
        depth = plan.schedule.depths[sweeps]
        parts = point.part + Fraction(min(point.planes, plan.schedule.planes), plan.schedule.planes)
        return steps + depth * parts / plan.schedule.cutting.trips(depth)

    def _whole_updates(self) -> int:
        """Updates of what this process owns, in all steps since files of its own hold it."""
        if not self.problem.updates:
            return sum(part.measured.updates for part in self.before.parts)
        first = self.before.parts[0].first_step if self.before.parts else self.done
        return (
            self.plan.work.updates // self.problem.steps * (self.done + self.problem.steps - first)
        )
