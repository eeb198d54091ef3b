"""Gradients: against differences of the reference, and the same bytes however they are made."""

import shutil

import numpy as np
import pytest

import outgrid as og
from outgrid.errors import DefinitionError, InfeasiblePlan, StoreError, UsageError
from outgrid.reversal.back import Back
from outgrid.stencil.catalog import CATALOG, resolve
from outgrid.stencil.points import corners
from outgrid.stencil.problem import Problem
from outgrid.storage import SeriesStore
from outgrid.testing.reference import initial_arrays, run_reference

STEPS = 4


@og.stencil
def bent(u, v, c, *, k, amount):
    """Two stages, products of states, masks, a previous level and a number per step."""
    slope = u[0, 1] - u[-1, 0]
    return [
        {"v": v + k * og.where(slope > 0, c * slope * slope, og.sin(v)) - og.absolute(u[0, -1])},
        {"u": u - 0.1 * u.previous[1, 0] + amount * og.maximum(v[0, 1], og.exp(-u)) / (c + 1)},
    ]


def _problem(stencil, shape, boundary="dirichlet", parameters=None, steps=STEPS, dtype="float64"):
    """Random values, a source and receivers between cells."""
    rng = np.random.default_rng(7)
    traced = (resolve(stencil) if isinstance(stencil, str) else stencil).trace(len(shape))
    names = [field.name for field in traced.fields if not field.temporary]
    names += [f"{field.name}.previous" for field in traced.lasting if field.levels == 2]
    initial = {name: rng.uniform(0.05, 0.15, shape).astype(dtype) for name in names}
    first = traced.lasting[-1].name
    middle = [extent // 2 for extent in shape]
    return Problem(
        traced,
        shape,
        dtype,
        steps,
        parameters,
        boundary,
        initial,
        3,
        [og.Source(first, [place + 0.25 for place in middle], rng.normal(size=steps))],
        [og.Receiver(first, [place + part for place in middle]) for part in (-0.5, 1)],
    )


def _objective(problem):
    rng = np.random.default_rng(8)
    final = {each.name: rng.normal(size=problem.shape) for each in problem.stencil.lasting}
    return og.LeastSquares(rng.normal(size=(problem.steps, 2)), final)


def _value(problem, objective):
    traces = []

    def seen(state):
        traces.append(
            [
                sum(weight * state[each.field][cell] for cell, weight in corners(each.position))
                for each in problem.receivers
            ]
        )

    end = run_reference(problem, seen=seen)
    inside = tuple(slice(each.start, each.stop) for each in problem.interior)
    apart = [np.array(traces) - objective.observed]
    apart += [end[name][inside] - there[inside] for name, there in objective.final.items()]
    return sum(0.5 * float((each**2).sum()) for each in apart)


def _moved(problem, name, direction, far):
    """The problem with what is called `name` changed a little."""
    if name == "sources":
        (source,) = problem.sources
        values = np.array(source.values) + far * direction
        return problem.replace(sources=[og.Source(source.field, source.position, values)])
    if name in problem.initial:
        moved = np.asarray(problem.initial[name]) + far * direction
        alike = [each for each, value in problem.initial.items() if value is problem.initial[name]]
        return problem.replace(initial={**problem.initial, **dict.fromkeys(alike, moved)})
    given = {each: problem.profile_values(each) for each in problem.profiles}
    changed = {name: np.array(problem.parameters[name]) + far * direction}
    changed = {each: value.tolist() for each, value in changed.items()}
    return problem.replace(parameters={**problem.parameters, **given, **changed})


def _check(problem, tmp_path, wrt=None, **options):
    """Compare derivatives along random directions with central differences."""
    objective = _objective(problem)
    wrt = wrt or [*problem.initial, *problem.stencil.parameters, "sources"]
    found = og.gradient(problem, objective, wrt=wrt, out=tmp_path / "g", **options)
    assert found.value == pytest.approx(_value(problem, objective), rel=1e-12)
    inner = np.zeros(problem.shape)
    inner[tuple(slice(each.start, each.stop) for each in problem.interior)] = 1
    rng = np.random.default_rng(9)
    for name in wrt:
        given = np.asarray(found[name])[..., 0] if name == "sources" else np.asarray(found[name])
        direction = rng.normal(size=given.shape)
        if name in problem.initial:
            assert not (given * (1 - inner)).any()
            direction = direction * inner
        far = 1e-5 if given.ndim else 1e-6
        ahead, behind = (
            _value(_moved(problem, name, direction, side * far), objective) for side in (1, -1)
        )
        expected = (ahead - behind) / (2 * far)
        size = np.abs(given * direction).sum()
        noise = 16 * np.finfo(float).eps * found.value / far  # of a value that is rounded
        assert abs((given * direction).sum() - expected) <= 1e-6 * size + noise, name
    return found


@pytest.mark.parametrize(
    ("stencil", "shape", "boundary", "parameters"),
    [
        ("heat5", (9, 10), "dirichlet", {"k": 0.1}),
        ("heat7", (6, 7, 8), {"x-": "neumann", "z": "periodic"}, {"k": 0.1}),
        ("wave:4", (12, 13), "neumann", {}),
        (bent, (9, 10), "dirichlet", {"k": 0.2, "amount": [0.1, 0.2, 0.3, 0.1]}),
        (bent, (8, 9), "neumann", {"k": 0.2, "amount": 0.3}),
        (
            "acoustic_pml:2",
            (20, 21),
            {"kind": "matched", "width": 4, "courant": 0.4, "frequency": 0.05},
            {},
        ),
    ],
)
def test_a_gradient_is_what_differences_of_the_reference_say(
    stencil, shape, boundary, parameters, tmp_path
):
    _check(_problem(stencil, shape, boundary, parameters), tmp_path, chunk=2)


@pytest.mark.parametrize("boundary", ["dirichlet", "neumann", {"kind": "sponge", "width": 4}])
@pytest.mark.parametrize("chunk", [1, 2])
def test_a_gradient_by_a_coefficient_alone_is_made_by_the_second_order_in_time(
    boundary, chunk, tmp_path
):
    problem = _problem("wave:4", (16, 17), boundary)
    rule = og.adjoint(problem, wrt=["c"], steps=chunk).stencil
    assert next(field.levels for field in rule.lasting) == (2 if chunk == 1 else 1)
    _check(problem, tmp_path, ["c"], chunk=chunk)


@og.stencil
def advection(u, *, c):
    """Runge and Kutta's method, whose stages no run keeps."""

    def rate(u):
        return -c * og.centered(u, "x", accuracy=4)

    k1 = og.temporary(rate(u), name="k1")
    k2 = og.temporary(rate(u + k1 / 2))
    k3 = og.temporary(rate(u + k2 / 2))
    return u + (k1 + 2 * k2 + 2 * k3 + rate(u + k3)) / 6


@og.stencil
def curved(u, *, c):
    """Temporaries of which products are read beside the cell, one of them beyond faces."""
    half = og.temporary(u + c * u * og.centered(u, "x"), name="half")
    flux = og.temporary(og.sin(half[0, 1]) * half)
    return u + c * (flux - flux[-1, 0])


@pytest.mark.parametrize("boundary", ["dirichlet", "zero"])
def test_temporaries_of_linear_stencils_are_turned_round(boundary, tmp_path):
    problem = _problem(advection, (9, 16), boundary, {"c": 0.3})
    _check(problem, tmp_path, ["u", "sources"], chunk=3)


@pytest.mark.parametrize("boundary", ["neumann", "zero"])
def test_temporaries_that_derivatives_read_are_made_again(boundary, tmp_path):
    problem = _problem(advection, (9, 16), boundary, {"c": 0.3})
    _check(problem.replace(stencil=curved), tmp_path, chunk=3)


def test_a_chunk_stores_what_one_step_stores():
    problem = _problem("wave:4", (12, 13))
    one, four = (og.adjoint(problem, wrt=["c"], steps=steps).stencil for steps in (1, 4))
    stored = [sum(field.levels for field in rule.lasting) for rule in (one, four)]
    assert stored == [3, 3]
    assert [len(rule.coefficients) for rule in (one, four)] == [2, 5]  # c and states


@pytest.mark.parametrize("kind", ["zero", "odd-mirror"])
def test_faces_that_turn_the_sign_are_transposed(kind, tmp_path):
    problem = _problem("wave:4", (12, 13), kind)
    _check(problem, tmp_path, ["u", "u.previous", "sources"], chunk=2)


def test_all_ways_to_make_a_gradient_leave_the_same_bytes(tmp_path):
    problem = _problem(bent, (40, 30), parameters={"k": 0.2, "amount": 0.3}, steps=6)
    objective = _objective(problem)
    wrt = ["u", "v", "c", "k", "sources"]
    ways = [
        {"adjoint": "history"},
        {"adjoint": "multistage"},
        {"adjoint": "recompute", "threads": 2, "depth": 2},
        {"adjoint": "history", "tier": "direct", "depth": 1, "memory": "300MiB"},
    ]
    made = [
        og.gradient(problem, objective, wrt=wrt, out=tmp_path / str(number), chunk=2, **way)
        for number, way in enumerate(ways)
    ]
    for other in made[1:]:
        assert other.value == made[0].value
        for name in wrt:
            assert np.asarray(other[name]).tobytes() == np.asarray(made[0][name]).tobytes()
    assert sorted(each.name for each in (tmp_path / "0").iterdir()) == [
        "c.npy",
        "gradient.json",
        "u.npy",
        "v.npy",
    ]


def test_one_value_for_both_levels_has_the_gradient_by_both(tmp_path):
    problem = _problem("wave:2", (9, 10))
    initial = {"c": problem.initial["c"], "u": problem.initial["u"]}
    _check(problem.replace(initial=initial), tmp_path, ["u"])


def test_what_has_no_derivative_is_refused_with_the_reason(tmp_path):
    @og.stencil
    def stepped(u):
        return og.floor(u) + u[0, 1]

    problem = Problem(stepped, (6, 6), steps=2, initial={"u": 1.0})
    with pytest.raises(DefinitionError, match="has no derivative; floor"):
        og.gradient(problem, og.Cotangents(), wrt=["u"], out=tmp_path / "g")


def test_what_does_not_fit_is_refused(tmp_path):
    problem = _problem("wave:4", (12, 13))
    with pytest.raises(UsageError, match=r"shape \(3, 2\); 4 steps and 2 receivers"):
        og.gradient(problem, og.LeastSquares(np.zeros((3, 2))), wrt=["c"], out=tmp_path / "g")
    with pytest.raises(UsageError, match="not 'cc'"):
        og.gradient(problem, og.Cotangents(), wrt=["cc"], out=tmp_path / "g")
    with pytest.raises(UsageError, match="exists"):
        og.gradient(problem, og.Cotangents(), wrt=["c"], out=tmp_path)
    with pytest.raises(UsageError, match="unknown adjoint 'all'"):
        og.gradient(problem, og.Cotangents(), wrt=["c"], out=tmp_path / "g", adjoint="all")


def _with_free(monkeypatch, free):
    left = shutil.disk_usage(".")._replace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: left)


