// The threads of a call, and the memory that they touch first.
#pragma once

#include <sched.h>

#include <cerrno>

#include "cpu/team.hpp"
#include "cpu/vector.hpp"

namespace {

// Keeps the threads of a team on the processors that the process may use, one each, going round
// where they are fewer. The calling thread is let go at the end: what it starts later is not bound.
class Pinned {
 public:
  int error = 0;

  Pinned(const Team* team, int64_t threads, bool wanted) {
    if (!wanted) return;
#if defined(__linux__)
    if (sched_getaffinity(0, sizeof allowed_, &allowed_) != 0) {
      error = errno;
      return;
    }
    bound_ = true;
    const int usable = CPU_COUNT(&allowed_);
    together(team, threads, [&](int64_t thread) {
      int64_t before = thread % usable;
      int cpu = 0;
      while (!CPU_ISSET(cpu, &allowed_) || before-- > 0) ++cpu;
      cpu_set_t own;
      CPU_ZERO(&own);
      CPU_SET(cpu, &own);
      if (sched_setaffinity(0, sizeof own, &own) != 0) {
        __atomic_store_n(&error, errno, __ATOMIC_RELAXED);
      }
    });
#else
    (void)team, (void)threads;
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
extern "C" int outgrid_touch(const Team* team, char* first, int64_t nbytes, int64_t threads,
                             int64_t pin) {
  if (const int error = start(team, threads)) return -error;
  const Pinned pinned(team, threads, pin != 0);
  constexpr int64_t part = int64_t{2} << 20, page = 4096;
  together(team, threads, [&](int64_t thread) {
    for (int64_t at = thread * part; at < nbytes; at += threads * part) {
      for (int64_t i = at; i < least(at + part, nbytes); i += page) first[i] = 0;
    }
  });
  return pinned.error;
}
