import itertools
import json
import platform
import re
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from outgrid import pipeline
from outgrid.build import compiler as compiling
from outgrid.build.compiler import Compiler, build, find_compiler
from outgrid.codegen import carrying, loops
from outgrid.codegen import masks as masking
from outgrid.codegen.kernel import generate
from outgrid.codegen.names import ring_order
from outgrid.codegen.statements import farthest_read
from outgrid.codegen.waist import waist
from outgrid.config import RunOptions
from outgrid.definition import stencil
from outgrid.errors import DefinitionError
from outgrid.execute.kernel import Kernel
from outgrid.execute.window import Window
from outgrid.plan.program import Advance, Get, Put, program
from outgrid.stencil.catalog import resolve
from outgrid.stencil.dtypes import WHOLE
from outgrid.stencil.expression import (
    OPERATIONS,
    Access,
    Constant,
    Operation,
    is_condition,
    nodes,
)
from outgrid.stencil.model import Assignment, Field, Stage, Stencil
from outgrid.stencil.problem import Problem
from outgrid.stencil.recomputed import recomputing
from outgrid.stencil.symbol import absolute, exp, maximum, minimum, sin, sqrt, step, tanh, where
from outgrid.stencil.temporary import temporary
from outgrid.testing.reference import reference_with_bound, run_reference

TINY = {"float32": np.finfo("f4").smallest_subnormal, "float64": np.finfo("f8").smallest_subnormal}
ODD = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 3.5, -1e-30, 1e30]


def move(window, each, whole):
    """Carry out a get or a put over an array that is the whole field, maybe a circle of planes."""
    rows = window.views(each)
    for place, view in enumerate(rows, start=each.first):
        plane = place % len(whole)
        if isinstance(each, Get):
            view[...] = whole[plane]
        else:
            whole[plane] = view.reshape(whole[plane].shape)


def advance(problem, arrays, library=None, **options):
    """The fields after all steps, moved in and out of the window as a resident plan says."""
    given = {"tier": "memory", "threads": 1, "fold": "never"} | options
    plan = pipeline.plan(problem, RunOptions.of(memory="1GiB", **given))
    library = library or build(
        generate(problem.stencil, problem.dtype, problem.edges, problem.dtypes), find_compiler()
    )
    kernel = Kernel.of(library, problem)
    window, found = Window(plan), {}
    for each in program(plan):
        if isinstance(each, Advance):
            kernel.advance(plan, window, each)
        elif isinstance(each, Get | Put):
            name = each.field + (".previous" if each.level else "")
            if isinstance(each, Put) and name not in found:
                found[name] = np.empty(problem.shape, problem.dtype_of(each.field))
            move(window, each, arrays[name] if isinstance(each, Get) else found[name])
    window.release()
    return found


def problem_of(rule, shape, dtype, steps=1, dtypes=None, **parameters):
    traced = rule.trace(len(shape)) if hasattr(rule, "trace") else rule
    initial = {field.name: 0.0 for field in traced.fields}
    return Problem(traced, shape, dtype, steps, parameters, initial=initial, dtypes=dtypes)


def pointwise(**operations: str) -> Stencil:
    """Fields become operations on others of the same cell: ``u="add v w"``."""
    read: dict[str, Access] = {}
    one, zero = Constant(1.0), Constant(0.0)
    made = []
    for target, text in operations.items():
        name, *fields = text.split()
        operands = tuple(read.setdefault(field, Access(field, 0, (0, 0))) for field in fields)
        if OPERATIONS[name].conditions:
            operands = tuple(Operation("lt", (zero, operand)) for operand in operands)
        result = Operation(name, operands)
        if OPERATIONS[name].condition:
            result = Operation("where", (result, one, zero))
        made.append(Assignment(target, result))
    fields = (*(Field(name, True) for name in operations), *(Field(name, False) for name in read))
    return Stencil("pointwise", 2, fields, (), (Stage(tuple(made)),))


def assert_same_bits(found, wanted):
    """The same numbers, and NaN in the same places."""
    number = ~np.isnan(wanted)
    assert found.dtype == wanted.dtype
    assert (np.isnan(found) == ~number).all()
    bits = f"u{wanted.itemsize}"
    assert (found.view(bits) == wanted.view(bits))[number].all()


def pairs(dtype):
    """Arrays of all pairs of odd values, and of random ones."""
    odd = np.array([*ODD, TINY[dtype], np.finfo(dtype).max], dtype)
    v, w = np.meshgrid(odd, odd)
    random = np.random.default_rng(0).standard_normal((2, 30, len(odd))).astype(dtype)
    return np.vstack([v, random[0]]), np.vstack([w, random[1]])


@pytest.fixture
def shipped(monkeypatch):
    """Kernels are compiled as for users."""
    monkeypatch.delenv("CXX", raising=False)


