// Paging by the process itself: ranges of memory larger than what may be resident of them.
//
// Protocol:
//  1. A range is divided into pages of `page_bytes` (megabytes; not the system's). A page is
//  absent,
//     arriving, staged (read ahead into a frame, not yet in the range), resident, saving (being
//     written back), or lost. Only the thread that changed a page to arriving or saving, with the
//     lock held, may change it further.
//  2. The watcher alone reads faults. It never blocks: a fault on an absent page becomes a demand,
//     one on a page that is on its way is answered by what is under way, a write to a resident page
//     makes it dirty.
//  3. Movers serve demands first, then read ahead, then make room ahead of need. Before a page is
//     filled it holds one of the `resident_limit` places; for a place the oldest resident page that
//     was not written to since it was last passed over goes out.
//  4. A page goes out in three steps: it is protected against writing, so that from there on it is
//     constant; if dirty it is written back; it is dropped, and writers that waited are woken to
//     fault once more. Pages arrive protected, and so the first write to each is seen.
//  5. A range that is released is written back first. It goes when none of its pages is arriving or
//     saving and no flush of another thread, which waits for pages without the lock, is in it.
//  6. Nothing here takes the interpreter's lock, so that its holder may wait for a page.
//  7. A page is lost if it cannot be brought in, if no other can be sent out for it, or if the
//     kernel does not let it be written: the reason goes to standard error and to `error`, and who
//     touches the page gets SIGBUS. Nothing else can be told to a thread in the midst of a load
//     instruction.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "io/backing.h"
#include "io/error.h"
#include "io/event.h"
#include "io/threads.h"
#include "memory/buffer.h"
#include "pager/userfault.h"

namespace outgrid {

struct PagerOptions {
  std::int64_t local_bytes;  // of all resident pages and frames together
  std::int64_t page_bytes = std::int64_t{8} << 20;
  int ahead_pages = 1;        // read ahead when pages are asked for in ascending order
  int movers = 2;             // threads that move pages
  bool tracks_writes = true;  // false: every page counts as dirty
};

struct PagerStatistics {
  std::int64_t faults = 0;  // on pages that were not resident
  std::int64_t first_writes = 0;
  std::int64_t fetched_bytes = 0;
  std::int64_t written_bytes = 0;
  std::int64_t evictions = 0;
  std::int64_t ahead_pages = 0;    // taken to be asked for next
  std::int64_t ahead_used = 0;     // and asked for later
  std::int64_t most_resident = 0;  // pages
  double service_seconds = 0;      // from a fault to its page, summed over faults
};

class Pager {
 public:
  class Range;

  explicit Pager(const PagerOptions& options);
  Pager(const Pager&) = delete;
  Pager& operator=(const Pager&) = delete;

  // Memory that shows the bytes of `backing`; `blank`: these are zeroes until written back.
  // `keep`: dirty pages are written back when the range is released.
  std::shared_ptr<Range> map(std::shared_ptr<Backing> backing, bool writable, bool blank,
                             bool keep);
  // Whether its threads are of this process, and not of one that this was forked from. What the
  // kernel does for it is done to the memory of that one: elsewhere `map` throws SystemError, and
  // `flush` and `release` do nothing, and nothing is counted.
  bool here() const { return threads_.here(); }
  // Writes dirty pages of ranges that are to be kept back, and makes them durable, all that can be.
  // Throws the first SystemError; those of further ranges go to standard error.
  void flush();
  // Does the same for one range, which then is gone, and what could not be written back with it.
  void release(Range& range);

  std::int64_t page_bytes() const { return options_.page_bytes; }
  std::int64_t resident_limit() const { return resident_limit_; }
  bool tracks_writes() const { return options_.tracks_writes; }
  bool serves_kernel() const { return faults_.serves_kernel(); }
  std::string error();
  PagerStatistics statistics();

 private:
  enum class State : std::uint8_t { absent, arriving, staged, resident, saving, lost };
  struct Page;
  struct Place {
    Range* range;
    std::size_t index;
  };
  using Clock = std::chrono::steady_clock;

  void stop();
  void watch();
  void answer(const Fault& fault);
  void look_ahead(Range& range, std::size_t index);
  void move();
  void serve(std::unique_lock<std::mutex>& lock, const Place& place, std::byte* frame);
  void read_ahead(std::unique_lock<std::mutex>& lock, const Place& place);
  bool make_room(std::unique_lock<std::mutex>& lock, std::int64_t limit);
  bool next_victim(Place& victim);
  int save(std::unique_lock<std::mutex>& lock, const Place& place);
  int fetch(std::unique_lock<std::mutex>& lock, const Place& place, std::byte* into);
  SystemError failure(const char* what, const Place& place, int code) const;
  void keep(const Place& place);
  void let_write(const Place& place);
  void lose(const Place& place);
  void complain(const char* what, const Place& place, int code, const char* consequence);
  std::optional<SystemError> flush(std::unique_lock<std::mutex>& lock, Range& range);
  std::byte* take_frame();
  std::int64_t offset_of(const Place& place) const;
  bool has_work() const;
  bool room_is_short() const;

  const PagerOptions options_;
  std::int64_t resident_limit_;
  UserFault faults_;
  Event stop_;
  Buffer frames_;

  std::mutex mutex_;  // guards all that follows
  std::condition_variable work_;
  std::condition_variable changed_;  // a page has left arriving or saving
  bool stopping_ = false;
  std::map<std::uintptr_t, Range*> ranges_;  // by first address
  std::int64_t mapped_pages_ = 0;
  std::int64_t resident_ = 0;  // pages that hold a place
  std::deque<Place> order_;    // resident pages, oldest first
  std::deque<Place> demands_;
  std::deque<Place> wishes_;             // to be read ahead
  std::deque<Place> staged_;             // read ahead, oldest first
  std::vector<std::byte*> free_frames_;  // for reading ahead
  std::int64_t next_frame_ = 0;
  std::string error_;  // the first of a mover
  PagerStatistics statistics_;

  Threads threads_{[this] { stop(); }};  // the watcher and the movers
};

struct Pager::Page {
  State state = State::absent;
  bool dirty = false;
  bool written = false;        // the fault that asked for it was a write
  bool again = false;          // written to since it was last passed over
  bool wanted = false;         // somebody waits for it
  bool blank = false;          // zeroes, and not in the backing
  std::byte* frame = nullptr;  // where it is staged
  Clock::time_point asked;
};

// Its memory belongs to the pager until `release`, which must not come while anybody uses it.
class Pager::Range {
 public:
  ~Range();
  void* data() const { return data_; }
  std::int64_t nbytes() const { return backing_->nbytes(); }
  bool writable() const { return writable_; }
  void release();

 private:
  friend class Pager;
  std::byte* start(std::size_t index) const;
  std::size_t length(std::size_t index) const;         // in the backing
  std::size_t mapped_length(std::size_t index) const;  // in whole system pages

  Pager* pager_ = nullptr;
  std::shared_ptr<Backing> backing_;
  std::byte* data_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::int64_t page_bytes_ = 0;
  bool writable_ = false;
  bool keep_ = false;
  // Guarded by the pager's mutex:
  std::vector<Page> pages_;
  int flushes_ = 0;  // that may wait for a page of it
  bool released_ = false;
  bool told_ = false;  // that a mover failed
};

}  // namespace outgrid
