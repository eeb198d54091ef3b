"""Counting the processor's time of the thread that a kernel begins in."""

import resource

from outgrid.parts import Kernel


class KernelTime:
    """While it is entered, the processor's time of the kernel's thread is counted."""

    seconds = 0.0

    def __enter__(self) -> "KernelTime":
        self.advance = Kernel.advance

        def advance(kernel: Kernel, *given: object) -> None:
            begin = resource.getrusage(resource.RUSAGE_THREAD)
            self.advance(kernel, *given)  # type: ignore[arg-type]
            end = resource.getrusage(resource.RUSAGE_THREAD)
            self.seconds += end.ru_utime - begin.ru_utime + end.ru_stime - begin.ru_stime

        Kernel.advance = advance  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Kernel.advance = self.advance  # type: ignore[method-assign]
