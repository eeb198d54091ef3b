"""One rank that is alone."""

from __future__ import annotations

import sys
from typing import TypeVar

from outgrid.comm.base import Rows

T = TypeVar("T")


class Serial:
    """A group of one: it agrees with itself, and there is nobody to write to."""

    rank = 0
    size = 1

    def __init__(self, local: int = 1) -> None:
        self.local = local
        self._tickets = 0
        self._ended: list[int] = []

    def send(self, peer: int, channel: int, source: Rows) -> int:
        raise ValueError(f"there is no rank {peer} to send channel {channel} to")

    def receive(self, peer: int, channel: int, into: Rows) -> int:
        raise ValueError(f"there is no rank {peer} to receive channel {channel} from")

    def agree(self) -> int:
        self._tickets += 1
        self._ended.append(self._tickets)
        return self._tickets

    def ended(self) -> list[int]:
        tickets, self._ended = self._ended, []
        return tickets

    def share(self, value: T) -> list[T]:
        return [value]

    def all_leave(self, seconds: float) -> bool:
        return True

    def abort(self, code: int) -> None:
        sys.exit(code)
