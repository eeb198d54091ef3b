"""`outgrid bench formats`: what results in other formats cost beside plain .npy."""

import argparse
import json
from typing import Any

from outgrid.lines import align
from outgrid.units import format_bytes
from outgrid_bench.cli.measurement import UNSEEN, Measurement, say
from outgrid_bench.formats import CODEC_BAR, COST_BAR, measure_formats


def run_formats(arguments: argparse.Namespace) -> int:
    """Measure in the folder `scratch`, print, and write the file `json`."""
    figures = measure_formats(arguments.scratch, say, tiny=arguments.tiny)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    print(table(figures))
    return 0


def table(figures: dict[str, Any]) -> str:
    """Costs and rates beside their references as text."""

    def cost(seconds: float, share: float) -> str:
        above = f", above {COST_BAR:.0%}" if share > COST_BAR else ""
        return f"{seconds:.3f} s, {share:.1%} of the run{above}"

    def rate(value: float) -> str:
        return f"{value / 1e9:.2f} GB/s"

    over = figures["export_over_codec"]
    below = f", below {CODEC_BAR:g}" if over < CODEC_BAR else ""
    lines = [
        ("result", f"{format_bytes(figures['bytes'])}, checked in every format"),
        ("load", f"{figures['load']:.2g}"),
        ("run", f"{figures['run_seconds']:.2f} s"),
        ("as Zarr too", cost(figures["group_seconds"], figures["group_share"])),
        *(
            (f"export to {export['to']}", cost(export["seconds"], export["share"]))
            for export in figures["exports"]
        ),
        (
            "zarr-python reads",
            f"{rate(figures['zarr_bytes_per_second'])}, {figures['zarr_over_own']:.2f} of its own",
        ),
        ("zstd-1, bare", rate(figures["codec_bytes_per_second"])),
        ("export, zstd-1", f"{rate(figures['export_bytes_per_second'])}, {over:.2f} of it{below}"),
    ]
    return align(lines)


FORMATS = Measurement(
    name="formats",
    purpose="results in other formats beside plain .npy: costs, rates of readers and of codecs",
    about=(
        "Measures what it costs a run that its result is a Zarr group too, and what exports to "
        "HDF5 and VTK cost; how fast zarr-python reads the result beside a store of its own, and "
        "how fast an export with zstd is beside a bare loop of the codec. Prints shares of the "
        "run and ratios to these references. All values are compared; it is an error if one "
        "differs."
    ),
    run=run_formats,
    options={
        "--scratch": "folder on the disk that is measured (the folder of temporary files)",
        "--json": "write all figures to FILE",
        "--tiny": UNSEEN,
    },
    examples=(("outgrid bench formats --scratch /nvme", "on one disk"),),
)
