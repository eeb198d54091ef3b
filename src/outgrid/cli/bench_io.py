"""`outgrid bench io`: the table of our queue beside the device."""

import argparse
import json
import sys
from typing import Any

from outgrid.bench.io import FIO_BAR, measure_io
from outgrid.bench.starved import STARVED_BAR
from outgrid.lines import align, format_share
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
        told = f"{rate}  {ratios} of the reference"
        if row["over_fio"] is not None and row["method"] != "fio":
            below = "" if row["over_fio"] >= FIO_BAR else f", below {FIO_BAR:g}"
            told += f"  {row['over_fio']:.2f} of fio{below}"
        lines.append((row["method"], told))
    lines += _starved(figures["starved"])
    lines += [("refused", refusal) for refusal in figures["refusals"]]
    return align(lines)


def _starved(run: dict[str, Any]) -> list[tuple[str, str]]:
    over = run["over_bandwidth"]
    below = "" if over >= STARVED_BAR else f", below {STARVED_BAR:g}"
    return [
        (f"a run of {run['depth']} steps per sweep, held up by the disk", ""),
        ("bandwidth", f"{run['bandwidth'] / 1e9:.2f} GB/s, read and written at once"),
        ("run", f"{run['moved_bytes'] / run['seconds'] / 1e9:.2f} GB/s"),
        ("all sweeps", f"{run['whole_over_bandwidth']:.2f} of the bandwidth"),
        (
            "after the first",
            f"{over:.2f} of the bandwidth{below} (the first writes where nothing was written yet)",
        ),
        ("waiting", format_share(run["wait_share"])),
    ]
