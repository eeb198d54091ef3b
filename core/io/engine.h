// What carries requests to the kernel: io_uring, kernel AIO, or a pool of threads.
//
// Protocol:
//  1. One thread, the queue's driver, calls `start` and `collect`; nobody else does.
//  2. An operation belongs to the engine from `start` until `collect` returns it; its vectors stay
//  valid
//     and unchanged in between.
//  3. After finishing an operation the engine adds to the event descriptor it was made with. The
//  driver
//     sleeps on that descriptor, calls `start` before `collect` in every round, and therefore
//     misses nothing: neither a finished operation nor one that `start` could not hand over.
//  4. A short transfer, EINTR and EAGAIN are results like any other; the driver continues or
//  repeats.
//  5. An engine is destroyed only when it holds no operation.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/backing.h"

namespace outgrid {

struct Operation {
  enum class Kind { read, write, sync };
  Kind kind;
  int fd;
  const Backing* backing;  // where not null: of these bytes, by the engine of threads alone
  std::int64_t offset;
  const iovec* vectors;
  int vector_count;
  std::int64_t result;  // bytes moved, or a negative errno; set when the operation is collected
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual void start(std::span<Operation*> operations) = 0;
  virtual void collect(std::vector<Operation*>& finished) = 0;
};

// Each throws SystemError where the kernel refuses it. At most `depth` operations are held at once.
std::unique_ptr<Engine> make_uring_engine(int depth, int event_fd);
std::unique_ptr<Engine> make_aio_engine(int depth, int event_fd);
std::unique_ptr<Engine> make_thread_engine(int depth, int event_fd);

// The engines of this build, best first.
std::vector<std::string> engine_names();

}  // namespace outgrid
