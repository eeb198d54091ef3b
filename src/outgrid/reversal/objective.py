"""Objectives: a number made of what a run left, and its derivatives by that."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from outgrid.errors import UsageError
from outgrid.formats.npy import map_npy
from outgrid.stencil.problem import Problem
from outgrid.units import suggest

__all__ = [
    "Cotangents",
    "LeastSquares",
    "Objective",
    "Seen",
    "Total",
    "array_of",
    "check",
    "check_kind",
    "check_values",
    "reduced",
    "said",
    "snapshots_of",
]


TOGETHER = 1 << 16
"""Numbers of traces that are in memory at a time."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a forward run left: traces of (steps, receivers), read when they are used, the fields
    after the last step, for each snapshot what it kept step by step, and reductions of (steps,) by
    name."""

    problem: Problem
    traces: NDArray[np.float64]
    final: Mapping[str, Any]
    snapshots: Sequence[Sequence[NDArray[Any]]]
    reductions: Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Cotangents:
    """The derivatives of an objective of one's own by what a run leaves; it has no value then.

    `traces` is an array of (steps, receivers) or the path of a .npy file, `final` maps names of
    fields to arrays, or paths, of the grid's shape, `snapshots` has for each snapshot of the
    problem an array of what it keeps, or None, and `reductions` maps names to one number per step.
    """

    traces: Any = None
    final: Mapping[str, Any] = field(default_factory=dict[str, Any])
    snapshots: Sequence[Any] = ()
    reductions: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])

    def __call__(self, seen: Seen) -> tuple[float | None, Cotangents]:
        """No value, and these derivatives."""
        return None, self

    @property
    def reduced(self) -> tuple[str, ...]:
        """The reductions that the objective depends on."""
        return tuple(self.reductions)


class Objective(Protocol):
    """The value of an objective for what a run left, None if it has none, and its derivatives.

    Its attribute `reduced` names the reductions that it depends on, none where it has no such
    attribute. `snapshots`, where it has that, is True for each snapshot that it depends on and None
    for the others.
    """

    def __call__(self, seen: Seen, /) -> tuple[float | None, Cotangents]: ...


@dataclass(frozen=True, slots=True)
class LeastSquares:
    """Half the sum of the squares of what differs from what was observed.

    `observed` are traces, an array of (steps, receivers) or the path of a .npy file; `final` maps
    names of fields to arrays, or paths, of what they should be after the last step, of which the
    cells that are updated count; `snapshots` has for each snapshot of the problem an array, or a
    path, of what it should keep, or None.
    """

    observed: Any = None
    final: Mapping[str, Any] = field(default_factory=dict[str, Any])
    snapshots: Sequence[Any] = ()
    reduced: tuple[str, ...] = field(default=(), init=False)

    def __call__(self, seen: Seen) -> tuple[float, Cotangents]:
        """The value, and what differs."""
        sums: list[float] = []
        traces: Any = None
        if self.observed is not None:
            traces = _Apart(seen.traces, array_of(self.observed))
            sums.append(math.fsum(_squares(traces)))
        final = {name: _Apart(seen.final[name], given) for name, given in self.final.items()}
        inside = seen.problem.interior
        part = tuple(slice(along.start, along.stop) for along in inside[1:])
        sums += [_square(apart[plane][part]) for apart in final.values() for plane in inside[0]]
        snapshots: list[Any] = []
        for kept, given in zip(seen.snapshots, self.snapshots, strict=False):
            snapshots.append(None if given is None else _Apart(kept, given))
            if given is not None:
                sums += [_square(snapshots[-1][number]) for number in range(len(kept))]
        return 0.5 * math.fsum(sums), Cotangents(traces, final, snapshots)


@dataclass(frozen=True, slots=True)
class Total:
    """The sum over all steps of a reduction, each times its weight: `weights` has one per step,
    all are 1 where it is left out."""

    reduction: str
    weights: Sequence[float] | None = None
    snapshots: Sequence[Any] = field(default=(), init=False)

    @property
    def reduced(self) -> tuple[str, ...]:
        """The reduction."""
        return (self.reduction,)

    def __call__(self, seen: Seen) -> tuple[float, Cotangents]:
        """The value, and the weights."""
        steps = seen.problem.steps
        weights = [1.0] * steps if self.weights is None else [float(one) for one in self.weights]
        products = np.asarray(weights) * seen.reductions[self.reduction]
        return math.fsum(products.tolist()), Cotangents(reductions={self.reduction: weights})


@dataclass(frozen=True, slots=True)
class _Apart:
    """What differs, part by part, as it is asked for."""

    there: Any
    given: Any

    def __getitem__(self, index: int | slice) -> NDArray[np.float64]:
        return np.asarray(self.there[index], float) - array_of(self.given)[index]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """That of both."""
        return np.shape(self.there)


def _squares(traces: _Apart) -> Iterator[float]:
    """The squares of traces, of which some steps are in memory at a time."""
    steps, receivers = traces.shape
    together = max(1, TOGETHER // max(1, receivers))
    for step in range(0, steps, together):
        yield from (traces[step : step + together] ** 2).ravel().tolist()


def _square(values: NDArray[np.float64]) -> float:
    return math.fsum((values**2).ravel().tolist())


def array_of(given: Any) -> Any:
    """An array, or what is in the .npy file of that name."""
    return map_npy(Path(given)) if isinstance(given, str | Path) else given


def reduced(objective: Objective) -> tuple[str, ...]:
    """The reductions that an objective depends on."""
    return tuple(getattr(objective, "reduced", ()))


def snapshots_of(objective: Objective, problem: Problem) -> list[int]:
    """The numbers of the snapshots that an objective may depend on: all where it does not say."""
    told: Sequence[Any] = getattr(objective, "snapshots", problem.snapshots)
    return [number for number, one in enumerate(told) if one is not None]


def said(objective: Objective, seen: Seen) -> tuple[float | None, Cotangents]:
    """What an objective says of what was seen. Raises UsageError where that does not fit."""
    value, bars = _pair(objective(seen))
    if not isinstance(objective, Cotangents | LeastSquares | Total):
        check(bars, seen.problem)
        check_values(bars, seen.problem)
        for name in bars.reductions:
            if name not in reduced(objective):
                raise UsageError(
                    f"the objective has derivatives by the reduction {name!r}, which its attribute "
                    f"reduced does not name: {reduced(objective)}; add it there"
                )
        of = snapshots_of(objective, seen.problem)
        for number, values in enumerate(bars.snapshots):
            if values is not None and number not in of:
                raise UsageError(
                    f"the objective has derivatives by snapshot {number}, which its attribute "
                    "snapshots leaves out; give True there"
                )
    return value, bars


def _pair(made: Any) -> tuple[float | None, Cotangents]:
    """The value and the derivatives that a function has returned."""
    if not isinstance(made, tuple | list) or len(made) != 2:  # pyright: ignore[reportUnknownArgumentType]
        raise UsageError(
            f"the objective returned {_told(made)}; it must return a value and og.Cotangents, such "
            "as: return 0.5 * (apart**2).sum(), og.Cotangents(traces=apart)"
        )
    value, bars = made  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(bars, Cotangents):
        raise UsageError(
            f"the objective returned {_told(bars)} as its derivatives; expected og.Cotangents, for "
            "derivatives by traces og.Cotangents(traces=...)"
        )
    if value is None:
        return None, bars
    if np.ndim(value) == 0:  # pyright: ignore[reportUnknownArgumentType]
        with suppress(TypeError, ValueError):
            return float(value), bars  # pyright: ignore[reportUnknownArgumentType]
    raise UsageError(
        f"the objective returned {_told(value)} as its value; expected one real number, such as a"
        " sum over all traces, or None"
    )


def _told(value: Any) -> str:
    """A value in a message: of an array the shape."""
    kind, shape = type(value).__name__, getattr(value, "shape", ())
    if shape:
        return f"an array ({kind}) of shape {tuple(shape)}"
    if isinstance(value, tuple | list):
        return f"a {kind} of {len(value)} entries"  # pyright: ignore[reportUnknownArgumentType]
    text = repr(value)
    return text if len(text) <= 60 else f"a {kind}"


def check_kind(objective: Any) -> None:
    """Raise UsageError for what is no objective, and for one that compares nothing."""
    if isinstance(objective, type) or not callable(objective):
        name = objective.__name__ if isinstance(objective, type) else _told(objective)
        raise UsageError(
            f"the objective is {name}; expected og.LeastSquares(traces) of observed traces, "
            "og.Total, og.Cotangents, or a function that returns a value and og.Cotangents"
        )
    if isinstance(objective, LeastSquares):
        given = (objective.observed, *objective.final.values(), *objective.snapshots)
        if all(one is None for one in given):
            raise UsageError(
                "og.LeastSquares() has nothing to compare with; give observed traces, final={...} "
                "or snapshots=[...]"
            )


def check(objective: Objective | Cotangents, problem: Problem) -> None:
    """Raise UsageError where an objective is of something else than the problem leaves."""
    names = [field.name for field in problem.stencil.lasting]
    final: Mapping[str, Any] = getattr(objective, "final", {})
    for name, values in final.items():
        if name not in names:
            raise UsageError(f"the stencil updates no field {name!r}{suggest(name, names)}")
        _check_shape(f"final values of {name!r} have", values, problem.shape, "the problem has")
    wanted = getattr(objective, "observed", None)
    wanted = getattr(objective, "traces", None) if wanted is None else wanted
    expected = (problem.steps, len(problem.receivers))
    if wanted is not None:
        says = f"{problem.steps} steps and {len(problem.receivers)} receivers make"
        _check_shape("traces have", wanted, expected, says)
        for receiver in problem.receivers:
            if problem.stencil.field(receiver.field).temporary:
                raise UsageError(
                    f"traces of the receiver at {receiver.position} are of {receiver.field!r}, a "
                    "temporary, and gradients need those of fields: make it a field"
                )
    snapshots: Sequence[Any] = getattr(objective, "snapshots", ())
    if len(snapshots) > len(problem.snapshots):
        raise UsageError(
            f"the objective has {len(snapshots)} snapshots, the problem {len(problem.snapshots)}"
        )
    for number, (values, snapshot) in enumerate(zip(snapshots, problem.snapshots, strict=False)):
        if values is not None and values is not True:
            expected = snapshot.shape(problem.shape, problem.steps)
            _check_shape(f"snapshot {number} has", values, expected, "the run keeps")
    known = [reduction.name for reduction in problem.stencil.reductions]
    weights: dict[str, Any] = dict(getattr(objective, "reductions", {}))
    if getattr(objective, "weights", None) is not None:
        weights |= dict.fromkeys(reduced(objective), getattr(objective, "weights", ()))
    for name in reduced(objective):
        if name not in known:
            raise UsageError(f"the stencil has no reduction {name!r}{suggest(name, known)}")
        if name in weights and len(weights[name]) != problem.steps:
            raise UsageError(
                f"the reduction {name!r} has {len(weights[name])} weights for {problem.steps} steps"
            )


def check_values(objective: Objective | Cotangents, problem: Problem) -> None:
    """Raise UsageError where an objective is of values that are NaN, infinite or complex.

    Files are read in parts. Of final values the cells that are updated count.
    """
    observed = getattr(objective, "observed", None)
    traces = getattr(objective, "traces", None) if observed is None else observed
    if traces is not None:
        what = "derivatives by traces" if observed is None else "observed traces"
        together = max(1, TOGETHER // max(1, len(problem.receivers)))
        for low in range(0, problem.steps, together):
            if (found := _unfit(array_of(traces)[low : low + together])) is not None:
                value, (row, receiver) = found
                raise UsageError(
                    f"{what} hold {value} at step {low + row + 1} of receiver {receiver}, the entry"
                    f" [{low + row}, {receiver}]; give finite real numbers, and leave receivers "
                    "without data out of the problem and of the traces, or out of a misfit of "
                    "your own"
                )
    final: Mapping[str, Any] = getattr(objective, "final", {})
    part = tuple(slice(along.start, along.stop) for along in problem.interior[1:])
    for name, values in final.items():
        for plane in problem.interior[0]:
            if (found := _unfit(array_of(values)[plane], part)) is not None:
                raise UsageError(
                    f"final values of {name!r} hold {found[0]} in plane {plane}; give finite real"
                    " numbers"
                )
    snapshots: Sequence[Any] = getattr(objective, "snapshots", ())
    for number, values in enumerate(snapshots):
        if values is None or values is True:
            continue
        for frame, cells in enumerate(array_of(values)):
            if (found := _unfit(cells)) is not None:
                raise UsageError(
                    f"frame {frame} of snapshot {number} holds {found[0]}; give finite real numbers"
                )
    weights: dict[str, Any] = dict(getattr(objective, "reductions", {}))
    if getattr(objective, "weights", None) is not None:
        weights |= dict.fromkeys(reduced(objective), getattr(objective, "weights", ()))
    for name, values in weights.items():
        if (found := _unfit(values)) is not None:
            value, (step,) = found
            raise UsageError(
                f"the weights of the reduction {name!r} hold {value} at step {step + 1}; give"
                " finite real numbers"
            )


def _unfit(values: Any, part: tuple[slice, ...] = ()) -> tuple[str, tuple[int, ...]] | None:
    """The first of some values that is no finite real number, in words, and its place."""
    array = np.asanyarray(values)[part]
    fits = np.zeros(array.shape, bool) if array.dtype.kind in "cOSUMm" else np.isfinite(array)
    fits = np.ma.filled(fits, fill_value=False)
    if fits.all():
        return None
    place = tuple(int(one) for one in np.argwhere(~fits)[0])
    value = "a masked value" if np.ma.is_masked(array[place]) else array[place]
    return f"{value} ({array.dtype})", place


def _check_shape(what: str, values: Any, expected: tuple[int, ...], says: str) -> None:
    shape = tuple(np.shape(array_of(values)))
    if shape != expected:
        raise UsageError(f"{what} the shape {shape}; {says} {expected}")
