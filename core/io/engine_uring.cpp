// The engine on io_uring. Compiled only where liburing was found.
#include <liburing.h>

#include <cerrno>

#include "io/engine.h"
#include "io/error.h"

namespace outgrid {
namespace {

class UringEngine : public Engine {
 public:
  UringEngine(int depth, int event_fd) {
    int code = io_uring_queue_init(static_cast<unsigned>(depth), &ring_, 0);
    if (code < 0) throw SystemError(-code, "the kernel refuses the io_uring engine");
    code = io_uring_register_eventfd(&ring_, event_fd);
    if (code < 0) {
      io_uring_queue_exit(&ring_);
      throw SystemError(-code, "the kernel refuses completion events of the io_uring engine");
    }
  }

  ~UringEngine() override { io_uring_queue_exit(&ring_); }

  void start(std::span<Operation*> operations) override {
    int unsubmitted = 0;
    for (Operation* operation : operations) {
      io_uring_sqe* entry = io_uring_get_sqe(&ring_);
      if (entry == nullptr) {
        operation->result = -EAGAIN;
        refused_.push_back(operation);
        continue;
      }
      prepare(entry, operation);
      ++unsubmitted;
    }
    // Any other refusal means that the ring itself is broken: requests under way could no longer be
    // waited for, so no memory may be given back. The exception ends the process.
    while (unsubmitted > 0) {
      const int taken = io_uring_submit(&ring_);
      if (taken > 0) {
        unsubmitted -= taken;
      } else if (taken != -EINTR && taken != -EAGAIN && taken != -EBUSY) {
        throw SystemError(-taken, "io_uring does not take requests");
      }
    }
  }

  void collect(std::vector<Operation*>& finished) override {
    finished.insert(finished.end(), refused_.begin(), refused_.end());
    refused_.clear();
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring_, &entry) == 0 && entry != nullptr) {
      auto* operation = static_cast<Operation*>(io_uring_cqe_get_data(entry));
      operation->result = entry->res;
      finished.push_back(operation);
      io_uring_cqe_seen(&ring_, entry);
    }
  }

 private:
  static void prepare(io_uring_sqe* entry, Operation* operation) {
    const auto count = static_cast<unsigned>(operation->vector_count);
    const auto offset = static_cast<__u64>(operation->offset);
    switch (operation->kind) {
      case Operation::Kind::read:
        io_uring_prep_readv(entry, operation->fd, operation->vectors, count, offset);
        break;
      case Operation::Kind::write:
        io_uring_prep_writev(entry, operation->fd, operation->vectors, count, offset);
        break;
      case Operation::Kind::sync:
        io_uring_prep_fsync(entry, operation->fd, IORING_FSYNC_DATASYNC);
        break;
    }
    io_uring_sqe_set_data(entry, operation);
  }

  io_uring ring_{};
  std::vector<Operation*> refused_;
};

}  // namespace

std::unique_ptr<Engine> make_uring_engine(int depth, int event_fd) {
  return std::make_unique<UringEngine>(depth, event_fd);
}

}  // namespace outgrid
