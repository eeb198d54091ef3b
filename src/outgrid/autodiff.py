"""Traces of runs as functions that JAX and PyTorch differentiate."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outgrid import api
from outgrid.comm import world
from outgrid.errors import UsageError
from outgrid.gradients import Cotangents, gradient
from outgrid.reversal.posed import check_names, posed
from outgrid.stencil.problem import Problem

__all__ = ["jax_traces", "torch_traces"]

OF_GRADIENTS = ("adjoint", "chunk", "every", "history")
"""Options of gradients that runs do not have."""


class _Traces:
    """The traces of a problem with other values in place of what `wrt` names, and what they say
    of a cotangent; each run in a folder of its own in `out`, until its values are read."""

    def __init__(
        self, problem: Problem, wrt: Sequence[str], out: str | Path, options: Mapping[str, Any]
    ) -> None:
        if not problem.receivers:
            raise UsageError(
                "traces need receivers, and the problem has none; give receivers=[...]"
            )
        check_names(problem, tuple(wrt))
        self.problem, self.wrt, self.out = problem, tuple(wrt), Path(out)
        self.options: dict[str, Any] = {"progress": False, **options}
        self.numbers = itertools.count(_made(self.out))

    def posed(self, values: Sequence[Any]) -> Problem:
        """The problem with these values."""
        return posed(self.problem, dict(zip(self.wrt, values, strict=True)))

    def forward(self, *values: Any) -> NDArray[np.float64]:
        """The traces, of (steps, receivers); the way back needs nothing else of the run."""
        out = self.out / f"forward.{next(self.numbers)}"
        options = {key: value for key, value in self.options.items() if key not in OF_GRADIENTS}
        traces = np.array(api.run(self.posed(values), out=out, **options).traces)
        _remove(out)
        return traces

    def back(self, bar: Any, *values: Any) -> tuple[NDArray[np.float64], ...]:
        """The cotangents of the values for one of the traces."""
        out, bars = self.out / f"back.{next(self.numbers)}", Cotangents(np.asarray(bar, float))
        g = gradient(self.posed(values), bars, wrt=self.wrt, out=out, **self.options)
        made = tuple(
            np.array(g[name], float).reshape(np.shape(one))
            for name, one in zip(self.wrt, values, strict=True)
        )
        _remove(out)
        return made


def _remove(out: Path) -> None:
    """Remove a run whose values are in memory, on all ranks."""
    comm = world()
    comm.share(None)
    if comm.rank == 0:
        shutil.rmtree(out)


def _made(out: Path) -> int:
    """A number above those of the folders that are in `out`."""
    numbers = [path.suffix[1:] for path in out.glob("*.*")] if out.is_dir() else []
    return max((int(number) + 1 for number in numbers if number.isdecimal()), default=0)


def jax_traces(
    problem: Problem, wrt: Sequence[str], out: str | Path, **options: Any
) -> Callable[..., Any]:
    """A function of JAX from what `wrt` names, arrays in that order, to traces.

    Fields have the grid's shape, parameters none, profiles one axis. It has a `custom_vjp`, whose
    backward pass is `og.gradient`, and calls back to the host. Runs lie in folders of `out` until
    their values are read, beside what is there; `options` are those of `og.gradient`. Raises
    UsageError where JAX is missing.
    """
    try:
        jax: Any = import_module("jax")
    except ImportError as error:
        raise UsageError("JAX is missing: pip install 'outgrid[jax]'") from error
    made = _Traces(problem, wrt, out, options)
    shape = problem.steps, len(problem.receivers)

    def seen(*values: Any) -> Any:
        def forward(*given: Any) -> Any:
            return made.forward(*given).astype(values[0].dtype)

        kind = jax.ShapeDtypeStruct(shape, values[0].dtype)
        return jax.pure_callback(forward, kind, *values)

    def kept(*values: Any) -> Any:
        return seen(*values), values

    def back(values: Any, bar: Any) -> Any:
        kinds: Any = tuple(jax.ShapeDtypeStruct(one.shape, one.dtype) for one in values)

        def bars(bar: Any, *given: Any) -> Any:
            each = zip(made.back(bar, *given), kinds, strict=True)
            return tuple(one.astype(kind.dtype) for one, kind in each)

        return jax.pure_callback(bars, kinds, bar, *values)

    traces = jax.custom_vjp(seen)
    traces.defvjp(kept, back)
    return traces


def torch_traces(
    problem: Problem, wrt: Sequence[str], out: str | Path, **options: Any
) -> Callable[..., Any]:
    """A function of PyTorch from what `wrt` names, tensors in that order, to traces.

    Fields have the grid's shape, parameters none, profiles one axis. It is a
    `torch.autograd.Function`, whose backward pass is `og.gradient`; tensors of a GPU are copied to
    the host and back. Runs lie in folders of `out` until their values are read, beside what is
    there; `options` are those of `og.gradient`. Raises UsageError where PyTorch is missing.
    """
    try:
        torch: Any = import_module("torch")
    except ImportError as error:
        raise UsageError("PyTorch is missing: pip install 'outgrid[torch]'") from error
    made = _Traces(problem, wrt, out, options)

    def forward(context: Any, *values: Any) -> Any:
        context.save_for_backward(*values)
        seen = made.forward(*(one.detach().cpu().numpy() for one in values))
        return torch.as_tensor(np.array(seen)).to(values[0])

    def backward(context: Any, bar: Any) -> Any:
        values = context.saved_tensors
        bars = made.back(bar.cpu().numpy(), *(one.detach().cpu().numpy() for one in values))
        each = zip(bars, values, strict=True)
        return tuple(torch.as_tensor(np.array(one)).to(value) for one, value in each)

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Traces", (torch.autograd.Function,), members).apply
