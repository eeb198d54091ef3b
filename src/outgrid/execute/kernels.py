"""The kernel of a run: compiled once, or loaded from where an earlier run has kept it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain

from outgrid import device
from outgrid.build.compiler import check_loadable, find_compiler, load
from outgrid.codegen.cuda import generate_cuda
from outgrid.codegen.kernel import generate
from outgrid.comm import Comm
from outgrid.config import RunOptions
from outgrid.errors import BuildError, NoCompiler
from outgrid.execute.device import DeviceKernel
from outgrid.execute.kernel import Kernel
from outgrid.execute.reference import interpreted, is_reference
from outgrid.execute.streaming import Listener, doing, say
from outgrid.observe.points import Points
from outgrid.record import Part, compilers_of
from outgrid.stencil.boundary import Edges
from outgrid.stencil.model import Stencil
from outgrid.stencil.problem import Problem

__all__ = [
    "REFERENCE_UPDATES",
    "another_compiler",
    "check_kernel",
    "compiled",
    "compiler_told",
    "load_kernel",
]

# Updates of cells that the reference executor makes without a compiler: some minutes of them.
REFERENCE_UPDATES = 100_000_000
BY_REFERENCE = "there is no C++ compiler: the reference executor computes, in NumPy"
SLOW = "it is slow, uses one thread, and may differ from kernels in the last bits"


def compiled(
    problem: Problem,
    options: RunOptions,
    comm: Comm,
    progress: Listener | None,
    parts: Sequence[Part] = (),
) -> Kernel | DeviceKernel:
    """What makes the updates of a run on all ranks, each of which calls this.

    Rank 0 compiles it first, and others find it where they share its cache. Without a compiler the
    reference executor makes up to `REFERENCE_UPDATES`. A run that goes on after ``parts`` keeps to
    the executor that it has. Raises BuildError where there is none; DeviceError where a device is
    asked for in vain.
    """
    if comm.rank:
        comm.share(None)
    with doing(progress, "compiling the kernel"):
        kernel = _kernel(problem, options, _executor(parts))
    if comm.rank == 0:
        comm.share(None)
    interpreters = comm.share(is_reference(kernel.compiler))
    if len(set(interpreters)) > 1:
        without = ", ".join(str(rank) for rank, one in enumerate(interpreters) if one)
        raise BuildError(
            f"no C++ compiler on the nodes of ranks {without}, and kernels on the others: results "
            "of the two may differ in the last bits; install one there, or name it in $CXX"
        )
    say(progress, *dict.fromkeys(chain.from_iterable(comm.share(kernel.notes))))
    return kernel


def load_kernel(problem: Problem) -> Kernel:
    """The compiled kernel of a problem with its parameters; from the cache if it is there."""
    return Kernel.of(load(_source(problem)), problem, points=Points.of(problem))


def check_kernel(problem: Problem, options: RunOptions) -> None:
    """Raise what would be raised where a kernel is needed; it is not compiled now."""
    if options.device == "cpu":
        try:
            check_loadable(_source(problem))
        except NoCompiler as missing:
            _check_small(problem, missing)


def compiler_told(problem: Problem, options: RunOptions) -> tuple[str, ...]:
    """What a plan says of a run for which there is neither a compiler nor a compiled kernel."""
    if options.device != "cpu":
        return ()
    try:
        find_compiler()
    except BuildError:
        try:
            check_loadable(_source(problem))
            return ()
        except BuildError as missing:
            if isinstance(missing, NoCompiler) and _updates(problem) <= REFERENCE_UPDATES:
                return (f"{BY_REFERENCE}: {SLOW}. The time of the plan is that of a kernel",)
            return (f"a run would fail: {missing}",)
    return ()


def another_compiler(parts: Iterable[Part], kernel: Kernel | DeviceKernel) -> tuple[str, ...]:
    """What to say where a run goes on with a kernel of another compiler."""
    before = [part.compiler for part in parts if part.compiler]
    return compilers_of([*before[-1:], kernel.compiler])


def _executor(parts: Sequence[Part]) -> bool | None:
    """Whether the reference executor has made steps of a run; None where nobody has."""
    made = [part for part in parts if part.compiler or part.measured.device]
    return is_reference(made[-1].compiler) if made else None


def _kernel(
    problem: Problem, options: RunOptions, interpreted_before: bool | None
) -> Kernel | DeviceKernel:
    if interpreted_before:
        if options.device != "cpu":
            raise BuildError(
                f"the reference executor began this run, and a kernel on {options.device} may "
                'differ from it in the last bits; resume with device = "cpu", or run again with '
                "--overwrite"
            )
        return _by_reference(problem, "the reference executor began this run and continues it")
    if options.device != "cpu":
        shared_bytes = device.describe_device(options.device).shared_bytes
        given = problem.stencil, problem.dtype, problem.edges, problem.dtypes
        source = generate_cuda(*given, shared_bytes)
        return DeviceKernel.of(device.open_device(options.device, source), problem)
    try:
        return load_kernel(problem)
    except NoCompiler as missing:
        if interpreted_before is not None:
            raise BuildError(
                f"{missing}. A kernel began this run; the reference executor may differ from it "
                "in the last bits and cannot continue it"
            ) from missing
        _check_small(problem, missing)
        return _by_reference(problem, BY_REFERENCE)


def _by_reference(problem: Problem, why: str) -> Kernel:
    return Kernel.of(interpreted(problem, f"{why}: {SLOW}"), problem, points=Points.of(problem))


def _check_small(problem: Problem, missing: NoCompiler) -> None:
    """Raise where the reference executor would take too long."""
    updates = _updates(problem)
    if updates > REFERENCE_UPDATES:
        raise BuildError(
            f"{missing}. Without one the reference executor makes up to {REFERENCE_UPDATES:.3g} "
            f"updates of cells; this run makes {updates:.3g}"
        ) from missing


def _updates(problem: Problem) -> int:
    return math.prod(problem.shape) * problem.steps


def _source(problem: Problem) -> str:
    apart = tuple(problem.dtypes.items())
    return _generated(problem.stencil, problem.dtype, problem.edges, apart)


@lru_cache(maxsize=16)  # a plan and its run ask for the same one, and so do the runs of a gradient
def _generated(
    stencil: Stencil, dtype: str, edges: Edges, apart: tuple[tuple[str, str], ...]
) -> str:
    return generate(stencil, dtype, edges, dict(apart))
