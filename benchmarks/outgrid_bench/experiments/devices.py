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
from functools import partial
from pathlib import Path
from typing import Any

from outgrid.probe.effort import Effort
from outgrid.probe.scratch import NoiseFile, noise_file
from outgrid.storage import Transfers
from outgrid_bench.claims.bus import RATIOS
from outgrid_bench.emulation import ONE_AT_A_TIME, Asked, parse_disks, refusal
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
STANDARD = tuple(f"{name}/10" for name in ONE_AT_A_TIME)
QUICK_STANDARD = ("hdd/10", "sata/10", "raid/10", "iodrive2/10")  # those that papers compare
PRODUCT_DISKS = ("msata:8/20", "iodrive2/20")
# As a run of the cluster's paper moves them; and how much it moves of each.
READ_BYTES, WRITE_BYTES = 12 * MIB, 8 * MIB
READ_SHARE, WRITE_SHARE = 9216, 4096
# Request, and whether at places of chance; a quick run has some of them.
PATTERNS = {
    **{f"{n} KiB at random": (n * KIB, True) for n in (4, 8, 16, 32, 64, 128, 256, 512)},
    **{f"{n} MiB at random": (n * MIB, True) for n in (1, 2, 4)},
    "1 MiB in order": (MIB, False),
}
QUICK = (
    "4 KiB at random",
    "128 KiB at random",
    "1 MiB at random",
    "4 MiB at random",
    "1 MiB in order",
)
BY_FIO = ("4 KiB at random", "1 MiB in order")
MANY = "large, two under way"
PRODUCT = "matrix times vector"
# The smallest matrix of the slides in chunks of 70 MB over 8 disks: in stripes, a chunk that is no
# multiple of all stripes side by side leaves disks idle, the more the smaller it is.
PRODUCT_BYTES, PRODUCT_CHUNK = 280_000_000, 8_750_000
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
        standard = STANDARD if settings.size == "full" else QUICK_STANDARD
        notes.append(
            "4 KiB at random, bytes per second and the RAID are asked for as the papers have them; "
            "what else there is follows from these"
        )
    with on_disks(settings, [parse_disks(text) for text in standard]) as placed:
        timed = Timed("devices", placed)
        rows = list(_all_patterns(placed, timed))
        for text in PRODUCT_DISKS if standard else ():
            make = partial(_products, settings, text)
            rows += timed.piece(f"product on {text}", list[DeviceRow], make)
        fio = shutil.which("fio") is not None
        return timed.outcome(
            rows,
            [*_emulation(rows), *_claims(rows)],
            reference="the rates that were asked for" + (", and fio" if fio else ""),
            agrees=all(row.agrees for row in rows),
            notes=[*notes, *([] if fio else ["without fio"])],
        )


def _all_patterns(settings: Settings, timed: Timed) -> Iterator[DeviceRow]:
    labels = settings.labels or (HERE,)
    for label, folder in dict(zip(labels, settings.folders, strict=False)).items():
        make = partial(_patterns, settings, label, folder)
        yield from timed.piece(f"requests on {label}", list[DeviceRow], make)


def _patterns(settings: Settings, label: str, folder: Path) -> list[DeviceRow]:
    """Every pattern on one disk."""
    settings.say(f"requests on {label}")
    effort = Effort(file_bytes=settings.by_size(8, 24, 96) * MIB)
    asked = parse_disks(label) if settings.labels else None
    rows: list[DeviceRow] = []
    with Transfers() as transfers, noise_file(folder, effort, transfers) as noise:
        for pattern in PATTERNS if settings.size == "full" else QUICK:
            for kind in ("read", "write"):
                moving = _moving(settings, noise, kind, pattern)
                rows.append(_row(settings, label, asked, pattern, moving))
        for kind, request in (("read", READ_BYTES), ("write", WRITE_BYTES)):
            batches = Batches(transfers, [noise], min(request, noise.nbytes // 2), random=False)
            rate = batches.rate(kind, settings.by_size(1, 200, 300) / 100)
            right = batches.agree()
            rows.append(_told(label, asked, MANY, kind, request, [rate], agrees=right))
    return rows


def _moving(settings: Settings, noise: NoiseFile, kind: str, pattern: str) -> Moving:
    request, random = PATTERNS[pattern]
    seconds = settings.by_size(1, 100, 200) / 100
    return Moving(
        str(noise.path), "direct", kind == "write", random, request, noise.nbytes, seconds
    )


def _row(
    settings: Settings, label: str, asked: Asked | None, pattern: str, moving: Moving
) -> DeviceRow:
    moved = move(moving)
    fio = shutil.which("fio") if settings.size != "tiny" and pattern in BY_FIO else None
    beside = None if fio is None else fio_rate(fio, moving, "libaio", 1, direct=True)
    return _told(
        label,
        asked,
        pattern,
        "write" if moving.writes else "read",
        moving.request_bytes,
        [moved.bytes_per_second],
        agrees=moved.agrees,
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


def _products(settings: Settings, text: str) -> list[DeviceRow]:
    """A matrix on as many files as there are disks, times a vector; of several disks also one in
    stripes over all of them."""
    asked = parse_disks(text)
    rows: list[DeviceRow] = []
    with on_disks(replace(settings, kept=None), [asked]) as placed:
        bench = Products(placed, Timed("", placed), 17_500, 1.0, settings.by_size(1, 2, 5))
        case = Case("devices", "direct", PRODUCT_CHUNK, True)
        for name, stripe in LAYOUTS.items():
            if stripe and asked.count == 1:
                continue
            chunk = PRODUCT_CHUNK * (asked.count if stripe else 1)
            row_case = replace(case, chunk_bytes=chunk)
            (row,) = bench.products(PRODUCT_BYTES, asked.count, [row_case], stripe)
            product = f"{PRODUCT}{', ' if stripe else ''}{name if stripe else ''}"
            rows.append(
                _told(asked.label, asked, product, "read", chunk, row.samples, agrees=row.agrees)
            )
    return rows


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
    patterns = [name for name in PATTERNS if any(r["pattern"] == name for r in outcome.rows)]
    disks = list(dict.fromkeys(r["disk"] for r in outcome.rows if r["pattern"] in PATTERNS))

    def rates(disk: str, kind: str) -> list[float]:
        slower = parse_disks(disk).slower if disk != HERE else 1
        rows = {
            r["pattern"]: r["bytes_per_second"] * slower
            for r in outcome.rows
            if (r["disk"], r["kind"]) == (disk, kind)
        }
        return [rows[pattern] for pattern in patterns]

    names = [pattern.replace(" at random", "").replace(" in ", "\nin ") for pattern in patterns]
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
            axes.tick_params(axis="x", labelsize="x-small", rotation=30)
            axes.grid(alpha=0.3)
    panels[0, 0].legend(fontsize="x-small")


DEVICES = Experiment(
    "devices", "classes of disks beside each other, emulated where they are not here", measure, draw
)
