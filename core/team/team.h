// Threads that compute together: what kernels run on.
#pragma once

#include <cstdint>

namespace outgrid {

// The team as kernels see it: `struct Team` of codegen/templates/cpu/team.hpp.
struct Team {
  // Has so many threads ready for the calling thread, itself among them. 0, or an error number.
  int (*start)(std::int64_t threads);
  // Calls `body(data, thread)` at once in all threads that were started, 0 being the calling one,
  // and waits for all of them.
  void (*run)(void (*body)(void* data, std::int64_t thread), void* data);
  // Within a run: waits until all of its threads have come here.
  void (*meet)();
};

// Each thread that calls has a team of its own, which lives as long as that thread.
const Team& team();

}  // namespace outgrid
