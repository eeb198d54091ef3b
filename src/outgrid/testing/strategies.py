"""Hypothesis strategies: random stencils, problems, machines and ways to run a problem.

    @given(problems())
    def test_something(problem): ...

Values are drawn so that answers stay finite: weights of one update sum to about one, divisors are
at least two, roots are taken of what is at least one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from outgrid.config import RunOptions
from outgrid.machine import Machine
from outgrid.native import engines
from outgrid.numbers import is_known
from outgrid.plan.sizing import Sizing
from outgrid.plan.sweeps import sweep_steps
from outgrid.plan.tiling import bands_cut, columns_cut
from outgrid.stencil.boundary import IMAGES
from outgrid.stencil.dtypes import HALVES, WHOLE
from outgrid.stencil.expression import (
    INDEX,
    STEP,
    Access,
    Constant,
    Expression,
    Parameter,
    Profile,
    is_index,
    nodes,
    operation,
)
from outgrid.stencil.model import Assignment, Field, Stage, Stencil
from outgrid.stencil.problem import PREVIOUS, Problem
from outgrid.stencil.symbol import AXES
from outgrid.tiers import MAPPED_TIERS, PASSING_TIERS, TIERS

__all__ = ["boundaries", "machines", "problems", "run_options", "stencils"]

_WEIGHTS = (0.5, -0.25, 0.1, -0.3, 1 / 3, 1.0)
# Rows of these many cells let planes move without staging; all others are staged.
_ALIGNED_COLUMNS = {"float32": (1024, 2048), "float64": (512, 1024)}
_STREAMED = tuple(name for name, tier in TIERS.items() if tier.streamed and tier.module)


@st.composite
def stencils(
    draw: st.DrawFn,
    *,
    ndim: int | None = None,
    most_fields: int = 3,
    largest_radius: int = 4,
    temporaries: bool = False,
) -> Stencil:
    """Stencils of 1 to `most_fields` fields and stages, of first or second order in time.

    With `temporaries` they have one or two of these, with a stage for each.

    Any field may be read at any offset up to a radius that is drawn for each axis, on one side
    or on both; the previous level too, as long as its stage has not come.
    """
    ndim = ndim or draw(st.sampled_from([2, 3]))
    radius = tuple(draw(st.integers(0, largest_radius)) for _ in range(ndim))
    names = ("u", "v", "w", "q", "s")[: draw(st.integers(1, most_fields))]
    evolving = names[: draw(st.integers(1, len(names)))]
    stage_of = {name: draw(st.integers(0, min(number, 1))) for number, name in enumerate(evolving)}
    if draw(st.booleans()):
        stage_of = dict.fromkeys(evolving, 0)
    order = sorted(set(stage_of.values()))
    stages = tuple(
        Stage(
            tuple(
                Assignment(name, draw(_updates(name, names, unmade, radius)))
                for name in evolving
                if stage_of[name] == number
            )
        )
        for number in order
        for unmade in [[name for name in evolving if stage_of[name] >= number]]
    )
    made: list[str] = []
    if temporaries:
        number = draw(st.integers(0, len(order) - 1))
        unmade = [name for name in evolving if stage_of[name] >= order[number]]
        stages, made = draw(_with_temporaries(stages, number, names, unmade, radius))
    assignments = tuple(assignment for stage in stages for assignment in stage.assignments)
    used = [node for assignment in assignments for node in nodes(assignment.expression)]
    read = {node.field for node in used if isinstance(node, Access)}
    old = {node.field for node in used if isinstance(node, Access) and node.level == -1}
    given = {node.name for node in used if isinstance(node, Parameter)} - {STEP.name}
    parameters = tuple(sorted(given))
    lying = {node for node in used if isinstance(node, Profile)}
    along = sorted({profile.name for profile in lying if not is_index(profile)})
    return Stencil(
        "drawn",
        ndim,
        tuple(
            Field(name, name in evolving, 1 + (name in old))
            for name in names
            if name in read or name in evolving
        )
        + tuple(Field(name, True, temporary=True) for name in made),
        parameters,
        stages,
        tuple((name, 0.75) for name in (*parameters, *along)),
    )


@st.composite
def _with_temporaries(
    draw: st.DrawFn,
    stages: tuple[Stage, ...],
    number: int,
    names: Sequence[str],
    unmade: Sequence[str],
    radius: tuple[int, ...],
) -> tuple[tuple[Stage, ...], list[str]]:
    """One or two temporaries, made before a stage, which reads them beside what it has read.

    The second one is made of the first one, too.
    """
    new: list[Stage] = []
    made: list[str] = []
    for name in ("first", "second")[: draw(st.integers(1, 2))]:
        value = draw(_updates(draw(st.sampled_from(names)), names, unmade, radius))
        for earlier in made:
            value = _half_of(value, draw(_accesses([earlier], [], radius)))
        new.append(Stage((Assignment(name, value),)))
        made.append(name)
    readers = tuple(
        Assignment(
            assignment.field,
            _half_of(assignment.expression, draw(_accesses(made[-1:], [], radius))),
        )
        for assignment in stages[number].assignments
    )
    return (*stages[:number], *new, Stage(readers), *stages[number + 1 :]), made


def _half_of(a: Expression, b: Expression) -> Expression:
    return operation("mul", Constant(0.5), operation("add", a, b))


@st.composite
def _updates(
    draw: st.DrawFn,
    name: str,
    names: Sequence[str],
    evolving: Sequence[str],
    radius: tuple[int, ...],
) -> Expression:
    """A weighted sum of one to six terms, the first of them the field's own value."""
    total: Expression = Access(name, 0, (0,) * len(radius))
    count = draw(st.integers(0, 5))
    for _ in range(count):
        weight = draw(st.sampled_from(_WEIGHTS)) / count
        term = operation("mul", Constant(weight), draw(_terms(names, evolving, radius)))
        total = operation(draw(st.sampled_from(["add", "sub"])), total, term)
    return total


