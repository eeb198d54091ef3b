"""Reverse mode of every stencil, in NumPy: transposes to rounding, and Taylor's theorem."""

import ast
import json
import runpy
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import outgrid as og
from outgrid.errors import DefinitionError
from outgrid.stencil.adjoint_names import AdjointNames
from outgrid.stencil.catalog import CATALOG
from outgrid.stencil.model import Stencil
from outgrid.stencil.problem import PREVIOUS, Problem
from outgrid.stencil.reverse import reverse
from outgrid.testing.reference import initial_arrays, run_reference

EXAMPLES = Path(__file__).parents[3] / "examples"
LINEAR = ("heat5", "heat7", "box27", "wave:2", "wave:4", "wave:6", "wave:8")
MATCHED = {"kind": "matched", "width": 4, "courant": 0.3, "frequency": 0.05}


def _traced(name):
    path, _, function = name.partition(":")
    if path.startswith("tutorials/"):  # which run as they are read
        return _defined(EXAMPLES / path, function)
    if path == "image_mask.py":
        return runpy.run_path(str(EXAMPLES / path))["smoothing"](int(function))
    if path.endswith(".py"):
        made = runpy.run_path(str(EXAMPLES / path))[function]
        return made if hasattr(made, "trace") else made()
    return CATALOG[name]


def _defined(path, function):
    """A stencil of a program, by its imports and definitions alone."""
    kept = [
        node
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
        or (isinstance(node, ast.Import) and node.names[0].name in ("numpy", "outgrid"))
    ]
    names = {}
    exec(compile(ast.Module(kept, []), str(path), "exec"), names)
    return names[function]


MIXED = {"kind": [-1.0, 1.0, 2.0]}
"""Coefficients of a few values, of which no small change makes another one."""


def _problem(name, boundary="dirichlet", ndim=2, parameters=None, size=12):
    """Random values about 1, in which products, roots and quotients are smooth."""
    rng = np.random.default_rng(3)
    definition = _traced(name) if isinstance(name, str) else name
    try:
        traced = definition.trace(ndim)
    except DefinitionError:
        traced, size = definition.trace(3), min(size, 8)
    shape = tuple(size + axis for axis in range(traced.ndim))
    names = [field.name for field in traced.fields if not field.temporary]
    names += [f"{field.name}{PREVIOUS}" for field in traced.lasting if field.levels == 2]
    initial = {one: rng.uniform(0.8, 1.2, shape) for one in names}
    initial |= {one: rng.choice(MIXED[one], shape) for one in names if one in MIXED}
    given = {one: rng.uniform(0.1, 0.2) for one in traced.parameters}
    if not isinstance(boundary, dict) or boundary.get("kind") != "matched":
        given |= {
            one.name: rng.uniform(0.1, 0.2, shape[one.axis]).tolist()
            for one in traced.given_profiles
        }
    given |= parameters or {}
    return Problem(traced, shape, "float64", 3, given, boundary, initial)


def _states(problem):
    """The state before the first step, and after each."""
    states = [run_reference(problem.replace(steps=0))]
    for _ in range(problem.steps):
        states.append(run_reference(problem.replace(steps=1), states[-1]))
    return states


def _back(problem, bars, wrt, states=None, chunk=1, *, alike=False, weights=None):
    """The cotangents of what the problem begins with, and gradients by the fields in `wrt`.

    Of fields of second order in time without that of the previous level where steps are `alike`.
    `weights` are the derivatives of the objective by reductions.
    """
    weights = weights or {}
    states, now = states or _states(problem), dict(bars)
    one = reverse(problem, chunk, wrt, weights, alike=alike)
    for low in range(problem.steps - chunk, -1, -chunk):
        initial = {made.name: 0.0 for made in one.stencil.lasting}
        initial |= {f"{m.name}{PREVIOUS}": 0.0 for m in one.stencil.lasting if m.levels == 2} | now
        for made in one.stencil.coefficients:
            name, after = one.states.get(made.name, (made.name, 0))
            number = low + after
            previous = number < 0
            value = states[max(0, number)][name + PREVIOUS * previous]
            initial[made.name] = value
        given = one.parameters(problem, [low], weights)
        posed = Problem(one.stencil, problem.shape, "float64", 1, given, one.boundary, initial)
        end = run_reference(posed)
        names = [made.name for made in one.stencil.lasting]
        names += [f"{made.name}{PREVIOUS}" for made in one.stencil.lasting if made.levels == 2]
        now = {name: end[name] for name in names}
    return now


def _moved(problem, directions, far):
    initial = {
        name: value + far * directions.get(name, 0.0)
        for name, value in initial_arrays(problem).items()
    }
    end = run_reference(problem, initial)
    return {name: end[name] for name in directions if name in end}


