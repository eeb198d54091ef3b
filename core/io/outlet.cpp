#include "io/outlet.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace outgrid {

Outlet::Outlet(std::vector<int> descriptors) : descriptors_(std::move(descriptors)) {
  put = [](OutletDoor* door, std::int64_t file, std::int64_t at, const void* from,
           std::int64_t nbytes) {
    static_cast<Outlet*>(door)->write(file, at, static_cast<const char*>(from), nbytes);
  };
}

Outlet::Failure Outlet::failure() const {
  const std::int64_t found = failure_.load(std::memory_order_relaxed);
  return {static_cast<int>(found >> 32), static_cast<int>(found & 0xFFFFFFFF)};
}

void Outlet::write(std::int64_t file, std::int64_t at, const char* from, std::int64_t nbytes) {
  const int descriptor = descriptors_[static_cast<std::size_t>(file)];
  for (std::int64_t done = 0; done < nbytes;) {
    const ssize_t n =
        pwrite(descriptor, from + done, static_cast<std::size_t>(nbytes - done), at + done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      failure_.store(file << 32 | (n < 0 ? errno : EIO), std::memory_order_relaxed);
      return;
    }
    done += n;
  }
}

}  // namespace outgrid
