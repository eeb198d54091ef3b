"""The kernel of a run: compiled once, or loaded from where an earlier run has kept it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from outgrid import device
from outgrid.build.compiler import check_loadable, load
from outgrid.codegen.cuda import generate_cuda
from outgrid.codegen.kernel import generate
from outgrid.comm import Comm
from outgrid.config import RunOptions
from outgrid.execute.device import DeviceKernel
from outgrid.execute.kernel import Kernel
from outgrid.execute.streaming import Listener, doing, say
from outgrid.observe.points import Points
from outgrid.record import Part, compilers_of
from outgrid.stencil.problem import Problem

__all__ = ["another_compiler", "check_kernel", "compiled", "load_kernel"]


def compiled(
    problem: Problem, options: RunOptions, comm: Comm, progress: Listener | None
) -> Kernel | DeviceKernel:
    """What makes the updates of a run on all ranks, each of which calls this.

    Rank 0 compiles it first, and others find it where they share its cache. Raises DeviceError
    where a device is asked for in vain.
    """
    if comm.rank:
        comm.share(None)
    with doing(progress, "compiling the kernel"):
        kernel = _kernel(problem, options)
    if comm.rank == 0:
        comm.share(None)
    say(progress, *dict.fromkeys(chain.from_iterable(comm.share(kernel.notes))))
    return kernel


def load_kernel(problem: Problem) -> Kernel:
    """The compiled kernel of a problem with its parameters; from the cache if it is there."""
    return Kernel.of(load(_source(problem)), problem, points=Points.of(problem))


def check_kernel(problem: Problem, options: RunOptions) -> None:
    """Raise what would be raised where a kernel is needed; it is not compiled now."""
    if options.device == "cpu":
        check_loadable(_source(problem))


def another_compiler(parts: Iterable[Part], kernel: Kernel | DeviceKernel) -> tuple[str, ...]:
    """What to say where a run goes on with a kernel of another compiler."""
    before = [part.compiler for part in parts if part.compiler]
    return compilers_of([*before[-1:], kernel.compiler])


def _kernel(problem: Problem, options: RunOptions) -> Kernel | DeviceKernel:
    if options.device == "cpu":
        return load_kernel(problem)
    source = generate_cuda(problem.stencil, problem.dtype, problem.edges, problem.dtypes)
    return DeviceKernel.of(device.open_device(options.device, source), problem)


def _source(problem: Problem) -> str:
    return generate(problem.stencil, problem.dtype, problem.edges, problem.dtypes)
