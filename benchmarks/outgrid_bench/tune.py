"""The planner's choice beside the best of an exhaustive search, and its prediction beside the time.

What the planner knows is what a long run knows: a probe of the machine, measured here if it was not
before, and a calibration of the kernel, always measured anew: it is judged, not what was kept.
"""

from __future__ import annotations

import math
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outgrid import Machine, Plan
from outgrid.config import RunOptions
from outgrid.parts import FIXED_BYTES, Kernel, calibration, load_kernel
from outgrid.parts import plan as choose
from outgrid.probe.effort import Effort
from outgrid.probe.measure import measure_machine
from outgrid.probe.profile import keep_profile, known_machine
from outgrid_bench.search import Ground, Timing, neighbourhood, race
from outgrid_bench.tunings import Tuning

__all__ = ["Settings", "TuneRow", "measure_tunings", "probed_machine"]

CHOICE_BAR = 0.95  # of the best found
PREDICTION_BAR = 0.20  # of the measured time

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """What a plan chose, and the time it took: the median of ``samples``, None if given up."""

    resident: bool
    depth: int
    slab_planes: int
    strip_rows: int  # 0: whole planes
    tile: str
    tile_rows: int
    tile_planes: int
    tile_columns: int  # 0: whole rows
    tile_band: int  # 0: all rows at once
    threads: int
    predicted_seconds: float
    first_seconds: float | None
    samples: tuple[float, ...]

    @classmethod
    def of(cls, timing: Timing) -> Settings:
        """The settings and times of one candidate."""
        plan, first = timing.plan, timing.first_seconds
        return cls(
            plan.schedule.resident,
            plan.depth,
            plan.schedule.slab_planes,
            plan.schedule.strips.height if plan.schedule.strips.count(plan.depth) > 1 else 0,
            plan.tile.order,
            plan.tile.rows,
            plan.tile.planes,
            plan.tile.columns,
            plan.tile.band,
            plan.threads,
            plan.predicted_seconds,
            first if math.isfinite(first) else None,
            tuple(timing.samples),
        )

    @property
    def seconds(self) -> float:
        """Median of the rounds."""
        return statistics.median(self.samples)

    @property
    def text(self) -> str:
        """In a few words."""
        where = "resident" if self.resident else f"slab {self.slab_planes}"
        if self.strip_rows:
            where += f", strips of {self.strip_rows} rows"
        tile = f"{self.tile} {self.tile_rows}x{self.tile_planes}" if self.tile_rows else self.tile
        tile += f" of {self.tile_columns} columns" if self.tile_columns else ""
        tile += f" in bands of {self.tile_band}" if self.tile_band else ""
        return f"depth {self.depth}, {where}, {tile}, {self.threads} threads"


@dataclass(frozen=True, slots=True)
class TuneRow:
    """One problem. ``candidates`` are all that were timed, the planner's choice first."""

    problem: str
    stencil: str
    dtype: str
    shape: tuple[int, ...]
    radius: tuple[int, ...]
    fields: int
    steps: int
    memory_limit_bytes: int
    state_bytes: int
    updates: int
    bound_by: str
    load: float
    candidates: tuple[Settings, ...]

    @property
    def choice(self) -> Settings:
        """The planner's."""
        return self.candidates[0]

    @property
    def best(self) -> Settings:
        """The fastest of the finalists."""
        return min(
            (c for c in self.candidates if c.samples), key=lambda candidate: candidate.seconds
        )

    @property
    def choice_over_best(self) -> float:
        """Rate of the choice over that of the best found, at most 1."""
        return self.best.seconds / self.choice.seconds

    @property
    def predicted_over_measured(self) -> float:
        """Predicted over measured time of the choice."""
        return self.choice.predicted_seconds / self.choice.seconds

    def glups(self, settings: Settings) -> float:
        """1e9 updates per second."""
        return self.updates / settings.seconds / 1e9

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form with the figures of the table."""
        return asdict(self) | {
            "choice_glups": self.glups(self.choice),
            "best_glups": self.glups(self.best),
            "choice": self.choice.text,
            "best": self.best.text,
            "choice_over_best": self.choice_over_best,
            "predicted_over_measured": self.predicted_over_measured,
        }


def measure_tunings(
    tunings: Sequence[Tuning], machine: Machine, folder: Path | None, say: Say
) -> Iterator[TuneRow]:
    """A row for each problem, as it is done; its files lie in ``folder`` meanwhile."""
    for number, tuning in enumerate(tunings, 1):
        with tempfile.TemporaryDirectory(prefix="outgrid-bench-", dir=folder) as place:
            yield _measure(tuning, machine, Path(place), _numbered(say, number, len(tunings)))


def probed_machine(folder: Path | None, say: Say, effort: Effort | None = None) -> Machine:
    """The machine as a probe found it; probed now where it was not before."""
    machine = known_machine(folder)
    if machine.measured:
        return machine
    say("probing the machine")
    keep_profile(measure_machine(folder, effort))
    return known_machine(folder)


def _numbered(say: Say, number: int, count: int) -> Say:
    return lambda text: say(f"{number}/{count} {text}")


def _measure(tuning: Tuning, machine: Machine, place: Path, say: Say) -> TuneRow:
    problem = tuning.problem
    options = RunOptions(memory_bytes=tuning.memory_bytes)
    load = os.getloadavg()[0]
    kernel: Kernel = load_kernel(problem)
    say(f"{tuning.name}: calibrating")
    rates = calibration(problem, options, machine, kernel, again=True)

    def price(wanted: RunOptions) -> Plan:
        return choose(problem, wanted, machine, FIXED_BYTES, rates)

    choice = price(options)
    plans = neighbourhood(problem, options, machine, choice, price)
    say(f"{tuning.name}: {len(plans)} ways")
    with Ground(problem, choice.schedule.arrivals, place) as ground:
        timings = race(plans, ground, kernel)
    return TuneRow(
        problem=tuning.name,
        stencil=problem.stencil.name,
        dtype=problem.dtype,
        shape=problem.shape,
        radius=problem.stencil.radius,
        fields=len(problem.stencil.fields),
        steps=problem.steps,
        memory_limit_bytes=tuning.memory_bytes,
        state_bytes=tuning.state_bytes,
        updates=problem.updates,
        bound_by=choice.prediction.bound_by,
        load=load,
        candidates=tuple(Settings.of(timing) for timing in timings),
    )
