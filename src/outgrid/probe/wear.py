"""What a device may be written in its life, where it tells."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, cast

from outgrid.probe.disk import SYSFS, disk_of

__all__ = ["device_endurance"]

UNIT_BYTES = 512_000  # of the counters of NVMe devices
SECONDS = 5


@cache
def device_endurance(place: Path, sysfs: Path = SYSFS) -> int:
    """Bytes that the device under `place` may be written in all, 0 where nobody can say.

    An NVMe device tells what was written to it and which share of its life that took (NVM Express
    base specification, SMART / health information): the quotient is what it counts on. Below 1 %
    it says nothing yet. Asked with smartctl, where that is installed and may.
    """
    disk = disk_of(place, sysfs)
    tool = shutil.which("smartctl")
    if disk is None or tool is None:
        return 0
    command = [tool, "--json", "--all", f"/dev/{disk}"]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=SECONDS)
        said = cast("dict[str, Any]", json.loads(done.stdout))
        health = cast("dict[str, int]", said["nvme_smart_health_information_log"])
        used, written = health["percentage_used"], health["data_units_written"] * UNIT_BYTES
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired):
        return 0
    return written * 100 // used if used > 0 else 0
