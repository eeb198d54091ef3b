"""What an experiment is asked for and what it leaves: rows, and papers' claims beside them."""

from __future__ import annotations

import datetime
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from outgrid.durable import existing
from outgrid.errors import Stopped
from outgrid.lines import format_wear
from outgrid.machine import describe_machine
from outgrid.probe.profile import known_machine
from outgrid.units import format_bytes
from outgrid.version import __version__
from outgrid_bench import claims
from outgrid_bench.emulation import Asked
from outgrid_bench.experiments.disks import Disk, disk_bytes, disk_of
from outgrid_bench.kept import Pieces
from outgrid_bench.tables import columns

__all__ = [
    "OUTGRID",
    "PAPERS",
    "Experiment",
    "Finding",
    "Outcome",
    "Settings",
    "Size",
    "Timed",
    "disk_lines",
    "judged",
    "median_rates",
    "outcome_table",
    "row_lines",
]

Size = Literal["tiny", "quick", "full"]
QUICK_SECONDS = 90
LOOKS, SECONDS_BETWEEN_LOOKS = 5, 0.01  # at who else wants a processor
Row = Mapping[str, Any]
T = TypeVar("T")

# By what the places of their claims begin with.
PAPERS = {paper.name: paper.title for paper in claims.PAPERS}
OUTGRID = claims.OWN.name  # what no paper measured


@dataclass(frozen=True, slots=True)
class Settings:
    """How large, and where.

    ``size``: "tiny" runs the whole flow in seconds and measures nothing worth reading, "quick"
    takes less than 90 seconds, "full" fills memory several times. ``folders`` lie on the disks that
    are measured, at least one. ``memory`` is the limit under which memory is filled, ``factor``
    the grid over it and ``steps`` how often it is updated, where the experiment's own are not
    wanted. ``with_swap`` allows a swap file to be made and removed. ``device`` "gpu" adds what a
    GPU makes of it, where an experiment has that. ``endurance_bytes`` may be written to a disk in
    its life (0: not known); ``price`` (any currency) and ``watts`` are those of all disks. Disks to
    ``emulate`` take the place of the folders, with ``labels``, one for each folder, then. Parts
    are written to the file ``kept`` as they are made, and with ``resume`` those that it holds are
    not made again; behind the ``deadline`` (of `time.monotonic`) none is begun.
    """

    size: Size
    folders: tuple[Path, ...]
    memory: int | None = None
    factor: float | None = None
    steps: int | None = None
    with_swap: bool = False
    device: str = "cpu"
    endurance_bytes: int = 0
    price: float | None = None
    watts: float | None = None
    emulate: tuple[Asked, ...] = ()
    labels: tuple[str, ...] = ()
    kept: Path | None = None
    resume: bool = False
    deadline: float = math.inf
    say: Callable[[str], None] = print

    @property
    def memory_bytes(self) -> int:
        """The limit, where the size of the experiment does not change it."""
        return self.memory or 512 << 20

    @property
    def limit_bytes(self) -> int:
        """The limit that grids and arrays are multiples of."""
        return self.memory_bytes if self.size == "full" else self.memory or 256 << 20

    def by_size(self, tiny: int, quick: int, full: int) -> int:
        """One of the three."""
        return {"tiny": tiny, "quick": quick, "full": full}[self.size]


@dataclass(frozen=True, slots=True)
class Finding:
    """A claim of a paper, with its figure there and here. ``figure`` begins with one of PAPERS, or
    with OUTGRID. ``holds`` is None where it does not apply to this machine or was not measured.
    ``key`` is that of a number in `outgrid_bench.claims`, by which it was judged; without one
    nothing is."""

    figure: str
    claim: str
    paper: str
    here: str
    holds: bool | None
    key: str = ""


