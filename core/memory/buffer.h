// Anonymous memory for windows: page aligned, on huge pages where the kernel grants them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outgrid {

class Buffer {
 public:
  // Maps `nbytes` (> 0) of zeroes. Blocks of 2 MiB and more start on a 2 MiB boundary. `lock` pins
  // the pages in memory, and thereby takes all of them at once; without it pages appear when
  // touched.
  Buffer(std::size_t nbytes, bool huge_pages, bool lock);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  std::size_t nbytes() const { return nbytes_; }
  std::size_t mapped_bytes() const { return mapped_bytes_; }

  // Gives the memory back; a second call does nothing.
  void release();

 private:
  void* data_ = nullptr;
  std::size_t nbytes_ = 0;
  std::size_t mapped_bytes_ = 0;
};

}  // namespace outgrid
