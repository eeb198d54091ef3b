"""What a run claims on disk before it changes anything: new places, or those it has already."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import msgspec

from outgrid.comm import Comm
from outgrid.config import RunOptions
from outgrid.errors import UsageError
from outgrid.plan.model import Plan
from outgrid.purposes import Start, check_purposes
from outgrid.record import RECORD_NAME, read_record
from outgrid.runs.group import GROUP_NAME, Durable, abandon, durable, is_shared, on_disk, read_group
from outgrid.runs.run import Run
from outgrid.runs.single import remove_copied, restore
from outgrid.runs.state import RunFolder
from outgrid.sharing.alone import Alone
from outgrid.sharing.base import Sharing, held
from outgrid.sharing.pieces import Pieces
from outgrid.stencil.problem import Problem

__all__ = ["Beginning", "sharing_of", "stored"]


def sharing_of(options: RunOptions, comm: Comm, begun: Path | None = None) -> Sharing:
    """How this rank of ``comm`` shares a new run, or the one that was ``begun`` in that folder.

    Raises VoidOption for what is asked for and means nothing then.
    """
    out = options.results if begun is None else begun
    group = None if begun is None else read_group(begun)
    alone = not is_shared(options.tier, comm, group)
    check_purposes(options, Start(alone=alone, resumed=begun is not None))
    mine = options.of_rank(0 if alone else comm.rank)
    given = out, msgspec.structs.replace(mine, out=out), options.kept(out)
    return Alone(*given) if alone else Pieces(*given, comm)


class Beginning(msgspec.Struct, frozen=True):
    """What the steps of ``problem`` begin with: its initial values, or what is ``durable``.

    ``told`` is what is to be said of that. To ``overwrite`` removes what a former run has left.
    """

    problem: Problem
    told: tuple[str, ...] = ()
    durable: Durable | None = None
    overwrite: bool = False

    def claim(self, sharing: Sharing, chosen: Plan, *, stays: bool) -> AbstractContextManager[Run]:
        """The place of this rank's files, held as long as the steps are made.

        It is new, or that of what is ``durable`` where the plan of a run ``stays`` in its files.
        """
        if self.durable is None:
            return sharing.anew(self.problem, chosen, self.overwrite)
        return sharing.further(self.durable, chosen, stays)

    def other_tier(self, chosen: Plan) -> tuple[str, ...]:
        """That a run goes on on another tier, unless it was asked to."""
        before = self.durable.shares[0].manifest.tier if self.durable is not None else ""
        asked = any(change.startswith("tier ") for change in self.told)
        return () if asked or before in ("", chosen.tier) else (f"tier {before} -> {chosen.tier}",)


@contextmanager
def stored(sharing: Sharing) -> Generator[Durable | None]:
    """Lock the unfinished run in a folder: how far it has come; None where its record is written.

    Then only what it left behind was to be removed.
    """
    out, comm = sharing.out, sharing.comm
    if comm.rank == 0 and read_group(out) is None:
        RunFolder.of_manifest(out)
    with held(out, comm):
        if comm.rank == 0:
            run = on_disk(out)
            run.tidy()
            if run.shares:
                restore(out, run.manifest)
        comm.share(None)
        if (out / RECORD_NAME).exists():
            comm.share(None)
            if comm.rank == 0:
                remove_copied(out, read_record(out))
                for share in on_disk(out).shares:
                    abandon(out, share)
                (out / GROUP_NAME).unlink(missing_ok=True)
            comm.share(None)
            yield None
            return
        for share in on_disk(out).shares:
            if not share.manifest.durable:
                raise UsageError(
                    f"the run in {out} kept its fields in memory (tier swap or remote), which "
                    f"is lost: it cannot be resumed; remove it with outgrid clean {out} "
                    "--delete and run it again"
                )
        state = durable(out)
        sharing.check_goes_on(state)
        yield state
