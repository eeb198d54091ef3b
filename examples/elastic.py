"""Elastic waves of a point force: P and S waves on a staggered grid, order 2 or 4 in space.

Checked: against the full-space Green's function of a point force (G. G. Stokes, 1849; K. Aki and
P. G. Richards, Quantitative Seismology, 2nd ed., equation 4.23), all of it, near field included.
At 14 cells from the force, with a pulse of 6 cells, order 4 is within 1.5 % of the largest value;
errors shrink with the cell to the power of 2.1 and, where the step shrinks with its square, 3.9.
What comes back from the edges is the difference from a grid whose edges are too far off to be
heard: in two dimensions its energy is 70 dB below that of all that receivers beside the layers see
where these are matched and 20 cells wide, 54 dB with 10 cells; with sponges 22 and 14 dB.
"""

import functools
import math
import operator

import numpy as np

import outgrid as og

FAST, SLOW = 1.0, 3**-0.5  # velocities of P and S waves; density and spacing of cells are 1
COURANT = 0.4  # P velocity * dt / dx
WIDTH = 6.0  # of the pulse, in the time a P wave takes for a cell
LAYER = 20  # cells of the sponges
OFFSETS = ((8, 6, 10),)  # of the receivers, in cells


def elastic(order=4):
    """Velocity and stress, each in place, between sponges.

    J. Virieux, P-SV wave propagation in heterogeneous media, Geophysics 51 (1986),
    doi:10.1190/1.1442147; A. R. Levander, Geophysics 53 (1988), doi:10.1190/1.1442422, for order 4;
    R. W. Graves, Bull. Seism. Soc. Am. 86 (1996) in three dimensions. Pressures lie in the cells,
    v.x half a cell on along x, s.xy half a cell on along x and y.
    """

    @og.stencil(name=f"elastic{order}")
    def waves(v: og.Vector, s: og.Tensor, light, stiff, shear, *, taper: og.Vector):
        # light = dt / density, stiff and shear = Lame's lambda and mu times dt.
        damp = math.prod(taper.values())
        moved, pressed = (
            moves(v, light, pulls(v, s, order)),
            presses(s, stiff, shear, rates(v, order)),
        )
        return [
            {"v": {a: damp * each for a, each in moved.items()}},
            {"s": {ab: damp * each for ab, each in pressed.items()}},
        ]

    return waves


def matched(order=4):
    """The same between matched layers: each derivative has a memory, which is 0 outside of them.

    D. Komatitsch and R. Martin, Geophysics 72 (2007), doi:10.1190/1.2757586.
    """

    @og.stencil(name=f"matched{order}")
    def waves(
        v: og.Vector,
        s: og.Tensor,
        pulled: og.Gradient,
        rated: og.Gradient,
        light,
        stiff,
        shear,
        *,
        decay: og.Vector,
        gain: og.Vector,
        decay_half: og.Vector,
        gain_half: og.Vector,
    ):
        def remembered(memory, derivatives, half):
            """The memories of derivatives, which lie half a cell on where that is said."""
            found = {}
            for (a, b), derivative in derivatives.items():
                keep, take = (decay_half, gain_half) if half(a, b) else (decay, gain)
                found[a + b] = keep[b] * memory[a + b] + take[b] * derivative
            return found

        pull, rate = pulls(v, s, order), rates(v, order)
        pull_memory = remembered(pulled, pull, lambda a, b: a == b)
        rate_memory = remembered(rated, rate, lambda a, b: a != b)
        pull = {ab: each + pull_memory["".join(ab)] for ab, each in pull.items()}
        rate = {ab: each + rate_memory["".join(ab)] for ab, each in rate.items()}
        return [
            {"pulled": pull_memory, "v": moves(v, light, pull)},
            {"rated": rate_memory, "s": presses(s, stiff, shear, rate)},
        ]

    return waves


def pulls(v, s, order):
    """The derivatives of the stress that drive velocities: of the component a along b."""
    return {
        (a, b): (og.forward if a == b else og.backward)(s[a + b], b, order) for a in v for b in v
    }


def rates(v, order):
    """The derivatives of the velocity: of the component a along b."""
    return {(a, b): (og.backward if a == b else og.forward)(v[a], b, order) for a in v for b in v}


def moves(v, light, pull):
    """New velocities."""
    return {a: v[a] + light * total(pull[a, b] for b in v) for a in v}


def presses(s, stiff, shear, rate):
    """New stresses."""
    spread = total(each for (a, b), each in rate.items() if a == b)
    found = {}
    for a, b in s:
        if a == b:
            change = stiff * spread + 2 * shear * rate[a, a]
        else:
            change = shear * (rate[a, b] + rate[b, a])
        found[a + b] = s[a + b] + change
    return found


def total(parts):
    """The sum, with no 0 to begin with."""
    return functools.reduce(operator.add, parts)


elastic4, matched4 = elastic(4), matched(4)


def pulse(time, width=WIDTH):
    """The force: smooth, beginning at 0."""
    return np.exp(-(((np.asarray(time) - 3 * width) / width) ** 2))


