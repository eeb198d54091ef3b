"""Classes of disks beside each other, emulated where they are not here.

First what each gives is set beside what it was asked for, by a plain loop and by fio; then what the
papers made of such disks: rates over each other by size of request, large requests as
runs make them, and a matrix that is streamed from eight cheap disks.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from outgrid.probe.effort import Effort
from outgrid.probe.scratch import NoiseFile, noise_file
from outgrid.storage import Transfers
from outgrid_bench.claims.bus import RATIOS
from outgrid_bench.emulation import Asked, parse_disks, refusal
from outgrid_bench.experiments.emulating import on_disks
from outgrid_bench.experiments.figure import look
from outgrid_bench.experiments.matvec import Case, Products
from outgrid_bench.experiments.moving import Moving, move
from outgrid_bench.experiments.outcome import (
    Experiment,
    Finding,
    Outcome,
    Settings,
    Timed,
    judged,
)
from outgrid_bench.experiments.requests import LAYOUTS, Batches
from outgrid_bench.rawio import fio_rate

__all__ = ["DEVICES"]

KIB, MIB = 1 << 10, 1 << 20
STANDARD = ("hdd/10", "sata/10", "raid/10", "iodrive2/10")
PRODUCT_DISKS = ("msata:8/40", "iodrive2/40")
# As a run of the cluster's paper moves them; and how much it moves of each.
READ_BYTES, WRITE_BYTES = 12 * MIB, 8 * MIB
READ_SHARE, WRITE_SHARE = 9216, 4096
PATTERNS = {
    "4 KiB at random": (4 * KIB, True),
    "128 KiB at random": (128 * KIB, True),
    "1 MiB at random": (MIB, True),
    "4 MiB at random": (4 * MIB, True),
    "1 MiB in order": (MIB, False),
}
BY_FIO = ("4 KiB at random", "1 MiB in order")
MANY = "large, two under way"
PRODUCT = "matrix times vector"
PRODUCT_BYTES, PRODUCT_CHUNK = 70_000_000, 1_750_000
HERE = "here"


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One pattern on one kind of disk, past the page cache. ``asked_bytes_per_second`` is what the
    emulation was asked for, 0 of a disk that is here; ``fio_bytes_per_second`` of the same requests
    by fio; ``samples`` are bytes per second, of which the rate is the median."""

    disk: str
    disks: int
    pattern: str
    kind: str
    request_bytes: int
    bytes_per_second: float
    asked_bytes_per_second: float
    over_asked: float
    fio_bytes_per_second: float | None
    agrees: bool
    samples: tuple[float, ...]


def measure(settings: Settings) -> Outcome:
    """Every pattern on every disk, then the product of a matrix on two kinds of them."""
    notes: list[str] = []
    standard: Sequence[str] = ()
    if settings.labels:
        notes.append("disks as asked for; a matrix is streamed from those of the papers alone")
    elif settings.size == "tiny":
        notes.append("the disk that is here")
    elif (reason := refusal()) is not None:
        notes.append(f"{reason}; the disk that is here")
    else:
        standard = STANDARD
        notes.append(
            "4 KiB at random, bytes per second and the RAID are asked for as the papers have them; "
            "what else there is follows from these"
        )
    with on_disks(settings, [parse_disks(text) for text in standard]) as placed:
        timed = Timed("devices", placed)
        rows = list(_all_patterns(placed))
        products = [row for text in PRODUCT_DISKS if standard for row in _products(settings, text)]
        rows += products
        fio = shutil.which("fio") is not None
        return timed.outcome(
            rows,
            [*_emulation(rows), *_claims(rows)],
            reference="the rates that were asked for" + (", and fio" if fio else ""),
            agrees=all(row.agrees for row in rows),
            notes=[*notes, *([] if fio else ["without fio"])],
        )


