#include "io/queue.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "checksum/checksum.h"
#include "io/error.h"
#include "team/slice.h"

namespace outgrid {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kForever = 1e9;  // seconds

double seconds_between(Clock::time_point first, Clock::time_point last) {
  return std::chrono::duration<double>(last - first).count();
}

// Of this thread: where others had the processor meanwhile, theirs do not count.
double processor_seconds() {
  timespec spent{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return static_cast<double>(spent.tv_sec) + 1e-9 * static_cast<double>(spent.tv_nsec);
}

// Copies past the caches what nobody reads soon, so that kernels keep theirs and the memory is not
// read before it is written.
void copy_past(std::byte* to, const std::byte* from, std::size_t nbytes) {
#if defined(__SSE2__)
  const std::size_t head = std::min(nbytes, (0 - reinterpret_cast<std::uintptr_t>(to)) % 64);
  std::memcpy(to, from, head);
  std::size_t at = head;
  for (; at + 64 <= nbytes; at += 64) {
    for (std::size_t i = at; i < at + 64; i += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    }
  }
  _mm_sfence();
  std::memcpy(to + at, from + at, nbytes - at);
#else
  std::memcpy(to, from, nbytes);
#endif
}

std::int64_t whole_blocks(std::int64_t nbytes) { return std::max(nbytes / kBlock, 1L) * kBlock; }

// As many as the engine takes at once, and as many that are copied or wait for it.
std::int64_t requests(int depth) { return 2 * std::max(depth, 1); }

// Checks segments and says where the bytes of each stand in their transfer; returns how many bytes
// all of them are.
std::int64_t place(std::vector<Segment>& segments, std::int64_t row_bytes) {
  std::int64_t end = 0, position = 0;
  for (Segment& segment : segments) {
    if (segment.nbytes < 0 || segment.offset < end || segment.offset > INT64_MAX - segment.nbytes) {
      throw std::invalid_argument(
          "segments must be sorted and disjoint: " + std::to_string(segment.nbytes) +
          " bytes at offset " + std::to_string(segment.offset) + " after offset " +
          std::to_string(end));
    }
    end = segment.offset + segment.nbytes;
    if (row_bytes > 0 && segment.nbytes % row_bytes != 0) {
      throw std::invalid_argument(std::to_string(segment.nbytes) + " bytes are no whole rows of " +
                                  std::to_string(row_bytes));
    }
    segment.position = position;
    position += segment.nbytes;
  }
  return position;
}

// Checks that what a transfer of folded rows moves is whole rows.
void check_folding(const Folding& folding, const std::vector<Segment>& segments,
                   const std::vector<Unpacking>& planes, std::int64_t row_bytes) {
  folding.check();
  if (!folding.folds() && !folding.parted()) return;
  if (!planes.empty() && folding.parted()) {
    throw std::invalid_argument("packed planes cannot be unpacked to rows that lie in parts");
  }
  if (row_bytes > 0 && row_bytes != folding.row_bytes) {
    throw std::invalid_argument("rows of " + std::to_string(row_bytes) +
                                " bytes cannot be summed up where rows of " +
                                std::to_string(folding.row_bytes) + " are folded");
  }
  for (const Unpacking& each : planes) {
    const Plane& plane = each.plane;
    if (plane.stride != folding.stride || plane.row_bytes != folding.row_bytes) {
      throw std::invalid_argument("a plane of rows of " + std::to_string(plane.row_bytes) +
                                  " bytes, " + std::to_string(plane.stride) +
                                  " apart, cannot have its rows of " +
                                  std::to_string(folding.row_bytes) + " bytes, " +
                                  std::to_string(folding.stride) + " apart, folded");
    }
  }
  if (!planes.empty()) return;  // the segments are those of packed bytes
  for (const Segment& segment : segments) folding.check_rows(segment.nbytes);
}

// The rows of segments that are read before they are folded, each to where it is then.
std::vector<Segment> rows_of(const std::vector<Segment>& segments, const Folding& folding) {
  std::vector<Segment> rows;
  for (const Segment& segment : segments) {
    for (std::int64_t row = 0; row < segment.nbytes / folding.row_bytes; ++row) {
      const std::int64_t before = row * folding.row_bytes;
      rows.push_back({segment.offset + before, segment.address + row * folding.stride,
                      folding.row_bytes, segment.position + before});
    }
  }
  return rows;
}

// The segments of each part of a striped file, at offsets within the part.
std::vector<std::vector<Segment>> deal(const std::vector<Segment>& segments, std::int64_t stripe,
                                       std::size_t parts) {
  std::vector<std::vector<Segment>> dealt(parts);
  const auto count = static_cast<std::int64_t>(parts);
  for (const Segment& segment : segments) {
    for (std::int64_t done = 0; done < segment.nbytes;) {
      const std::int64_t offset = segment.offset + done;
      const std::int64_t unit = offset / stripe;
      const std::int64_t within = offset % stripe;
      const std::int64_t taken = std::min(segment.nbytes - done, stripe - within);
      dealt[static_cast<std::size_t>(unit % count)].push_back(
          {unit / count * stripe + within, segment.address + done, taken, segment.position + done});
      done += taken;
    }
  }
  return dealt;
}

}  // namespace

// What a ticket has to do in one part of its file.
struct Queue::Strand {
  std::shared_ptr<File> file;
  CutRules rules;
  std::vector<Extent> extents;
  Cursor cursor;
  bool exhausted = false;  // nothing is left to cut
};

struct Queue::Ticket {
  std::int64_t number;
  Operation::Kind kind;
  std::vector<Strand> strands;
  std::size_t turn = 0;  // of the strand that is cut next
  bool begun = false;
  bool exhausted = false;
  int under_way = 0;
  Clock::time_point started;
  std::int64_t row_bytes = 0;                            // 0: no checksums are wanted
  std::unordered_map<std::int64_t, std::int64_t> parts;  // bytes moved of rows of several requests
  std::vector<Unpacking> planes;                         // that it brings packed
  Folding folding;
  std::vector<Segment> segments;    // whose rows are folded, none of them empty
  std::vector<std::byte> unfolded;  // room for a row
  Completion completion;

