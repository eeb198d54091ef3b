"""Light at a small metal sphere: Maxwell's equations with a Drude medium, checked against Mie.

The fields of the grid are the scattered ones. What drives them is the current in the sphere, by the
scattered field there and the incident one, a pulse that travels along z and is polarised along x:
a formula of place and step. The current exists in the box around the sphere only. E lies half a
cell on along its component on Yee's grid, H along the other two, and the current where E is, if
that is in the sphere: its surface has steps. A convolutional PML takes what leaves. Lengths are in
cells, light travels one cell per unit of time, and all frequencies and times go with the radius.

    dH/dt = -curl E;  dJ/dt = wp^2 (E + Einc) - gamma J;  dE/dt = curl H - J

Checked: the scattered field at four points over the incident one at the centre, by frequency,
against the series of G. Mie (1908) in the form of C. F. Bohren and D. R. Huffman, Absorption and
Scattering of Light by Small Particles (1983), sections 4.3 and 4.4.
"""

import math

import numpy as np
from scipy.special import spherical_jn, spherical_yn

import outgrid as og

COURANT = 0.5  # c dt / dx
PLASMA, DAMPING = 1.2, 0.3  # wp and gamma, times the radius
PULSE, WIDTH, DELAY = 1.0, 2.2, 9.0  # frequency times radius; length and middle of it over that
SIZES = np.linspace(0.7, 1.5, 17)  # frequencies times the radius, at which answers are compared
STEPS = 100  # over the radius
FREE, LAYER = 2.2, 10  # from the centre to the absorbing layer, over the radius; its cells
CURLS = og.channels("zy", "zx", "yz", "yx", "xz", "xy")  # a component, and the axis along which
AFTER = {"z": ("x", "y"), "y": ("z", "x"), "x": ("y", "z")}  # a right-handed turn
ORDERS = 8  # of the series: far more than spheres of this size need


def pulse(time, radius, functions=np):
    """The incident field at the centre."""
    late = (time - DELAY * radius) / radius
    return functions.exp(-((late / WIDTH) ** 2)) * functions.sin(PULSE * late)


@og.stencil(ndim=3)
def scattered(
    e: og.Vector,
    h: og.Vector,
    j: og.Vector,
    metal: og.Vector,
    of_e: CURLS,
    of_h: CURLS,
    *,
    radius,
    centre,
    decay: og.Vector,
    gain: og.Vector,
    decay_half: og.Vector,
    gain_half: og.Vector,
):
    """H from E, the current from E, then E from both; ``of_e`` and ``of_h`` are the memories of
    derivatives in the layer."""
    lost = DAMPING / radius * COURANT / 2
    driving = (PLASMA / radius) ** 2 * COURANT
    incident = pulse(COURANT * og.step - (og.index("z") - centre), radius, og)
    driven = {a: e[a] + (incident if a == "x" else 0.0) for a in AFTER}
    moved = {a: (1 - lost) * j[a] + driving * metal[a] * driven[a] for a in AFTER}
    slopes_e = {c + b: og.forward(e[c], b) for c in AFTER for b in AFTER[c]}
    slopes_h = {c + b: og.backward(h[c], b) for c in AFTER for b in AFTER[c]}
    kept_e = {
        pair: decay_half[pair[1]] * of_e[pair] + gain_half[pair[1]] * slope
        for pair, slope in slopes_e.items()
    }
    kept_h = {
        pair: decay[pair[1]] * of_h[pair] + gain[pair[1]] * slope
        for pair, slope in slopes_h.items()
    }
    curl_e = curl({pair: slopes_e[pair] + kept_e[pair] for pair in slopes_e})
    curl_h = curl({pair: slopes_h[pair] + kept_h[pair] for pair in slopes_h})
    return [
        {"of_e": kept_e, "h": {a: h[a] - COURANT * curl_e[a] for a in AFTER}},
        {"j": {a: moved[a] / (1 + lost) for a in AFTER}},
        {"of_h": kept_h, "e": {a: e[a] + COURANT * (curl_h[a] - j[a]) for a in AFTER}},
    ]


def curl(slopes):
    """By component, from the derivatives of components along axes."""
    return {a: slopes[c + b] - slopes[b + c] for a, (b, c) in AFTER.items()}


def extent(radius):
    """Cells along each axis: an odd number."""
    return 2 * (round(FREE * radius) + LAYER) + 1


def sphere(radius, axis):
    """1 where the component of E along an axis lies in the sphere, else 0."""
    place = np.arange(extent(radius)) - extent(radius) // 2
    z, y, x = np.ix_(*(place + (0.5 if a == axis else 0.0) for a in "zyx"))
    return (z * z + y * y + x * x < radius**2).astype(float)


