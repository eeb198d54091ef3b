// The threads of a call, and the memory that they touch first.
#pragma once

#include <omp.h>
#include <sched.h>

#include <cerrno>

#include "cpu/vector.hpp"

namespace {

// Keeps the threads of a team on the processors that the process may use, one each, going round
// where they are fewer. The calling thread is let go at the end: what it starts later is not bound.
class Pinned {
 public:
  int error = 0;

  Pinned(int64_t threads, bool wanted) {
    if (!wanted) return;
#if defined(__linux__)
    if (sched_getaffinity(0, sizeof allowed_, &allowed_) != 0) {
      error = errno;
      return;
    }
    bound_ = true;
    const int usable = CPU_COUNT(&allowed_);
#pragma omp parallel num_threads(threads)
    {
      int before = omp_get_thread_num() % usable, cpu = 0;
      while (!CPU_ISSET(cpu, &allowed_) || before-- > 0) ++cpu;
      cpu_set_t own;
      CPU_ZERO(&own);
      CPU_SET(cpu, &own);
      if (sched_setaffinity(0, sizeof own, &own) != 0) {
#pragma omp atomic write
        error = errno;
      }
    }
#else
    (void)threads;
    error = ENOSYS;
#endif
  }

  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

#if defined(__linux__)
  ~Pinned() {
    if (bound_) sched_setaffinity(0, sizeof allowed_, &allowed_);
  }

 private:
  cpu_set_t allowed_;
  bool bound_ = false;
#endif
};

}  // namespace

// First touch of the window: pages go to the memory of the threads that will use them. Tiles move
// from thread to thread, so parts of the size of a huge page are dealt out in turns.
extern "C" int outgrid_touch(char* first, int64_t nbytes, int64_t threads, int64_t pin) {
  const Pinned pinned(threads, pin != 0);
  constexpr int64_t part = int64_t{2} << 20, page = 4096;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int64_t at = 0; at < nbytes; at += part) {
    for (int64_t i = at; i < least(at + part, nbytes); i += page) first[i] = 0;
  }
  return pinned.error;
}