def _inside(problem, rng):
    values = np.zeros(problem.shape)
    part = tuple(slice(along.start, along.stop) for along in problem.interior)
    values[part] = rng.normal(size=values[part].shape)
    return values


def _bars(problem):
    """What cotangents are called."""
    return AdjointNames(problem.stencil).cotangents


def _ends(problem):
    """Names of all levels that a step leaves."""
    names = [field.name for field in problem.stencil.lasting]
    return [*names, *(f"{f.name}{PREVIOUS}" for f in problem.stencil.lasting if f.levels == 2)]


@pytest.mark.parametrize("boundary", ["dirichlet", "mirror", "odd", "periodic"])
@pytest.mark.parametrize(
    "name", [*LINEAR, "hillslope.py:creep", "image_mask.py:5", "tutorials/notebook.py:heat"]
)
def test_linear_stencils_are_transposed_to_rounding(name, boundary):
    problem = _problem(name, boundary, size=19 if name == "wave:8" else 12)
    rng = np.random.default_rng(4)
    ends, bars = _ends(problem), _bars(problem)
    x, y = ({end: _inside(problem, rng) for end in ends} for _ in range(2))
    zero = problem.replace(initial={**problem.initial, **dict.fromkeys(ends, 0.0)})
    there = run_reference(zero, initial_arrays(zero) | x)
    back = _back(problem, {bars[end]: y[end] for end in ends}, [])
    terms = [there[end] * y[end] for end in ends]
    other = [x[end] * back[bars[end]] for end in ends]
    size = sum(float(np.abs(term).sum()) for term in terms)
    assert size > 0
    apart = sum(float(term.sum()) for term in terms) - sum(float(term.sum()) for term in other)
    assert abs(apart) <= 64 * np.finfo(float).eps * size


@pytest.mark.parametrize(
    ("name", "boundary"),
    [
        *product(
            ("wave:2", "wave:4", "shallow_water"),
            ("dirichlet", "mirror", "odd", "periodic", "zero"),
        ),
        ("acoustic_pml:2", MATCHED),
    ],
    ids=str,
)
def test_cotangents_of_second_order_are_those_of_two_levels(name, boundary):
    parameters = {"dt": 0.1, "dx": 2.0} if name == "shallow_water" else None
    problem = _problem(name, boundary, parameters=parameters)
    rng = np.random.default_rng(7)
    bars = {_bars(problem)[f.name]: _inside(problem, rng) for f in problem.stencil.lasting}
    wanted = [f.name for f in problem.stencil.coefficients]
    plain = _back(problem, bars, wanted)
    second = _back(problem, bars, wanted, alike=True)
    assert any(one.levels == 2 for one in reverse(problem, 1, wanted).stencil.lasting)
    for each in (*bars, *(AdjointNames(problem.stencil).gradients[one] for one in wanted)):
        np.testing.assert_allclose(second[each], plain[each], rtol=1e-12, atol=1e-12)


ROBIN = {"kind": "robin", "a": 1.0, "b": 0.5, "value": "0.1 * y"}
GIVEN = {"kind": "given", "value": "sin(x + step)"}
AFFINE = [
    ("heat5", {"x-": ROBIN, "x+": GIVEN, "y": "neumann"}, None),
    ("heat7", {"z-": GIVEN, "z+": {**ROBIN, "value": 0.3}, "x": "periodic"}, None),
    ("wave:2", {"x-": GIVEN, "y+": ROBIN}, None),
    ("wave:4", {"kind": "sponge", "width": 3}, None),
    *((f"acoustic_pml:{order}", MATCHED, None) for order in (2, 4, 6, 8)),
    ("shallow_water", "dirichlet", {"dt": 0.1, "dx": 2.0}),
    ("shallow_water", {"y": "odd", "x-": "zero"}, {"dt": 0.1, "dx": 2.0}),
    ("maxwell_box.py:box", {"z": "periodic"}, None),
    ("maxwell_cavity.py:cavity", "dirichlet", None),
    ("staggered.py:duct", {"x": "odd"}, None),
    ("elastic.py:elastic", "dirichlet", None),
    ("elastic.py:matched", "dirichlet", None),
    ("advection.py:carried", "periodic", None),
    ("channel.py:channel", "neumann", None),
    ("diffusivity.py:flow", "neumann", None),
    ("drude_sphere.py:scattered", "dirichlet", None),
    ("tilted.py:tilted", "dirichlet", None),
    ("tutorials/electromagnetics.py:yee", {"kind": "sponge", "width": 3}, None),
    ("tutorials/flow.py:carried", {"x": "periodic", "y": "neumann"}, None),
]


def test_every_stencil_of_the_catalogue_is_transposed_here():
    assert {name.partition(":")[0] for name in CATALOG} <= {
        name.partition(":")[0] for name in (*LINEAR, *(name for name, *_ in AFFINE))
    }


