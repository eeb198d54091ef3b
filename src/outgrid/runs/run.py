"""A run as a process takes it up: what there is to do, where, and what is there already."""

from __future__ import annotations

import uuid
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from outgrid.comm import Comm
from outgrid.config import RunOptions
from outgrid.plan.ending import ended
from outgrid.plan.model import Plan
from outgrid.plan.schedule.subgrid import Box
from outgrid.runs.group import Durable
from outgrid.runs.manifest import Manifest
from outgrid.runs.state import RunFolder
from outgrid.stencil.problem import Problem
from outgrid.version import __version__

__all__ = ["Run"]


class Run(msgspec.Struct, frozen=True, dict=True):
    """A run, or what one of its ranks does of it, in one process.

    ``problem`` are the steps that this process is going to make, after ``done`` others. The
    ``manifest`` is as this process found or made it. ``ended`` says why no other steps are to be
    made, where the run has come to its end early.
    """

    problem: Problem
    options: RunOptions
    plan: Plan
    folder: RunFolder
    manifest: Manifest
    comm: Comm
    done: int
    ended: str = ""

    @classmethod
    def new(
        cls,
        problem: Problem,
        options: RunOptions,
        plan: Plan,
        folder: RunFolder,
        comm: Comm,
        beside: tuple[str, ...],
        kept: dict[str, Any],
        durable: Durable | None = None,
    ) -> Run:
        """A run in new files, which leaves ``beside`` its fields what is named so.

        Where it goes on from what is ``durable``, ``problem`` are the steps that are left. ``kept``
        are the options that a resume goes by.
        """
        manifest = Manifest(
            version=__version__,
            run=uuid.uuid4().hex,
            problem=problem.to_dict() if durable is None else durable.problem,
            folder=folder.relative_scratch(),
            files=folder.working.names(
                plan.schedule.kept, plan.schedule.places, plan.schedule.stored.apart
            ),
            results=(*folder.result_names(plan.schedule.kept), *beside),
            steps_done=-1,
            # The last state is in the files of parity 0, where snapshots are.
            parity=plan.schedule.states.count % 2 if folder.together is not None else 0,
            sealed=True,
            durable=plan.outlives,
            exported=plan.outlives and folder.spread is None,
            spread=folder.spread,
            together=folder.together,
            first=plan.stored.planes.start,
            first_row=plan.owned.rows.start,
            options=kept,
            **_form(plan),
        )
        done, ended = (durable.steps, durable.ended) if durable is not None else (0, "")
        return cls(problem, options, plan, folder, manifest, comm, done, ended)

    @classmethod
    def resumed(
        cls,
        problem: Problem,
        options: RunOptions,
        plan: Plan,
        folder: RunFolder,
        manifest: Manifest,
        comm: Comm,
        kept: dict[str, Any],
    ) -> Run:
        """A run that goes on in the files of a manifest, with the steps that are left."""
        manifest = msgspec.structs.replace(manifest, options=kept, **_form(plan))
        done = max(0, manifest.steps_done)
        return cls(problem, options, plan, folder, manifest, comm, done, manifest.ended)

    @cached_property
    def given(self) -> Problem:
        """All steps of the run, as they were asked for."""
        return Problem.from_dict(self.manifest.problem)

    @property
    def whole(self) -> Problem:
        """All steps that the run makes, those of processes before this one included."""
        return self.given.ending(self.last) if self.ended else self.given

    def form_of(self, steps: Problem) -> Problem:
        """Some of the steps in the form in which they are computed."""
        axis = self.plan.transposed
        problem = steps.transpose(axis) if axis else steps
        form = problem.recomputing(self.plan.recomputed).folding(self.plan.folded)
        return form.in_stages(self.plan.staged)

    @property
    def last(self) -> int:
        """The last step that this process makes, counted from the first one of the run."""
        return self.done + self.problem.steps

    @property
    def out(self) -> Path:
        """The folder of the run; that of one of several ranks lies in it."""
        whole = self.options.out if self.plan.schedule.subgrid is not None else None
        return whole or self.folder.out

    @property
    def owned(self) -> Box:
        """What no other rank owns."""
        return self.plan.owned

    def ending(self, sweeps: int, why: str) -> Run:
        """The run that ends with the first so many sweeps of its plan, and why."""
        problem = self.problem.ending(sum(self.plan.schedule.depths[:sweeps]))
        plan = ended(self.plan, problem, sweeps)
        return replace(self, problem=problem, plan=plan, ended=why)


def _form(plan: Plan) -> dict[str, Any]:
    """What a manifest says of how a plan goes through the grid."""
    return {name: getattr(plan, name) for name in ("tier", "recomputed", "transposed", "staged")}
