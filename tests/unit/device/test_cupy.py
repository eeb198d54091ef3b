"""The door to CuPy, on machines without a GPU: what it calls exists, and is called rightly.

A stand-in takes what CuPy 12 to 14 take, checks it as they do, and carries it out on a processor.
"""

import ctypes
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import outgrid as og
from outgrid.build.compiler import find_compiler
from outgrid.device import cuda
from outgrid.device.cuda import CUDA_OPTIONS
from outgrid.errors import BuildError, DeviceError
from outgrid.native import Buffer
from outgrid.stencil.catalog import lookup
from outgrid.testing.device import SlowDevice

FREE, TOTAL = 1 << 28, 1 << 29


class CUDARuntimeError(RuntimeError):
    """What CuPy raises where the runtime refuses."""


class CompileException(Exception):  # noqa: N818 - CuPy's name
    """What CuPy raises where NVRTC refuses."""


class Runtime:
    """`cupy.cuda.runtime`: numbers in, numbers out; copies are made at once."""

    CUDARuntimeError = CUDARuntimeError

    def __init__(self):
        self.taken = {}
        self.status = 0
        self.pinned = {}

    def getDeviceCount(self):  # noqa: N802
        return 1

    def getDeviceProperties(self, device: int):  # noqa: N802
        assert device == 0
        return {"name": b"A pretended GPU"}

    def deviceGetAttribute(self, attrib, device):  # noqa: N802
        assert device == 0
        return {16: 132, 97: 227 << 10}[attrib]  # as cudaDeviceAttr numbers them

    def malloc(self, size):
        return self.hostAlloc(size, 0)

    def hostAlloc(self, size, flags):  # noqa: N802
        assert flags == 0
        if size > FREE:
            raise CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")
        buffer = Buffer(size)
        self.taken[buffer.address] = buffer
        return buffer.address

    def free(self, ptr):
        self.taken.pop(ptr).release()

    freeHost = free  # noqa: N815

    def memGetInfo(self):  # noqa: N802
        return FREE, TOTAL

    def hostRegister(self, ptr, size, flags):  # noqa: N802
        assert flags == 0
        self.pinned[ptr] = size

    def hostUnregister(self, ptr):  # noqa: N802
        del self.pinned[ptr]

    def eventQuery(self, event):  # noqa: N802
        assert event == Event.ptr
        return self.status

    def memcpyAsync(self, dst, src, size, kind, stream):  # noqa: N802
        self.memcpy2DAsync(dst, size, src, size, size, 1, kind, stream)

    def memcpy2DAsync(self, dst, dpitch, src, spitch, width, height, kind, stream):  # noqa: N802
        assert kind == 4  # cudaMemcpyDefault
        assert min(dpitch, spitch) >= width
        assert all(isinstance(each, int) for each in (dst, src, dpitch, spitch, width, height))
        for row in range(height):
            ctypes.memmove(dst + row * dpitch, src + row * spitch, width)


class Event:
    """`cupy.cuda.Event`; all that came before it is done."""

    ptr = 23

    def __init__(self, block=False, disable_timing=False, interprocess=False):
        assert disable_timing

    def synchronize(self):
        pass


class Stream:
    """`cupy.cuda.Stream`."""

    ptr = 17

    def __init__(self, null=False, non_blocking=False):
        assert non_blocking

    def record(self, event=None):
        return event

    def wait_event(self, event):
        assert isinstance(event, Event)


class Module:
    """`cupy.cuda.function.Module`: the source itself is what is loaded."""

    def load(self, cubin):
        assert isinstance(cubin, bytes)
        self.device = SlowDevice(cubin.decode(), find_compiler())

    def get_function(self, name):
        def launch(grid: tuple, block: tuple, args, shared_mem=0, stream=None):
            assert isinstance(shared_mem, int)
            (value,) = args
            assert isinstance(stream, Stream)
            assert isinstance(value, np.ndarray)
            assert value.size == 1  # anything else CuPy refuses
            assert all(isinstance(each, int) for each in (*grid, *block))
            given = (ctypes.c_char * value.nbytes).from_buffer_copy(value.tobytes())
            self.device.launch(name, grid, block, given, shared_mem)
            self.device.wait(self.device.mark())

        launch.ptr = 29
        return launch


def compile_using_nvrtc(source, options=(), arch=None, filename="kern.cu"):
    assert options == CUDA_OPTIONS
    if "not C++" in source:
        raise CompileException("error: identifier is undefined")
    return source.encode(), None