@st.composite
def _accesses(
    draw: st.DrawFn, names: Sequence[str], evolving: Sequence[str], radius: tuple[int, ...]
) -> Access:
    name = draw(st.sampled_from(names))
    level = draw(st.sampled_from([0, 0, -1])) if name in evolving else 0
    return Access(name, level, tuple(draw(st.integers(-most, most)) for most in radius))


@st.composite
def _terms(
    draw: st.DrawFn, names: Sequence[str], evolving: Sequence[str], radius: tuple[int, ...]
) -> Expression:
    a, b = (draw(_accesses(names, evolving, radius)) for _ in range(2))
    fall = operation("neg", operation("abs", a))
    size_of_b = operation("abs", b)
    kinds = ["access", "difference", "parameter", "profile", "product", "chosen", "other"]
    match draw(st.sampled_from(kinds)):
        case "access":
            return a
        case "difference":
            return operation("sub", a, b)
        case "parameter":
            return operation("mul", Parameter(draw(st.sampled_from(["j", "k"]))), a)
        case "profile":
            axis = draw(st.integers(0, len(radius) - 1))
            return operation("mul", Profile(f"along{axis}", axis), a)
        case "chosen":
            earlier = operation("lt", STEP, Constant(3.0))
            condition = operation(draw(st.sampled_from(["lt", "le", "eq", "ne"])), a, b)
            condition = operation(draw(st.sampled_from(["and", "or"])), condition, earlier)
            return operation("where", condition, a, operation("tanh", b))
        case "product":
            # A factor below one, whatever the fields have become.
            return operation("mul", a, operation("min", Constant(0.5), b))
        case _:
            return draw(
                st.sampled_from(
                    [
                        operation("min", a, b),
                        operation("max", a, operation("neg", b)),
                        operation("div", a, operation("add", Constant(2.0), size_of_b)),
                        operation("sqrt", operation("add", Constant(1.0), size_of_b)),
                        operation("log", operation("add", Constant(2.0), size_of_b)),
                        operation("exp", operation("neg", size_of_b)),
                        operation("pow", operation("add", Constant(1.0), size_of_b), fall),
                        operation("sin", a),
                        operation("mul", a, _random(len(radius))),
                        operation("round", operation("mul", Constant(3.0), a)),
                        operation("mul", operation("cos", Parameter("k")), b),
                    ]
                )
            )


