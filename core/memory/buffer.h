// Mapped memory: anonymous, for windows and for grids that may be swapped out, or that of a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace outgrid {

class Buffer {
 public:
  // Maps `nbytes` (> 0) of zeroes, page aligned, on huge pages where the kernel grants them. Blocks
  // of 2 MiB and more start on a 2 MiB boundary. `lock` pins the pages in memory, and thereby takes
  // all of them at once; without it pages appear when touched.
  Buffer(std::size_t nbytes, bool huge_pages, bool lock);
  // Maps the first `nbytes` of an open file, shared: what is written to them goes to the file. The
  // file must be as long; the descriptor may be closed. `path` is for messages.
  Buffer(int fd, std::size_t nbytes, bool writable, const std::string& path);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  std::size_t nbytes() const { return nbytes_; }
  std::size_t mapped_bytes() const { return mapped_bytes_; }
  bool of_file() const { return of_file_; }

  // Gives the memory back; a second call does nothing.
  void release();

 private:
  void* data_ = nullptr;
  std::size_t nbytes_ = 0;
  std::size_t mapped_bytes_ = 0;
  bool of_file_ = false;
};

}  // namespace outgrid
