"""Requests by plain system calls, in C: read and write, mapped memory, direct, in any pattern.

Called in this process, or as a program of its own that a memory limit can be put around.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from outgrid.errors import StoreError
from outgrid.native import Buffer
from outgrid.parts import build, find_compiler
from outgrid.probe.scratch import fill_with_noise

__all__ = [
    "METHODS",
    "Moved",
    "Moving",
    "bytes_at",
    "chase_seconds",
    "command",
    "move",
    "read_rate",
]

METHODS = ("rw", "m_sync", "m_async", "direct")

SOURCE = r"""
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>

namespace {
using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}
}  // namespace

// One request after the other for `seconds`, at least one; 0 or the first failure's number. What
// was written before is durable when the clock starts, and what is written when it stops. `last` is
// where the last request went.
extern "C" int outgrid_move(const char* path, int method, int writes, int random,
                            std::int64_t request, std::int64_t file_bytes, double seconds,
                            char* memory, double* taken, std::int64_t* requests,
                            std::int64_t* last) {
  enum { rw, m_sync, m_async, direct };
  const int flags = (method == direct ? O_DIRECT : 0) | O_RDWR | O_CLOEXEC;
  const int file = open(path, flags);
  if (file < 0) return errno;
  char* map = nullptr;
  if (method == m_sync || method == m_async) {
    void* found = mmap(nullptr, file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (found == MAP_FAILED) return errno;
    map = static_cast<char*>(found);
    madvise(map, file_bytes, random ? MADV_RANDOM : MADV_SEQUENTIAL);
  }
  const std::int64_t places = file_bytes / request;
  std::uint64_t state = 88172645463325252ull;
  std::int64_t turn = 0;
  int failure = 0;
  // What methods before this one left to the system would be written at its expense.
  if (fsync(file)) failure = errno;
  const auto begin = Clock::now();
  do {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const std::int64_t place = random ? std::int64_t(state % std::uint64_t(places)) : turn % places;
    const std::int64_t offset = *last = place * request;
    if (map && writes) {
      std::memcpy(map + offset, memory, request);
      if (msync(map + offset, request, method == m_sync ? MS_SYNC : MS_ASYNC)) failure = errno;
    } else if (map) {
      std::memcpy(memory, map + offset, request);
    } else {
      lseek(file, offset, SEEK_SET);
      const std::int64_t done = writes ? write(file, memory, request) : read(file, memory, request);
      if (done != request) failure = done < 0 ? errno : EIO;
    }
    ++turn;
  } while (!failure && since(begin) < seconds);
  // Writing that is left to the system later would not be in the rate of the mapped methods.
  if (writes && method == rw && fdatasync(file)) failure = errno;
  *taken = since(begin);
  *requests = turn;
  if (map) munmap(map, file_bytes);
  close(file);
  return failure;
}

// Seconds per load where each load's address is what the one before it read: lines of `set` in an
// order of chance.
extern "C" double outgrid_chase(char* memory, std::int64_t set, std::int64_t loads) {
  const std::int64_t line = 64, lines = set / line;
  auto next = [&](std::int64_t i) { return reinterpret_cast<std::int64_t*>(memory + i * line); };
  for (std::int64_t i = 0; i < lines; ++i) *next(i) = i;
  std::uint64_t state = 88172645463325252ull;
  for (std::int64_t i = lines - 1; i > 0; --i) {  // one cycle through all of them
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const std::int64_t j = std::int64_t(state % std::uint64_t(i)), kept = *next(i);
    *next(i) = *next(j);
    *next(j) = kept;
  }
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < (lines < loads ? lines : loads); ++i) at = *next(at);
  const auto begin = Clock::now();
  for (std::int64_t i = 0; i < loads; ++i) at = *next(at);
  const double seconds = since(begin);
  asm volatile("" ::"r"(at));
  return seconds / double(loads);
}

