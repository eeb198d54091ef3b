"""The manifest of a run: what is computed, where its files are, the last durable state.

It is replaced by write, fsync, rename, fsync of the folder: after a crash it is the old one or the
new one, whole. It comes before the first file it names and goes after the last.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec

from outgrid.axes import NAMES
from outgrid.durable import replace_file, sync_folder
from outgrid.errors import StoreError, UsageError
from outgrid.lines import format_share
from outgrid.record import RECORD_NAME, Part
from outgrid.regular import read_own
from outgrid.runs.places import Spread
from outgrid.runs.together import Together
from outgrid.stencil.model import Staging
from outgrid.storage import Stamps, Uncopied

MANIFEST_NAME = "manifest.json"
FORMAT = 10
# 2: of a sweep that is cut into strips or blocks only the beginning was known; 3: checksums were
# not bound to the run and its steps; 4: reductions of one process were kept behind its samples; 5:
# every array had a file of its own; 6: all levels were copied before the first sweep; 7: all grids
# were streamed along their first axis; 8: files of a Series were not compared; 9: none were
# streamed along their last axis, and the second one was called true.
READABLE = (2, 3, 4, 5, 6, 7, 8, 9, 10)


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The durable state: ``steps_done`` steps of ``problem``, in the files of ``parity``.

    ``run`` is a name that no other run has. ``folder`` holds the working files ``files``, relative
    to the manifest where it lies beside it; ``results`` are the files that the run leaves in the
    end. ``steps_done`` is -1 until the initial values are durable. ``parts`` tells what was
    measured up to this state, one entry for each process that worked on the run.

    ``durable`` is False for a run whose fields are in memory until its end, ``exported`` until
    the files of its results are complete, where fields are no files that could be renamed.
    ``spread`` says where fields lie in several places, ``together`` where arrays lie in one file.

    Of the sweep after it, of ``depth`` steps, what its first ``part`` trips leave is durable as
    well, in the files of the other parity and of seams, and what the next one leaves in planes
    below ``planes``; all are 0 where that is not known. ``cut`` says what its trips are: () is the
    whole grid, (rows,) the height of strips, (planes, rows) the size of blocks. Files begin with
    plane ``first`` of the grid, and with row ``first_row`` of each.

    ``sealed`` says that checksums are bound to the run and to the step that they are of, and
    ``samples`` how often was written what receivers have seen: what is there is of that time, or
    of the next one, if the run was cut off between the two.

    ``finite`` says that all values are known to be finite: a run may go on being watched. ``ended``
    says why this state is the last one, where not all steps of the problem are made.

    The sweeps compute temporaries again that are ``recomputed``, and so does a resume. Levels that
    are ``uncopied`` lie in files of others: coefficients until the end, others until there is a
    state after the first one. Of each ``series`` it has what its files were when the run began.

    Planes pass along the axis ``transposed`` of the grid, and ``planes`` and ``cut`` are said of
    these: along the second axis they are rows of files, along the last one files are in Fortran
    order. Stages are made in parts that are ``staged``, on which ``planes`` and seams depend.

    ``options`` are the entries of ``[run]`` that a resume goes by, as `RunOptions.kept` has them,
    and ``tier`` is what the plan chose.
    """

    version: str
    run: str
    problem: dict[str, Any]
    folder: str
    files: tuple[str, ...]
    results: tuple[str, ...]
    steps_done: int
    parity: int
    depth: int = 0
    part: int = 0
    planes: int = 0
    cut: tuple[int, ...] = ()
    first: int = 0
    first_row: int = 0
    parts: tuple[Part, ...] = ()
    durable: bool = True
    exported: bool = True
    spread: Spread | None = None
    together: Together | None = None
    finite: bool = False
    ended: str = ""
    options: dict[str, Any] = {}
    tier: str = ""
    sealed: bool = False
    samples: int = 0
    recomputed: tuple[str, ...] = ()
    uncopied: dict[str, Uncopied] = {}
    series: dict[str, Stamps] = {}
    transposed: int | bool = 0
    staged: Staging = ()
    format: int = FORMAT

    @property
    def identity(self) -> str:
        """The run that files are sealed with; none of one that was begun by an older version."""
        return self.run if self.sealed else ""


class _Head(msgspec.Struct, frozen=True):
    """What tells apart the formats of manifests."""

    format: int
    version: str


