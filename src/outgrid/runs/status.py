"""An unfinished run as others see it: whether it runs, how far it is, and when it will be done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outgrid.lines import align
from outgrid.runs.group import OnDisk, on_disk
from outgrid.runs.lock import Owner, owner_of
from outgrid.runs.manifest import MANIFEST_NAME, Manifest, how_far
from outgrid.stencil.problem import Problem
from outgrid.units import format_rate, format_seconds

__all__ = ["Status", "status"]


@dataclass(frozen=True, slots=True)
class Status:
    """An unfinished run in ``out``, of which ``manifest`` has come least far.

    ``owner`` is the process that works on it, or the last one that did if it could not say that it
    ended; ``running`` is None where that ran on another host. ``updates_per_second`` are those of
    that process up to its last commit, ``kept_seconds`` ago, with which the run would be done in
    ``left_seconds``; 0 and None where nothing is known of it yet. ``rank_steps`` are the steps that
    each rank has kept, where there are several.
    """

    out: Path
    manifest: Manifest
    owner: Owner | None
    running: bool | None
    kept_seconds: float
    updates_per_second: float
    left_seconds: float | None
    rank_steps: tuple[int, ...] = ()

    @property
    def state(self) -> str:
        """In a word or two."""
        if self.running:
            return "running"
        return "unfinished" if self.running is not None else "running, or cut off"

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
            "glups": self.updates_per_second / 1e9,
            "left_seconds": self.left_seconds,
            "rank_steps": list(self.rank_steps),
        }

    def __str__(self) -> str:
        """In a few lines."""
        begun, running = self.manifest.steps_done >= 0, self.running is not False
        far = how_far(self.manifest)
        if not begun and self.running:
            far = "its initial values are being written"
        elif running and not self.manifest.durable:
            far = f"nothing is kept before its end on tier {self.manifest.tier}"
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
            ended = "" if self.running is not False else "; it ended without a message"
            yield "process", f"{str(self.owner).removeprefix('process ')}{ended}"
        elif parts:
            yield "process", f"{parts[-1].pid} on {parts[-1].host}, {parts[-1].ended}"
        if self.running is False or self.manifest.steps_done < 0 or not self.manifest.durable:
            return
        ago = f"{format_seconds(self.kept_seconds)} ago"
        if self.left_seconds is None:
            yield "rate", f"not known before the next commit, the last one was {ago}"
            return
        yield "rate", f"{format_rate(self.updates_per_second)} up to the last commit, {ago}"
        yield "left", f"about {format_seconds(self.left_seconds)}"


def status(out: Path) -> Status | None:
    """The unfinished run in ``out``, None where there is none."""
    run = on_disk(out)
    if run.group is None and not run.shares:
        return None
    owner, running = owner_of(out)
    paths = [share.folder.out / MANIFEST_NAME for share in run.shares]
    kept = max((path.stat().st_mtime for path in paths if path.exists()), default=time.time())
    ago = max(0.0, time.time() - kept)
    rate, left = _pace(run, owner) if running is not False else (0.0, None)
    return Status(
        out,
        run.manifest,
        owner,
        running,
        ago,
        rate,
        None if left is None else max(0.0, left - ago),
        tuple(share.manifest.steps_done for share in run.shares) if run.group is not None else (),
    )


def _pace(run: OnDisk, owner: Owner | None) -> tuple[float, float | None]:
    """Updates per second of the process that runs, and seconds left after its last commit."""
    every = [share.manifest.parts for share in run.shares]
    # Those of processes that began after the lock was taken; all in UTC.
    mine = [parts[-1] for parts in every if parts and owner and parts[-1].started >= owner.since]
    seconds = max((part.measured.seconds for part in mine), default=0.0)
    updates = sum(part.measured.updates for part in mine)
    if not updates or seconds <= 0:
        return 0.0, None
    before = run.group.parts if run.group is not None else ()
    made = sum(part.measured.updates for parts in (*every, before) for part in parts)
    rate = updates / seconds
    return rate, max(0, Problem.from_dict(run.manifest.problem).updates - made) / rate
