// A descriptor that wakes whoever reads or polls it.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "io/error.h"

namespace outgrid {

class Event {
 public:
  Event() : fd_(eventfd(0, EFD_CLOEXEC)) {
    if (fd_ < 0) throw SystemError(errno, "cannot make an event descriptor");
  }
  ~Event() { close(fd_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  int fd() const { return fd_; }
  void notify() const { eventfd_write(fd_, 1); }
  // Until it was notified since the last wait.
  void wait() const {
    eventfd_t ignored;
    eventfd_read(fd_, &ignored);
  }

 private:
  const int fd_;
};

}  // namespace outgrid
