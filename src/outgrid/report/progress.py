"""Progress of a run as it happens: a bar on a terminal, now and then a line elsewhere."""

import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol, TextIO

from outgrid.lines import format_share
from outgrid.units import format_rate, format_seconds

__all__ = ["Event", "Figures", "Pace", "Shown", "follow", "is_watched"]

# Long enough to hold a few slabs of a large run, short enough to notice a slower disk.
PACE_SECONDS = 20.0
# No time of arrival is told from less than this.
LEAST_PACE_SECONDS = 1.0
SECONDS_BETWEEN_LINES = 5.0
# What is over sooner than this before a run begins is not told.
LEAST_TOLD_SECONDS = 1.0


class Event(Protocol):
    """What a run tells a few times a second; counters from the start of the sweeps on.

    While `filled` is below 1, the initial values are being written, and counters are of that.
    """

    @property
    def sweep(self) -> int: ...
    @property
    def sweeps(self) -> int: ...
    @property
    def updates_done(self) -> int: ...
    @property
    def updates_total(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def read_bytes(self) -> int: ...
    @property
    def written_bytes(self) -> int: ...
    @property
    def wait_seconds(self) -> float: ...
    @property
    def filled(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Figures:
    """Rates over the recent past; `remaining_seconds` is None while too little has been seen."""

    share_done: float
    updates_per_second: float
    read_bytes_per_second: float
    written_bytes_per_second: float
    wait_share: float
    remaining_seconds: float | None
    filling: bool = False

    def __str__(self) -> str:
        if self.filling:
            return f"{self._writing()}, {self._remaining()} left"
        return (
            f"{format_rate(self.updates_per_second)}"
            f", read {self.read_bytes_per_second / 1e9:.2f} GB/s"
            f", {self._writing()}"
            f", waiting {format_share(self.wait_share)}, {self._remaining()} left"
        )

    def brief(self) -> str:
        """The same in so few letters that a bar fits beside it on 80 columns."""
        if self.filling:
            return f"{self._writing()}, {self._remaining()}"
        return (
            f"{format_rate(self.updates_per_second)}"
            f", r/w {self.read_bytes_per_second / 1e9:.2f}/"
            f"{self.written_bytes_per_second / 1e9:.2f} GB/s"
            f", wait {self.wait_share:.0%}, {self._remaining()}"
        )

    def _writing(self) -> str:
        return f"write {self.written_bytes_per_second / 1e9:.2f} GB/s"

    def _remaining(self) -> str:
        seconds = self.remaining_seconds
        return "?" if seconds is None else format_seconds(seconds)


class Pace:
    """Rates over a moving span of time, from counters that only grow."""

    def __init__(self, span_seconds: float = PACE_SECONDS) -> None:
        self._span_seconds = span_seconds
        self._seen: deque[Event] = deque()

    def figures(self, event: Event) -> Figures:
        """Rates between `event` and the oldest event still within the span."""
        seen, filling = self._seen, event.filled < 1
        if seen and filling != (seen[-1].filled < 1):
            seen.clear()
        seen.append(event)
        while len(seen) > 2 and event.seconds - seen[1].seconds >= self._span_seconds:
            seen.popleft()
        oldest = seen[0]
        seconds = event.seconds - oldest.seconds
        updates = event.updates_done - oldest.updates_done
        share = _share_done(event)
        gained = share - _share_done(oldest)

        def rate(amount: float) -> float:
            return amount / seconds if seconds > 0 else 0.0

        known = seconds >= LEAST_PACE_SECONDS and gained > 0
        return Figures(
            share_done=share,
            updates_per_second=rate(updates),
            read_bytes_per_second=rate(event.read_bytes - oldest.read_bytes),
            written_bytes_per_second=rate(event.written_bytes - oldest.written_bytes),
            wait_share=rate(event.wait_seconds - oldest.wait_seconds),
            remaining_seconds=(1 - share) / rate(gained) if known else None,
            filling=filling,
        )


def _share_done(event: Event) -> float:
    """Of the initial values while they are written, then of the updates."""
    if event.filled < 1:
        return event.filled
    return event.updates_done / event.updates_total if event.updates_total else 1.0


def _stage(event: Event) -> str:
    """What is under way."""
    return "initial values" if event.filled < 1 else f"sweep {event.sweep + 1}/{event.sweeps}"


@contextmanager
def follow(stream: TextIO) -> Generator["Shown"]:
    """A subscriber that shows events on `stream`: a bar on a terminal, a line that changes in a
    notebook, both gone in the end, and now and then a line elsewhere."""
    if stream.isatty():
        with _bar(stream) as bar:
            yield bar
    elif _in_notebook(stream):
        line = _OneLine(stream)
        try:
            yield line
        finally:
            line.clear()
    else:
        yield _Lines(stream)


def is_watched(stream: TextIO | None) -> bool:
    """Whether somebody is looking at `stream` as it is written: a terminal, or a notebook."""
    return stream is not None and (stream.isatty() or _in_notebook(stream))


def _in_notebook(stream: TextIO) -> bool:
    return type(stream).__module__.partition(".")[0] == "ipykernel"


class Shown(Protocol):
    """What is shown of a run: events, what is under way before them, and texts that stay."""

    def __call__(self, event: Event, /) -> None: ...
    def say(self, text: str) -> None: ...
    def doing(self, what: str) -> AbstractContextManager[None]: ...


class _Lines:
    def __init__(self, stream: TextIO) -> None:
        self._stream, self._pace, self._told_seconds = stream, Pace(), 0.0

    def __call__(self, event: Event) -> None:
        figures = self._pace.figures(event)
        self._told_seconds = min(self._told_seconds, event.seconds)  # sweeps count from 0 again
        if event.seconds - self._told_seconds >= SECONDS_BETWEEN_LINES:
            self._told_seconds = event.seconds
            self.say(f"{_stage(event)}, {format_share(figures.share_done)}, {figures}")

    def say(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()

    @contextmanager
    def doing(self, what: str) -> Generator[None]:
        begin = time.perf_counter()
        yield
        _took(self.say, what, time.perf_counter() - begin)


class _OneLine:
    """A line that is written over, as notebooks show it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._pace, self._written = stream, Pace(), 0

    def __call__(self, event: Event) -> None:
        figures = self._pace.figures(event)
        self._write(f"{_stage(event)}, {format_share(figures.share_done)}, {figures}")

    def say(self, text: str) -> None:
        self._write(text)
        self._stream.write("\n")
        self._written = 0

    @contextmanager
    def doing(self, what: str) -> Generator[None]:
        begin = time.perf_counter()
        self._write(f"{what} ...")
        yield
        _took(self.say, what, time.perf_counter() - begin)

    def clear(self) -> None:
        """Leave nothing of the line."""
        self._write("")
        self._write("")

    def _write(self, text: str) -> None:
        self._stream.write(f"\r{text:<{self._written}}")
        self._stream.flush()
        self._written = len(text)


def _took(say: Callable[[str], None], what: str, seconds: float) -> None:
    """Say what something took that was waited for."""
    if seconds >= LEAST_TOLD_SECONDS:
        say(f"{what} took {format_seconds(seconds)}")


@contextmanager
def _bar(stream: TextIO) -> Generator[Shown]:
    # Imported here: a run whose output goes to a file has no use for three megabytes of terminal.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (
        TextColumn("{task.fields[stage]}"),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    # Drawn only when an event comes: a thread that redraws would take time from the updates.
    console = Console(file=stream)
    bar = Progress(*columns, console=console, expand=True, auto_refresh=False, transient=True)

    class Bar:
        def __init__(self) -> None:
            self._pace = Pace()
            self._task = bar.add_task("", total=1.0, stage="", figures="", visible=False)

        def __call__(self, event: Event) -> None:
            figures = self._pace.figures(event)
            self._show(figures.share_done, _stage(event), figures.brief())

        def say(self, text: str) -> None:
            console.print(text, markup=False, highlight=False, soft_wrap=True)

        @contextmanager
        def doing(self, what: str) -> Generator[None]:
            begin = time.perf_counter()
            self._show(0.0, what, "")
            yield
            _took(self.say, what, time.perf_counter() - begin)

        def _show(self, share: float, stage: str, figures: str) -> None:
            bar.update(self._task, completed=share, stage=stage, figures=figures, visible=True)
            bar.refresh()

    with bar:
        yield Bar()