def _random(ndim: int) -> Expression:
    """A random number for each cell and step."""
    axes = AXES[-ndim:]
    places = (Profile(INDEX + a, axes.index(a)) if a in axes else Constant(0.0) for a in AXES)
    return operation("random", Constant(7.0), Constant(0.0), STEP, *places)


@st.composite
def problems(
    draw: st.DrawFn,
    rules: st.SearchStrategy[Stencil] | None = None,
    *,
    most_steps: int = 14,
    most_planes: int = 48,
    most_cells: int = 24,
    with_arrays: bool = True,
    around: st.SearchStrategy[Any] | None = None,
    dtypes: Mapping[str, str] | None = None,
) -> Problem:
    """Problems of `rules` (any stencil if left out) on grids from the smallest possible on.

    Grids have up to `most_planes` planes beyond the smallest number, and up to `most_cells` cells
    along the other axes, or rows long enough that planes fill whole blocks of a file. With arrays,
    initial values are random in [0, 1); without, they are numbers, so that problems are cheap.
    `dtypes` are those of fields that are not kept in the type that is drawn; left out, any are.
    `around` gives boundaries; left out, they are any.
    """
    stencil = draw(stencils() if rules is None else rules)
    computed = ["float32", "float64"]
    if dtypes is not None and {*dtypes.values()} & {*HALVES, "int32"}:
        computed = ["float32" if {*dtypes.values()} & {*HALVES} else "float64"]
    dtype = draw(st.sampled_from(computed))
    extents = [3 * reach + 1 for reach in stencil.radius]
    extents[0] += draw(st.integers(0, most_planes))
    for axis in range(1, stencil.ndim):
        extents[axis] += draw(st.integers(0, most_cells))
    if draw(st.integers(0, 4)) == 0:
        extents[-1] = draw(st.sampled_from(_ALIGNED_COLUMNS[dtype]))
    shape = tuple(extents)
    initial: dict[str, Any] = {}
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    apart = draw(_dtypes(stencil, dtype)) if dtypes is None else dtypes
    for field in stencil.fields:
        if field.temporary:
            continue
        kept = apart.get(field.name, dtype)
        initial[field.name] = _values(draw, generator, shape, with_arrays, kept)
        if field.levels == 2 and draw(st.booleans()):
            initial[field.name + PREVIOUS] = _values(draw, generator, shape, with_arrays, kept)
    whole = any(apart.get(field.name) in WHOLE for field in stencil.evolving)
    boundary = draw(boundaries(stencil, 2.0 if whole else 0.5) if around is None else around)
    steps = draw(st.integers(0, most_steps))
    table = tuple(generator.random(steps) - 0.5)
    parameters: dict[str, Any] = {
        name: draw(st.sampled_from([0.25, -0.7, 1 / 3, table])) for name in stencil.parameters
    }
    for profile in stencil.given_profiles:
        parameters[profile.name] = generator.random(shape[profile.axis])
    return Problem(
        stencil,
        shape,
        dtype,
        steps,
        parameters,
        boundary,
        initial,
        draw(st.sampled_from([0, 2])),
        dtypes=apart,
    )


