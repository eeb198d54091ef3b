"""
Ocean: a wave over a sea floor
==============================

A long wave crosses an ocean with an island. The surface eta over the depth h follows the linear
shallow-water equation

.. math:: \\eta_{tt} = \\nabla \\cdot (g h \\nabla \\eta).
"""

# %%
# The sea floor
# -------------
# The stencil ``shallow_water`` is known by name. Cells with h <= 0 are land, and land is a wall.
# The depth is a formula here; ``og.InputFile("depth.nc")`` reads a file, a few rows at a time.
import matplotlib.pyplot as plt
import numpy as np

import outgrid as og

metres = 500.0
depth = "4000 - 3 * maximum(0, x - 220)**1.55 - 4700 * exp(-((x - 170)**2 + (y - 90)**2) / 300)"
deepest = 4000.0
seconds = 0.6 * metres / np.sqrt(9.81 * deepest)

problem = og.Problem(
    "shallow_water",
    shape=(200, 320),
    dtype="float32",
    steps=420,
    parameters={"g": 9.81, "dt": seconds, "dx": metres},
    initial={"eta": "exp(-((x - 60) / 8)**2)", "h": depth},
    boundary={"y": "mirror", "x": "neumann"},
    snapshots=[og.Snapshot("eta", every=140)],
    receivers=[og.Receiver("eta", (90, 120)), og.Receiver("eta", (90, 200))],
    grid=og.Grid(spacing=metres, units="m", dt=float(seconds)),
)
result = og.run(problem, memory="256MiB", out="ocean.run", overwrite=True, progress=False)

# %%
# The wave bends round the island and grows as the water gets shallow.
figure, every = plt.subplots(1, 3, figsize=(11, 2.9), layout="constrained")
for number, (axes, frame) in enumerate(zip(every, result.snapshots[0], strict=True)):
    axes.imshow(np.asarray(frame), cmap="RdBu_r", vmin=-0.6, vmax=0.6)
    minutes = 140 * (number + 1) * seconds / 60
    axes.set(title=f"after {minutes:.0f} minutes", xticks=[], yticks=[])

# %%
# Two tide gauges, before and behind the island.
figure, axes = plt.subplots(figsize=(7, 2.8), layout="constrained")
axes.plot(np.arange(problem.steps) * seconds / 60, result.traces)
axes.set(xlabel="minutes", ylabel="surface (m)")
axes.legend(["before the island", "behind it"], frameon=False)

# %%
# Larger than memory
# ------------------
# ``make demo`` computes such a wave over a real sea floor, on 9216 x 12288 cells. Here is the plan
# of a grid of the size of the globe, with cells of one arc minute, 1852 m:
minute = 1852.0
globe = problem.replace(
    shape=(10_800, 21_600),
    steps=200,
    parameters={"g": 9.81, "dt": seconds * minute / metres, "dx": minute},
    snapshots=(),
    receivers=(),
    grid=None,
)
print(og.plan(globe, memory="512MiB").explain())
