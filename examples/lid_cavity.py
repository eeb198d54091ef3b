"""Flow in a cavity under a moving lid, by the lattice Boltzmann method with 19 velocities (D3Q19).

Two relaxation times (I. Ginzburg, F. Verhaeghe and D. d'Humieres, Commun. Comput. Phys. 3 (2008)
427) on the equilibrium of an incompressible fluid (X. He and L.-S. Luo, J. Stat. Phys. 88 (1997)
927). Walls lie half-way between cells: what would come out of a wall is what went in, and the lid
adds its momentum. The fields are the differences of the populations from those at rest.

Checked: the velocities on the centre lines of a square cavity at Re = 100 are those of tables I and
II of U. Ghia, K. N. Ghia and C. T. Shin, J. Comput. Phys. 48 (1982) 387, to within 0.9 % of the
velocity of the lid; and their extrema tend to those of the spectral solution of O. Botella and
R. Peyret, Comput. Fluids 27 (1998) 421, from which the tables of 1982 are as far away, with an
order of at least two. A cube at Re = 1000 (--width 0 --reynolds 1000, from 40 cells on) is set
beside tables 5 and 6 of S. Albensoeder and H. C. Kuhlmann, J. Comput. Phys. 206 (2005) 536, as the
validation suite of PICT (tum-pbs) repeats them, and the extrema, as B. Ben Beya and T. Lili,
C. R. Mecanique 336 (2008) 863, do. A test follows vortices in three dimensions to their exact end.
"""

import itertools

import numpy as np

import outgrid as og

# Pairs of opposite velocities (z, y, x): one along each axis, two in each plane.
PAIRS = [
    e
    for e in itertools.product((-1, 0, 1), repeat=3)
    if 0 < sum(map(abs, e)) <= 2 and e > (0, 0, 0)
]
VELOCITIES = [(0, 0, 0), *(v for e in PAIRS for v in (e, tuple(-c for c in e)))]
WEIGHTS = [(1 / 3, 1 / 18, 1 / 36)[sum(map(abs, v))] for v in VELOCITIES]
MAGIC = 3 / 16  # walls of a channel are then exactly half-way
NAMES = [f"f{i}" for i in range(19)]

REYNOLDS = 100
# Velocity along x by height, and upward by place along x.
ALONG_X = np.array(
    [
        (0.0547, -0.03717), (0.0625, -0.04192), (0.0703, -0.04775), (0.1016, -0.06434),
        (0.1719, -0.10150), (0.2813, -0.15662), (0.4531, -0.21090), (0.5000, -0.20581),
        (0.6172, -0.13641), (0.7344, 0.00332), (0.8516, 0.23151), (0.9531, 0.68717),
        (0.9609, 0.73722), (0.9688, 0.78871), (0.9766, 0.84123),
    ]
)  # fmt: skip
UP = np.array(
    [
        (0.0625, 0.09233), (0.0703, 0.10091), (0.0781, 0.10890), (0.0938, 0.12317),
        (0.1563, 0.16077), (0.2266, 0.17507), (0.2344, 0.17527), (0.5000, 0.05454),
        (0.8047, -0.24533), (0.8594, -0.22445), (0.9063, -0.16914), (0.9453, -0.10313),
        (0.9531, -0.08864), (0.9609, -0.07391), (0.9688, -0.05906),
    ]
)  # fmt: skip
EXTREMA = np.array([-0.2140424, 0.1795728, -0.2538030])
# The same in the middle plane of a cube, at Re = 1000.
CUBE_REYNOLDS = 1000
CUBE_ALONG_X = np.array(
    [
        (0.0547, -0.20623), (0.0625, -0.22283), (0.0703, -0.23696), (0.1016, -0.27293),
        (0.1719, -0.25160), (0.2813, -0.10999), (0.4531, -0.00612), (0.5000, 0.00802),
        (0.6172, 0.03905), (0.7344, 0.07334), (0.8516, 0.12183), (0.9531, 0.33171),
        (0.9609, 0.39821), (0.9688, 0.48443), (0.9766, 0.58964),
    ]
)  # fmt: skip
CUBE_UP = np.array(
    [
        (0.0625, 0.21738), (0.0703, 0.22746), (0.0781, 0.23503), (0.0938, 0.24407),
        (0.1563, 0.22924), (0.2266, 0.17580), (0.2344, 0.16987), (0.5000, 0.03674),
        (0.8047, -0.15223), (0.8594, -0.31117), (0.9063, -0.43423), (0.9453, -0.33511),
        (0.9531, -0.29032), (0.9609, -0.24095), (0.9688, -0.18864),
    ]
)  # fmt: skip
CUBE_EXTREMA = np.array([-0.2803833, 0.2466511, -0.4350186])


