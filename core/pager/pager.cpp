#include "pager/pager.h"

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "io/error.h"

namespace outgrid {
namespace {

// Frames for pages read ahead: enough for a few arrays read side by side, and at most a quarter of
// what is local.
std::int64_t ahead_frames(const PagerOptions& options) {
  constexpr std::int64_t kStreams = 4;
  return std::min(kStreams * options.ahead_pages, options.local_bytes / options.page_bytes / 4);
}

std::int64_t frame_count(const PagerOptions& options) {
  return options.movers + ahead_frames(options);
}

constexpr const char* kNeedsIt = "who needs the page gets a bus error";

const PagerOptions& checked(const PagerOptions& options) {
  const auto system_page = static_cast<std::int64_t>(sysconf(_SC_PAGESIZE));
  if (options.page_bytes < system_page || options.page_bytes % system_page != 0) {
    throw std::invalid_argument("pages of " + std::to_string(options.page_bytes) +
                                " bytes are no multiple of the system's " +
                                std::to_string(system_page));
  }
  if (options.movers < 1 || options.movers > 64 || options.ahead_pages < 0) {
    throw std::invalid_argument("a pager has 1 to 64 movers and reads 0 or more pages ahead");
  }
  // One instruction may touch several pages at once, and each mover holds one.
  const std::int64_t least = frame_count(options) + std::max(4, 2 * options.movers);
  if (options.local_bytes / options.page_bytes < least) {
    throw std::invalid_argument(std::to_string(options.local_bytes) + " bytes hold " +
                                std::to_string(options.local_bytes / options.page_bytes) +
                                " pages of " + std::to_string(options.page_bytes) +
                                " bytes; paging needs at least " + std::to_string(least) +
                                ": give it more, or smaller pages");
  }
  return options;
}

int errno_of(std::int64_t result) { return result < 0 ? static_cast<int>(-result) : 0; }

std::string text_of(const SystemError& error) {
  return std::string(error.what()) + " of " + error.path() + ": " + std::strerror(error.code());
}

// On standard error, where nobody waits for an exception.
void say(const std::string& text, const char* consequence) {
  const std::string line = "outgrid: " + text + "; " + consequence + "\n";
  [[maybe_unused]] const ssize_t said = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

std::int64_t Pager::offset_of(const Place& place) const {
  return static_cast<std::int64_t>(place.index) * options_.page_bytes;
}

std::byte* Pager::Range::start(std::size_t index) const {
  return data_ + static_cast<std::int64_t>(index) * page_bytes_;
}

std::size_t Pager::Range::length(std::size_t index) const {
  const std::int64_t first = static_cast<std::int64_t>(index) * page_bytes_;
  return static_cast<std::size_t>(std::min(page_bytes_, backing_->nbytes() - first));
}

std::size_t Pager::Range::mapped_length(std::size_t index) const {
  const std::size_t first = index * static_cast<std::size_t>(page_bytes_);
  return std::min(static_cast<std::size_t>(page_bytes_), mapped_bytes_ - first);
}

void Pager::Range::release() {
  if (pager_ != nullptr) pager_->release(*this);
}

Pager::Range::~Range() {
  try {
    release();
  } catch (const SystemError& error) {
    say(text_of(error), "changes of this array are lost");
  }
}

Pager::Pager(const PagerOptions& options)
    : options_(checked(options)),
      resident_limit_(options.local_bytes / options.page_bytes - frame_count(options)),
      frames_(static_cast<std::size_t>(frame_count(options) * options.page_bytes), true, false) {
  auto* frame = static_cast<std::byte*>(frames_.data());
  for (std::int64_t i = 0; i < ahead_frames(options_); ++i, frame += options_.page_bytes) {
    free_frames_.push_back(frame);
  }
  for (int i = 0; i < options_.movers; ++i) threads_.start([this] { move(); });
  threads_.start([this] { watch(); });
}

void Pager::stop() {
  std::lock_guard lock(mutex_);
  stopping_ = true;
  work_.notify_all();
  stop_.notify();
}

std::shared_ptr<Pager::Range> Pager::map(std::shared_ptr<Backing> backing, bool writable,
                                         bool blank, bool keep) {
  if (!here()) {
    throw SystemError(ENOTSUP,
                      "the pager is of the process that this one was forked from: make another",
                      backing->name());
  }
  const auto system_page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  auto range = std::make_shared<Range>();
  const auto nbytes = static_cast<std::size_t>(backing->nbytes());
  range->mapped_bytes_ = (nbytes + system_page - 1) / system_page * system_page;
  // Where the process locks all that it maps (mlockall), memory that may be used is there at once,
  // all of it and in zeroes. So it may be used only when it is not locked any more.
  void* data = mmap(nullptr, range->mapped_bytes_, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const bool mapped = data != MAP_FAILED;
  if (!mapped || munlock(data, range->mapped_bytes_) != 0 ||
      mprotect(data, range->mapped_bytes_, writable ? PROT_READ | PROT_WRITE : PROT_READ) != 0) {
    const int code = errno;
    if (mapped) munmap(data, range->mapped_bytes_);
    throw SystemError(code, "cannot map " + std::to_string(nbytes) + " bytes", backing->name());
  }
  // Pages of a child of this process would be served by nobody.
  madvise(data, range->mapped_bytes_, MADV_DONTFORK);
  madvise(data, range->mapped_bytes_, MADV_NOHUGEPAGE);
  range->data_ = static_cast<std::byte*>(data);
  range->page_bytes_ = options_.page_bytes;
  range->backing_ = std::move(backing);
  range->writable_ = writable;
  range->keep_ = keep;
  const auto page = static_cast<std::size_t>(options_.page_bytes);
  range->pages_.resize((nbytes + page - 1) / page);
  for (Page& each : range->pages_) each.blank = blank;
  try {
    faults_.watch(data, range->mapped_bytes_);
  } catch (...) {
    munmap(data, range->mapped_bytes_);
    throw;
  }
  range->pager_ = this;
  std::lock_guard lock(mutex_);
  ranges_[reinterpret_cast<std::uintptr_t>(data)] = range.get();
  mapped_pages_ += static_cast<std::int64_t>(range->pages_.size());
  return range;
}

void Pager::watch() {
  pollfd waits[2] = {{faults_.fd(), POLLIN, 0}, {stop_.fd(), POLLIN, 0}};
  while (true) {
    if (poll(waits, 2, -1) < 0 && errno != EINTR) return;
    if ((waits[1].revents & POLLIN) != 0) return;
    for (const Fault& fault : faults_.faults()) answer(fault);
  }
}

void Pager::answer(const Fault& fault) {
  std::lock_guard lock(mutex_);
  const auto after = ranges_.upper_bound(fault.address);
  if (after == ranges_.begin()) return;
  Range& range = *std::prev(after)->second;
  const std::size_t index = (fault.address - reinterpret_cast<std::uintptr_t>(range.data_)) /
                            static_cast<std::size_t>(options_.page_bytes);
  if (index >= range.pages_.size()) return;
  Page& page = range.pages_[index];
  const auto is_this = [&](const Place& place) {
    return place.range == &range && place.index == index;
  };
  switch (page.state) {
    case State::staged:
      std::erase_if(staged_, is_this);
      ++statistics_.ahead_used;
      [[fallthrough]];
    case State::absent:
      page.state = State::arriving;
      page.written = fault.writes;
      page.wanted = true;
      page.asked = Clock::now();
      ++statistics_.faults;
      demands_.push_back({&range, index});
      look_ahead(range, index);
      work_.notify_all();
      break;
    case State::arriving:
      page.written = page.written || fault.writes;
      if (!page.wanted) {
        page.wanted = true;
        page.asked = Clock::now();
        ++statistics_.faults;
        ++statistics_.ahead_used;
        if (std::erase_if(wishes_, is_this) > 0) demands_.push_back({&range, index});
        look_ahead(range, index);
        work_.notify_all();
      }
      break;
    case State::resident:
      if (fault.protects) {
        page.dirty = page.again = true;
        ++statistics_.first_writes;
        let_write({&range, index});
      } else {
        faults_.wake(range.start(index), range.mapped_length(index));
      }
      break;
    case State::saving:
      break;  // whoever saves it wakes those who wait
    case State::lost:
      faults_.wake(range.start(index), range.mapped_length(index));
      break;
  }
}

// A page that follows one that is here is taken for a step of a walk upwards.
void Pager::look_ahead(Range& range, std::size_t index) {
  if (index > 0 && range.pages_[index - 1].state == State::absent) return;
  const std::size_t last =
      std::min(index + static_cast<std::size_t>(options_.ahead_pages), range.pages_.size() - 1);
  for (std::size_t next = index + 1; next <= last; ++next) {
    Page& page = range.pages_[next];
    if (page.state != State::absent || page.blank) continue;
    page.state = State::arriving;
    page.wanted = page.written = false;
    ++statistics_.ahead_pages;
    wishes_.push_back({&range, next});
  }
}

bool Pager::room_is_short() const {
  return mapped_pages_ > resident_limit_ && resident_ > resident_limit_ - options_.movers &&
         static_cast<std::int64_t>(order_.size()) > options_.movers && error_.empty();
}

bool Pager::has_work() const {
  const bool frame = !free_frames_.empty() || !staged_.empty();
  return stopping_ || !demands_.empty() || (!wishes_.empty() && frame) || room_is_short();
}

void Pager::move() {
  const auto mine = static_cast<std::int64_t>(options_.movers);
  std::unique_lock lock(mutex_);
  // The frames behind those for reading ahead belong to the movers, one each.
  std::byte* frame = static_cast<std::byte*>(frames_.data()) +
                     (ahead_frames(options_) + next_frame_++) * options_.page_bytes;
  while (true) {
    work_.wait(lock, [this] { return has_work(); });
    if (stopping_) return;
    if (!demands_.empty()) {
      const Place place = demands_.front();
      demands_.pop_front();
      serve(lock, place, frame);
    } else if (!wishes_.empty() && (!free_frames_.empty() || !staged_.empty())) {
      const Place place = wishes_.front();
      wishes_.pop_front();
      read_ahead(lock, place);
    } else {
      make_room(lock, std::max(resident_limit_ - mine, resident_ - 1));
    }
  }
}

// Brings a page, which is arriving, into its range.
void Pager::serve(std::unique_lock<std::mutex>& lock, const Place& place, std::byte* frame) {
  Range& range = *place.range;
  Page& page = range.pages_[place.index];
  if (!make_room(lock, resident_limit_ - 1)) return lose(place);
  ++resident_;
  statistics_.most_resident = std::max(statistics_.most_resident, resident_);
  int code = page.frame == nullptr ? fetch(lock, place, frame) : 0;
  const bool protect = range.writable_ && options_.tracks_writes && !page.written;
  if (code == 0) {
    const std::byte* source = page.frame != nullptr ? page.frame : frame;
    lock.unlock();
    code =
        faults_.fill(range.start(place.index), source, range.mapped_length(place.index), protect);
    lock.lock();
  }
  const char* what = "cannot bring in";
  // A write may have come between: its fault found the page arriving, and waits.
  if (code == 0 && protect && page.written) {
    what = "cannot let be written";
    code = faults_.unprotect(range.start(place.index), range.mapped_length(place.index));
  }
  if (code != 0) {
    complain(what, place, code, kNeedsIt);
    --resident_;
    return lose(place);
  }
  if (page.frame != nullptr) free_frames_.push_back(std::exchange(page.frame, nullptr));
  page.state = State::resident;
  page.dirty = page.written || (range.writable_ && !options_.tracks_writes);
  page.again = page.wanted = false;
  statistics_.service_seconds += std::chrono::duration<double>(Clock::now() - page.asked).count();
  order_.push_back(place);
  changed_.notify_all();
  work_.notify_all();
}

void Pager::read_ahead(std::unique_lock<std::mutex>& lock, const Place& place) {
  Page& page = place.range->pages_[place.index];
  std::byte* frame = take_frame();
  const int code = fetch(lock, place, frame);
  if (code == 0 && page.wanted) {
    page.frame = frame;
    demands_.push_front(place);
    work_.notify_all();
  } else if (code == 0) {
    page.frame = frame;
    page.state = State::staged;
    staged_.push_back(place);
  } else {
    free_frames_.push_back(frame);
    // Not asked for yet: whoever does will find out, and nobody else has to know.
    page.state = State::absent;
    if (page.wanted) {
      complain("cannot bring in", place, code, kNeedsIt);
      lose(place);
    }
  }
  changed_.notify_all();
}

// The frame of what was read ahead longest ago is taken where no other is free.
std::byte* Pager::take_frame() {
  if (free_frames_.empty()) {
    const Place oldest = staged_.front();
    staged_.pop_front();
    Page& page = oldest.range->pages_[oldest.index];
    page.state = State::absent;
    return std::exchange(page.frame, nullptr);
  }
  std::byte* frame = free_frames_.back();
  free_frames_.pop_back();
  return frame;
}

// Zero, or the errno of what refused.
int Pager::fetch(std::unique_lock<std::mutex>& lock, const Place& place, std::byte* into) {
  Range& range = *place.range;
  const std::size_t length = range.length(place.index);
  const std::size_t whole = range.mapped_length(place.index);
  const bool blank = range.pages_[place.index].blank;
  lock.unlock();
  int code = 0;
  if (blank) {
    std::memset(into, 0, whole);
  } else {
    const iovec whole_page{into, length};
    code = errno_of(range.backing_->read(offset_of(place), &whole_page, 1));
    std::memset(into + length, 0, whole - length);
  }
  lock.lock();
  if (code == 0 && !blank) statistics_.fetched_bytes += static_cast<std::int64_t>(length);
  return code;
}

// Sends pages out until at most `limit` hold a place; false where one cannot be sent out.
bool Pager::make_room(std::unique_lock<std::mutex>& lock, std::int64_t limit) {
  while (resident_ > limit) {
    Place victim;
    if (!next_victim(victim)) {
      changed_.wait(lock);
      continue;
    }
    Range& range = *victim.range;
    Page& page = range.pages_[victim.index];
    const char* what = "cannot write back";
    int code = save(lock, victim);
    if (code == 0) {
      what = "cannot drop";
      lock.unlock();
      code = faults_.drop(range.start(victim.index), range.mapped_length(victim.index));
      lock.lock();
    }
    if (code != 0) {
      complain(what, victim, code, "who needs another page gets a bus error");
      order_.push_front(victim);
      keep(victim);
      return false;
    }
    page.state = State::absent;
    --resident_;
    ++statistics_.evictions;
    faults_.wake(range.start(victim.index), range.mapped_length(victim.index));
    changed_.notify_all();
  }
  return true;
}

bool Pager::next_victim(Place& victim) {
  for (std::size_t passed = 2 * order_.size(); passed > 0; --passed) {
    const Place place = order_.front();
    order_.pop_front();
    Page& page = place.range->pages_[place.index];
    if (page.state == State::resident && !page.again) {
      victim = place;
      return true;
    }
    page.again = false;
    order_.push_back(place);
  }
  return false;
}

// Writes a resident page back if it is dirty. It stays protected, and in the state saving. Zero, or
// the errno of what refused.
int Pager::save(std::unique_lock<std::mutex>& lock, const Place& place) {
  Range& range = *place.range;
  Page& page = range.pages_[place.index];
  page.state = State::saving;
  if (!range.writable_) return 0;
  const std::size_t length = range.length(place.index);
  const bool dirty = page.dirty;
  lock.unlock();
  int code = faults_.protect(range.start(place.index), range.mapped_length(place.index));
  if (code == 0 && dirty) {
    const iovec whole_page{range.start(place.index), length};
    code = errno_of(range.backing_->write(offset_of(place), &whole_page, 1));
  }
  lock.lock();
  if (dirty && code == 0) {
    page.dirty = page.blank = false;
    statistics_.written_bytes += static_cast<std::int64_t>(length);
  }
  return code;
}

// Ends the saving of a page that stays: a clean one protected, so that its next write is seen.
void Pager::keep(const Place& place) {
  Range& range = *place.range;
  Page& page = range.pages_[place.index];
  page.state = State::resident;
  page.dirty = page.dirty || (range.writable_ && !options_.tracks_writes);
  if (page.dirty) {
    let_write(place);
  } else {
    faults_.wake(range.start(place.index), range.mapped_length(place.index));
  }
  changed_.notify_all();
}

// Lets a resident page be written: where the kernel refuses, nobody ever could.
void Pager::let_write(const Place& place) {
  Range& range = *place.range;
  const int code = faults_.unprotect(range.start(place.index), range.mapped_length(place.index));
  if (code == 0) return;
  complain("cannot let be written", place, code, kNeedsIt);
  std::erase_if(order_, [&](const Place& other) {
    return other.range == place.range && other.index == place.index;
  });
  --resident_;
  lose(place);
}

// Gives up a page that holds no place: who touches it gets a bus error.
void Pager::lose(const Place& place) {
  Range& range = *place.range;
  Page& page = range.pages_[place.index];
  if (page.frame != nullptr) free_frames_.push_back(std::exchange(page.frame, nullptr));
  page.state = State::lost;
  faults_.poison(range.start(place.index), range.mapped_length(place.index));
  changed_.notify_all();
}

SystemError Pager::failure(const char* what, const Place& place, int code) const {
  return {code,
          std::string(what) + " the " + std::to_string(place.range->length(place.index)) +
              " bytes at offset " + std::to_string(offset_of(place)),
          place.range->backing_->name()};
}

// Once for each range: the thread that waits can only be told by a signal.
void Pager::complain(const char* what, const Place& place, int code, const char* consequence) {
  const std::string text = text_of(failure(what, place, code));
  if (error_.empty()) error_ = text;
  if (!std::exchange(place.range->told_, true)) say(text, consequence);
}

void Pager::flush() {
  if (!here()) return;
  std::unique_lock lock(mutex_);
  std::optional<SystemError> first;
  for (auto each = ranges_.begin(); each != ranges_.end();) {
    const auto [start, range] = *each;
    if (const auto failed = flush(lock, *range); failed && first) {
      say(text_of(*failed), "changes of this array are in memory only");
    } else if (failed) {
      first = failed;
    }
    each = ranges_.upper_bound(start);  // others have come and gone meanwhile
  }
  if (first) throw SystemError(*first);
}

// Tries every page; the first failure, if any.
std::optional<SystemError> Pager::flush(std::unique_lock<std::mutex>& lock, Range& range) {
  std::optional<SystemError> first;
  if (!range.keep_ || !range.writable_) return first;
  ++range.flushes_;
  for (std::size_t index = 0; index < range.pages_.size(); ++index) {
    Page& page = range.pages_[index];
    changed_.wait(lock, [&] {
      return page.state != State::saving && !(page.state == State::arriving && page.wanted);
    });
    if (page.state != State::resident || !page.dirty) continue;
    const int code = save(lock, {&range, index});
    keep({&range, index});
    if (code != 0 && !first) first = failure("cannot write back", {&range, index}, code);
  }
  lock.unlock();
  const int code = errno_of(range.backing_->flush());
  lock.lock();
  if (code != 0 && !first) {
    first = SystemError(code, "cannot make durable what was written", range.backing_->name());
  }
  --range.flushes_;
  changed_.notify_all();
  return first;
}

void Pager::release(Range& range) {
  if (!here()) return;
  std::unique_lock lock(mutex_);
  if (std::exchange(range.released_, true)) return;
  const std::optional<SystemError> failed = flush(lock, range);
  const auto is_here = [&](const Place& place) { return place.range == &range; };
  for (std::deque<Place>* queue : {&demands_, &wishes_}) {
    for (const Place& place : *queue) {
      if (is_here(place)) range.pages_[place.index].state = State::absent;
    }
    std::erase_if(*queue, is_here);
  }
  std::erase_if(order_, is_here);  // nothing of it is sent out from now on
  changed_.notify_all();
  changed_.wait(lock, [&] {
    return range.flushes_ == 0 &&
           std::none_of(range.pages_.begin(), range.pages_.end(), [](const Page& page) {
             return page.state == State::arriving || page.state == State::saving;
           });
  });
  std::erase_if(order_, is_here);
  std::erase_if(staged_, is_here);
  for (Page& page : range.pages_) {
    if (page.frame != nullptr) free_frames_.push_back(std::exchange(page.frame, nullptr));
    if (page.state == State::resident) --resident_;
  }
  ranges_.erase(reinterpret_cast<std::uintptr_t>(range.data_));
  mapped_pages_ -= static_cast<std::int64_t>(range.pages_.size());
  faults_.unwatch(range.data_, range.mapped_bytes_);
  munmap(range.data_, range.mapped_bytes_);
  range.data_ = nullptr;
  changed_.notify_all();
  work_.notify_all();
  lock.unlock();
  if (failed) throw SystemError(*failed);
}

std::string Pager::error() {
  if (!here()) return {};
  std::lock_guard lock(mutex_);
  return error_;
}

PagerStatistics Pager::statistics() {
  if (!here()) return {};
  std::lock_guard lock(mutex_);
  return statistics_;
}

}  // namespace outgrid
