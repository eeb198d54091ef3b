"""Gradients of traces by way of JAX and PyTorch, and against programs of these on a small grid."""

import numpy as np
import pytest

import outgrid as og
from outgrid import autodiff
from outgrid.autodiff import jax_traces, torch_traces
from outgrid.errors import UsageError
from outgrid.reversal.posed import posed as replaced
from outgrid.stencil import expression as ex
from outgrid.stencil.catalog import resolve
from outgrid.stencil.expression import Access, Constant

SHAPE, STEPS = (12, 13), 6
RNG = np.random.default_rng(1)
START, MODEL = RNG.uniform(size=(2, *SHAPE))
MODEL = 0.1 + 0.1 * MODEL


def posed():
    """A wave between fixed edges, seen in one place."""
    initial = {"u": START, "u.previous": START, "c": MODEL}
    receivers = [og.Receiver("u", (5, 6))]
    return og.Problem("wave:2", SHAPE, steps=STEPS, initial=initial, receivers=receivers)


def test_jax_differentiates_runs_like_a_program_of_its_own(tmp_path):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    traces = jax_traces(posed(), ["c"], tmp_path, memory="1GiB", threads=1)

    def own(c):
        before = now = jax.numpy.array(START)
        seen = []
        for _ in range(STEPS):
            inner = now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:]
            new = 2 * now - before
            new = new[1:-1, 1:-1] + c[1:-1, 1:-1] * (inner - 4 * now[1:-1, 1:-1])
            before, now = now, now.at[1:-1, 1:-1].set(new)
            seen.append(now[5, 6])
        return jax.numpy.stack(seen)

    def misfit(made):
        return lambda c: (made(c).ravel() ** 2).sum()

    wanted, slope = jax.value_and_grad(misfit(own))(MODEL)
    value, found = jax.value_and_grad(misfit(traces))(MODEL)
    assert np.isclose(value, wanted, rtol=1e-13)
    assert np.allclose(found, slope, rtol=0, atol=1e-13 * float(np.abs(slope).max()))


def after(numpy, problem, given):
    """The fields after all steps by JAX's `numpy`: the expressions of a stencil, whole arrays, and
    its fixed layers."""
    inside = tuple(slice(each.start, each.stop) for each in problem.interior)
    calls = {
        "min": lambda a, b: numpy.where(a < b, a, b),
        "max": lambda a, b: numpy.where(a > b, a, b),
    }

    def value(expression, state):
        known = {}
        for node in ex.nodes(expression):
            if isinstance(node, Access):
                name = node.field + (".previous" if node.level < 0 else "")
                cut = (
                    slice(one.start + o, one.stop + o)
                    for one, o in zip(inside, node.offset, strict=True)
                )
                known[node] = state[name][tuple(cut)]
            elif isinstance(node, Constant):
                known[node] = node.value
            elif isinstance(node, ex.Operation):
                name = ex.OPERATIONS[node.name].function.__name__
                call = calls.get(node.name) or getattr(numpy, name)
                known[node] = call(*(known[one] for one in node.operands))
            else:
                known[node] = problem.parameters[node.name]
        return known[expression]

    state = {name: numpy.array(values) for name, values in given.items()}
    for _ in range(problem.steps):
        for stage in problem.stencil.stages:
            new = {
                one.field: state[one.field].at[inside].set(value(one.expression, state))
                for one in stage.assignments
            }
            past = {f"{name}.previous": state[name] for name in new if f"{name}.previous" in state}
            state |= past | new
    return {one.name: state[one.name][inside] for one in problem.stencil.lasting}


@og.stencil
def bent(u, v, c, *, k):
    """Two stages, products of states, masks and a previous level."""
    slope = u[0, 1] - u[-1, 0]
    return [
        {"v": v + k * og.where(slope > 0, c * slope * slope, og.sin(v)) - og.absolute(u[0, -1])},
        {"u": u - 0.1 * u.previous[1, 0] + og.maximum(v[0, 1], og.exp(-u)) / (c + 1)},
    ]


SOME = [bent, "heat5", "heat7", "box27", "wave:2", "wave:8", "shallow_water"]


