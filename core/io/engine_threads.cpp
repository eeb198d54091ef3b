// The engine that works everywhere: `depth` threads with preadv and pwritev, and the only one that
// moves what has no descriptor.
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "io/engine.h"
#include "io/threads.h"
#include "team/slice.h"

namespace outgrid {
namespace {

class ThreadEngine : public Engine {
 public:
  ThreadEngine(int depth, int event_fd) : event_fd_(event_fd) {
    for (int i = 0; i < depth; ++i) threads_.start([this] { work(); });
  }

  void start(std::span<Operation*> operations) override {
    {
      std::lock_guard lock(mutex_);
      waiting_.insert(waiting_.end(), operations.begin(), operations.end());
    }
    if (operations.size() == 1) {
      ready_.notify_one();
    } else if (!operations.empty()) {
      ready_.notify_all();
    }
  }

  void collect(std::vector<Operation*>& finished) override {
    std::lock_guard lock(mutex_);
    finished.insert(finished.end(), finished_.begin(), finished_.end());
    finished_.clear();
  }

 private:
  static std::int64_t carry_out(const Operation& operation) {
    if (operation.backing != nullptr) return copy(operation);
    ssize_t result = 0;
    switch (operation.kind) {
      case Operation::Kind::read:
        result = preadv(operation.fd, operation.vectors, operation.vector_count, operation.offset);
        break;
      case Operation::Kind::write:
        result = pwritev(operation.fd, operation.vectors, operation.vector_count, operation.offset);
        break;
      case Operation::Kind::sync:
        result = fdatasync(operation.fd);
        break;
    }
    return result < 0 ? -errno : result;
  }

  static std::int64_t copy(const Operation& operation) {
    switch (operation.kind) {
      case Operation::Kind::read:
        return operation.backing->read(operation.offset, operation.vectors, operation.vector_count);
      case Operation::Kind::write:
        return operation.backing->write(operation.offset, operation.vectors,
                                        operation.vector_count);
      case Operation::Kind::sync:
        break;
    }
    return operation.backing->flush();
  }

  void stop() {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    ready_.notify_all();
  }

  void work() {
    set_slice(kPromptSlice);
    std::unique_lock lock(mutex_);
    while (true) {
      ready_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      Operation* operation = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      operation->result = carry_out(*operation);
      lock.lock();
      finished_.push_back(operation);
      eventfd_write(event_fd_, 1);
    }
  }

  const int event_fd_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Operation*> waiting_;
  std::vector<Operation*> finished_;
  bool stopping_ = false;
  Threads threads_{[this] { stop(); }};
};

}  // namespace

std::unique_ptr<Engine> make_thread_engine(int depth, int event_fd) {
  return std::make_unique<ThreadEngine>(depth, event_fd);
}

std::vector<std::string> engine_names() {
#ifdef OUTGRID_HAS_URING
  return {"io_uring", "aio", "threads"};
#else
  return {"aio", "threads"};
#endif
}

}  // namespace outgrid