def test_the_history_between_two_states_is_as_long_as_the_disk_has_room_for(monkeypatch):
    problem = _problem("wave:4", (12, 13), steps=100)

    def planned(free, adjoint="recompute"):
        _with_free(monkeypatch, free)
        return og.plan_gradient(problem, wrt=["c"], memory="1GiB", adjoint=adjoint)

    most = planned(10**9).chosen
    assert most.lengths == (50,)
    (least,) = (one for one in planned(most.disk_bytes - 1).strategies if one.name == "recompute")
    whole = planned(10**9, "history").chosen
    nearly = planned(whole.disk_bytes - 1).chosen
    assert nearly.lengths == (90,)
    assert nearly.steps_forward == 110
    assert most.disk_bytes < nearly.disk_bytes < whole.disk_bytes
    lengths = [most.lengths[0], least.lengths[0]]
    while lengths[-1] > 10:
        made = planned(least.disk_bytes - 1, "auto").strategies[1]
        if made.lengths == least.lengths:
            break
        least = made
        lengths.append(least.lengths[0])
    assert lengths == sorted(set(lengths), reverse=True)
    assert len(lengths) > 3


def test_a_disk_that_is_too_small_says_which_strategy_fits(monkeypatch, tmp_path):
    problem = _problem("wave:4", (12, 13), steps=100)
    given = {"wrt": ["c"], "memory": "1GiB"}
    whole = og.plan_gradient(problem, adjoint="history", **given).chosen.disk_bytes
    _with_free(monkeypatch, whole - 1)
    with pytest.raises(InfeasiblePlan, match=r"history needs .*: choose recompute \("):
        og.gradient(problem, og.Cotangents(), out=tmp_path / "g", adjoint="history", **given)
    assert not (tmp_path / "g").exists()
    assert og.plan_gradient(problem, **given).chosen.name != "history"
    _with_free(monkeypatch, 1000)
    with pytest.raises(InfeasiblePlan, match="the smallest strategy, "):
        og.gradient(problem, og.Cotangents(), out=tmp_path / "g", **given)


