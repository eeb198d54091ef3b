"""The tiers: where a field's bytes live, and the moving of regions of them."""

from importlib import import_module
from pathlib import Path
from typing import Any

from outgrid.errors import UsageError
from outgrid.storage.base import (
    NATURAL,
    Habits,
    Layout,
    NewField,
    Planes,
    Store,
    Within,
    other_planes,
)
from outgrid.storage.beside import BesideStore
from outgrid.storage.direct import DirectStore, takes_direct
from outgrid.storage.joined import Joined, Piece
from outgrid.storage.mapped import MappedStore
from outgrid.storage.memory import MemoryStore
from outgrid.storage.paging import Pager, paged
from outgrid.storage.queued import queued
from outgrid.storage.series import (
    Frame,
    SeriesStore,
    Stamps,
    check_stamps,
    frames_of,
    read_frame,
    stamps_of,
)
from outgrid.storage.spread import Parts, SpreadStore, is_device, require_device
from outgrid.storage.swap import SwapStore
from outgrid.storage.transfers import Completion, Transfers
from outgrid.storage.transposed import TransposedStore
from outgrid.storage.uncopied import BegunStore, GivenStore, Uncopied
from outgrid.tiers import TIERS, Tier
from outgrid.units import suggest

__all__ = [
    "NATURAL",
    "BegunStore",
    "BesideStore",
    "Completion",
    "DirectStore",
    "Frame",
    "GivenStore",
    "Habits",
    "Joined",
    "Layout",
    "MappedStore",
    "MemoryStore",
    "NewField",
    "Pager",
    "Parts",
    "Piece",
    "Planes",
    "SeriesStore",
    "SpreadStore",
    "Stamps",
    "Store",
    "SwapStore",
    "Transfers",
    "TransposedStore",
    "Uncopied",
    "Within",
    "check_stamps",
    "create_store",
    "frames_of",
    "is_device",
    "open_store",
    "other_planes",
    "paged",
    "queued",
    "read_frame",
    "require_device",
    "stamps_of",
    "takes_direct",
]


def create_store(tier: str, new: NewField, transfers: Transfers) -> Store:
    """A store of a new field in the tier of that name: its file, or memory in place of that.

    Raises UsageError for an unknown tier, StoreError where the tier cannot hold the field.
    """
    made_here = {name: entry for name, entry in TIERS.items() if entry.module}
    if tier not in made_here:
        raise UsageError(f"no tier {tier!r}{suggest(tier, made_here)}")
    return _module(made_here[tier]).create(new, transfers)


def open_store(
    tier: str,
    path: Path,
    transfers: Transfers,
    habits: Habits | None = None,
    within: Within | None = None,
) -> DirectStore:
    """The field in the file `path`, or `within` another, to be changed, with its checksums.

    Raises UsageError for a tier that keeps no files, StoreError where the file cannot be opened.
    """
    in_files = {name: entry for name, entry in TIERS.items() if entry.files}
    if tier not in in_files:
        raise UsageError(f"tier {tier} keeps no files: choose {' or '.join(in_files)}")
    return _module(in_files[tier]).reopen(path, transfers, habits or Habits(), within)


def _module(tier: Tier) -> Any:
    """Who makes the stores of a tier, by `create`, and opens its files, by `reopen`."""
    return import_module(f"outgrid.storage.{tier.module}")
