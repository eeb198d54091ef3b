"""What it costs to look for values that are not finite, as a share of the time of a step.

    python tools/watch_cost.py [REPETITIONS]

Each case is run in turns with a look at every step and with none, by one thread; compared is the
processor's time of that thread, so that others on the machine disturb little, and the least of all
repetitions counts. A run of depth T looks once in T steps.
"""

import sys
import tempfile
from pathlib import Path

from kernel_time import KernelTime

from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.observe.watch import Watch
from outgrid.stencil.problem import Problem

CASES = {
    "heat7 float64": ("heat7", (100, 256, 256), "float64", 64),
    "heat7 float32": ("heat7", (100, 256, 256), "float32", 64),
    "heat5 float64": ("heat5", (2048, 2048), "float64", 64),
    "heat5 float32": ("heat5", (2048, 2048), "float32", 64),
}


def main(repetitions: int = 7) -> None:
    """Print a line for each case, streamed, and for the first one in memory and at depth 1."""
    ways = [(name, "direct", CASES[name][3]) for name in CASES]
    ways += [("heat7 float64", "memory", None), ("heat7 float64", "direct", 1)]
    with EveryStep() as spent, tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        for name, tier, depth in ways:
            stencil, shape, dtype, steps = CASES[name]
            steps = 8 if depth == 1 else steps
            posed = Problem(stencil, shape, dtype, steps, {"k": 0.1}, initial={"u": "x / nx"})
            best = {True: float("inf"), False: float("inf")}
            for number in range(2 * repetitions):
                watch = number % 4 in (0, 3)
                spent.seconds = 0.0
                options = {"tier": tier, "depth": depth, "watch": watch, "threads": 1}
                out = Path(folder) / f"{name} {tier} {depth} {number}"
                pipeline.run(posed, RunOptions.of(memory="2GiB", out=out, **options))
                best[watch] = min(best[watch], spent.seconds)
            share = best[True] / best[False] - 1
            deep = f"{share / depth:.2%} of a sweep of depth {depth}" if depth else "in memory"
            print(f"{name} {tier}: a look takes {share:.1%} of a step, {deep}", flush=True)


class EveryStep(KernelTime):
    """While it is entered, watched runs look at every step, and processor time is counted."""

    def __enter__(self) -> "EveryStep":
        super().__enter__()
        self.level = Watch.level
        Watch.level = lambda *_: 1  # type: ignore[method-assign]
        return self

    def __exit__(self, *given: object) -> None:
        Watch.level = self.level  # type: ignore[method-assign]
        super().__exit__(*given)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
