"""Rows of the table: one stencil, one mode, one rate, with its ratios to what was measured beside.

For each stencil the rates in memory (plain, in blocks, temporally tiled, by hand) come from one
grid of a few planes, the ceilings from grids in cache, and one row out of core from each factor.

Memory that a machine shares with others gives half as much in one minute as in the next. So the
plain and the tiled sweep, and the fastest sweep of one step if that is another, are measured once
more before and after each row out of core, and the ratios of the row, but for those to ceilings and
loops by hand, are those to what was measured around it. Where its planes are larger than those
of the grid in memory, so is a tiled sweep in memory over such planes: what long rows cost is told
apart from what streaming does.
"""

from __future__ import annotations

import datetime
import math
import shutil
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from outgrid import Machine, Problem, Record
from outgrid.errors import UsageError
from outgrid.lines import format_extents
from outgrid.machine import describe_machine
from outgrid.units import format_bytes
from outgrid.version import __version__
from outgrid_bench.ceiling import ceiling
from outgrid_bench.hand import (
    HAND_WRITTEN,
    HandLoop,
    HandWritten,
    memory_bandwidth,
    peak_flops,
)
from outgrid_bench.kept import Kept
from outgrid_bench.measure import (
    OutOfCore,
    in_memory,
    out_of_core,
    same_bytes,
    same_planes,
    update_rate,
)
from outgrid_bench.workloads import Case, Workload

__all__ = ["KEY", "USUAL", "Row", "answers_agree", "measure_rows", "processor_of"]

Say = Callable[[str], None]

MACHINE_MODES = ("bandwidth", "peak")  # rows of the machine, without a stencil
KEY = ("stencil", "dtype", "mode", "factor", "shape", "axis")  # what tells a row from all others
USUAL = {"axis": ""}  # what older rows lack of it
PLAIN_STEPS = 4
BY_HAND = ("hand", "hand in place")
ONE_STEP = ("plain", "blocked", *BY_HAND)  # sweeps of one step: the fastest is the baseline
BESIDE = ("plain", "tiled", "resident", "best")  # measured around each row out of core
TILED_STEPS = 96  # at most: diamonds are begun and ended once per sweep, and sweeps are deep
TILED_SECONDS = 20
ROUNDS = 3  # of rates in memory, in turns
CACHE_LEVELS = (1, 2, 3)
CENTRES = (0.4, 1.0)  # parts of the grid on which an answer out of core is compared
# A loop by hand groups its sums otherwise: a few units in the last place per step.
ROUNDING = {"float64": 1e-14, "float32": 5e-6}


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement. What does not apply to a mode is None.

    ``over_ceiling`` is over the fastest of the ceilings, ``over_tiled`` over the temporally blocked
    sweep in memory, ``over_resident`` over the same on planes as large as those out of core,
    ``over_hand`` over the fastest loop by hand, ``over_best`` over the fastest of the plain sweep,
    the spatially blocked one and those loops, ``over_peak`` operations over the peak of
    multiply-adds of that type. ``samples`` are the rates behind ``glups``, their median; out of
    core, where there is one, ``plain_beside``, ``tiled_beside``, ``resident_beside`` and
    ``best_beside`` (of the fastest sweep of one step in memory) are the rates before and after it,
    over whose mean its ratios are. ``identical`` compares to the byte,
    except for loops by hand, whose sums are grouped by the compiler: there it is None and
    ``difference`` is the largest difference from the plain sweep, over the largest value. ``axis``
    is the one that planes pass along, where it was asked for.
    ``factor`` is the state of the problem over the memory limit, 0 in memory. ``ended`` (UTC),
    ``version`` and ``machine`` are of the row: a record that is gone on with may hold rows of
    several days. A row in memory that such a record lacked has ``plain_beside`` as well.
    """

    stencil: str
    dtype: str
    mode: str
    factor: float
    shape: tuple[int, ...]
    steps: int
    glups: float | None = None
    gflops: float | None = None
    over_plain: float | None = None
    over_ceiling: float | None = None
    wait_share: float | None = None
    io_over_ideal: float | None = None
    identical: bool | None = None
    difference: float | None = None
    gigabytes_per_second: float | None = None
    memory_limit_bytes: int | None = None
    peak_memory_over_limit: float | None = None
    depth: int | None = None
    prediction_error: float | None = None
    limit: str | None = None
    slab_planes: int | None = None
    over_tiled: float | None = None
    over_resident: float | None = None
    over_hand: float | None = None
    over_best: float | None = None
    over_peak: float | None = None
    samples: tuple[float, ...] = ()
    plain_beside: tuple[float, ...] = ()
    tiled_beside: tuple[float, ...] = ()
    resident_beside: tuple[float, ...] = ()
    best_beside: tuple[float, ...] = ()
    axis: str = ""
    ended: str = ""
    version: str = __version__
    machine: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return msgspec.to_builtins(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Row:
        """Inverse of `to_dict`."""
        return msgspec.convert(data, cls)


def answers_agree(rows: Sequence[Row]) -> bool:
    """Whether no row's answer differs from its reference by more than it may."""
    return all(
        row.identical is not False
        and (row.difference is None or row.difference <= ROUNDING[row.dtype] * max(1, row.steps))
        for row in rows
    )


