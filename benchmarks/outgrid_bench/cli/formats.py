"""`outgrid bench formats`: what results in other formats cost beside plain .npy."""

import argparse
import datetime
import json
from typing import Any

from outgrid.errors import UsageError
from outgrid.lines import align
from outgrid.machine import describe_machine
from outgrid.units import format_bytes, parse_bytes, suggest
from outgrid.version import __version__
from outgrid_bench.cli.measurement import UNSEEN, Measurement, say
from outgrid_bench.formats import CODEC_BAR, COST_BAR, PARTS, READ_BAR, measure_formats

ENCODED = {
    "codec_in_place": "bare, into memory that is there",
    "hand": "by hand",
    "moved": "by hand, without the codec",
    "export": "export",
}


def run_formats(arguments: argparse.Namespace) -> int:
    """Measure in the folder `scratch`, print, and write the file `json`."""
    limit = parse_bytes(arguments.memory or "256MiB")
    started = datetime.datetime.now(datetime.UTC)
    only = arguments.only or PARTS
    if unknown := sorted({*only} - {*PARTS}):
        raise UsageError(f"no part {unknown[0]!r}{suggest(unknown[0], PARTS)}")
    figures = measure_formats(
        arguments.scratch, say, tiny=arguments.tiny, limit_bytes=limit, only=only
    )
    if arguments.json:
        machine = describe_machine()
        told = {"version": __version__, "started": started.isoformat(timespec="seconds")}
        told |= {"cpu": machine.cpu, "cores": machine.cores, "kernel": machine.kernel}
        kept: dict[str, Any] = {}
        if arguments.json.exists():
            kept = json.loads(arguments.json.read_text())
        arguments.json.write_text(json.dumps({**kept, **told, **figures}, indent=2) + "\n")
    print(table(figures))
    return 0


def table(figures: dict[str, Any]) -> str:
    """Costs and rates beside their references as text."""
    rates = _rates(figures) if "bytes" in figures else ()
    return align(
        [
            *rates,
            *_exports(figures.get("encoded", {})),
            *_runs(figures.get("runs")),
            *_peaks(figures),
        ]
    )


def _rates(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """Costs and rates."""

    def cost(seconds: float, share: float) -> str:
        above = f", above {COST_BAR:.0%}" if share > COST_BAR else ""
        return f"{seconds:.3f} s, {share:.1%} of the run{above}"

    return [
        ("result", f"{format_bytes(figures['bytes'])}, checked in every format"),
        ("load", f"{figures['load']:.2g}"),
        ("run", f"{figures['run_seconds']:.2f} s"),
        ("as Zarr too", cost(figures["group_seconds"], figures["group_share"])),
        *(
            (f"left in {left['file']}", cost(left["seconds"], left["share"]))
            for left in figures["files"]
        ),
        *(
            (f"export to {export['to']}", cost(export["seconds"], export["share"]))
            for export in figures["exports"]
        ),
        (".npy is read", _rate(figures["straight"]["npy_bytes_per_second"])),
        *(
            (
                f"{name} is read",
                f"{ratio:.2f} of it" + (f", below {READ_BAR:g}" * (ratio < READ_BAR)),
            )
            for name, ratio in figures["straight"].items()
            if name != "npy_bytes_per_second"
        ),
        (
            "zarr-python reads",
            f"{_rate(figures['zarr_bytes_per_second'])}, "
            f"{figures['zarr_over_own']:.2f} of its own; "
            f"another of its own {figures['zarr_control']:.2f}",
        ),
    ]


def _rate(value: float) -> str:
    return f"{value / 1e9:.2f} GB/s"


def _exports(fields: dict[str, Any]) -> list[tuple[str, str]]:
    """Exports of fields with zstd, beside the codec."""

    def over(figures: dict[str, Any], name: str) -> str:
        ratio, work = (figures[f"{name}_over_codec{end}"] for end in ("", "_of_processors"))
        below = f", below {CODEC_BAR:g}" if ratio < CODEC_BAR else ""
        return (
            f"{_rate(figures[f'{name}_bytes_per_second'])}, {ratio:.2f} of it{below}; "
            f"{work:.2f} by seconds of processors"
        )

    return [
        row
        for field, figures in fields.items()
        for row in (
            (
                f"{field}: zstd-1, bare",
                f"{_rate(figures['codec_bytes_per_second'])}, keeps {figures['encoded_share']:.0%}",
            ),
            *((f"{field}: {words}", over(figures, name)) for name, words in ENCODED.items()),
        )
    ]


def _runs(runs: dict[str, Any] | None) -> list[tuple[str, str]]:
    """What runs of several fields with snapshots take, by where they leave them."""
    if runs is None:
        return []
    words = (
        f"{format_bytes(runs['bytes'])} of three fields, with snapshots: {runs['seconds']:.2f} s"
    )

    def over(ratio: float) -> str:
        above = f", above {1 + COST_BAR:g}" if ratio > 1 + COST_BAR else ""
        return f"{ratio:.3f} of that{above}"

    every = runs["over_folder"].items()
    return [("runs into folders", words), *((f"runs into {name}", over(r)) for name, r in every)]


def _peaks(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """The memory of each way, of a field many times as large as the limit."""
    paths = figures.get("paths")
    if paths is None:
        return []
    if "reason" in paths:
        return [("no limit", paths["reason"])]
    limit, times = format_bytes(paths["limit_bytes"]), paths["times"]
    every = paths["peak_over_limit"].items()
    return [
        ("under a limit", f"{limit}, page cache included, {times:g} times as large"),
        *((name, f"peak {peak:.2f} of the limit") for name, peak in every),
    ]


FORMATS = Measurement(
    name="formats",
    purpose="results in other formats beside plain .npy: costs, rates of readers and of codecs",
    about=(
        "Measures what it costs a run that its result is a Zarr group too, and what exports to "
        "HDF5 and VTK cost; how fast files in one piece are read beside .npy, how fast "
        "zarr-python reads the result beside a store of its own, and "
        "how fast an export with zstd is beside a bare loop of the codec, and beside the same work "
        "by hand. Prints shares of the "
        "run and ratios to these references. Then every way into a run and out of it is taken in a "
        "control group, with a field many times as large as its memory. All values are compared; "
        "it is an error if one differs."
    ),
    run=run_formats,
    options={
        "--only": "rates, exports, whole runs, or paths under the limit (all)",
        "--memory": "limit of the control group in which fields 16 times as large pass (256MiB)",
        "--scratch": "folder on the disk that is measured (the folder of temporary files)",
        "--json": "write all figures to FILE",
        "--tiny": UNSEEN,
    },
    examples=(("outgrid bench formats --scratch /nvme", "on one disk"),),
)