@st.composite
def _dtypes(draw: st.DrawFn, stencil: Stencil, dtype: str) -> dict[str, str]:
    """Types of fields: that of the problem for all, more often than not."""
    if draw(st.booleans()):
        return {}
    real = ["float32", dtype] if dtype == "float64" else [dtype, *filter(is_known, HALVES)]
    whole = [kept for kept in WHOLE if dtype == "float64" or kept != "int32"]
    return {
        field.name: draw(st.sampled_from([*real, *(whole if field.evolving else WHOLE)]))
        for field in stencil.fields
    }


@st.composite
def boundaries(draw: st.DrawFn, stencil: Stencil, value: float = 0.5) -> str | dict[str, Any]:
    """Fixed layers on all sides, or any rule at each face, some of them for one field only.

    Fixed layers have the `value`, or none.
    """
    if draw(st.booleans()):
        given = {"kind": "dirichlet", "value": value}
        return draw(st.sampled_from(["dirichlet", "frozen", given]))
    fixed = ["dirichlet", value, {"kind": "sponge", "width": 1, "strength": 0.5}]
    images = IMAGES
    data: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for axis, radius in zip(AXES[-stencil.ndim :], stencil.radius, strict=True):
        if draw(st.integers(0, 3)) == 0:
            data[axis] = "periodic"
            continue
        # Where nothing is read along an axis, it may be a single cell.
        kinds = st.sampled_from([*images, *(fixed if radius else fixed[:-1])])
        data |= {f"{axis}{side}": draw(kinds) for side in "-+"}
        own[f"{axis}-"] = draw(kinds)
    if own and draw(st.booleans()):
        data["fields"] = {draw(st.sampled_from([field.name for field in stencil.lasting])): own}
    return data


