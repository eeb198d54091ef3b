"""What a record says of where and of what it was made."""

import datetime
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outgrid.machine import describe_machine
from outgrid.version import __version__

ROOT = Path(__file__).resolve().parent.parent


def origin(started: datetime.datetime) -> dict[str, str | int]:
    """Version, commit, time and machine."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    machine = describe_machine()
    return {
        "version": __version__,
        "commit": commit or "unknown",
        "started": started.isoformat(timespec="seconds"),
        "cpu": machine.cpu,
        "cores": machine.cores,
        "kernel": machine.kernel,
    }


def keep(path: Path, started: datetime.datetime, told: Mapping[str, Any]) -> None:
    """Write a record of what was found, behind where it comes from; its folder is made."""
    write_record(path, {**origin(started), **told})


def write_record(path: Path, content: Mapping[str, Any]) -> None:
    """Write it as JSON for readers; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")
