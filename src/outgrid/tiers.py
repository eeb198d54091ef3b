"""The tiers, listed once: where a grid may live, and what follows from it."""

from __future__ import annotations

import msgspec

__all__ = [
    "COPIED_TIERS",
    "MAPPED_TIERS",
    "OWN_TIERS",
    "PASSING_TIERS",
    "SWAPPED_TIERS",
    "TIERS",
    "Tier",
]


class Tier(msgspec.Struct, frozen=True):
    """A tier of the name that users give, whose fields are ``words``.

    Its stores are made by the ``module`` of `storage/` of that name, unless a room of its own makes
    them. ``files`` outlive the process; where nothing does, ``lost`` tells it. ``mapped`` fields
    are memory of the process, and may be larger than its limit. A tier that is not ``streamed`` is
    the window itself.
    """

    name: str
    words: str
    module: str = ""
    files: bool = False
    mapped: bool = False
    streamed: bool = True
    lost: str = ""

    @property
    def swapped(self) -> bool:
        """Whether fields are memory of the process that the system may swap out."""
        return self.mapped and not self.files

    @property
    def passing(self) -> bool:
        """Whether fields end with the processes that hold them, unless they are kept elsewhere."""
        return bool(self.lost)

    @property
    def own(self) -> bool:
        """Whether fields are memory of the process, which shares it with no other."""
        return self.swapped or not self.streamed

    @property
    def copied(self) -> bool:
        """Whether fields are memory of any kind, moved by threads and not through descriptors."""
        return self.mapped or self.passing


TIERS = {
    tier.name: tier
    for tier in (
        Tier("direct", "files with direct I/O", "direct", files=True),
        Tier("mmap", "mapped files", "mapped", files=True, mapped=True),
        Tier(
            "swap",
            "memory that the system may swap out",
            "swap",
            mapped=True,
            lost="the grid is in memory that the system may swap out: an interrupted run cannot be "
            "resumed",
        ),
        Tier(
            "remote",
            "memory that other ranks lend",
            lost="remote memory is not durable: a run that was cut off, or lost a memory "
            'node, cannot be resumed; keep = "disk" also writes the grid to files',
        ),
        Tier("memory", "the window itself", "memory", streamed=False),
    )
}
"""In the order in which they are told."""

MAPPED_TIERS = tuple(name for name, tier in TIERS.items() if tier.mapped)
SWAPPED_TIERS = tuple(name for name, tier in TIERS.items() if tier.swapped)
OWN_TIERS = tuple(name for name, tier in TIERS.items() if tier.own)
COPIED_TIERS = tuple(name for name, tier in TIERS.items() if tier.copied)
PASSING_TIERS = tuple(name for name, tier in TIERS.items() if tier.passing)
