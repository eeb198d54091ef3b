"""All that watch a run, called as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from outgrid.comm import Comm
from outgrid.observe.live import Live
from outgrid.observe.observer import Arriving, Initial, Leaving, Noted, Observer, Reached
from outgrid.plan.instruction import Point
from outgrid.runs.group import Durable
from outgrid.runs.manifest import Manifest
from outgrid.runs.pace import Event, Pace
from outgrid.runs.reading import Reading
from outgrid.runs.run import Run

__all__ = ["Observers"]

Look = TypeVar("Look", bound=Callable[..., None])


class Observers(Observer):
    """The observers ``every`` of a run, in the order in which they are called."""

    def __init__(self, run: Run, every: Sequence[Observer]) -> None:
        super().__init__(run)
        self._every = tuple(every)
        self._telling: list[tuple[Observer, int]] = []  # who has told how many bytes

    def begin(self, manifest: Manifest, durable: Durable | None) -> Manifest:
        for observer in self._every:
            manifest = observer.begin(manifest, durable)
        return manifest

    def go_on(self) -> None:
        for observer in self._every:
            observer.go_on()

    def filled(self, finite: bool) -> None:
        for observer in self._every:
            observer.filled(finite)

    def looks_at_initial(self) -> Initial | None:
        """Shows a block to all that look at initial values; None where nobody does."""
        return _all_of(
            [observer.initial for observer in self._every if observer.initial is not None]
        )

    def looks_at_leaving(self) -> Leaving | None:
        """Shows planes to all that look at what leaves the window; None where nobody does."""
        return _all_of(
            [observer.leaving for observer in self._every if observer.leaving is not None]
        )

    def looks_at_arriving(self) -> Arriving | None:
        """Shows planes to all that look at what has come in; None where nobody does."""
        return _all_of(
            [observer.arriving for observer in self._every if observer.arriving is not None]
        )

    def progressed(self, event: Event) -> None:
        for observer in self._every:
            observer.progressed(event)

    def swept(self, event: Event, pace: Pace) -> Reading:
        """What the run says of itself when the sweeps before that of an event are complete."""
        return next(o.swept(event, pace) for o in self._every if isinstance(o, Live))

    def attach(self, kernel: Any) -> Any:
        for observer in self._every:
            kernel = observer.attach(kernel)
        return kernel

    @property
    def somebody_tells(self) -> bool:
        """Whether one of them tells other ranks what it has seen of a sweep."""
        return any(observer.tells for observer in self._every)

    def seen(self, sweeps: int) -> bytes | None:
        said = [(observer, observer.seen(sweeps)) for observer in self._every if observer.tells]
        self._telling = [(observer, len(words)) for observer, words in said if words is not None]
        together = b"".join(words for _, words in said if words is not None)
        return together if self._telling else None

    def ending(self, sweeps: int, seen: Sequence[bytes]) -> str:
        at, ends = 0, ""
        for observer, count in self._telling:
            ends = ends or observer.ending(sweeps, [words[at : at + count] for words in seen])
            at += count
        return ends

    def end(self, run: Run) -> None:
        for observer in self._every:
            observer.end(run)

    def check(self, point: Point) -> None:
        for observer in self._every:
            observer.check(point)

    def commit(self, reached: Reached, manifest: Manifest) -> Manifest:
        for observer in self._every:
            manifest = observer.commit(reached, manifest)
        return manifest

    def committed(self, point: Point) -> None:
        for observer in self._every:
            observer.committed(point)

    def close(self) -> None:
        for observer in self._every:
            observer.close()

    def place(self, comm: Comm) -> Noted:
        return Noted.together(observer.place(comm) for observer in self._every)


def _all_of(looks: Sequence[Look]) -> Any:
    def look(*given: Any) -> None:
        for watcher in looks:
            watcher(*given)

    return look if looks else None
