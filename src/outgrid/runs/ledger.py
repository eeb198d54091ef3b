"""What is durable of a run while a process works on it, and how that is told when it ends early."""

from __future__ import annotations

from typing import Any

import msgspec

from outgrid.errors import ExecutionError, Stopped
from outgrid.runs.manifest import Manifest, at_start_of_sweep, how_far, write_manifest
from outgrid.runs.run import Run

__all__ = ["Ledger"]


class Ledger:
    """The manifest of a ``run`` as it is, and as it was ``before`` this process."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.manifest: Manifest = run.manifest
        self.before = run.manifest

    def write(self, manifest: Manifest, **changes: Any) -> None:
        """Replace the manifest, durably, by one with these changes. Raises StoreError."""
        self.manifest = msgspec.structs.replace(manifest, **changes)
        write_manifest(self._run.folder.out, self.manifest)

    def give_up_sweep(self) -> None:
        """What is known of the sweep under way is not counted on any more."""
        if self.manifest.part or self.manifest.planes:
            self.write(at_start_of_sweep(self.manifest))

    def stopped(self, how: str) -> Stopped | ExecutionError:
        """How the run was stopped, and how to go on."""
        run = self._run
        if not self._note_end(how):
            return self._nothing_left(how)
        lent = run.options.tier == "remote"
        where = " in one process on tier direct, under mpiexec in lent memory" if lent else ""
        kept = self._kept
        return Stopped(f"{how}; {kept}; outgrid resume {run.out} continues{where}", kept)

    def not_finite(self, how: str) -> ExecutionError:
        """What is left of a run that was ended by a value, and how to go on regardless."""
        if not self._note_end(how):
            return self._nothing_left(how)
        return ExecutionError(
            f"{how}; {self._kept} in {self._run.folder.scratch}, with finite values only; "
            f"outgrid resume {self._run.out} --set watch=false continues regardless"
        )

    def _note_end(self, how: str) -> bool:
        """Note in the manifest how this process ended; False where nothing is left of the run."""
        if not self.manifest.durable:
            self._run.folder.abandon(self.manifest)
            return False
        if len(self.manifest.parts) > len(self.before.parts):
            last = msgspec.structs.replace(self.manifest.parts[-1], ended=how)
            self.write(self.manifest, parts=(*self.manifest.parts[:-1], last))
        return True

    def _nothing_left(self, how: str) -> ExecutionError:
        return ExecutionError(f"{how}; on tier {self._run.plan.tier} nothing of the run is left")

    @property
    def _kept(self) -> str:
        depth = self.manifest.depth
        return how_far(self.manifest, self._run.plan.schedule.cutting.trips(depth) if depth else 0)