def _all_patterns(settings: Settings) -> Iterator[DeviceRow]:
    labels = settings.labels or (HERE,)
    effort = Effort(file_bytes=settings.by_size(8, 24, 96) * MIB)
    for label, folder in dict(zip(labels, settings.folders, strict=False)).items():
        settings.say(f"requests on {label}")
        asked = parse_disks(label) if settings.labels else None
        with Transfers() as transfers, noise_file(folder, effort, transfers) as noise:
            for pattern, (request, random) in PATTERNS.items():
                for kind in ("read", "write"):
                    moving = _moving(settings, noise, kind, random, request)
                    yield _row(settings, label, asked, pattern, moving)
            for kind, request in (("read", READ_BYTES), ("write", WRITE_BYTES)):
                batches = Batches(transfers, [noise], min(request, noise.nbytes // 2), random=False)
                seconds = settings.by_size(1, 200, 600) / 100
                rate = batches.rate(kind, seconds)
                right = batches.agree()
                yield _told(label, asked, MANY, kind, request, [rate], agrees=right)


def _moving(settings: Settings, noise: NoiseFile, kind: str, random: bool, request: int) -> Moving:
    seconds = settings.by_size(1, 100, 300) / 100
    return Moving(
        str(noise.path), "direct", kind == "write", random, request, noise.nbytes, seconds
    )


def _row(
    settings: Settings, label: str, asked: Asked | None, pattern: str, moving: Moving
) -> DeviceRow:
    rounds = [move(moving) for _ in range(settings.by_size(1, 1, 3))]
    fio = shutil.which("fio") if settings.size != "tiny" and pattern in BY_FIO else None
    beside = None if fio is None else fio_rate(fio, moving, "libaio", 1, direct=True)
    return _told(
        label,
        asked,
        pattern,
        "write" if moving.writes else "read",
        moving.request_bytes,
        [moved.bytes_per_second for moved in rounds],
        agrees=all(moved.agrees for moved in rounds),
        fio=beside,
    )


def _told(
    label: str,
    asked: Asked | None,
    pattern: str,
    kind: str,
    request_bytes: int,
    samples: Sequence[float],
    *,
    agrees: bool,
    fio: float | None = None,
) -> DeviceRow:
    rate = statistics.median(samples)
    disks = asked.count if asked else 1
    wanted = disks * asked.disk.rate(kind, request_bytes) if asked else 0.0
    over = rate / wanted if wanted else 0.0
    every = tuple(samples)
    return DeviceRow(
        label, disks, pattern, kind, request_bytes, rate, wanted, over, fio, agrees, every
    )


def _products(settings: Settings, text: str) -> Iterator[DeviceRow]:
    """A matrix on as many files as there are disks, times a vector; of several disks also one in
    stripes over all of them."""
    asked = parse_disks(text)
    with on_disks(settings, [asked]) as placed:
        bench = Products(placed, Timed("", placed), 17_500, 1.0, settings.by_size(1, 2, 5))
        case = Case("devices", "direct", PRODUCT_CHUNK, True)
        for name, stripe in LAYOUTS.items():
            if stripe and asked.count == 1:
                continue
            chunk = PRODUCT_CHUNK * (asked.count if stripe else 1)
            row_case = replace(case, chunk_bytes=chunk)
            (row,) = bench.products(PRODUCT_BYTES, asked.count, [row_case], stripe)
            product = f"{PRODUCT}{', ' if stripe else ''}{name if stripe else ''}"
            yield _told(asked.label, asked, product, "read", chunk, row.samples, agrees=row.agrees)


def _emulation(rows: Sequence[DeviceRow]) -> list[Finding]:
    """What the emulation gives of what it was asked for, by disk: where it differs most."""
    findings: list[Finding] = []
    asked = [row for row in rows if row.asked_bytes_per_second and row.pattern in PATTERNS]
    for disk in dict.fromkeys(row.disk for row in asked):
        shares = {f"{r.kind} {r.pattern}": r.over_asked for r in asked if r.disk == disk}
        worst = max(shares, key=lambda name: abs(shares[name] - 1))
        least, most = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
        told = f"{disk}: {shares[least]:.2f} ({least}) to {shares[most]:.2f} ({most})"
        findings.append(judged(f"emulation.{parse_disks(disk).name}", shares[worst], told))
    return findings


def _claims(rows: Sequence[DeviceRow]) -> list[Finding]:
    """ioDrive2 over the others; rates are those of whole disks, however slow they were made."""

    def rate(name: str, pattern: str, kind: str) -> float | None:
        for row in rows:
            asked = parse_disks(row.disk) if row.disk != HERE else None
            if asked and (asked.name, row.pattern, row.kind) == (name, pattern, kind):
                return row.bytes_per_second * asked.slower
        return None

    def ratio(other: str, pattern: str, kind: str) -> float | None:
        ours, theirs = rate("iodrive2", pattern, kind), rate(other, pattern, kind)
        return None if ours is None or theirs is None else ours / theirs

    def application(name: str) -> float | None:
        read, write = rate(name, MANY, "read"), rate(name, MANY, "write")
        if read is None or write is None:
            return None
        return 1 / (READ_SHARE / read + WRITE_SHARE / write)

    fast, slow = application("iodrive2"), application("raid")

    def over(above: float | None, below: float | None) -> float | None:
        return None if above is None or below is None else above / below

    def reads_over_writes(size: str) -> float | None:
        pattern = f"{size[:-3]} {size[-3:]} at random"
        return over(rate("iodrive2", pattern, "read"), rate("iodrive2", pattern, "write"))

    striped = {
        name: rate("msata", f"{PRODUCT}, {name}", "read")
        for name, nbytes in LAYOUTS.items()
        if nbytes
    }
    many, one = rate("msata", PRODUCT, "read"), rate("iodrive2", PRODUCT, "read")
    return [
        *(
            judged(f"{over}.{kind}.{pattern}", ratio(over, pattern, kind))
            for pattern, by_disk in RATIOS.items()
            for over in by_disk
            for kind in ("read", "write")
        ),
        judged("raid", None if fast is None or slow is None else fast / slow),
        judged("matvec.devices", None if many is None or one is None else many / one),
        judged("layout.raw", over(striped["stripes of 1 MiB"], many)),
        judged("layout.small", over(striped["stripes of 1 MiB"], striped["stripes of 64 KiB"])),
        *(
            judged(f"iodrive2.{size}", reads_over_writes(size))
            for size in ("4KiB", "128KiB", "4MiB")
        ),
    ]


def draw(outcome: Outcome, figure: Any) -> None:
    """Rates by pattern, of each disk at its full speed; beside, over the hard disk."""
    panels = figure.subplots(2, 2)
    disks = list(dict.fromkeys(r["disk"] for r in outcome.rows if r["pattern"] in PATTERNS))

    def rates(disk: str, kind: str) -> list[float]:
        slower = parse_disks(disk).slower if disk != HERE else 1
        rows = {
            r["pattern"]: r["bytes_per_second"] * slower
            for r in outcome.rows
            if (r["disk"], r["kind"]) == (disk, kind)
        }
        return [rows[pattern] for pattern in PATTERNS]

    names = [pattern.replace(" at ", "\nat ").replace(" in ", "\nin ") for pattern in PATTERNS]
    first = disks[0]
    for line, kind in enumerate(("read", "write")):
        for number, disk in enumerate(disks):
            mine, base = rates(disk, kind), rates(first, kind)
            name = disk.partition("/")[0]
            shown = [rate / MIB for rate in mine]
            panels[line, 0].plot(names, shown, label=name, **look(number))
            over = [a / b for a, b in zip(mine, base, strict=True)]
            panels[line, 1].plot(names, over, label=name, **look(number))
        for axes, what in ((panels[line, 0], "MiB/s"), (panels[line, 1], f"over {first}")):
            axes.set_yscale("log")
            axes.set_ylabel(f"{kind}, {what}")
            axes.tick_params(axis="x", labelsize="x-small")
            axes.grid(alpha=0.3)
    panels[0, 0].legend(fontsize="x-small")


DEVICES = Experiment(
    "devices", "classes of disks beside each other, emulated where they are not here", measure, draw
)
