"""A script's mistake that all ranks make alike, told once."""

from __future__ import annotations

import sys
import traceback
from types import TracebackType

from outgrid.comm.world import ALIKE, end_alike, launched_ranks, world
from outgrid.errors import Error

__all__ = ["tell_once"]


def tell_once() -> None:
    """Let rank 0 tell what all ranks refuse, in a line, where several run the same script.

    What one of them fails in alone is told by that one, with its traceback.
    """
    if launched_ranks() != 1:
        sys.excepthook = _tell


def _tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    try:
        comm = world() if isinstance(error, ALIKE) else None
    except Error:  # without MPI each process is alone
        comm = None
    if comm is None or comm.size == 1 or not isinstance(error, Error):
        sys.__excepthook__(kind, error, trace)
        return
    if comm.rank:
        end_alike(error.exit_code)
        sys.__excepthook__(kind, error, trace)
        return
    frames = traceback.extract_tb(trace)
    place = f"{frames[0].filename}:{frames[0].lineno}: " if frames else ""
    sys.stderr.write(f"{place}{error}\n")
    end_alike(error.exit_code)
