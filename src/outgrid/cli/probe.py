"""`outgrid probe`: measure what plans on this machine count on, or show what was measured."""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from outgrid.build.compiler import find_compiler, warm_up
from outgrid.cli.arguments import add_json_argument, print_json
from outgrid.cli.parser import examples
from outgrid.durable import existing
from outgrid.errors import BuildError
from outgrid.lines import align, format_signed_share
from outgrid.machine import Machine, describe_machine
from outgrid.probe.measure import measure_machine
from outgrid.probe.profile import MEASURED, Profile, keep_profile, known_profile
from outgrid.units import format_bytes, format_seconds

# Load per core from which on the rates are those that others left over.
BUSY_LOAD = 0.5


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.epilog = examples(
        ("outgrid probe --scratch /nvme", "once; plans then use the measured rates"),
        ("outgrid probe --scratch /nvme --again", ""),
    )
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="folder on the disk of runs")
    parser.add_argument("--again", action="store_true", help="measure again")
    add_json_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure unless that was done, keep the profile, and print it."""
    described = describe_machine()
    wanted = arguments.scratch or Path()
    place = existing(wanted)
    if place != wanted.absolute():
        print(f"{wanted} does not exist; measuring {place} instead", file=sys.stderr)
    profile = None if arguments.again else known_profile(described, place)
    if profile is None or not profile.whole:
        print(f"measuring memory and {place}: about 25 seconds", file=sys.stderr)
        profile = measure_machine(place)
        keep_profile(profile)
    _prepare_compiler()
    machine = profile.machine(described)
    if arguments.json:
        assumed = {name: getattr(described, name) for name in MEASURED}
        print_json(machine.to_dict() | {"assumed": assumed, "profile": profile.to_dict()})
    else:
        print(_text(machine, described, profile))
    return 0


def _prepare_compiler() -> None:
    """Let a compiler that needs minutes for its first kernel take them now, and show that."""
    try:
        compiler = find_compiler()
    except BuildError:
        return  # what is printed says so
    if not compiler.builds_library:
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(f"{compiler.version}: C++ library, once, about two minutes", total=None)
        warm_up(compiler)


def _text(machine: Machine, described: Machine, profile: Profile) -> str:
    return align(
        [
            (f"{machine.cpu}, {machine.cores} cores", ""),
            ("memory", format_bytes(machine.memory_bytes)),
            ("caches", f"L2 {format_bytes(machine.l2_bytes)}, L3 {format_bytes(machine.l3_bytes)}"),
            ("compiler", machine.compiler or "none found: install g++ or set CXX"),
            ("system", f"Linux {machine.kernel}, Python {machine.python}"),
            (f"measured {profile.started} at a load of {profile.load:.2g}; assumed without", ""),
            *_rates(machine, described),
            *_disturbance(profile),
            ("one core over working sets, all cores at work", ""),
            *((format_bytes(size), _rate(rate)) for size, rate in profile.working_sets[::2]),
            (f"scratch on {profile.key.mount}", ""),
            ("requests", f"{profile.queue_depth} of {format_bytes(profile.request_bytes)}"),
            ("engine", f"{profile.engine}, {_road(profile.direct)}"),
        ]
    )


def _rates(machine: Machine, described: Machine) -> Iterator[tuple[str, str]]:
    for name, (words, quantity) in NAMES.items():
        measured, assumed = getattr(machine, name), getattr(described, name)
        distance = f" ({format_signed_share(assumed / measured - 1)})" if measured else ""
        yield words, f"{quantity(measured):<12}  {quantity(assumed)}{distance}"


def _disturbance(profile: Profile) -> list[tuple[str, str]]:
    if profile.load < BUSY_LOAD * profile.key.cores:
        return []
    return [("busy", "other programs were running; measure --again when they have ended")]


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e9:.3g} GB/s"


def _cost(seconds_per_byte: float) -> str:
    return f"{format_seconds(seconds_per_byte * 1e9)}/GB"


NAMES: dict[str, tuple[str, Callable[[float], str]]] = {
    "memory_bandwidth": ("memory, all cores", _rate),
    "l2_effective_bytes": ("L2 keeps, per core", format_bytes),
    "l2_bandwidth": ("L2, per core", _rate),
    "l3_effective_bytes": ("L2 and L3 keep, per core", format_bytes),
    "l3_bandwidth": ("L3, per core", _rate),
    "read_bandwidth": ("scratch read", _rate),
    "write_bandwidth": ("scratch write", _rate),
    "mixed_bandwidth": ("scratch read + write", _rate),
    "flush_seconds": ("scratch commit", format_seconds),
    "flushing_seconds": ("scratch flush", _cost),
    "moving_seconds": ("scratch takes, of cores", _cost),
}


def _road(direct: bool) -> str:
    return "past the page cache" if direct else "through the page cache: this disk was not measured"
