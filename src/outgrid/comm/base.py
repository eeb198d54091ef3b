"""What the ranks of a run need of one another."""

from __future__ import annotations

from typing import Protocol, TypeVar

import msgspec

T = TypeVar("T")


class Rows(msgspec.Struct, frozen=True):
    """Memory of a message: ``rows`` of ``row_bytes``, one behind the other."""

    address: int
    rows: int
    row_bytes: int

    @property
    def nbytes(self) -> int:
        """Bytes of the message."""
        return self.rows * self.row_bytes


class Comm(Protocol):
    """One rank's side of a group of ranks, numbered from 0; ``local`` of them share its host.

    ``send``, ``receive`` and ``agree`` start something and return a ticket at once; the memory of a
    message belongs to it until its ticket comes out of ``ended``. Messages from one rank to another
    on the same ``channel`` arrive in the order in which they were sent, and each is received by a
    call for as many bytes. ``agree`` ends when all ranks have called it as often. Not for use from
    several threads.
    """

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def local(self) -> int: ...

    def send(self, peer: int, channel: int, source: Rows) -> int: ...
    def receive(self, peer: int, channel: int, into: Rows) -> int: ...
    def agree(self) -> int: ...
    def ended(self) -> list[int]: ...

    def share(self, value: T) -> list[T]:
        """The values of all ranks, in their order; waits for all of them."""
        ...

    def all_leave(self, seconds: float) -> bool:
        """Whether all ranks call this, once, within so long: nothing else is between them then."""
        ...

    def abort(self, code: int) -> None:
        """End all ranks, whatever they do, with an exit code."""
        ...
