"""What other programs take of the processors while something is measured."""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["Others"]

STATISTICS = Path("/proc/stat")


class Others:
    """Processor time of others, from now on; that which a host gives to other machines included."""

    def __init__(self) -> None:
        self._taken, self._begin = _taken_seconds(), time.monotonic()

    def share(self) -> float:
        """What others took since then, as a share of all processors; 0 where nothing tells."""
        passed = (time.monotonic() - self._begin) * (os.cpu_count() or 1)
        return min(1.0, max(0.0, _taken_seconds() - self._taken) / passed) if passed else 0.0


def _taken_seconds() -> float:
    """Processor time of all that runs but this process, since the machine was started."""
    try:
        fields = STATISTICS.read_text().split("\n", 1)[0].split()[1:9]
    except OSError:
        return 0.0
    user, nice, system, _idle, _waiting, *interrupts = map(int, fields)
    all_seconds = (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
    mine = os.times()
    return all_seconds - mine.user - mine.system
