"""What the ranks of a run tell each other at its end, and the record that comes of it."""

from __future__ import annotations

import socket
from typing import Any

import msgspec

from outgrid.machine import Machine
from outgrid.observe import Noted, files_of
from outgrid.plan.schedule.subgrid import Box
from outgrid.record import Part, PieceFile, RankPart, Record, combine, combine_ranks, compilers_of
from outgrid.runs.places import describe
from outgrid.runs.run import Run
from outgrid.seal import Seal
from outgrid.sharing.base import Sharing
from outgrid.version import __version__

__all__ = ["Told", "record_of"]


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank has left of a run: the files of its ``fields`` in ``folder``, by name.

    What of them is its own it ``owned``; they begin with ``first``, a plane and a row of it.
    ``parts`` are what was done here, ``beyond`` that it took more memory than it may.
    """

    folder: str
    fields: dict[str, str]
    checksums: dict[str, str]
    seals: dict[str, Seal]
    owned: Box
    first: tuple[int, int]
    planned: dict[str, Any]
    parts: tuple[Part, ...]
    warnings: tuple[str, ...]
    beyond: tuple[str, ...]
    host: str = msgspec.field(default_factory=socket.gethostname)


def record_of(
    sharing: Sharing, run: Run, machine: Machine, every: list[Told], noted: Noted
) -> Record:
    """The record of a run whose ranks have told ``every`` part of it."""
    before, mine = sharing.parts(), every[sharing.comm.rank]
    parts, alone, spread = (*before, *mine.parts), sharing.alone, run.folder.spread
    ranks = [_rank_part(number, told) for number, told in enumerate(every)]
    together = combine_ranks([rank.measured for rank in ranks])
    files = [
        (f"{prefix}{name}", f"{prefix}{file}", told.checksums[name], told.seals[name])
        for told in every
        for prefix in ("" if alone else f"{told.folder}/",)
        for name, file in told.fields.items()
    ]
    return Record(
        version=__version__,
        started=parts[0].started,
        problem=run.manifest.problem,
        planned=mine.planned,
        machine=machine.to_dict(),
        measured=combine((*before, msgspec.structs.replace(parts[-1], measured=together))),
        files={name: file for name, file, *_ in files},
        preview=noted.preview,
        warnings=(
            *dict.fromkeys(text for told in every for text in told.warnings),
            *(mine.beyond if alone else ()),
            *noted.warnings,
            *compilers_of(part.compiler for part in parts),
        ),
        parts=parts,
        ended=noted.ended,
        left=files_of(run.given, run.options),
        spread=describe(spread) if spread is not None else "",
        checksums={name: digest for name, _, digest, _ in files} | noted.checksums,
        seals={name: seal for name, *_, seal in files} | noted.seals,
        ranks=() if alone else tuple(ranks),
        pieces={} if alone else _pieces(every),
    )


def _rank_part(number: int, told: Told) -> RankPart:
    planes, rows = told.owned.planes, told.owned.rows
    return RankPart(
        rank=number,
        low=planes.start,
        high=planes.stop,
        low_row=rows.start,
        high_row=rows.stop,
        host=told.host,
        measured=combine(told.parts),
        planned=told.planned,
    )


def _pieces(every: list[Told]) -> dict[str, tuple[PieceFile, ...]]:
    """Where the parts of each result are."""
    return {
        name: tuple(
            PieceFile(
                file=f"{told.folder}/{told.fields[name]}",
                first=told.first[0],
                low=told.owned.planes.start,
                high=told.owned.planes.stop,
                first_row=told.first[1],
                low_row=told.owned.rows.start,
                high_row=told.owned.rows.stop,
            )
            for told in every
        )
        for name in every[0].fields
    }
