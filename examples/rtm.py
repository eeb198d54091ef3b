"""Reverse-time migration: where layers of the ground reflect, from what receivers at its top saw.

Waves of some shots are simulated in a smooth model, and what receivers saw beyond that is sent back
in time; the image is the gradient of the misfit by the model, added up over the shots by og.shots,
without its long waves.

Checked: data are computed with a model of flat layers, whose depths are known.
"""

from pathlib import Path

import numpy as np
from inversion import TOP, ricker, survey

import outgrid as og

SHAPE, SHOTS = (120, 160), 6
LAYER = 16
DEPTHS = (0.36, 0.55, 0.75)  # of the layers' tops, in heights of the model
SPEEDS = (0.16, 0.19, 0.16, 0.22)  # squares of (speed * time step / cell)
PERIOD = 5.0  # steps, of the pulse


def tops(shape=SHAPE):
    """The rows in which layers begin."""
    return [round(depth * shape[0]) for depth in DEPTHS]


def truth(shape=SHAPE):
    """Flat layers."""
    rows = np.searchsorted(tops(shape), np.arange(shape[0]), side="right")
    return np.repeat(np.array(SPEEDS)[rows][:, None], shape[1], axis=1)


def smooth(model, width=9.0):
    """The model with a slowness that is smooth along y: times of arrival stay, echoes do not."""
    far = np.arange(-30, 31)
    mask = np.exp(-((far / width) ** 2))
    padded = np.pad(1 / np.sqrt(model[:, 0]), 30, mode="edge")
    column = np.convolve(padded, mask / mask.sum(), mode="valid")
    return np.repeat(1 / column[:, None] ** 2, model.shape[1], axis=1)


def shots(model, count=SHOTS):
    """A problem for each source."""
    pulse = ricker(np.arange(int(6.4 * model.shape[0])) - 6 * PERIOD, PERIOD)
    return survey(model, count, pulse, LAYER, LAYER + 4)


def record(model, out, count=SHOTS, **options):
    """What the receivers see of each shot, less what they see directly."""
    given = {"progress": False} | options
    both = []
    for name, one in (("data", model), ("direct", np.full_like(model, SPEEDS[0]))):
        problems = enumerate(shots(one, count))
        runs = [og.run(p, out=Path(out) / f"{name}.{n}", **given) for n, p in problems]
        both.append([run.traces for run in runs])
    return [data - direct for data, direct in zip(*both, strict=True)]


def migrate(observed, model, out, **options):
    """The image: echoes sent back in time through a smooth model, where they meet the waves.

    Echoes alone are sent back, as cotangents of the traces, so no value of a misfit is needed.
    """
    objectives = [og.Cotangents(-echo) for echo in observed]
    problems = shots(model, len(observed))
    g = og.shots(problems, objectives, wrt=["c"], out=Path(out) / "image", **options)
    image = np.array(g["c"], float)
    image[: TOP + 6] = 0  # next to sources and receivers
    return sharpened(image)


def sharpened(image):
    """Without its long waves, which come of waves that are scattered forward: its Laplacian."""
    padded = np.pad(image, 1, mode="edge")
    beside = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
    return 4 * image - beside


def picked(image):
    """The rows of the strongest reflectors, in the mean over the columns in the middle."""
    rows, columns = image.shape
    middle = image[:, columns // 4 : -(columns // 4)].mean(axis=1)
    strength = np.convolve(np.abs(middle) * np.arange(rows), np.ones(7) / 7, mode="same")
    found = []
    for _ in DEPTHS:
        row = int(np.argmax(strength))
        found.append(row)
        strength[max(0, row - 10) : row + 11] = 0
    return sorted(found)


def draw(model, image, path):
    """The model and its image."""
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    left.imshow(np.sqrt(model))
    shown = image * np.arange(len(image))[:, None]
    largest = np.quantile(np.abs(shown), 0.99)
    right.imshow(shown, cmap="gray", vmin=-largest, vmax=largest)
    for top in tops(model.shape):
        right.axhline(top - 0.5, color="tab:red", linestyle=":", linewidth=1)
    for axes, title in ((left, "model"), (right, "image, layers dotted")):
        axes.set(title=title, xticks=[], yticks=[])
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    from command import arguments

    given = arguments(__doc__, shots={"type": int, "default": SHOTS, "help": "sources"})
    out, model = given.out or Path("rtm"), truth()
    observed = record(model, out, given.shots, memory=given.memory)
    image = migrate(observed, smooth(model), out, memory=given.memory)
    found = picked(image)
    print(f"layers begin in rows {tops()}, the image has reflectors in rows {found}")
    if given.picture:
        draw(model, image, given.picture)
