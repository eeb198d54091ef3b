"""`outgrid bench NAME`: measure, beside a reference in the same run, and check the answer."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from outgrid.bench import BENCHES
from outgrid.bench.experiments import EXPERIMENTS
from outgrid.bench.kept import Kept
from outgrid.bench.rows import KEY, answers_agree, measure_rows
from outgrid.bench.tables import row_table
from outgrid.bench.workloads import CASES, Workload, choose, recorded, workload
from outgrid.cli.bench_experiment import declare_experiments, run_all, run_experiment
from outgrid.cli.bench_io import run_io
from outgrid.cli.bench_peers import declare_peers, run_peers
from outgrid.cli.bench_tune import run_tune
from outgrid.cli.parser import examples, named
from outgrid.durable import make_folder
from outgrid.errors import UsageError

BEYOND = ("methods", "scaling", "mask", "himeno")
PAPERS = (*EXPERIMENTS, "all")
TAKEN_BY = {
    "memory": ("core", "peers", *PAPERS),
    "factor": ("core", "peers", *BEYOND, "all"),
    "only": ("core", "peers", "tune", "all"),
    "all": ("core",),
    "plane": ("core",),
    "steps": ("core", "peers", "methods", "scaling", "all"),
    "resume": ("core", "tune", *PAPERS),
    "quick": ("peers", "tune", *PAPERS),
    "python": ("peers",),
    "with_swap": ("peers", "stream", *BEYOND, "all"),
    "full": PAPERS,
    "results": ("all",),
    "device": ("matvec", "all"),
    "endurance": PAPERS,
    "price": ("io", "all"),
    "watts": ("io", "all"),
    "figure": tuple(EXPERIMENTS),
    "also": PAPERS,
}
"""Options that not every measurement takes, and those that do."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    purposes = {each.name: each.purpose for each in EXPERIMENTS.values()} | BENCHES
    parser.epilog = "\n\n".join(
        [
            named("measurements", purposes),
            examples(
                ("outgrid bench core --memory 512MiB --factor 8", "one stencil beyond memory"),
                ("outgrid bench io --scratch /nvme", ""),
                ("outgrid bench all --quick --scratch /nvme", "the papers' experiments"),
            ),
        ]
    )
    parser.add_argument("name", choices=list(purposes), metavar="NAME", help="one of those below")
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        help="limit of a run beyond memory (core 1GiB, experiments 256MiB, mask 160MiB)",
    )
    parser.add_argument(
        "--factor",
        type=float,
        action="append",
        metavar="N",
        help=f"core, peers, {', '.join(BEYOND)}: grid size over the limit (core 8, and may be "
        "repeated; with --all 1, 4, 8 and 16)",
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="core: rows of one stencil (the first), of "
        f"{', '.join(case.spelling for case in CASES)}; tune: one problem; all: one experiment",
    )
    parser.add_argument("--all", action="store_true", help="core: the rows of a whole record")
    parser.add_argument(
        "--plane", metavar="ROWSxCOLUMNS", help="core: extents of a plane of the grid"
    )
    parser.add_argument(
        "--steps", type=int, metavar="N", help="core, peers, methods, scaling: time steps"
    )
    parser.add_argument(
        "--scratch", type=Path, metavar="DIR", help="folder on the disk that is measured"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    parser.add_argument(
        "--resume", action="store_true", help="keep the rows that FILE holds, measure the others"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small grids, few repetitions (the default of experiments)",
    )
    declare_peers(parser)
    declare_experiments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure, print, and return 1 if an answer differed. Folders that are missing are made."""
    for option, names in TAKEN_BY.items():
        left_out = arguments.parser.get_default(option)
        if arguments.name not in names and getattr(arguments, option) != left_out:
            word = option.replace("_", "-")
            raise UsageError(f"--{word} is not for bench {arguments.name}; leave it out")
    for folder in (arguments.scratch, *arguments.also):
        if folder is not None:
            make_folder(folder)
    sized = arguments.quick or arguments.full or arguments.tiny
    if arguments.name in EXPERIMENTS and (sized or arguments.name not in MEASUREMENTS):
        return run_experiment(arguments)
    return MEASUREMENTS[arguments.name](arguments)


def _core(arguments: argparse.Namespace) -> int:
    workloads = _recorded(arguments) if arguments.all else _chosen(arguments)
    kept = Kept(arguments.json, KEY, arguments.resume)
    rows = measure_rows(workloads, arguments.scratch, _say, kept)
    print(row_table(rows))
    return 0 if answers_agree(rows) else 1


def _recorded(arguments: argparse.Namespace) -> Sequence[Workload]:
    fixed = {name: getattr(arguments, name) for name in ("only", "memory", "plane", "steps")}
    for name, value in fixed.items():
        if value is not None:
            raise UsageError(f"--all measures grids of its own: leave out --{name}")
    return recorded(tuple(arguments.factor) if arguments.factor else None)


def _chosen(arguments: argparse.Namespace) -> Sequence[Workload]:
    plane = _plane(arguments.plane)
    return [
        workload(choose(text), arguments.memory, factor, plane, arguments.steps)
        for text in arguments.only or [CASES[0].spelling]
        for factor in arguments.factor or [8.0]
    ]


def _plane(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(extent) for extent in text.split("x"))
    except ValueError:
        raise UsageError(f"--plane {text!r} is not of the form 1024x1024 (in 2-D: 16384)") from None


def _say(text: str) -> None:
    print(text, file=sys.stderr)


MEASUREMENTS = {"all": run_all, "core": _core, "io": run_io, "peers": run_peers, "tune": run_tune}