@pytest.mark.parametrize(("name", "boundary", "parameters"), AFFINE, ids=str)
def test_stencils_with_coefficients_and_faces_are_transposed_to_rounding(
    name, boundary, parameters
):
    """<y, J x> is <J* y, x>, where J x is what a run changes by when x is added to its start."""
    problem = _problem(name, boundary, parameters=parameters, size=20 if "pml" in name else 12)
    rng = np.random.default_rng(4)
    ends, bars = _ends(problem), _bars(problem)
    x, y = ({end: _inside(problem, rng) for end in ends} for _ in range(2))
    zero = problem.replace(initial={**problem.initial, **dict.fromkeys(ends, 0.0)})
    given = initial_arrays(zero)
    there, at_zero = run_reference(zero, given | x), run_reference(zero, given)
    back = _back(problem, {bars[end]: y[end] for end in ends}, [])
    terms = [(there[end] - at_zero[end]) * y[end] for end in ends]
    other = [x[end] * back[bars[end]] for end in ends]
    size = sum(float(np.abs(there[end] * y[end]).sum()) for end in ends)
    assert size > 0
    apart = sum(float(term.sum()) for term in terms) - sum(float(term.sum()) for term in other)
    assert abs(apart) <= 64 * np.finfo(float).eps * size


@pytest.mark.parametrize(
    ("name", "boundary"),
    [
        ("cahn_hilliard.py:cahn_hilliard", "periodic"),
        ("dam_break.py:dam_break", "periodic"),
        ("gray_scott.py:gray_scott", "dirichlet"),
        ("himeno.py:himeno", "dirichlet"),
        ("perona_malik.py:perona_malik", "dirichlet"),
        ("coherence.py:coherence", "neumann"),
        ("poisson.py:conjugate", "dirichlet"),
        ("lid_cavity.py:lattice", {"y": "periodic"}),
        ("tutorials/images.py:smooth", "neumann"),
    ],
)
def test_derivatives_that_depend_on_the_state_are_transposed_to_rounding(name, boundary):
    """J x is the transpose of the step back, which is linear: <y, J x> is <J* y, x>."""
    problem = _problem(name, boundary).replace(steps=1)
    rng = np.random.default_rng(4)
    ends, one = _ends(problem), reverse(problem, 1, [])
    bars = one.cotangents
    initial = {made.name: 0.0 for made in one.stencil.lasting}
    begin = run_reference(problem.replace(steps=0))
    for made in one.stencil.coefficients:
        field, _ = one.states.get(made.name, (made.name, 0))
        initial[made.name] = begin[field]
    given = one.parameters(problem, [0], {})
    back = Problem(one.stencil, problem.shape, "float64", 1, given, one.boundary, initial)
    x, y = ({bars[end]: _inside(problem, rng) for end in ends} for _ in range(2))
    there = run_reference(back, initial_arrays(back) | y)
    bars = _bars(back)
    again = _back(back, {bars[bar]: x[bar] for bar in x}, [], [initial_arrays(back)])
    terms = [there[bar] * x[bar] for bar in x]
    other = [again[bars[bar]] * y[bar] for bar in y]
    size = sum(float(np.abs(term).sum()) for term in terms)
    assert size > 0
    apart = sum(float(term.sum()) for term in terms) - sum(float(term.sum()) for term in other)
    assert abs(apart) <= 64 * np.finfo(float).eps * size


CURVED = [
    ("wave:4", "dirichlet", None),
    ("wave:2", {"y": "odd", "x-": "zero"}, None),
    ("wave:4", {"kind": "sponge", "width": 3}, None),
    *((f"acoustic_pml:{order}", MATCHED, None) for order in (2, 4)),
    ("shallow_water", "dirichlet", {"dt": 0.1, "dx": 2.0}),
    ("shallow_water", {"y": "odd", "x-": "zero"}, {"dt": 0.1, "dx": 2.0}),
    ("cahn_hilliard.py:cahn_hilliard", "periodic", None),
    ("dam_break.py:dam_break", "neumann", None),
    ("gray_scott.py:gray_scott", "neumann", None),
    ("himeno.py:himeno", "dirichlet", None),
    ("maxwell_box.py:box", {"z": "periodic"}, None),
    ("maxwell_cavity.py:cavity", "dirichlet", None),
    ("perona_malik.py:perona_malik", "neumann", None),
    ("staggered.py:duct", {"x": "odd"}, None),
    ("elastic.py:elastic", "dirichlet", None),
    ("elastic.py:matched", "dirichlet", None),
    ("coherence.py:coherence", "neumann", None),
    ("diffusivity.py:flow", "neumann", None),
    ("tilted.py:tilted", "dirichlet", None),
    ("lid_cavity.py:lattice", {"y": "periodic"}, None),
    ("tutorials/electromagnetics.py:yee", "dirichlet", None),
    ("tutorials/flow.py:carried", {"x": "periodic", "y": "neumann"}, None),
    ("tutorials/images.py:smooth", "neumann", None),
]


