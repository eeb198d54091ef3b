"""
Images: smoothing that keeps edges
==================================

Perona and Malik's diffusion smooths noise and stops at edges:

.. math:: u_t = \\nabla \\cdot \\left(e^{-|\\nabla u|^2 / K^2} \\nabla u\\right).
"""

# %%
# The stencil
# -----------
import matplotlib.pyplot as plt
import numpy as np

import outgrid as og


@og.stencil
def smooth(u, *, k):
    """One step: through each face flows the difference, less where it is large."""
    flow = 0
    for offset in ((0, 1), (0, -1), (1, 0), (-1, 0)):
        difference = u[offset] - u
        flow = flow + difference * og.exp(-((difference / k) ** 2))
    return u + 0.2 * flow


# %%
# A picture with noise
# --------------------
# Arrays are initial values. ``og.InputFile("scan.tif")`` would be read some rows at a time
# instead, and may be larger than memory.
y, x = np.mgrid[0:200, 0:300]
clean = 0.3 + 0.4 * (np.hypot(x - 100, y - 100) < 60) + 0.3 * (np.abs(x - 220) < 30) * (y > 60)
noisy = (clean + 0.08 * np.random.default_rng(1).normal(size=clean.shape)).astype("float32")

problem = og.Problem(
    smooth,
    shape=noisy.shape,
    dtype="float32",
    steps=60,
    parameters={"k": 0.2},
    initial={"u": noisy},
    boundary="neumann",
)
result = og.run(problem, memory="256MiB", out="smooth.run", overwrite=True, progress=False)

figure, every = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
for axes, picture, title in zip(
    every, (noisy, np.asarray(result["u"])), ("before", "after 60 steps"), strict=True
):
    axes.imshow(picture, cmap="gray", vmin=0, vmax=1)
    noise = np.std(picture - clean)
    axes.set(title=f"{title}: noise {noise:.3f}", xticks=[], yticks=[])

# %%
# Larger than memory
# ------------------
# ``examples/smooth_tiff.py`` takes a TIFF volume to a pyramid of OME-Zarr, and
# ``examples/image_mask.py`` computes masks of 15 x 15 cells. For a picture of 80 000 x 80 000
# pixels the plan says:
large = problem.replace(shape=(80_000, 80_000), initial={"u": 0.5})
print(og.plan(large, memory="2GiB").explain())
