"""Ranks that lend their memory to rank 0, through MPI's one-sided calls.

Rank 0 computes; every other rank opens windows when rank 0 asks for them, and otherwise only lets
MPI make progress. Beside MPI each of them holds one TCP connection to rank 0, a lifeline: the
kernel closes it when either process is gone, which MPI by itself would not tell.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil
from mpi4py import MPI

from outgrid.errors import ExecutionError, UsageError
from outgrid.native import MpiWindow
from outgrid.remote.lifelines import Lines, addresses, ended, greeted, has_ended, reach

__all__ = ["Lenders", "Offer", "Window", "lending", "rank"]

TAG = 1
NEAR_SECONDS = 2e-3  # between two looks of a rank whose memory rank 0 sees as its own
FAR_SECONDS = 5e-5  # and of one that has to answer
HANGING_SECONDS = 10.0  # after a loss, until MPI is taken to hang
LOST_EXIT_CODE = 4
SHARED_MEMORY = Path("/dev/shm")
CALLS = (
    "MPI_Get",
    "MPI_Put",
    "MPI_Win_flush",
    "MPI_Type_create_hindexed",
    "MPI_Type_commit",
    "MPI_Type_free",
    "MPI_Error_string",
)


class Offer(msgspec.Struct, frozen=True):
    """What a rank can lend: `nbytes`, its share of what is free on its host."""

    rank: int
    host: str
    pid: int
    nbytes: int
    watched: bool  # whether its lifeline stands

    @property
    def name(self) -> str:
        """For messages."""
        return f"rank {self.rank} (host {self.host}, process {self.pid})"


class Window:
    """Memory of all lenders, `amounts` bytes of each; all ranks make and free it together."""

    def __init__(self, comm: MPI.Intracomm, amounts: Sequence[int]) -> None:
        nbytes = 0 if comm.rank == 0 else amounts[comm.rank - 1]
        self._amounts, self._open = amounts, ExitStack()
        self._calls: MpiWindow | None = None
        self._window = MPI.Win.Allocate(nbytes, 1, MPI.INFO_NULL, comm)
        self._window.Set_errhandler(MPI.ERRORS_RETURN)

    def open(self) -> None:
        """Let rank 0 reach the memory."""
        self._window.Lock_all(MPI.MODE_NOCHECK)
        self._open.callback(self._window.Unlock_all)
        library = ctypes.CDLL(MPI.__file__)
        table = {name: _address(getattr(library, name)) for name in CALLS}
        table["MPI_BYTE"] = MPI.BYTE.handle
        table["window"] = self._window.handle
        seen = [_seen(self._window, rank, nbytes) for rank, nbytes in enumerate(self._amounts, 1)]
        self._calls = MpiWindow(table, [0, *seen])
        self._open.callback(self._calls.close)  # a pager may still hold pages of it, or read ahead

    @property
    def mpi(self) -> MPI.Win:
        """The window itself."""
        return self._window

    @property
    def calls(self) -> MpiWindow:
        """What moves the memory without the interpreter, on rank 0 while this is open."""
        if self._calls is None:
            raise ExecutionError("the window of remote memory is not open on this rank")
        return self._calls

    def lose(self, rank: int) -> None:
        """Touch the memory of a rank no more."""
        if self._calls is not None:
            self._calls.lose(rank)

    def close(self) -> None:
        """Let nobody reach the memory any more."""
        self._open.close()

    def free(self) -> None:
        """Give the memory back; all ranks together."""
        self._window.Free()


class Lenders:
    """Rank 0's view of the ranks that lend."""

    def __init__(self, comm: MPI.Intracomm, offers: Sequence[Offer]) -> None:
        self._comm = comm
        self.offers = tuple(offers)
        self._windows: list[Window] = []
        self._lost: Offer | None = None
        self._ended = False
        self.after_loss = "remote memory is not durable"  # what a loss means, for messages

    def window(self, amounts: Sequence[int]) -> Window:
        """Borrow so many bytes of each lender, in the order of `offers`.

        Raises UsageError where that is more than one of them offers.
        """
        for offer, nbytes in zip(self.offers, amounts, strict=True):
            if nbytes > offer.nbytes:
                raise UsageError(
                    f"{offer.name} was asked for {nbytes} bytes and lends {offer.nbytes}"
                )
        self._tell("lend", tuple(amounts))
        window = Window(self._comm, amounts)
        self._windows.append(window)  # the others have theirs, whatever comes of it here
        window.open()
        return window

    def check(self) -> None:
        """Raise ExecutionError, naming it, if a lender is gone."""
        if self._lost is not None:
            raise ExecutionError(
                f"the memory node {self._lost.name} is lost, with its data; {self.after_loss}"
            )

    def lose(self, offer: Offer) -> None:
        """Take note that a lender is gone: nothing touches its memory from now on."""
        if self._ended or self._lost is not None:
            return
        self._lost = offer
        # Said at once: a launcher ends all ranks when one dies, or drops what they print later.
        line = f"outgrid: the memory node {offer.name} is lost; {self.after_loss}\n"
        with suppress(OSError):
            os.write(sys.stderr.fileno(), line.encode())
        for window in self._windows:
            for lender in self.offers:  # what is elsewhere is of no use without it
                window.lose(lender.rank)
        # MPI cannot end in order without that rank, and a call that waits for it never returns.
        atexit.register(_leave)
        timer = threading.Timer(HANGING_SECONDS, _leave)
        timer.daemon = True
        timer.start()

    def end(self) -> None:
        """Let the lenders go."""
        if self._lost is not None:
            return
        for window in self._windows:
            window.close()
        self._tell("end", None)
        self._ended = True
        for window in self._windows:
            window.free()
        self._comm.Barrier()  # lifelines end after this, and then mean nothing

    def _tell(self, what: str, value: Any) -> None:
        self.check()
        for offer in self.offers:
            self._comm.send((what, value), offer.rank, TAG)