BINARY = ("add", "sub", "mul", "div", "min", "max", "lt", "le", "eq", "ne", "and", "or")
UNARY = ("neg", "abs", "sqrt", "not")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_operations_are_those_of_numpy_to_the_bit(dtype, shipped):
    v, w = pairs(dtype)
    binary = {f"u_{name}": f"{name} v w" for name in BINARY}
    rule = pointwise(**binary, **{f"u_{name}": f"{name} v" for name in UNARY})
    problem = problem_of(rule, v.shape, dtype)
    arrays = {name: np.zeros_like(v) for name in problem.initial} | {"v": v, "w": w}
    found, wanted = advance(problem, arrays), run_reference(problem, arrays)
    assert len(found) == len(BINARY + UNARY)
    for name, values in found.items():
        assert_same_bits(values, wanted[name])


def test_what_is_kept_in_less_is_rounded_as_numpy_does():
    v, w = pairs("float64")
    ties = 1 + np.arange(-3, v.shape[1] - 3) * 2.0**-25  # halfway between numbers, and not
    v, w = np.vstack([v, ties, [1e-40] * v.shape[1]]), np.vstack([w, 0 * ties, 1e-45 * ties])
    rule = pointwise(u="add v w")
    problem = Problem(
        rule, v.shape, "float64", 1, initial=dict.fromkeys("uvw", 0), dtypes={"u": "float32"}
    )
    arrays = {"u": np.zeros(v.shape, np.float32), "v": v, "w": w}
    found, wanted = advance(problem, arrays)["u"], run_reference(problem, arrays)["u"]
    assert found.dtype == np.float32
    assert np.isinf(wanted).any()
    assert (abs(wanted[wanted != 0]) < np.finfo(np.float32).tiny).any()
    assert_same_bits(found, wanted)


