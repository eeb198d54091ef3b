// Asynchronous transfers between files and memory, with one driver thread.
//
// Protocol:
//  1. `read`, `write` and `flush` copy their arguments, return a ticket and wake the driver; they
//     never block on a device. Tickets count up from 1. Memory named by a segment belongs to the
//     queue until the completion of its ticket was handed out.
//  2. The driver takes tickets in order, cuts each into requests (cut.h) and keeps up to `depth` of
//     them in the engine. Requests of neighbouring tickets overlap: tickets complete in any order,
//     and a flush covers only what was complete when it was submitted.
//  3. Short transfers are continued, EINTR and EAGAIN repeated. The first other error stops its
//     ticket: nothing more is cut from it, and it completes, as failed, when its last request has
//     come back.
//  4. Request i owns part i of the staging memory. Reads are copied out of it by the driver when
//     they complete, writes are gathered into it when they are cut.
//  5. A ticket may ask for the checksums of its rows. The driver sums them up request by request,
//     while their bytes are near: what is copied when it is copied, all else when it has moved. A
//     row that belongs to several requests is summed with the last of them.
//  6. A ticket on a striped file has one strand for each part; requests are cut from them in turn,
//     so that all parts are busy at once.
//  7. A ticket may read packed planes (packing.h) to the end of the memory of each, or planes that
//     are to lie folded (folding.h). When its last request has come back, the thread that copies
//     unpacks them there, and folds them after that, and it is complete. What is folded is summed
//     up right before, group by group, and not with its requests.
//  8. A ticket may write folded planes, whose memory does not change: all of its bytes are unfolded
//     into the staging memory, and summed up from there.
//     So are those of planes whose rows lie in parts, and what is read of these goes through the
//     staging memory as well.
//  9. Closing the queue drops tickets that have not begun and waits for requests under way, as long
//     as it has patience.
//  10. A thread that throws ends; whoever waits for a completion then is told so.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "folding/folding.h"
#include "io/cut.h"
#include "io/engine.h"
#include "io/event.h"
#include "io/file.h"
#include "io/threads.h"
#include "memory/buffer.h"
#include "packing/packing.h"

namespace outgrid {

struct Completion {
  std::int64_t ticket;
  std::int64_t nbytes;  // asked for and moved
  double seconds;       // from the first request of the ticket to the last
  // Of the first failed request; zero and empty where the ticket succeeded. ENODATA: the file
  // ended.
  int error;
  std::int64_t offset;
  std::int64_t length;
  std::string path;
  std::vector<std::uint64_t> sums;  // of its rows, in the order of the segments
};

struct Statistics {
  std::int64_t read_bytes = 0;  // asked for by tickets, and moved
  std::int64_t written_bytes = 0;
  std::int64_t direct_bytes = 0;  // moved past the page cache, with the blocks around ragged ends
  std::int64_t buffered_bytes = 0;
  std::int64_t staged_bytes = 0;  // copied by the copier
  std::int64_t read_requests = 0;
  std::int64_t write_requests = 0;
  std::int64_t flushes = 0;
  double busy_seconds = 0;  // with at least one request under way
  std::int64_t summed_bytes = 0;
  double sum_seconds = 0;  // of a processor, for checksums and for copies made with them
  std::int64_t unpacked_bytes = 0;
  double unpack_seconds = 0;  // of a processor
  std::int64_t folded_bytes = 0;
  double fold_seconds = 0;  // of a processor, for folding, unfolding, and checksums made with them
};

// A packed plane that a transfer brings to `from`, and where it is unpacked to.
struct Unpacking {
  const std::byte* from;
  Packed packed;
  Plane plane;
};

struct QueueOptions {
  std::string engine = "auto";  // or one of engine_names()
  int depth = 16;
  std::int64_t request_bytes = std::int64_t{2} << 20;
  std::int64_t staging_bytes = std::int64_t{4} << 20;  // of all requests together
};

class Queue {
 public:
  explicit Queue(const QueueOptions& options);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // Segments are sorted by offset and do not overlap in the file. With `row_bytes` above 0, of
  // which their lengths are multiples, the completion carries the checksums of their rows. With a
  // `folding` that folds, each is rows from the first of a group on, which lie folded in memory,
  // and natural in the file; rows that are summed up are those that are folded.
  std::int64_t read(const Striped& file, std::vector<Segment> segments, std::int64_t row_bytes = 0,
                    const Folding& folding = {});
  // The same of packed planes, which are unpacked when all of them have come.
  std::int64_t read_packed(const Striped& file, std::vector<Segment> segments,
                           std::vector<Unpacking> planes, const Folding& folding = {});
  std::int64_t write(const Striped& file, std::vector<Segment> segments, std::int64_t row_bytes = 0,
                     const Folding& folding = {});
  std::int64_t flush(const Striped& file);
  // A ticket that is complete already, for tiers that need no device.
  std::int64_t complete(std::int64_t nbytes, double seconds);

