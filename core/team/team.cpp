#include "team/team.h"

#include <sched.h>

#include <atomic>
#include <memory>

#include "io/threads.h"

namespace outgrid {

namespace {

// Turns of a wait before it sleeps: where another process has a core, spinning takes it from the
// thread that is waited for. Fewer where threads are more than processors.
constexpr int kTurns = 10000, kTurnsCrowded = 100;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int processors() {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

class Members {
 public:
  explicit Members(int threads)
      : threads_(threads), turns_(threads > processors() ? kTurnsCrowded : kTurns) {
    for (int index = 1; index < threads; ++index) {
      others_.start([this, index] { serve(index); });
    }
  }
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;

  int threads() const { return threads_; }

  bool here() const { return others_.here(); }

  void run(void (*body)(void*, std::int64_t), void* data) {
    body_ = body, data_ = data;
    begin();
    work(0);
  }

  void meet() {
    const int before = phase_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      phase_.store(before + 1, std::memory_order_release);
      phase_.notify_all();
    } else {
      await(phase_, before);
    }
  }

  static thread_local Members* current;

 private:
  void begin() {
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
  }

  void work(int index) {
    Members* const before = current;
    current = this;
    body_(data_, index);
    current = before;
    meet();
  }

  void serve(int index) {
    for (int round = 0;; ++round) {
      await(round_, round);
      if (body_ == nullptr) return;
      work(index);
    }
  }

  void await(const std::atomic<int>& count, int before) const {
    for (int turn = 0; turn < turns_; ++turn) {
      if (count.load(std::memory_order_acquire) != before) return;
      pause();
    }
    count.wait(before, std::memory_order_acquire);
  }

  void dismiss() {
    body_ = nullptr;
    begin();
  }

  const int threads_, turns_;
  void (*body_)(void*, std::int64_t) = nullptr;
  void* data_ = nullptr;
  // On lines of their own: the waits of one do not disturb the other.
  alignas(64) std::atomic<int> round_{0};
  alignas(64) std::atomic<int> phase_{0};
  alignas(64) std::atomic<int> arrived_{0};
  Threads others_{[this] { dismiss(); }};
};

thread_local Members* Members::current = nullptr;

thread_local std::unique_ptr<Members, Dismissal> own;

int start(std::int64_t threads) {
  if (own != nullptr && own->threads() == threads && own->here()) return 0;
  try {
    own.reset();
    own.reset(new Members(static_cast<int>(threads)));
  } catch (const SystemError& error) {
    return error.code();
  }
  return 0;
}

void run(void (*body)(void*, std::int64_t), void* data) { own->run(body, data); }

void meet() { Members::current->meet(); }

}  // namespace

const Team& team() {
  static constexpr Team door{start, run, meet};
  return door;
}

}  // namespace outgrid
