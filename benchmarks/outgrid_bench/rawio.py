"""What a device gives without our queue: fio where it is installed, and a loop of system calls.

Both move requests of the same size to the same places of the same file, past the page cache, with
as many under way.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

from outgrid.errors import ExecutionError, StoreError
from outgrid.native import Buffer
from outgrid.parts import build, find_compiler
from outgrid.probe.effort import Effort
from outgrid.probe.scratch import KINDS, Kind, NoiseFile, fill_with_noise
from outgrid_bench.experiments.moving import Moving

# On small pages a device with few segments per request gets requests in halves: fio would lose a
# quarter against memory like ours, on huge pages.
FIO_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
# Its first requests touch memory for the first time: not what is measured.
FIO_RAMP_MILLISECONDS = 400
FIO_SECONDS = 60  # beyond what a measurement of a second or two may take

SOURCE = r"""
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

// Threads that each make one request after the other. 0, or the first failure's error number.
extern "C" int outgrid_requests(const char* path, int kind, std::int64_t request_bytes,
                                std::int64_t file_bytes, int depth, double seconds, char* memory,
                                double* rate) {
  using Clock = std::chrono::steady_clock;
  const int file = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
  if (file < 0) return errno;
  const std::int64_t places = file_bytes / request_bytes, half = places / 2;
  std::atomic<std::int64_t> turns{0}, moved{0};
  std::atomic<int> failure{0};
  const auto begin = Clock::now();
  const auto spent = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  const auto work = [&](char* part) {
    do {  // once at least, however late the thread begins
      const std::int64_t turn = turns++;
      bool writes = kind == 1;
      std::int64_t place = turn % places;
      if (kind == 2) {
        writes = turn % 2 == 1;
        place = turn / 2 % half + (writes ? half : 0);
      }
      const std::int64_t offset = place * request_bytes;
      const std::int64_t done = writes ? pwrite(file, part, request_bytes, offset)
                                       : pread(file, part, request_bytes, offset);
      if (done < 0) failure = errno;
      if (done > 0) moved += done;
    } while (spent() < seconds && failure == 0);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < depth; ++i) threads.emplace_back(work, memory + i * request_bytes);
  for (auto& thread : threads) thread.join();
  *rate = static_cast<double>(moved) / spent();
  close(file);
  return failure;
}
"""


@dataclass(frozen=True, slots=True)
class Fio:
    """An installed fio, and the engine of it that works here."""

    path: str
    engine: str
    version: str

    def move(self, noise: NoiseFile, kind: Kind, effort: Effort) -> float:
        """Bytes per second, of both directions together. Raises ExecutionError with fio's words."""
        return _fio_rate(self.path, self.engine, noise, kind, effort, effort.transfer_seconds)


def find_fio(noise: NoiseFile, effort: Effort) -> Fio | None:
    """fio with io_uring, else with kernel AIO; None where it is not installed."""
    path = shutil.which("fio")
    if path is None:
        return None
    told = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    try:
        engine = "io_uring"
        _fio_rate(path, engine, noise, "read", effort, 0.05)
    except ExecutionError:
        engine = "libaio"
        _fio_rate(path, engine, noise, "read", effort, 0.05)
    return Fio(path, engine, told.stdout.strip())


class Loop:
    """The compiled loop of pread and pwrite, with one thread for each request under way."""

    def __init__(self, effort: Effort) -> None:
        self._run = build(SOURCE, find_compiler()).handle.outgrid_requests
        self._run.argtypes = [
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_int64,
            ctypes.c_int64,
            ctypes.c_int,
            ctypes.c_double,
            ctypes.c_void_p,
            ctypes.c_void_p,
        ]
        self._memory = Buffer(effort.queue_depth * effort.request_bytes)
        fill_with_noise(self._memory)

    def move(self, noise: NoiseFile, kind: Kind, effort: Effort) -> float:
        """Bytes per second, of both directions together. Raises StoreError."""
        rate = ctypes.c_double()
        failure = self._run(
            os.fsencode(noise.path),
            KINDS.index(kind),
            effort.request_bytes,
            noise.nbytes,
            effort.queue_depth,
            effort.transfer_seconds,
            self._memory.address,
            ctypes.byref(rate),
        )
        if failure:
            raise StoreError("a plain transfer failed", path=noise.path, errno=failure)
        return rate.value


def _fio_rate(
    path: str, engine: str, noise: NoiseFile, kind: Kind, effort: Effort, seconds: float
) -> float:
    command = [
        path,
        f"--filename={str(noise.path).replace(':', chr(92) + ':')}",
        f"--ioengine={engine}",
        f"--bs={effort.request_bytes}",
        f"--ramp_time={FIO_RAMP_MILLISECONDS}ms",
        f"--runtime={round(1000 * seconds)}ms",
        "--time_based",
        "--direct=1",
        "--iomem_align=2m",
        "--allow_file_create=0",
        "--output-format=json",
        *fio_jobs(kind, noise.nbytes, effort),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FIO_SECONDS, check=False)
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip()
        raise ExecutionError(f"fio with {engine} ended with exit code {done.returncode}: {words}")
    return fio_bandwidth(json.loads(done.stdout))


def fio_rate(fio: str, moving: Moving, engine: str, depth: int, direct: bool) -> float:
    """Bytes per second of the same requests by fio. Raises ExecutionError with fio's words."""
    told = subprocess.run(
        [
            fio,
            "--name=reference",
            f"--filename={moving.path.replace(':', chr(92) + ':')}",
            f"--rw={'rand' if moving.random else ''}{'write' if moving.writes else 'read'}",
            f"--ioengine={engine}",
            f"--bs={moving.request_bytes}",
            f"--iodepth={depth}",
            f"--size={moving.file_bytes}",
            f"--direct={int(direct)}",
            f"--runtime={round(1000 * moving.seconds)}ms",
            "--time_based",
            "--invalidate=0",
            "--allow_file_create=0",
            "--output-format=json",
        ],
        capture_output=True,
        text=True,
        timeout=FIO_SECONDS,
        check=False,
    )
    if told.returncode:
        raise ExecutionError(f"fio with {engine}: {(told.stderr or told.stdout).strip()}")
    return fio_bandwidth(json.loads(told.stdout))


def fio_jobs(kind: Kind, nbytes: int, effort: Effort) -> list[str]:
    """The jobs of fio that make the requests of ``kind``, as many under way as ours."""
    depth, request = effort.queue_depth, effort.request_bytes
    if kind != "mixed":
        return ["--name=reference", f"--rw={kind}", f"--iodepth={depth}", f"--size={nbytes}"]
    half = nbytes // 2 // request * request
    jobs: list[str] = []
    for index, direction in enumerate(("read", "write")):
        jobs += [f"--name={direction}", f"--rw={direction}", f"--iodepth={max(1, depth // 2)}"]
        jobs += [f"--offset={index * half}", f"--size={half}"]
    return jobs


def fio_bandwidth(told: dict[str, Any]) -> float:
    """Bytes per second of all jobs and directions in fio's JSON output."""
    return float(sum(job["read"]["bw_bytes"] + job["write"]["bw_bytes"] for job in told["jobs"]))