def points(radius):
    """Where the scattered E along x is seen: behind and before the sphere, and at its sides."""
    centre, far = extent(radius) // 2, round(1.6 * radius)
    return [
        (centre + far, centre, centre),
        (centre - far, centre, centre),
        (centre, centre + far, centre),
        (centre, centre, centre + far),
    ]


def problem(radius=10):
    """A sphere in the middle of a cube."""
    size = extent(radius)
    centre, reach = size // 2, radius + 2
    box = og.Box(**dict.fromkeys("zyx", (centre - reach, centre + reach + 1)))
    names = [f"{name}_{a}" for name in "ehj" for a in AFTER]
    names += [f"of_{name}_{c}{b}" for name in "eh" for c in AFTER for b in AFTER[c]]
    waves = {"courant": COURANT, "frequency": PULSE / radius * COURANT / (2 * math.pi)}
    return og.Problem(
        scattered,
        (size,) * 3,
        "float64",
        STEPS * radius,
        {"radius": float(radius), "centre": float(centre)},
        {"kind": "matched", "width": LAYER, **waves},
        dict.fromkeys(names, 0.0) | {f"metal_{a}": sphere(radius, a) for a in AFTER},
        receivers=[og.Receiver("e_x", place) for place in points(radius)],
        regions={f"{name}_{a}": box for name in ("j", "metal") for a in "zyx"},
    )


def measured(result, radius=10):
    """The scattered field at the points over the incident one, by frequency and point."""
    traces = np.asarray(result.traces)
    times = COURANT * np.arange(1, len(traces) + 1)
    waves = np.exp(1j * np.outer(SIZES / radius, times))
    return (waves @ traces) / (waves @ pulse(times, radius))[:, None]


def permittivity(size):
    """Of the medium, relative, where fields go as exp(-i w t)."""
    return 1 - PLASMA**2 / (size * (size + 1j * DAMPING))


def _riccati(order, place, *, outgoing):
    """A spherical Bessel or Hankel function, and the derivative of its argument times it."""
    value = spherical_jn(order, place)
    slope = spherical_jn(order, place, derivative=True)
    if outgoing:
        value = value + 1j * spherical_yn(order, place)
        slope = slope + 1j * spherical_yn(order, place, derivative=True)
    return value, value + place * slope


def mie(size, place):
    """The scattered E along x at a ``place`` (z, y, x), in radii from the centre, over the incident
    one, at a frequency of so much over the radius."""
    index = np.sqrt(permittivity(size))
    z, y, x = place
    distance = math.sqrt(z * z + y * y + x * x)
    cosine, sine = z / distance, math.hypot(x, y) / distance
    angle, far = math.atan2(y, x), size * distance
    radial = polar = turning = 0j
    pi_before, pi = 0.0, 1.0
    for n in range(1, ORDERS + 1):
        tau = n * cosine * pi - (n + 1) * pi_before
        inner, inner_slope = _riccati(n, index * size, outgoing=False)
        outer, outer_slope = _riccati(n, size, outgoing=False)
        leaving, leaving_slope = _riccati(n, size, outgoing=True)
        a = (index**2 * inner * outer_slope - outer * inner_slope) / (
            index**2 * inner * leaving_slope - leaving * inner_slope
        )
        b = (inner * outer_slope - outer * inner_slope) / (
            inner * leaving_slope - leaving * inner_slope
        )
        value, slope = _riccati(n, far, outgoing=True)
        weight = 1j**n * (2 * n + 1) / (n * (n + 1))
        radial += weight * 1j * a * n * (n + 1) * sine * pi * value / far
        polar += weight * (1j * a * tau * slope / far - b * pi * value)
        turning += weight * (-1j * a * pi * slope / far + b * tau * value)
        pi_before, pi = pi, ((2 * n + 1) * cosine * pi - (n + 1) * pi_before) / n
    along = radial * sine + polar * cosine
    return along * math.cos(angle) ** 2 - turning * math.sin(angle) ** 2


def exact(radius=10):
    """What `measured` is to be: E along x lies half a cell on."""
    half = np.array([0.0, 0.0, 0.5])
    places = (np.array(points(radius)) - extent(radius) // 2 + half) / radius
    return np.array([[mie(size, place) for place in places] for size in SIZES])


def error(found, wanted):
    """The root mean square of the difference over that of the answer, of all points."""
    return float(np.sqrt((abs(found - wanted) ** 2).sum() / (abs(wanted) ** 2).sum()))


if __name__ == "__main__":
    from command import arguments, run

    given = arguments(
        __doc__, radius={"type": int, "default": 10, "help": "of the sphere, in cells"}
    )
    result = run(problem(given.radius), given)
    off = error(measured(result, given.radius), exact(given.radius))
    print(f"difference from Mie's series {off:.1%} of the scattered field")