def rank() -> int:
    """The number of this rank."""
    return MPI.COMM_WORLD.rank


@contextmanager
def lending(most_bytes: int | None = None) -> Generator[Lenders | None]:
    """Inside, rank 0 has lenders; on every other rank this lends, and yields None when it is over.

    No rank lends more than `most_bytes`, nor more than nine tenths of its share of what is free on
    its host. Raises UsageError where nobody could lend, or MPI serves one thread only.
    """
    world = MPI.COMM_WORLD
    if world.size == 1:
        raise UsageError(
            "remote memory needs ranks that lend it: start with mpiexec -n 3 (one rank computes, "
            "the others lend)"
        )
    if MPI.Query_thread() != MPI.THREAD_MULTIPLE:
        raise UsageError("this MPI does not let several threads call it (MPI_THREAD_MULTIPLE)")
    # Some launchers announce the death of a rank with this signal; lifelines tell it better.
    _ignore(signal.SIGUSR1)
    comm = world.Dup()
    with ExitStack() as open_lines:
        lines, offers, near = _meet(comm, most_bytes, open_lines)
        if comm.rank != 0:
            _lend(comm, lines, near)
            yield None
            return
        lenders = Lenders(comm, offers)
        stop, stopped = socket.socketpair()
        watch = threading.Thread(target=_watch, args=(lenders, lines, stopped), daemon=True)
        watch.start()
        try:
            yield lenders
        finally:
            stop.close()
            watch.join()
            stopped.close()
            lenders.end()


def _watch(lenders: Lenders, lines: Lines, stopped: socket.socket) -> None:
    """Take note of lifelines that end, until the other end of `stopped` is closed."""
    for rank in ended(lines, stopped):
        lenders.lose(next(offer for offer in lenders.offers if offer.rank == rank))


def _meet(
    comm: MPI.Intracomm, most_bytes: int | None, stack: ExitStack
) -> tuple[Lines, list[Offer], bool]:
    """Lifelines, what every lender offers, and whether this rank is on the host of rank 0."""
    hosts = comm.allgather(_host())
    mine = hosts[comm.rank]
    on_host = sum(host == mine for host in hosts[1:])
    if comm.rank == 0:
        listener = stack.enter_context(socket.create_server(("", 0), backlog=comm.size))
        token = secrets.token_bytes(16)
        comm.bcast((addresses(), listener.getsockname()[1], token))
        gathered = comm.gather(None)
        offers: list[Offer] = [offer for offer in gathered or [] if offer is not None]
        try:
            lines = greeted(listener, token, sum(offer.watched for offer in offers))
        except ExecutionError as error:
            comm.bcast(error)  # for the others, who wait
            raise
        for line in lines.values():
            stack.enter_context(line)
        return lines, comm.bcast(offers), True
    places, port, token = comm.bcast(None)
    line = reach(places, port, token, comm.rank)
    lines: Lines = {} if line is None else {0: stack.enter_context(line)}
    free = _free_bytes() * 9 // 10 // max(1, on_host)
    nbytes = free if most_bytes is None else min(free, most_bytes)
    offer = Offer(comm.rank, mine[0], os.getpid(), nbytes, line is not None)
    comm.gather(offer)
    answer: list[Offer] | ExecutionError = comm.bcast(None)
    if isinstance(answer, ExecutionError):
        raise answer
    return lines, answer, mine == hosts[0]


def _lend(comm: MPI.Intracomm, lines: Lines, near: bool) -> None:
    """Do what rank 0 says until it says that it is over."""
    # A launcher hands signals to all ranks; rank 0 decides what they mean.
    _ignore(signal.SIGTERM)
    _ignore(signal.SIGINT)
    windows: list[Window] = []
    while True:
        if comm.Iprobe(0, TAG):
            what, value = comm.recv(None, 0, TAG)
            if what == "end":
                break
            windows.append(Window(comm, value))
        if lines and has_ended(lines[0]):
            _leave()
        time.sleep(NEAR_SECONDS if near else FAR_SECONDS)
    for window in windows:
        window.free()
    comm.Barrier()


def _leave() -> None:
    """End without MPI's farewell, which waits for all ranks.

    MPI_Abort would do, but launchers drop what was printed just before it.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(LOST_EXIT_CODE)


def _ignore(number: signal.Signals) -> None:
    with suppress(ValueError):  # not in the main thread
        signal.signal(number, signal.SIG_IGN)


def _host() -> tuple[str, str]:
    """The name of the host, and what tells it from another one of the same name."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return socket.gethostname(), boot
    return socket.gethostname(), ""


def _free_bytes() -> int:
    """Memory that a window can be made of; MPI takes it from shared memory on one host."""
    free = psutil.virtual_memory().available
    with suppress(OSError):
        status = os.statvfs(SHARED_MEMORY)
        free = min(free, status.f_bavail * status.f_frsize)
    return free


def _seen(window: MPI.Win, rank: int, nbytes: int) -> int:
    """Where the memory of a rank lies in this process, if its host is this one; else 0.

    MPI 4.1 tells it of all kinds of windows; before, bytes go by MPI's calls here as well.
    """
    try:
        memory, _ = window.Shared_query(rank)
    except (MPI.Exception, NotImplementedError):
        return 0
    return memory.address if memory.nbytes >= nbytes > 0 else 0


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    if address is None:
        raise UsageError("MPI's library cannot be called without the interpreter")
    return address
