"""How a gradient that was stopped goes on: as a whole, not by the run that was under way."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from outgrid.errors import ExecutionError, Stopped
from outgrid.execute.stop import Interrupted

__all__ = ["going_on"]

RESUME = "; outgrid resume "
"""What follows tells how one run goes on."""


@contextmanager
def going_on(note: Path, way: str) -> Generator[None]:
    """Tell of what is made of several runs, where one of them is stopped, how all of it goes on:
    by that `way`. Once the file `note` is there, something of it is."""
    try:
        yield
    except Stopped as stopped:
        kept = _kept(note)
        raise Stopped(f"{str(stopped).partition(';')[0]}; {kept}; {way}", kept) from None
    except KeyboardInterrupt as interrupt:
        number = getattr(interrupt, "exit_code", 128 + signal.SIGINT) - 128
        raise Interrupted(number, f"stopped; {_kept(note)}; {way}") from None
    except ExecutionError as error:
        told, resume, _ = str(error).partition(RESUME)
        if not resume:
            raise
        raise ExecutionError(told) from None


def _kept(note: Path) -> str:
    return "what is finished is kept" if note.exists() else "nothing was finished"