def test_a_plan_tells_what_strategies_keep():
    problem = _problem("wave:4", (12, 13), steps=100)
    plan = og.plan_gradient(problem, wrt=["c"], memory="1GiB")
    made = {one.name: one.steps_forward for one in plan.strategies}
    assert made == {"history": 100, "recompute": 150, "multistage": 275}
    disk = [one.disk_bytes for one in plan.strategies]
    assert disk == sorted(disk, reverse=True)
    assert f"-> {plan.chosen}" in str(plan)
    assert "150 steps forward" in str(plan)
    assert "no state of the forward run" in str(og.plan_gradient(problem, wrt=["u"]))


@pytest.mark.parametrize("kept_as", ["float16", "bfloat16"])
def test_a_history_of_halves_is_asked_for_and_leaves_the_same_bytes_in_all_strategies(
    kept_as, tmp_path
):
    problem = _problem(bent, (20, 18), parameters={"k": 0.2, "amount": 0.3}, steps=6)
    rng = np.random.default_rng(7)
    near = {name: rng.normal(size=(20, 18)).astype("float32") / 10 for name in problem.initial}
    problem = problem.replace(dtype="float32", initial=near)
    objective = _objective(problem)
    given = {"history": kept_as, "wrt": ["c", "u"]}
    ways = [
        {"adjoint": "history", "tier": "direct", "depth": 2},
        {"adjoint": "recompute"},
        {"adjoint": "multistage", "threads": 1},
    ]
    made = [
        og.gradient(problem, objective, out=tmp_path / str(number), **given, **way)
        for number, way in enumerate(ways)
    ]
    for other in made[1:]:
        for name in given["wrt"]:
            assert np.asarray(other[name]).tobytes() == np.asarray(made[0][name]).tobytes()
    exact = og.gradient(problem, objective, wrt=["c", "u"], out=tmp_path / "exact")
    assert exact.value == made[0].value
    unit = 2.0 ** (-11 if kept_as == "float16" else -8)
    apart = np.abs(np.asarray(exact["c"]) - np.asarray(made[0]["c"])).max()
    assert 0 < apart <= 100 * unit * np.abs(exact["c"]).max()
    plans = [
        og.plan_gradient(problem, wrt=["c"], memory="1GiB", history=kind, adjoint="history")
        for kind in ("same", kept_as)
    ]
    assert plans[1].chosen.disk_bytes < plans[0].chosen.disk_bytes