def problem(
    shape=(60, 60, 60),
    steps=110,
    offsets=OFFSETS,
    order=4,
    courant=COURANT,
    width=WIDTH,
    layer=LAYER,
    between="sponges",
):
    """A force along z in the middle, and receivers of all components at offsets from it.

    In two dimensions all is the same along the axis that is missing, and the force a line.
    """
    middle = tuple(extent // 2 for extent in shape)
    ears = [tuple(m + d for m, d in zip(middle, offset, strict=True)) for offset in offsets]
    axes, dt = "zyx"[-len(shape) :], courant / FAST
    initial = {
        "v": 0.0,
        "s": 0.0,
        "light": dt,
        "stiff": dt * (FAST**2 - 2 * SLOW**2),
        "shear": dt * SLOW**2,
    }
    if between == "sponges":
        rule = elastic(order)
        layers = {f"taper_{a}": og.sponge(n, layer) for a, n in zip(axes, shape, strict=True)}
    else:
        # The spectrum of the force is largest at 0 and, at this frequency, 1/e of that.
        frequency = courant / (math.pi * width)
        rule = matched(order)
        layers = og.matched_layers(shape, layer, courant=courant, frequency=frequency)
        initial |= {"pulled": 0.0, "rated": 0.0}
    return og.Problem(
        rule,
        shape,
        "float64",
        steps,
        layers,
        initial=initial,
        sources=[og.Source(f"v_{axes[0]}", middle, dt * pulse(dt * np.arange(steps), width))],
        receivers=[og.Receiver(f"v_{a}", ear) for ear in ears for a in axes],
    )


def returned(steps=400, size=120, layer=LAYER, between="matched", **options):
    """Energy that comes back to receivers beside the layers, over that of all they see, in dB."""
    beside = size // 2 - layer - 4
    offsets = ((0, beside), (beside, 0), (beside, beside), (beside // 2, beside))
    silent = size + int(COURANT * steps) + 20  # nothing is back from there in so many steps

    def traces(cells, between, name):
        posed = problem((cells, cells), steps, offsets, layer=layer, between=between)
        return og.run(posed, **options | {"out": options["out"] / name}).traces

    wanted = traces(silent, "sponges", "silent")
    back = traces(size, between, between) - wanted
    return 10 * math.log10(np.sum(back**2) / np.sum(wanted**2))


def exact(steps=110, offsets=OFFSETS, courant=COURANT, width=WIDTH):
    """What the receivers see after each step."""
    time = courant / FAST * (np.arange(steps) + 0.5)
    found = []
    for offset in offsets:
        for number in range(len(offset)):
            place = np.array(offset, float)
            place[0] -= 0.5  # the force is half a cell on along its axis,
            place[number] += 0.5  # a component along its own
            if len(place) == 3:
                found.append(stokes(place, number, time, width))
                continue
            # A line is made of points, of which those farther off are not heard yet.
            points = np.arange(-FAST * time[-1], FAST * time[-1], 0.5)
            line = [0.5 * stokes((*place, y), number, time, width) for y in points]
            found.append(np.sum(line, axis=0))
    return np.transpose(found)


def stokes(place, number, time, width):
    """Velocity along axis `number` at `place`, for a force along axis 0."""
    distance = math.hypot(*place)
    along = np.asarray(place) / distance
    product = along[0] * along[number]
    same = float(number == 0)
    late, soon = distance / SLOW, distance / FAST

    def rate(delay):
        lag = time - delay
        return -2 * (lag - 3 * width) / width**2 * pulse(lag, width)

    # The integral of delay * rate(delay) over the delays from P to S, by parts.
    area = np.vectorize(lambda t: math.sqrt(math.pi) / 2 * width * math.erf(t / width - 3))
    near = soon * pulse(time - soon, width) - late * pulse(time - late, width)
    near = near + area(time - soon) - area(time - late)
    far = product * rate(soon) / FAST**2 - (product - same) * rate(late) / SLOW**2
    return ((3 * product - same) * near / distance**3 + far / distance) / (4 * math.pi)


def draw(result, path):
    """The shot record: velocity along z, over time, at receivers in a line."""
    from matplotlib import pyplot

    traces = result.traces[:, ::3]
    most = abs(traces).max(axis=0)
    figure, axes = pyplot.subplots(figsize=(5, 5), layout="constrained")
    end = traces.shape[1]
    axes.imshow(
        traces / most,
        aspect="auto",
        cmap="seismic",
        vmin=-1,
        vmax=1,
        extent=(4, 4 + 2 * end, COURANT / FAST * len(traces), 0),
    )
    for speed, name in ((FAST, "P"), (SLOW, "S")):
        place = 4 + 2 * np.arange(end)
        axes.plot(place, np.hypot(6, place) / speed + 3 * WIDTH, "k--", linewidth=0.8)
        axes.text(place[-1], math.hypot(6, place[-1]) / speed + 3 * WIDTH, name)
    axes.set(
        xlabel="distance along x in cells",
        ylabel="time that a P wave takes for a cell",
        xlim=(4, 2 + 2 * end),
        ylim=(COURANT / FAST * len(traces), 0),
    )
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    from command import arguments, run

    given = arguments(
        __doc__,
        size={"type": int, "default": 128, "help": "cells along each axis"},
        steps={"type": int, "default": 250, "help": "steps of 0.4 cells / P velocity"},
        between={"choices": ["matched", "sponges"], "default": "sponges", "help": "layers around"},
    )
    ears = [(6, 0, 4 + 2 * n) for n in range((given.size // 2 - LAYER - 4) // 2)]
    result = run(problem((given.size,) * 3, given.steps, ears, between=given.between), given)
    wanted = exact(given.steps, ears)[:, ::3]
    error = abs(result.traces[:, ::3] - wanted).max(axis=0) / abs(wanted).max(axis=0)
    print(f"largest difference at a receiver {error.max():.4f}, of the largest velocity there")
    if given.picture:
        draw(result, given.picture)
