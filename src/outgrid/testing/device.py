"""A device made of a processor: it carries out CUDA kernels thread by thread, and late.

No launch is fast here, and none uses an instruction of a device. What it shows is that a kernel
addresses the right cells and computes them as the tree says, so that its bytes can be compared with
those of other kernels on machines without a device.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import random
import re
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
from numpy.typing import DTypeLike, NDArray

from outgrid import device
from outgrid.build.compiler import Compiler, Library, build, find_compiler
from outgrid.device import Extents, Rectangle, bytes_at
from outgrid.errors import DeviceError
from outgrid.machine import Accelerator
from outgrid.native import Buffer

__all__ = ["SlowDevice", "stand_in"]

GARBAGE = 0xFF  # floating-point numbers of these bytes are NaN
ALIGNED = 16  # bytes; a device aligns to more, which would hide what is read behind
LIBC = ctypes.CDLL(None, use_errno=True)
SHARED = "extern __shared__ double outgrid_shared[];"

BEFORE = r"""
#include <math.h>
#include <cmath>
#include <bit>
#include <memory>
#include <setjmp.h>
#include <string.h>
#include <ucontext.h>
#include <vector>
#define int64_t device_int64_t  // the source has its own
#define uint64_t device_uint64_t
#define __noinline__
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __syncthreads() wait_for_block()
struct Index { unsigned x, y, z; };
static thread_local Index threadIdx, blockIdx, blockDim, gridDim;
static void wait_for_block();
template <class T> T __shfl_up_sync(unsigned, T, int);
template <class T> T __shfl_down_sync(unsigned, T, int);
static double* outgrid_shared;
using std::fma; using std::rint; using std::sqrt;
inline int __float_as_int(float a) { return std::bit_cast<int>(a); }
inline float __int_as_float(int a) { return std::bit_cast<float>(a); }
inline long long __double_as_longlong(double a) { return std::bit_cast<long long>(a); }
inline double __longlong_as_double(long long a) { return std::bit_cast<double>(a); }
inline void atomicMin(long long* at, long long value) { if (value < *at) *at = value; }
"""

AFTER = r"""
#define EACH(i, n) for (i = 0; i < n; ++i)
typedef void (*Kernel)(Slab);
// Threads of a block whose kernel waits for all of them: each has a stack and goes on until it
// waits, those of even turns in one order and those of odd turns in the other.
struct Thread {
  ucontext_t context;  // to begin with; `place` is where it goes on
  jmp_buf place;
  Index index;
  std::unique_ptr<char[]> stack;
  bool begun, ended;
};
static std::vector<Thread> team;
static size_t running;
static jmp_buf turn;
static Kernel started;
static const Slab* given;
static void wait_for_block() {
  if (!_setjmp(team[running].place)) _longjmp(turn, 1);
}
// The value of the thread so many lanes on, of the 32 of a warp; its own where there is none.
template <class T> static T of_lane_by(T a, int lanes) {
  static T given[1024];
  const int self = int(running), lane = self % 32 + lanes;
  given[self] = a;
  wait_for_block();
  if (lane >= 0 && lane < 32) a = given[self + lanes];
  wait_for_block();
  return a;
}
template <class T> T __shfl_up_sync(unsigned, T a, int lanes) { return of_lane_by(a, -lanes); }
template <class T> T __shfl_down_sync(unsigned, T a, int lanes) { return of_lane_by(a, lanes); }
static void begin() {
  started(*given);
  team[running].ended = true;
  _longjmp(turn, 1);
}
static void go_on(Thread& thread) {
  if (_setjmp(turn)) return;
  if (thread.begun) _longjmp(thread.place, 1);
  thread.begun = true;
  setcontext(&thread.context);
}
static void run_team() {
  constexpr size_t kStack = 1 << 16;
  team.resize(blockDim.x * blockDim.y * blockDim.z);
  size_t n = 0;
  Index at;
  EACH(at.z, blockDim.z) EACH(at.y, blockDim.y) EACH(at.x, blockDim.x) {
    Thread& thread = team[n++];
    if (!thread.stack) thread.stack.reset(new char[kStack]);
    thread.index = at;
    thread.begun = thread.ended = false;
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.get();
    thread.context.uc_stack.ss_size = kStack;
    thread.context.uc_link = nullptr;
    makecontext(&thread.context, begin, 0);
  }
  bool odd = false;
  for (size_t going = n; going; odd = !odd) {
    for (size_t k = 0; k < n; ++k) {
      running = odd ? n - 1 - k : k;
      if (team[running].ended) continue;
      threadIdx = team[running].index;
      go_on(team[running]);
      going -= team[running].ended;
    }
  }
}
extern "C" int outgrid_launch(int which, const unsigned* grid, const unsigned* block,
                              const Slab* slab, double* shared, size_t shared_bytes) {
  const Kernel kernels[] = {KERNELS};
  const bool together[] = {TOGETHER};
  started = kernels[which];
  given = slab;
  outgrid_shared = shared;
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {block[0], block[1], block[2]};
  EACH(blockIdx.z, grid[2]) EACH(blockIdx.y, grid[1]) EACH(blockIdx.x, grid[0])
  if (together[which]) {
    memset(shared, GARBAGE, shared_bytes);
    run_team();
  } else {
    EACH(threadIdx.z, block[2]) EACH(threadIdx.y, block[1]) EACH(threadIdx.x, block[0])
      kernels[which](*slab);
  }
  return 0;
}
"""


class _Fenced:
    """Memory between two pages that nobody may touch; it begins or ends at one of them.

    ``address`` is a multiple of `ALIGNED`, and so some bytes may be left behind it.
    """

    def __init__(self, nbytes: int, ends: bool) -> None:
        size = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self._buffer = Buffer(size + 2 * mmap.PAGESIZE, huge_pages=False)
        first = self._buffer.address + mmap.PAGESIZE
        for fence in (self._buffer.address, first + size):
            if LIBC.mprotect(ctypes.c_void_p(fence), ctypes.c_size_t(mmap.PAGESIZE), 0):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self.address = first + ((size - nbytes) // ALIGNED * ALIGNED if ends else 0)
        ctypes.memset(self.address, GARBAGE, nbytes)

    def release(self) -> None:
        """Give it back."""
        self._buffer.release()


class _Task(msgspec.Struct, frozen=True):
    """Something that was asked for; ``mark`` numbers it, ``after`` are others that come first."""

    mark: int
    after: tuple[Hashable, ...]
    action: Callable[[], None]


def stand_in(
    put: Callable[[ModuleType, str, object], None],
    seed: int = 0,
    memory_bytes: int = 1 << 30,
    kind: Callable[..., SlowDevice] | None = None,
) -> list[SlowDevice]:
    """Let slow devices stand for GPUs in the runs of this process; those that were opened so far.

    ``put`` is `setattr`, or that of a fixture which undoes it. ``kind`` makes the devices.
    """
    opened: list[SlowDevice] = []

    def open_device(_: str, source: str) -> SlowDevice:
        make = kind or SlowDevice
        opened.append(make(source, find_compiler(), seed + len(opened), memory_bytes))
        return opened[-1]

    def describe_device(_: str) -> Accelerator:
        shared_bytes = SlowDevice.shared_bytes
        return Accelerator(memory_bytes, SlowDevice.name, shared_bytes=shared_bytes)

    put(device, "describe_device", describe_device)
    put(device, "open_device", open_device)
    return opened


class SlowDevice:
    """Launches the kernels of one CUDA source, and copies, as late and as oddly as it may.

    Memory of the process serves as the device's memory. Launches are carried out in their order,
    copies in that of their direction, and whatever may be carried out next is chosen by chance when
    somebody looks; launches, or copies one way, may be far slower than the rest. Memory that is
    being copied to, and host memory that was copied from, holds garbage meanwhile. Threads run one
    after the other; those of a block that wait for each other, from barrier to barrier. A kernel
    that reads or writes beside memory of the device ends the process.
    ``memory_bytes`` is what may be allocated on the device, of which ``most_bytes`` were at once.
    """

    name = "a slow device"
    processors = 4
    shared_bytes = 227 << 10

    def __init__(
        self,
        source: str,
        compiler: Compiler,
        seed: int = 0,
        memory_bytes: int = 1 << 30,
        folder: Path | None = None,
    ) -> None:
        """Raises BuildError where the source is not C++ beside what CUDA adds to it."""
        kernels = re.findall(r"__global__ void (__launch_bounds__\(.*?\) )?(\w+)\(", source)
        self._names = [name for _, name in kernels]
        after = AFTER.replace("KERNELS", ", ".join(self._names)).replace("GARBAGE", str(GARBAGE))
        # Those whose blocks are bounded are those whose threads wait for each other.
        after = after.replace("TOGETHER", ", ".join(str(int(bool(bound))) for bound, _ in kernels))
        source = BEFORE + source.replace(SHARED, "") + after
        self._library: Library = build(source, compiler, folder)
        self.memory_bytes = memory_bytes
        self._random = random.Random(seed)
        self._held: dict[int, _Fenced] = {}
        self._there: dict[int, int] = {}
        self.pinned: dict[int, int] = {}  # memory of somebody else, by its address
        self.most_bytes = self._taken_bytes = 0
        self._queues: tuple[deque[_Task], ...] = (deque(), deque(), deque())
        self._weights = [self._random.choice((0.02, 0.3, 1)) for _ in self._queues]
        self._pending: set[Hashable] = set()
        self._last = 0

    @property
    def allocations(self) -> int:
        """Parts of memory that were not given back."""
        return len(self._held)

    def allocate(self, nbytes: int) -> int:
        """Memory, all of it garbage. Raises DeviceError where it is more than there is."""
        left = self.memory_bytes - self._taken_bytes
        if nbytes > left:
            raise DeviceError(f"{nbytes} bytes do not fit the {left} left of {self.memory_bytes}")
        address = self.allocate_host(nbytes)
        self._there[address] = nbytes
        self._taken_bytes += nbytes
        self.most_bytes = max(self.most_bytes, self._taken_bytes)
        return address

    def allocate_host(self, nbytes: int) -> int:
        """Memory of the process, all of it garbage."""
        memory = _Fenced(nbytes, ends=len(self._held) % 2 == 0)
        self._held[memory.address] = memory
        return memory.address

    def release(self, address: int) -> None:
        """Give memory back."""
        self._taken_bytes -= self._there.pop(address, 0)
        self._held.pop(address).release()

    release_host = release

    def pin(self, address: int, nbytes: int) -> bool:
        """Copy from this memory and leave it as it is."""
        self.pinned[address] = nbytes
        return True

    def unpin(self, address: int) -> None:
        """Let it go."""
        del self.pinned[address]

    def upload(self, parts: Sequence[Rectangle], after: Sequence[Hashable]) -> Hashable:
        """Copy to the device, and spoil what was copied from."""
        return self._ask(1, after, lambda: _copy(parts, spoil=not self._lasts(parts[0].source)))

    def download(self, parts: Sequence[Rectangle], after: Sequence[Hashable]) -> Hashable:
        """Copy from the device."""
        for part in parts:
            for row in range(part.rows):
                ctypes.memset(part.to + row * part.to_stride, GARBAGE, part.row_bytes)
        return self._ask(2, after, lambda: _copy(parts, spoil=False))

    def launch(
        self,
        name: str,
        grid: Extents,
        block: Extents,
        given: ctypes.Structure,
        shared_bytes: int = 0,
    ) -> None:
        """Carry a kernel out, some time."""
        which = self._names.index(name)
        kept: ctypes.Structure = type(given).from_buffer_copy(given)

        def carry_out() -> None:
            blocks, threads = ((ctypes.c_uint * 3)(*extents) for extents in (grid, block))
            shared = _Fenced(shared_bytes, ends=True)
            at, nbytes = ctypes.c_void_p(shared.address), ctypes.c_size_t(shared_bytes)
            slab = ctypes.byref(kept)
            self._library.handle.outgrid_launch(which, blocks, threads, slab, at, nbytes)
            shared.release()

        self._ask(0, (), carry_out)

    def mark(self) -> Hashable:
        """What is done when all launches so far are."""
        return self._ask(0, (), lambda: None)

    def done(self, mark: Hashable) -> bool:
        """Whether it is, after some of what may be carried out has been."""
        for _ in range(self._random.randrange(3)):
            self._carry_out_one()
        return mark not in self._pending

    def wait(self, mark: Hashable) -> None:
        """Carry out until ``mark`` is done."""
        while mark in self._pending:
            self._carry_out_one()

    @property
    def arrays(self) -> ModuleType:
        """NumPy: memory of the process serves as the device's."""
        return np

    def array(self, address: int, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array on memory that was allocated here."""
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        return bytes_at(address, nbytes).view(dtype).reshape(shape)

    def bring(self, values: NDArray[Any]) -> NDArray[Any]:
        """A copy."""
        return values.copy()

    def fetch(self, values: NDArray[Any]) -> NDArray[Any]:
        """A copy."""
        return values.copy()

    def finish(self) -> None:
        """What NumPy is asked for is made at once."""

    def _lasts(self, address: int) -> bool:
        return any(at <= address < at + nbytes for at, nbytes in self.pinned.items())

    def _ask(self, queue: int, after: Sequence[Hashable], action: Callable[[], None]) -> int:
        self._last += 1
        self._pending.add(self._last)
        self._queues[queue].append(_Task(self._last, tuple(after), action))
        return self._last

    def _carry_out_one(self) -> None:
        ready = [queue for queue in self._queues if queue and not self._pending & {*queue[0].after}]
        if ready:
            task = self._random.choice(ready).popleft()
            task.action()
            self._pending.discard(task.mark)


def _copy(parts: Sequence[Rectangle], spoil: bool) -> None:
    for part in parts:
        for row in range(part.rows):
            source = part.source + row * part.source_stride
            ctypes.memmove(part.to + row * part.to_stride, source, part.row_bytes)
            if spoil:
                ctypes.memset(source, GARBAGE, part.row_bytes)