def test_a_history_of_a_type_that_does_not_fit_is_refused(tmp_path):
    problem = _problem("wave:4", (12, 13))
    with pytest.raises(DefinitionError, match="dtype = 'float8' of a snapshot"):
        og.gradient(problem, og.Cotangents(), wrt=["c"], out=tmp_path / "g", history="float8")


@og.stencil
def biharmonic(u, c):
    curved = og.temporary(c * og.laplacian(u), name="curved")
    return u + 0.1 * og.laplacian(curved)


@pytest.mark.parametrize("boundary", ["dirichlet", "neumann", "zero", "odd", "periodic"])
@pytest.mark.parametrize("stencil", ["heat5", "wave:4", biharmonic])
def test_an_adjoint_is_transposed_once_more(stencil, boundary, tmp_path):
    """The dot product of what it makes with any values is that of its own gradient."""
    rng = np.random.default_rng(5)
    parameters = {"k": 0.1} if stencil == "heat5" else None
    forward = _problem(stencil, (12, 13), boundary, parameters)
    turned = og.adjoint(forward)
    inside = tuple(slice(each.start, each.stop) for each in forward.interior)

    def inner():
        values = np.zeros(forward.shape)
        values[inside] = rng.normal(size=values[inside].shape)
        return values

    lasting = turned.stencil.lasting
    names = [field.name for field in lasting]
    names += [f"{field.name}.previous" for field in lasting if field.levels == 2]
    begun = {name: inner() for name in names}
    given = turned.parameters(forward, range(STEPS), {})
    problem = Problem(
        turned.stencil,
        forward.shape,
        "float64",
        2,
        {name: value[0] if isinstance(value, tuple) else value for name, value in given.items()},
        turned.boundary,
        begun | {field.name: forward.initial[field.name] for field in turned.stencil.coefficients},
    )
    ends = {field.name: inner() for field in lasting}
    made = og.run(problem, out=tmp_path / "run")
    g = og.gradient(problem, og.Cotangents(final=ends), wrt=names, out=tmp_path / "g")
    left = sum(float((np.asarray(made[name]) * end)[inside].sum()) for name, end in ends.items())
    right = sum(float((np.asarray(g[name]) * begun[name]).sum()) for name in names)
    size = sum(float(np.abs(np.asarray(g[name]) * begun[name]).sum()) for name in names)
    assert abs(left - right) <= 1e-13 * size


