"""Which part of a grid each memory node holds. Bytes in, bytes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import InfeasiblePlan
from outgrid.units import format_bytes

__all__ = ["BLOCK_BYTES", "Placement", "block_bytes", "cut", "shares", "spread"]

Placement = Literal["cyclic", "contiguous"]
PAGE_BYTES = 4096
BLOCK_BYTES = 8 << 20  # dealt out at a time where the placement is cyclic


def block_bytes(needed_bytes: int, nodes: int) -> int:
    """The unit that is dealt out: smaller than usual where a node would get less than that."""
    pages = -(-needed_bytes // max(1, nodes) // PAGE_BYTES)
    return min(BLOCK_BYTES, PAGE_BYTES * max(1, pages))


def shares(needed_bytes: int, offered: Sequence[int], block_bytes: int = BLOCK_BYTES) -> list[int]:
    """Bytes that each node lends: as even as their offers allow, in whole blocks.

    Raises InfeasiblePlan, with the figures, where they offer too little together.
    """
    blocks = -(-needed_bytes // block_bytes)
    room = [nbytes // block_bytes for nbytes in offered]
    if sum(room) < blocks:
        listed = ", ".join(format_bytes(nbytes) for nbytes in offered)
        raise InfeasiblePlan(
            f"the grid needs {format_bytes(blocks * block_bytes)} of remote memory and "
            f"{len(offered)} nodes lend {format_bytes(sum(offered))} ({listed}): start more "
            "nodes, raise lend, or choose tier direct"
        )
    given = [0] * len(room)
    while blocks:
        able = [node for node in range(len(room)) if given[node] < room[node]]
        share = max(1, min(blocks // len(able), min(room[node] - given[node] for node in able)))
        for node in able:
            taken = min(share, blocks)
            given[node] += taken
            blocks -= taken
    return [count * block_bytes for count in given]


def spread(
    amounts: Sequence[int], placement: Placement, block_bytes: int = BLOCK_BYTES
) -> NDArray[np.int64]:
    """Where consecutive bytes lie: int64 of shape (n, 3), bytes, rank and displacement there.

    `amounts` are whole blocks of ranks 1, 2, ...; "contiguous" fills one after the other, "cyclic"
    deals blocks out in turn to all that have room.
    """
    if placement == "contiguous":
        parts = [(nbytes, rank, 0) for rank, nbytes in enumerate(amounts, 1) if nbytes]
        return np.array(parts, np.int64).reshape(-1, 3)
    blocks = [
        np.stack(
            [
                np.full(nbytes // block_bytes, block_bytes),
                np.full(nbytes // block_bytes, rank),
                np.arange(nbytes // block_bytes) * block_bytes,
            ],
            axis=1,
        )
        for rank, nbytes in enumerate(amounts, 1)
    ]
    dealt = np.concatenate(blocks).astype(np.int64).reshape(-1, 3)
    return dealt[np.lexsort((dealt[:, 1], dealt[:, 2]))]


def cut(parts: NDArray[np.int64], first: int, last: int) -> NDArray[np.int64]:
    """Where bytes `first` to `last` of what `parts` describe lie, in the same form."""
    ends = np.cumsum(parts[:, 0])
    begins = ends - parts[:, 0]
    low, high = np.maximum(begins, first), np.minimum(ends, last)
    inside = low < high
    return np.stack(
        [(high - low)[inside], parts[inside, 1], (parts[:, 2] + low - begins)[inside]], axis=1
    )
