// Bytes that kernels leave, on their way to places in files.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "io/threads.h"
#include "memory/buffer.h"

namespace outgrid {

// An outlet as kernels see it: `struct Outlet` of codegen/templates/cpu/slab.hpp.
struct OutletDoor {
  // `nbytes` bytes go `at` bytes into the file of that number. From any thread; the memory is free
  // when this returns.
  void (*put)(OutletDoor*, std::int64_t file, std::int64_t at, const void* from,
              std::int64_t nbytes);
};

// Collects what is put in blocks of files, and writes each block that is whole, by a thread of its
// own, through the page cache. The system begins to write that to the disk at once.
//
// A block belongs to one of: `open_` (bytes are still missing), `full_` (to be written), the
// writer, `free_`. While threads copy into it, it stays in `open_`. Where no block is free, the
// caller waits for one. If none is to be written, half of the open ones are let go as they are
// filled, those that were opened first.
class Outlet : public OutletDoor {
 public:
  // With at least `held_bytes` of memory for blocks.
  Outlet(std::vector<int> descriptors, std::int64_t held_bytes);
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;

  struct Failure {
    int file, code;  // the number of the file, and why; 0: all is well
  };
  // One of the writes that failed, if there are any.
  Failure failure() const;

  // Whether its thread is of this process, and not of one that this was forked from.
  bool here() const { return writer_.here(); }

  // Waits until all that was put is written. Nobody may put anything meanwhile.
  void drain();

 private:
  using Key = std::pair<std::int64_t, std::int64_t>;  // the file, and the number of the block
  struct Block {
    Key key;
    std::int64_t opened = 0;                                    // after so many others
    int copying = 0;                                            // threads
    std::vector<std::pair<std::int64_t, std::int64_t>> filled;  // ranges, sorted and apart
    char* data = nullptr;
  };

  void take(const Key& key, std::int64_t begin, const char* from, std::int64_t nbytes);
  Block* open(const Key& key, std::unique_lock<std::mutex>& lock);
  void evict(std::size_t count);
  void write_all();
  void stop();
  void write(std::int64_t file, std::int64_t at, std::vector<iovec> pieces);

  std::vector<int> descriptors_;
  std::atomic<std::int64_t> failure_{0};  // file << 32 | code

  std::mutex mutex_;  // guards what follows, but what is in blocks
  std::condition_variable filled_, freed_;
  std::unique_ptr<Buffer> memory_;
  std::vector<Block> blocks_;
  std::map<Key, Block*> open_;
  std::vector<Block*> free_;
  std::vector<Block*> full_;
  int waiting_ = 0;  // threads
  std::int64_t opened_ = 0;
  bool writing_ = false;
  bool ends_ = false;
  Threads writer_{[this] { stop(); }};
};

}  // namespace outgrid
