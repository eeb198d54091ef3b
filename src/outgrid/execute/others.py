"""What other programs take of the processors while something is measured."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

__all__ = ["Others", "others_share"]

STATISTICS = Path("/proc/stat")


class Others:
    """Processor time of others, from now on; that which a host gives to other machines included.

    Of the processors that this process may use: what others do on the rest leaves it alone.
    """

    def __init__(self) -> None:
        self._usable = os.sched_getaffinity(0)
        self._taken, self._begin = _taken_seconds(self._usable), time.monotonic()

    def share(self) -> float:
        """What others took since then, as a share of all usable; 0 where nothing tells."""
        passed = (time.monotonic() - self._begin) * len(self._usable)
        taken = _taken_seconds(self._usable) - self._taken
        return min(1.0, max(0.0, taken) / passed) if passed else 0.0


def others_share(seconds: float) -> float:
    """What others take of the usable processors for so many seconds, in which nothing is done."""
    others = Others()
    time.sleep(seconds)
    return others.share()


def _taken_seconds(usable: set[int]) -> float:
    """Processor time of all on ``usable`` but this process, since the machine was started."""
    try:
        lines = re.findall(r"^cpu(\d+) (.+)$", STATISTICS.read_text(), re.MULTILINE)
    except OSError:
        return 0.0
    ticks = 0
    for _, times in (line for line in lines if int(line[0]) in usable):
        user, nice, system, _idle, _waiting, *rest = map(int, times.split()[:8])
        ticks += user + nice + system + sum(rest)
    mine = os.times()
    return ticks / os.sysconf("SC_CLK_TCK") - mine.user - mine.system