def read_manifest(out: Path) -> Manifest:
    """The manifest of the run in ``out``.

    Raises UsageError where there is none, or not one of this version.
    """
    path = out / MANIFEST_NAME
    try:
        text = read_own(path)
    except FileNotFoundError:
        if not out.is_dir():
            raise UsageError(f"there is no folder {out}") from None
        finished = (out / RECORD_NAME).exists()
        what = "the run in it is finished" if finished else "no unfinished run is in that folder"
        raise UsageError(f"{out} has no {MANIFEST_NAME}: {what}") from None
    except StoreError:
        raise
    except OSError as error:
        raise StoreError("cannot read the manifest", path=path, errno=error.errno) from error
    try:
        head = msgspec.json.decode(text, type=_Head)
        if head.format not in READABLE:
            raise UsageError(
                f"{path} has format {head.format}, written by outgrid {head.version}; this "
                f"version reads formats {READABLE[0]} to {FORMAT}: resume the run with that "
                "version"
            )
        manifest = msgspec.json.decode(text, type=Manifest)
        axis, shape = int(manifest.transposed), manifest.problem.get("shape")
        whole = isinstance(shape, list) and len(cast("list[Any]", shape)) == len(NAMES)
        if axis and not (whole and 0 < axis < len(NAMES)):
            raise UsageError(f"{path} names the axis {axis}, which its grid does not have")
        manifest = msgspec.structs.replace(manifest, format=FORMAT, transposed=axis)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a manifest of this version: {error}") from None
    except RecursionError:
        raise UsageError(f"{path} is not a manifest: it is nested too deeply") from None
    spread = manifest.spread
    named = (*manifest.files, *manifest.results, *(spread.names if spread else ()))
    if manifest.together is not None:
        named = (*named, manifest.together.field, *manifest.together.offsets)
    _check_names(path, named)
    if spread is not None:
        spread.check(path)
    for name, place in manifest.uncopied.items():
        if not place.meant:
            raise UsageError(f"{path} does not say in which file {name} lies")
    return manifest


def write_manifest(out: Path, manifest: Manifest) -> None:
    """Replace the manifest, durably and whole."""
    path = out / MANIFEST_NAME
    try:
        replace_file(path, msgspec.json.encode(manifest) + b"\n")
    except OSError as error:
        raise StoreError("cannot commit", path=path, errno=error.errno) from error


def remove_manifest(out: Path) -> None:
    """Remove the manifest, when nothing of what it owns is left."""
    (out / MANIFEST_NAME).unlink(missing_ok=True)
    sync_folder(out)


def at_start_of_sweep(manifest: Manifest) -> Manifest:
    """The manifest without what is known of the sweep after its state."""
    return msgspec.structs.replace(manifest, depth=0, part=0, planes=0, cut=())


def check_begun(manifest: Manifest, out: Path) -> None:
    """Raise UsageError for a run that has no state to go on from."""
    if manifest.steps_done < 0:
        raise UsageError(
            f"the run in {out} stopped before its initial values were complete; clear it with "
            f"outgrid clean {out} --delete and run it again"
        )


def how_far(manifest: Manifest, parts: int = 0) -> str:
    """How much of an unfinished run is durable, where its next sweep has so many ``parts``.

    Without that, what is there of a sweep in several parts is not told in figures.
    """
    done, steps = manifest.steps_done, manifest.problem.get("steps")
    if done < 0:
        return "the run has no durable state"
    begun, which = "", "next" if done else "first"
    if manifest.part or manifest.planes:
        parts = parts or (0 if manifest.cut else 1)
        whole = max(1, manifest.problem["shape"][manifest.transposed])
        share = (manifest.part + min(1.0, manifest.planes / whole)) / parts if parts else 0.0
        begun = f" and {format_share(share)} of the {which} sweep"
        if not parts:
            begun = f" and a part of the {which} sweep"
    if done:
        return f"{done} of {steps} steps{begun} are kept"
    if begun:
        return f"the initial values{begun} are kept"
    return f"the initial values are kept, and none of the {steps} steps"


def _check_names(path: Path, names: tuple[str, ...]) -> None:
    """A manifest names files in its folders, or in ones of these, not elsewhere."""
    for name in names:
        if {"", ".", ".."} & {*name.split("/")} or "\0" in name:
            raise UsageError(f"{path} names a file {name!r} outside of the run's folders")
