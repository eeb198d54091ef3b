// Threads that compute together: those of the team of the core.
#pragma once

#include <cstdint>

// What `core/team/team.h` says.
struct Team {
  int (*start)(int64_t threads);
  void (*run)(void (*body)(void* data, int64_t thread), void* data);
  void (*meet)();
};

namespace {

// Has threads ready for `together`. Returns 0, or an error number.
inline int start(const Team* team, int64_t threads) {
  return threads > 1 ? team->start(threads) : 0;
}

// Calls `body(thread)` at once in so many threads that were started, 0 being the calling one.
template <class Body>
void together(const Team* team, int64_t threads, const Body& body) {
  if (threads == 1) return body(int64_t{0});
  team->run([](void* data, int64_t thread) { (*static_cast<const Body*>(data))(thread); },
            const_cast<Body*>(&body));
}

// Within `together`, of as many threads: waits until all have come here.
inline void meet(const Team* team, int64_t threads) {
  if (threads > 1) team->meet();
}

}  // namespace