  std::vector<Completion> poll();
  // At least one completion; none after `timeout_seconds`, or when no ticket is outstanding. Throws
  // std::runtime_error where none will come any more, as a thread has thrown.
  std::vector<Completion> wait(double timeout_seconds);

  // Whether its threads are of this process, and not of one that this was forked from: there
  // nothing is under way, `close` and `abandon` do nothing, and what needs the threads is refused
  // with a std::runtime_error. A lock may have been held when that process was made.
  bool here() const { return threads_.here(); }
  // False where requests under way did not end in time: the queue is then abandoned.
  bool close(double patience_seconds);
  // Lets go of a queue whose requests do not end: nothing is waited for. The object must live on.
  void abandon();

  // Tickets whose completion was not handed out yet.
  std::int64_t outstanding();
  const std::string& engine() const { return engine_name_; }
  // Better engines that the kernel refused, each with its reason.
  const std::vector<std::string>& refusals() const { return refusals_; }
  std::int64_t staging_bytes() const { return static_cast<std::int64_t>(staging_.nbytes()); }
  Statistics statistics();

 private:
  struct Strand;
  struct Ticket;
  struct Request;

  std::int64_t submit(Operation::Kind kind, const Striped& file, std::vector<Segment> segments,
                      std::int64_t row_bytes, std::vector<Unpacking> planes = {},
                      const Folding& folding = {});
  Strand strand(Operation::Kind kind, std::shared_ptr<File> part, std::span<const Segment> segments,
                bool translates);
  void check_here() const;
  void take_engine(const std::string& wanted, int depth);
  void stop();
  void guard(const char* name, void (Queue::*work)(), bool& ended);
  void drive();
  bool fill(Request& request);
  bool settle(Request& request);
  void leave(Request& request);
  void fail(Ticket& ticket, const Request& request, int error);
  void finish(std::unique_ptr<Ticket> ticket);
  void copy();
  void copy_and_sum(Request& request) const;
  void rearrange(std::unique_ptr<Ticket> ticket);

  std::string engine_name_;
  std::vector<std::string> refusals_;
  const std::size_t depth_;
  const std::int64_t request_bytes_;
  const std::int64_t slot_bytes_;
  Buffer staging_;
  Event event_;
  std::unique_ptr<Engine> engine_;

  std::mutex mutex_;  // guards what follows, up to the blank line
  std::condition_variable completed_;
  std::deque<std::unique_ptr<Ticket>> submitted_;
  std::vector<Completion> completions_;
  std::int64_t last_ticket_ = 0;
  std::int64_t outstanding_ = 0;
  Statistics statistics_;
  bool closing_ = false;
  bool closed_ = false;
  std::condition_variable to_copy_ready_;
  std::deque<Request*> to_copy_;
  std::vector<Request*> copied_;
  std::deque<std::unique_ptr<Ticket>> to_rearrange_;
  Statistics rearranged_;
  bool copying_ends_ = false;
  std::condition_variable ended_;
  bool driver_ended_ = false;
  bool copier_ended_ = false;
  std::string thrown_;  // what the first thread that threw had to say

  // Used by the driver alone.
  std::deque<std::unique_ptr<Ticket>> active_;
  std::vector<std::unique_ptr<Request>> requests_;
  std::vector<Request*> free_;
  Statistics moved_;

  Threads threads_{[this] { stop(); }};
};

}  // namespace outgrid
