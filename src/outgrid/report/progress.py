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
    """What a run tells a few times a second; counters from the start of the sweeps on."""

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


@dataclass(frozen=True, slots=True)
class Figures:
    """Rates over the recent past; `remaining_seconds` is None while too little has been seen."""

    share_done: float
    updates_per_second: float
    read_bytes_per_second: float
    written_bytes_per_second: float
    wait_share: float
    remaining_seconds: float | None

    def __str__(self) -> str:
        return (
            f"{format_rate(self.updates_per_second)}"
            f", read {self.read_bytes_per_second / 1e9:.2f} GB/s"
            f", write {self.written_bytes_per_second / 1e9:.2f} GB/s"
            f", waiting {format_share(self.wait_share)}, {self._remaining()} left"
        )

    def brief(self) -> str:
        """The same in so few letters that a bar fits beside it on 80 columns."""
        return (
            f"{format_rate(self.updates_per_second)}"
            f", r/w {self.read_bytes_per_second / 1e9:.2f}/"
            f"{self.written_bytes_per_second / 1e9:.2f} GB/s"
            f", wait {self.wait_share:.0%}, {self._remaining()}"
        )

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
        seen = self._seen
        seen.append(event)
        while len(seen) > 2 and event.seconds - seen[1].seconds >= self._span_seconds:
            seen.popleft()
        oldest = seen[0]
        seconds = event.seconds - oldest.seconds
        updates = event.updates_done - oldest.updates_done

        def rate(amount: float) -> float:
            return amount / seconds if seconds > 0 else 0.0

        left = event.updates_total - event.updates_done
        known = seconds >= LEAST_PACE_SECONDS and updates > 0
        return Figures(
            share_done=event.updates_done / event.updates_total if event.updates_total else 1.0,
            updates_per_second=rate(updates),
            read_bytes_per_second=rate(event.read_bytes - oldest.read_bytes),
            written_bytes_per_second=rate(event.written_bytes - oldest.written_bytes),
            wait_share=rate(event.wait_seconds - oldest.wait_seconds),
            remaining_seconds=left / rate(updates) if known else None,
        )


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
        if event.seconds - told_seconds >= SECONDS_BETWEEN_LINES:
            told_seconds = event.seconds
            share = format_share(figures.share_done)
            stream.write(f"sweep {event.sweep + 1}/{event.sweeps}, {share}, {figures}\n")
            stream.flush()

    return show


@contextmanager
def _bar(stream: TextIO) -> Generator[Callable[[Event], None]]:
    # Imported here: a run whose output goes to a file has no use for three megabytes of terminal.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (
        TextColumn("{task.fields[sweep]}"),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    pace = Pace()
    # Drawn only when an event comes: a thread that redraws would take time from the updates.
    bar = Progress(*columns, console=Console(file=stream), expand=True, auto_refresh=False)
    with bar:
        task = bar.add_task("", total=1.0, sweep="", figures="")

        def show(event: Event) -> None:
            figures = pace.figures(event)
            sweep = f"sweep {event.sweep + 1}/{event.sweeps}"
            bar.update(task, completed=figures.share_done, sweep=sweep, figures=figures.brief())
            bar.refresh()

        yield show
