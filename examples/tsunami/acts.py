"""The acts of the demonstration: sea floor, run, reference, pictures.

The run is a process of its own, started from a job file like any other, so that its memory limit
holds for it and not for what is made before and after.
"""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outgrid.errors import ExecutionError, UsageError
from outgrid.lines import align
from outgrid.record import Record, read_record
from outgrid.report.summary import summarise
from outgrid.units import format_bytes, format_rate
from picture import draw_animation, draw_picture
from scene import Scene
from seafloor import load_sea_floor, write_depth

__all__ = ["Outcome", "draw", "prepare", "run", "run_reference", "tell"]

JOB, REFERENCE_JOB = "tsunami.toml", "reference.toml"
RUN, REFERENCE = "run", "reference"
REFERENCE_EDGE, REFERENCE_STEPS = 4096, 120
SNAPSHOT = "snapshot.0.npy"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The records of the run and of the reference, and what was drawn."""

    scene: Scene
    record: Record
    reference: Record
    picture: Path
    animation: Path

    @property
    def fields_over_memory(self) -> float:
        """Bytes of the surface in two time levels and of the depth, over the memory limit."""
        return 3 * self.scene.field_bytes / self.record.measured.memory_limit_bytes

    @property
    def over_plain(self) -> float:
        """Rate of the run over that of the plain sweep in memory."""
        return self.record.measured.glups / self.reference.measured.glups

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        return {
            "fields_over_memory": self.fields_over_memory,
            "plain_glups": self.reference.measured.glups,
            "outofcore_over_plain": self.over_plain,
            "picture": str(self.picture),
            "animation": str(self.animation),
            "record": self.record.to_dict(),
        }


def prepare(scene: Scene, folder: Path) -> None:
    """Write the depth and the two job files into `folder`, clearing an earlier demonstration.

    Raises UsageError when the folder holds anything else.
    """
    _clear(folder)
    folder.mkdir(parents=True, exist_ok=True)
    deepest_metres = write_depth(load_sea_floor(), scene.region, folder / "h.npy")
    (folder / JOB).write_text(scene.job(deepest_metres))
    edge = min(REFERENCE_EDGE, scene.columns)
    (folder / REFERENCE_JOB).write_text(scene.reference_job(edge, REFERENCE_STEPS))


def run(folder: Path) -> Record:
    """The run itself."""
    return _run_job(folder / JOB, folder / RUN)


def run_reference(folder: Path) -> Record:
    """The same kernel on a grid in memory, one step per sweep."""
    return _run_job(folder / REFERENCE_JOB, folder / REFERENCE)


def _run_job(job: Path, out: Path) -> Record:
    """Run `job` into `out` in a process of its own, its progress on our stderr.

    Raises ExecutionError when it does not finish; the process has said why.
    """
    command = [sys.executable, "-m", "outgrid", "run", str(job), "--out", str(out), "--json"]
    finished = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    if finished.returncode != 0:
        raise ExecutionError(f"the run of {job} ended with exit code {finished.returncode}")
    return read_record(out)


def draw(scene: Scene, folder: Path, record: Record) -> tuple[Path, Path]:
    """Draw the picture and the animation of the run recorded in `folder`."""
    floor = load_sea_floor()
    run = folder / RUN
    picture, animation = folder / "wave.png", folder / "wave.gif"
    seconds = scene.steps * record.problem["parameters"]["dt"]
    draw_picture(scene, floor, run / record.fields["eta"], seconds, picture)
    draw_animation(scene, floor, run / SNAPSHOT, animation)
    return picture, animation


def tell(outcome: Outcome) -> str:
    """The summary of the run with its reference beside it."""
    limit = format_bytes(outcome.record.measured.memory_limit_bytes)
    rows = [
        ("beside it", ""),
        ("grid", f"{outcome.fields_over_memory:.1f} times the memory limit of {limit}"),
        ("in memory", f"plain sweep {format_rate(outcome.reference.measured.glups * 1e9)}"),
        ("ratio", f"{outcome.over_plain:.2f}: out of core over in memory, the same kernel"),
        ("picture", str(outcome.picture)),
        ("animation", str(outcome.animation)),
    ]
    return f"{summarise(outcome.record)}\n{align(rows)}"


def _clear(folder: Path) -> None:
    """Remove what an earlier demonstration left in `folder`, if that is what it holds."""
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / JOB).is_file():
        raise UsageError(
            f"{folder} holds something else than a demonstration; choose another folder with --out"
        )
    for name in (RUN, REFERENCE):
        shutil.rmtree(folder / name, ignore_errors=True)
