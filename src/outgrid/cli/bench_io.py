"""`outgrid bench io`: the table of our queue beside the device."""

import argparse
import json
import sys
from typing import Any

from outgrid.bench.io import measure_io
from outgrid.lines import align
from outgrid.units import format_bytes


def run_io(arguments: argparse.Namespace) -> int:
    """Measure the folder `scratch` of the arguments, print, and write the file `json`."""
    figures = measure_io(arguments.scratch, lambda text: print(text, file=sys.stderr))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    print(table(figures))
    return 0


def table(figures: dict[str, Any]) -> str:
    """Rates and their ratios to the reference as text."""
    lines = [
        ("medians of the rounds; in brackets the best of them", ""),
        (f"{figures['queue_depth']} requests of {format_bytes(figures['request_bytes'])}", ""),
        ("reference", figures["reference"]),
        ("load", f"{figures['load']:.2g}"),
    ]
    if not figures["direct"]:
        lines.append(("page cache", "this file system has no way past it: no disk was measured"))
    kind = ""
    for row in figures["rows"]:
        if row["kind"] != kind:
            kind = row["kind"]
            lines.append((kind, ""))
        rate = f"{row['bytes_per_second'] / 1e9:.2f} GB/s"
        ratios = f"{row['over_reference']:.2f} ({row['best_over_reference']:.2f})"
        lines.append((row["method"], f"{rate}  {ratios} of the reference"))
    lines += [("refused", refusal) for refusal in figures["refusals"]]
    return align(lines)