@pytest.mark.parametrize("adjoint", ["history", "recompute"])
def test_each_frame_of_a_history_is_read_once_from_its_first_plane_to_its_last(
    adjoint, monkeypatch, tmp_path
):
    problem = _problem("wave:4", (40, 12, 13), steps=9, dtype="float32")
    spans, get = {}, SeriesStore.get

    def noted(store, planes, rows, into):
        assert rows == range(12)
        frame = store._held
        assert frame is not None
        key = str(frame.path), frame._layout.data_offset
        spans.setdefault(key, []).append(planes)
        return get(store, planes, rows, into)

    monkeypatch.setattr(SeriesStore, "get", noted)
    given = {"tier": "direct", "depth": 3, "slab_planes": 4, "adjoint": adjoint}
    og.gradient(problem, _objective(problem), wrt=["c"], out=tmp_path / "g", **given)
    assert len(spans) == 9
    for read in spans.values():
        assert len(read) > 5
        assert [plane for planes in read for plane in planes] == [*range(read[-1].stop)]
        assert read[-1].stop >= 38  # what lies in the last layer need not be read


MATCHED = {"kind": "matched", "width": 5, "courant": 0.4, "frequency": 0.05}


@pytest.mark.parametrize("name", [name for name in CATALOG if name not in ("wave", "acoustic_pml")])
def test_dot_products_agree_to_rounding_for_every_stencil_of_the_catalogue(name, tmp_path):
    """<A x, y> and <x, A' y> of random x and y: these stencils are linear in their fields."""
    rng = np.random.default_rng(6)
    shape = (12, 13, 14) if name in ("heat7", "box27") else (24, 25)
    boundary = MATCHED if name.startswith("acoustic") else "dirichlet"
    rule = resolve(name).trace(len(shape))
    parameters = {each: 0.1 for each in rule.parameters if each not in dict(rule.defaults)}
    problem = _problem(name, shape, boundary, None if boundary == MATCHED else parameters)
    problem = problem.replace(sources=(), receivers=())
    inside = np.zeros(shape)
    inside[tuple(slice(each.start, each.stop) for each in problem.interior)] = 1
    begun = {
        name: values if name not in _begun(problem) else rng.normal(size=shape) * inside
        for name, values in problem.initial.items()
    }
    problem = problem.replace(initial=begun)
    ends = {field.name: rng.normal(size=shape) * inside for field in problem.stencil.lasting}
    made = og.run(problem, out=tmp_path / "run")
    wrt = _begun(problem)
    g = og.gradient(problem, og.Cotangents(final=ends), wrt=wrt, out=tmp_path / "g")
    left = sum(float((np.asarray(made[field]) * end).sum()) for field, end in ends.items())
    products = [np.asarray(g[field]) * np.asarray(begun[field]) for field in wrt]
    right, size = (sum(float(act(each).sum()) for each in products) for act in (np.array, np.abs))
    assert size > 0
    assert abs(left - right) <= 1e-13 * size


def _begun(problem):
    """The names of what a problem begins with, but for coefficients."""
    names = [field.name for field in problem.stencil.lasting]
    return names + [f"{f.name}.previous" for f in problem.stencil.lasting if f.levels == 2]


