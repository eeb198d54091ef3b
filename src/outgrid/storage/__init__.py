"""The tiers: where a field's bytes live, and the moving of regions of them."""

from pathlib import Path

from numpy.typing import DTypeLike

from outgrid.errors import UsageError
from outgrid.storage.base import Layout, Planes, Store
from outgrid.storage.beside import BesideStore
from outgrid.storage.direct import DirectStore
from outgrid.storage.joined import Joined, Piece
from outgrid.storage.mapped import Habits, MappedStore, SwapStore
from outgrid.storage.memory import MemoryStore
from outgrid.storage.paging import Pager, paged
from outgrid.storage.spread import Parts, SpreadStore, is_device, require_device
from outgrid.storage.transfers import Completion, Transfers
from outgrid.units import suggest

__all__ = [
    "TIERS",
    "BesideStore",
    "Completion",
    "DirectStore",
    "Habits",
    "Joined",
    "Layout",
    "MappedStore",
    "MemoryStore",
    "Pager",
    "Parts",
    "Piece",
    "Planes",
    "SpreadStore",
    "Store",
    "SwapStore",
    "Transfers",
    "create_store",
    "is_device",
    "open_store",
    "paged",
    "require_device",
]

TIERS = ("direct", "mmap", "swap", "memory")


def create_store(
    tier: str,
    path: Path,
    shape: tuple[int, ...],
    dtype: DTypeLike,
    transfers: Transfers,
    habits: Habits | None = None,
    *,
    sums: bool = False,
    overwrite: bool = False,
) -> Store:
    """A new store of zeroes in the tier of that name: the file `path`, or memory in its place.

    `sums` and `overwrite` are for files; see `DirectStore.create`. Raises UsageError for an unknown
    tier, StoreError where the tier cannot hold the field.
    """
    match tier:
        case "direct":
            return DirectStore.create(path, shape, dtype, transfers, sums=sums, overwrite=overwrite)
        case "mmap":
            store = MappedStore.create(
                path, shape, dtype, transfers, sums=sums, overwrite=overwrite, direct=False
            )
            return store.mapped(habits or Habits())
        case "swap":
            return SwapStore(path.stem, shape, dtype, transfers, habits)
        case "memory":
            return MemoryStore.create(path.stem, shape, dtype, transfers)
        case _:
            raise UsageError(f"no tier {tier!r}{suggest(tier, TIERS)}")


def open_store(
    tier: str, path: Path, transfers: Transfers, habits: Habits | None = None
) -> DirectStore:
    """The field in the file `path`, to be read and written, with its checksums.

    Raises UsageError for a tier that keeps no files, StoreError where the file cannot be opened.
    """
    match tier:
        case "direct":
            return DirectStore.open(path, transfers, "rw", sums=True)
        case "mmap":
            store = MappedStore.open(path, transfers, "rw", sums=True, direct=False)
            return store.mapped(habits or Habits())
        case _:
            raise UsageError(
                f"tier {tier} keeps no files that could be opened: take direct or mmap"
            )
