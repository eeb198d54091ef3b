"""JAX on the processor, all in memory: the gradient of a misfit of traces by the model of waves.

Reads a problem from a JSON file: u_next = 2*u - u_previous + c * laplacian(u), of fourth order in
space, with c in the file `model` (0 in the two outermost layers of cells, which stay 0), sources,
receivers and observed traces. Writes the gradient by c and prints the misfit and the seconds.
"""

# pyright: basic, reportMissingImports=false

import json
import sys
import time

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
jnp = jax.numpy

WEIGHTS = (-5 / 2, 4 / 3, -1 / 12)


def main() -> None:
    """Solve the problem of the JSON file that is named, twice: the second time counts."""
    with open(sys.argv[1]) as file:
        problem = json.load(file)
    model, observed = np.load(problem["model"]), np.load(problem["observed"])
    inside = (slice(2, -2),) * model.ndim
    source, receivers = tuple(problem["source"]), tuple(np.array(problem["receivers"]).T)

    def laplacian(u):
        def moved(axis, far):
            part = list(inside)
            part[axis] = slice(2 + far, model.shape[axis] - 2 + far)
            return u[tuple(part)]

        total = model.ndim * WEIGHTS[0] * u[inside]
        for axis in range(model.ndim):
            for far in (1, 2):
                total += WEIGHTS[far] * (moved(axis, far) + moved(axis, -far))
        return total

    def misfit(c):
        def step(levels, amount):
            u, before = levels
            new = (2 * u - before)[inside] + c[inside] * laplacian(u)
            new = jnp.zeros_like(u).at[inside].set(new).at[source].add(amount)
            return (new, u), new[receivers]

        nothing = jnp.zeros_like(c)
        _, seen = jax.lax.scan(step, (nothing, nothing), jnp.array(problem["pulse"]))
        return 0.5 * ((seen - observed) ** 2).sum()

    alone, both = jax.jit(misfit), jax.jit(jax.value_and_grad(misfit))
    forward = seconds = value = 0.0
    slope = model
    for _ in range(2):
        begin = time.perf_counter()
        jax.block_until_ready(alone(jnp.array(model)))
        forward = time.perf_counter() - begin
        begin = time.perf_counter()
        value, slope = jax.block_until_ready(both(jnp.array(model)))
        seconds = time.perf_counter() - begin
    np.save(problem["answer"], np.asarray(slope))
    told = {
        "seconds": seconds,
        "forward_seconds": forward,
        "value": float(value),
        "version": jax.__version__,
    }
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