// Bytes per second of one core that sums up `set` again and again.
extern "C" double outgrid_read(const char* memory, std::int64_t set, std::int64_t passes) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(memory);
  const std::int64_t count = set / 8;
  std::uint64_t total = 0;
  const auto pass = [&] {
    std::uint64_t sums[8] = {};
    for (std::int64_t i = 0; i + 8 <= count; i += 8)
      for (int j = 0; j < 8; ++j) sums[j] += words[i + j];
    for (const auto sum : sums) total += sum;
    asm volatile("" ::"r"(total) : "memory");
  };
  pass();
  const auto begin = Clock::now();
  for (std::int64_t i = 0; i < passes; ++i) pass();
  return double(set) * double(passes) / since(begin);
}
"""


@dataclass(frozen=True, slots=True)
class Moving:
    """Requests of ``request_bytes``, one after the other for ``seconds``, by one of METHODS."""

    path: str
    method: str
    writes: bool
    random: bool
    request_bytes: int
    file_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Moved:
    """``bytes_per_second``, how long one request took on average, and whether what the last one
    moved is what lies in the file."""

    bytes_per_second: float
    request_seconds: float
    agrees: bool


@cache
def _library() -> ctypes.CDLL:
    library = build(SOURCE, find_compiler()).handle
    whole, real, pointer = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
    library.outgrid_move.argtypes = [
        ctypes.c_char_p,
        *[ctypes.c_int] * 3,
        *[whole] * 2,
        real,
        *[pointer] * 4,
    ]
    library.outgrid_chase.argtypes = [pointer, whole, whole]
    library.outgrid_chase.restype = real
    library.outgrid_read.argtypes = [pointer, whole, whole]
    library.outgrid_read.restype = real
    return library


def move(moving: Moving) -> Moved:
    """Carry them out in this process. Raises StoreError with the first failure."""
    memory = Buffer(moving.request_bytes)
    fill_with_noise(memory)
    taken, requests, last = ctypes.c_double(), ctypes.c_int64(), ctypes.c_int64()
    failure = _library().outgrid_move(
        os.fsencode(moving.path),
        METHODS.index(moving.method),
        moving.writes,
        moving.random,
        moving.request_bytes,
        moving.file_bytes,
        moving.seconds,
        memory.address,
        ctypes.byref(taken),
        ctypes.byref(requests),
        ctypes.byref(last),
    )
    if failure:
        raise StoreError("a plain request failed", path=Path(moving.path), errno=failure)
    return Moved(
        requests.value * moving.request_bytes / taken.value,
        taken.value / requests.value,
        bytes_at(Path(moving.path), last.value, memory.nbytes) == bytes(memoryview(memory)),
    )


def bytes_at(path: Path, offset: int, nbytes: int) -> bytes:
    """What the file holds there, by a plain system call."""
    with path.open("rb", buffering=0) as file:
        return os.pread(file.fileno(), nbytes, offset)


def command(movings: Sequence[Moving]) -> list[str]:
    """The program that moves them, one after the other, and prints what `move` returns."""
    given = json.dumps([asdict(moving) for moving in movings])
    return [sys.executable, "-c", f"from {__name__} import main; main()", given]


def chase_seconds(memory: Buffer, set_bytes: int, loads: int) -> float:
    """Seconds per load that depends on the one before it, in a set of ``set_bytes``."""
    return float(_library().outgrid_chase(memory.address, set_bytes, loads))


def read_rate(memory: Buffer, set_bytes: int, pass_bytes: int) -> float:
    """Bytes per second that one core reads from a set of ``set_bytes``."""
    passes = max(1, pass_bytes // set_bytes)
    return float(_library().outgrid_read(memory.address, set_bytes, passes))


def main() -> None:
    """What `command` starts."""
    given = json.loads(sys.argv[1])
    sys.stdout.write(json.dumps([asdict(move(Moving(**load))) for load in given]))
