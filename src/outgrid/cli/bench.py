"""`outgrid bench NAME`: measure, beside a reference in the same run, and check the answer."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from outgrid.bench import BENCHES
from outgrid.bench.core import measure, quick_workload
from outgrid.lines import align, format_share


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    names = "; ".join(f"{name}: {purpose}" for name, purpose in BENCHES.items())
    parser.add_argument("name", choices=list(BENCHES), help=names)
    parser.add_argument("--memory", default="1GiB", help="limit of the out-of-core run")
    parser.add_argument("--factor", type=float, default=8, help="grid size over the limit")
    parser.add_argument("--scratch", type=Path, help="folder on the disk that is measured")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")


def run(arguments: argparse.Namespace) -> int:
    """Measure, print, and return 1 if an answer differed."""
    workload = quick_workload(arguments.memory, arguments.factor)
    figures = measure(workload, arguments.scratch, lambda text: print(text, file=sys.stderr))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    print(_table(figures))
    return 0 if figures["identical"] else 1


def _table(figures: dict[str, Any]) -> str:
    shape = " x ".join(str(extent) for extent in figures["shape"])
    return align(
        [
            (f"heat7 float64 on {shape}, {figures['factor']:g} times its memory limit", ""),
            ("plain, in memory", f"{figures['plain_glups']:.2f} GLUP/s"),
            ("blocked, in memory", f"{figures['blocked_glups']:.2f} GLUP/s"),
            ("out of core", f"{figures['outofcore_glups']:.2f} GLUP/s"),
            ("out of core / plain", f"{figures['outofcore_over_plain']:.2f}"),
            ("waiting for transfers", format_share(figures["wait_share"])),
            ("bytes / ideal", f"{figures['io_over_ideal']:.3f}"),
            ("peak memory / limit", f"{figures['peak_memory_over_limit']:.2f}"),
            ("limit", figures["limit"]),
            ("answers", "identical to the byte" if figures["identical"] else "DIFFER"),
        ]
    )