  // Whether what it writes has to be unfolded.
  bool unfolds() const {
    return (folding.folds() || folding.parted()) && kind == Operation::Kind::write;
  }

  // Whether rows that it reads are to lie in parts.
  bool parts_rows() const { return folding.parted() && kind == Operation::Kind::read; }

  // Whether what it moves is not what lies in memory, so that all of it is copied.
  bool translates() const { return unfolds() || parts_rows(); }

  // Whether what it reads has to be folded.
  bool folds() const { return folding.folds() && kind == Operation::Kind::read; }

  // Whether something is left to do when all of it has been read.
  bool rearranges() const { return completion.error == 0 && (!planes.empty() || folds()); }

  // Visits the segments of the `nbytes` from `position` on of all that it moves: where the memory
  // of each begins, which of its bytes they are, and how many came before.
  template <class Visit>
  void each_segment(std::int64_t position, std::int64_t nbytes, const Visit& visit) const {
    auto segment = std::upper_bound(
        segments.begin(), segments.end(), position,
        [](std::int64_t wanted, const Segment& each) { return wanted < each.position; });
    --segment;
    for (std::int64_t done = 0; done < nbytes; ++segment) {
      const std::int64_t begin = position + done - segment->position;
      const std::int64_t taken = std::min(nbytes - done, segment->nbytes - begin);
      visit(reinterpret_cast<std::byte*>(segment->address), begin, begin + taken, done);
      done += taken;
    }
  }

  // These bytes as they are in the file.
  void unfold_from(std::int64_t position, std::int64_t nbytes, std::byte* to) const {
    each_segment(position, nbytes,
                 [&](const std::byte* memory, std::int64_t begin, std::int64_t end,
                     std::int64_t done) { unfold(memory, begin, end, to + done, folding); });
  }

  // Puts them, which have come to `from`, where their rows lie in parts.
  void put_parts_of(std::int64_t position, std::int64_t nbytes, const std::byte* from) const {
    each_segment(position, nbytes,
                 [&](std::byte* memory, std::int64_t begin, std::int64_t end, std::int64_t done) {
                   put_parts(from + done, begin, end, memory, folding);
                 });
  }