@pytest.mark.parametrize("name", SOME, ids=str)
def test_gradients_are_those_of_jax(name, tmp_path):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    shape = (9, 10, 11) if name in ("heat7", "box27") else (22, 23)
    traced = (resolve(name) if isinstance(name, str) else name).trace(len(shape))
    rng = np.random.default_rng(3)
    names = [one.name for one in traced.fields if not one.temporary]
    names += [f"{one.name}.previous" for one in traced.lasting if one.levels == 2]
    initial = {one: rng.uniform(0.05, 0.15, shape) for one in names}
    parameters = dict.fromkeys(traced.parameters, 0.1)
    problem = og.Problem(traced, shape, "float64", 3, parameters, initial=initial)
    wanted = {one.name: rng.normal(size=shape) for one in traced.lasting}
    inside = tuple(slice(one.start, one.stop) for one in problem.interior)
    for one in names:
        if one.endswith(".previous"):  # its fixed layers are those of the field
            inner, initial[one] = (
                initial[one][inside],
                initial[one.removesuffix(".previous")].copy(),
            )
            initial[one][inside] = inner
    problem = problem.replace(initial=initial)

    def misfit(given):
        made = after(jax.numpy, problem, given)
        return sum(0.5 * ((made[one] - wanted[one][inside]) ** 2).sum() for one in wanted)

    value, slopes = jax.value_and_grad(misfit)(initial)
    objective = og.LeastSquares(final=wanted)
    g = og.gradient(problem, objective, wrt=names, out=tmp_path / "g", memory="1GiB", threads=1)
    assert np.isclose(g.value, value, rtol=1e-13)
    for one in names:
        slope = np.asarray(slopes[one])[inside]
        far = 1e-12 * float(np.abs(slope).max())
        assert np.allclose(np.asarray(g[one])[inside], slope, rtol=0, atol=far), one


def test_pytorch_differentiates_runs_like_a_program_of_its_own(tmp_path):
    torch = pytest.importorskip("torch")
    traces = torch_traces(posed(), ["c"], tmp_path, memory="1GiB", threads=1)

    def own(c):
        before = now = torch.tensor(START)
        seen = []
        for _ in range(STEPS):
            inner = now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:]
            new = 2 * now - before
            new = new[1:-1, 1:-1] + c[1:-1, 1:-1] * (inner - 4 * now[1:-1, 1:-1])
            before, now = now, now.clone()
            now[1:-1, 1:-1] = new
            seen.append(now[5, 6])
        return torch.stack(seen)

    def misfit(made):
        model = torch.tensor(MODEL, requires_grad=True)
        value = (made(model).ravel() ** 2).sum()
        value.backward()
        return value.item(), model.grad.numpy()

    wanted, slope = misfit(own)
    value, found = misfit(traces)
    assert np.isclose(value, wanted, rtol=1e-13)
    assert np.allclose(found, slope, rtol=0, atol=1e-13 * float(np.abs(slope).max()))


def test_a_level_before_follows_the_values_that_its_field_is_given():
    problem = posed().replace(initial={"u": START, "c": MODEL})
    changed = replaced(problem, {"u": 2 * START})
    for name in ("u", "u.previous"):
        np.testing.assert_array_equal(np.asarray(changed.initial[name]), 2 * START)
    apart = replaced(posed(), {"u": 2 * START})
    np.testing.assert_array_equal(np.asarray(apart.initial["u.previous"]), START)


def test_runs_go_once_their_values_are_read(tmp_path):
    options = {"memory": "1GiB", "threads": 1, "adjoint": "recompute", "progress": False}
    (tmp_path / "forward.4").mkdir()  # of a process that was killed
    (tmp_path / "forward.4" / "u.npy").write_text("")
    for _ in range(2):
        made = autodiff._Traces(posed(), ["c"], tmp_path, options)
        traces = made.forward(MODEL)
        (bar,) = made.back(np.ones_like(traces), MODEL)
        assert traces.any()
        assert bar.any()
        assert [path.name for path in tmp_path.iterdir()] == ["forward.4"]


def test_what_does_not_fit_is_refused(tmp_path):
    pytest.importorskip("jax")
    with pytest.raises(UsageError, match="has none"):
        jax_traces(posed().replace(receivers=()), ["c"], tmp_path)
    with pytest.raises(UsageError, match="no field or parameter 'cc'"):
        jax_traces(posed(), ["cc"], tmp_path)
