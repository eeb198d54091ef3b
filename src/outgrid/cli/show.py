"""`outgrid show [KIND] TARGET`: a job's plan or kernel, a run's record, a field's picture."""

import argparse
from pathlib import Path

from outgrid.cli.arguments import add_json_argument, print_json
from outgrid.cli.parser import examples
from outgrid.config import run_folder
from outgrid.errors import UsageError

KINDS = ("plan", "kernel", "record", "field")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.epilog = examples(
        ("outgrid show heat.run", "what was measured"),
        ("outgrid show kernel job.toml", "the C++ that will be compiled"),
        ("outgrid show heat.run/u.npy --plane 3 --picture u.png", ""),
    )
    parser.add_argument("kind", nargs="?", choices=KINDS, help="default: by the kind of target")
    parser.add_argument(
        "target", type=run_folder, help="a job file, the folder of a run, or a .npy file"
    )
    parser.add_argument("--plane", type=int, metavar="N", help="of a 3-D field (default: middle)")
    parser.add_argument(
        "--picture", type=Path, metavar="FILE.png", help="default: beside the field"
    )
    add_json_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show the target as what was asked, or as what it looks like."""
    kind = arguments.kind or _kind_of(arguments.target)
    {"plan": _plan, "kernel": _kernel, "record": _record, "field": _field}[kind](arguments)
    return 0


def _kind_of(target: Path) -> str:
    if target.suffix in (".toml", ".npy"):
        return {".toml": "plan", ".npy": "field"}[target.suffix]
    if target.is_dir() or target.suffix == ".json":
        return "record"
    raise UsageError(f"expected a job file, the folder of a run or a .npy file, not {target}")


def _plan(arguments: argparse.Namespace) -> None:
    from outgrid import pipeline
    from outgrid.job import load_job
    from outgrid.plan.explain import explain

    job = load_job(arguments.target)
    plan = pipeline.plan(job.problem, job.options).to_dict()
    if arguments.json:
        print_json(plan)
    else:
        print(explain(plan))


def _kernel(arguments: argparse.Namespace) -> None:
    from outgrid.codegen.kernel import generate
    from outgrid.job import load_job

    problem = load_job(arguments.target).problem
    print(generate(problem.stencil, problem.dtype, problem.edges, problem.dtypes))


def _record(arguments: argparse.Namespace) -> None:
    from outgrid.record import RECORD_NAME, read_record
    from outgrid.report.summary import summarise, telling
    from outgrid.runs.status import status

    target = arguments.target
    run = status(target) if target.is_dir() and not (target / RECORD_NAME).exists() else None
    if run is not None:
        print_json(run.to_dict()) if arguments.json else print(run)
        return
    record = read_record(arguments.target)
    if arguments.json:
        print_json(record.to_dict())
    else:
        with telling(target):
            print(summarise(record))


def _field(arguments: argparse.Namespace) -> None:
    from outgrid.report.picture import draw_field

    picture = arguments.picture or arguments.target.parent / f"{arguments.target.stem}.png"
    draw_field(arguments.target, picture, arguments.plane)
    print(picture)
