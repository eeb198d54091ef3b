"""`outgrid bench peers`: the table of what one would pick instead."""

import argparse
import json
import os
import sys
from pathlib import Path

from outgrid.bench.peers.compare import all_agree, measure_peers, peer_workload
from outgrid.bench.tables import peer_table
from outgrid.errors import UsageError

QUICK_SECONDS, SECONDS = 30.0, 300.0


def declare_peers(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that only this measurement takes."""
    parser.add_argument(
        "--python",
        type=Path,
        metavar="FILE",
        help="peers: the interpreter that has them (this one)",
    )
    parser.add_argument(
        "--with-swap",
        action="store_true",
        help="peers: C on swap space as well; experiments: tier swap, on a swap file of its own",
    )


def run_peers(arguments: argparse.Namespace) -> int:
    """Measure, print, and return 1 if an answer differed by more than rounding."""
    factors = arguments.factor or [None]
    if len(factors) > 1:
        raise UsageError("the peers run on one grid: give one --factor")
    names = arguments.only or ["heat7"]
    name, _, dtype = names[0].partition(":")
    if len(names) > 1 or name != "heat7":
        raise UsageError("the peers run heat7 alone: --only heat7 or --only heat7:float32")
    workload = peer_workload(
        arguments.memory, factors[0], dtype or "float64", arguments.quick, arguments.steps
    )
    print(f"load average {os.getloadavg()[0]:.2f}", file=sys.stderr)
    rows = measure_peers(
        workload,
        arguments.python,
        arguments.scratch,
        lambda text: print(text, file=sys.stderr),
        QUICK_SECONDS if arguments.quick else SECONDS,
        arguments.with_swap,
    )
    if arguments.json:
        found = [row.to_dict() for row in rows]
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    print(peer_table(rows))
    return 0 if all_agree(rows) else 1
