"""
Seismic waves: a shot record
============================

A source near the surface sends a wave into layered rock. Receivers along the surface record the
echoes. The pressure p follows the acoustic wave equation

.. math:: p_{tt} = v^2 \\nabla^2 p + s(t).
"""

# %%
# The model
# ---------
# Velocities are in m/s, the cells are 10 m wide, and a step takes 1 ms. The stencil ``wave:4``
# has a Laplacian of fourth order and one coefficient, c = (v dt / h)^2. Expressions of initial
# values are evaluated a block of rows at a time, so a model may be larger than memory.
import matplotlib.pyplot as plt
import numpy as np

import outgrid as og

metres, seconds = 10.0, 0.001
velocity = "where(y < 60, 1500, where(y < 110 + 15 * sin(x / 40), 2300, 3200))"
c = f"(({velocity}) * {seconds / metres})**2"

# %%
# Source and receivers
# --------------------
# A Ricker wavelet of 15 Hz is added to one cell, one value per step.
time = np.arange(700) * seconds - 0.08
squared = (np.pi * 15 * time) ** 2
wavelet = (1 - 2 * squared) * np.exp(-squared)

shot = og.Problem(
    "wave:4",
    shape=(180, 300),
    dtype="float32",
    steps=len(wavelet),
    initial={"u": 0.0, "c": c},
    boundary={"kind": "sponge", "width": 30},
    sources=[og.Source("u", (34, 150), wavelet)],
    receivers=[og.Receiver("u", (34, x)) for x in range(34, 266, 2)],
    snapshots=[og.Snapshot("u", every=140)],
    grid=og.Grid(spacing=metres, units="m", dt=seconds),
)
result = og.run(shot, memory="256MiB", out="shot.run", overwrite=True, progress=False)

# %%
# The wave after 0.28 s, and the traces of all receivers. The sponge absorbs what leaves the
# model.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
frame = np.asarray(result.snapshots[0][1])
bound = np.abs(frame).max() / 2
left.imshow(frame, cmap="RdBu_r", vmin=-bound, vmax=bound, extent=(0, 3, 1.8, 0))
left.set(title="pressure after 0.28 s", xlabel="x (km)", ylabel="depth (km)")
traces = result.traces
right.imshow(traces, cmap="gray", vmin=-0.02, vmax=0.02, aspect="auto", extent=(0.34, 2.66, 0.7, 0))
right.set(title="shot record", xlabel="x (km)", ylabel="time (s)")

# %%
# Larger than memory
# ------------------
# A survey in 3-D of 1000^3 cells has 12 GB of fields. The plan says what a run takes with 4 GiB.
survey = og.Problem("wave:8", (1000, 1000, 1000), "float32", 200, initial={"u": 0.0, "c": 0.1})
print(og.plan(survey, memory="4GiB").explain())

# %%
# Inversion
# ---------
# ``og.gradient`` differentiates the misfit of such traces with respect to the model, for
# full-waveform inversion, on grids larger than memory too: see the how-to guide on gradients.