def judged(key: str, here: float | None, told: str = "") -> Finding:
    """What was found of a number that a paper prints; None where it was not measured."""
    paper, claim = claims.CLAIMS[key]
    return Finding(
        f"{paper.name}, {claim.figure}",
        claim.text,
        claim.printed,
        told or ("not measured" if here is None else f"{here:.5g}"),
        None if here is None else claim.holds(here),
        key,
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """One experiment on one machine, as it stands in its file.

    ``agrees`` says whether every answer was what it should be, ``reference`` what was measured
    beside, ``notes`` what could not be done here. ``details`` are series too long for rows.
    """

    bench: str
    size: Size
    rows: tuple[dict[str, Any], ...]
    findings: tuple[Finding, ...]
    reference: str
    agrees: bool
    notes: tuple[str, ...]
    details: dict[str, Any]
    seconds: float
    load: float
    started: str
    machine: dict[str, Any]
    disks: tuple[Disk, ...] = ()
    endurance_bytes: int = 0
    version: str = __version__

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return msgspec.to_builtins(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Outcome:
        """Inverse of `to_dict`."""
        return msgspec.convert(data, cls)


class Timed:
    """When and where an experiment began, its parts and its notes; `outcome` ends it."""

    def __init__(self, bench: str, settings: Settings) -> None:
        self.bench, self.settings = bench, settings
        self.notes: list[str] = []
        self._first = _moment()
        self._begin = time.perf_counter()
        self._moved = self._counters()
        of = {
            "bench": bench,
            "size": settings.size,
            "memory": settings.memory,
            "factor": settings.factor,
            "steps": settings.steps,
            "swap": settings.with_swap,
            "device": settings.device,
            "disks": list(settings.labels),
        }
        self._pieces = Pieces(settings.kept, of, settings.resume)
        self._before = dict(self._pieces)  # what former processes made

    def __contains__(self, name: str) -> bool:
        """Whether a part was made."""
        return name in self._pieces

    def note(self, text: str) -> None:
        """Say something of the outcome, once."""
        if text not in self.notes:
            self.notes.append(text)

    def piece(self, name: str, kind: Any, make: Callable[[], T]) -> T:
        """A part of type ``kind`` that ``make`` gives, or gave to a process before this one.

        It goes through JSON, with the notes that were made meanwhile. Raises Stopped where time is
        over, but not before the first part.
        """
        if name not in self._pieces:
            made = len(self._pieces) - len(self._before)
            if made and time.monotonic() > self.settings.deadline:
                raise Stopped(
                    f"{self.bench} is over its time with {len(self._pieces)} parts kept; the same "
                    "command with --resume goes on"
                )
            begin, moment, moved = time.perf_counter(), _moment(), self._counters()
            noted = len(self.notes)
            value = msgspec.to_builtins(make())
            piece = {
                "seconds": time.perf_counter() - begin,
                "moved": [_since(*pair) for pair in zip(self._counters(), moved, strict=True)],
                "notes": self.notes[noted:],
                "value": value,
            }
            self._pieces.add(name, moment | piece)
        piece = self._pieces[name]
        for text in piece["notes"]:
            self.note(text)
        return msgspec.convert(piece["value"], kind)

    def _counters(self) -> list[tuple[int, int]]:
        return [disk_bytes(_device(folder)) for folder in self.settings.folders]

    def rounds(self, most: int) -> Iterator[int]:
        """Rounds 0, 1 and so on, none but the first when much of a quick experiment's time is gone:
        on a slow disk there are fewer."""
        for turn in range(most):
            if turn and self.left < 0.6 * QUICK_SECONDS:
                return
            yield turn

    @property
    def left(self) -> float:
        """Seconds that are left of the time of a quick experiment; others have all there is."""
        if self.settings.size != "quick":
            return math.inf
        return self._begin + QUICK_SECONDS - time.perf_counter()

    def outcome(
        self,
        rows: Sequence[Any],
        findings: Sequence[Finding],
        *,
        reference: str,
        agrees: bool,
        notes: Sequence[str] = (),
        details: dict[str, Any] | None = None,
    ) -> Outcome:
        """``rows`` are dataclasses, all of one kind; ``notes`` follow those made so far."""
        tiny = self.settings.size == "tiny"
        pieces = self._pieces.values()
        first = min((self._first, *pieces), key=lambda moment: moment["started"])
        loads = [piece["load"] for piece in pieces] or [self._first["load"]]
        place = existing(self.settings.folders[0])
        machine = describe_machine() if tiny else known_machine(place)
        return Outcome(
            self.bench,
            self.settings.size,
            tuple(msgspec.to_builtins(asdict(row)) for row in rows),
            # Tiny sizes show that everything runs, not how fast.
            tuple(replace(finding, holds=None) if tiny else finding for finding in findings),
            reference,
            agrees,
            (*self.notes, *notes),
            details or {},
            time.perf_counter()
            - self._begin
            + sum(piece["seconds"] for piece in self._before.values()),
            statistics.mean(loads),
            first["started"],
            machine.to_dict(),
            tuple(self._disks()),
            self.settings.endurance_bytes,
        )

    def _disks(self) -> Iterator[Disk]:
        """Each disk once, with what it moved since the beginning."""
        seen: set[int] = set()
        folders = self.settings.folders
        labels = self.settings.labels or [""] * len(folders)
        now = [_since(*pair) for pair in zip(self._counters(), self._moved, strict=True)]
        every = [now, *(piece["moved"] for piece in self._before.values())]
        for number, (folder, label) in enumerate(zip(folders, labels, strict=True)):
            device = _device(folder)
            if device not in seen:
                seen.add(device)
                read, written = (sum(part[number][kind] for part in every) for kind in (0, 1))
                yield replace(disk_of(folder, read, written), emulated=label)


def _moment() -> dict[str, Any]:
    """Now, and how many threads of others want a processor: the mean of a few looks."""
    looks: list[int] = []
    for _ in range(LOOKS):
        time.sleep(SECONDS_BETWEEN_LOOKS)
        running = Path("/proc/loadavg").read_text().split()[3].partition("/")[0]
        own = sum(_runs(stat) for stat in Path("/proc/self/task").glob("*/stat"))
        looks.append(max(0, int(running) - own))
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"started": started, "load": statistics.mean(looks)}


def _runs(stat: Path) -> bool:
    """Whether a thread of this process wants a processor."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "R"
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return False


def _since(now: tuple[int, int], before: tuple[int, int]) -> tuple[int, int]:
    return now[0] - before[0], now[1] - before[1]


def _device(folder: Path) -> int:
    return existing(folder).stat().st_dev


@dataclass(frozen=True, slots=True)
class Experiment:
    """``measure`` runs it; ``draw`` draws an outcome into an empty matplotlib figure."""

    name: str
    purpose: str
    measure: Callable[[Settings], Outcome]
    draw: Callable[[Outcome, Any], None]


def median_rates(samples: Mapping[Any, Sequence[float]]) -> dict[Any, float]:
    """The median of each."""
    return {key: statistics.median(values) for key, values in samples.items()}


def disk_lines(outcome: Outcome) -> Iterator[str]:
    """What was measured on, what it moved meanwhile, and what that takes of its life."""
    for disk in outcome.disks:
        ahead = f"{format_bytes(disk.ahead_bytes)} read ahead" if disk.ahead_bytes else ""
        kind = f"emulated {disk.emulated}" if disk.emulated else disk.model
        parts = (kind, disk.file_system, disk.scheduler, ahead)
        model = ", ".join(part for part in parts if part)
        wear = format_wear(disk.written_bytes, outcome.endurance_bytes)
        yield (
            f"{disk.device or 'no disk'} ({model}), {format_bytes(disk.read_bytes)} read and "
            f"{format_bytes(disk.written_bytes)} written meanwhile, by others too{wear}"
        )


def row_lines(outcome: Outcome) -> str:
    """Rows in columns, without the samples behind them."""
    if not outcome.rows:
        return ""
    names = [name for name in outcome.rows[0] if not name.endswith("samples")]
    return columns([names, *([_text(row[name]) for name in names] for row in outcome.rows)])


def outcome_table(outcome: Outcome) -> str:
    """Rows, findings and notes as text."""
    told = [row_lines(outcome), ""] if outcome.rows else [""]
    for finding in outcome.findings:
        verdict = {True: "holds", False: "does not hold", None: "not judged"}[finding.holds]
        told.append(f"{finding.figure}: {finding.claim}")
        told.append(f"    paper {finding.paper}; here {finding.here}: {verdict}")
    told.append(f"reference: {outcome.reference}")
    told += [f"disk: {line}" for line in disk_lines(outcome)]
    told += [f"note: {note}" for note in outcome.notes]
    told.append("answers agree" if outcome.agrees else "ANSWERS DIFFER")
    return "\n".join(told)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
