"""`outgrid plan JOB.toml`: what a job will move, keep and take, without running it."""

import argparse
import sys
from functools import partial

from msgspec.structs import replace

from outgrid import pipeline
from outgrid.cli.arguments import add_job_arguments, add_json_argument, job_from, print_json
from outgrid.cli.outcome import gradient_to_dict
from outgrid.cli.parser import examples
from outgrid.comm import end_alike, world
from outgrid.errors import InfeasiblePlan, UsageError
from outgrid.execute.inputs import check_inputs
from outgrid.gradients import plan_gradient
from outgrid.machines import known_sites, read_site
from outgrid.plan.explain import explain
from outgrid.planning import like_here, plan_elsewhere
from outgrid.reversal.asked import asked
from outgrid.runs.inputs import refused


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.epilog = examples(
        ("outgrid plan job.toml --memory 4GiB", ""),
        ("outgrid plan job.toml --set depth=16 --json", ""),
        ("outgrid plan job.toml --ranks 8", "one of eight machines"),
        ("outgrid plan job.toml --machine flash2014", "on a machine of 2014"),
    )
    add_job_arguments(parser)
    add_json_argument(parser)
    parser.add_argument(
        "--ranks",
        type=int,
        metavar="N",
        help="plan for N ranks on machines like this one (default: as many as mpiexec started); "
        "prints the plan of a rank with two neighbours",
    )
    parser.add_argument(
        "--machine",
        metavar="NAME",
        help="plan for another machine: a TOML file that describes it, or one of "
        f"{', '.join(known_sites())}; with as many ranks as it has nodes, or --ranks",
    )


def run(arguments: argparse.Namespace) -> int:
    """Plan the job and print the plan; 3 where a run of it would be refused."""
    count: int | None = arguments.ranks
    if count is not None and count < 1:
        raise UsageError(f"--ranks must be at least 1, not {count}")
    comm = world()
    site = None if arguments.machine is None else read_site(arguments.machine)
    there_bytes = None if site is None else site.machine.memory_bytes
    job = job_from(arguments, comm.local, there_bytes)
    problem, options = job.problem, job.options
    if site is None and count is not None and count > 1:
        site = like_here(options, count)
    if site is not None:
        plan = plan_elsewhere(problem, options, replace(site, nodes=count or site.nodes))
        against = [*refused(partial(check_inputs, problem))]
    else:
        plan = pipeline.plan(problem, options, comm=comm)
        against = pipeline.objections(problem, options, plan, comm=comm)
    gradient = None
    if job.gradient is not None and site is None:
        objective, given = asked(job)
        try:  # all ranks plan it together
            gradient = plan_gradient(problem, objective=objective, out=options.results, **given)
        except InfeasiblePlan as refusal:
            against = [*against, refusal]
    code = InfeasiblePlan.exit_code if against else 0
    if comm.rank:
        if code:
            end_alike(code)
        return code
    if arguments.json:
        told = {} if gradient is None else {"gradient": gradient_to_dict(gradient)}
        print_json(plan.to_dict() | told)
    else:
        print(explain(plan.to_dict()))
        if gradient is not None:
            print(f"gradient\n{gradient}")
    for reason in against:
        print(f"outgrid: a run would fail: {reason}", file=sys.stderr)
    return code
