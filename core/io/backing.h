// Bytes that are not moved through a descriptor of the queue's: a mapping, the memory of other
// nodes, or, for a pager, a file.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <string>

namespace outgrid {

// A fixed number of bytes. `read` and `write` move as many as the vectors hold, from `offset` on,
// at once, from any thread and without the interpreter; they return the bytes moved or a negative
// errno (ENODATA beyond the end).
class Backing {
 public:
  virtual ~Backing() = default;
  virtual const std::string& name() const = 0;
  virtual std::int64_t nbytes() const = 0;
  virtual std::int64_t read(std::int64_t offset, const iovec* vectors, int count) const = 0;
  virtual std::int64_t write(std::int64_t offset, const iovec* vectors, int count) const = 0;
  // Makes durable what was written, where that means anything. 0 or a negative errno.
  virtual std::int64_t flush() const = 0;
  // Where they lie, if they are memory of the process that stays there; else null.
  virtual std::byte* data() const { return nullptr; }
  // The bytes are going to be read.
  virtual void expect(std::int64_t, std::int64_t) const {}
};

}  // namespace outgrid
