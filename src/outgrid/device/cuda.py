"""A GPU through CuPy: its memory, pinned host memory, two directions of copies, and kernels.

CuPy's own way from source to kernel (``RawModule``) flushes subnormal numbers to zero, whatever it
is told, so the source is compiled by its door to NVRTC and loaded as a module.
"""

from __future__ import annotations

import ctypes
import importlib
import math
from collections.abc import Hashable, Sequence
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

_ANY_WAY = 4  # cudaMemcpyDefault: addresses say in which memory they are


class CudaDevice:
    """The GPU that CuPy has chosen. Kernels run on one stream, copies on one for each direction."""

    def __init__(self, source: str) -> None:
        """Raises DeviceError where there is no GPU or no CuPy, BuildError where NVRTC objects."""
        self._cupy = cupy = _cupy()
        self._runtime: Any = cupy.cuda.runtime
        self.name: str = _properties(cupy)["name"].decode()
        self.memory_bytes: int = cupy.cuda.Device().mem_info[0]
        self._module: Any = cupy.cuda.function.Module()
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

    def launch(self, name: str, grid: Extents, block: Extents, given: ctypes.Structure) -> None:
        """Start a kernel."""
        if name not in self._functions:
            self._functions[name] = self._module.get_function(name)
        # CuPy passes an array of one element by value, byte for byte, whatever the element is.
        value = np.frombuffer(bytes(given), np.dtype((np.void, ctypes.sizeof(given))))
        self._functions[name](grid, block, (value,), stream=self._computing)

    def mark(self) -> Hashable:
        """What is done when all launches so far are."""
        return self._noted(self._computing)

    def _noted(self, stream: Any) -> Hashable:
        return stream.record(self._cupy.cuda.Event(disable_timing=True))

    def done(self, mark: Any) -> bool:
        """Whether it is."""
        return bool(mark.done)

    def wait(self, mark: Any) -> None:
        """Wait for it."""
        mark.synchronize()

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
    """What a plan may count on, of the GPU that CuPy has chosen. Raises DeviceError."""
    cupy = _cupy()
    properties = _properties(cupy)
    free = int(cupy.cuda.Device().mem_info[0] * FREE_SHARE)
    accelerator = Accelerator(free, properties["name"].decode())
    # Both edges of the clock, in kHz, move bits on all lines of the bus.
    bandwidth = 2e3 * properties["memoryClockRate"] * properties["memoryBusWidth"] / 8
    if not bandwidth:
        return accelerator
    return Accelerator(accelerator.memory_bytes, accelerator.name, memory_bandwidth=bandwidth)


def _properties(cupy: Any) -> dict[str, Any]:
    return cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)


def _compiled(cupy: Any, source: str) -> bytes:
    """Machine code for the device that is there."""
    compiler = cupy.cuda.compiler
    try:
        code, _ = compiler.compile_using_nvrtc(source, options=CUDA_OPTIONS)
    except compiler.CompileException as error:
        raise BuildError(f"NVRTC does not compile the kernel: {error}") from error
    return code


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
