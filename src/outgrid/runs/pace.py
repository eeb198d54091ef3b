"""How fast a run goes on: rates over the recent past, from counters that only grow."""

from collections import deque
from typing import Protocol

import msgspec

from outgrid.lines import format_share
from outgrid.units import format_rate, format_seconds

__all__ = ["Event", "Figures", "Pace", "share_done"]

# Long enough to hold a few slabs of a large run, short enough to notice a slower disk.
PACE_SECONDS = 20.0
# No time of arrival is told from less than this.
LEAST_PACE_SECONDS = 1.0


class Event(Protocol):
    """What a run tells a few times a second; counters from the start of the sweeps on.

    While a run is `filling`, a share of the initial values is `filled`, and counters are of that.
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
    def processor_seconds(self) -> float: ...
    @property
    def filling(self) -> bool: ...
    @property
    def filled(self) -> float: ...


class Figures(msgspec.Struct, frozen=True):
    """Rates over the recent past; `remaining_seconds` is None while too little has been seen.

    `processors` are the seconds of processors that the process took per second.
    """

    share_done: float
    updates_per_second: float
    read_bytes_per_second: float
    written_bytes_per_second: float
    wait_share: float
    processors: float
    remaining_seconds: float | None
    filling: bool = False

    def __str__(self) -> str:
        if self.filling:
            return f"{self._writing()}, {self._remaining()} left"
        return f"{self.rates()}, {self._remaining()} left"

    def rates(self) -> str:
        """Without the time that is left."""
        return (
            f"{format_rate(self.updates_per_second)}"
            f", read {self.read_bytes_per_second / 1e9:.2f} GB/s"
            f", {self._writing()}"
            f", waiting {format_share(self.wait_share)}"
        )

    def brief(self) -> str:
        """The same in so few letters that a bar fits beside it on 80 columns."""
        if self.filling:
            return f"{self._writing()}, {self._remaining()} left"
        return (
            f"{format_rate(self.updates_per_second)}"
            f", r/w {self.read_bytes_per_second / 1e9:.2f}/"
            f"{self.written_bytes_per_second / 1e9:.2f} GB/s"
            f", wait {self.wait_share:.0%}, {self._remaining()} left"
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
        seen, filling = self._seen, event.filling
        if seen and filling != seen[-1].filling:
            seen.clear()
        seen.append(event)
        while len(seen) > 2 and event.seconds - seen[1].seconds >= self._span_seconds:
            seen.popleft()
        oldest = seen[0] if len(seen) > 1 else None  # counters begin at 0
        seconds = event.seconds - (oldest.seconds if oldest is not None else 0.0)
        share = share_done(event)
        gained = share - (share_done(oldest) if oldest is not None else 0.0)

        def rate(name: str) -> float:
            amount = getattr(event, name) - (getattr(oldest, name) if oldest is not None else 0)
            return amount / seconds if seconds > 0 else 0.0

        known = seconds >= LEAST_PACE_SECONDS and gained > 0
        return Figures(
            share_done=share,
            updates_per_second=rate("updates_done"),
            read_bytes_per_second=rate("read_bytes"),
            written_bytes_per_second=rate("written_bytes"),
            wait_share=rate("wait_seconds"),
            processors=rate("processor_seconds"),
            remaining_seconds=(1 - share) * seconds / gained if known else None,
            filling=filling,
        )


def share_done(event: Event) -> float:
    """Of the initial values while they are written, then of the updates."""
    if event.filling:
        return event.filled
    return event.updates_done / event.updates_total if event.updates_total else 1.0
