"""
A notebook: how values are displayed
====================================

A notebook displays the last value of a cell. This page was executed when the site was built; the
link at its end downloads it as a notebook. The problem is heat on a plate with a cold edge.
"""

# %%
# A stencil
# ---------
# The update rule as mathematics, the radius, the fields.
import outgrid as og


@og.stencil
def heat(u, *, k):
    return u + k * og.laplacian(u)


heat.trace(2)

# %%
# A problem
# ---------
problem = og.Problem(
    heat,
    shape=(160, 240),
    steps=120,
    parameters={"k": 0.2},
    initial={"u": "exp(-((x - 120)**2 + (y - 80)**2) / 300)"},
    boundary={"y": "neumann", "x": 0.0},
    snapshots=[og.Snapshot("u", every=40)],
)
problem

# %%
# A plan
# ------
# Bytes, seconds, and what the window in memory holds, before anything runs.
og.plan(problem, memory="256MiB")

# %%
# A run and its result
# --------------------
# In a notebook the run shows one line of progress. The stop button stops it; the state is kept, and
# ``og.resume("plate.run")`` continues.
result = og.run(problem, memory="256MiB", out="plate.run", overwrite=True, progress=False)
result

# %%
# A field
# -------
# ``result["u"]`` is an array on disk, which is read when it is sliced.
result["u"]

# %%
result["u"].plot()

# %%
# Snapshots
# ---------
result.snapshots["u"].plot(2)

# %%
# The record
# ----------
# What was measured, and on which machine.
result.record

# %%
# Larger than memory
# ------------------
# Only ``shape``, ``memory`` and ``scratch`` change:
larger = og.Problem(
    heat,
    shape=(60_000, 100_000),
    steps=120,
    parameters={"k": 0.2},
    initial={"u": 0.0},
)
og.plan(larger, memory="1GiB")
