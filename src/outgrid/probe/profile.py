"""A measured machine as a value, kept on disk and found again where it still fits."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import astuple, replace

from outgrid.build.kept import cache_folder, decoded, elsewhere, keep
from outgrid.durable import existing
from outgrid.errors import StoreError
from outgrid.machine import Machine, describe_machine
from outgrid.probe.disk import moves_lines
from outgrid.regular import read_own
from outgrid.version import __version__

DISK = (
    "read_bandwidth",
    "write_bandwidth",
    "mixed_bandwidth",
    "flush_seconds",
    "flushing_seconds",
    "moving_seconds",
)
# What a probe replaces in a description of the machine.
MEASURED = (
    "memory_bandwidth",
    "l2_effective_bytes",
    "l3_effective_bytes",
    "l2_bandwidth",
    "l3_bandwidth",
    *DISK,
)


class Key(msgspec.Struct, frozen=True):
    """What a profile holds for: another processor, kernel or disk has other rates."""

    cpu: str
    cores: int
    kernel: str
    compiler: str
    device: int
    mount: str

    @classmethod
    def of(cls, machine: Machine, scratch: Path) -> Key:
        """The key of this machine with the file system on which `scratch` lies or would lie."""
        place = existing(scratch)
        device = place.stat().st_dev
        mount = place
        while mount.parent != mount and mount.parent.stat().st_dev == device:
            mount = mount.parent
        return cls(machine.cpu, machine.cores, machine.kernel, machine.compiler, device, str(mount))

    @property
    def digest(self) -> str:
        """The name of the profile."""
        text = json.dumps([*astuple(self), *MEASURED])
        return hashlib.sha256(text.encode()).hexdigest()[:32]


class Profile(msgspec.Struct, frozen=True):
    """What a probe found.

    `rates` holds the entries of `Machine` that were measured: those of the disk, or all;
    `working_sets` pairs of bytes and
    bytes per second of one core; `samples` every value behind the medians, in units of these.
    `load` is the load average when the measuring began.
    """

    key: Key
    rates: dict[str, float]
    working_sets: tuple[tuple[int, float], ...]
    samples: dict[str, tuple[float, ...]]
    engine: str
    direct: bool
    request_bytes: int
    queue_depth: int
    seconds: float
    load: float
    started: str
    version: str = __version__

    @property
    def whole(self) -> bool:
        """Whether memory and caches were measured as well, not the disk alone."""
        return set(self.rates) == set(MEASURED)

    def machine(self, described: Machine) -> Machine:
        """`described` with the rates of this profile."""
        rates: dict[str, Any] = {
            name: int(value) if name.endswith("_bytes") else value
            for name, value in self.rates.items()
        }
        return replace(described, measured=self.whole, **rates)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return msgspec.to_builtins(self)


def known_machine(scratch: Path | None) -> Machine:
    """The machine with measured rates where a probe of it was kept, else with assumed ones.

    `scratch` is the folder of a run's files, or one that will be made; None for the working folder.
    Reads the cache, measures nothing.
    """
    described = replace(describe_machine(), lines=moves_lines(scratch or Path()))
    profile = known_profile(described, scratch)
    return described if profile is None else profile.machine(described)


def known_profile(described: Machine, scratch: Path | None) -> Profile | None:
    """What was kept for this machine and scratch folder, None where nothing fits."""
    key = Key.of(described, scratch or Path())
    path = _path(key)
    try:
        text = read_own(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except StoreError:
        raise
    except OSError as error:
        raise StoreError("cannot read the profile", path=path, errno=error.errno) from error
    profile = decoded(text, Profile)
    if profile is None or profile.key != key:
        return None
    if not (profile.whole or set(profile.rates) == set(DISK)):
        return None
    return profile


def keep_profile(profile: Profile) -> Path:
    """Write the profile where `known_machine` looks. Raises StoreError where that fails."""
    path = _path(profile.key)
    try:
        keep(path, msgspec.json.format(msgspec.json.encode(profile)))
    except OSError as error:
        raise StoreError(
            f"cannot keep the profile; {elsewhere()}",
            path=path,
            errno=error.errno,
        ) from error
    return path


def _path(key: Key) -> Path:
    return cache_folder() / "machines" / f"{key.digest}.json"