def test_what_a_gradient_leaves_of_a_misfit_falls_with_the_square_of_the_step(tmp_path):
    problem = _problem("wave:4", (14, 15), "neumann")
    objective = _objective(problem)
    g = og.gradient(problem, objective, wrt=["c"], out=tmp_path / "g")
    direction = np.random.default_rng(4).normal(size=problem.shape) / 50
    along = float((np.asarray(g["c"]) * direction).sum())
    left = [
        abs(_value(_moved(problem, "c", direction, far), objective) - g.value - far * along)
        for far in (0.08, 0.04, 0.02, 0.01)
    ]
    slopes = np.log2(np.array(left[:-1]) / left[1:])
    assert np.all(np.abs(slopes - 2) < 0.2), slopes


def _cut_short(file):
    file.write_bytes(file.read_bytes()[:-4096])


def _flip(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("harm", [_cut_short, _flip])
def test_a_history_that_is_damaged_when_a_gradient_goes_on_is_named(harm, monkeypatch, tmp_path):
    problem = _problem("wave:4", (40, 12, 13), steps=6, dtype="float32")
    objective = _objective(problem)
    given = {"wrt": ["c"], "tier": "direct", "adjoint": "history", "memory": "300MiB"}
    right = og.gradient(problem, objective, out=tmp_path / "right", **given)

    def stop(*_):
        raise RuntimeError("stop")

    out = tmp_path / "g"
    with monkeypatch.context() as patch:
        patch.setattr(Back, "through_all", stop)
        with pytest.raises(RuntimeError, match="stop"):
            og.gradient(problem, objective, out=out, **given)
    (file,) = out.glob("state.6/snapshot.0.npy")
    harm(file)
    with pytest.raises(StoreError, match=r"remove the folder .*state\.6, and resume"):
        og.gradient(problem, objective, out=out, resume=True, **given)
    shutil.rmtree(file.parent)
    made = og.gradient(problem, objective, out=out, resume=True, **given)
    assert np.asarray(made["c"]).tobytes() == np.asarray(right["c"]).tobytes()


@og.stencil
def named(u, u_bar, sources, *, energy_weight):
    """Fields and a parameter that are called as what a run back in time has."""
    new = u + u_bar * og.laplacian(u) + 0.1 * sources * u
    return {"u": new, "energy": og.sum(energy_weight * u * u)}


def test_names_of_a_stencil_may_be_those_of_what_gradients_are_made_of(tmp_path):
    problem = _problem(named, (8, 9), parameters={"energy_weight": 3.0}, steps=2)
    problem = problem.replace(sources=(), receivers=())
    weights, inside = [7.0, 8.0], (slice(1, -1), slice(1, -1))
    wrt = ["u", "u_bar", "energy_weight"]
    g = og.gradient(
        problem, og.Total("energy", weights), wrt=wrt, out=tmp_path / "g", memory="1GiB"
    )

    def value(initial):
        begun = run_reference(problem.replace(steps=1), initial)
        sums = [float((state["u"][inside] ** 2).sum()) for state in (initial, begun)]
        return 3.0 * sum(weight * one for weight, one in zip(weights, sums, strict=True))

    initial = initial_arrays(problem)
    assert g.value == pytest.approx(value(initial), rel=1e-12)
    assert g["energy_weight"] == pytest.approx(value(initial) / 3.0, rel=1e-12)
    rng = np.random.default_rng(9)
    for name in ("u", "u_bar"):
        far = np.zeros(problem.shape)
        far[inside] = 1e-5 * rng.normal(size=far[inside].shape)
        there, back = (value(initial | {name: initial[name] + way * far}) for way in (1, -1))
        assert (there - back) / 2 == pytest.approx(float((g[name] * far).sum()), rel=1e-6)
    with pytest.raises(UsageError, match="'sources', which in wrt means"):
        og.gradient(problem, og.Total("energy"), wrt=["sources"], out=tmp_path / "s")


def test_schemes_and_strips_change_no_byte_of_a_gradient(tmp_path):
    problem = _problem("wave:2", (14, 12, 10), steps=3)
    made = set[bytes]()
    ways = [{"scheme": "plain"}, {"scheme": "skewed"}, {"scheme": "overlapped"}]
    for number, way in enumerate([*ways, {"strip_rows": 5, "depth": 2}]):
        out, given = tmp_path / str(number), {"wrt": ["c", "u"], "tier": "direct", **way}
        g = og.gradient(problem, _objective(problem), out=out, memory="1GiB", **given)
        made.add(b"".join(np.asarray(g[name]).tobytes() for name in given["wrt"]))
    assert len(made) == 1
