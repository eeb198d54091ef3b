"""Devito, all in memory: the gradient of a misfit of traces by the model of waves, all states kept.

Reads a problem from a JSON file: u_next = 2*u - u_previous + c * laplacian(u), of fourth order in
space, with c in the file `model` (0 in the two outermost layers of cells, which stay 0), sources,
receivers and observed traces. Writes the gradient by c and prints the misfit and the seconds.
"""

# pyright: basic, reportMissingImports=false

import json
import os
import sys
import time

os.environ.setdefault("DEVITO_LANGUAGE", "openmp")
os.environ.setdefault("DEVITO_LOGGING", "ERROR")

import devito
import numpy as np

ORDER = 4


def main() -> None:
    """Solve the problem of the JSON file that is named, twice: the second time counts."""
    with open(sys.argv[1]) as file:
        problem = json.load(file)
    model, observed = np.load(problem["model"]), np.load(problem["observed"])
    steps, kind = problem["steps"], model.dtype.type
    # A spacing of one, so that differences are those of the other program.
    grid = devito.Grid(model.shape, extent=tuple(n - 1 for n in model.shape), dtype=kind)
    given = {"grid": grid, "space_order": ORDER, "time_order": 2}
    u = devito.TimeFunction(name="u", save=steps + 2, **given)
    v = devito.TimeFunction(name="v", **given)
    c = devito.Function(name="c", grid=grid, space_order=ORDER)
    slope = devito.Function(name="slope", grid=grid)
    c.data[:] = model

    def points(name: str, places: list) -> devito.SparseTimeFunction:
        made = devito.SparseTimeFunction(name=name, grid=grid, npoint=len(places), nt=steps + 2)
        made.coordinates.data[:] = np.array(places, kind)
        return made

    source = points("source", [problem["source"]])
    seen = points("seen", problem["receivers"])
    apart = points("apart", problem["receivers"])
    source.data[1 : steps + 1, 0] = problem["pulse"]
    # State m is u.data[m + 1]; in the step at time m state m - 1 becomes state m.
    forward = devito.Operator(
        [
            devito.Eq(u.forward, 2 * u - u.backward + c * u.laplace),
            source.inject(field=u.forward, expr=source),
            seen.interpolate(expr=u.forward),
        ]
    )
    # At time m v.backward becomes the cotangent of state m.
    back = devito.Operator(
        [
            devito.Eq(v.backward, 2 * v - v.forward + (c * v).laplace),
            apart.inject(field=v.backward, expr=apart),
            devito.Inc(slope, u.laplace * v.backward),
        ]
    )
    w = devito.TimeFunction(name="w", **given)  # as u, of which no state is kept
    alone = devito.Operator(
        [
            devito.Eq(w.forward, 2 * w - w.backward + c * w.laplace),
            source.inject(field=w.forward, expr=source),
            seen.interpolate(expr=w.forward),
        ]
    )
    taken = seconds = value = 0.0
    for _ in range(2):
        w.data[:] = 0
        begin = time.perf_counter()
        alone.apply(time_m=1, time_M=steps)
        taken = time.perf_counter() - begin
        u.data[:], v.data[:], slope.data[:] = 0, 0, 0
        begin = time.perf_counter()
        forward.apply(time_m=1, time_M=steps)
        apart.data[1 : steps + 1] = seen.data[1 : steps + 1] - observed
        value = 0.5 * float((np.asarray(apart.data[1 : steps + 1], float) ** 2).sum())
        back.apply(time_m=1, time_M=steps)
        seconds = time.perf_counter() - begin
    np.save(problem["answer"], np.asarray(slope.data))
    told = {
        "seconds": seconds,
        "forward_seconds": taken,
        "value": value,
        "version": devito.__version__,
    }
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
