"""A run that the disk holds up: its time should be its bytes over the disk's bandwidth.

A stencil with little to compute makes two steps per sweep, so that the cores wait for the disk.
What is left to the bandwidth of the same transfers without a stencil is what our own order of gets
and puts, the checks of what was read and the ends of sweeps cost.

The first sweep writes to places that were set aside and never written, for which a file system
and a virtual disk take longer: up to a third. So a run of that sweep alone is measured as well, and
what the others took is the difference.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outgrid import Problem, pipeline
from outgrid.config import RunOptions
from outgrid.probe.effort import Effort
from outgrid.record import Measured

__all__ = ["STARVED_BAR", "Starved", "starved_run"]

STARVED_BAR = 0.9  # of the bandwidth
STEPS, DEPTH = 16, 2
SIDE = {False: 512, True: 64}  # of a plane, by whether the file is small
SMALL_BYTES = 64 << 20
INITIAL = "sin(12.9898*x + 0.5)*(sin(78.233*y) + cos(37.719*z))"


@dataclass(frozen=True, slots=True)
class Starved:
    """A run of ``moved_bytes`` in both directions beside the bandwidth measured around it.

    ``later_bytes`` and ``later_seconds`` are those of its sweeps after the first one.
    """

    shape: tuple[int, ...]
    steps: int
    depth: int
    seconds: float
    moved_bytes: int
    later_seconds: float
    later_bytes: int
    wait_share: float
    bandwidth: float
    bandwidth_samples: tuple[float, ...]

    @property
    def over_bandwidth(self) -> float:
        """Time of the bytes of later sweeps at the bandwidth, over the time that they took."""
        return self.later_bytes / self.bandwidth / self.later_seconds

    @property
    def whole_over_bandwidth(self) -> float:
        """The same of the whole run."""
        return self.moved_bytes / self.bandwidth / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return asdict(self) | {
            "over_bandwidth": self.over_bandwidth,
            "whole_over_bandwidth": self.whole_over_bandwidth,
        }


def starved_run(folder: Path, effort: Effort, bandwidth: Callable[[], float]) -> Starved:
    """Run in ``folder``; ``bandwidth`` measures bytes per second of reading and writing at once.

    It is called before, between and after, with nothing else under way.
    """
    side = SIDE[effort.file_bytes < SMALL_BYTES]
    planes = max(8, effort.file_bytes // (8 * side * side))
    shape = planes, side, side
    samples = [bandwidth()]
    first = _measured(folder, shape, DEPTH)
    samples.append(bandwidth())
    whole = _measured(folder, shape, STEPS)
    samples.append(bandwidth())
    return Starved(
        shape,
        STEPS,
        DEPTH,
        whole.seconds,
        _moved(whole),
        whole.seconds - first.seconds,
        _moved(whole) - _moved(first),
        whole.wait_seconds / whole.seconds,
        statistics.median(samples),
        tuple(samples),
    )


def _measured(folder: Path, shape: tuple[int, ...], steps: int) -> Measured:
    problem = Problem("heat7", shape, "float64", steps, {"k": 0.1}, "frozen", {"u": INITIAL})
    with tempfile.TemporaryDirectory(prefix="outgrid-bench-", dir=folder) as place:
        out = Path(place) / "run"
        options = RunOptions.of(memory="512MiB", out=out, tier="direct", depth=DEPTH)
        return pipeline.run(problem, options).record.measured


def _moved(run: Measured) -> int:
    return run.read_bytes + run.written_bytes
