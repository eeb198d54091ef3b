"""The ranks of a run on disk: who owns what, and how far all of them have come.

    OUT/ranks.json              where the grid is cut, the steps of each sweep, the ranks' folders
    OUT/rank.0 rank.1 ...       each like the folder of a run: manifest, results
    SCRATCH/rank.0 ...          each rank's working files, or wherever "{rank}" in the name leads

A rank's manifest says how far its own planes and halos are durable, and no rank writes over a state
before all manifests say that the next one is. They differ by one state at most, and a restart goes
on from the earlier one, which is whole everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from outgrid.axes import exchanged, in_fortran_order
from outgrid.comm import Comm
from outgrid.durable import partial_path, partials, remove_empty, remove_folder, replace_file
from outgrid.errors import Error, StoreError, UsageError
from outgrid.plan.schedule.rings import Arrival
from outgrid.plan.schedule.subgrid import Box
from outgrid.record import RECORD_NAME, Part, combine, combine_ranks
from outgrid.regular import read_own
from outgrid.runs.manifest import MANIFEST_NAME, Manifest, check_begun, how_far, remove_manifest
from outgrid.runs.reading import LIVE_NAMES
from outgrid.runs.samples import REDUCTIONS_NAME, TRACES_NAME, read_samples
from outgrid.runs.seals import level_name
from outgrid.runs.state import RunFolder
from outgrid.seal import Seal
from outgrid.stencil.problem import PREVIOUS, Problem
from outgrid.stencil.snapshot import snapshots_by_file
from outgrid.storage import Joined, Piece, Uncopied, Within, check_stamps
from outgrid.storage.sums import sums_path

GROUP_NAME = "ranks.json"
_RANK = re.compile(r"rank\.\d+(\.\d+)?")  # the names of `new_folders`
NOTHING = Box(range(0), range(0))
NOTHING_LEFT = "it has no durable state: its initial values were not complete"


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The ranks of a run, numbered along the rows first, and where planes and rows are cut.

    ``depths`` are the steps of the sweeps after ``done`` steps, for which others did ``parts``.
    With ``seams`` nobody holds a halo of planes, and what ranks have seen of a step is to be added
    up. Beside its fields the run has ``left`` in the end what is named so, for all ranks.
    """

    version: str
    problem: dict[str, Any]
    plane_bounds: tuple[int, ...]
    row_bounds: tuple[int, ...]
    folders: tuple[str, ...]
    depths: tuple[int, ...]
    done: int = 0
    seams: bool = False
    parts: tuple[Part, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def owned(self) -> list[Box]:
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


class _Extent(msgspec.Struct, frozen=True):
    """What of a problem says which files a run has, whatever the problem is."""

    shape: tuple[int, ...]
    steps: int
    snapshots: list[Any] = []


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
        group = msgspec.json.decode(read_own(path), type=Group)
    except FileNotFoundError:
        return None
    except StoreError:
        raise
    except OSError as error:
        raise StoreError("cannot read", path=path, errno=error.errno) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} does not describe the ranks of a run: {error}") from None
    names = (Path(name) for name in (*group.folders, *group.left))
    if len(group.owned) != len(group.folders) or any(p.name != str(p) for p in names):
        raise UsageError(f"{path} must name one folder of the run for each rank")
    return group


def is_shared(tier: str | None, comm: Comm, group: Group | None) -> bool:
    """Whether ranks share the grid; on tier remote others lend memory to the one that has it.

    What was cut among a ``group`` stays in pieces, however few go on.
    """
    return tier != "remote" and (comm.size > 1 or group is not None)


class Share(msgspec.Struct, frozen=True):
    """What one rank, or a run of one process, has on disk, of which it owns a part."""

    folder: RunFolder
    manifest: Manifest
    owned: Box


