"""What the options of a run are for: the tiers, schemes, devices and ranks with which they matter.

An option that would do nothing is refused, so that what was asked for is what is done. What only
the choices of a plan make void is told in its notes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from outgrid.errors import UsageError
from outgrid.tiers import COPIED_TIERS, MAPPED_TIERS

__all__ = [
    "Start",
    "VoidOption",
    "check_purposes",
    "spelled",
]


@dataclass(frozen=True, slots=True)
class Start:
    """How a run begins, as far as that is known.

    ``alone`` where one process has the whole grid and does not share it with other ranks; anew, or
    ``resumed``.
    """

    alone: bool | None = None
    resumed: bool = False


class VoidOption(UsageError):  # noqa: N818 - it names an option, not a fault of the program
    """An ``option`` of `[run]` that would do nothing, for ``purpose`` is what it is for."""

    def __init__(self, message: str, option: str = "", purpose: str = "") -> None:
        super().__init__(message)
        self.option, self.purpose = option, purpose


@dataclass(frozen=True, slots=True)
class Condition:
    """What an option needs of all others, in words, and where they are otherwise, in words too."""

    words: str
    holds: Callable[[Any, Start], bool]
    found: Callable[[Any], str]
    fix: str


def _choice(name: str, *values: str) -> Condition:
    """Another option has one of ``values``; "auto" is None where that is decoded so."""
    *others, last = values
    words = f"{name} {', '.join(others)} or {last}" if others else f"{name} {last}"

    def value(options: Any) -> str:
        return getattr(options, name) or "auto"

    return Condition(
        words,
        lambda options, _: value(options) in values,
        lambda options: f"{name} {value(options)}",
        f"choose {words}",
    )


_IN_PLACE = "sweeps in place"
_MAPPED = _choice("tier", *MAPPED_TIERS)
_SLABS = _choice("scheme", "auto", "skewed", "plain")
_BLOCKS = _choice("scheme", "overlapped")
_HOST, _GPU = _choice("device", "cpu"), _choice("device", "gpu")
_FILES = Condition(
    "files that are moved past the page cache",
    lambda options, _: options.tier not in COPIED_TIERS,
    lambda options: f"tier {options.tier}",
    "choose tier direct",
)
_STREAMED = Condition(
    "grids that are streamed",
    lambda options, _: not options.in_place and options.tier != "memory",
    lambda options: _IN_PLACE if options.in_place else "tier memory",
    "choose tier direct",
)
_APART = Condition(
    "a window beside the fields",
    lambda options, _: not options.in_place,
    lambda _: _IN_PLACE,
    "leave in_place out",
)
_KEPT = Condition(
    "fields that outlive their process",
    lambda options, _: not options.passing,
    lambda options: f"tier {options.tier}",
    "choose tier direct, or keep = 'disk' on tier remote",
)
_STEPS = Condition(
    "sweeps of several steps",
    lambda options, _: options.scheme != "plain" and options.depth != 1,
    lambda options: "scheme plain" if options.scheme == "plain" else "depth 1",
    "choose another depth",
)
_ALONE = Condition(
    "runs of one rank",
    lambda _, start: start.alone is not False,
    lambda _: "ranks that share a grid",
    "start one rank",
)
_COMPUTING = replace(
    _ALONE,
    words="a rank that computes and others that lend it memory",
    fix="start it with mpiexec, and leave --ranks out",
)
_SHARED = Condition(
    "ranks that share a grid",
    lambda _, start: start.alone is not True,
    lambda _: "one rank",
    "start several with mpiexec",
)
_NEW = Condition(
    "runs that begin",
    lambda _, start: not start.resumed,
    lambda _: "one that goes on where its files are",
    "start a new run",
)

# By option, or by option and one of its values.
PURPOSES: dict[str, tuple[Condition, ...]] = {
    "erase": (_NEW,),
    "scheme overlapped": (_STREAMED, _HOST, _ALONE),
    "tier memory": (_ALONE,),
    "tier mmap": (_ALONE,),
    "tier swap": (_ALONE,),
    "tier remote": (_HOST, _COMPUTING),
    "in_place": (_MAPPED, _HOST, _ALONE),
    "madvise": (_MAPPED,),
    "madvise willneed": (_APART,),
    "madvise dontneed": (_APART,),
    "msync": (_choice("tier", "mmap"),),
    "lend": (_choice("tier", "remote"),),
    "placement": (_choice("tier", "remote"),),
    "keep": (_choice("tier", "remote"),),
    "slab_planes": (_SLABS,),
    "strip_rows": (_SLABS, _STREAMED, _ALONE),
    "block": (_BLOCKS, _ALONE),
    "inner": (_BLOCKS, _ALONE),
    "inner_depth": (_BLOCKS, _ALONE),
    "cuts": (_SHARED,),
    "row_cuts": (_SHARED,),
    "exchange": (_SHARED,),
    "tile_rows": (_SLABS, _HOST),
    "tile_planes": (_SLABS, _HOST),
    "tile_columns": (_SLABS, _HOST, _STEPS),
    "tile_band": (_SLABS, _HOST, _STEPS),
    "threads": (_HOST,),
    "pin": (_HOST,),
    "device gpu": (_ALONE,),
    "device_memory": (_GPU,),
    "engine io_uring": (_FILES,),
    "engine aio": (_FILES,),
    "require io_uring": (_FILES,),
    "require aio": (_FILES,),
    "require direct": (_FILES,),
    "require mlock": (_HOST, _APART),
    "preview": (_NEW, _HOST, _ALONE),
    "commit_every": (_KEPT, _ALONE),
}


def check_purposes(options: Any, start: Start | None = None) -> None:
    """Raise VoidOption for one of the ``options`` (`RunOptions`) that would do nothing.

    ``start`` says how the run begins, as soon as that is known.
    """
    for key, conditions in PURPOSES.items():
        name, _, one = key.partition(" ")
        value = options.given(name)
        if value is None or (one and value != one and not (type(value) is tuple and one in value)):
            continue
        for condition in conditions:
            if not condition.holds(options, start or Start()):
                raise VoidOption(
                    f"{name} = {spelled(one or value)} is for {condition.words}, not for "
                    f"{condition.found(options)}: leave it out, or {condition.fix}",
                    name,
                    condition.words,
                )


def spelled(value: Any) -> str:
    """A value as a job file has it."""
    match value:
        case bool():
            return str(value).lower()
        case tuple() | list():
            return f"[{', '.join(map(spelled, cast('Sequence[Any]', value)))}]"
        case str() | Path():
            return repr(str(value))
        case _:
            return str(value)