@pytest.fixture
def cupy(monkeypatch):
    """CuPy as far as it is used."""
    found = ModuleType("cupy")
    found.__version__ = "14.0.0"
    found.cuda = SimpleNamespace(
        runtime=Runtime(),
        Device=lambda: SimpleNamespace(id=0, mem_info=(FREE, TOTAL)),
        Stream=Stream,
        Event=Event,
        function=SimpleNamespace(Module=Module),
        compiler=SimpleNamespace(
            compile_using_nvrtc=compile_using_nvrtc, CompileException=CompileException
        ),
    )
    monkeypatch.setitem(sys.modules, "cupy", found)
    return found.cuda.runtime


def problem():
    points = {"receivers": [og.Receiver("u", (5, 8, 9.25))]}
    initial = {"u": "sin(z + 2*y + 3*x)"}
    return og.Problem(lookup("heat7"), (20, 12, 30), "float32", 7, initial=initial, **points)


@pytest.mark.parametrize("tier", ["memory", "direct"])
def test_a_run_through_cupy_gives_the_same_bytes(cupy, tier, tmp_path):
    wanted = og.run(problem(), memory="1GiB", out=tmp_path / "cpu", tier=tier)
    found = og.run(problem(), memory="1GiB", out=tmp_path / "gpu", tier=tier, device="gpu")
    assert np.asarray(found["u"]).tobytes() == np.asarray(wanted["u"]).tobytes()
    assert found.traces.tobytes() == wanted.traces.tobytes()
    assert found.record.measured.device == "A pretended GPU"
    assert not cupy.taken


def test_a_plan_counts_on_what_the_gpu_is(cupy, monkeypatch):
    plan = og.plan(problem(), memory="1GiB", device="gpu")
    assert plan.device.memory_bytes == int(0.9 * FREE)
    from outgrid.device import describe_device

    found = describe_device("gpu")
    assert found.memory_bandwidth > 0 < found.bandwidth
    assert not cupy.taken
    attributes = {16: 66, 97: 99 << 10}
    monkeypatch.setattr(cupy, "deviceGetAttribute", lambda number, _: attributes[number])
    assert describe_device("gpu").shared_bytes == 99 << 10


def test_rates_are_measured_once(cupy, monkeypatch):
    cuda._rates.cache_clear()
    first = cuda.describe()
    monkeypatch.setattr(cuda, "_least", None)
    assert cuda.describe() == first


def test_levels_in_one_launch_ask_for_memory_that_a_block_shares(cupy, monkeypatch, tmp_path):
    asked = []
    driver = ModuleType("driver")
    driver.funcSetAttribute = lambda *given: asked.append(given[1:])
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.api.driver", driver)
    whole = og.Problem(lookup("heat7"), (20, 12, 30), "float64", 6, initial={"u": "z + x * y"})
    wanted = og.run(whole, memory="1GiB", out=tmp_path / "cpu", tier="memory")
    found = og.run(whole, memory="1GiB", out=tmp_path / "gpu", tier="memory", device="gpu")
    assert np.asarray(found["u"]).tobytes() == np.asarray(wanted["u"]).tobytes()
    (attribute, nbytes) = asked[0]
    assert attribute == 8
    assert 48 << 10 < nbytes <= 227 << 10


def test_a_kernel_that_failed_ends_the_run(cupy, tmp_path):
    cupy.status = 700  # cudaErrorIllegalAddress
    with pytest.raises(DeviceError, match=r"failed on A pretended GPU \(CUDA error 700\).*resumed"):
        og.run(problem(), memory="1GiB", out=tmp_path / "gpu", tier="direct", device="gpu")


def test_memory_that_is_not_there_is_named(cupy):
    from outgrid.device.cuda import CudaDevice

    device = CudaDevice("struct Slab {};")
    with pytest.raises(DeviceError, match=r"cannot allocate 1.00 GiB on A pretended GPU .*lower"):
        device.allocate(1 << 30)


def test_what_nvrtc_says_is_passed_on(cupy):
    from outgrid.device.cuda import CudaDevice

    with pytest.raises(BuildError, match="identifier is undefined"):
        CudaDevice("not C++")


@pytest.mark.parametrize("count", [0, CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable")])
def test_a_machine_without_a_gpu_is_told_apart(cupy, count, monkeypatch):
    def counted(self):
        if isinstance(count, Exception):
            raise count
        return count

    monkeypatch.setattr(Runtime, "getDeviceCount", counted)
    with pytest.raises(DeviceError, match=r"14.0.0 is installed, but CUDA (counts 0|finds no)"):
        og.plan(problem(), memory="1GiB", device="gpu")
