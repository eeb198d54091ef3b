"""An unfinished run as others see it: whether it runs, how far it is, and when it will be done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from outgrid.lines import align, format_count, format_share
from outgrid.runs.group import on_disk
from outgrid.runs.lock import Owner, owner_of
from outgrid.runs.manifest import MANIFEST_NAME, Manifest, how_far
from outgrid.runs.reading import FILLING, Reading, read_reading
from outgrid.units import format_bytes, format_rate, format_seconds

__all__ = ["Status", "status"]


class Status(msgspec.Struct, frozen=True):
    """An unfinished run in ``out``, of which ``manifest`` has come least far.

    ``owner`` is the process that works on it, or the last one that did if it could not say that it
    ended; ``running`` is None where that ran on another host. The last commit was ``kept_seconds``
    ago. ``rank_steps`` are the steps that each rank has kept, where there are several, and
    ``readings`` what its processes said of themselves last, that of rank 0 first.
    """

    out: Path
    manifest: Manifest
    owner: Owner | None
    running: bool | None
    kept_seconds: float
    rank_steps: tuple[int, ...] = ()
    readings: tuple[Reading, ...] = ()

    @property
    def state(self) -> str:
        """In a word or two."""
        if self.running:
            return "running"
        return "unfinished" if self.running is not None else "running, or cut off"

    @property
    def left_seconds(self) -> float | None:
        """How long it still takes, by the rank that takes longest; None where nobody knows."""
        left = [r.left_seconds for r in self.readings if r.left_seconds is not None]
        return max(left) if left and self.running is not False else None

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        names = ("steps_done", "depth", "part", "planes")
        return {key: getattr(self.manifest, key) for key in names} | {
            "steps": self.manifest.problem.get("steps"),
            "state": self.state,
            "running": self.running,
            "pid": self.owner.pid if self.owner is not None else None,
            "host": self.owner.host if self.owner is not None else None,
            "since": self.owner.since if self.owner is not None else None,
            "kept_seconds_ago": self.kept_seconds,
            "glups": sum(reading.updates_per_second for reading in self.readings) / 1e9,
            "left_seconds": self.left_seconds,
            "rank_steps": list(self.rank_steps),
            "readings": [msgspec.to_builtins(reading) for reading in self.readings],
        }

    def __str__(self) -> str:
        """In a few lines."""
        begun, running = self.manifest.steps_done >= 0, self.running is not False
        far = how_far(self.manifest)
        if not begun and self.running:
            far = "its initial values are being written"
        elif running and not self.manifest.durable:
            far = f"tier {self.manifest.tier} keeps no state before the end of a run"
        rows = [(f"{self.state}: {far}", ""), *self._rows()]
        if self.running is False and begun:
            rows.append(("next", f"outgrid resume {self.out} continues"))
        return align(rows)

    def _rows(self) -> Iterator[tuple[str, str]]:
        parts = self.manifest.parts
        if self.rank_steps:
            kept = sorted({max(0, steps) for steps in self.rank_steps})
            steps = " to ".join(map(str, kept[:1] + kept[1:][-1:]))
            yield "ranks", f"{len(self.rank_steps)}, which have kept {steps} steps"
        if self.owner is not None:
            ended = "" if self.running is not False else "; it ended without an error message"
            yield "process", f"{str(self.owner).removeprefix('process ')}{ended}"
        elif parts:
            yield "process", f"{parts[-1].pid} on {parts[-1].host}, {parts[-1].ended}"
        if self.readings and self.running is not False:
            yield from reading_rows(self.readings[0])
            yield from ((f"rank {r.rank}", in_a_line(r)) for r in self.readings[1:])
        if self.running and self.manifest.durable and self.manifest.steps_done >= 0:
            yield "kept", f"{format_seconds(self.kept_seconds)} ago"


def reading_rows(reading: Reading) -> Iterator[tuple[str, str]]:
    """What a process says of itself, a figure on each line."""
    rates = f"{format_rate(reading.updates_per_second)}, " * (reading.state != FILLING)
    moved = reading.read_bytes_per_second + reading.written_bytes_per_second
    read = f"read {reading.read_bytes_per_second / 1e9:.2f} GB/s, " * (reading.state != FILLING)
    planned = reading.planned_bytes_per_second
    against = f" ({format_share(moved / planned)} of the planned rate)" if planned and moved else ""
    if reading.state != FILLING:
        steps = f"{reading.step} of {reading.steps} steps"
        yield "done", f"{steps}, sweep {reading.sweep + 1} of {reading.sweeps}"
    else:
        yield "filling", format_share(reading.share_done)
    yield "rate", f"{rates}{read}write {reading.written_bytes_per_second / 1e9:.2f} GB/s{against}"
    yield "waiting", format_share(reading.waiting)
    yield "cpu", _processors(reading)
    limit = format_bytes(reading.memory_limit_bytes)
    yield "memory", f"{format_bytes(reading.memory_bytes)} of {limit}"
    if reading.wear:
        yield "wear", f"{100 * reading.wear:.2g} % of the rated endurance of the disk"
    if reading.reductions:
        values = (f"{name} {value:.6g}" for name, value in reading.reductions.items())
        yield "values", ", ".join(values)
    planned_left = f"{format_seconds(reading.planned_left_seconds)} by the plan"
    if reading.left_seconds is not None:
        yield "left", f"about {format_seconds(reading.left_seconds)}, {planned_left}"
    else:
        yield "left", planned_left


def in_a_line(reading: Reading) -> str:
    """The same of one of several ranks."""
    return (
        f"step {reading.step}, {format_rate(reading.updates_per_second)}, waiting "
        f"{format_share(reading.waiting)}, {_processors(reading)}, "
        f"memory {format_bytes(reading.memory_bytes)} of {format_bytes(reading.memory_limit_bytes)}"
    )


def _processors(reading: Reading) -> str:
    """How many processors a process keeps busy, against its threads."""
    return f"{reading.processors:.2f} processors for {format_count(reading.threads, 'thread')}"


def status(out: Path) -> Status | None:
    """The unfinished run in ``out``, None where there is none."""
    run = on_disk(out)
    if run.group is None and not run.shares:
        return None
    owner, running = owner_of(out)
    paths = [share.folder.out / MANIFEST_NAME for share in run.shares]
    kept = max((path.stat().st_mtime for path in paths if path.exists()), default=time.time())
    folders = dict.fromkeys((out, *(share.folder.out for share in run.shares)))
    readings = [reading for folder in folders if (reading := read_reading(folder)) is not None]
    if owner is not None:  # those of an earlier process tell nothing of this one
        readings = [reading for reading in readings if reading.time >= owner.since]
    return Status(
        out,
        run.manifest,
        owner,
        running,
        max(0.0, time.time() - kept),
        tuple(share.manifest.steps_done for share in run.shares) if run.group is not None else (),
        tuple(sorted(readings, key=lambda reading: reading.rank)),
    )
