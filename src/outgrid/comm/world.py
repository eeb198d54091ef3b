"""The group of ranks that this process was started in."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

from outgrid.comm.base import Comm
from outgrid.comm.serial import Serial
from outgrid.errors import DefinitionError, InfeasiblePlan, Stopped, UsageError

# What launchers tell their processes: MPICH and Slurm, Open MPI, PMIx, MVAPICH.
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
_MARKS = ("PMIX_RANK",)


def launched_ranks() -> int | None:
    """Ranks that the launcher speaks of; 1 without a launcher, None where it does not say."""
    sizes = [os.environ[name] for name in _SIZES if os.environ.get(name, "").isdecimal()]
    if sizes:
        return int(sizes[0])
    return None if any(name in os.environ for name in _MARKS) else 1


def strangers() -> str:
    """What helps where Slurm started several tasks that know nothing of each other; else nothing.

    Each of them takes itself for the only process of a run.
    """
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "")
    if launched_ranks() != 1 or not tasks.isdecimal() or int(tasks) < 2:
        return ""
    return (
        f"; Slurm started {tasks} tasks with no MPI between them: srun --mpi=pmi2 (or another of "
        "srun --mpi=list) lets them share a run"
    )


def world() -> Comm:
    """All ranks that work together: those that were started together, or this one that is `alone`.

    Raises UsageError where MPI for them is missing.
    """
    return _alone[-1] if _alone else _started()


_alone: list[Comm] = []


@contextmanager
def alone() -> Generator[None]:
    """Let this rank do by itself, meanwhile, what ranks do together. It still shares its host."""
    _alone.append(Serial(world().local))
    try:
        yield
    finally:
        _alone.pop()


@cache
def _started() -> Comm:
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


# What all ranks find alike is said by rank 0, and ends each of them with the same exit code.
# Launchers make another code of ranks that had to be killed; others have so long to come.
ALIKE = (DefinitionError, InfeasiblePlan, Stopped, UsageError)
PATIENCE_SECONDS = 3.0


def spoken_by(error: BaseException) -> str:
    """ "rank 3: " where one of several ranks fails alone.

    Ends the process where all of them fail alike and rank 0 says it.
    """
    if not _started.cache_info().currsize or (comm := _started()).size == 1:
        return ""
    alike = isinstance(error, ALIKE)
    if comm.rank and alike:
        end_alike(error.exit_code)
    return f"rank {comm.rank}: " if comm.rank or not alike else ""


def end_alike(code: int) -> None:
    """End a rank other than 0 with the code that rank 0 leaves with; on return it does not."""
    if _started().all_leave(PATIENCE_SECONDS):
        sys.exit(code)


def leave(code: int) -> None:
    """End all ranks with an exit code, if there are others that do not end by themselves."""
    if _started.cache_info().currsize and (comm := _started()).size > 1:
        alike = comm.rank == 0 and code in {kind.exit_code for kind in ALIKE}
        if not (alike and comm.all_leave(PATIENCE_SECONDS)):
            comm.abort(code)