def measure_rows(
    workloads: Sequence[Workload],
    folder: Path | None,
    say: Say,
    kept: Kept | None = None,
) -> list[Row]:
    """All rows of ``workloads``; those of one case share the references measured for the first.

    ``kept`` takes each row when it is done; what it holds already is not measured again.
    """
    kept = Kept(None, KEY, False, USUAL) if kept is None else kept
    _check_machine(kept)
    place = Path(tempfile.mkdtemp(prefix="outgrid-bench-", dir=folder))
    try:
        if not any(row["mode"] in MACHINE_MODES for row in kept.rows):
            for row in _machine_rows(place, say):
                kept.add(_stamped(row))
        for case in dict.fromkeys(workload.case for workload in workloads):
            own = [workload for workload in workloads if workload.case == case]
            _CaseRows(own, place, say, kept).measure()
        return [Row.from_dict(row) for row in kept.rows]
    finally:
        shutil.rmtree(place)


def _check_machine(kept: Kept) -> None:
    """Raise UsageError where rows are kept of another machine: their rates are no references."""
    here = processor_of(describe_machine().summary)
    for row in kept.rows:
        there = processor_of(row.get("machine", ""))
        if there and there != here:
            raise UsageError(
                f"{kept.path} holds rows of {there}, and this machine has {here}: their rates do "
                "not compare; name another file with --json"
            )


def processor_of(summary: str) -> str:
    """How many cores of which processor a machine has; in parentheses, if the compiler is told."""
    told = [word for word in summary.split() if word.startswith("-march=")]
    return summary.partition(",")[0] + "".join(f" ({word})" for word in told)


def _machine_rows(place: Path, say: Say) -> list[Row]:
    """What the machine gives: memory bandwidth, and multiply-adds in registers."""
    say("memory bandwidth and peak of multiply-adds")
    bandwidth = memory_bandwidth(place)
    peaks = [
        Row("fma", dtype, "peak", 0, (), 0, gflops=peak_flops(dtype, place) / 1e9)
        for dtype in ("float64", "float32")
    ]
    return peaks + [
        Row(name, "float64", "bandwidth", 0, (), 0, gigabytes_per_second=rate)
        for name, rate in (("copy", bandwidth.copy), ("scale", bandwidth.scale))
    ]


def _stamped(row: Row) -> dict[str, Any]:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return replace(row, ended=now, machine=describe_machine().summary).to_dict()


