// The threads of an object, which live as long as it does.
#pragma once

#include <unistd.h>

#include <functional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "io/error.h"

namespace outgrid {

// The last member of its object, so that whatever the threads use is made before them and goes
// after them, also where the object cannot be made because a thread cannot be started.
class Threads {
 public:
  // `stop` tells all threads to end; it is not called where none was started.
  explicit Threads(std::function<void()> stop) : stop_(std::move(stop)) {}
  ~Threads() { end(); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  // Calls `body` in a thread of its own. Throws SystemError where the system refuses a thread.
  template <typename Body>
  void start(Body body) {
    try {
      threads_.emplace_back(std::move(body));
    } catch (const std::system_error& error) {
      throw SystemError(error.code().value(),
                        "cannot start threads (see `ulimit -u` and `ulimit -v` for the bounds, and "
                        "pids.max of the control group)");
    }
  }

  // Tells all to end and waits for them.
  void end() {
    if (threads_.empty()) return;
    stop_();
    for (std::thread& each : threads_) each.join();
    threads_.clear();
  }

  // Whether they are of this process, and not of one that this was forked from.
  bool here() const { return process_ == getpid(); }

  // Lets them go on alone: what they use must stay.
  void leave() {
    for (std::thread& each : threads_) each.detach();
    threads_.clear();
  }

 private:
  const pid_t process_ = getpid();
  std::function<void()> stop_;
  std::vector<std::thread> threads_;
};

// Deletes an object where its threads are. A process that was forked from that one has its memory,
// but not the threads: they cannot be waited for, and may have held its locks. There it stays.
struct Dismissal {
  template <typename Object>
  void operator()(Object* object) const {
    if (object->here()) delete object;
  }
};

}  // namespace outgrid
