"""All that a GPU has to show, in one run: the same bytes, copies, kernels, grids beyond its memory.

Without a GPU it says what was looked for. Shares are of what was measured in the same run.
"""

from __future__ import annotations

import shutil
import tempfile
import textwrap
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from outgrid import Problem, Result, pipeline
from outgrid import device as devices
from outgrid.config import RunOptions
from outgrid.device import Device, Rectangle
from outgrid.errors import DeviceError
from outgrid.native import Buffer, as_array
from outgrid.parts import generate_cuda, lookup, tile_of
from outgrid_bench.experiments.outcome import Experiment, Finding, Outcome, Settings, Timed, judged

__all__ = ["GPU"]

KERNELS = (
    ("heat7", "float64"),
    ("heat7", "float32"),
    ("box27", "float64"),
    ("box27", "float32"),
    ("wave:8", "float32"),
)
HOST_MEMORY = "4GiB"
TABLES_BYTES = 1 << 17  # beside a window, on a small GPU
LIMITED = 8  # times the GPU's memory that a grid in the memory of the host has
# Values of every size, and among them numbers that some settings of a GPU flush to zero.
VALUES = "sin(x + 2*y) * exp(-88 * y / ny)"
VALUES_3D = "sin(x + 2*y + 3*z) * exp(-88 * z / nz)"
IDENTICAL: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("heat7", "float64", {}),
    ("heat7", "float32", {"z": "periodic", "y": "neumann", "x": "mirror"}),
    ("box27", "float32", {}),
    ("wave:4", "float64", {"x": "odd"}),
    ("heat5", "float32", {"y": "periodic"}),
)
NOTE_COLUMNS = 90  # of a note in a figure
TIERS = ("memory", "swap", "direct")
APART, TOGETHER = "level by level", "several levels in a launch"
FINDINGS = ("pinned.copies", "gpu.plain", "gpu.levels", "gpu.beyond")


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One thing that was measured; ``share`` is of what ``against`` names."""

    what: str
    value: float
    unit: str
    against: str
    share: float
    agrees: bool


def measure(settings: Settings) -> Outcome:
    """Everything in one go; what fails is said and the rest goes on."""
    timed = Timed("gpu", settings)
    try:
        accelerator = devices.describe_device("gpu")
        device = devices.open_device("gpu", _source())
    except DeviceError as error:
        row = GpuRow("GPUs found", 0, "", "", 0, agrees=True)
        return timed.outcome(
            [row], _findings({}), reference="none", agrees=True, notes=[str(error)]
        )
    rows = _copies(device, settings)
    shares: dict[str, float] = {}
    pageable, pinned = rows[0].value, rows[1].value
    shares["pinned.copies"] = pinned / pageable
    with tempfile.TemporaryDirectory(prefix="outgrid-bench-", dir=settings.folders[0]) as folder:
        for case in IDENTICAL[: settings.by_size(2, 5, 5)]:
            rows.append(_identity(case, settings, Path(folder)))
        kernels = _kernels(settings, Path(folder), rows[4].value)
        fast = {row.what: row for row in kernels}[f"heat7 float64, {TOGETHER}"]
        beyond = _beyond(settings, Path(folder), accelerator.memory_bytes, fast.value)
    rows += [*kernels, *beyond]
    shares["gpu.plain"] = kernels[0].share
    shares["gpu.levels"] = min(
        row.share for row in kernels if row.what.endswith(f"float64, {TOGETHER}")
    )
    shares["gpu.beyond"] = beyond[0].share
    return timed.outcome(
        rows,
        _findings(shares),
        reference=f"{device.name}: copies within its memory at {rows[4].value:.0f} GB/s",
        agrees=all(row.agrees for row in rows),
        details={"name": device.name, "memory_bytes": accelerator.memory_bytes},
    )


def _findings(shares: dict[str, float]) -> list[Finding]:
    return [judged(key, shares.get(key)) for key in FINDINGS]


def _source() -> str:
    return generate_cuda(lookup("heat7").trace(3), "float64")


def _copies(device: Device, settings: Settings) -> list[GpuRow]:
    """Copies to the device, from pageable and from pinned memory, back, both, and within it."""
    nbytes = settings.by_size(1 << 20, 64 << 20, 256 << 20)
    there = [device.allocate(nbytes) for _ in range(2)]
    here = [device.allocate_host(nbytes) for _ in range(2)]
    plain = Buffer(nbytes)
    as_array(plain, np.uint8)[::4096] = 1

    def rate(*ways: tuple[str, int, int]) -> float:
        best = 0.0
        for _ in range(settings.by_size(1, 5, 9)):
            begin = time.perf_counter()
            marks: list[Hashable] = []
            for way, to, source in ways:
                act = device.upload if way == "up" else device.download
                marks.append(act([Rectangle(to, nbytes, source, nbytes, nbytes, 1)], ()))
            for mark in marks:
                device.wait(mark)
            best = max(best, len(ways) * nbytes / (time.perf_counter() - begin) / 1e9)
        return best

    try:
        pageable = rate(("up", there[0], plain.address))
        up, down = rate(("up", there[0], here[0])), rate(("down", here[1], there[1]))
        both = rate(("up", there[0], here[0]), ("down", here[1], there[1]))
        within = 2 * rate(("up", there[0], there[1]))  # each byte is read and written
    finally:
        for address in there:
            device.release(address)
        for address in here:
            device.release_host(address)
    return [
        GpuRow("copies up, pageable", pageable, "GB/s", "", 0, True),
        GpuRow("copies up, pinned", up, "GB/s", "pageable", up / pageable, True),
        GpuRow("copies down, pinned", down, "GB/s", "up", down / up, True),
        GpuRow("copies both ways at once", both, "GB/s", "up and down", both / (up + down), True),
        GpuRow("copies within the GPU", within, "GB/s", "", 0, True),
    ]


def _identity(case: tuple[str, str, dict[str, str]], settings: Settings, folder: Path) -> GpuRow:
    """Whether the bytes are those of the processor, on every tier."""
    name, dtype, boundary = case
    settings.say(f"the same bytes: {name} {dtype}")
    rule = lookup(name)
    edge = settings.by_size(12, 96, 160)
    shape = (3 * edge, 4 * edge) if name == "heat5" else (edge, edge // 2 + 3, edge + 7)
    fields = rule.trace(len(shape)).fields
    values = dict.fromkeys(
        (field.name for field in fields), VALUES if len(shape) == 2 else VALUES_3D
    )
    problem = Problem(rule, shape, dtype, 12, boundary=boundary or "dirichlet", initial=values)
    wanted = _bytes(_run(problem, folder / f"{name}-{dtype}-cpu", tier="memory"))
    same = [
        _bytes(_run(problem, folder / f"{name}-{dtype}-{tier}", tier=tier, device="gpu", **options))
        == wanted
        for tier, options in zip(TIERS, ({}, {"depth": 3}, {"depth": 5}), strict=True)
    ]
    return GpuRow(f"{name} {dtype}", sum(same), "tiers", "the processor's bytes", 1.0, all(same))


def _bytes(result: Result) -> dict[str, bytes]:
    return {name: np.asarray(result[name]).tobytes() for name in result.record.fields}


def _run(problem: Problem, out: Path, **options: Any) -> Result:
    return pipeline.run(problem, RunOptions.of(memory=HOST_MEMORY, out=out, **options))


def _kernels(settings: Settings, folder: Path, copies: float) -> list[GpuRow]:
    """Rates in GPU memory, level by level and with several levels in a launch.

    The first are measured against ``copies`` within the GPU, in GB/s: a level by itself reads what
    it needs once and writes its results once.
    """
    rows: list[GpuRow] = []
    edge, steps = settings.by_size(16, 384, 768), settings.by_size(6, 96, 384)
    for name, dtype in KERNELS[: settings.by_size(1, 5, 5)]:
        rule = lookup(name).trace(3)
        values = {field.name: "(x + y + z) / (nx + ny + nz)" for field in rule.fields}
        problem = Problem(lookup(name), (edge, edge, edge), dtype, steps, initial=values)
        read = sum(field.levels for field in rule.fields)
        moved = np.dtype(dtype).itemsize * (read + len(rule.evolving))
        rates: dict[str, float] = {}
        for what, options in ((APART, {"depth": 1}), (TOGETHER, {})):
            settings.say(f"{name} {dtype}, {what}")
            result = _run(problem, folder / "rate", tier="memory", device="gpu", **options)
            measured = result.record.measured
            rates[what] = measured.updates / measured.compute_seconds / 1e9
            shutil.rmtree(folder / "rate")
        share = rates[APART] * moved / copies
        row = f"{name} {dtype}"
        rows.append(GpuRow(f"{row}, {APART}", rates[APART], "GLUP/s", "copies there", share, True))
        if tile_of(problem) is not None:
            gain = rates[TOGETHER] / rates[APART]
            what = f"{row}, {TOGETHER}"
            rows.append(GpuRow(what, rates[TOGETHER], "GLUP/s", APART, gain, True))
    return rows


def _beyond(settings: Settings, folder: Path, memory_bytes: int, inside: float) -> list[GpuRow]:
    """Rates of heat7 in float64 on a grid beyond a limited GPU memory, over those ``inside``."""
    edge = settings.by_size(16, 512, 1024)
    shape, steps = (settings.by_size(2, 6, 2) * edge, edge, edge), settings.by_size(8, 768, 768)
    problem = Problem(lookup("heat7"), shape, "float64", steps, initial={"u": "(x + y + z) / nx"})
    limit = min(memory_bytes, TABLES_BYTES + 2 * problem.field_bytes // LIMITED)
    rows: list[GpuRow] = []
    for tier, whose in (("swap", "the host's"), ("direct", "storage")):
        settings.say(f"heat7 on tier {tier}")
        options = {"tier": tier, "device": "gpu", "device_memory": limit}
        measured = _run(problem, folder / "rate", **options).record.measured
        rate = measured.updates / measured.seconds / 1e9
        what = f"heat7, {LIMITED} times GPU memory, from {whose}"
        rows.append(GpuRow(what, rate, "GLUP/s", "in GPU memory", rate / inside, True))
        shutil.rmtree(folder / "rate")
    return rows


def draw(outcome: Outcome, figure: Any) -> None:
    """Rates as bars, with what they are measured against."""
    axes = figure.subplots()
    rows: Sequence[dict[str, Any]] = outcome.rows
    if not any(row["unit"] for row in rows):
        axes.set_axis_off()
        told = textwrap.fill("\n".join(("No GPU was found:", *outcome.notes)), NOTE_COLUMNS)
        axes.text(0.5, 0.5, told, ha="center", va="center", transform=axes.transAxes)
        return
    names = [f"{row['what']}\n{row['value']:.3g} {row['unit']}" for row in rows]
    colors = ["C0" if row["agrees"] else "C3" for row in rows]
    axes.barh(names, [row["share"] for row in rows], color=colors)
    axes.invert_yaxis()
    axes.set_xlabel("share of what it is measured against")
    for index, row in enumerate(rows):
        if row["against"]:
            axes.text(row["share"], index, f" {row['share']:.2f} of {row['against']}", va="center")


GPU = Experiment(
    "gpu",
    "all that a GPU has to show: the same bytes, copies, kernels, grids beyond its memory",
    measure,
    draw,
)
