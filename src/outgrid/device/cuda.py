"""A GPU through CuPy: its memory, pinned host memory, two directions of copies, and kernels.

CuPy's own way from source to kernel (``RawModule``) flushes subnormal numbers to zero, whatever it
is told, so the source is compiled by its door to NVRTC and loaded as a module.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import time
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from outgrid.device import Extents, Rectangle
from outgrid.errors import BuildError, DeviceError
from outgrid.machine import Accelerator
from outgrid.units import format_bytes

__all__ = ["CUDA_OPTIONS", "CudaDevice", "describe", "open_device"]

# What keeps results the same as on a processor; the other defaults of NVRTC do too.
CUDA_OPTIONS = ("--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")
# Of what is free, so much is for a run: the driver needs some for kernels and their stacks.
FREE_SHARE = 0.9

USUAL_SHARED_BYTES = 48 << 10  # that a block may have without being asked
_PROCESSORS = 16  # cudaDevAttrMultiProcessorCount
_MOST_SHARED_BYTES = 97  # cudaDevAttrMaxSharedMemoryPerBlockOptin
_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
PROBE_BYTES = 128 << 20  # larger than what a GPU caches
PROBES = 4
_NOT_READY = 600  # cudaErrorNotReady
_ANY_WAY = 4  # cudaMemcpyDefault: addresses say in which memory they are


class CudaDevice:
    """The GPU that CuPy has chosen. Kernels run on one stream, copies on one for each direction."""

    def __init__(self, source: str) -> None:
        """With the kernels of ``source``, if it is not empty.

        Raises DeviceError where there is no GPU or no CuPy, BuildError where NVRTC objects.
        """
        self._cupy = cupy = _cupy()
        self._runtime: Any = cupy.cuda.runtime
        number = cupy.cuda.Device().id
        self.name: str = self._runtime.getDeviceProperties(number)["name"].decode()
        self.processors: int = self._runtime.deviceGetAttribute(_PROCESSORS, number)
        self.shared_bytes: int = self._runtime.deviceGetAttribute(_MOST_SHARED_BYTES, number)
        self.memory_bytes: int = cupy.cuda.Device().mem_info[0]
        self._module: Any = cupy.cuda.function.Module()
        if source:
            self._module.load(_compiled(cupy, source))
        self._functions: dict[str, Any] = {}
        self._computing, self._rising, self._falling = (
            cupy.cuda.Stream(non_blocking=True) for _ in range(3)
        )

    def allocate(self, nbytes: int) -> int:
        """Memory on the device. Raises DeviceError where there is too little."""
        return self._taken(self._runtime.malloc, nbytes)

    def allocate_host(self, nbytes: int) -> int:
        """Memory of the process in whole pages that stay where they are."""
        return self._taken(self._runtime.hostAlloc, nbytes, 0)

    def _taken(self, take: Any, nbytes: int, *flags: int) -> int:
        try:
            return int(take(nbytes, *flags))
        except self._runtime.CUDARuntimeError as error:
            free, total = self._runtime.memGetInfo()
            raise DeviceError(
                f"cannot allocate {format_bytes(nbytes)} on {self.name} ({error}); "
                f"{format_bytes(free)} of its {format_bytes(total)} are free: lower device_memory"
            ) from error

    def release(self, address: int) -> None:
        """Give memory on the device back."""
        self._runtime.free(address)

    def release_host(self, address: int) -> None:
        """Give memory of the process back."""
        self._runtime.freeHost(address)

    def pin(self, address: int, nbytes: int) -> bool:
        """Let the GPU reach memory that the process has; False where the system does not let it."""
        try:
            self._runtime.hostRegister(address, nbytes, 0)
        except self._runtime.CUDARuntimeError:
            return False
        return True

    def unpin(self, address: int) -> None:
        """Let it go."""
        self._runtime.hostUnregister(address)

    def upload(self, parts: Sequence[Rectangle], after: Sequence[Hashable]) -> Hashable:
        """Copy to the device."""
        return self._copy(self._rising, parts, after)

    def download(self, parts: Sequence[Rectangle], after: Sequence[Hashable]) -> Hashable:
        """Copy from the device."""
        return self._copy(self._falling, parts, after)

    def _copy(self, stream: Any, parts: Sequence[Rectangle], after: Sequence[Any]) -> Hashable:
        for mark in after:
            stream.wait_event(mark)
        for part in parts:
            if part.row_bytes == part.to_stride == part.source_stride:
                nbytes = part.rows * part.row_bytes
                self._runtime.memcpyAsync(part.to, part.source, nbytes, _ANY_WAY, stream.ptr)
                continue
            self._runtime.memcpy2DAsync(
                part.to,
                part.to_stride,
                part.source,
                part.source_stride,
                part.row_bytes,
                part.rows,
                _ANY_WAY,
                stream.ptr,
            )
        return self._noted(stream)

    def launch(
        self,
        name: str,
        grid: Extents,
        block: Extents,
        given: ctypes.Structure,
        shared_bytes: int = 0,
    ) -> None:
        """Start a kernel."""
        kernel = self._functions.get(name)
        if kernel is None:
            kernel = self._functions[name] = self._module.get_function(name)
            if shared_bytes > USUAL_SHARED_BYTES:
                _driver().funcSetAttribute(kernel.ptr, _SHARED_BYTES, shared_bytes)
        # CuPy passes an array of one element by value, byte for byte, whatever the element is.
        value = np.frombuffer(bytes(given), np.dtype((np.void, ctypes.sizeof(given))))
        kernel(grid, block, (value,), shared_mem=shared_bytes, stream=self._computing)

    def mark(self) -> Hashable:
        """What is done when all launches so far are."""
        return self._noted(self._computing)

    def _noted(self, stream: Any) -> Hashable:
        return stream.record(self._cupy.cuda.Event(disable_timing=True))

    def done(self, mark: Any) -> bool:
        """Whether it is. Raises DeviceError where a kernel or copy before it failed.

        After a failure no event is ever done: CuPy's own word for it would be "not yet".
        """
        status: int = self._runtime.eventQuery(mark.ptr)
        if status not in (0, _NOT_READY):
            raise self._failed(f"CUDA error {status}")
        return status == 0

    def wait(self, mark: Any) -> None:
        """Wait for it. Raises DeviceError where a kernel or copy before it failed."""
        try:
            mark.synchronize()
        except self._runtime.CUDARuntimeError as error:
            raise self._failed(str(error)) from error

    def _failed(self, why: str) -> DeviceError:
        return DeviceError(
            f"a kernel or a copy failed on {self.name} ({why}); what was committed before can be "
            "resumed, in a new process"
        )

    @property
    def arrays(self) -> Any:
        """CuPy, whose products are those of cuBLAS."""
        return self._cupy

    def array(self, address: int, shape: tuple[int, ...], dtype: DTypeLike) -> Any:
        """An array on memory that was allocated here, and stays so while there is the array."""
        cupy, nbytes = self._cupy, math.prod(shape) * np.dtype(dtype).itemsize
        memory = cupy.cuda.UnownedMemory(address, nbytes, self)
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))

    def bring(self, values: NDArray[Any]) -> Any:
        """A copy on the device."""
        return self._cupy.asarray(values)

    def fetch(self, values: Any) -> NDArray[Any]:
        """A copy in the memory of the process, once it is made."""
        return self._cupy.asnumpy(values)

    def finish(self) -> None:
        """Wait for what CuPy's own functions were asked for."""
        self._cupy.cuda.get_current_stream().synchronize()


