// The engine on kernel AIO (io_submit), through raw system calls: libaio would add nothing.
#include <linux/aio_abi.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "io/engine.h"
#include "io/error.h"

namespace outgrid {
namespace {

class AioEngine : public Engine {
 public:
  AioEngine(int depth, int event_fd)
      : event_fd_(event_fd), blocks_(static_cast<std::size_t>(depth)), events_(blocks_.size()) {
    if (syscall(SYS_io_setup, depth, &context_) != 0) {
      throw SystemError(errno, "the kernel refuses a context of " + std::to_string(depth) +
                                   " requests for the aio engine (io_setup)");
    }
    for (iocb& block : blocks_) free_.push_back(&block);
  }

  ~AioEngine() override { syscall(SYS_io_destroy, context_); }

  void start(std::span<Operation*> operations) override {
    std::vector<iocb*> batch;
    for (Operation* operation : operations) batch.push_back(prepare(operation));
    std::size_t done = 0;
    while (done < batch.size()) {
      const long taken = syscall(SYS_io_submit, context_, static_cast<long>(batch.size() - done),
                                 batch.data() + done);
      if (taken > 0) {
        done += static_cast<std::size_t>(taken);
      } else if (errno != EINTR) {
        // The kernel names the first request that it refuses; the others may still pass.
        finish(batch[done], -errno, refused_);
        ++done;
      }
    }
  }

  void collect(std::vector<Operation*>& finished) override {
    finished.insert(finished.end(), refused_.begin(), refused_.end());
    refused_.clear();
    timespec at_once{};
    long count;
    do {
      count = syscall(SYS_io_getevents, context_, 0L, static_cast<long>(events_.size()),
                      events_.data(), &at_once);
    } while (count < 0 && errno == EINTR);
    for (long i = 0; i < count; ++i) {
      const io_event& event = events_[static_cast<std::size_t>(i)];
      finish(reinterpret_cast<iocb*>(event.obj), event.res, finished);
    }
  }

 private:
  iocb* prepare(Operation* operation) {
    iocb* block = free_.back();
    free_.pop_back();
    std::memset(block, 0, sizeof *block);
    block->aio_data = reinterpret_cast<std::uintptr_t>(operation);
    block->aio_fildes = static_cast<__u32>(operation->fd);
    block->aio_flags = IOCB_FLAG_RESFD;
    block->aio_resfd = static_cast<__u32>(event_fd_);
    if (operation->kind == Operation::Kind::sync) {
      block->aio_lio_opcode = IOCB_CMD_FDSYNC;
    } else {
      const bool reads = operation->kind == Operation::Kind::read;
      block->aio_lio_opcode = reads ? IOCB_CMD_PREADV : IOCB_CMD_PWRITEV;
      block->aio_buf = reinterpret_cast<std::uintptr_t>(operation->vectors);
      block->aio_nbytes = static_cast<__u64>(operation->vector_count);
      block->aio_offset = operation->offset;
    }
    return block;
  }

  void finish(iocb* block, std::int64_t result, std::vector<Operation*>& finished) {
    auto* operation = reinterpret_cast<Operation*>(block->aio_data);
    operation->result = result;
    finished.push_back(operation);
    free_.push_back(block);
  }

  const int event_fd_;
  aio_context_t context_ = 0;
  std::vector<iocb> blocks_;
  std::vector<iocb*> free_;
  std::vector<io_event> events_;
  std::vector<Operation*> refused_;
};

}  // namespace

std::unique_ptr<Engine> make_aio_engine(int depth, int event_fd) {
  return std::make_unique<AioEngine>(depth, event_fd);
}

}  // namespace outgrid
