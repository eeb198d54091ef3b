#include "team/slice.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace outgrid {

namespace {

// `struct sched_attr` of linux/sched/types.h, which older C libraries lack and newer ones declare.
struct Attributes {
  std::uint32_t size = sizeof(Attributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0, deadline = 0, period = 0;
};
static_assert(sizeof(Attributes) == 48);

}  // namespace

std::int64_t set_slice(std::int64_t nanoseconds) {
  Attributes now;
  if (syscall(SYS_sched_getattr, 0, &now, sizeof now, 0) != 0) return 0;
  // Others are told how long they run in other ways.
  if (now.policy != SCHED_OTHER && now.policy != SCHED_BATCH) return 0;
  const auto before = static_cast<std::int64_t>(now.runtime);
  now.size = sizeof now;
  now.runtime = static_cast<std::uint64_t>(nanoseconds);
  syscall(SYS_sched_setattr, 0, &now, 0);
  return before;
}

}  // namespace outgrid
