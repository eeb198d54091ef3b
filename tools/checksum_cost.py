"""What checksums cost a run that is bound by computing, at the depth that a plan takes.

    python tools/checksum_cost.py [MEMORY]

Each problem is planned for a machine of two cores under a limit of MEMORY (512MiB if left out), and
two sweeps are run by one thread at the depth of that plan. Compared is the processor's time:
that of the thread of checksums with that of the kernel, so that others on the machine disturb
little. Where both cores compute, it is the share of both.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from kernel_time import KernelTime

from outgrid import pipeline
from outgrid.config import RunOptions
from outgrid.stencil.problem import Problem
from outgrid.testing.machine import MACHINE

SWEEPS = 2
STEPS = 2000  # of the plan
ROOT = Path(__file__).resolve().parent.parent
HEAT = {"u": "x / nx"}
WAVE = {"u": "x / nx", "c": 0.1}
CASES = (  # rule, shape, type, initial values
    ("heat7", (192, 384, 384), "float64", HEAT),
    ("heat7", (256, 384, 384), "float32", HEAT),
    ("box27", (192, 384, 384), "float64", HEAT),
    ("wave:6", (384, 384, 384), "float64", WAVE),
    ("wave:8", (256, 384, 384), "float32", WAVE),
    ("heat5", (3072, 8192), "float64", HEAT),
    ("wave:4", (3072, 8192), "float32", WAVE),
    (f"{ROOT}/examples/gray_scott.py:gray_scott", (3072, 8192), "float32", {"u": 0.4, "v": 0.3}),
)
# With these the fields of the last case stay as they are: numbers that fade away are slow.
STEADY = {"gray_scott": {"feed": 0.06, "kill": 0.06}}


def main(memory: str = "512MiB") -> None:
    """Print a line of a table for each problem."""
    print("| | radius | fields that evolve | depth | kernel, s | checksums, s | GB/s | share |")
    print("|---|---|---|---|---|---|---|---|")
    with KernelTime() as spent, tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        for rule, shape, dtype, initial in CASES:
            parameters = STEADY.get(rule.rpartition(":")[2], {})
            posed = Problem(rule, shape, dtype, STEPS, parameters, initial=initial)
            options = RunOptions.of(memory=memory, tier="direct")
            plan = pipeline.plan(posed, options, MACHINE)
            steps = SWEEPS * plan.depth
            given = {
                "depth": plan.depth,
                "slab_planes": plan.schedule.slab_planes,
                "strip_rows": plan.schedule.strips.height
                if plan.schedule.strips.count(plan.depth) > 1
                else None,
                "tile_rows": plan.tile.rows or None,
                "threads": 1,
            }
            out = Path(folder) / "run"
            spent.seconds = 0.0
            result = pipeline.run(
                Problem(rule, shape, dtype, steps, parameters, initial=initial),
                RunOptions.of(memory=memory, tier="direct", out=out, **given),
            )
            measured, stencil = result.record.measured, posed.stencil
            rate = (measured.read_bytes + measured.written_bytes) / measured.checksum_seconds
            columns = (
                f"{stencil.name} {dtype}, {stencil.ndim}-D",
                f"{max(stencil.radius)}",
                f"{len(stencil.evolving)} of {len(stencil.fields)}",
                f"{plan.depth}",
                f"{spent.seconds:.2f}",
                f"{measured.checksum_seconds:.3f}",
                f"{rate / 1e9:.0f}",
                f"{measured.checksum_seconds / spent.seconds:.1%}",
            )
            print(f"| {' | '.join(columns)} |", flush=True)
            shutil.rmtree(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
