"""A run that is alone in its folder: the manifest beside its results, all fields in its scratch."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from outgrid.comm import Comm, Serial
from outgrid.config import RunOptions
from outgrid.errors import UsageError
from outgrid.observe import beside_bytes, files_of
from outgrid.plan.model import Plan
from outgrid.record import Part
from outgrid.regular import resolved
from outgrid.runs.former import Former, former
from outgrid.runs.group import Durable
from outgrid.runs.manifest import Manifest
from outgrid.runs.places import (
    SPREAD_SUFFIX,
    Spread,
    check_devices,
    claimed,
    devices_of,
    erase_devices,
    is_spread,
)
from outgrid.runs.run import Run
from outgrid.runs.seals import level_name
from outgrid.runs.single import (
    can_lie_together,
    check_single,
    file_of,
    is_image,
    lie_together,
    names_of,
)
from outgrid.runs.space import check_parents, check_space
from outgrid.runs.state import RunFolder
from outgrid.sharing.base import check_none_there, gone_on, held, named
from outgrid.stencil.problem import Problem
from outgrid.storage import is_device
from outgrid.tiers import COPIED_TIERS

__all__ = ["Alone"]


class Alone(msgspec.Struct, frozen=True):
    """The run of one process, which has the whole grid; see `Sharing`."""

    out: Path
    options: RunOptions
    kept: dict[str, Any]
    comm: Comm = msgspec.field(default_factory=Serial)
    alone: bool = True

    def scratch(self, durable: Durable | None = None) -> Path:
        return durable.shares[0].folder.scratch if durable is not None else self._folder.scratch

    @property
    def _folder(self) -> RunFolder:
        own = self.out / "scratch"
        if any(is_device(place) for place in self.options.places):
            return RunFolder(self.out, own)
        return RunFolder(self.out, self.options.scratch or own)

    def checks(self, problem: Problem, chosen: Plan) -> list[Callable[[], object]]:
        def check() -> None:
            check_parents(self.options)
            folder = self._spread(problem, chosen)
            check_space(chosen, folder, **self._more(problem, folder, chosen))
            with claimed(devices_of(folder.spread)):
                self._check_free(problem, chosen, folder)

        return [check]

    @contextmanager
    def anew(self, problem: Problem, chosen: Plan, overwrite: bool) -> Generator[Run]:
        folder = self._spread(problem, chosen)
        before = former(self.out) if overwrite else None
        if before is not None:
            before.check_inputs(problem)
        freed_bytes = before.freed_bytes if before is not None else None
        check_space(chosen, folder, freed_bytes, **self._more(problem, folder, chosen))
        with held(self.out, self.comm), claimed(devices_of(folder.spread)):
            before = former(self.out) if overwrite else None
            devices = self._check_free(problem, chosen, folder, before)
            if before is not None:
                before.remove()
            erase_devices(devices)
            beside = self._beside(problem)
            fields = [level_name(level) for level in chosen.schedule.kept if not level.constant]
            together = lie_together(self.options.file, folder, problem, chosen, fields)
            folder = replace(folder, together=together)
            yield Run.new(problem, self.options, chosen, folder, self.comm, beside, self.kept)

    def check_goes_on(self, durable: Durable) -> None:
        options, spread = self.options, durable.shares[0].folder.spread
        if options.passing:
            raise UsageError(
                f"tier {options.tier} keeps no files to resume from: choose direct, mmap, "
                "memory, or remote with keep = 'disk'"
            )
        begun = file_of(durable.shares[0].manifest)
        if options.file != begun:
            raise UsageError(
                f"the run in {self.out} was begun with its results in {_results_in(begun)}, and "
                f"does not go on with them in {_results_in(options.file)}: name its folder alone, "
                "or begin a new run in another one"
            )
        if spread is not None and options.tier in COPIED_TIERS and not options.in_place:
            raise UsageError(
                f"the fields of the run in {self.out} are spread over several places, which "
                f"tier {options.tier} does not support: choose direct or memory"
            )
        kept = spread.paths if spread is not None else (durable.shares[0].folder.scratch,)
        stripe_bytes = spread.stripe_bytes if spread is not None else 0
        asked = {resolved(place) for place in options.places}
        if (asked and asked != {resolved(place) for place in kept}) or (
            options.stripe_bytes not in (0, stripe_bytes)
        ):
            striped = f", in stripes of {stripe_bytes}" if stripe_bytes else ""
            raise UsageError(
                f"the files of the run are in {', '.join(map(str, kept))}{striped}: leave "
                "scratch and stripe out, or give these"
            )

    def further(self, durable: Durable, chosen: Plan, stays: bool) -> AbstractContextManager[Run]:
        return gone_on(self, durable, chosen)

    def named(self, line: str) -> str:
        return line

    def filled(self, run: Run, durable: Durable | None) -> None:
        """What was filled is all there is."""

    def parts(self) -> tuple[Part, ...]:
        return ()

    def leave(self, run: Run, manifest: Manifest) -> None:
        run.folder.abandon(manifest)

    def _beside(self, problem: Problem) -> tuple[str, ...]:
        """Names of what the run leaves beside its fields, and of the files that these become."""
        return (*files_of(problem, self.options), *names_of(self.options.file, problem))

    def _more(self, problem: Problem, folder: RunFolder, chosen: Plan) -> dict[str, Any]:
        """What else takes space on the disk of the results."""
        levels, file = beside_bytes(problem, self.options), self.options.file
        copied = bool(file) and not can_lie_together(file, folder, chosen)
        frames = copied or (bool(file) and problem.until is not None)
        return {
            "fields_copied": copied,
            "frames_copied": frames and not is_image(file),
            "beside_bytes": levels,
        }

    def _spread(self, problem: Problem, chosen: Plan) -> RunFolder:
        """The folder of the run; its fields are spread if its options ask for several places."""
        options, folder = self.options, self._folder
        if not is_spread(options):
            return folder
        if options.tier in COPIED_TIERS:
            raise UsageError(
                f"tier {options.tier} cannot use block devices, and scratch names "
                f"{options.places[0]}: name a folder, or choose tier direct"
            )
        names = dict.fromkeys(
            folder.working.path(level, parity).with_suffix(SPREAD_SUFFIX).name
            for level in chosen.schedule.kept
            for parity in (0, 1)
        )
        spread = Spread.over(options.places, (*names,), options.stripe_bytes, problem.field_bytes)
        return replace(folder, spread=spread)

    def _check_free(
        self, problem: Problem, chosen: Plan, folder: RunFolder, before: Former | None = None
    ) -> tuple[Path, ...]:
        """Raise UsageError if anything is where the run writes, but of one ``before`` that it
        replaces; devices that may be erased."""
        options, beside, schedule = self.options, self._beside(problem), chosen.schedule
        replaced = before.files if before is not None else ()
        erase = options.erase
        if options.file:
            fields = [level_name(level) for level in schedule.kept if not level.constant]
            check_single(self.out, options.file, problem, fields, replaced)
        folder.check_free(schedule.kept, beside, schedule.places, erase, replaced)
        names = () if options.file else named(problem, schedule.kept)
        check_none_there(self.out, names, replaced)
        return check_devices(devices_of(folder.spread), erase)


def _results_in(file: str) -> str:
    """Where the results of a run go, in words."""
    return f"the one file {file}" if file else "a file for each field"
