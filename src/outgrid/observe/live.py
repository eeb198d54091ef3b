"""What a run says of itself while it goes on: its readings, in files beside it."""

from __future__ import annotations

import datetime
import math
import os
import socket
from typing import Any

import msgspec

from outgrid.comm import Comm
from outgrid.config import RunOptions
from outgrid.errors import StoreError
from outgrid.machine import peak_memory_bytes
from outgrid.observe.accumulators import Accumulators, numbers
from outgrid.observe.observer import Noted, Observer, Reached
from outgrid.runs.manifest import Manifest
from outgrid.runs.pace import Event, Pace
from outgrid.runs.reading import (
    FILLING,
    FINISHED,
    LIVE_NAMES,
    RUNNING,
    STATUS_NAME,
    Reading,
    append_reading,
    write_metrics,
    write_reading,
)
from outgrid.runs.run import Run
from outgrid.stencil.problem import Problem

__all__ = ["Live"]

SECONDS_BETWEEN_READINGS = 1.0
# Of the time so far; a long run then has some thousands of lines.
SHARE_BETWEEN_LINES = 1 / 500


class Live(Observer):
    """Keeps the latest reading in a file, and those of rank 0 from the beginning on in another.

    A reading that cannot be written is no reason to end a run: the record says so.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._pace = Pace()
        self._started = _now()
        self._committed, self._committed_at = run.manifest.steps_done, ""
        self._accumulators: Accumulators | None = None
        self._filling, self._written, self._lined = True, -math.inf, -math.inf
        self._latest: Reading | None = None
        self._failure = ""

    @classmethod
    def files(cls, problem: Problem, options: RunOptions, *, alone: bool = True) -> tuple[str, ...]:
        """The latest reading, and beside the results all of them."""
        return LIVE_NAMES if alone else (STATUS_NAME,)

    def attach(self, kernel: Any) -> Any:
        """Reductions are those that the kernel adds to."""
        self._accumulators = getattr(kernel, "reductions", None)
        return kernel

    def swept(self, event: Event, pace: Pace) -> Reading:
        """What there is to say where the sweeps before that of an event are complete."""
        if self._accumulators is not None:
            self._accumulators.settle(event.sweep)
        return self.reading(event, pace, sum(self.run.plan.schedule.depths[: event.sweep]))

    def reading(self, event: Event, pace: Pace, complete: int | None = None) -> Reading:
        """What there is to say at the moment of an event, with ``complete`` steps if that is known;
        else as many as the updates so far amount to."""
        run, plan = self.run, self.run.plan
        figures = pace.figures(event)
        filling = event.filling
        if complete is None:
            made = event.updates_done / event.updates_total if event.updates_total else 0.0
            complete = int(made * run.problem.steps)
        moved, seconds = plan.volume, plan.prediction.transfer_seconds
        endurance = moved.endurance_bytes
        return Reading(
            state=FILLING if filling else RUNNING,
            time=_now(),
            started=self._started,
            host=socket.gethostname(),
            pid=os.getpid(),
            rank=run.comm.rank,
            ranks=run.comm.size,
            sweep=event.sweep,
            sweeps=event.sweeps,
            step=run.done + complete,
            steps=run.whole.steps,
            share_done=figures.share_done,
            seconds=event.seconds,
            updates_done=event.updates_done,
            updates_total=event.updates_total,
            read_bytes=event.read_bytes,
            written_bytes=event.written_bytes,
            updates_per_second=figures.updates_per_second,
            read_bytes_per_second=figures.read_bytes_per_second,
            written_bytes_per_second=figures.written_bytes_per_second,
            planned_bytes_per_second=(
                (moved.read_bytes + moved.written_bytes) / seconds if seconds > 0 else 0.0
            ),
            waiting=figures.wait_share,
            threads=plan.threads,
            processor_seconds=event.processor_seconds,
            processors=figures.processors,
            memory_bytes=peak_memory_bytes(),
            memory_limit_bytes=run.options.memory_bytes,
            wear=event.written_bytes / endurance if endurance else 0.0,
            committed_step=self._committed,
            committed=self._committed_at,
            reductions=self._reductions(),
            left_seconds=figures.remaining_seconds,
            planned_left_seconds=plan.prediction.seconds * (1 - figures.share_done * (not filling)),
        )

    def _reductions(self) -> dict[str, float]:
        """Those of the last complete step; of a part of the grid they would be no numbers."""
        latest = self._accumulators.latest if self._accumulators is not None else None
        if latest is None or self.run.comm.size > 1:
            return {}
        reductions = self.run.given.stencil.reductions
        kinds = tuple(reduction.kind for reduction in reductions)
        (values,) = numbers(kinds, latest)
        return {r.name: float(value) for r, value in zip(reductions, values, strict=True)}

    def progressed(self, event: Event) -> None:
        """Write a reading, seldom enough that nothing waits for it."""
        seconds, filling = event.seconds, event.filling
        if filling != self._filling:  # seconds count from 0 again
            self._filling, self._written, self._lined = filling, -math.inf, -math.inf
        if seconds - self._written < SECONDS_BETWEEN_READINGS:
            return
        self._written = seconds
        line = seconds - self._lined >= max(1.0, seconds * SHARE_BETWEEN_LINES)
        if line:
            self._lined = seconds
        self._write(self.reading(event, self._pace), line=line)

    def _write(self, reading: Reading, *, line: bool) -> None:
        run, first = self.run, self.run.comm.rank == 0
        self._latest = reading
        folder = run.out if first else run.folder.out
        try:
            write_reading(folder, reading)
            if first and line:
                append_reading(folder, reading)
            if first and run.options.metrics is not None:
                write_metrics(run.options.metrics, reading)
        except (OSError, StoreError) as error:
            self._failure = f"the status of the run could not be written: {error}"

    def commit(self, reached: Reached, manifest: Manifest) -> Manifest:
        """Note how far the run is durable."""
        self._committed, self._committed_at = reached.steps, _now()
        return manifest

    def place(self, comm: Comm) -> Noted:
        """Say that the run is finished."""
        if comm.rank == 0:
            steps = self.run.last
            latest = self._latest or Reading(
                state=FINISHED,
                time=_now(),
                started=self._started,
                host=socket.gethostname(),
                pid=os.getpid(),
                ranks=comm.size,
                sweep=self.run.plan.sweeps,
                sweeps=self.run.plan.sweeps,
                memory_bytes=peak_memory_bytes(),
                memory_limit_bytes=self.run.options.memory_bytes,
            )
            finished = msgspec.structs.replace(
                latest,
                state=FINISHED,
                time=_now(),
                step=steps,
                steps=steps,
                share_done=1.0,
                committed_step=steps,
                committed=_now(),
                reductions=self._reductions(),
                left_seconds=0.0,
                planned_left_seconds=0.0,
            )
            self._write(finished, line=True)
        return Noted(warnings=(self._failure,) if self._failure else ())


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