def summed(terms):
    """The sum of terms with coefficients 1, -1 or 0, those with 0 left out."""
    total = None
    for sign, term in terms:
        if sign:
            total = term if total is None else (total + term if sign > 0 else total - term)
    return total


def momentum(populations):
    """Its components along z, y and x, which are the velocity too."""
    return [
        summed((v[axis], each) for v, each in zip(VELOCITIES, populations, strict=True))
        for axis in range(3)
    ]


@og.stencil(ndim=3)
def lattice(
    f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, kind,
    *, even, odd, lid,
):  # fmt: skip
    """Stream, then collide. `kind` is 0 in the fluid, 1 in a wall, 2 in the lid, moving along x."""
    f = (f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18)
    arrived = [f0]
    for i, (velocity, weight) in enumerate(zip(VELOCITIES, WEIGHTS, strict=True)):
        if i:
            origin = tuple(-c for c in velocity)
            opposite = f[i + 1 if i % 2 else i - 1]
            pushed = 6 * weight * velocity[2] * lid * (kind[origin] - 1) if velocity[2] else 0.0
            arrived.append(og.where(kind[origin] > 0, opposite + pushed, f[i][origin]))
    pairs = list(zip(arrived[1::2], arrived[2::2], strict=True))
    sums, differences = [a + b for a, b in pairs], [a - b for a, b in pairs]
    flow = [
        summed((e[axis], each) for e, each in zip(PAIRS, differences, strict=True))
        for axis in range(3)
    ]
    squared = flow[0] * flow[0] + flow[1] * flow[1] + flow[2] * flow[2]
    rest = f0 + summed((1, each) for each in sums) - 1.5 * squared
    new = [f0 - even * (f0 - WEIGHTS[0] * rest)]
    for e, weight, (a, b), both, difference in zip(
        PAIRS, WEIGHTS[1::2], pairs, sums, differences, strict=True
    ):
        along = summed(zip(e, flow, strict=True))
        symmetric = even * (0.5 * both - (4.5 * weight * (along * along) + weight * rest))
        antisymmetric = odd * (0.5 * difference - 3 * weight * along)
        new += [a - symmetric - antisymmetric, b - symmetric + antisymmetric]
    return dict(zip(NAMES, new, strict=True))


def problem(
    size=32, turnovers=20, speed=0.1, width=None, steps=None, dtype="float64", reynolds=REYNOLDS
):
    """A cavity `size` cells high and long under a lid of `speed` cells per step.

    It is a cube with walls, or periodic across and `width` cells wide. `turnovers` is the time in
    units of size / speed.
    """
    viscosity = speed * size / reynolds
    even, odd = 3 * viscosity + 0.5, MAGIC / (3 * viscosity) + 0.5
    wall = "(z == 0) + (x == 0) + (x == nx - 1)" + ("" if width else " + (y == 0) + (y == ny - 1)")
    return og.Problem(
        lattice,
        (size + 2, width or size + 2, size + 2),
        dtype,
        steps or round(turnovers * size / speed),
        {"even": 1 / even, "odd": 1 / odd, "lid": speed},
        {"y": "periodic"} if width else "frozen",
        dict.fromkeys(NAMES, 0.0) | {"kind": f"where({wall} > 0, 1, 2 * (z == nz - 1))"},
        dtypes={"kind": "uint8"},
    )


def velocity(result, *part, speed=0.1):
    """Velocity over that of the lid along z, y and x, in a part of the grid."""
    return [each / speed for each in momentum([np.array(result[name][part]) for name in NAMES])]


