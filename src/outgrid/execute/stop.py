"""Stopping a run before its end so that it can be resumed: on a signal, or before time is up."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Collection, Generator
from contextlib import contextmanager
from types import FrameType

from outgrid.units import format_seconds

SIGNALS = (signal.SIGTERM, signal.SIGINT)
# Kept free before the end of a batch job, beside what a slab and a commit take.
SCHEDULER_MARGIN_SECONDS = 30.0


class Interrupted(KeyboardInterrupt):
    """A signal that came while no steps were made, or a second one."""

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(message or signal.Signals(number).name)
        self.exit_code = 128 + number


class Stop:
    """Whether a run has to stop, and why.

    A signal is a request while ``listening``; before and after that, and when it comes twice, it
    raises Interrupted.
    """

    def __init__(self) -> None:
        self.listening = False
        self.heard: int | None = None  # the number of a signal
        self._reason: str | None = None
        self._deadlines: list[tuple[float, str]] = []

    def request(self, reason: str) -> None:
        """Ask the run to stop."""
        self._reason = reason

    def after(self, seconds: float, reason: str) -> None:
        """Ask the run to be at its end ``seconds`` from now."""
        if math.isfinite(seconds):
            self._deadlines.append((time.monotonic() + seconds, reason))

    def due(self, within_seconds: float = 0.0) -> str | None:
        """Why the run has to stop now, if what comes next takes ``within_seconds``."""
        if self._reason is None:
            ahead = time.monotonic() + within_seconds
            self._reason = next((why for end, why in self._deadlines if end <= ahead), None)
        return self._reason

    @contextmanager
    def on_signals(self, numbers: Collection[int] = SIGNALS) -> Generator[None]:
        """Hear SIGTERM and Ctrl-C meanwhile; only in the main thread, as Python has it."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._hear) for number in numbers}
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        first = self._reason is None
        self.heard = number
        # What is raised here may get lost, in a destructor for one: then the next slab stops.
        self.request(signal.Signals(number).name)
        if not (self.listening and first):
            raise Interrupted(number)


def scheduler_seconds_left(environ: dict[str, str] | None = None) -> float:
    """Seconds until the batch job that this process belongs to is ended; infinity outside of one.

    Slurm gives the end as seconds since 1970 in SLURM_JOB_END_TIME.
    """
    text = (os.environ if environ is None else environ).get("SLURM_JOB_END_TIME", "")
    return float(text) - time.time() if text.isdecimal() else math.inf


def stop_in_time(stop: Stop, stop_after_seconds: float | None) -> None:
    """Let a run end by itself before ``stop_after_seconds``, and before its batch job is ended."""
    if stop_after_seconds is not None:
        stop.after(stop_after_seconds, f"the time limit of {format_seconds(stop_after_seconds)}")
    left = scheduler_seconds_left() - SCHEDULER_MARGIN_SECONDS
    stop.after(left, "the end of its Slurm job")
