"""`outgrid bench io`: the table of our queue beside the device."""

import argparse
import json
from typing import Any

from outgrid.errors import UsageError
from outgrid.lines import align, format_share
from outgrid.units import format_bytes
from outgrid_bench.cli.experiment import run_experiment
from outgrid_bench.cli.measurement import Measurement, say
from outgrid_bench.cli.papers import COMMON, EMULATED, MEASURED_ON, PRINTED
from outgrid_bench.io import FIO_BAR, measure_io
from outgrid_bench.starved import STARVED_BAR

OF_EXPERIMENT = ("also", "figure", "resume", "endurance", "price", "watts", "emulate")


def run_io(arguments: argparse.Namespace) -> int:
    """Measure the folder `scratch` of the arguments, print, and write the file `json`."""
    figures = measure_io(arguments.scratch, say)
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


def _run(arguments: argparse.Namespace) -> int:
    if arguments.quick or arguments.full or arguments.tiny:
        return run_experiment(arguments)
    for option in OF_EXPERIMENT:
        if getattr(arguments, option):
            raise UsageError(f"--{option} goes with --quick or --full")
    return run_io(arguments)


IO = Measurement(
    name="io",
    purpose="our queue beside fio or plain system calls; with --quick or --full every way to move "
    "requests, by size, depth, pattern and folder",
    about=(
        "Measures each engine of our queue beside fio or plain system calls, by the same requests "
        "on the same file, and a run that the disk holds up; prints rates in GB/s and their ratios "
        "to that reference. With --quick or --full, which the other options go with, it measures "
        "every way to move requests instead: system calls, mapped files and our queue, by size, "
        "depth, pattern and folder, on files that memory holds and on larger ones. Without --also "
        "and --emulate it then makes disks of the papers, as root: 16 mSATA disks for the files of "
        "several paths, and with --full an ioDrive2 for all others. "
        f"{PRINTED}"
    ),
    run=_run,
    options=COMMON
    | EMULATED
    | MEASURED_ON
    | {
        "--quick": "every way to move requests, in less than 90 seconds",
        "--full": "every way to move requests, on files of 4 GiB and on 16 paths",
        "--json": "write all figures to FILE",
        "--price": "of the disks of all folders, in any currency, to tell the price of a GB/s",
        "--watts": "what these disks draw, in W, to tell the watts of a GB/s",
    },
    examples=(
        ("outgrid bench io --scratch /nvme", "our queue beside fio"),
        ("outgrid bench io --quick --scratch /nvme --also /ssd", "every way, two disks"),
        ("outgrid bench io --quick --emulate msata:16/10", "sixteen disks that are not here"),
    ),
)