def values_of(kept, shape):
    """Values of a type, among them those at the ends of what it holds."""
    if kept == "float32":
        return np.resize(pairs(kept)[0], shape)
    limits = np.iinfo(kept)
    values = np.random.default_rng(0).integers(limits.min, limits.max, shape, kept)
    values[-1] = np.resize(
        np.array([limits.min, limits.min + 1, 0, limits.max - 1, limits.max], kept), shape[1]
    )
    return values


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_read_is_converted_as_numpy_does(dtype):
    shape = (42, 40)
    given = {f"v_{kept}": values_of(kept, shape) for kept in ("float32", *WHOLE) if kept != dtype}
    rule = pointwise(**{name.replace("v", "u"): f"neg {name}" for name in given})
    initial = dict.fromkeys([field.name for field in rule.fields], 0)
    kept = {name: values.dtype.name for name, values in given.items()}
    problem = Problem(rule, shape, dtype, 1, initial=initial, dtypes=kept)
    begin = {name: np.zeros(shape, dtype) for name in initial} | given
    found = advance(problem, begin)
    assert len(found) == len(given) >= 5
    for name, values in given.items():
        assert_same_bits(found[name.replace("v", "u")], -values.astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_product_and_a_sum_are_rounded_once(dtype):
    v, w, q = np.random.default_rng(1).standard_normal((3, 9, 37)).astype(dtype)
    problem = problem_of(pointwise(u="fma v w q"), v.shape, dtype)
    found = advance(problem, {"u": np.zeros_like(v), "v": v, "w": w, "q": q})["u"]
    exact = [
        Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        for a, b, c in zip(v.flat, w.flat, q.flat, strict=True)
    ]
    for value, wanted in zip(found.flat, exact, strict=True):
        below, above = (
            np.nextafter(value, -np.inf, dtype=dtype),
            np.nextafter(value, np.inf, dtype=dtype),
        )
        error = abs(Fraction(float(value)) - wanted)
        assert error <= abs(Fraction(float(below)) - wanted)
        assert error <= abs(Fraction(float(above)) - wanted)
    assert (found != v * w + q).any()


@stencil
def everything(u, v, c, *, k, j):
    """Every operation, uniform parts, the previous level, reads to all sides."""
    flux = minimum(u[0, 0, 1], v[1, 0, 0]) - maximum(u.previous, -c[0, 1, -2])
    return (
        u + k * j * flux + (u[-1, 0, 0] - 2.0) / (1.5 + absolute(v[0, -1, 0])),
        k * v[0, 0, -2] + j / sqrt(k) * c - (1 - k) * u[2, 0, 0] * v,
    )


@stencil
def conditional(u, c, *, k, j):
    """Conditions of cells and of what is uniform, functions, the number of the step."""
    uphill = (u[0, 1, 0] > u) & ~(u[0, 0, 1] == u[0, 0, -1]) | (c[0, 0, 1] < c)
    early = (step < 3) | (j > k)
    gain = where(early, exp(-k * step), 0.5)
    return where(uphill, u + gain * sin(c) * tanh(u[1, 0, 0]), u - k * where(early, u, c[0, 0, -1]))


@stencil
def derived(u, c, *, k):
    """Functions that are made of others, and the nearest whole number."""
    angle = np.arctan2(u[0, 0, 1] - 0.5, c - 0.5) + np.arctan(u) - np.tan(c / 2)
    steps = np.floor(9 * u) + round(7 * c[0, 1, 0]) + np.ceil(u[1, 0, 0] - k) - np.trunc(5 * c)
    turned = np.clip(steps % 3, 0.5, 1.5) * (step % 2) + np.sign(u - c) * (9 * u // 2)
    return u + 0.01 * (angle + turned + np.hypot(u, c) + np.cosh(u) - np.sinh(c))


@stencil
def staggered(e, hx, hy, c, *, k):
    """Maxwell's equations in 2-D on a staggered grid: each field in place."""
    return [
        {"hx": hx - k * (e[1, 0] - e), "hy": hy + k * (e[0, 1] - e)},
        {"e": e + k * c * (hy - hy[0, -1] - hx + hx[-1, 0])},
    ]


@stencil
def unequal(u, v, w, c, *, k):
    """Three stages with reaches of their own to all sides, one of second order in time."""
    return [
        {"u": u + k * (v[2, 0, 0] - v[-1, 0, 0] + v[0, 2, 1] * c[0, -1, 0])},
        {"v": v + k * (u[0, 0, 3] - u[1, -3, 0]), "w": 2 * w - w.previous + k * u[0, 1, 0]},
        {"c": c + k * (w[0, -1, 0] - c[0, 0, 1])},
    ]


@stencil
def flows(u, c, *, k):
    """What flows through faces, from both of their cells: rows carry it, planes share it."""

    def flow(*face):
        side = tuple(abs(step) for step in face[1:] + face[:1])
        back = tuple(-step for step in side)
        along = u[face] - u
        beside = tuple(a + b for a, b in zip(face, side, strict=True))
        behind = tuple(a + b for a, b in zip(face, back, strict=True))
        across = (u[side] - u[back]) + (u[beside] - u[behind])
        return exp(-k * (along * along + across * across)) * absolute(along) * (c + c[face])

    faces = [flow(*(sign * (axis == n) for n in range(3))) for axis in range(3) for sign in (1, -1)]
    return u + 0.1 * ((faces[0] + faces[1]) - (faces[2] + faces[3]) + (faces[4] + faces[5]))


POPULATIONS = [f"f{n}" for n in range(16)]
OFFSETS = [(z, y, x) for z in (-1, 0) for y in (-1, 1) for x in (-1, 0, 1, 2)]
OFFSETS = [each for offset in OFFSETS[:8] for each in (offset, tuple(-c for c in offset))]


@stencil
def colliding(
    f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, memory, *, k
):  # fmt: skip
    """Pairs that arrive from all sides and depend on sums of all; a memory stays in its cell."""
    given = (f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15)
    arrived = [field[offset] for field, offset in zip(given, OFFSETS, strict=True)]
    pairs = list(zip(arrived[::2], arrived[1::2], strict=True))
    whole = memory
    flow = 0.5 * memory
    for number, (a, b) in enumerate(pairs):
        whole, flow = whole + (a + b), flow + (number + 0.25) * (a - b)
    rest = whole - 0.125 * (flow * flow)
    side = where(flow > 0, 1.0, 0.5)
    made = {"memory": memory - k * rest}
    for number, (a, b) in enumerate(pairs):
        along = where(flow > 0, flow, number + side) - (number + 0.5) * rest
        even = k * (0.5 * (a + b) - 0.0625 * (rest + along * along * memory))
        odd = k * (0.5 * (a - b) - 0.03125 * along)
        made |= {
            POPULATIONS[2 * number]: a - even - odd,
            POPULATIONS[2 * number + 1]: b - even + odd,
        }
    return made


RULES = {
    "everything": everything,
    "flows": flows,
    "conditional": conditional,
    "derived": derived,
    "staggered": staggered,
    "unequal": unequal,
}


@pytest.mark.parametrize(("name", "shape"), [("conditional", (9, 9, 9)), ("staggered", (9, 9))])
def test_no_name_reaches_a_kernel(name, shape):
    """Names of C++, or none of any language, give the same text: all but its digest is numbers."""
    found = RULES[name].trace(len(shape))
    text = json.dumps(found.to_dict(), ensure_ascii=False)
    given = [field.name for field in found.fields] + list(found.parameters)
    for old, new in zip(given, ("int", "kLanes", "s", "abort", "größe"), strict=False):
        text = text.replace(f'"{old}"', f'"{new}"')
    renamed = Stencil.from_dict(json.loads(text))
    assert [field.name for field in renamed.fields][:2] == ["int", "kLanes"]
    sources = [generate(each, "float64").splitlines() for each in (found, renamed)]
    assert sources[0][1:] == sources[1][1:]


def random_arrays(problem):
    generator = np.random.default_rng(3)
    found = {}
    for name in problem.initial:
        kept = np.dtype(problem.dtype_of(name.removesuffix(".previous")))
        values = generator.random(problem.shape)
        found[name] = (values if kept.kind == "f" else 3 * values).astype(kept)
    return found


def baseline(problem, arrays):
    return advance(problem, arrays, scheme="plain")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns", [5, 8, 16, 31, 64, 70])
def test_cells_of_the_boundary_layer_keep_their_bits(columns, dtype):
    problem = problem_of(everything, (9, 7, columns), dtype, 3, k=0.3, j=0.7)
    arrays = random_arrays(problem)
    for name in ("u", "v"):
        arrays[name][:, 0, 0] = np.nan
        arrays[name][0, 0, :] = -0.0
    found = advance(problem, arrays, depth=3)
    layer = np.ones(problem.shape, bool)
    layer[tuple(slice(inside.start, inside.stop) for inside in problem.interior)] = False
    bits = f"u{found['u'].itemsize}"
    for name in ("u", "v"):
        assert (found[name].view(bits) == arrays[name].view(bits))[layer].all()


ORDERS = [
    {"depth": 6, "slab_planes": slab, "tile_rows": rows, "threads": 1 + number % 2}
    for number, (slab, rows) in enumerate(itertools.product((1, 4, 9), (1, 6, 40)))
]
# More threads than diamonds in a row, and than processors: each waits for others that do not run.
ORDERS += [{"depth": 6, "slab_planes": 2, "tile_rows": 1, "threads": n} for n in (7, 64)]
# Rows of fewer planes at once than there are, one after the other.
ORDERS += [{"depth": depth, "tile_group": group} for depth, group in ((1, 1), (6, 1), (6, 3))]
# Edges of diamonds fetched ahead, through whole steps of the front and a last part of one; steps
# that are stored past the caches.
ORDERS += [
    {"depth": 6, "tile_rows": rows, "tile_planes": planes, "tile_fetch": fetch}
    for rows, planes, fetch in ((6, 1, True), (6, 3, True), (40, 2, True), (6, 2, False))
]
ORDERS += [{"depth": 1, "tile_stream": True, "tile_group": group} for group in (1, 8)]
# Rows that are cut, into lines and into unequal parts; and bands of rows, through whole ones too.
PARTS = [
    {"depth": 6, "slab_planes": slab, "tile_rows": 6, "tile_columns": columns, "threads": 2}
    for slab, columns in itertools.product((1, 9), (1, 20, 34))
]
PARTS += [
    {
        "depth": 6,
        "slab_planes": slab,
        "tile_rows": 40,
        "tile_planes": planes,
        "tile_columns": columns,
        "tile_band": band,
        "threads": 2,
    }
    for slab, planes, columns, band in ((1, 4, 35, 1), (9, 2, 35, 3), (9, 8, 35, 7), (4, 3, 16, 2))
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["heat5", "shallow_water", "heat7", "box27", "wave:8", *RULES])
def test_every_order_gives_the_same_bytes(name, dtype, shipped):
    rule = RULES.get(name) or resolve(name)
    shape = (30, 80) if name in ("heat5", "shallow_water", "staggered") else (20, 21, 35)
    given = {
        "everything": {"k": 0.3, "j": 0.7},
        "conditional": {"k": 0.3, "j": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]},
        "shallow_water": {"dt": 0.1, "dx": 3.0},
        "derived": {"k": 0.3},
        "flows": {"k": 0.3},
        "staggered": {"k": 0.3},
        "unequal": {"k": 0.1},
    }
    problem = problem_of(rule, shape, dtype, 6, **given.get(name, {}))
    arrays = random_arrays(problem)
    wanted = baseline(problem, arrays)
    for options in ORDERS + (PARTS if len(shape) == 3 else []):
        found = advance(problem, arrays, **options)
        for field, values in wanted.items():
            assert found[field].tobytes() == values.tobytes(), (field, options)


def masked(u, kind, *, k=0.1):
    """Heat between walls, with a choice and a use of the mask that +0 does not decide."""
    beside = [(0, 0, 1), (0, 0, -1), (0, 1, 0), (0, -1, 0), (1, 0, 0), (-1, 0, 0)]
    total = u * (1 - kind[0, 1, -2])
    for place in beside:
        total = total + k * where(~(kind[place] > 0), u[place], 2 * u)
    total = where(kind < 1e-50, total, -total)  # in float32 the number is 0
    return where(u > 0.25, total, where((kind <= 0) & (kind[0, 2, 0] < 1), u, k * total))


@pytest.mark.parametrize("kept", [None, "uint8"])
@pytest.mark.parametrize("boundary", ["frozen", {"z": "periodic", "y": "frozen", "x": "mirror"}])
def test_rows_around_which_a_mask_is_empty_give_the_same_bytes(kept, boundary, monkeypatch):
    rule, shape = stencil(ndim=3)(masked).trace(3), (14, 21, 70)
    dtypes = {"kind": kept} if kept else None
    initial = {"u": 0.0, "kind": 0.0}
    problem = Problem(rule, shape, "float32", 6, boundary=boundary, initial=initial, dtypes=dtypes)
    arrays = random_arrays(problem)
    kinds = np.zeros(shape, kept or "float32")
    kinds[3, 5, 40] = kinds[9, :, 0] = kinds[4:6, 15, -1] = 1
    if not kept:
        kinds[7, 12:14, 3] = [-0.0, np.nan]
        kinds[12, 3] = -0.0
    arrays["kind"] = kinds

    def source(least):
        monkeypatch.setattr(masking, "LEAST_PARTS", least)
        return generate(problem.stencil, problem.dtype, problem.edges, problem.dtypes)

    sources = source(10**6), source(1)
    assert ["folded_0_1(" in text for text in sources] == [False, True]
    whole, both = (build(text, find_compiler()) for text in sources)
    wanted = advance(problem, arrays, whole)["u"].tobytes()
    for options in (*ORDERS[::4], *PARTS[::3]):
        assert advance(problem, arrays, both, **options)["u"].tobytes() == wanted, options


def test_masks_are_folded_in_where_rows_are_those_of_the_grid(monkeypatch):
    monkeypatch.setattr(masking, "LEAST_PARTS", 1)
    rule = stencil(ndim=3)(masked).trace(3)
    initial = {"u": 0.0, "kind": 0.0}
    problem = Problem(rule, (14, 21, 70), "float32", 6, boundary="periodic", initial=initial)
    assert "void folded_" not in generate(problem.stencil, problem.dtype, problem.edges, {})


def expressions_of(rule):
    return [each.expression for each in rule.trace(3).assignments]


def test_few_values_are_made_first_of_what_depends_on_sums_of_all():
    kept = waist(expressions_of(colliding))
    assert len(kept) <= 3
    assert not any(map(is_condition, kept))
    first = {n for n in nodes(*kept) if isinstance(n, Operation)}
    assert len(first) > 30
    # What is kept leads to all that is made.
    assert all(set(kept) & {*nodes(root)} for root in expressions_of(colliding))


def test_small_updates_and_those_of_one_long_sum_stay_whole():
    @stencil
    def summed(u):
        total, places = 0.1 * u, [(z, y, x) for z in range(5) for y in range(5) for x in range(5)]
        for number, place in enumerate(places):
            total = total + (number + 0.5) * u[place]
        return total

    assert waist(expressions_of(summed)) == ()
    assert waist([expressions_of(colliding)[1]]) == ()  # all of its values are needed once


@pytest.mark.parametrize(
    ("columns", "boundary"), [(70, "frozen"), (203, {"x": "periodic", "y": "neumann"})]
)
def test_two_loops_give_the_bytes_of_one(columns, boundary, monkeypatch):
    rule = colliding.trace(3)
    initial = {field.name: 0.0 for field in rule.fields}
    problem = Problem(rule, (9, 11, columns), "float64", 4, {"k": 0.3}, boundary, initial)
    arrays = random_arrays(problem)
    both = generate(problem.stencil, problem.dtype, problem.edges)
    monkeypatch.setattr(loops, "waist", lambda roots: ())
    one = generate(problem.stencil, problem.dtype, problem.edges)
    assert ["auto after = " in source for source in (both, one)] == [True, False]
    one, both = (build(source, find_compiler()) for source in (one, both))
    wanted = advance(problem, arrays, one, scheme="plain")
    ways = ({"scheme": "plain"}, {"depth": 4, "tile_rows": 6}, {"depth": 1, "tile_stream": True})
    for way in ways:
        found = advance(problem, arrays, both, **way)
        for name, values in wanted.items():
            assert np.isfinite(values).all()
            assert_same_bits(found[name], values)


def innermost_loops(library):
    """The instructions of the loops without a loop or a call inside, as objdump tells them.

    A jump forward is allowed: it leads over what is stored past the caches, or fetched.
    """
    command = ["objdump", "-d", "--no-show-raw-insn", str(library)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = re.findall(r"^ *([0-9a-f]+):\t(.*)$", text, re.MULTILINE)
    places = {place: number for number, (place, _) in enumerate(lines)}
    for end, (_, instruction) in enumerate(lines):
        jump = re.match(r"j\w+ +([0-9a-f]+) ", instruction)
        first = places.get(jump[1], end) if jump else end
        body = [each for _, each in lines[first:end]]
        targets = (re.match(r"j\w+ +([0-9a-f]+) ", each) for each in body)
        back = any(
            to and first <= places.get(to[1], -1) <= first + number
            for number, to in enumerate(targets)
        )
        if body and not back and not any(each.startswith(("call", "ret")) for each in body):
            yield body


@pytest.mark.skipif(
    shutil.which("objdump") is None
    or shutil.which("g++") is None
    or platform.machine() != "x86_64",
    reason="there is no objdump, or no g++, for x86_64",
)
@pytest.mark.parametrize(
    ("name", "dtype", "operations"),
    [("heat5", "float32", 20), ("heat7", "float64", 28), ("box27", "float64", 50)],
)
def test_the_loop_over_four_rows_is_nothing_but_whole_vectors(name, dtype, operations, shipped):
    processor = Path("/proc/cpuinfo").read_text()
    register = "%zmm" if " avx512f " in processor else "%ymm" if " avx2 " in processor else ""
    if not register or " fma " not in processor:
        pytest.skip("this processor has no avx2")
    ndim = 2 if name == "heat5" else 3
    source = generate(resolve(name).trace(ndim), dtype)
    packed = "ps" if dtype == "float32" else "pd"
    kind = re.compile(rf"v(add|sub|mul|fn?m(add|sub)\d+){packed}\s")
    found = []
    for body in innermost_loops(build(source, find_compiler()).path):
        arithmetic = [each for each in body if kind.match(each)]
        times, rest = divmod(len(arithmetic), operations)  # more than once where it is unrolled
        if times and not rest and all(register in each for each in arithmetic):
            found.append((body, times))
    assert found, f"no loop with {operations} operations on {register}"
    for body, times in found:
        text = "\n".join(body)
        # Instructions of single numbers; those of whole numbers, such as vpminsd, are of vectors.
        assert not re.search(r"gather|scatter|v(?!p|broadcast)\w+(ss|sd)\s", text), text
        # Each row is stored once, in one of two ways: past the caches, or not. What does not find
        # room in a register goes to the stack.
        stores = [
            each
            for each in body
            if re.match(rf"vmov\w+\s+{register}\d+,.*\(", each)
            and not ("(%rsp)" in each or "(%rbp)" in each)
        ]
        assert len(stores) == 4 * times, text


def weighted(u, *reach):
    """The sum over a box, all weights different: a chain too long for one vector at a time."""
    offsets = list(itertools.product(*(range(-r, r + 1) for r in reach)))
    total = 0.9 * u[offsets[0]]
    for number, offset in enumerate(offsets[1:]):
        total = total + u[offset] * (1 + 0.01 * number)
    return total / len(offsets)


@stencil(ndim=2)
def mask(u):
    return weighted(u, 4, 4)


@stencil(ndim=3)
def cube(u, c, *, k):
    return u - u.previous + k * c[0, 1, 20] * weighted(u, 2, 1, 2)


@pytest.mark.parametrize(
    ("rule", "shape", "dtype"),
    [
        (mask, (20, 200), "float32"),
        (mask, (12, 133), "float64"),
        (cube, (9, 7, 150), "float32"),
    ],
)
@pytest.mark.parametrize("dtypes", [{}, {"u": "float32"}], ids=str)
def test_blocks_of_vectors_give_the_bytes_of_single_ones(rule, shape, dtype, dtypes, monkeypatch):
    if dtypes == {"u": dtype}:
        pytest.skip("it is the type that is computed in")
    problem = problem_of(rule, shape, dtype, 4, dtypes, **({"k": 0.3} if rule is cube else {}))
    arrays = random_arrays(problem)
    tiled = {"depth": 4, "slab_planes": 3, "tile_rows": 40, "threads": 2}
    found = [baseline(problem, arrays), advance(problem, arrays, **tiled)]
    source = generate(problem.stencil, dtype, apart=problem.dtypes)
    monkeypatch.setattr("outgrid.codegen.rows.block_vectors", lambda _: 1)
    assert generate(problem.stencil, dtype, apart=problem.dtypes) != source
    wanted = baseline(problem, arrays)["u"]
    assert (wanted != arrays["u"]).any()
    for fields in found:
        assert fields["u"].tobytes() == wanted.tobytes()


FACES = [
    ("wave:4", {"z-": "neumann", "z+": "mirror", "y": "periodic", "x-": "mirror", "x+": 0.5}),
    ("wave:4", {"z": "periodic", "y-": "mirror", "x": "neumann"}),
    ("box27", "periodic"),
    ("heat5", {"y": "neumann", "x": "mirror"}),
    ("staggered", {"y-": 1.0, "x": "neumann", "fields": {"e": {"y": "mirror"}}}),
    ("unequal", {"z": "mirror", "y-": "neumann", "fields": {"v": {"z": "neumann", "y-": 0.0}}}),
    ("unequal", {"z-": "neumann", "x": "periodic"}),
    ("flows", {"z-": "neumann", "y-": "mirror", "x": "mirror"}),
    ("flows", {"y": "periodic", "x": "neumann"}),
    ("flows", {"z": "odd", "y": "odd", "x-": "neumann"}),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "faces"), FACES)
def test_what_lies_beyond_a_face_is_the_same_in_every_order(name, faces, dtype):
    rule = RULES.get(name) or resolve(name)
    shape = (18, 40) if name in ("heat5", "staggered") else (13, 14, 35)
    values = {"flows": {"k": 0.3}, "staggered": {"k": 0.3}, "unequal": {"k": 0.1}}.get(name, {})
    initial = dict.fromkeys([field.name for field in rule.trace(len(shape)).fields], 0.0)
    problem = Problem(rule, shape, dtype, 6, values, faces, initial)
    # Fixed layers as the problem says: in the reference they are set before the first step.
    begin = Problem(rule, shape, dtype, 0, values, faces, initial)
    arrays = run_reference(begin, random_arrays(problem))
    wanted = baseline(problem, arrays)
    reference, bounds = reference_with_bound(problem, arrays)
    for field, found in wanted.items():
        error = np.abs(found.astype(float) - reference[field].astype(float))
        assert (error <= 2 * bounds[field]).all(), field
    for options in ORDERS:
        found = advance(problem, arrays, **options)
        for field, values in wanted.items():
            assert found[field].tobytes() == values.tobytes(), (field, options)


def carried_in(buffer_bytes, monkeypatch):
    """The source of a kernel with buffers of that size, which gives the same bytes."""
    problem = problem_of(flows, (9, 8, 150), "float32", 4, k=0.3)
    arrays = random_arrays(problem)
    wanted = baseline(problem, arrays)["u"]
    monkeypatch.setattr(carrying, "BUFFER_BYTES", buffer_bytes)
    source = generate(problem.stencil, "float32", problem.edges)
    found = advance(problem, arrays, build(source, find_compiler()), depth=4, tile_rows=6)["u"]
    assert found.tobytes() == wanted.tobytes()
    return source


def test_long_rows_carry_their_values_in_parts(monkeypatch):
    assert "2048 / sizeof(V)" in carried_in(4 * 8 * 64, monkeypatch)


def test_no_more_values_are_carried_than_buffers_hold_vectors_of(monkeypatch):
    source = carried_in(4 * 64 * 3, monkeypatch)
    assert re.findall(r"kValues = (\d+)", source) == ["3", "2", "1"]


def build_for(source, monkeypatch, command, *flags):
    """Compiled by another compiler, or for another processor."""
    dropped = ("-march=native", "-mprefer-vector-width=512")
    kept = tuple(flag for flag in compiling.FLAGS if flag not in dropped)
    monkeypatch.setattr(compiling, "FLAGS", (*kept, *flags))
    monkeypatch.setattr(compiling, "GCC_FLAGS", ())
    return build(source, Compiler((command,), " ".join(flags)))


@pytest.mark.parametrize(
    ("command", "flags", "dtype"),
    [
        ("g++", ["-march=x86-64"], "float32"),
        ("g++", ["-march=x86-64"], "float64"),
        ("g++", ["-march=x86-64-v3"], "float32"),
        ("g++", ["-march=x86-64-v4"], "float32"),
        ("g++", ["-march=native"], "float64"),
        ("clang++", ["-march=native"], "float32"),
        ("clang++", ["-march=x86-64-v3"], "float64"),
    ],
)
@pytest.mark.parametrize("dtypes", [{}, {"u": "float32", "c": "uint8"}], ids=str)
def test_compilers_and_processors_agree_to_the_bit(command, flags, dtype, dtypes, monkeypatch):
    if shutil.which(command) is None or platform.machine() != "x86_64":
        pytest.skip(f"there is no {command} for x86_64")
    processor = Path("/proc/cpuinfo").read_text()
    for flag, needed in (("-march=x86-64-v3", " avx2 "), ("-march=x86-64-v4", " avx512f ")):
        if flag in flags and needed not in processor:
            pytest.skip(f"this processor has no{needed}".rstrip())
    problem = problem_of(everything, (12, 9, 41), dtype, 4, dtypes, k=0.3, j=0.7)
    arrays = random_arrays(problem)
    wanted = baseline(problem, arrays)
    source = generate(problem.stencil, dtype, apart=problem.dtypes)
    library = build_for(source, monkeypatch, command, *flags)
    found = advance(problem, arrays, library, depth=4)
    for field, values in wanted.items():
        assert found[field].tobytes() == values.tobytes(), field


@pytest.mark.parametrize(
    ("command", "flag"), [("clang++", "-march=x86-64"), ("g++", "-march=x86-64-v3")]
)
def test_blocks_of_short_vectors_give_the_same_bytes(command, flag, monkeypatch):
    if shutil.which(command) is None or platform.machine() != "x86_64":
        pytest.skip(f"there is no {command} for x86_64")
    if flag.endswith("v3") and " avx2 " not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this processor has no avx2")
    problem = problem_of(mask, (14, 90), "float32", 2)
    arrays = random_arrays(problem)
    wanted = baseline(problem, arrays)["u"]
    # Blocks are written out by the generator, whatever the compiler does at -O3, which takes long.
    library = build_for(generate(problem.stencil, "float32"), monkeypatch, command, flag, "-O1")
    assert advance(problem, arrays, library, depth=2)["u"].tobytes() == wanted.tobytes()


def test_kernels_compile_without_a_warning(tmp_path):
    for name, dtype, apart in [
        ("wave:8", "float64", {}),
        ("everything", "float32", {}),
        ("conditional", "float64", {}),
        ("unequal", "float32", {}),
        ("cube", "float32", {}),
        ("wave:8", "float64", {"c": "uint16"}),
        ("everything", "float64", {"u": "float32", "c": "int8"}),
        ("cube", "float64", {"u": "float32"}),
    ]:
        rule = (RULES | {"cube": cube}).get(name) or resolve(name)
        source = tmp_path / "kernel.cpp"
        source.write_text(generate(rule.trace(3), dtype, apart=apart))
        warnings = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
        flags = [*compiling.FLAGS, *warnings, "-o", "/dev/null"]
        done = subprocess.run(["g++", *flags, source], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_the_same_stencil_has_the_same_source_whatever_it_is_called():
    def rule(u, c, *, k):
        return u + k * c * u[0, 1]

    first = stencil(name="first")(rule).trace(2)
    text = generate(first, "float32")
    assert text == generate(first, "float32")
    assert text != generate(first, "float64")
    # Neither the grid nor values of parameters are part of it.
    assert "0.3" not in text


def test_columns_of_vectors_look_up_once_what_differs_along_rows():
    layers = {"kind": "matched", "width": 7, "courant": 0.4, "frequency": 0.02}
    zeroes = {"p": 0.0, "slope": 0.0, "bend": 0.0, "c": 0.1}
    problem = Problem("acoustic_pml:4", (40, 40, 40), "float32", 1, {}, layers, zeroes)
    source = generate(problem.stencil, "float32", problem.edges)
    columns = [text for text in source.split("static void ") if "auto rows" in text]
    assert columns
    for function in columns:
        cells, loop = function.split("auto cells", 1)[1].split("for (int64_t x", 1)
        assert "along_row(" not in cells
        assert "along_row(" in loop.partition("auto rows")[0]
        assert "load_beside<-1>(" in cells
        assert not re.search(r"load\([^()]* [+-] \d\)", cells)


def test_names_of_a_stencil_are_none_that_kernels_make_up():
    def carrying_rows(name):
        def rule(u, *, k):
            x = temporary(k * u, name=name)
            along = x[0, 1, 0] - x
            flow = tanh(along) * exp(-along * along) + along / sqrt(1 + along * along)
            return u + (flow - flow[0, -1, 0]) * x

        return stencil(ndim=3)(rule).trace(3)

    def again(rule):
        return recomputing(stencil(ndim=3)(rule).trace(3), ["temporary1"])

    def source(rule):
        return generate(rule, "float64").partition("\n")[2]  # without the digest

    wanted = source(carrying_rows("x"))
    assert "store(carried[0]" in wanted
    assert source(carrying_rows("carried0")) == wanted
    wanted = source(again(lambda u, *, k: u + temporary(k.along("x") * u)[0, 0, 1]))
    assert "inside_row<" in wanted
    assert (
        source(again(lambda u, *, inside: u + temporary(inside.along("x") * u)[0, 0, 1])) == wanted
    )


def test_names_that_mean_something_in_another_language_do_no_harm():
    @stencil
    def rule(double, new, *, int32_t, V):  # noqa: N803
        return double + int32_t * new[0, 1] * V, new

    problem = problem_of(rule, (7, 9), "float64", 2, int32_t=0.5, V=0.25)
    arrays = random_arrays(problem)
    found = advance(problem, arrays)
    reference = run_reference(problem, arrays)
    assert np.allclose(found["double"], reference["double"], rtol=1e-14)


def test_rings_stand_in_the_order_of_fields_and_indices():
    found = [(slot.field, slot.index) for slot in ring_order(everything.trace(3))]
    assert found == [("u", 0), ("u", 1), ("v", 0), ("v", 1), ("c", 0)]


@pytest.mark.parametrize(("dtype", "farthest"), [("float64", 496), ("float32", 992)])
def test_a_reach_along_x_beyond_the_guard_of_the_window_is_refused(dtype, farthest):
    def rule_of(reach):
        return stencil(name="far")(lambda u: u[1, reach] + u[-1, -reach]).trace(2)

    problem = problem_of(rule_of(farthest), (9, 2 * farthest + 30), dtype, 2)
    arrays = random_arrays(problem)
    found = advance(problem, arrays, depth=2)["u"]
    assert (found == run_reference(problem, arrays)["u"]).all()
    with pytest.raises(DefinitionError, match=f"reads {farthest + 1} cells .* reach {farthest}"):
        generate(rule_of(farthest + 1), dtype)


@pytest.mark.parametrize(("dtype", "reach"), [("float64", 490), ("float32", 700)])
def test_what_is_computed_ahead_reads_within_the_guard_of_the_window(dtype, reach):
    @stencil(name="far", ndim=3)
    def rule(u):
        near = 0.1 * (u[1, 0, -1] + u[1, 0, 0] + u[1, 0, 1])
        wide = 0.1 * (u[0, 0, -reach] + u + u[0, 0, reach])
        right = 0.01 * ((u[1, 1, reach] + u[1, 1, reach - 1]) + u[1, 1, reach - 2])
        left = 0.01 * ((u[-1, -1, -reach] + u[-1, -1, 1 - reach]) + u[-1, -1, 2 - reach])
        return (near + wide) + (right + left)

    problem = problem_of(rule, (5, 5, 2 * reach + 20), dtype)
    source = generate(problem.stencil, dtype)
    ahead = re.findall(r"\+ next(?: [+-] \d+ \* stride)?(?: [+-] (\d+))?\)", source)
    (cut,) = re.findall(r"kReach = \((\d+)", source)
    assert int(cut) + max(int(column or 0) for column in ahead) <= farthest_read(dtype)
    arrays = random_arrays(problem)
    found = advance(problem, arrays, build(source, find_compiler()))["u"]
    reference, bounds = reference_with_bound(problem, arrays)
    assert (np.abs(found - reference["u"]) <= 2 * bounds["u"]).all()
