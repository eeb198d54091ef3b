"""Where updates are made: a window, who updates the planes in it, and how bytes come there."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from msgspec.structs import replace

from outgrid.execute.moves import Hierarchy, Tickets
from outgrid.execute.streaming import Updates
from outgrid.execute.window import Window
from outgrid.plan.model import Plan
from outgrid.storage import Completion, Store, Transfers

__all__ = ["HostSite", "Site", "reached"]

Key = TypeVar("Key", bound=Hashable)
K = TypeVar("K", bound=Updates)
C = TypeVar("C", contravariant=True)


class OwnTickets(Tickets, Protocol):
    """Transfers that can be waited for and ended."""

    def drain(self) -> list[Completion]: ...
    def close(self) -> None: ...


class Site(Protocol[C]):
    """The place of a run's updates. Kernels of its kind, and nothing else, update its window."""

    @property
    def window(self) -> Any: ...
    @property
    def transfers(self) -> OwnTickets: ...

    def reach(self, stores: Mapping[Key, Store]) -> Mapping[Key, Store]:
        """Stores as they are seen from here: whose regions come to the window and go from it."""
        ...

    def updates(self, plan: Plan, kernel: C) -> Updates:
        """Whoever carries out the advances of ``plan`` here, by ``kernel``."""
        ...

    def settle(self) -> None:
        """Let all advances end, and bring what they have seen to their kernel."""
        ...

    def copied_bytes(self) -> tuple[int, int]:
        """Bytes that were copied to (up) and from (down) memory other than that of the process."""
        ...

    def release(self) -> None:
        """Give the window back; nothing may look at it any more."""
        ...

    def close(self) -> None:
        """Let the transfers under way end, and let go of all but memory of the process."""
        ...


def reached(hierarchy: Hierarchy[Any], site: Site[Any]) -> Hierarchy[Any]:
    """A memory hierarchy as it is seen from a place of updates."""
    return replace(
        hierarchy,
        stores=site.reach(hierarchy.stores),
        transfers=site.transfers,
        seams=site.reach(hierarchy.seams),
    )


class HostSite(Generic[K]):
    """The processor and the memory of the process, where nothing stands between."""

    def __init__(self, window: Window, transfers: Transfers) -> None:
        self.window, self.transfers = window, transfers

    def reach(self, stores: Mapping[Key, Store]) -> Mapping[Key, Store]:
        """The stores themselves."""
        return stores

    def updates(self, plan: Plan, kernel: K) -> K:
        """The kernel itself."""
        return kernel

    def settle(self) -> None:
        """An advance that returned has ended."""

    def copied_bytes(self) -> tuple[int, int]:
        """Nothing is copied."""
        return 0, 0

    def release(self) -> None:
        """Give the window back."""
        self.window.release()

    def close(self) -> None:
        """Let the transfers under way end."""
        self.transfers.close()
