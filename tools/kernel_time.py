"""Counting the processor's time of the thread that a kernel begins in."""

import resource

from outgrid import pipeline


class KernelTime:
    """While it is entered, the processor's time of the kernel's thread is counted."""

    seconds = 0.0

    def __enter__(self) -> "KernelTime":
        self.advance = pipeline.Kernel.advance

        def advance(kernel: pipeline.Kernel, *given: object) -> None:
            begin = resource.getrusage(resource.RUSAGE_THREAD)
            self.advance(kernel, *given)  # type: ignore[arg-type]
            end = resource.getrusage(resource.RUSAGE_THREAD)
            self.seconds += end.ru_utime - begin.ru_utime + end.ru_stime - begin.ru_stime

        pipeline.Kernel.advance = advance  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        pipeline.Kernel.advance = self.advance  # type: ignore[method-assign]
