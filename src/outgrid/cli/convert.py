"""`outgrid import FILE --to FILE`: an array of a file as a file of another format, streamed."""

import argparse

from outgrid.cli.export import add_export_arguments, bar, export_options, tell
from outgrid.cli.parser import examples
from outgrid.errors import UsageError
from outgrid.formats.input import InputFile


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.epilog = examples(
        ("outgrid import model.h5:/rock/vp --to vp.npy", ""),
        ("outgrid import scan.tif --to scan.zarr --chunks 64 --codec zstd", ""),
        ("outgrid import T.nc:T --index 0 --transpose 2,1,0 --to T.npy", "the first time, turned"),
    )
    parser.add_argument(
        "source", metavar="FILE[:NAME]", help="a file of numbers, and the array in it"
    )
    parser.add_argument(
        "--index",
        default="",
        metavar="N[,N]",
        help="indices along the first axes, which are removed",
    )
    parser.add_argument(
        "--transpose", default="", metavar="N,N,N", help="axes of the file, in the new order"
    )
    parser.add_argument("--shape", default="", metavar="N,N,N", help="of bare numbers")
    parser.add_argument("--dtype", default="", help="of bare numbers")
    parser.add_argument("--offset", type=int, default=0, metavar="BYTES", help="of bare numbers")
    parser.add_argument(
        "--order", default="C", choices=("C", "F"), help="of bare numbers (default: C)"
    )
    parser.add_argument(
        "--missing",
        type=float,
        metavar="NUMBER",
        help="in place of values that the file says are missing",
    )
    add_export_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the file and say what is in it."""
    from outgrid.exports import convert

    file = InputFile(
        arguments.source,
        index=_numbers("index", arguments.index),
        transpose=_numbers("transpose", arguments.transpose),
        shape=_numbers("shape", arguments.shape),
        dtype=arguments.dtype,
        offset=arguments.offset,
        order=arguments.order,
        missing=arguments.missing,
    )
    options = export_options(arguments)
    with bar() as told:
        exported = convert(file, arguments.to, told=told, **options)
    tell(exported, arguments)
    return 0


def _numbers(key: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in text.split(",")) if text else ()
    except ValueError:
        raise UsageError(f"--{key} must be a list of numbers, such as 2,1,0, not {text}") from None
