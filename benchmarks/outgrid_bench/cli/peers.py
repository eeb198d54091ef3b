"""`outgrid bench peers`: the table of what one would pick instead."""

import argparse
import json
import os

from outgrid.errors import UsageError
from outgrid.units import parse_bytes
from outgrid_bench.cli.measurement import Measurement, say
from outgrid_bench.peers.by_yask import SOLUTIONS, STEPS, VARIABLE, cube_workload, measure_yask
from outgrid_bench.peers.compare import PEERS as PROGRAMS
from outgrid_bench.peers.compare import PeerRow, all_agree, measure_peers, peer_workload
from outgrid_bench.peers.gradients import measure_gradients
from outgrid_bench.tables import peer_table

QUICK_SECONDS, SECONDS = 30.0, 300.0


def run_peers(arguments: argparse.Namespace) -> int:
    """Measure, print, and return 1 if an answer differed by more than rounding."""
    factors = arguments.factor or [None]
    if len(factors) > 1:
        raise UsageError("the peers run on one grid: give one --factor")
    names = arguments.only or ["heat7"]
    if names == ["gradient"]:
        return _finish(arguments, _gradients(arguments))
    name, _, dtype = names[0].partition(":")
    by_python = name == "heat7" and arguments.yask is None
    if len(names) > 1 or not (by_python or names[0] in SOLUTIONS):
        raise UsageError(
            f"the peers run heat7, YASK {', '.join(SOLUTIONS)}, and others a gradient: --only "
            "heat7, --only heat7:float32, --only wave:8, --only heat7 --yask DIR or --only gradient"
        )
    if not by_python:
        return _finish(arguments, _beside_yask(arguments, names[0]))
    workload = peer_workload(
        arguments.memory, factors[0], dtype or "float64", arguments.quick, arguments.steps
    )
    say(f"load average {os.getloadavg()[0]:.2f}")
    rows = measure_peers(
        workload,
        arguments.python,
        arguments.scratch,
        say,
        QUICK_SECONDS if arguments.quick else SECONDS,
        arguments.with_swap,
    )
    return _finish(arguments, rows)


def _beside_yask(arguments: argparse.Namespace, name: str) -> list[PeerRow]:
    if arguments.python is not None:
        raise UsageError("YASK is no program of Python: leave out --python")
    say(f"load average {os.getloadavg()[0]:.2f}")
    memory, factor, extent = ("192MiB", 2.0, 128) if arguments.quick else ("512MiB", 4.0, 512)
    limit = parse_bytes(arguments.memory or memory)
    factor = (arguments.factor or [factor])[0]
    workload = cube_workload(name, limit, factor, extent, arguments.steps or STEPS)
    return measure_yask(arguments.yask, arguments.scratch, say, workload)


def _gradients(arguments: argparse.Namespace) -> list[PeerRow]:
    for name in ("memory", "factor", "yask"):
        if getattr(arguments, name) is not None:
            raise UsageError(f"gradients are made in memory, of one model: leave out --{name}")
    say(f"load average {os.getloadavg()[0]:.2f}")
    size, steps = (200, 100) if arguments.quick else (400, 300)
    steps = arguments.steps or steps
    return measure_gradients(arguments.python, arguments.scratch, say, size, steps)


def _finish(arguments: argparse.Namespace, rows: list[PeerRow]) -> int:
    if arguments.json:
        records = [row.to_dict() for row in rows]
        arguments.json.write_text(json.dumps(records, indent=2) + "\n")
    print(peer_table(rows))
    return 0 if all_agree(rows) else 1


PEERS = Measurement(
    name="peers",
    purpose="what one would pick instead, in memory and out of core, on the same grid",
    about=(
        "Measures heat7 by what one would pick instead, on the same grid and, out of core, under "
        f"the same limit: {', '.join(peer.name for peer in PROGRAMS)}. Prints a table in GLUP/s "
        "(1e9 updates of a cell per second), with our rate over each and whether the answers "
        "agree, or why a program has no rate here; exit code 1 if an answer differs by more than "
        "rounding. "
        "With --only gradient it is the gradient of a misfit of waves by their model, which "
        "Devito, Deepwave and JAX make in memory, in turns with ours. "
        "With --only wave:8 it is YASK's wave of order 8 in memory, in turns with ours in memory "
        "and out of core, where YASK has been built: by given tiles and by those of its tuner. So "
        "it is with --only box27, and with --only heat7 where --yask names its folder."
    ),
    run=run_peers,
    options={
        "--only": (
            "heat7:float64 or heat7:float32, wave:8, box27 or heat7 for YASK, or gradient "
            "(heat7:float64)"
        ),
        "--memory": "limit of programs out of core, for example 1GiB (512MiB, with --quick 192MiB)",
        "--factor": "size of the grid over the limit (4, with --quick 2)",
        "--steps": f"time steps (24, with --quick 6; beside YASK {STEPS})",
        "--with-swap": "C on swap space as well, which has to be active",
        "--python": "the interpreter that has the programs (this one)",
        "--yask": f"the folder where YASK was built (what {VARIABLE} says; of heat7 none)",
        "--quick": "a small grid, and 30 seconds for each program instead of 300",
        "--scratch": "folder on the disk that is measured (the folder of temporary files)",
        "--json": "write all figures to FILE",
    },
    examples=(
        ("outgrid bench peers --python peers/bin/python --scratch /nvme", ""),
        ("outgrid bench peers --only gradient --python peers/bin/python", ""),
        ("outgrid bench peers --only wave:8 --yask yask", ""),
    ),
)
