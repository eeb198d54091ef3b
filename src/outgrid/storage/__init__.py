"""The tiers: where a field's bytes live, and the moving of regions of them."""

from collections.abc import Callable
from pathlib import Path

from numpy.typing import DTypeLike

from outgrid.errors import UsageError
from outgrid.storage.base import Layout, Planes, Store
from outgrid.storage.direct import DirectStore
from outgrid.storage.memory import MemoryStore
from outgrid.storage.transfers import Completion, Transfers
from outgrid.units import nearest

__all__ = [
    "TIERS",
    "Completion",
    "DirectStore",
    "Layout",
    "MemoryStore",
    "Planes",
    "Store",
    "Transfers",
    "create_store",
]

Create = Callable[[str, tuple[int, ...], DTypeLike, Transfers, Path | None], Store]


def _direct(
    name: str, shape: tuple[int, ...], dtype: DTypeLike, transfers: Transfers, where: Path | None
) -> Store:
    if where is None:
        raise UsageError("the tier direct needs a directory for its files: give scratch a path")
    return DirectStore.create(where / f"{name}.npy", shape, dtype, transfers)


def _memory(
    name: str, shape: tuple[int, ...], dtype: DTypeLike, transfers: Transfers, where: Path | None
) -> Store:
    return MemoryStore.create(name, shape, dtype, transfers)


TIERS: dict[str, Create] = {"direct": _direct, "memory": _memory}


def create_store(
    tier: str,
    name: str,
    shape: tuple[int, ...],
    dtype: DTypeLike,
    transfers: Transfers,
    directory: Path | None = None,
) -> Store:
    """A new store of zeroes for field `name` in the tier of that name; files go to `directory`.

    Raises UsageError for an unknown tier, StoreError where the tier cannot hold the field.
    """
    if tier not in TIERS:
        close = nearest(tier, TIERS)
        hint = f"; did you mean {close!r}?" if close else ""
        raise UsageError(f"no tier {tier!r}; there are {sorted(TIERS)}{hint}")
    return TIERS[tier](name, shape, dtype, transfers, directory)