def open_device(source: str) -> CudaDevice:
    """That GPU with the kernels of a source. Raises DeviceError and BuildError."""
    return CudaDevice(source)


def describe() -> Accelerator:
    """What a plan may count on, of the GPU that CuPy has chosen. Raises DeviceError.

    Its rates are measured, once in a process: each time 0.25 s would pass.
    """
    there = _cupy().cuda.Device()
    free, probe = int(there.mem_info[0] * FREE_SHARE), CudaDevice("")
    return Accelerator(free, probe.name, *_rates(there.id), shared_bytes=probe.shared_bytes)


@lru_cache
def _rates(_: int) -> tuple[float, float]:
    """Of copies within the GPU of that number, which is the current one; and of those to it.

    Others from it are made at the same time.
    """
    probe = CudaDevice("")
    there = [probe.allocate(PROBE_BYTES) for _ in range(2)]
    here = [probe.allocate_host(PROBE_BYTES) for _ in range(2)]

    def line(to: int, source: int) -> list[Rectangle]:
        return [Rectangle(to, PROBE_BYTES, source, PROBE_BYTES, PROBE_BYTES, 1)]

    def both_ways() -> None:
        rising = probe.upload(line(there[0], here[0]), ())
        probe.wait(probe.download(line(here[1], there[1]), ()))
        probe.wait(rising)

    def within() -> None:
        probe.wait(probe.upload(line(there[0], there[1]), ()))

    try:
        bandwidth = PROBE_BYTES / _least(both_ways)
        return 2 * PROBE_BYTES / _least(within), bandwidth
    finally:
        for address in there:
            probe.release(address)
        for address in here:
            probe.release_host(address)


def _least(act: Callable[[], None]) -> float:
    """Seconds of the fastest of a few calls."""
    seconds: list[float] = []
    for _ in range(PROBES):
        begin = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def _compiled(cupy: Any, source: str) -> bytes:
    """Machine code for the device that is there."""
    compiler = cupy.cuda.compiler
    try:
        code, _ = compiler.compile_using_nvrtc(source, options=CUDA_OPTIONS)
    except compiler.CompileException as error:
        raise BuildError(f"NVRTC does not compile the kernel: {error}") from error
    return code


def _driver() -> Any:
    """CuPy's door to the driver of CUDA."""
    return importlib.import_module("cupy_backends.cuda.api.driver")


def _cupy() -> Any:
    try:
        cupy: Any = importlib.import_module("cupy")
    except ImportError as error:
        raise DeviceError(
            f"device 'gpu' needs CuPy, which cannot be imported ({error}); for CUDA 12: "
            "pip install cupy-cuda12x, for CUDA 13: pip install cupy-cuda13x; or leave device out "
            "to use the processor"
        ) from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise DeviceError(
            f"device 'gpu': CuPy {cupy.__version__} is installed, but CUDA finds no GPU ({error}); "
            "install the driver (nvidia-smi lists GPUs) and name existing GPUs in "
            "CUDA_VISIBLE_DEVICES, or leave device out to use the processor"
        ) from error
    if count == 0:
        raise DeviceError(
            f"device 'gpu': CuPy {cupy.__version__} is installed, but CUDA counts 0 GPUs; leave "
            "device out to use the processor"
        )
    return cupy
