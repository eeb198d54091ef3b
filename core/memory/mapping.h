// Memory that a field lives in: a mapped file, or anonymous memory that may be swapped out. What is
// moved to and from it is copied; the system brings pages in and takes them away as it likes, and
// may be told what is coming.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <string>
#include <vector>

#include "io/backing.h"
#include "memory/buffer.h"

namespace outgrid {

// What the system is told about a mapping, and when what was written to it goes to its file.
struct Habits {
  enum class Order { normal, sequential, random };
  enum class Sync { none, async, sync };
  Order order = Order::normal;
  bool ahead = false;   // bring in what is going to be read
  bool behind = false;  // give back what was read or written
  Sync sync = Sync::none;

  // From their names, as in madvise(2) and msync(2): "normal", "sequential", "random", "willneed",
  // "dontneed"; "none", "async", "sync".
  static Habits of(const std::vector<std::string>& advice, const std::string& sync);
};

class Mapping : public Backing {
 public:
  Mapping(int fd, std::size_t nbytes, bool writable, std::string path, Habits habits);
  Mapping(std::string name, std::size_t nbytes, Habits habits);

  const std::string& name() const override { return name_; }
  std::int64_t nbytes() const override { return static_cast<std::int64_t>(buffer_.nbytes()); }

  std::int64_t read(std::int64_t offset, const iovec* vectors, int count) const override;
  std::int64_t write(std::int64_t offset, const iovec* vectors, int count) const override;
  std::int64_t flush() const override;
  std::byte* data() const override;
  void expect(std::int64_t offset, std::int64_t nbytes) const override;

 private:
  struct Pages {
    void* data;
    std::size_t nbytes;
  };
  Pages pages(std::int64_t offset, std::int64_t nbytes) const;
  void give_back(std::int64_t offset, std::int64_t nbytes) const;

  std::string name_;
  bool anonymous_;
  Buffer buffer_;
  Habits habits_;
};

// Tells the system in which order a buffer will be used.
void advise(const Buffer& buffer, Habits::Order order);

}  // namespace outgrid