  // Folds the rows of a segment, and sums them up before if that is wanted, group by group.
  void sum_and_fold(const Segment& segment) {
    auto* data = reinterpret_cast<std::byte*>(segment.address);
    std::int64_t row = segment.position / folding.row_bytes;
    for (std::int64_t left = segment.nbytes / folding.row_bytes; left > 0; left -= folding.rows) {
      const std::int64_t count = std::min(left, folding.rows);
      for (std::int64_t r = 0; r < count && row_bytes > 0; ++r) {
        sum(row + r, data + r * folding.stride);
      }
      fold(data, count, folding);
      data += folding.group_bytes();
      row += count;
    }
  }

  void sum(std::int64_t row, const std::byte* data) {
    completion.sums[static_cast<std::size_t>(row)] =
        checksum(data, static_cast<std::size_t>(row_bytes));
  }

  // Of a piece whose bytes are at `moved`, the rows that are whole in it.
  void sum_whole(const Piece& piece, const std::byte* moved) {
    const std::int64_t end = (piece.position + piece.nbytes) / row_bytes;
    for (std::int64_t row = (piece.position + row_bytes - 1) / row_bytes; row < end; ++row) {
      sum(row, moved + (row * row_bytes - piece.position));
    }
  }

  // The row at either end of a piece may go on in others: with the last of them it is summed up
  // where the caller has it; or unfolded, where it lies folded or in parts there.
  void sum_ends(const Piece& piece) {
    const std::int64_t end = piece.position + piece.nbytes;
    const std::int64_t first = piece.position / row_bytes, last = (end - 1) / row_bytes;
    for (std::int64_t row = first; row <= last; row += std::max(last - first, 1L)) {
      const std::int64_t begin = row * row_bytes;
      const std::int64_t part = std::min(end, begin + row_bytes) - std::max(piece.position, begin);
      if (part == row_bytes) continue;
      std::int64_t& there = parts[row];
      there += part;
      if (there < row_bytes) continue;
      if (translates()) {
        unfolded.resize(static_cast<std::size_t>(row_bytes));
        unfold_from(begin, row_bytes, unfolded.data());
        sum(row, unfolded.data());
      } else {
        sum(row, reinterpret_cast<const std::byte*>(piece.address + begin - piece.position));
      }
      parts.erase(row);
    }
  }
};

struct Queue::Request : Operation {
  Cut cut;
  Ticket* ticket = nullptr;  // null: free
  Strand* strand = nullptr;
  std::int64_t done = 0;
  bool moved = false;         // all of it, without an error
  double copy_seconds = 0.0;  // of a processor, where it counts
  iovec whole{};              // the memory of a staged request
  std::size_t first_vector = 0;
  std::byte* staging = nullptr;

  // Whether its bytes are copied together before it begins.
  bool gathers() const { return kind == Kind::write && is_copied(cut.road); }

  // Whether its rows are summed up with it.
  bool sums() const { return ticket->row_bytes > 0 && !ticket->folds(); }

  // Whether they are to be copied or summed up now that they have moved.
  bool leaves_work() const { return moved && !gathers() && (is_copied(cut.road) || sums()); }

  void aim() {
    const bool staged = is_copied(cut.road);
    offset = strand->file->base() + cut.offset + done;
    vectors = staged ? &whole : cut.vectors.data() + first_vector;
    vector_count = staged ? 1 : static_cast<int>(cut.vectors.size() - first_vector);
  }

