"""A run that the disk holds up: its time should be its bytes over the disk's bandwidth.

A stencil with little to compute makes two steps per sweep, so that the cores wait for the disk.
What is left to the bandwidth of the same transfers without a stencil is what our own order of gets
and puts, the checks of what was read and the ends of sweeps cost.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.probe.effort import Effort
from outgrid.stencil.problem import Problem

__all__ = ["STARVED_BAR", "Starved", "starved_run"]

STARVED_BAR = 0.9  # of the bandwidth
STEPS, DEPTH = 8, 2
SIDE = {False: 512, True: 64}  # of a plane, by whether the file is small
SMALL_BYTES = 64 << 20
INITIAL = "sin(12.9898*x + 0.5)*(sin(78.233*y) + cos(37.719*z))"


@dataclass(frozen=True, slots=True)
class Starved:
    """A run of ``moved_bytes`` in both directions beside the bandwidth measured around it."""

    shape: tuple[int, ...]
    steps: int
    depth: int
    seconds: float
    moved_bytes: int
    wait_share: float
    bandwidth: float
    bandwidth_samples: tuple[float, ...]

    @property
    def over_bandwidth(self) -> float:
        """Time that the bytes take at the bandwidth over the time of the run."""
        return self.moved_bytes / self.bandwidth / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return asdict(self) | {"over_bandwidth": self.over_bandwidth}


def starved_run(folder: Path, effort: Effort, bandwidth: Callable[[], float]) -> Starved:
    """Run in ``folder``; ``bandwidth`` measures bytes per second of reading and writing at once.

    It is called before and after, with nothing else under way.
    """
    side = SIDE[effort.file_bytes < SMALL_BYTES]
    planes = max(8, effort.file_bytes // (8 * side * side))
    problem = Problem(
        "heat7", (planes, side, side), "float64", STEPS, {"k": 0.1}, "frozen", {"u": INITIAL}
    )
    samples = [bandwidth()]
    with tempfile.TemporaryDirectory(prefix="outgrid-bench-", dir=folder) as place:
        options = RunOptions.of(
            memory="512MiB", out=Path(place) / "run", tier="direct", depth=DEPTH
        )
        measured = pipeline.run(problem, options).record.measured
    samples.append(bandwidth())
    return Starved(
        problem.shape,
        STEPS,
        DEPTH,
        measured.seconds,
        measured.read_bytes + measured.written_bytes,
        measured.wait_seconds / measured.seconds,
        statistics.median(samples),
        tuple(samples),
    )