def centre_lines(result, speed=0.1):
    """Places from wall to wall and what flows there: along x on the way up, up on the way along."""
    planes, rows, columns = (
        slice((n - 1) // 2, n // 2 + 1) for n in result[NAMES[0]].shape
    )  # one in the middle, or two
    along = velocity(result, slice(1, -1), rows, columns, speed=speed)[2].mean(axis=(1, 2))
    up = velocity(result, planes, rows, slice(1, -1), speed=speed)[0].mean(axis=(0, 1))
    places = (np.arange(len(up)) + 0.5) / len(up)
    return (
        np.concatenate([[0], places, [1]]),
        np.concatenate([[0], along, [1]]),
        np.concatenate([[0], up, [0]]),
    )


def interpolated(places, values, wanted):
    """Values between `places` by cubics through the nearest four."""
    found = []
    for place in wanted:
        first = int(np.clip(np.searchsorted(places, place) - 2, 0, len(places) - 4))
        near = slice(first, first + 4)
        found.append(np.polyval(np.polyfit(places[near] - place, values[near], 3), 0))
    return np.array(found)


def from_table(result, tables=(ALONG_X, UP)):
    """The largest differences from the tables, over the velocity of the lid: along x, and up."""
    places, *lines = centre_lines(result)
    return tuple(
        abs(interpolated(places, values, table[:, 0]) - table[:, 1]).max()
        for values, table in zip(lines, tables, strict=True)
    )


def extrema(result):
    """The least of the velocity along x, the largest and the least upward, on the centre lines."""
    places, along, up = centre_lines(result)
    return np.array([-peak(places, -along), peak(places, up), -peak(places, -up)])


def peak(places, values):
    """The top of a polynomial through the five values around the largest one inside."""
    top = int(np.argmax(values[3:-3])) + 3
    curve = np.polyfit(places[top - 2 : top + 3] - places[top], values[top - 2 : top + 3], 4)
    inside = np.linspace(places[top - 1] - places[top], places[top + 1] - places[top], 2001)
    return np.polyval(curve, inside).max()


def draw(result, path):
    """Speed and streamlines in the middle of the cavity."""
    from matplotlib import pyplot

    middle = result[NAMES[0]].shape[1] // 2
    up, _, along = velocity(result, slice(1, -1), middle, slice(1, -1))
    places = (np.arange(len(up)) + 0.5) / len(up)
    figure, axes = pyplot.subplots(figsize=(5, 4.4), layout="constrained")
    speed = axes.pcolormesh(places, places, np.hypot(up, along), vmin=0, vmax=1, cmap="viridis")
    axes.streamplot(places, places, along, up, color="white", linewidth=0.6, arrowsize=0.7)
    axes.set(xlabel="x", ylabel="z", aspect="equal", xlim=(0, 1), ylim=(0, 1))
    figure.colorbar(speed, label="speed over that of the lid")
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    from command import arguments, run

    given = arguments(
        __doc__,
        size={"type": int, "default": 32, "help": "cells from wall to wall"},
        width={"type": int, "default": 2, "help": "cells across; 0 makes a cube"},
        turnovers={"type": float, "default": 20, "help": "time in units of size / speed"},
        reynolds={"type": float, "default": REYNOLDS, "help": "Reynolds number"},
    )
    cavity = problem(given.size, given.turnovers, width=given.width, reynolds=given.reynolds)
    result = run(cavity, given)
    if given.width and given.reynolds == REYNOLDS:
        print(
            "largest difference from Ghia, Ghia and Shin: {:.4f} {:.4f}".format(*from_table(result))
        )
        print("from the extrema of Botella and Peyret:", abs(extrema(result) - EXTREMA).round(5))
    if not given.width and given.reynolds == CUBE_REYNOLDS:
        off = from_table(result, (CUBE_ALONG_X, CUBE_UP)), abs(extrema(result) - CUBE_EXTREMA)
        print("largest difference from Albensoeder and Kuhlmann: {:.4f} {:.4f}".format(*off[0]))
        print("from their extrema:", off[1].round(5))
    if given.picture:
        draw(result, given.picture)