  // Steps over the first `nbytes` of the memory that is still to be moved.
  void advance(std::int64_t nbytes) {
    done += nbytes;
    auto left = static_cast<std::size_t>(nbytes);
    iovec* vector = is_copied(cut.road) ? &whole : cut.vectors.data() + first_vector;
    while (left > 0 && left >= vector->iov_len) {
      left -= vector->iov_len;
      ++vector;
      ++first_vector;
    }
    if (left == 0) return;
    vector->iov_base = static_cast<std::byte*>(vector->iov_base) + left;
    vector->iov_len -= left;
  }
};

Queue::Queue(const QueueOptions& options)
    : depth_(static_cast<std::size_t>(std::max(options.depth, 1))),
      request_bytes_(whole_blocks(options.request_bytes)),
      slot_bytes_(
          std::min(request_bytes_, whole_blocks(options.staging_bytes / requests(options.depth)))),
      staging_(static_cast<std::size_t>(slot_bytes_ * requests(options.depth)), true, false) {
  if (options.depth < 1 || options.depth > 1024) {
    throw std::invalid_argument("a queue keeps 1 to 1024 requests under way, not " +
                                std::to_string(options.depth));
  }
  take_engine(options.engine, options.depth);
  auto* staging = static_cast<std::byte*>(staging_.data());
  for (std::int64_t i = 0; i < requests(options.depth); ++i) {
    requests_.push_back(std::make_unique<Request>());
    requests_.back()->staging = staging + i * slot_bytes_;
  }
  threads_.start([this] { guard("transfers", &Queue::drive, driver_ended_); });
  threads_.start([this] { guard("copies", &Queue::copy, copier_ended_); });
}

Queue::~Queue() { close(kForever); }

void Queue::take_engine(const std::string& wanted, int depth) {
  const std::vector<std::string> names = engine_names();
  if (wanted != "auto" && std::find(names.begin(), names.end(), wanted) == names.end()) {
    std::string known;
    for (const std::string& name : names) known += " " + name;
    throw std::invalid_argument("no engine \"" + wanted + "\" in this build; it has" + known);
  }
  for (const std::string& name : names) {
    if (wanted != "auto" && wanted != name) continue;
    try {
      if (name == "aio") {
        engine_ = make_aio_engine(depth, event_.fd());
      } else if (name == "threads") {
        engine_ = make_thread_engine(depth, event_.fd());
      } else {
#ifdef OUTGRID_HAS_URING
        engine_ = make_uring_engine(depth, event_.fd());
#endif
      }
      engine_name_ = name;
      return;
    } catch (const SystemError& error) {
      if (wanted != "auto") throw;
      refusals_.push_back(name + ": " + error.what() + ": " + std::strerror(error.code()));
    }
  }
  throw SystemError(ENOSYS, "no engine could be started");
}

std::int64_t Queue::read(const Striped& file, std::vector<Segment> segments, std::int64_t row_bytes,
                         const Folding& folding) {
  return submit(Operation::Kind::read, file, std::move(segments), row_bytes, {}, folding);
}

std::int64_t Queue::read_packed(const Striped& file, std::vector<Segment> segments,
                                std::vector<Unpacking> planes, const Folding& folding) {
  return submit(Operation::Kind::read, file, std::move(segments), 0, std::move(planes), folding);
}

std::int64_t Queue::write(const Striped& file, std::vector<Segment> segments,
                          std::int64_t row_bytes, const Folding& folding) {
  for (const auto& part : file.parts) {
    if (!part->writable()) throw SystemError(EBADF, "the file is open for reading", part->path());
  }
  return submit(Operation::Kind::write, file, std::move(segments), row_bytes, {}, folding);
}

std::int64_t Queue::flush(const Striped& file) {
  return submit(Operation::Kind::sync, file, {}, 0);
}

Queue::Strand Queue::strand(Operation::Kind kind, std::shared_ptr<File> part,
                            std::span<const Segment> segments, bool translates) {
  const Backing* backing = part->backing();
  if (backing != nullptr && engine_name_ != "threads") {
    throw std::invalid_argument("memory is copied by the engine threads, not by " + engine_name_);
  }
  if (backing != nullptr && kind == Operation::Kind::read) {
    for (const Segment& segment : segments) backing->expect(segment.offset, segment.nbytes);
  }
  const CutRules rules{kind == Operation::Kind::write,
                       part->is_direct() && backing == nullptr,
                       part->memory_alignment(),
                       request_bytes_,
                       slot_bytes_,
                       translates};
  return {std::move(part), rules, divide(segments, rules), {}};
}

std::int64_t Queue::submit(Operation::Kind kind, const Striped& file, std::vector<Segment> segments,
                           std::int64_t row_bytes, std::vector<Unpacking> planes,
                           const Folding& folding) {
  check_here();
  check_folding(folding, segments, planes, row_bytes);
  const std::int64_t nbytes = place(segments, row_bytes);
  auto ticket = std::make_unique<Ticket>();
  ticket->kind = kind;
  ticket->folding = folding;
  const bool translates = ticket->translates();
  const bool in_rows = planes.empty() && ticket->folds() && folding.has_gaps();
  const std::vector<Segment> rows = in_rows ? rows_of(segments, folding) : std::vector<Segment>{};
  const std::vector<Segment>& moved = in_rows ? rows : segments;
  if (file.parts.size() == 1) {
    ticket->strands.push_back(strand(kind, file.parts.front(), moved, translates));
  } else {
    const auto dealt = deal(moved, file.stripe_bytes, file.parts.size());
    for (std::size_t part = 0; part < dealt.size(); ++part) {
      ticket->strands.push_back(strand(kind, file.parts[part], dealt[part], translates));
    }
  }
  if (kind != Operation::Kind::sync) {
    std::erase_if(ticket->strands, [](const Strand& each) { return each.extents.empty(); });
  }
  ticket->row_bytes = row_bytes;
  ticket->planes = std::move(planes);
  if ((folding.folds() || folding.parted()) && ticket->planes.empty()) {
    std::erase_if(segments, [](const Segment& each) { return each.nbytes == 0; });
    ticket->segments = std::move(segments);
  }
  if (row_bytes > 0) ticket->completion.sums.resize(static_cast<std::size_t>(nbytes / row_bytes));
  std::int64_t number;
  {
    std::lock_guard lock(mutex_);
    if (closing_) throw std::invalid_argument("the queue is closed");
    number = ticket->number = ++last_ticket_;
    ++outstanding_;
    if (ticket->strands.empty()) {
      completions_.push_back({number, 0, 0.0, 0, 0, 0, {}, {}});
      completed_.notify_all();
      return number;
    }
    submitted_.push_back(std::move(ticket));
  }
  event_.notify();
  return number;
}

std::int64_t Queue::complete(std::int64_t nbytes, double seconds) {
  check_here();
  std::lock_guard lock(mutex_);
  if (closing_) throw std::invalid_argument("the queue is closed");
  ++outstanding_;
  completions_.push_back({++last_ticket_, nbytes, seconds, 0, 0, 0, {}, {}});
  completed_.notify_all();
  return last_ticket_;
}

void Queue::check_here() const {
  if (here()) return;
  throw std::runtime_error(
      "the threads of the transfers are not in this process, which was forked from theirs");
}

std::vector<Completion> Queue::poll() { return wait(0); }

std::vector<Completion> Queue::wait(double timeout_seconds) {
  check_here();
  std::unique_lock lock(mutex_);
  const auto ready = [this] {
    return !completions_.empty() || outstanding_ == 0 || !thrown_.empty();
  };
  if (timeout_seconds > 0) {
    completed_.wait_for(lock, std::chrono::duration<double>(timeout_seconds), ready);
  }
  if (completions_.empty() && !thrown_.empty()) throw std::runtime_error(thrown_);
  outstanding_ -= static_cast<std::int64_t>(completions_.size());
  return std::exchange(completions_, {});
}

std::int64_t Queue::outstanding() {
  if (!here()) return 0;
  std::lock_guard lock(mutex_);
  return outstanding_;
}

Statistics Queue::statistics() {
  if (!here()) return {};
  std::lock_guard lock(mutex_);
  Statistics all = statistics_;
  all.unpacked_bytes = rearranged_.unpacked_bytes;
  all.unpack_seconds = rearranged_.unpack_seconds;
  all.folded_bytes += rearranged_.folded_bytes;
  all.fold_seconds += rearranged_.fold_seconds;
  return all;
}

bool Queue::close(double patience_seconds) {
  if (!here()) return true;
  std::unique_lock lock(mutex_);
  if (closed_) return true;
  closing_ = closed_ = true;
  event_.notify();
  const auto patience = std::chrono::duration<double>(std::min(patience_seconds, kForever));
  // A thread that threw has left requests under way: what they may touch must stay.
  const auto done = [this] { return driver_ended_ || !thrown_.empty(); };
  if (!ended_.wait_for(lock, patience, done) || !thrown_.empty()) {
    threads_.leave();
    return false;
  }
  lock.unlock();
  threads_.end();
  staging_.release();  // also where the interpreter keeps the queue
  lock.lock();
  outstanding_ = static_cast<std::int64_t>(completions_.size());
  completed_.notify_all();
  return true;
}

void Queue::abandon() {
  if (!here()) return;
  std::lock_guard lock(mutex_);
  if (closed_) return;
  closing_ = closed_ = true;
  threads_.leave();
}

// Nothing is under way any more, or nothing was begun: the copies may end with the transfers.
void Queue::stop() {
  std::lock_guard lock(mutex_);
  closing_ = copying_ends_ = true;
  to_copy_ready_.notify_all();
  event_.notify();
}

// The life of a thread: nothing that it throws may end the process without a word.
void Queue::guard(const char* name, void (Queue::*work)(), bool& ended) {
  set_slice(kPromptSlice);
  std::string thrown;
  try {
    (this->*work)();
  } catch (const std::exception& error) {
    thrown = std::string("the thread of the ") + name + " failed: " + error.what();
  }
  std::lock_guard lock(mutex_);
  ended = true;
  if (thrown_.empty()) thrown_ = std::move(thrown);
  completed_.notify_all();
  ended_.notify_all();
}

void Queue::drive() {
  for (const auto& request : requests_) free_.push_back(request.get());
  std::deque<Operation*> ready;
  std::vector<Operation*> starting, finished;
  std::vector<Request*> copied, to_copy;
  std::size_t in_engine = 0;
  Clock::time_point busy_since;
  while (true) {
    bool closing;
    {
      std::lock_guard lock(mutex_);
      closing = closing_;
      for (auto& ticket : submitted_) active_.push_back(std::move(ticket));
      submitted_.clear();
      copied.swap(copied_);
      for (Request* request : to_copy) to_copy_.push_back(request);
      if (!to_copy.empty()) to_copy_ready_.notify_one();
      to_copy.clear();
      statistics_ = moved_;
    }
    for (Request* request : copied) {
      (request->ticket->translates() ? moved_.fold_seconds : moved_.sum_seconds) +=
          request->copy_seconds;
      if (request->gathers()) {
        ready.push_back(request);
      } else {
        leave(*request);
      }
    }
    bool progress = !copied.empty();
    copied.clear();
    if (closing) std::erase_if(active_, [](const auto& ticket) { return ticket->under_way == 0; });
    if (closing) {
      for (auto& ticket : active_) ticket->exhausted = true;
    }
    while (!free_.empty() && fill(*free_.back())) {
      Request* request = free_.back();
      free_.pop_back();
      progress = true;
      if (request->gathers()) {
        to_copy.push_back(request);
      } else {
        ready.push_back(request);
      }
    }
    if (closing && free_.size() == requests_.size()) return;

    if (in_engine == 0 && !ready.empty()) busy_since = Clock::now();
    while (!ready.empty() && in_engine < depth_) {
      starting.push_back(ready.front());
      ready.pop_front();
      ++in_engine;
    }
    progress = progress || !starting.empty();
    if (!starting.empty()) engine_->start(starting);
    starting.clear();
    engine_->collect(finished);
    in_engine -= finished.size();
    if (in_engine == 0 && !finished.empty()) {
      moved_.busy_seconds += seconds_between(busy_since, Clock::now());
    }
    for (Operation* operation : finished) {
      auto* request = static_cast<Request*>(operation);
      if (!settle(*request)) {
        ready.push_front(operation);
      } else if (request->leaves_work()) {
        to_copy.push_back(request);
      } else {
        leave(*request);
      }
    }
    progress = progress || !finished.empty();
    finished.clear();
    if (!progress) event_.wait();
  }
}

// Cuts the next request; false when there is nothing to cut now.
bool Queue::fill(Request& request) {
  const auto next = std::find_if(active_.begin(), active_.end(),
                                 [](const auto& ticket) { return !ticket->exhausted; });
  if (next == active_.end()) return false;
  Ticket& ticket = **next;
  if (!ticket.begun) ticket.started = Clock::now();
  ticket.begun = true;
  while (ticket.strands[ticket.turn].exhausted)
    ticket.turn = (ticket.turn + 1) % ticket.strands.size();
  Strand& strand = ticket.strands[ticket.turn];
  ticket.turn = (ticket.turn + 1) % ticket.strands.size();
  static_cast<Operation&>(request) = {};
  request.kind = ticket.kind;
  request.done = 0;
  request.moved = false;
  request.first_vector = 0;
  request.strand = &strand;
  request.backing = strand.file->backing();
  if (ticket.kind == Operation::Kind::sync) {
    strand.exhausted = true;
    request.cut.nbytes = request.cut.needed = request.cut.payload = 0;
    request.fd = strand.file->buffered_fd();
  } else {
    cut_next(strand.extents, strand.rules, strand.cursor, request.cut);
    strand.exhausted = strand.cursor.index == strand.extents.size();
    const bool buffered = is_cached(request.cut.road);
    request.fd = buffered ? strand.file->buffered_fd() : strand.file->direct_fd();
    request.whole = {request.staging, static_cast<std::size_t>(request.cut.nbytes)};
    request.aim();
  }
  request.ticket = &ticket;
  ticket.exhausted = std::all_of(ticket.strands.begin(), ticket.strands.end(),
                                 [](const Strand& each) { return each.exhausted; });
  ++ticket.under_way;
  return true;
}

// Deals with what the engine says of a request; false when it has to be started again.
bool Queue::settle(Request& request) {
  Ticket& ticket = *request.ticket;
  std::int64_t result = request.result;
  const Cut& cut = request.cut;
  if (result == -EINTR || result == -EAGAIN) return false;
  if (ticket.kind == Operation::Kind::sync) {
    result = -request.strand->file->flushed(static_cast<int>(-result));
  }
  if (result < 0) {
    fail(ticket, request, static_cast<int>(-result));
  } else if (ticket.kind == Operation::Kind::sync) {
    ++moved_.flushes;
  } else if (request.done + result < cut.needed) {
    // A direct transfer goes on at a block: what lies beyond the last whole one is moved again.
    const bool buffered = is_cached(cut.road);
    const std::int64_t kept = buffered ? result : result / kBlock * kBlock;
    const bool reads = ticket.kind == Operation::Kind::read;
    if (kept == 0) {
      fail(ticket, request, reads ? ENODATA : EIO);
    } else {
      request.advance(kept);
      request.aim();
      return false;
    }
  } else {
    const bool reads = ticket.kind == Operation::Kind::read;
    request.moved = true;
    ticket.completion.nbytes += cut.payload;
    (reads ? moved_.read_bytes : moved_.written_bytes) += cut.payload;
    (reads ? moved_.read_requests : moved_.write_requests) += 1;
    if (request.backing == nullptr) {
      (is_cached(cut.road) ? moved_.buffered_bytes : moved_.direct_bytes) += cut.nbytes;
    }
    if (is_copied(cut.road)) moved_.staged_bytes += cut.payload;
    if (ticket.translates()) moved_.folded_bytes += cut.payload;
    if (ticket.row_bytes > 0) moved_.summed_bytes += cut.payload;
  }
  return true;
}

// Ends a request that nothing is left to do for.
void Queue::leave(Request& request) {
  Ticket& ticket = *request.ticket;
  request.ticket = nullptr;
  free_.push_back(&request);
  --ticket.under_way;
  if (ticket.under_way == 0 && ticket.exhausted) {
    const auto place = std::find_if(active_.begin(), active_.end(),
                                    [&](const auto& other) { return other.get() == &ticket; });
    std::unique_ptr<Ticket> done = std::move(*place);
    active_.erase(place);
    const bool rearranges = done->rearranges();
    {
      std::lock_guard lock(mutex_);
      statistics_ = moved_;
      if (rearranges) to_rearrange_.push_back(std::move(done));
      if (rearranges) to_copy_ready_.notify_one();
    }
    if (!rearranges) finish(std::move(done));
  }
}

void Queue::fail(Ticket& ticket, const Request& request, int error) {
  ticket.exhausted = true;
  Completion& completion = ticket.completion;
  if (completion.error != 0) return;
  const bool sync = ticket.kind == Operation::Kind::sync;
  completion.error = error;
  completion.offset = sync ? 0 : request.cut.offset + request.done;
  completion.length = sync ? 0 : request.cut.nbytes - request.done;
  completion.path = request.strand->file->path();
}

void Queue::finish(std::unique_ptr<Ticket> ticket) {
  Completion& completion = ticket->completion;
  completion.ticket = ticket->number;
  completion.seconds = seconds_between(ticket->started, Clock::now());
  // Files may be closed by this: that must not happen after the completion was seen.
  ticket->strands.clear();
  std::lock_guard lock(mutex_);
  completions_.push_back(std::move(completion));
  completed_.notify_all();
}

void Queue::copy() {
  while (true) {
    Request* request = nullptr;
    std::unique_ptr<Ticket> ticket;
    {
      std::unique_lock lock(mutex_);
      to_copy_ready_.wait(
          lock, [this] { return copying_ends_ || !to_copy_.empty() || !to_rearrange_.empty(); });
      if (!to_copy_.empty()) {  // first, as others wait for its memory
        request = to_copy_.front();
        to_copy_.pop_front();
      } else if (!to_rearrange_.empty()) {
        ticket = std::move(to_rearrange_.front());
        to_rearrange_.pop_front();
      } else {
        return;
      }
    }
    if (ticket) {
      rearrange(std::move(ticket));
      continue;
    }
    copy_and_sum(*request);
    {
      std::lock_guard lock(mutex_);
      copied_.push_back(request);
    }
    event_.notify();  // the driver would wait for the lock
  }
}

// Moves the pieces of a staged request to or from its staging memory, and sums up the rows of any
// request, so that what is copied is read once for both.
void Queue::copy_and_sum(Request& request) const {
  Ticket& ticket = *request.ticket;
  const bool copies = is_copied(request.cut.road), sums = request.sums();
  const bool unfolds = ticket.unfolds(), parts = ticket.parts_rows();
  const double begin = processor_seconds();
  for (const Piece& piece : request.cut.pieces) {
    auto* memory = reinterpret_cast<std::byte*>(piece.address);
    std::byte* staging = request.staging + piece.within;
    if (unfolds) {  // through the caches, for what sums it up
      ticket.unfold_from(piece.position, piece.nbytes, staging);
      if (sums) ticket.sum_whole(piece, staging);
    } else if (parts) {
      if (sums) ticket.sum_whole(piece, staging);
      ticket.put_parts_of(piece.position, piece.nbytes, staging);
    } else {
      std::byte* from = copies && !request.gathers() ? staging : memory;
      if (sums) ticket.sum_whole(piece, from);
      if (copies) {
        copy_past(from == memory ? staging : memory, from, static_cast<std::size_t>(piece.nbytes));
      }
    }
    if (sums) ticket.sum_ends(piece);
  }
  request.copy_seconds = sums || unfolds || parts ? processor_seconds() - begin : 0.0;
}

// The last that is done for a ticket of packed planes, or of planes that are to lie folded.
void Queue::rearrange(std::unique_ptr<Ticket> ticket) {
  Statistics done;
  const double begin = processor_seconds();
  for (const Unpacking& each : ticket->planes) {
    if (!unpack(each.from, each.packed, each.plane)) {
      ticket->completion.error = EBADMSG;
      ticket->completion.path = ticket->strands.front().file->path();
      break;
    }
    const std::int64_t nbytes = each.plane.rows * each.plane.row_bytes;
    done.unpacked_bytes += nbytes;
    if (!ticket->folds()) continue;
    fold(each.plane.data, each.plane.rows, ticket->folding);
    done.folded_bytes += nbytes;
  }
  for (const Segment& each : ticket->segments) {
    ticket->sum_and_fold(each);
    done.folded_bytes += each.nbytes;
  }
  const double seconds = processor_seconds() - begin;
  {
    std::lock_guard lock(mutex_);
    rearranged_.unpacked_bytes += done.unpacked_bytes;
    rearranged_.folded_bytes += done.folded_bytes;
    (ticket->planes.empty() ? rearranged_.fold_seconds : rearranged_.unpack_seconds) += seconds;
  }
  finish(std::move(ticket));
}

}  // namespace outgrid
