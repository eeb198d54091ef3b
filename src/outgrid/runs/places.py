"""Several folders or devices for the fields of a run: what lies where, and whose it is.

    PLACE/owner.json          the run that the files in a folder belong to
    PLACE/u.0.spread.K        part K of a field: whole, or every n-th stripe of it
    /dev/x [0, 4 KiB)         the same mark on a raw device
    /dev/x [1 MiB, ...)       fields, one region behind the other

A region, or the parts taken together, is the image of a .npy file; its checksums are a file in the
scratch folder. Results are copied out of it in the end.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from outgrid.config import RunOptions
from outgrid.durable import make_folder, replace_file, sync_folder
from outgrid.errors import StoreError, UsageError, file_errors
from outgrid.formats.npy import HEADER_BYTES
from outgrid.lines import format_count
from outgrid.regular import own, resolved
from outgrid.storage import Parts, is_device, require_device
from outgrid.units import format_bytes

__all__ = [
    "OWNER_NAME",
    "SPREAD_SUFFIX",
    "OwnerMark",
    "Spread",
    "check_devices",
    "claimed",
    "describe",
    "devices_of",
    "erase_devices",
    "is_spread",
    "read_mark",
    "remove_mark",
    "write_mark",
]

OWNER_NAME = "owner.json"
SPREAD_SUFFIX = ".spread"
MARK = b"outgrid working fields\n"
MARK_BYTES = 4096
REGION_UNIT = 1 << 20


class OwnerMark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which run the files in a folder, or the regions of a device, belong to."""

    run: str
    out: str


