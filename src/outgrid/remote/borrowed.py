"""The remote memory of a run: borrowed when its plan is known, handed out to its stores."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from msgspec.structs import replace

from outgrid.comm import Comm
from outgrid.config import RunOptions
from outgrid.errors import Error, ExecutionError, StoreError, UsageError
from outgrid.plan.model import Plan
from outgrid.remote.placement import block_bytes, cut, shares, spread
from outgrid.remote.store import KeptRemoteStore, RemoteSpace, RemoteStore
from outgrid.seal import Seal
from outgrid.storage import NewField, Store, Transfers
from outgrid.storage.export import export
from outgrid.units import format_bytes

if TYPE_CHECKING:
    from outgrid.remote.lending import Lenders

__all__ = ["Borrowed", "asked", "borrowed", "check_lenders", "lend"]

T = TypeVar("T")


class Borrowed:
    """What the lenders of a run have lent, and the stores in it."""

    def __init__(self, lenders: Lenders, options: RunOptions) -> None:
        self._lenders, self._options = lenders, options
        lenders.after_loss = (
            "outgrid resume continues from the files on disk, in one process on tier direct or "
            "under mpiexec in memory that ranks lend"
            if options.keep == "disk"
            else 'remote memory is not durable, so the run is lost; keep = "disk" makes '
            "runs resumable"
        )
        self._space: RemoteSpace | None = None

    def spread(self, chosen: Plan) -> Plan:
        """The plan with what each node is going to lend. Raises InfeasiblePlan if too little."""
        offers = self._lenders.offers
        amounts, _ = self._shares(chosen)
        notes = [
            f"{offer.name} lends {format_bytes(amount)} of {format_bytes(offer.nbytes)}, "
            f"{self._options.placement}"
            + ("" if offer.watched else "; its loss cannot be detected")
            for offer, amount in zip(offers, amounts, strict=True)
        ]
        return replace(chosen, notes=(*chosen.notes, *notes))

    def take(self, chosen: Plan) -> None:
        """Borrow what the plan needs."""
        amounts, unit = self._shares(chosen)
        window = self._lenders.window(amounts)
        where = partial(cut, spread(amounts, self._options.placement, unit))
        self._space = RemoteSpace(window.calls, sum(amounts), where)

    def create(self, new: NewField, transfers: Transfers) -> Store:
        """A store for a field, whose file is made only where it is to be kept."""
        remote = self._store(new, transfers)
        if self._options.keep == "none":
            return remote
        kept = KeptRemoteStore.create(new.path, new.shape, new.dtype, transfers, sums=new.sums)
        return kept.beside(remote)

    def create_seam(self, new: NewField, transfers: Transfers) -> Store:
        """A store for a seam, which no later process needs."""
        return self._store(new, transfers)

    def open(self, path: Path, transfers: Transfers, seal: Seal, planes: range) -> Store:
        """A store of what an earlier process has kept in the file `path`: of ``planes``."""
        kept = KeptRemoteStore.open(path, transfers, "rw", sums=True)
        remote = self._store(NewField(path, kept.shape, kept.dtype), transfers)
        kept.hold(seal)
        export(kept, remote, transfers, planes)  # from the file, as long as nothing is beside it
        return kept.beside(remote)

    def check(self) -> None:
        """Raise ExecutionError where a lender is gone."""
        self._lenders.check()

    def _shares(self, chosen: Plan) -> tuple[list[int], int]:
        """What each node lends, and the unit in which it is dealt out."""
        needed, offered = _needed_bytes(chosen), [offer.nbytes for offer in self._lenders.offers]
        unit = block_bytes(needed, len(offered))
        return shares(needed, offered, unit), unit

    def _store(self, new: NewField, transfers: Transfers) -> RemoteStore:
        if self._space is None:
            raise ExecutionError("remote memory was not borrowed before its stores were made")
        return RemoteStore(new.path.stem, new.shape, new.dtype, transfers, self._space)


@contextmanager
def borrowed(options: RunOptions) -> Generator[Borrowed | None]:
    """The lenders of a run on rank 0, where its tier needs them.

    An error that came from the loss of one of them becomes an ExecutionError that names it.
    """
    if options.tier != "remote":
        yield None
        return
    with _comm().lending(options.lend_bytes) as lenders:
        remote = Borrowed(lenders, options)
        try:
            yield remote
        except StoreError:
            remote.check()
            raise


def lend(options: RunOptions) -> bool:
    """On a rank other than 0 of tier remote: lend memory until rank 0 is done. Whether it did."""
    if options.tier != "remote" or _comm().rank() == 0:
        return False
    with _comm().lending(options.lend_bytes):
        return True


def asked(options: RunOptions, comm: Comm, act: Callable[[Borrowed | None], T]) -> list[T]:
    """What ``act`` gives on all ranks that compute, which every rank of ``comm`` is told.

    On tier remote that is rank 0 alone, with what the others lend, and an error of its is theirs.
    """
    if options.tier != "remote" or comm.size == 1:
        return comm.share(act(None))
    answer: T | Error | None = None
    try:
        if not lend(options):
            with borrowed(options) as remote:
                answer = act(remote)
    except Error as error:
        answer = error
    answer = comm.share(answer)[0]
    if isinstance(answer, Error):
        raise answer
    assert answer is not None  # what rank 0 has found
    return [answer]


def check_lenders(options: RunOptions, comm: Comm) -> None:
    """Raise UsageError where a run on tier remote would find nobody to borrow from."""
    if comm.size == 1:  # else they were asked for the plan
        with borrowed(options):
            pass


def _comm() -> ModuleType:
    try:
        from outgrid.remote import lending
    except ImportError as error:
        raise UsageError(
            f"tier remote needs MPI ({error}); install it with: pip install 'outgrid[mpi]'"
        ) from error
    return lending


def _needed_bytes(chosen: Plan) -> int:
    """Bytes of both states of every evolving level, of coefficients and of seams."""
    seams = (
        math.prod(shape) * np.dtype(chosen.dtype_of(field)).itemsize
        for (field, *_), shape in chosen.schedule.places.items()
    )
    return chosen.working_bytes + sum(seams)
