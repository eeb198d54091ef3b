"""
Electromagnetics: scattering by a cylinder
==========================================

Maxwell's equations in two dimensions on the staggered grid of Yee: the electric field E lies on
the cells, the magnetic field H on the faces between them, and both are updated in turn. The time
step is half of the time in which light crosses a cell: c dt = h / 2.
"""

# %%
# The stencil
# -----------
# A list of dictionaries gives stages. The second stage reads what the first one wrote.
# ``og.forward`` and ``og.backward`` are derivatives half a cell further and half a cell back.
import matplotlib.pyplot as plt
import numpy as np

import outgrid as og


@og.stencil
def yee(e, h: og.Vector, permittivity, *, s=0.5):
    curl = og.backward(h["x"], "y") - og.backward(h["y"], "x")
    return [
        {"h": {"y": h["y"] - s * og.forward(e, "x"), "x": h["x"] + s * og.forward(e, "y")}},
        {"e": e + s / permittivity * curl},
    ]


# %%
# A lens
# ------
# A cylinder of permittivity 4 is hit by waves of 16 cells from a line of sources. Sponges absorb
# what leaves the grid.
steps = 420
signal = np.sin(2 * np.pi * np.arange(steps) / 32) * np.minimum(1, np.arange(steps) / 64)
problem = og.Problem(
    yee,
    shape=(200, 260),
    dtype="float32",
    steps=steps,
    initial={"e": 0.0, "h": 0.0, "permittivity": "where(hypot(x - 130, y - 100) < 36, 4, 1)"},
    boundary={"kind": "sponge", "width": 20, "strength": 0.4},
    sources=[og.Source("e", (y, 40), signal) for y in range(40, 160)],
    snapshots=[og.Snapshot("e", every=8)],
)
result = og.run(problem, memory="256MiB", out="lens.run", overwrite=True, progress=False)

# %%
# The field after the last step, and its mean intensity over the last period: the cylinder
# focuses.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
e = result["e"]
left.imshow(np.asarray(e), cmap="RdBu_r", vmin=-1, vmax=1)
frames = np.asarray(result.snapshots[0])[-8:]
right.imshow((frames**2).mean(axis=0), cmap="inferno", vmax=1.0)
for axes, title in ((left, "electric field"), (right, "intensity")):
    axes.add_patch(plt.Circle((130, 100), 36, fill=False, color="gray"))
    axes.set(title=title, xticks=[], yticks=[])

# %%
# Larger than memory
# ------------------
# In three dimensions there are six fields. ``examples/maxwell_box.py`` computes a mode of a
# conducting box and compares it with the exact one. The stencil above serves grids of any size:
large = problem.replace(shape=(40_000, 40_000), steps=100, sources=(), snapshots=())
print(og.plan(large, memory="4GiB").explain())
