"""How much a probe moves, and for how long."""

from __future__ import annotations

import msgspec

from outgrid.config import DEFAULT_QUEUE_DEPTH, DEFAULT_REQUEST_BYTES


class Effort(msgspec.Struct, frozen=True):
    """Sizes in bytes, times in seconds; the defaults end within 25 seconds on two cores.

    Every quantity is measured `rounds` times, in rounds that take turns over all quantities: what
    disturbs the machine for a second spoils one value of each and no median. `transfer_seconds` is
    the time for one kind of transfer in one round, `pass_bytes` what one core moves at least for
    one rate. `memory_bytes` bounds the memory that is touched, None for half of the machine's.
    """

    rounds: int = 5
    file_bytes: int = 1 << 30
    transfer_seconds: float = 0.5
    request_bytes: int = DEFAULT_REQUEST_BYTES
    queue_depth: int = DEFAULT_QUEUE_DEPTH
    pass_bytes: int = 128 << 20
    memory_bytes: int | None = None

    @classmethod
    def short(cls) -> Effort:
        """For the disk alone, before a run: some ten seconds."""
        return cls(rounds=3, file_bytes=512 << 20, transfer_seconds=0.4)

    @property
    def moving_bytes(self) -> int:
        """Memory that transfers take, at most."""
        return (self.queue_depth + 8) * self.request_bytes