class Durable(msgspec.Struct, frozen=True):
    """An unfinished run: ``steps`` steps are made in all of its ``shares``.

    ``ended`` says why these are all, where a condition has ended the run.
    """

    group: Group | None
    problem: dict[str, Any]
    steps: int
    shares: tuple[Share, ...]
    ended: str = ""

    def parity(self, share: Share) -> int:
        """The files of a share that hold the state of ``steps`` steps."""
        later = share.manifest.steps_done != self.steps
        return share.manifest.parity ^ later

    def seal(self, share: Share, level: str, constant: bool) -> Seal:
        """What the checksums of a level in that state are of."""
        return Seal(share.manifest.identity, level, 0 if constant else self.steps)

    @property
    def given(self) -> Problem:
        """All steps of the run, as they were asked for."""
        return Problem.from_dict(self.problem)

    @property
    def whole(self) -> Problem:
        """All steps that the run makes."""
        return self.given.ending(self.steps) if self.ended else self.given

    @property
    def rest(self) -> Problem:
        """The steps that are still to be made."""
        return self.whole.after(self.steps)

    @property
    def parts(self) -> tuple[Part, ...]:
        """What was done for these steps: by ranks before those of the shares, and by them together.

        One of them may have counted a sweep that not all have made.
        """
        before = self.group.parts if self.group is not None else ()
        every = [share.manifest.parts for share in self.shares]
        problem = Problem.from_dict(self.problem)
        updates = problem.ending(self.steps).updates
        updates -= sum(part.measured.updates for part in before)
        together = msgspec.structs.replace(
            every[0][-1],
            started=every[0][0].started,
            first_step=every[0][0].first_step,
            last_step=self.steps,
            measured=msgspec.structs.replace(
                combine_ranks([combine(parts) for parts in every]),
                updates=updates,
                flops=updates * problem.stencil.flops,
            ),
        )
        return (*before, together)

    def fields(self, arrivals: tuple[Arrival, ...]) -> dict[str, Joined]:
        """All levels of that state, by name."""
        return {
            level_name(level): Joined([self._piece(share, level) for share in self.shares])
            for level in arrivals
        }

    def _piece(self, share: Share, level: Arrival) -> Piece:
        """What a share has of a level."""
        name, manifest, owned = level_name(level), share.manifest, share.owned
        first = manifest.first, manifest.first_row
        shape, dtype = self.given.shape, self.given.dtype_of(level.field)
        place = self.uncopied.get(name)
        if place is not None:
            path, seal = Path(place.path), place.seal
            within: Within | None = Within(path, place.header(shape, dtype))
        else:
            path = share.folder.working.path(level, self.parity(share))
            seal = self.seal(share, name, level.constant)
            within = share.folder.working.within(path, shape, dtype)
        return Piece(path, first, owned.planes, owned.rows, seal, within)

    @property
    def uncopied(self) -> dict[str, Uncopied]:
        """The levels of that state that lie in files of others; a run in pieces has copied all."""
        problem = self.given
        evolving = {field.name for field in problem.stencil.evolving} if self.steps else set[str]()
        return {
            name: place
            for share in self.shares
            for name, place in share.manifest.uncopied.items()
            if name.removesuffix(PREVIOUS) not in evolving
        }

    def check_unchanged(self) -> None:
        """Raise UsageError where a file of others changed, or is gone, that is still to be read."""
        if not self.rest.steps:
            return
        for name, place in self.uncopied.items():
            place.check_unchanged(name)
        stamps = self.shares[0].manifest.series  # all ranks read the same files
        for name, series in self.given.series.items():
            check_stamps(name, series.paths, stamps.get(name, ()))

    def samples(
        self, planes: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> NDArray[np.float64] | None:
        """What receivers in ``rows`` of ``planes`` saw, each as the rank did that counts."""
        total: NDArray[np.float64] | None = None
        seams = self.group is not None and self.group.seams
        for share in self.shares:
            seen = read_samples(share.folder.out, share.manifest)
            if seen is not None:
                seen = seen[:, : len(planes)]  # behind these are the reductions of one process
                mine = seen if seams else np.where(share.owned.holds(planes, rows), seen, 0.0)
                total = mine if total is None else total + mine
        return total


def durable(out: Path) -> Durable:
    """How far the unfinished run in ``out`` has come. Raises UsageError where there is none."""
    run = on_disk(out)
    if run.group is None and not run.shares:
        RunFolder.of_manifest(out)
    manifest = run.manifest
    check_begun(manifest, out)
    steps, ended = manifest.steps_done, manifest.ended
    return Durable(run.group, manifest.problem, steps, run.shares, ended)


def runs_in(out: Path) -> frozenset[str]:
    """Names of the unfinished runs in a folder, see `OnDisk`."""
    with suppress(Error):  # a folder of something else
        return on_disk(out).runs
    return frozenset()


def what_is_left(out: Path, former: Collection[str] = ()) -> str:
    """What a run that was ended at any moment has left in ``out`` to go on from, or nothing.

    What ``former`` runs, that it was to replace, have left there does not count.
    """
    with suppress(Error):  # a folder of something else
        run = on_disk(out)
        if is_unfinished(run) and run.manifest.steps_done >= 0 and run.runs.isdisjoint(former):
            return how_far(run.manifest)
    return ""


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


class OnDisk(msgspec.Struct, frozen=True):
    """What is in the folder ``out`` of an unfinished run: its ``group``, the ``shares`` that it
    goes on from, and what a process left that was cut off while it made or removed ranks:
    ``strays``, shares that do not count, and folders of ranks that are ``bare`` of a manifest.
    """

    out: Path
    group: Group | None
    shares: tuple[Share, ...]
    strays: tuple[Share, ...]
    bare: tuple[Path, ...]

    @property
    def runs(self) -> frozenset[str]:
        """Names of the unfinished runs: that of one process, or each rank's."""
        return frozenset(share.manifest.run for share in self.shares)

    @property
    def manifest(self) -> Manifest:
        """That of the share that has come least far; of no state where one has none yet."""
        if self.group is None or len(self.shares) == len(self.group.folders):
            return min(
                (share.manifest for share in self.shares), key=lambda manifest: manifest.steps_done
            )
        return Manifest(
            version=self.group.version,
            run="",
            problem=self.group.problem,
            folder="",
            files=(),
            results=(),
            steps_done=-1,
            parity=0,
        )

    @property
    def partial(self) -> tuple[Path, ...]:
        """Files that would have been renamed when they were whole, beside those of shares."""
        names = (GROUP_NAME, RECORD_NAME, TRACES_NAME, REDUCTIONS_NAME, *self._left)
        begun = (self.out / name for name in names)
        paths = (*begun, *(folder / MANIFEST_NAME for folder in self.bare))
        return tuple(left for path in paths for left in partials(path))

    @property
    def growing(self) -> tuple[Path, ...]:
        """What observers have begun for all ranks, and goes on growing with others."""
        paths = [partial_path(self.out / name) for name in self._left]
        if not (self.out / RECORD_NAME).exists():
            paths += [self.out / name for name in LIVE_NAMES if name in self._left]
        return tuple(path for path in paths if path.exists() or path.is_symlink())

    @property
    def placed(self) -> tuple[Path, ...]:
        """Results that are in place already, where all steps are made."""
        last = self.manifest.problem["steps"]
        if self.manifest.steps_done < last and not self.manifest.ended:
            return ()
        own = (share.folder.out / name for share in self.shares for name in share.manifest.results)
        paths = dict.fromkeys((*own, *(self.out / name for name in self._left)))
        return tuple(path for path in paths if path.is_file() and not path.is_symlink())

    @property
    def shared(self) -> tuple[str, ...]:
        """Names of what ranks go on with in the folder of the run, whoever began it."""
        own = {name for share in self.shares for name in share.manifest.results}
        return tuple(name for name in self._left if name not in own)

    @property
    def _left(self) -> tuple[str, ...]:
        """Names of what observers leave for all ranks; older versions do not name snapshots."""
        if not is_unfinished(self):
            return ()
        snapshots = (*snapshots_by_file(self.manifest.problem.get("snapshots", ())),)
        sums = (sums_path(Path(name)).name for name in snapshots)
        named = self.group.left if self.group is not None else ()
        return (*dict.fromkeys((*named, *snapshots, *sums)),)

    def tidy(self) -> None:
        """Remove all that does not count."""
        for path in self.partial:
            path.unlink()
        shared = self.shared
        for share in self.strays:
            abandon(self.out, share, shared)
        for folder in self.bare:
            remove_empty(folder, self.out)


def is_unfinished(run: OnDisk) -> bool:
    """Whether an unfinished run is in a folder."""
    return run.group is not None or bool(run.shares)


def on_disk(out: Path) -> OnDisk:
    """What is in the folder of a run; no group and no shares where no unfinished one is."""
    group = read_group(out)
    owned: dict[Path, Box | None] = {out: None}
    if group is not None:
        _check_extent(out / GROUP_NAME, group.problem)
        names = (out / name for name in group.folders)
        owned = dict(zip(names, group.owned, strict=True))
    ranks = [path for path in sorted(out.glob("rank.*")) if _RANK.fullmatch(path.name)]
    shares: list[Share] = []
    strays: list[Share] = []
    for path in dict.fromkeys((out, *owned, *ranks)):
        if (path / MANIFEST_NAME).exists():
            folder, manifest = RunFolder.of_manifest(path)
            _check_extent(path / MANIFEST_NAME, manifest.problem)
            share = Share(folder, manifest, owned.get(path, NOTHING) or _whole(manifest))
            (shares if path in owned else strays).append(share)
    full = {share.folder.out for share in (*shares, *strays)}
    bare = (path for path in ranks if path not in full and not path.is_symlink())
    return OnDisk(out, group, tuple(shares), tuple(strays), tuple(bare))


def _check_extent(path: Path, problem: dict[str, Any]) -> None:
    """Raise UsageError for a problem, read from ``path``, that does not say which files there are.

    What else is wrong with it is found where it is gone on with.
    """
    try:
        extent = msgspec.convert(problem, _Extent)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path} does not describe the problem of its run: {error}") from None
    if len(extent.shape) not in (2, 3) or min(*extent.shape, extent.steps + 1) < 1:
        raise UsageError(f"{path} does not describe the problem of its run: it has no grid")


def _whole(manifest: Manifest) -> Box:
    """What a process alone owns, in planes and rows of its files."""
    shape, axis = manifest.problem["shape"], manifest.transposed
    return Box.whole(exchanged(shape, axis) if in_fortran_order(axis) else shape)


def abandon(out: Path, share: Share, shared: Collection[str] = ()) -> None:
    """Remove everything that a rank, or a process alone, owns in the run in ``out`` but results,
    and what is ``shared``, with which others go on; folders that are empty then as well."""
    folder, manifest = share.folder, share.manifest
    if folder.out == out:
        kept = tuple(name for name in manifest.results if name not in shared)
        manifest = msgspec.structs.replace(manifest, results=kept)
    folder.remove_files(manifest)
    if _RANK.fullmatch(folder.scratch.name):  # in the folder that the run was given
        remove_folder(folder.scratch.parent)
    remove_empty(folder.scratch.parent, out)
    remove_manifest(folder.out)
    remove_empty(folder.out, out)
