"""Deepwave on PyTorch, all in memory: the gradient of a misfit of traces by the model of waves.

Reads a problem from a JSON file: u_next = 2*u - u_previous + c * laplacian(u), of fourth order in
space, with c in the file `model` (0 in the two outermost layers of cells, which stay 0), sources,
receivers and observed traces. Writes the gradient by c and prints the misfit and the seconds.
"""

# pyright: basic, reportMissingImports=false

import json
import sys
import time
import warnings

import deepwave
import numpy as np
import torch

ORDER, LAYERS = 4, 2


def main() -> None:
    """Solve the problem of the JSON file that is named, twice: the second time counts."""
    warnings.simplefilter("ignore")  # of faces without layers that absorb, which are wanted
    with open(sys.argv[1]) as file:
        problem = json.load(file)
    torch.set_num_threads(problem["threads"])
    whole = torch.tensor(np.load(problem["model"]))
    inside = (slice(LAYERS, -LAYERS),) * whole.ndim
    observed = torch.tensor(np.load(problem["observed"]))

    def places(cells: list) -> torch.Tensor:
        return torch.tensor([[[n - LAYERS for n in cell] for cell in cells]])

    source = tuple(n - LAYERS for n in problem["source"])
    # Receivers look before the step that sources add in: one more step shows all.
    pulse = torch.tensor([*problem["pulse"], 0.0], dtype=whole.dtype)
    fastest = float(whole.max()) ** 0.5

    def misfit(c: torch.Tensor) -> torch.Tensor:
        speed = torch.sqrt(c)
        made = deepwave.scalar(
            speed,
            1.0,
            1.0,
            source_amplitudes=(-pulse / speed[source] ** 2).reshape(1, 1, -1),
            source_locations=places([problem["source"]]),
            receiver_locations=places(problem["receivers"]),
            accuracy=ORDER,
            pml_width=0,
            pml_freq=0.05,
            max_vel=fastest,
        )
        return 0.5 * ((made[-1][0].T[1:] - observed) ** 2).sum()

    forward = seconds = value = 0.0
    slope = torch.zeros(0)
    for _ in range(2):
        begin = time.perf_counter()
        misfit(whole[inside])
        between = time.perf_counter()
        c = whole[inside].clone().requires_grad_()
        total = misfit(c)
        total.backward()
        seconds, forward = time.perf_counter() - between, between - begin
        value, slope = float(total), c.grad
    answer = np.zeros(whole.shape)
    answer[inside] = slope.numpy()
    np.save(problem["answer"], answer)
    told = {"seconds": seconds, "forward_seconds": forward, "value": value}
    json.dump(told | {"version": deepwave.__version__}, sys.stdout)


if __name__ == "__main__":
    main()
