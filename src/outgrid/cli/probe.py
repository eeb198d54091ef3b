"""`outgrid probe`: what plans on this machine count on."""

import argparse

from outgrid.cli.arguments import add_json_argument, print_json
from outgrid.lines import align
from outgrid.machine import Machine, describe_machine
from outgrid.units import format_bytes


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    add_json_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the machine."""
    machine = describe_machine()
    if arguments.json:
        print_json(machine.to_dict())
    else:
        print(_text(machine))
    return 0


def _text(machine: Machine) -> str:
    source = "measured" if machine.measured else "assumed"
    return align(
        [
            (f"{machine.cpu}, {machine.cores} cores", ""),
            ("memory", format_bytes(machine.memory_bytes)),
            ("caches", f"L2 {format_bytes(machine.l2_bytes)}, L3 {format_bytes(machine.l3_bytes)}"),
            ("memory rate", f"{machine.memory_bandwidth / 1e9:.3g} GB/s ({source})"),
            ("scratch read", f"{machine.read_bandwidth / 1e9:.3g} GB/s ({source})"),
            ("scratch write", f"{machine.write_bandwidth / 1e9:.3g} GB/s ({source})"),
            ("compiler", machine.compiler or "none found: install g++ or set CXX"),
            ("system", f"Linux {machine.kernel}, Python {machine.python}"),
        ]
    )