class _CaseRows:
    """The rows of one case."""

    def __init__(
        self,
        workloads: Sequence[Workload],
        place: Path,
        say: Say,
        kept: Kept,
    ) -> None:
        self.workloads, self.place, self.say, self.kept = workloads, place, say, kept
        self.case: Case = workloads[0].case
        self.machine: Machine = describe_machine()
        self.samples: dict[str, list[float]] = {}
        self.templates: dict[str, Row] = {}

    def measure(self) -> None:
        """The references, then what goes out of core; rows that are kept already are left out."""
        self._take_kept()
        self._references()
        wanted = [workload for workload in self.workloads if self._kept_row(workload) is None]
        for _, group in groupby(wanted, key=lambda workload: workload.plane):
            self._measure_planes([*group])

    def _measure_planes(self, workloads: Sequence[Workload]) -> None:
        """Rows out of core of planes of one shape, between rates in memory."""
        before = self._beside(workloads[0])
        for workload in workloads:
            self._say(
                f"out of core, {format_bytes(workload.state_bytes)} "
                f"under {format_bytes(workload.memory_bytes)}{workload.way}"
            )
            streamed = out_of_core(workload, self.place)
            after = self._beside(workload)
            row = self._out_of_core(workload, streamed)
            beside = {mode: (before[mode], after[mode]) for mode in BESIDE}
            given = {f"{mode}_beside": rates for mode, rates in beside.items()}
            self._keep(replace(row, **given), beside, ("plain", "best"))
            before = after

    def _take_kept(self) -> None:
        """Take the rates in cache and in memory from the kept rows, as far as they are there."""
        for row in self.kept.rows:
            own = (row["stencil"], row["dtype"]) == (self.case.name, self.case.dtype)
            if own and row["mode"] != "outofcore":
                self.samples[row["mode"]] = list(row["samples"])

    def _kept_row(self, workload: Workload) -> dict[str, Any] | None:
        shape = [*workload.problem().shape]
        key = (self.case.name, self.case.dtype, "outofcore", workload.factor, shape, workload.axis)
        return next((row for row in self.kept.rows if self.kept.key(row) == key), None)

    def _references(self) -> None:
        """Rates in cache and in memory that are not kept yet.

        Plain sweeps are measured in turns with what is set beside them, also where they are kept.
        """
        by_hand = HAND_WRITTEN[self.case.name]
        ceilings = {f"ceiling-l{level}": level for level in CACHE_LEVELS}
        modes = (*ceilings, "plain", *(written.mode for written in by_hand), "blocked", "tiled")
        missing = [mode for mode in modes if mode not in self.samples]
        beside: dict[str, tuple[float, ...]] = {}
        for mode in (mode for mode in missing if mode in ceilings):
            self._say(f"ceiling in L{ceilings[mode]}")
            glups, shape = ceiling(self.case, self.machine, ceilings[mode])
            self._add(self._row(mode, shape, 0), glups)
        if not ceilings.keys() >= {*missing}:
            before = self.samples.pop("plain", None)
            answer = self._reference("plain")
            for written in (one for one in by_hand if one.mode in missing):
                self._hand(answer, written)
            if "blocked" in missing:
                self._reference("blocked", answer)
            if "tiled" in missing:
                self._tiled(answer)
            for _ in range(ROUNDS - 1):
                self._reference("plain", answer)
                if "tiled" in missing:
                    self.samples["tiled"].append(self._tiled_rate()[0])
            if before is not None:
                beside = {"plain": tuple(self.samples["plain"])}
                self.samples["plain"] = before
        for mode in missing:
            self._keep(replace(self.templates[mode], plain_beside=beside.get("plain", ())), beside)

    def _add(self, row: Row, glups: float) -> None:
        self.templates.setdefault(row.mode, row)
        self.samples.setdefault(row.mode, []).append(glups)

    def _beside(self, workload: Workload) -> dict[str, float]:
        """The rates that are set beside rows out of core, now."""
        rates = {"plain": self._one_step_rate("plain"), "tiled": self._tiled_rate()[0]}
        alike = workload.resident(0).shape == self.workloads[0].reference_shape
        rates["resident"] = rates["tiled"] if alike else self._tiled_rate(workload.resident)[0]
        medians = {mode: statistics.median(self.samples.get(mode, [0])) for mode in ONE_STEP}
        best = max(ONE_STEP, key=medians.__getitem__)
        rates["best"] = rates["plain"] if best == "plain" else self._one_step_rate(best)
        return rates

    def _keep(
        self,
        row: Row,
        beside: Mapping[str, tuple[float, ...]],
        one_step: Sequence[str] = ONE_STEP,
    ) -> None:
        """Add a row with its ratios, of medians of samples or of what was measured ``beside``.

        ``one_step`` are the modes over the fastest of which it is set.
        """
        rates_by_mode = self.samples | {mode: list(rates) for mode, rates in beside.items()}
        rates = {mode: statistics.median(measured) for mode, measured in rates_by_mode.items()}
        samples = row.samples or tuple(self.samples[row.mode])
        glups = statistics.median(samples)
        ceilings = [rate for mode, rate in rates.items() if mode.startswith("ceiling")]
        by_hand = [rates[mode] for mode in BY_HAND if mode in rates]
        done = replace(
            row,
            glups=glups,
            gflops=glups * self.case.stencil.flops,
            over_plain=glups / rates["plain"],
            over_ceiling=glups / max(ceilings),
            over_tiled=glups / rates["tiled"],
            over_resident=glups / rates["resident"] if "resident" in rates else None,
            over_hand=glups / max(by_hand) if by_hand else None,
            over_best=glups / max(rates[mode] for mode in one_step if mode in rates),
            over_peak=glups * self.case.stencil.flops / self._peak(),
            samples=samples,
        )
        self.kept.add(_stamped(done))

    def _peak(self) -> float:
        return next(
            row["gflops"]
            for row in self.kept.rows
            if (row["mode"], row["dtype"]) == ("peak", self.case.dtype)
        )

    def _row(self, mode: str, shape: tuple[int, ...], steps: int, **others: Any) -> Row:
        return Row(self.case.name, self.case.dtype, mode, 0, shape, steps, **others)

    def _say(self, what: str) -> None:
        self.say(f"{self.case.spelling}: {what}")

    def _reference(self, kind: str, answer: np.ndarray | None = None) -> np.ndarray:
        self._say(f"{kind}, in memory")
        problem = self.workloads[0].reference(PLAIN_STEPS)
        record, values = in_memory(problem, kind, self.place)
        identical = None if answer is None else same_bytes(values, answer)
        row = self._row(kind, problem.shape, problem.steps, identical=identical)
        self._add(row, update_rate(record))
        return values

    def _hand(self, answer: np.ndarray, written: HandWritten) -> None:
        self._say(f"{written.mode.replace('hand', 'by hand')}, in memory")
        problem = self.workloads[0].reference(PLAIN_STEPS)
        loop = HandLoop(problem, self.case.stencil, self.place, written)
        rates: list[float] = []
        difference = 0.0
        for _ in range(2):
            glups, values = loop.run()
            rates.append(glups)
            difference = largest_difference(values, answer)
            del values
        loop.release()
        row = self._row(written.mode, problem.shape, problem.steps, difference=difference)
        for glups in rates:
            self._add(row, glups)

    def _one_step_rate(self, mode: str) -> float:
        """The rate of a sweep of one step in memory, now."""
        self._say(f"{mode.replace('hand', 'by hand')}, in memory")
        problem = self.workloads[0].reference(PLAIN_STEPS)
        if mode not in BY_HAND:
            record, _ = in_memory(problem, mode, self.place, slice(0, 1))
            return update_rate(record)
        (written,) = (one for one in HAND_WRITTEN[self.case.name] if one.mode == mode)
        loop = HandLoop(problem, self.case.stencil, self.place, written)
        rate = loop.run()[0]
        loop.release()
        return rate

    def _tiled_rate(self, problem: Callable[[int], Problem] | None = None) -> tuple[float, Record]:
        """The rate over many steps, of which a run of few shows little; of the reference or of the
        ``problem`` of so many steps."""
        problem = problem or self.workloads[0].reference
        shape = problem(PLAIN_STEPS).shape
        self._say(f"temporally blocked, in memory, {format_extents(shape)}")
        affordable = round(TILED_SECONDS * self.case.expected_glups * 1e9 / math.prod(shape))
        steps = min(TILED_STEPS, max(8, affordable))
        record, _ = in_memory(problem(steps), "tiled", self.place, slice(0, 1))
        return update_rate(record), record

    def _tiled(self, answer: np.ndarray) -> None:
        """The rate over many steps; the answer over as few as the other references make."""
        rate, record = self._tiled_rate()
        few = self.workloads[0].reference(PLAIN_STEPS)
        _, values = in_memory(few, "tiled", self.place)
        row = self._row(
            "tiled",
            few.shape,
            sum(record.planned["depths"]),
            identical=same_bytes(values, answer),
            depth=max(record.planned["depths"]),
        )
        self._add(row, rate)

    def _out_of_core(self, workload: Workload, streamed: OutOfCore) -> Row:
        """What a run gave, and whether its answer is that of the plain sweep."""
        identical = all(self._agrees(workload, streamed.result, centre) for centre in CENTRES)
        shutil.rmtree(streamed.result.parent)
        record: Record = streamed.record
        measured = record.measured
        row = self._row(
            "outofcore",
            workload.problem().shape,
            workload.steps,
            identical=identical,
            wait_share=measured.wait_seconds / measured.seconds,
            io_over_ideal=measured.io_over_ideal,
            memory_limit_bytes=workload.memory_bytes,
            peak_memory_over_limit=measured.peak_memory_over_limit,
            depth=max(record.planned["depths"]),
            slab_planes=record.planned["slab_planes"],
            prediction_error=record.prediction_error,
            limit=streamed.enforced,
            samples=(measured.glups,),
        )
        return replace(row, factor=workload.factor, axis=workload.axis)

    def _agrees(self, workload: Workload, result: Path, centre: float) -> bool:
        first, last, start, end = workload.part(centre)
        self._say(f"comparing planes {start}..{end - 1}")
        part = workload.problem(first, last)
        _, core = in_memory(part, "blocked", self.place, slice(start - first, end - first))
        return same_planes(result, start, core)


def largest_difference(values: np.ndarray, answer: np.ndarray) -> float:
    """The largest difference over the largest value, plane by plane so that memory stays small."""
    difference = scale = 0.0
    for plane, expected in zip(values, answer, strict=True):
        difference = max(difference, float(np.abs(plane - expected).max()))
        scale = max(scale, float(np.abs(expected).max()))
    return difference / scale if scale else difference
