"""The ranks of a run on disk: who owns what, and how far all of them have come.

    OUT/ranks.json              where the grid is cut, the steps of each sweep, the ranks' folders
    OUT/rank.0 rank.1 ...       each like the folder of a run: manifest, results
    SCRATCH/rank.0 ...          each rank's working files, or wherever "{rank}" in the name leads

A rank's manifest says how far its own planes and halos are durable, and no rank writes over a state
before all manifests say that the next one is. They differ by one state at most, and a restart goes
on from the earlier one, which is whole everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from outgrid.durable import replace_file
from outgrid.errors import StoreError, UsageError
from outgrid.execute.state import MANIFEST_NAME, Manifest, RunFolder, level_name
from outgrid.plan.model import Arrival
from outgrid.plan.subgrid import Box
from outgrid.storage import Joined, Piece

GROUP_NAME = "ranks.json"
NOTHING = Box(range(0), range(0))


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The ranks of a run, numbered along the rows first, and where planes and rows are cut.

    ``depths`` are the steps of the sweeps after ``done`` steps.
    """

    version: str
    problem: dict[str, Any]
    plane_bounds: tuple[int, ...]
    row_bounds: tuple[int, ...]
    folders: tuple[str, ...]
    depths: tuple[int, ...]
    done: int = 0

    @property
    def parts(self) -> list[Box]:
        """What each rank owns."""
        bounds = (pairwise(self.plane_bounds), pairwise(self.row_bounds))
        return [Box(range(*planes), range(*rows)) for planes, rows in product(*bounds)]

    def rest(self, steps: int) -> tuple[int, ...] | None:
        """The sweeps from ``steps`` steps on; None where no sweep begins there."""
        at = self.done
        for number, depth in enumerate(self.depths):
            if at == steps:
                return self.depths[number:]
            at += depth
        return () if at == steps else None


def write_group(out: Path, group: Group) -> None:
    """Replace the file of the ranks, durably and whole."""
    path = out / GROUP_NAME
    try:
        replace_file(path, msgspec.json.encode(group) + b"\n")
    except OSError as error:
        raise StoreError("cannot write", path=path, errno=error.errno) from error


def read_group(out: Path) -> Group | None:
    """The ranks of the run in ``out``; None for a run of one process, or none."""
    path = out / GROUP_NAME
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Group)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError("cannot read", path=path, errno=error.errno) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} does not say which ranks a run has: {error}") from None
    names = (Path(name) for name in found.folders)
    if len(found.parts) != len(found.folders) or any(p.name != str(p) for p in names):
        raise UsageError(f"{path} names folders outside of the run's, or not one for each rank")
    return found


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank, or a run of one process, has on disk, of which it owns a part."""

    folder: RunFolder
    manifest: Manifest
    owned: Box


@dataclass(frozen=True, slots=True)
class Durable:
    """An unfinished run: ``steps`` steps are made in all of its ``shares``."""

    group: Group | None
    problem: dict[str, Any]
    steps: int
    shares: tuple[Share, ...]

    def parity(self, share: Share) -> int:
        """The files of a share that hold the state of ``steps`` steps."""
        later = share.manifest.steps_done != self.steps
        return share.manifest.parity ^ later

    def fields(self, arrivals: tuple[Arrival, ...]) -> dict[str, Joined]:
        """All levels of that state, by name."""
        return {
            level_name(level): Joined(
                [
                    Piece(
                        share.folder.path(level, self.parity(share)),
                        (share.manifest.first, share.manifest.first_row),
                        share.owned.planes,
                        share.owned.rows,
                    )
                    for share in self.shares
                ]
            )
            for level in arrivals
        }

    def samples(
        self, planes: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> NDArray[np.float64] | None:
        """What receivers in ``rows`` of ``planes`` saw, each as its owner did."""
        found: NDArray[np.float64] | None = None
        for share in self.shares:
            seen = share.folder.read_samples()
            if seen is not None:
                mine = np.where(share.owned.holds(planes, rows), seen, 0.0)
                found = mine if found is None else found + mine
        return found


def durable(out: Path) -> Durable:
    """How far the unfinished run in ``out`` has come. Raises UsageError where there is none."""
    group = read_group(out)
    if group is None:
        folder, manifest = RunFolder.of_manifest(out)
        *cut, _ = manifest.problem["shape"]
        whole = Box(range(cut[0]), range(cut[1] if len(cut) > 1 else 1))
        return _durable(out, None, (Share(folder, manifest, whole),))
    shares: list[Share] = []
    for name, owned in zip(group.folders, group.parts, strict=True):
        folder, manifest = RunFolder.of_manifest(out / name)
        shares.append(Share(folder, manifest, owned))
    return _durable(out, group, tuple(shares))


def _durable(out: Path, group: Group | None, shares: tuple[Share, ...]) -> Durable:
    steps = min(share.manifest.steps_done for share in shares)
    if steps < 0:
        raise UsageError(
            f"the run in {out} stopped before its initial values were complete; clear it with "
            f"outgrid clean {out} --delete and run it again"
        )
    return Durable(group, shares[0].manifest.problem, steps, shares)


def new_folders(out: Path, count: int) -> tuple[str, ...]:
    """Names of folders for ``count`` ranks that no other ranks of the run use."""
    group = read_group(out)
    taken = set(group.folders) if group is not None else set[str]()
    for generation in range(len(taken) + 2):
        suffix = f".{generation}" if generation else ""
        names = tuple(f"rank.{rank}{suffix}" for rank in range(count))
        if taken.isdisjoint(names):
            return names
    raise StoreError("no names are left for the folders of ranks", path=out)


def abandon(shares: tuple[Share, ...], but: tuple[str, ...] = ()) -> None:
    """Remove everything that these ranks own but results, and what is going to be one of ``but``:
    ranks go on with those of a run of one process."""
    for share in shares:
        results = tuple(name for name in share.manifest.results if name not in but)
        share.folder.abandon(msgspec.structs.replace(share.manifest, results=results))


def all_shares(out: Path) -> tuple[Share, ...]:
    """Whatever has a manifest in ``out``: a run of one process, ranks, and those of a process that
    was cut off while it set up; none for a run that is finished."""
    group = read_group(out)
    owned = dict(zip(group.folders, group.parts, strict=True)) if group is not None else {}
    found: list[Share] = []
    for path in (out, *sorted(out.glob("rank.*"))):
        if (path / MANIFEST_NAME).exists():
            folder, manifest = RunFolder.of_manifest(path)
            found.append(Share(folder, manifest, owned.get(path.name, NOTHING)))
    return tuple(found)


def strays(out: Path) -> Iterator[Share]:
    """Ranks in ``out`` that no group names: of a process that was cut off while it set up."""
    for share in all_shares(out):
        if share.folder.out != out and not share.owned.count:
            yield share


def remove_empty(folder: Path, out: Path) -> None:
    """Remove a folder inside ``out`` that has nothing in it any more."""
    folder, out = folder.absolute(), out.absolute()
    inside = folder != out and folder.is_relative_to(out)
    try:
        if inside and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    except OSError as error:
        raise StoreError("cannot remove", path=folder, errno=error.errno) from error
