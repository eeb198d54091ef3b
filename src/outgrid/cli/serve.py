"""`outgrid serve RUN`: the arrays of a folder for viewers in a browser of this machine."""

import argparse
import sys
from contextlib import suppress
from pathlib import Path

from outgrid.cli.parser import examples


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.epilog = examples(
        ("outgrid serve heat.run", "until Ctrl-C"),
        ("outgrid export heat.run --to heat.zarr --levels --codec zstd", ""),
        ("outgrid serve heat.zarr", "with coarser levels"),
    )
    parser.add_argument("folder", type=Path, metavar="RUN", help="a run, or another Zarr group")
    parser.add_argument(
        "--port",
        type=int,
        default=0,
        metavar="N",
        help="port on this machine (default: a free one)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    from outgrid.serving import Served, link

    with Served(arguments.folder, arguments.port) as served, suppress(KeyboardInterrupt):
        print(f"serving {arguments.folder} at {served.address} to this machine only; Ctrl-C stops")
        for array in served.arrays:
            print(f"{array or arguments.folder.name}: {served.source(array)}")
            print(f"  {link(served, array)}")
        sys.stdout.flush()
        served.serve_forever()
    return 0
