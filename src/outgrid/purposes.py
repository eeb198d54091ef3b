"""What the options of a run are for: the tiers, schemes, devices and ranks with which they matter.

An option that would do nothing is refused, so that what was asked for is what is done. What only
the choices of a plan make void is told in its notes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast, get_type_hints

from outgrid.devices import DEVICES
from outgrid.errors import UsageError
from outgrid.schemes import SCHEMES
from outgrid.tiers import COPIED_TIERS, MAPPED_TIERS

__all__ = [
    "EVERYDAY",
    "EXPERT",
    "GROUPS",
    "PLACEMENT",
    "TUNING",
    "Condition",
    "Option",
    "Start",
    "VoidOption",
    "check_purposes",
    "on_tier",
    "options_of",
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
    actual: Callable[[Any], str]
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


def _scheme_depth(options: Any) -> int | None:
    """The only depth of the sweeps of a scheme that has one."""
    scheme = SCHEMES.get(options.scheme)
    return scheme.depth if scheme is not None else None


def on_tier(*names: str) -> Condition:
    """The tier has one of ``names``."""
    return _choice("tier", *names)


_IN_PLACE = "sweeps in place"
MAPPED = on_tier(*MAPPED_TIERS)
SLABS = _choice("scheme", "auto", *(name for name, scheme in SCHEMES.items() if not scheme.blocks))
BLOCKS = _choice("scheme", *(name for name, scheme in SCHEMES.items() if scheme.blocks))
HOST, GPU = _choice("device", "cpu"), _choice("device", *DEVICES)
FILES = Condition(
    "files with direct I/O",
    lambda options, _: options.tier not in COPIED_TIERS,
    lambda options: f"tier {options.tier}",
    "choose tier direct",
)
STREAMED = Condition(
    "grids that are streamed",
    lambda options, _: not options.in_place and options.tier != "memory",
    lambda options: _IN_PLACE if options.in_place else "tier memory",
    "choose tier direct",
)
APART = Condition(
    "a window beside the fields",
    lambda options, _: not options.in_place,
    lambda _: _IN_PLACE,
    "leave in_place out",
)
KEPT = Condition(
    "fields that outlive their process",
    lambda options, _: not options.passing,
    lambda options: f"tier {options.tier}",
    "choose tier direct, or keep = 'disk' on tier remote",
)
STEPS = Condition(
    "sweeps of several steps",
    lambda options, _: 1 not in (options.depth, _scheme_depth(options)),
    lambda options: f"scheme {options.scheme}" if _scheme_depth(options) == 1 else "depth 1",
    "choose another depth",
)
ALONE = Condition(
    "runs of one rank",
    lambda _, start: start.alone is not False,
    lambda _: "ranks that share a grid",
    "start one rank",
)
COMPUTING = replace(
    ALONE,
    words="a rank that computes and others that lend it memory",
    fix="start it with mpiexec, and leave --ranks out",
)
SEVERAL = Condition(
    "fields that are cut over several places",
    lambda options, _: len(options.places) > 1,
    lambda _: "one place",
    "name them all in scratch",
)
SHARED = Condition(
    "ranks that share a grid",
    lambda _, start: start.alone is not True,
    lambda _: "one rank",
    "start several with mpiexec",
)
FOLDER = Condition(
    "results that stay in a folder",
    lambda options, _: not options.file,
    lambda options: f"the one file {options.file}",
    "name a folder with --out",
)
NEW = Condition(
    "new runs",
    lambda _, start: not start.resumed,
    lambda _: "one that is resumed",
    "start a new run",
)


def _no_values() -> Mapping[str, tuple[Condition, ...]]:
    return {}


GROUPS = (EVERYDAY, PLACEMENT, TUNING, EXPERT) = ("everyday", "placement", "tuning", "expert")
"""Groups of options in the reference: from what every run needs to what compares methods."""


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """What is said of an option of `[run]` where it is declared, beside its type and its default.

    The reference, in Markdown, lists it in its ``group``, with what it ``sets`` and what holds
    ``otherwise``. ``key`` is its name in text, where that is not the one of its ``member``;
    ``written`` the kind of value that text has, where that is not the member's, which ``read``
    turns into it. ``refuse`` says what is wrong with a value, in words, or nothing. ``needs`` is
    what it needs of the other options, or would do nothing; ``values`` what some of its values
    need. Of an option that is ``passing`` a run that goes on keeps nothing: it was for one process,
    or files tell it. One with ``metavar`` is a flag of the command line, whose value is shown so.
    """

    group: str
    sets: str
    otherwise: str
    _: KW_ONLY
    key: str = ""
    member: str = ""
    written: Any = None
    read: Callable[[Any], Any] | None = None
    refuse: Callable[[Any], str] | None = None
    needs: tuple[Condition, ...] = ()
    values: Mapping[str, tuple[Condition, ...]] = field(default_factory=_no_values)
    passing: bool = False
    metavar: str = ""

    def help(self, *, kept: bool = False) -> str:
        """The help of its flag, for argparse; of a run that goes on what it had may be `kept`."""
        otherwise = "what the run had" if kept and not self.passing else self.otherwise
        text = f"{self.sets} (default: {otherwise})"
        text = re.sub(r" \(\[[^]]*\]\([^)]*\)\)", "", text)
        return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("`", "").replace("%", "%%")


@cache
def options_of(kind: type) -> Mapping[str, Option]:
    """The options that are declared as fields of a class, by key, in their order."""
    options: dict[str, Option] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        for option in getattr(hint, "__metadata__", ()):
            if isinstance(option, Option):
                written = option.written or hint.__origin__
                key = option.key or name
                options[key] = replace(option, key=key, member=name, written=written)
    return MappingProxyType(options)


def check_purposes(options: object, start: Start | None = None) -> None:
    """Raise VoidOption for one of the ``options`` (`RunOptions`) that would do nothing.

    ``start`` says how the run begins, as soon as that is known.
    """
    kind: type[Any] = type(options)
    for name, option in options_of(kind).items():
        value = cast("Any", options).given(name)
        if value is None:
            continue
        _check_needs(options, start or Start(), name, value, option.needs)
        for one, needs in option.values.items():
            if one == value or (isinstance(value, tuple) and one in value):
                _check_needs(options, start or Start(), name, one, needs)


def _check_needs(
    options: Any, start: Start, name: str, value: Any, needs: tuple[Condition, ...]
) -> None:
    for condition in needs:
        if not condition.holds(options, start):
            raise VoidOption(
                f"{name} = {spelled(value)} is for {condition.words}, not for "
                f"{condition.actual(options)}: leave it out, or {condition.fix}",
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
