"""Flow-like structures of a colour picture, made clearer: diffusion along them and not across.

Coherence-enhancing diffusion after J. Weickert, International Journal of Computer Vision 31 (1999)
111, doi:10.1023/A:1008009714131. The structure tensor, of all channels together, is smoothed twice;
its eigenvectors say which way structures run, its eigenvalues how clearly. Each channel flows along
them: div(D grad u), with D = a I + (1 - a) exp(-C / (l1 - l2)^2) w w^T.

All of it is one stencil. The tensor, its smoothed forms, D and the fluxes are temporaries, which
take neither disk nor initial values.

Checked: the same by SciPy (its convolutions) and NumPy (its eigenvectors), step by step.
"""

import numpy as np

import outgrid as og

RGB = og.channels("r", "g", "b")
ALPHA, CONTRAST, DT = 0.01, 60.0, 0.2
SMOOTH = (1, 4, 6, 4, 1)  # a mask of 16


def smoothed(u):
    """By the mask along both axes."""
    for axis in "yx":
        offsets = [(k, 0) if axis == "y" else (0, k) for k in range(-2, 3)]
        u = og.temporary(sum(w / 16 * u[o] for w, o in zip(SMOOTH, offsets, strict=True)))
    return u


@og.stencil
def coherence(picture: RGB, *, dt=DT, alpha=ALPHA, contrast=CONTRAST):
    """One step of all channels."""
    slopes = [(og.centered(u, "y"), og.centered(u, "x")) for u in picture.values()]
    yy = smoothed(og.temporary(sum(y * y for y, _ in slopes)))
    yx = smoothed(og.temporary(sum(y * x for y, x in slopes)))
    xx = smoothed(og.temporary(sum(x * x for _, x in slopes)))
    # The eigenvector of the smaller eigenvalue, by the double of its angle.
    apart = og.sqrt((yy - xx) * (yy - xx) + 4 * yx * yx)
    clear = (1 - alpha) * og.where(apart > 0, og.exp(-contrast / (apart * apart)), 0)
    turn = og.where(apart > 0, (xx - yy) / apart, 0)
    across = og.where(apart > 0, -2 * yx / apart, 0)
    d_yy = og.temporary(alpha + clear * (1 + turn) / 2)
    d_xx = og.temporary(alpha + clear * (1 - turn) / 2)
    d_yx = og.temporary(clear * across / 2)
    new = {}
    for name, u in picture.items():
        turned_y = og.temporary(d_yx * og.centered(u, "x"))
        turned_x = og.temporary(d_yx * og.centered(u, "y"))
        flux = {
            "y": og.interpolate(d_yy, "y") * og.forward(u, "y") + og.interpolate(turned_y, "y"),
            "x": og.interpolate(d_xx, "x") * og.forward(u, "x") + og.interpolate(turned_x, "x"),
        }
        new[name] = u + dt * og.divergence(flux)
    return {"picture": new}


def picture(size=96):
    """Stripes of three colours that run in circles, with noise: (rows, columns, channels)."""
    rows, columns = np.mgrid[0:size, 0:size] - size / 2
    radius = np.hypot(rows, columns)
    stripes = [128 + 80 * np.sin(radius / 3 + shift) for shift in (0, 1, 2)]
    noise = np.random.default_rng(7).normal(0, 40, (size, size, 3))
    return (np.stack(stripes, axis=-1) + noise).astype(np.float32)


def problem(size=96, steps=40):
    """The picture, reflected at its edges."""
    return og.Problem(
        coherence, (size, size), "float32", steps, {}, "neumann", {"picture": picture(size)}
    )


def filtered(result):
    """The channels as one array."""
    return np.stack([np.asarray(u) for u in result.components("picture").values()], axis=-1)


def by_scipy(u, steps):
    """The same in double precision: masks of scipy.ndimage, eigenvectors of numpy.linalg."""
    from scipy import ndimage

    u = u.astype(np.float64)

    def slope(a, axis):
        return ndimage.correlate1d(a, [-0.5, 0, 0.5], axis, mode="reflect")

    for _ in range(steps):
        before = u
        y, x = slope(u, 0), slope(u, 1)
        tensor = np.empty((*u.shape[:2], 2, 2))
        for (i, a), (j, b) in ((p, q) for p in enumerate((y, x)) for q in enumerate((y, x))):
            product = (a * b).sum(axis=-1)
            for axis in (0, 1):
                product = ndimage.correlate1d(product, np.array(SMOOTH) / 16, axis, mode="reflect")
            tensor[..., i, j] = product
        sizes, vectors = np.linalg.eigh(tensor)
        apart = sizes[..., 1] - sizes[..., 0]
        with np.errstate(divide="ignore"):
            clear = (1 - ALPHA) * np.exp(-CONTRAST / apart**2)
        w = vectors[..., 0]
        d = ALPHA * np.eye(2) + (clear[..., None, None] * w[..., :, None] * w[..., None, :])
        turned = d[..., 0, 1, None] * np.stack([x, y])
        for axis in (0, 1):
            edges = [(1, 1) if other == axis else (0, 0) for other in range(3)]
            across, over, wide = (
                np.pad(part, edges, mode="symmetric")
                for part in (d[..., axis, axis, None], turned[axis], before)
            )
            low, high = (np.arange(across.shape[axis] - 1) + side for side in (0, 1))

            def at(part, places, axis=axis):
                return np.take(part, places, axis)

            flux = (at(across, low) + at(across, high)) / 2 * (at(wide, high) - at(wide, low))
            flux = flux + (at(over, low) + at(over, high)) / 2
            u = u + DT * np.diff(flux, axis=axis)
    return u


def draw(result, path):
    """The picture before and after."""
    from matplotlib import pyplot

    size = filtered(result).shape[0]
    figure, axes = pyplot.subplots(1, 2, figsize=(7, 3.5), layout="constrained")
    for side, values in zip(axes, (picture(size), filtered(result)), strict=True):
        side.imshow(np.clip(values, 0, 255).astype(np.uint8))
        side.set(xticks=[], yticks=[])
    figure.savefig(path, dpi=90)


if __name__ == "__main__":
    from command import arguments, run

    given = arguments(
        __doc__,
        size={"type": int, "default": 96, "help": "cells of an edge"},
        steps={"type": int, "default": 40, "help": "time steps"},
    )
    result = run(problem(given.size, given.steps), given)
    if given.size <= 1024:
        apart = np.abs(filtered(result) - by_scipy(picture(given.size), given.steps))
        print(f"largest difference from SciPy {apart.max():.2g}, of values up to 255")
    if given.picture:
        draw(result, given.picture)
