"""`outgrid export RUN --to FILE`: fields of a run as a file of another format, streamed."""

import argparse
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import msgspec

from outgrid.cli.arguments import add_json_argument, print_json
from outgrid.cli.parser import examples
from outgrid.config import run_folder
from outgrid.errors import UsageError
from outgrid.units import parse_bytes

DEFAULT_MEMORY = "256MiB"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.epilog = examples(
        ("outgrid export heat.run --to heat.zarr --chunks 128 --codec zstd:1", ""),
        ("outgrid export heat.run --to heat.zarr --levels", "a pyramid after OME-Zarr 0.5"),
        ("outgrid export heat.run --to u.vtkhdf --field u", "for ParaView"),
        ("outgrid export heat.run --to frames.nc --field snapshot.0", ""),
        ("outgrid export shot.run --to shot.segy --field traces --dt 0.002", "of receivers"),
    )
    parser.add_argument(
        "run_folder", type=run_folder, metavar="RUN", help="the folder of a finished run"
    )
    parser.add_argument(
        "--field",
        "--fields",
        action="append",
        dest="field",
        metavar="NAME",
        help="field, snapshot (snapshot.0) or traces to write; may be repeated "
        "(default: all fields)",
    )
    parser.add_argument(
        "--dt", type=float, metavar="SECONDS", help="time step in seconds, if the grid has no dt"
    )
    add_export_arguments(parser)


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Where an array is written, and how."""
    parser.add_argument(
        "--to", required=True, metavar="FILE", help="new file or URL; its suffix is the format"
    )
    parser.add_argument(
        "--chunks",
        metavar="N[,N...]",
        help="cells of a chunk: one number for all axes, or one per axis (default: one chunk, "
        "or planes where the format needs chunks)",
    )
    parser.add_argument(
        "--codec", default="none", metavar="NAME[:LEVEL]", help='"zstd:3", "gzip" (default: none)'
    )
    parser.add_argument(
        "--unsharded",
        action="store_true",
        help="a file for each chunk, for readers that do not know the shards of Zarr",
    )
    parser.add_argument(
        "--levels", action="store_true", help="also write coarser levels: a pyramid (Zarr)"
    )
    parser.add_argument(
        "--memory",
        default=DEFAULT_MEMORY,
        metavar="SIZE",
        help=f"memory of the copy (default: {DEFAULT_MEMORY})",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing file")
    add_json_argument(parser)


def export_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """What `add_export_arguments` were given, as arguments of `outgrid.export`."""
    chunks: int | list[int] | None = None
    if arguments.chunks is not None:
        try:
            cells = [int(number) for number in arguments.chunks.split(",")]
        except ValueError:
            raise UsageError(
                "--chunks must be a number of cells, or one number per axis, not "
                f"{arguments.chunks}; give 128, or 1,128,128"
            ) from None
        chunks = cells if len(cells) > 1 else cells[0]
    return {
        "chunks": chunks,
        "codec": arguments.codec,
        "shards": not arguments.unsharded,
        "levels": arguments.levels,
        "memory_bytes": parse_bytes(arguments.memory),
        "overwrite": arguments.overwrite,
    }


@contextmanager
def bar() -> Generator[Callable[[int, int], None] | None]:
    """A bar of bytes, with rate and time left, where people look."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = BarColumn(), DownloadColumn(True), TransferSpeedColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("")
        yield lambda done, total: progress.update(task, completed=done, total=total)


def tell(exported: Any, arguments: argparse.Namespace) -> None:
    """Print what was written."""
    if arguments.json:
        print_json(msgspec.to_builtins(exported, enc_hook=str))
    else:
        print(exported)
        for note in exported.notes:
            print(f"note: {note}")


def run(arguments: argparse.Namespace) -> int:
    """Write the file and say what is in it."""
    from outgrid.api import open_run
    from outgrid.exports import export

    options = export_options(arguments)
    with bar() as told:
        exported = export(
            open_run(arguments.run_folder),
            arguments.to,
            fields=arguments.field,
            told=told,
            dt=arguments.dt,
            **options,
        )
    tell(exported, arguments)
    return 0
