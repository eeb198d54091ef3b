"""What watches a run, at fixed moments.

files           before anything is made: the names of what it is going to leave
begin           files are made: it makes its own, or brings over what other ranks have left
go_on           an earlier process has left files: it checks its own
initial         a block of initial values is on its way into a store
filled          all initial values are in place
progressed      a few times a second: this far is what is under way
attach          a kernel is going to run: it gets what it needs
arriving        planes have come into the window
leaving         planes are on their way out of it
seen, ending    a sweep is computed: ranks tell each other of it; has the run come to its end?
end             the run ends early
check           a state, or a part of one, is going to be kept: is it sound?
commit          what was seen up to there becomes durable, before the manifest says so
committed       the manifest says so
close           all steps are made, or none can be
place           results go where they belong, on all ranks at once; what the record says of them
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from outgrid.comm import Comm
from outgrid.config import RunOptions
from outgrid.plan.instruction import Point
from outgrid.plan.program import Get, Move, Put
from outgrid.plan.schedule.rings import Arrival
from outgrid.runs.group import Durable
from outgrid.runs.manifest import Manifest
from outgrid.runs.pace import Event
from outgrid.runs.run import Run
from outgrid.seal import Seal
from outgrid.stencil.problem import Problem

__all__ = ["Arriving", "Initial", "Leaving", "Noted", "Observer", "Reached", "Window"]


class Window(Protocol):
    """The planes of a run that are in memory."""

    def views(self, move: Move, which: slice = ..., /) -> Sequence[NDArray[np.generic]]:
        """The planes that a transfer moves, or those ``which`` of them, one by one."""
        ...


Initial = Callable[[Arrival, range, range, NDArray[np.generic]], None]
Arriving = Callable[[Get, Window], None]
Leaving = Callable[[Put, Window], None]


class Reached(msgspec.Struct, frozen=True):
    """What a commit stands for: ``sweeps`` of this process, ``steps`` of the run.

    Of the sweep after them, of ``depth`` steps, planes below ``planes`` are there as well.
    """

    sweeps: int
    steps: int
    depth: int = 0
    planes: int = 0


class Noted(msgspec.Struct, frozen=True):
    """What the record says of what was left, as `Record` has it."""

    checksums: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    seals: dict[str, Seal] = msgspec.field(default_factory=dict[str, Seal])
    ended: str = ""
    preview: str | None = None
    warnings: tuple[str, ...] = ()

    @classmethod
    def together(cls, every: Iterable[Noted]) -> Noted:
        """What all observers of a run have noted."""
        every = list(every)
        return cls(
            {name: digest for noted in every for name, digest in noted.checksums.items()},
            {name: seal for noted in every for name, seal in noted.seals.items()},
            next((noted.ended for noted in every if noted.ended), ""),
            next((noted.preview for noted in every if noted.preview is not None), None),
            tuple(text for noted in every for text in noted.warnings),
        )


class Observer:
    """Watches a ``run``, or what one of its ranks does; at every moment it may do nothing.

    What it needs of planes on their way it looks at by ``initial(arrival, planes, rows, cells)``,
    ``arriving(get, window)`` and ``leaving(put, window)``, if it has them. Where one ``tells``,
    sweeps wait for each other.
    """

    tells: ClassVar[bool] = False
    initial: Initial | None = None
    arriving: Arriving | None = None
    leaving: Leaving | None = None

    def __init__(self, run: Run) -> None:
        self.run = run

    @classmethod
    def watches(cls, problem: Problem, options: RunOptions) -> bool:
        """Whether a run has such an observer."""
        return True

    @classmethod
    def files(cls, problem: Problem, options: RunOptions, *, alone: bool = True) -> tuple[str, ...]:
        """Names of what it leaves in the folder of a run, or of one rank that is not ``alone``.

        Until it is whole, a file has the name of `partial_path`.
        """
        return ()

    @classmethod
    def nbytes(cls, problem: Problem) -> int:
        """Bytes of what is large of these, beside snapshots, which plans count."""
        return 0

    def begin(self, manifest: Manifest, durable: Durable | None) -> Manifest:
        """Make files, and bring into them what is ``durable`` of a run that goes on in new files.

        Raises StoreError.
        """
        return manifest

    def go_on(self) -> None:
        """Check what an earlier process has left in files. Raises StoreError."""

    def filled(self, finite: bool) -> None:
        """All initial values are in place; whether those of this rank are finite."""

    def progressed(self, event: Event) -> None:
        """Initial values are being written, or sweeps go on; how far they are."""

    def attach(self, kernel: Any) -> Any:
        """The kernel with what it needs to be watched; files are opened for that."""
        return kernel

    def seen(self, sweeps: int) -> bytes | None:
        """What this rank tells the others after so many sweeps; see `Ending`."""
        return None

    def ending(self, sweeps: int, seen: Sequence[bytes]) -> str:
        """Why the run ends after so many sweeps, by what all ranks have ``seen``; "" if not."""
        return ""

    def end(self, run: Run) -> None:
        """The run ends early, as it is now."""
        self.run = run

    def check(self, point: Point) -> None:
        """Everything up to a point is in its stores: raise where it should not be kept."""

    def commit(self, reached: Reached, manifest: Manifest) -> Manifest:
        """Make durable what belongs to it; the manifest that stands on that, still to be written.

        Raises StoreError.
        """
        return manifest

    def committed(self, point: Point) -> None:
        """Everything up to a point is kept; raise where that is the end."""

    def close(self) -> None:
        """Let go of files. May be called again, and without `attach`."""

    def place(self, comm: Comm) -> Noted:
        """Leave results in place, on all ranks of ``comm`` at once; what the record says of them.

        May be called again after it was cut off. What is noted counts on rank 0. Raises StoreError.
        """
        return Noted()