@pytest.mark.parametrize(("name", "boundary", "parameters"), CURVED, ids=str)
def test_derivatives_of_all_stencils_are_those_of_taylor(name, boundary, parameters):
    """What is left of a change beyond its first order falls with the square of its size."""
    problem = _problem(name, boundary, parameters=parameters, size=16)
    rng = np.random.default_rng(5)
    wrt = [field.name for field in problem.stencil.coefficients]
    ends, bars, gradients = _ends(problem), _bars(problem), AdjointNames(problem.stencil).gradients
    y = {end: _inside(problem, rng) for end in ends}
    directions = {start: _inside(problem, rng) for start in (*ends, *wrt)}
    back = _back(problem, {bars[end]: y[end] for end in ends}, wrt)
    slope = sum(
        float((directions[start] * back[bar]).sum())
        for start in directions
        for bar in (gradients[start] if start in wrt else bars[start],)
    )

    def value(far):
        end = _moved(problem, directions, far)
        return sum(float((end[name] * y[name]).sum()) for name in ends)

    here = value(0.0)
    far = 2.0**-12
    rest, half = (abs(value(size) - here - size * slope) for size in (far, far / 2))
    noise = 1e-13 * sum(float(np.abs(one).sum()) for one in y.values())
    assert rest <= abs(value(far) - here) / 10 + noise, "the slope is not that"
    assert half <= rest / 3 + noise, (rest, half)


def test_steps_together_are_steps_one_by_one():
    problem = _problem("shallow_water", parameters={"dt": 0.1, "dx": 2.0})
    rng = np.random.default_rng(6)
    bars = {_bars(problem)[end]: _inside(problem, rng) for end in _ends(problem)}
    one, three = (_back(problem, bars, [], chunk=chunk) for chunk in (1, 3))
    for name, values in one.items():
        assert np.array_equal(values, three[name])


@og.stencil
def _of_all_kinds(u, w, c, *, p, k):
    """What reverse mode makes names for: products, states, temporaries, images, numbers, sums."""
    slope = og.temporary(u[0, 1] * u[0, 1] - u[-1, 0])
    new = 2 * u - u.previous + c * w * slope[0, -1] * u[0, 1] - k.along("x") * p * u * u.previous
    return {"u": new, "energy": og.sum(p * w * u * u)}


def test_names_that_a_stencil_has_are_not_given_to_what_is_made():
    """Whatever a field or a parameter is called, the step back does the same."""
    problem = _problem(_of_all_kinds, "odd", size=6).replace(steps=2)
    weights = {"energy": [0.5, 0.25]}
    rng = np.random.default_rng(8)
    ends = _ends(problem)
    values = {end: _inside(problem, rng) for end in ends}

    def back(problem, states, number):
        names = AdjointNames(problem.stencil)
        bars = {names.cotangents[end]: values[end] for end in ends}
        made = _back(problem, bars, ["c", "k", number, "u"], states, weights=weights)
        wanted = [names.cotangents[end] for end in ends] + [names.gradients[one] for one in "ck"]
        return [made[name].tobytes() for name in wanted]

    states = _states(problem)
    one, plain = reverse(problem, 1, ["c", "k", "p", "u"], weights), back(problem, states, "p")
    made = {field.name for field in one.stencil.fields} | {*one.stencil.parameters}
    made |= {*one.profiles} | {reduction.name for reduction in one.stencil.reductions}
    made -= {field.name for field in problem.stencil.fields} | {"k"}
    assert {"u_bar", "c_grad", "u_at1", "energy_weight_0", "p_grad0", "image_x0"} <= made
    text = json.dumps(problem.stencil.to_dict())
    given = {**problem.parameters, "k": problem.profile_values("k").tolist()}
    for name in sorted(made | {"energy_weight"}):
        for old in "wp":

            def called(values, old=old, name=name):
                return {name if key == old else key: value for key, value in values.items()}

            rule = Stencil.from_dict(json.loads(text.replace(f'"{old}"', f'"{name}"')))
            parts = 2, called(given), "odd", called(problem.initial)
            posed = Problem(rule, problem.shape, "float64", *parts)
            number = name if old == "p" else "p"
            assert back(posed, [called(state) for state in states], number) == plain, (old, name)


def test_what_has_no_derivative_says_so():
    @og.stencil
    def stepped(u):
        return og.floor(u) + u[0, 1]

    @og.stencil
    def peaked(u):
        return {"u": u, "top": og.max(u)}

    with pytest.raises(DefinitionError, match="has no derivative; floor"):
        og.adjoint(_problem(stepped))
    with pytest.raises(DefinitionError, match="max 'top' has no derivative"):
        reverse(_problem(peaked), 1, [], ["top"])
