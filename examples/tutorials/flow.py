"""
Flow: a dye in a vortex
=======================

A vortex carries a dye round and winds it up, while the dye spreads:

.. math:: c_t + v \\cdot \\nabla c = k \\nabla^2 c.
"""

# %%
# The stencil
# -----------
# ``og.upwind(c, v, axis)`` is v times the derivative from the side that the flow comes from. The
# temporary makes the middle step of a Runge-Kutta method of second order; it takes no disk space.
import matplotlib.pyplot as plt
import numpy as np

import outgrid as og


@og.stencil
def carried(c, v: og.Vector, *, k):
    def rate(c):
        return k * og.laplacian(c) - sum(og.upwind(c, v[axis], axis, accuracy=2) for axis in v)

    middle = og.temporary(c + rate(c) / 2)
    return c + rate(middle)


# %%
# The run
# -------
# The velocity is that of a vortex with a smooth core. The axis x is periodic, y reflects.
distance = "(hypot(x - 120, y - 120) + 0.001)"
speed = f"0.25 * exp(-(({distance} - 40) / 45)**2) / {distance}"
problem = og.Problem(
    carried,
    shape=(240, 240),
    dtype="float32",
    steps=1200,
    parameters={"k": 0.01},
    initial={
        "c": "where(y < 120, 1, 0)",
        "v_y": f"{speed} * (x - 120)",
        "v_x": f"-{speed} * (y - 120)",
    },
    boundary={"x": "periodic", "y": "neumann"},
    snapshots=[og.Snapshot("c", every=400)],
)
result = og.run(problem, memory="256MiB", out="vortex.run", overwrite=True, progress=False)

figure, every = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
for number, (axes, frame) in enumerate(zip(every, result.snapshots[0], strict=True)):
    axes.imshow(np.asarray(frame), cmap="viridis", vmin=0, vmax=1)
    axes.set(title=f"after {400 * (number + 1)} steps", xticks=[], yticks=[])

# %%
# Other methods
# -------------
# ``examples/lid_cavity.py`` is a lattice Boltzmann method of 19 fields, compared with published
# tables. ``examples/dam_break.py`` solves the nonlinear shallow-water equations.
#
# Larger than memory
# ------------------
# The dye and the two components of the velocity take 12 bytes per cell. This is the plan of the
# same problem on a larger grid, which takes 28 GiB:
print(
    og.plan(
        problem.replace(shape=(50_000, 50_000), steps=100, snapshots=()), memory="4GiB"
    ).explain()
)
