"""The group of ranks that this process was started in."""

from __future__ import annotations

import os
import sys
import time
from functools import cache

from outgrid.comm.base import Comm
from outgrid.comm.serial import Serial
from outgrid.errors import DefinitionError, InfeasiblePlan, Stopped, UsageError

# What launchers tell their processes: MPICH and Slurm, Open MPI, PMIx, MVAPICH.
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
_MARKS = ("PMIX_RANK",)


def launched_ranks() -> int | None:
    """Ranks that the launcher speaks of; 1 without a launcher, None where it does not say."""
    sizes = [os.environ[name] for name in _SIZES if os.environ.get(name, "").isdigit()]
    if sizes:
        return int(sizes[0])
    return None if any(name in os.environ for name in _MARKS) else 1


@cache
def world() -> Comm:
    """All ranks that were started together. Raises UsageError where MPI for them is missing."""
    ranks = launched_ranks()
    if ranks == 1:
        return Serial()
    try:
        from outgrid.comm.mpi import Mpi
    except ImportError as error:
        raise UsageError(
            f"{ranks or 'several'} ranks were started, but MPI cannot be used ({error}); install "
            "it with: pip install 'outgrid[mpi]'"
        ) from error
    return Mpi()


# What all ranks find alike is said by rank 0; the others give it so long to end them.
ALIKE = (DefinitionError, InfeasiblePlan, Stopped, UsageError)
PATIENCE_SECONDS = 3.0


def spoken_by(error: BaseException) -> str:
    """ "rank 3: " where one of several ranks fails alone; waits where rank 0 says it for all.

    Ends the process where rank 0 says that all of them were stopped.
    """
    if not world.cache_info().currsize or (comm := world()).size == 1:
        return ""
    if comm.rank and isinstance(error, Stopped) and _all_come(comm):
        sys.exit(error.exit_code)
    if comm.rank and isinstance(error, ALIKE):
        time.sleep(PATIENCE_SECONDS)
    return f"rank {comm.rank}: " if comm.rank or not isinstance(error, ALIKE) else ""


def leave(code: int) -> None:
    """End all ranks with an exit code, if there are others; returns where there are none.

    Ranks that were stopped end by themselves, each with that code: launchers make another one of
    ranks that they had to kill.
    """
    if world.cache_info().currsize and (comm := world()).size > 1:
        if code == Stopped.exit_code and _all_come(comm):
            return
        comm.abort(code)


def _all_come(comm: Comm) -> bool:
    """Whether all ranks get here, soon."""
    end = time.monotonic() + PATIENCE_SECONDS
    ticket = comm.agree()
    while time.monotonic() < end:
        if ticket in comm.ended():
            return True
        time.sleep(0.001)
    return False