class Spread(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How fields of ``names`` are spread over ``places``, all of them folders or all devices.

    With ``stripe_bytes`` each field is striped over all of them; without, fields take turns.
    ``region_bytes`` are those of a field, or of its stripes, on a device.
    """

    places: tuple[str, ...]
    names: tuple[str, ...]
    stripe_bytes: int = 0
    region_bytes: int = 0

    @classmethod
    def over(
        cls, places: Iterable[Path], names: tuple[str, ...], stripe_bytes: int, field_bytes: int
    ) -> Spread:
        """The spread of fields of ``field_bytes``. Raises UsageError for places that do not mix."""
        paths = tuple(os.fspath(resolved(place)) for place in places)
        devices = [is_device(Path(place)) for place in paths]
        if len(set(paths)) < len(paths):
            raise UsageError(
                f"scratch must name different places, not one twice: {', '.join(paths)}"
            )
        if any(devices) and not all(devices):
            raise UsageError(
                f"scratch mixes folders and block devices: {', '.join(paths)}; name one kind"
            )
        spread = cls(paths, names, stripe_bytes)
        if not devices[0]:
            return spread
        largest = spread.parts(names[0]).part_bytes(HEADER_BYTES + field_bytes)
        region = -(-largest // REGION_UNIT) * REGION_UNIT
        return msgspec.structs.replace(spread, region_bytes=region)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The places."""
        return tuple(Path(place) for place in self.places)

    @property
    def on_devices(self) -> bool:
        """Whether the places are raw devices."""
        return self.region_bytes > 0

    def check(self, path: Path) -> None:
        """Raise UsageError for what no run has written, read from ``path``."""
        stripe, region = self.stripe_bytes, self.region_bytes
        odd = stripe < 0 or stripe % MARK_BYTES or region < 0 or region % MARK_BYTES
        if odd or not self.places or not all(Path(place).is_absolute() for place in self.places):
            raise UsageError(f"{path} does not list the places of the fields of its run")

    def parts(self, name: str) -> Parts:
        """Where the parts of a field are."""
        index, count = self.names.index(name), len(self.places)
        if self.stripe_bytes and count > 1:
            places = tuple(self._part(k, name, k, index) for k in range(count))
            return Parts(places, self.stripe_bytes)
        return Parts((self._part(index % count, name, 0, index // count),))

    def _part(self, place: int, name: str, part: int, slot: int) -> tuple[Path, int]:
        path = self.paths[place]
        if self.on_devices or is_device(path):
            return path, REGION_UNIT + slot * self.region_bytes
        return path / f"{name}.{part}", 0

    def files(self) -> list[Path]:
        """All part files, none on devices."""
        if self.on_devices:
            return []
        return [path for name in self.names for path, _ in self.parts(name).places]

    def check_size(self, field_bytes: int) -> None:
        """Raise StoreError for a device that fields of so many bytes do not fit on."""
        for name in self.names if self.on_devices else ():
            parts = self.parts(name)
            for device, base in parts.places:
                require_device(device, base + parts.part_bytes(HEADER_BYTES + field_bytes))

    def needed_bytes(self, field_bytes: int) -> dict[Path, int]:
        """What the fields take in each folder."""
        needed = dict.fromkeys(self.paths, 0)
        for name in self.names:
            parts = self.parts(name)
            for path, _ in parts.places:
                needed[path.parent] += parts.part_bytes(HEADER_BYTES + field_bytes)
        return needed


def is_spread(options: RunOptions) -> bool:
    """Whether the fields of a run go to several places, or to devices."""
    return len(options.places) > 1 or any(is_device(place) for place in options.places)


def devices_of(spread: Spread | None) -> tuple[Path, ...]:
    """The raw devices that fields are on."""
    return spread.paths if spread is not None and spread.on_devices else ()


def read_mark(place: Path) -> OwnerMark | None:
    """Whose a folder or device is, None for nobody's. Raises UsageError for a mark of no sense."""
    path = place if is_device(place) else place / OWNER_NAME
    try:
        with open(path, "rb", opener=None if path == place else own) as file:
            text = file.read(MARK_BYTES)
        if path == place:
            if not text.startswith(MARK):
                return None
            text = text[len(MARK) :].rstrip(b"\0")
        return msgspec.json.decode(text, type=OwnerMark)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except StoreError:
        raise
    except OSError as error:
        raise StoreError("cannot read", path=path, errno=error.errno) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} does not name the run that owns this place: {error}") from None


def write_mark(place: Path, mark: OwnerMark) -> None:
    """Say durably whose a folder (which is made) or a device is."""
    text = msgspec.json.encode(mark) + b"\n"
    path = place
    with file_errors("cannot write", path):
        if is_device(place):
            _write_block(place, MARK + text)
            return
        make_folder(place)
        path = place / OWNER_NAME
        replace_file(path, text)


def remove_mark(place: Path) -> None:
    """Say of a folder or device that nobody's fields are there; an empty folder goes as well."""
    if is_device(place):
        _write_block(place, b"")
        return
    (place / OWNER_NAME).unlink(missing_ok=True)
    if place.is_dir() and not any(place.iterdir()):
        place.rmdir()
        sync_folder(place.parent)


def _write_block(device: Path, text: bytes) -> None:
    with device.open("r+b", buffering=0) as file:
        file.write(text.ljust(MARK_BYTES, b"\0"))
        os.fsync(file.fileno())


@contextmanager
def claimed(devices: Iterable[Path]) -> Generator[None]:
    """Hold devices so that they are neither mounted nor used by another run meanwhile.

    Raises UsageError where one is in use.
    """
    with ExitStack() as stack:
        for device in devices:
            try:
                descriptor = os.open(device, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise StoreError(
                        "cannot open the device", path=device, errno=error.errno
                    ) from error
                raise UsageError(
                    f"{device} is in use: it, or a partition of it, is mounted, or another run "
                    "uses it"
                ) from None
            stack.callback(os.close, descriptor)
        yield


def check_devices(devices: Iterable[Path], erase: Iterable[Path]) -> tuple[Path, ...]:
    """Those of the ``devices`` that carry anything: file systems, partition tables, volumes.

    Raises UsageError for one that ``erase`` does not name as well, and where that names others.
    """
    named, devices = {resolved(path) for path in erase}, list(devices)
    others = sorted(named - {resolved(device) for device in devices})
    if others:
        raise UsageError(
            f"erase names {others[0]}, which is not a block device of scratch; leave it out, "
            "or name it in scratch as well"
        )
    carried = {device: _signatures(device) for device in devices}
    for device, signatures in carried.items():
        if signatures and device not in named:
            raise UsageError(
                f"{device} contains {', '.join(signatures)} and is not overwritten; to destroy "
                f"its contents, give --erase {device}, or erase in the call"
            )
    return tuple(device for device, signatures in carried.items() if signatures)


def erase_devices(devices: Iterable[Path]) -> None:
    """Let nobody find what ``devices``, which are claimed, have carried."""
    for device in devices:
        _wipefs("--all", "--force", "--quiet", os.fspath(device))


def _signatures(device: Path) -> list[str]:
    lines = _wipefs("--no-act", "--parsable", os.fspath(device)).splitlines()
    return sorted({line.rsplit(",", 1)[-1] for line in lines if line and line[0] != "#"})


def _wipefs(*arguments: str) -> str:
    tool = shutil.which("wipefs", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if tool is None:
        raise UsageError(
            "cannot check the contents of a block device: wipefs (util-linux) is not installed"
        )
    done = subprocess.run([tool, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UsageError(f"{arguments[-1]} cannot be examined: {done.stderr.strip()}")
    return done.stdout


def describe(spread: Spread) -> str:
    """One line for a record."""
    what = format_count(len(spread.places), "device" if spread.on_devices else "folder")
    how = f"striped by {format_bytes(spread.stripe_bytes)}" if spread.stripe_bytes else "in turn"
    return f"fields on {what}, {how}: {', '.join(spread.places)}"
