"""The functions a script calls: keywords in, values out, nothing decided here."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from outgrid import pipeline
from outgrid.comm import Comm, world
from outgrid.config import Places, RunOptions, run_folder
from outgrid.errors import Stopped, UsageError
from outgrid.execute.stop import Interrupted, Stop
from outgrid.execute.streaming import Progress, doing, say
from outgrid.machine import Machine, limit_on_memory
from outgrid.matrix.operator import linear_operator
from outgrid.matrix.product import DEFAULT_CHUNK_BYTES, StreamedMatrix
from outgrid.matrix.striped import lay_out
from outgrid.plan.model import Plan
from outgrid.report.progress import follow, is_watched
from outgrid.result import Result, open_run
from outgrid.runs.group import NOTHING_LEFT, what_is_left
from outgrid.runs.reading import Reading
from outgrid.runs.resumption import resumption
from outgrid.stencil.problem import Problem
from outgrid.units import parse_bytes

__all__ = ["Result", "matrix", "open_run", "plan", "resume", "run"]

Size = str | float | None
Folder = str | os.PathLike[str] | None
Shows = Callable[[Progress], None] | bool | None


def plan(
    problem: Problem,
    *,
    memory: Size = None,
    scratch: Places | None = None,
    machine: Machine | None = None,
    **options: Any,
) -> Plan:
    """How the problem would be run; ``.explain()`` tells it. Writes nothing.

    ``memory`` bounds the resident memory of the process: bytes, text like "32GiB", or as 0.5 a
    share of what the process may use (left out: half of it). ``options`` are the keys of a job
    file's ``[run]`` table, such as ``depth=8``. Started on several ranks of MPI, each of which
    calls this alike, it is the plan of one with two neighbours, the same for all, or on tier
    "remote" that of rank 0 with what each of the others lends; ``machine``, which stands in for
    this one, is for one process. What a run would be refused for here and now is told among the
    notes. Raises InfeasiblePlan where nothing fits, UsageError for an unknown option.
    """
    _check_problem(problem)
    comm, chosen = world(), _options(memory, scratch, None, options)
    if machine is not None and not isinstance(machine, cast("Any", Machine)):
        raise UsageError(
            f"machine must be a Machine, not {machine!r}; leave it out to plan for this machine"
        )
    proposal = pipeline.plan(problem, chosen, machine, comm=comm)
    if machine is not None:
        return proposal
    against = pipeline.objections(problem, chosen, proposal, comm=comm)
    notes = (f"a run would fail: {reason}" for reason in against)
    return replace(proposal, notes=(*proposal.notes, *notes))


def planned(
    problem: Problem,
    *,
    memory: Size = None,
    scratch: Places | None = None,
    out: Folder = None,
    progress: Shows = None,
    on_sweep: Callable[[Reading], None] | None = None,
    **options: Any,
) -> Plan:
    """The plan of a run with the same arguments, whose files need not be there yet."""
    return pipeline.plan(problem, _options(memory, scratch, out, options), comm=world())


def run(
    problem: Problem,
    *,
    memory: Size = None,
    scratch: Places | None = None,
    out: Folder = None,
    progress: Shows = None,
    overwrite: bool = False,
    resume: bool = False,
    on_sweep: Callable[[Reading], None] | None = None,
    **options: Any,
) -> Result:
    """Run the problem; ``result["u"]`` is the field u, read from disk slice by slice.

    ``out`` is the folder of the results (left out: ``outgrid.run``), ``scratch`` that of the
    working files (left out: inside ``out``); neither may hold results already. With ``overwrite``
    those of a former run in ``out`` are replaced: as soon as the new run has a plan and a kernel,
    the files that the former one made are removed, and no others. With ``resume`` a run of the same
    problem in ``out`` continues from its last commit. It starts again if it has made none. If it is
    finished, its result is returned at once. No option changes one bit of the result. Several ranks
    of MPI share the grid; all of them call this with the same arguments.

    A terminal and a notebook show the progress of the run. ``progress`` True shows it everywhere,
    False nowhere. A function is called with it a few times a second, while initial values are
    written (``filled`` below 1) and during the sweeps. Ctrl-C stops the run and commits its state;
    a second Ctrl-C ends it at once. Both raise KeyboardInterrupt. ``on_sweep`` is called on rank 0
    after each sweep with a `Reading`: steps made, rates, memory, reductions, time left. If it
    raises an exception, the run ends and can be resumed.

    Raises UsageError for an unknown option, an input of another shape or type, and a folder that
    holds results; InfeasiblePlan where nothing fits the limit or the disk; BuildError where the
    kernel does not compile; StoreError where bytes cannot be moved; ExecutionError for a value that
    becomes NaN or infinite; Stopped where ``stop_after`` ends the run, for ``resume`` to go on.
    """
    _check_problem(problem)
    comm, chosen = world(), _options(memory, scratch, out, options)
    if overwrite and resume:
        raise UsageError("overwrite removes the files that resume needs; give only one of the two")
    with _stoppable(chosen.results) as stop, _shown(progress, comm, on_sweep) as listener:
        if resume:
            return pipeline.run_or_resume(problem, chosen, listener, stop, comm=comm)
        return pipeline.run(problem, chosen, listener, stop, comm=comm, overwrite=overwrite)


def resume(
    out: str | os.PathLike[str],
    *,
    memory: Size = None,
    progress: Shows = None,
    on_sweep: Callable[[Reading], None] | None = None,
    **options: Any,
) -> Result:
    """Continue the unfinished run in ``out`` from its last commit. The result has the same bytes.

    ``memory``, ``on_sweep`` and ``options`` are as in `run`. An option that is left out keeps the
    value that it had, but for ``stop_after``, which is not kept; "auto" lets the plan choose
    again. Raises UsageError if the folder has no unfinished run, else what `run` raises.
    """
    comm = world()
    folder = run_folder(out)
    continuation = resumption(folder, {"memory": memory, **options}, comm)
    chosen, changes = continuation.options, continuation.changes
    with _stoppable(folder) as stop, _shown(progress, comm, on_sweep) as listener:
        return pipeline.resume(folder, chosen, listener, stop, changes, comm=comm)


def matrix(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    memory: Size = None,
    method: str = "direct",
    chunk: Size = DEFAULT_CHUNK_BYTES,
    stripe: Size = None,
) -> Any:
    """The dense matrix in a .npy file, however large, as a scipy.sparse.linalg.LinearOperator.

    Each product streams the matrix from its file once, ``chunk`` bytes at a time, while NumPy's
    BLAS multiplies what came before. ``memory`` bounds what of the matrix is in memory, in bytes or
    as text (left out: half of what the process may use); what the stream leaves over of it keeps
    the first rows. Several paths, best on as many disks, hold rows that follow each other; with
    ``stripe`` they hold one file together, as `stripe` lays it out. ``method`` is "direct" (past
    the page cache), "pread" or "mmap". Under mpiexec each rank reads and multiplies a part of the
    rows, all call the operator alike, and each has the whole product. Raises UsageError for files
    that are no matrix and where SciPy is missing, InfeasiblePlan where the limit holds no two rows.
    """
    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    size = parse_bytes(limit_on_memory(memory, world().local))
    chunk_bytes = parse_bytes(DEFAULT_CHUNK_BYTES if chunk is None else chunk)
    streamed = StreamedMatrix(
        paths,
        size,
        method=method,
        chunk_bytes=chunk_bytes,
        stripe_bytes=0 if stripe is None else parse_bytes(stripe),
        comm=world(),
    )
    return linear_operator(streamed)


def stripe(
    path: str | os.PathLike[str],
    parts: Sequence[str | os.PathLike[str]],
    *,
    stripe: Size = "1MiB",
) -> None:
    """Copy a .npy file into ``parts``, best on as many disks, in stripes of ``stripe`` bytes.

    Stripe k goes to part k mod n, one behind the other, as RAID 0 lays a file, and a mark ends each
    part; ``og.matrix`` with the same parts and stripe reads all disks at once and refuses others.
    Raises UsageError where ``path`` is no .npy file, a part exists, there are fewer than two, or a
    stripe is no multiple of 4 KiB.
    """
    lay_out(path, parts, parse_bytes("1MiB" if stripe is None else stripe))


def _check_problem(given: object) -> None:
    if not isinstance(given, Problem):
        raise UsageError(
            f"expected a Problem, not {given!r}; make one from a stencil, a shape and initial "
            "values: og.Problem(stencil, shape=..., steps=..., initial=...)"
        )


@contextmanager
def _shown(
    progress: Shows, comm: Comm, on_sweep: Callable[[Reading], None] | None = None
) -> Generator[Callable[[Progress], None] | None]:
    """Who is told how far a run has come: whom the caller names, else whoever looks on."""
    if on_sweep is not None and not callable(on_sweep):
        raise UsageError(f"on_sweep must be a function of a Reading, not {on_sweep!r}")
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise UsageError(f"progress must be True, False or a function, not {progress!r}")
    with _watching(progress, comm) as listener:
        yield listener if on_sweep is None else _WithSweeps(listener, on_sweep)


@contextmanager
def _watching(progress: Shows, comm: Comm) -> Generator[Callable[[Progress], None] | None]:
    stream = sys.stderr
    if comm.rank > 0 or progress is False:
        yield None
    elif callable(progress):
        yield progress
    elif progress or is_watched(stream):
        with follow(stream) as shown:
            yield shown
    else:
        yield None


class _WithSweeps:
    """A listener, and a function that is called after each sweep."""

    def __init__(
        self, listener: Callable[[Progress], None] | None, on_sweep: Callable[[Reading], None]
    ) -> None:
        self._listener, self.swept = listener, on_sweep

    def __call__(self, progress: Progress, /) -> None:
        if self._listener is not None:
            self._listener(progress)

    def say(self, text: str) -> None:
        say(self._listener, text)

    def doing(self, what: str) -> AbstractContextManager[None]:
        return doing(self._listener, what)


@contextmanager
def _stoppable(out: Path) -> Generator[Stop]:
    """Ctrl-C stops the run in ``out`` so that it can be resumed; a second one ends it at once.

    Programs that do something else on Ctrl-C go on doing so.
    """
    stop, way = Stop(), f"og.resume({str(out)!r}) continues it"
    own = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    try:
        with stop.on_signals(() if own else (signal.SIGINT,)):
            yield stop
    except Stopped as stopped:
        if stop.heard is None:
            raise
        raise Interrupted(stop.heard, f"stopped; {stopped.kept}; {way}") from None
    except KeyboardInterrupt:
        left = what_is_left(out)
        told = f"{left}; {way}" if left else NOTHING_LEFT
        raise Interrupted(signal.SIGINT, f"stopped; {told}") from None


def _options(
    memory: Size, scratch: Places | None, out: Folder, options: dict[str, Any]
) -> RunOptions:
    size = limit_on_memory(memory, world().local)
    named: dict[str, Any] = {"memory": size, "scratch": scratch, "out": out}
    chosen = RunOptions.of(**(named | options))
    return msgspec.structs.replace(chosen, memory_asked=memory is not None)