def _values(
    draw: st.DrawFn,
    generator: np.random.Generator,
    shape: tuple[int, ...],
    with_arrays: bool,
    dtype: str,
) -> NDArray[Any] | float | str:
    if dtype in WHOLE:
        if with_arrays and draw(st.integers(0, 3)):
            return generator.integers(0, 3, shape, dtype)
        return draw(st.sampled_from([0.0, 2.0, "x > y", "(x < 3) + 2 * (y > 4)"]))
    if with_arrays and draw(st.integers(0, 3)):
        return generator.random(shape)
    return draw(st.sampled_from([0.0, 0.5, "x / nx", "(y - x) / (nx + ny)"]))


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Machines from very small to large, with slow and fast storage."""
    return Machine(
        cores=draw(st.sampled_from([1, 2, 3, 8, 64])),
        memory_bytes=draw(st.sampled_from([1 << 30, 1 << 36])),
        l2_bytes=draw(st.sampled_from([1 << 18, 1 << 20, 1 << 22])),
        l3_bytes=draw(st.sampled_from([1 << 20, 1 << 25, 1 << 28])),
        memory_bandwidth=draw(st.sampled_from([4e9, 2e10, 4e11])),
        read_bandwidth=draw(st.sampled_from([1e8, 1.5e9, 2e10])),
        write_bandwidth=draw(st.sampled_from([1e8, 1.5e9, 2e10])),
        measured=False,
        cpu="drawn",
        kernel="6.1.0",
        compiler="/usr/bin/g++",
        python="3.11",
        lines=draw(st.booleans()),
        flushing_seconds=draw(st.sampled_from([0.0, 1e-9])),
    )


@st.composite
def run_options(
    draw: st.DrawFn, problem: Problem, *, memory: str | int = "1GiB", **fixed: Any
) -> RunOptions:
    """Ways to run `problem` under a limit of `memory`; `fixed` are entries that are not drawn.

    A fixed `commit_every` is left out where nothing can be kept.
    """
    planes = problem.shape[0]
    depth = draw(st.none() | st.integers(1, 12))
    slab = draw(st.none() | st.integers(1, min(9, planes)))
    depths = sweep_steps(problem, min(depth or 1, max(1, problem.steps)), given=True)
    streamed = Sizing(problem).least_planes(depths, slab or 1) <= planes
    tiers = ["direct", *_STREAMED] if streamed else []
    places = [(tier, False) for tier in (*tiers, "memory", "auto")]
    places += [(tier, True) for tier in MAPPED_TIERS]
    tier, in_place = (fixed["tier"], False) if "tier" in fixed else draw(st.sampled_from(places))
    copied = tier in MAPPED_TIERS
    given: dict[str, Any] = {
        "memory": memory,
        "tier": tier,
        "in_place": in_place,
        "depth": depth,
        "slab_planes": slab,
        "tile_rows": draw(st.none() | st.integers(1, 20)),
        "tile_stream": draw(st.none() | st.booleans()),
        "threads": draw(st.sampled_from([1, 2, 3, 9])),
        "pin": draw(st.booleans()),
        "engine": draw(st.sampled_from(["threads", "auto"] if copied else [*engines(), "auto"])),
        "queue_depth": draw(st.sampled_from([1, 2, 16])),
        "request_bytes": draw(st.sampled_from([1 << 12, 1 << 16, 1 << 21])),
    }
    if tier in PASSING_TIERS and not in_place:
        fixed.pop("commit_every", None)
    else:
        given["commit_every"] = draw(st.sampled_from([None, 0, 1e-6]))
    several = fixed.get("depth", depth) != 1 and fixed.get("scheme") != "plain"
    if several and not columns_cut(problem):
        given["tile_columns"] = draw(st.none() | st.integers(1, problem.shape[-1] + 8))
    if several and not bands_cut(problem):
        given["tile_band"] = draw(st.none() | st.integers(1, 12))
    if several:
        given["tile_fetch"] = draw(st.none() | st.booleans())
    streams = tier != "memory" and not in_place
    if streams and _has_halos(problem, depth) and draw(st.integers(0, 4)) == 0:
        given |= draw(_overlapped(problem))
        return RunOptions.of(**(given | fixed))
    if tier == "direct" and "scheme" not in fixed:
        given["pack"] = draw(st.sampled_from(["auto", "always", "never"]))
    can_cut = Sizing(problem).can_cut and (streamed or not problem.edges.periodic(0))
    if can_cut and streams and draw(st.integers(0, 2)) == 0:
        deepest = max(1, min(depth or 1, problem.deepest))
        strips = Sizing(problem).strips(deepest, 1)
        least = strips.beside(deepest) if strips.circle else 1
        if not strips.circle or problem.shape[1] >= 2 * least:
            given["strip_rows"] = draw(st.integers(max(1, least), problem.shape[1] + 8))
    return RunOptions.of(**(given | fixed))


def _has_halos(problem: Problem, depth: int | None) -> bool:
    """Whether blocks may have halos for so many steps, where axes close."""
    sizing = Sizing(problem)
    deepest = min(depth or 1, max(1, problem.deepest))
    return not any(
        problem.edges.periodic(axis) and halo.per_step and halo.cells(deepest) > problem.shape[axis]
        for axis, halo in zip(range(problem.ndim - 1), sizing.halos, strict=False)
    )


@st.composite
def _overlapped(draw: st.DrawFn, problem: Problem) -> dict[str, Any]:
    """Settings of scheme overlapped with blocks of any size."""
    interior = [len(inside) for inside in problem.interior]
    # Checks of restarts look at all blocks at each commit: six along an axis are enough.
    edges = [draw(st.integers(-(-extent // 6), extent + 3)) for extent in interior[:-1]]
    tiles = ("rows", "columns", "band", "group", "fetch", "stream")
    options: dict[str, Any] = {
        **dict.fromkeys(("slab_planes", *(f"tile_{name}" for name in tiles))),
        "scheme": "overlapped",
        "block": [*edges, interior[-1]],
    }
    if draw(st.booleans()):
        options["inner"] = [draw(st.integers(1, 20)) for _ in interior]
    if draw(st.booleans()):
        options["inner_depth"] = draw(st.integers(1, 6))
    return options
