"""Machines that are not here, as files describe them: for the plans of runs there."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from outgrid.decoding import decoded_table
from outgrid.errors import StoreError, UsageError
from outgrid.machine import (
    ASSUMED_L2_BANDWIDTH,
    ASSUMED_L3_BANDWIDTH,
    ASSUMED_MEMORY_BANDWIDTH_PER_CORE,
    Machine,
    Network,
    describe_machine,
)
from outgrid.regular import read_given
from outgrid.toml import MOST_BYTES, parse_toml
from outgrid.units import parse_bytes, parse_endurance, parse_rate, parse_seconds, suggest

__all__ = ["Site", "known_sites", "read_site"]

FOLDER = Path(__file__).parent
DISKS = "disks"

_SIZE = str | int
_RATE = str | int | float
_TIME = str | float

_KINDS: Mapping[str, Any] = {
    "name": str,
    "source": str,
    "nodes": int,
    "cores": int,
    "memory": _SIZE,
    "memory_bandwidth": _RATE,
    "l2": _SIZE,
    "l3": _SIZE,
    "l2_bandwidth": _RATE,
    "l3_bandwidth": _RATE,
    "disk": str | dict[str, Any],
    "disks": int,
    "network": dict[str, Any],
}
_DISK_KINDS: Mapping[str, Any] = {
    "source": str,
    "read": _RATE,
    "write": _RATE,
    "mixed": _RATE,
    "flush": _TIME,
    "capacity": _SIZE,
    "endurance": _SIZE,
}
_NETWORK_KINDS: Mapping[str, Any] = {"bandwidth": _RATE, "latency": _TIME}


class Site(msgspec.Struct, frozen=True):
    """Nodes that are all alike, and what joins them.

    ``disk_bytes`` are there for the working files of each node, None where nobody says.
    ``endurance_bytes`` may be written to its disks in their life, 0 if unknown, None where the
    disk that is here is to be asked.
    """

    name: str
    machine: Machine
    nodes: int = 1
    network: Network = msgspec.field(default_factory=Network)
    disk_bytes: int | None = None
    endurance_bytes: int | None = None


class _Disk(msgspec.Struct, frozen=True):
    read: float
    write: float
    mixed: float
    flush_seconds: float
    capacity_bytes: int | None
    endurance_bytes: int


def known_sites() -> list[str]:
    """Names of the machines that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.toml") if path.stem != DISKS)


def read_site(given: str) -> Site:
    """The machine of that name, or the one that a TOML file describes.

    Raises UsageError for a name that is not known, a file that cannot be read, and for keys that
    are unknown, missing or make no sense.
    """
    named = FOLDER / f"{given}.toml"
    if given in known_sites():
        return _site(_tables(named), f"the machine {given}")
    if not given.endswith(".toml"):
        raise UsageError(
            f"unknown machine {given!r}; known are {', '.join(known_sites())}; or give the path "
            "of a .toml file"
        )
    return _site(_tables(Path(given)), given)


def _site(written: Mapping[str, Any], source: str) -> Site:
    table = decoded_table(written, _KINDS, source=source, needed=("cores", "memory", "disk"))
    for key in ("nodes", "cores", "disks"):
        if table.get(key, 1) < 1:
            raise UsageError(f"{source}: {key} must be at least 1, not {table[key]}")
    here, cores = describe_machine(), table["cores"]
    l2_bytes = parse_bytes(table.get("l2", here.l2_bytes))
    l3_bytes = parse_bytes(table.get("l3", here.l3_bytes))
    bandwidth = table.get("memory_bandwidth", ASSUMED_MEMORY_BANDWIDTH_PER_CORE * cores)
    disk, disks = _disk(table["disk"], source), table.get("disks", 1)
    network = decoded_table(table.get("network", {}), _NETWORK_KINDS, "network", source)
    name = table.get("name", source)
    machine = replace(
        here,
        cores=cores,
        memory_bytes=parse_bytes(table["memory"]),
        l2_bytes=l2_bytes,
        l3_bytes=l3_bytes,
        l2_effective_bytes=l2_bytes,
        l3_effective_bytes=l2_bytes + l3_bytes // cores,
        l2_bandwidth=parse_rate(table.get("l2_bandwidth", ASSUMED_L2_BANDWIDTH)),
        l3_bandwidth=parse_rate(table.get("l3_bandwidth", ASSUMED_L3_BANDWIDTH)),
        memory_bandwidth=parse_rate(bandwidth),
        read_bandwidth=disks * disk.read,
        write_bandwidth=disks * disk.write,
        mixed_bandwidth=disks * disk.mixed,
        flush_seconds=disk.flush_seconds,
        measured=False,
        cpu=name,
    )
    standard = Network()
    return Site(
        name,
        machine,
        table.get("nodes", 1),
        Network(
            parse_rate(network.get("bandwidth", standard.bandwidth)),
            parse_seconds(network.get("latency", standard.latency_seconds)),
        ),
        None if disk.capacity_bytes is None else disks * disk.capacity_bytes,
        disks * disk.endurance_bytes,
    )


def _disk(given: str | dict[str, Any], source: str) -> _Disk:
    """A disk of a known class, or one of which a table says what it does."""
    if isinstance(given, str):
        classes = _tables(FOLDER / f"{DISKS}.toml")
        if given not in classes:
            raise UsageError(
                f"{source}: disk must be a class of disks, not {given!r}{suggest(given, classes)}"
            )
        source, written = f"the disk {given}", classes[given]
    else:
        written = given
    table = decoded_table(written, _DISK_KINDS, "disk", source, needed=("read", "write"))
    read, write = parse_rate(table["read"]), parse_rate(table["write"])
    # One that serves either a read or a write takes the time of both.
    mixed = parse_rate(table["mixed"]) if "mixed" in table else 2 / (1 / read + 1 / write)
    return _Disk(
        read,
        write,
        mixed,
        parse_seconds(table.get("flush", "5ms")),
        parse_bytes(table["capacity"]) if "capacity" in table else None,
        parse_endurance(table["endurance"]) if "endurance" in table else 0,
    )


def _tables(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(read_given(path, MOST_BYTES).decode(), str(path))
    except OSError as error:
        why = error if isinstance(error, StoreError) else error.strerror
        raise UsageError(f"cannot read the description of a machine {path}: {why}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"the description of a machine {path} is not TOML: {error}") from error
