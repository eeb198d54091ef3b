// A team of std::threads in the place of libgomp, so that ThreadSanitizer sees how the threads of a
// kernel meet: it does not understand the futexes of libgomp and would report every barrier.
//
// It is preloaded under a kernel that was compiled as ever, with -fopenmp and -fsanitize=thread, and
// defines the few entry points that the compiler's output calls. Nothing of the kernel is changed:
// its flags between diamonds, its loops and its barriers run as they are.
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace {

struct Team {
  explicit Team(int size) : threads(size) {}

  const int threads;
  std::mutex mutex;  // guards what follows
  std::condition_variable passed;
  int waiting = 0;
  long barriers = 0;
  // The loop under way: its iterations [next, end) are not dealt out yet.
  bool dealing = false;
  long next = 0, end = 0, part = 0;

  void barrier() {
    std::unique_lock lock(mutex);
    const long before = barriers;
    if (++waiting == threads) {
      waiting = 0;
      dealing = false;
      ++barriers;
      passed.notify_all();
    } else {
      passed.wait(lock, [&] { return barriers != before; });
    }
  }

  bool deal(long* first, long* last) {
    if (next >= end) return false;
    *first = next;
    *last = next = next + part < end ? next + part : end;
    return true;
  }
};

thread_local Team* team = nullptr;
thread_local int number = 0;

}  // namespace

extern "C" {

int omp_get_num_threads() { return team != nullptr ? team->threads : 1; }
int omp_get_thread_num() { return number; }

void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned) {
  Team own(threads > 0 ? static_cast<int>(threads) : 1);
  const auto work = [&](int index) {
    team = &own;
    number = index;
    body(data);
    team = nullptr;
    number = 0;
  };
  std::vector<std::thread> others;
  for (int index = 1; index < own.threads; ++index) others.emplace_back(work, index);
  work(0);
  for (std::thread& other : others) other.join();
}

void GOMP_barrier() { team->barrier(); }
void GOMP_loop_end() { team->barrier(); }

bool GOMP_loop_nonmonotonic_dynamic_next(long* first, long* last) {
  std::lock_guard lock(team->mutex);
  return team->deal(first, last);
}

bool GOMP_loop_nonmonotonic_dynamic_start(long begin, long end, long, long part, long* first,
                                          long* last) {
  std::lock_guard lock(team->mutex);
  if (!team->dealing) {
    team->dealing = true;
    team->next = begin, team->end = end, team->part = part;
  }
  return team->deal(first, last);
}
}
