"""A run as who watches it sees it: under way, cut off or finished, as text, JSON or a page."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from outgrid.durable import partial_path
from outgrid.errors import Error, UsageError
from outgrid.formats.npy import map_npy, read_header
from outgrid.observe.preview import PREVIEW_NAME
from outgrid.record import RECORD_NAME, Record, read_record
from outgrid.report.page import document, picture, safe
from outgrid.report.picture import draw_plane
from outgrid.report.summary import heading, summarise, telling
from outgrid.runs.manifest import read_manifest
from outgrid.runs.status import Status, status

__all__ = ["View", "latest_frame", "view"]

STYLE = """pre { font-size: .95rem; white-space: pre-wrap; }
figure img { min-width: 0; width: auto; max-width: 100%; }"""


class View(msgspec.Struct, frozen=True):
    """A run in ``out`` at one moment: ``status`` of an unfinished one, ``record`` of a finished."""

    out: Path
    status: Status | None
    record: Record | None

    @property
    def finished(self) -> bool:
        """Whether its results are there."""
        return self.record is not None

    @property
    def over(self) -> bool:
        """Whether nothing more is to come of it: it is finished, or its process has ended."""
        return self.status is None or self.status.running is False

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form."""
        if self.status is not None:
            return self.status.to_dict()
        assert self.record is not None
        return {
            "state": "finished",
            "running": False,
            "steps_done": self.record.steps,
            "steps": self.record.problem["steps"],
            "glups": self.record.measured.glups,
            "seconds": self.record.measured.seconds,
            "left_seconds": 0.0,
        }

    def __str__(self) -> str:
        """In a few lines."""
        if self.status is not None:
            return str(self.status)
        assert self.record is not None
        with telling(self.out):
            return f"finished: {summarise(self.record)}"

    def page(self, refresh_seconds: float) -> str:
        """A page that a browser reads again every so often while the run goes on."""
        title = f"{self.out}"
        if self.record is not None:
            title = heading(self.record)
        parts = [f"<pre>{safe(self)}</pre>"]
        frame = latest_frame(self.out)
        if frame is not None:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "preview.png"
                draw_plane(frame, path, "latest preview", frame.shape)
                parts.append(picture(path, "latest preview"))
        refresh = 0.0 if self.over else refresh_seconds
        return document(title, parts, STYLE, refresh_seconds=refresh)


def view(out: Path) -> View:
    """The run in ``out`` as it is now. Raises UsageError where none is."""
    try:
        return _view(out)
    except (UsageError, FileNotFoundError):
        return _view(out)  # files of a run that ends go one after the other


def _view(out: Path) -> View:
    if (out / RECORD_NAME).exists():
        return View(out, None, read_record(out))
    standing = status(out)
    if standing is None:
        read_manifest(out)  # raises, and says what is there
        raise UsageError(f"the run in {out} has just begun; look again")
    return View(out, standing, None)


def latest_frame(out: Path) -> NDArray[np.floating[Any]] | None:
    """The last frame of the preview of a run; None where it has none yet."""
    for path in (out / PREVIEW_NAME, partial_path(out / PREVIEW_NAME)):
        try:
            frames = map_npy(path, read_header(path, 0))
        except (Error, OSError):
            continue
        if len(frames):
            return frames[-1]
    return None
