"""Sound of a point source in free space: nothing comes back from the faces, which are matched.

Checked: in three dimensions p(r, t) = f(t - r/c) / (4 pi r) for p_tt = c^2 lap p + f(t) delta
(L. D. Landau and E. M. Lifshitz, Fluid Mechanics, section 74), within 0.7 % of the largest value.
The run goes on when the sound has gone; what then comes back from the faces is below 0.1 % of it.
"""

import math

import numpy as np

import outgrid as og

COURANT = 0.4  # c dt / dx, with c = dx = 1
WIDTH = 8.0  # of the pulse, in cells
LAYER = 12  # cells of the matched layers
SPACING = 2  # cells between receivers


def pulse(time):
    """A smooth signal that begins at 0."""
    return np.exp(-(((np.asarray(time) - 3 * WIDTH) / WIDTH) ** 2))


def places(shape):
    """The source in the middle, and receivers in a line along x from near it to the layer."""
    middle = (shape[0] / 2 - 0.25, shape[1] // 2, shape[2] // 2)  # between two planes
    ends = range(int(middle[2]) + 6, shape[2] - LAYER - 1, SPACING)
    return middle, [(*middle[:2], x) for x in ends]


def problem(shape=(56, 56, 56), steps=250, frames=0):
    """Fourth order in space, with a matched layer at every face.

    So many ``frames`` are kept of the plane at the middle of y, in which source and receivers are.
    """
    middle, ears = places(shape)
    layers = og.matched_layers(shape, LAYER, courant=COURANT, frequency=COURANT / (4 * WIDTH))
    return og.Problem(
        "acoustic_pml:4",
        shape,
        "float64",
        steps,
        layers,
        initial={"p": 0.0, "slope": 0.0, "bend": 0.0, "c": COURANT**2},
        sources=[og.Source("p", middle, COURANT**2 * pulse(COURANT * np.arange(steps)))],
        receivers=[og.Receiver("p", ear) for ear in ears],
        snapshots=[og.Snapshot("p", every=max(1, steps // frames), y=shape[1] // 2)]
        if frames
        else [],
    )


def exact(shape=(56, 56, 56), steps=250):
    """What the receivers hear after each step."""
    middle, ears = places(shape)
    distance = np.array([math.dist(middle, ear) for ear in ears])
    time = COURANT * np.arange(1, steps + 1)[:, None] - distance
    return pulse(time) / (4 * math.pi * distance)


def draw(result, path):
    """The shot record: what each receiver heard, over time."""
    from matplotlib import pyplot

    distance = SPACING * np.arange(result.traces.shape[1]) + 6
    louder = result.traces * distance  # what spreading takes away
    most = abs(louder).max()
    figure, axes = pyplot.subplots(figsize=(5, 4), layout="constrained")
    axes.imshow(
        louder,
        aspect="auto",
        cmap="seismic",
        vmin=-most,
        vmax=most,
        extent=(distance[0], distance[-1], COURANT * len(louder), 0),
        interpolation="nearest",
    )
    axes.set(xlabel="distance from the source in cells", ylabel="time in cells / c")
    figure.savefig(path, dpi=100)


def film(result, path):
    """The sound on its way through the plane of the source, frame by frame."""
    from matplotlib import animation, pyplot

    (frames,) = result.snapshots
    figure = pyplot.figure(figsize=(4, 4))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    most = np.quantile(abs(frames), 0.999)
    image = axes.imshow(frames[0], cmap="seismic", vmin=-most, vmax=most)
    shown = animation.FuncAnimation(figure, lambda n: [image.set_data(frames[n])], len(frames))
    shown.save(path, writer=animation.PillowWriter(fps=12), dpi=80)


if __name__ == "__main__":
    from command import arguments, run

    given = arguments(
        __doc__,
        size={"type": int, "default": 96, "help": "cells along each axis"},
        steps={"type": int, "default": 300, "help": "steps of 0.4 cells / c"},
        movie={"metavar": "FILE", "help": "draw 60 frames of a plane, as a GIF"},
    )
    shape = (given.size,) * 3
    result = run(problem(shape, given.steps, 60 if given.movie else 0), given)
    wanted = exact(shape, given.steps)
    error = abs(result.traces - wanted).max(axis=0) / wanted.max(axis=0)
    print(f"largest difference at a receiver {error.max():.4f}, of the largest value there")
    if given.picture:
        draw(result, given.picture)
    if given.movie:
        film(result, given.movie)
