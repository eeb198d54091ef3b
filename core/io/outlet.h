// Bytes that kernels leave, on their way to places in files.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace outgrid {

// An outlet as kernels see it: `struct Outlet` of codegen/templates/cpu/slab.hpp.
struct OutletDoor {
  // `nbytes` bytes go `at` bytes into the file of that number. From any thread; the memory is free
  // when this returns.
  void (*put)(OutletDoor*, std::int64_t file, std::int64_t at, const void* from,
              std::int64_t nbytes);
};

// Writes to open files at once, through the page cache: that holds what is under way, and not the
// memory of the process, and the system writes it when it likes.
class Outlet : public OutletDoor {
 public:
  explicit Outlet(std::vector<int> descriptors);
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;

  struct Failure {
    int file, code;  // the number of the file, and why; 0: all is well
  };
  // One of the writes that failed, if there are any.
  Failure failure() const;

 private:
  void write(std::int64_t file, std::int64_t at, const char* from, std::int64_t nbytes);

  std::vector<int> descriptors_;
  std::atomic<std::int64_t> failure_{0};  // file << 32 | code
};

}  // namespace outgrid
