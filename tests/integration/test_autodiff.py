"""Gradients of traces by way of JAX and PyTorch, and against programs of these on a small grid."""

import numpy as np
import pytest

import outgrid as og
from outgrid.autodiff import jax_traces, torch_traces
from outgrid.errors import UsageError

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


def test_what_does_not_fit_is_refused(tmp_path):
    pytest.importorskip("jax")
    with pytest.raises(UsageError, match="has none"):
        jax_traces(posed().replace(receivers=()), ["c"], tmp_path)
    with pytest.raises(UsageError, match="'cc' is no field"):
        jax_traces(posed(), ["cc"], tmp_path)
