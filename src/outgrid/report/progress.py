"""Progress of a run as it happens: a bar on a terminal, now and then a line elsewhere."""

import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any, Protocol, TextIO

from outgrid.lines import format_share
from outgrid.runs.pace import Event, Pace
from outgrid.units import format_seconds

__all__ = ["Shown", "follow", "is_watched"]

SECONDS_BETWEEN_LINES = 5.0
# What is over sooner than this before a run begins is not told.
LEAST_TOLD_SECONDS = 1.0


def _stage(event: Event) -> str:
    """What is under way."""
    return "initial values" if event.filling else f"sweep {event.sweep + 1}/{event.sweeps}"


@contextmanager
def follow(stream: TextIO) -> Generator["Shown"]:
    """A subscriber that shows events on `stream`.

    A bar on a terminal, which is removed in the end; a line in a notebook, which says in the end
    what was done; now and then a line elsewhere.
    """
    if stream.isatty():
        with _bar(stream) as bar:
            yield bar
    elif _in_notebook(stream):
        line = _OneLine(_cell())
        yield line
        line.end()
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
    """A line of a notebook that is replaced. What is said is in the record, too."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show, self._pace = show, Pace()
        self._begin, self._last = time.perf_counter(), ""

    def __call__(self, event: Event) -> None:
        figures = self._pace.figures(event)
        if not event.filling:
            self._last = f", {Pace().figures(event).rates()}"
        self._show(f"{_stage(event)}, {format_share(figures.share_done)}, {figures}")

    def say(self, text: str) -> None:
        self._show(text)

    @contextmanager
    def doing(self, what: str) -> Generator[None]:
        self._show(f"{what} ...")
        yield

    def end(self) -> None:
        """Leave a line that says what was done."""
        self._show(f"done in {format_seconds(time.perf_counter() - self._begin)}{self._last}")


def _cell() -> Callable[[str], None]:
    """What shows a line in the cell of a notebook that runs, in place of the one before."""
    display = import_module("IPython.display").display
    shown: Any = None

    def show(text: str) -> None:
        nonlocal shown
        data = {"text/plain": text}
        if shown is None:
            shown = display(data, raw=True, display_id=True)
        else:
            shown.update(data, raw=True)

    return show


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
