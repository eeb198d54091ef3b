"""Progress of a run as it happens: a bar on a terminal, now and then a line elsewhere."""

from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TextIO

from outgrid.lines import format_share
from outgrid.units import format_rate, format_seconds

__all__ = ["Event", "Figures", "Pace", "follow"]

# Long enough to hold a few slabs of a large run, short enough to notice a slower disk.
PACE_SECONDS = 20.0
# No time of arrival is told from less than this.
LEAST_PACE_SECONDS = 1.0
SECONDS_BETWEEN_LINES = 5.0


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
def follow(stream: TextIO) -> Generator[Callable[[Event], None]]:
    """A subscriber that shows events on `stream`: a bar if it is a terminal, else plain lines."""
    if stream.isatty():
        with _bar(stream) as show:
            yield show
    else:
        yield _lines(stream)


def _lines(stream: TextIO) -> Callable[[Event], None]:
    pace = Pace()
    told_seconds = 0.0

    def show(event: Event) -> None:
        nonlocal told_seconds
        figures = pace.figures(event)
        told_seconds = min(told_seconds, event.seconds)  # the sweeps count from 0 again
        if event.seconds - told_seconds >= SECONDS_BETWEEN_LINES:
            told_seconds = event.seconds
            share = format_share(figures.share_done)
            stream.write(f"{_stage(event)}, {share}, {figures}\n")
            stream.flush()

    return show


@contextmanager
def _bar(stream: TextIO) -> Generator[Callable[[Event], None]]:
    # Imported here: a run whose output goes to a file has no use for three megabytes of terminal.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (
        TextColumn("{task.fields[stage]}"),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    pace = Pace()
    # Drawn only when an event comes: a thread that redraws would take time from the updates.
    bar = Progress(*columns, console=Console(file=stream), expand=True, auto_refresh=False)
    with bar:
        task = bar.add_task("", total=1.0, stage="", figures="")

        def show(event: Event) -> None:
            figures = pace.figures(event)
            bar.update(
                task, completed=figures.share_done, stage=_stage(event), figures=figures.brief()
            )
            bar.refresh()

        yield show
