"""What an executor measures: seconds, bytes, and what was waited for."""

from __future__ import annotations

import msgspec

from outgrid.machine import Strain

# What a run may wait for: data that is read, data that is written, planes of other ranks, and other
# ranks that have not come as far.
CAUSES = ("get", "put", "exchange", "agree")


class Tally(msgspec.Struct):
    """What the executor measured. ``waited_for`` has seconds by cause, to the very end."""

    seconds: float = 0.0
    compute_seconds: float = 0.0
    wait_seconds: float = 0.0
    processor_seconds: float = 0.0
    compute_processor_seconds: float = 0.0
    strain: Strain = msgspec.field(default_factory=Strain)
    read_bytes: int = 0
    written_bytes: int = 0
    row_updates: int = 0
    waits: list[tuple[int, float]] = msgspec.field(default_factory=list[tuple[int, float]])
    sent_bytes: int = 0
    received_bytes: int = 0
    waited_for: dict[str, float] = msgspec.field(default_factory=lambda: dict.fromkeys(CAUSES, 0.0))
