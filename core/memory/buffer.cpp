#include "memory/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "io/error.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace outgrid {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// On either side of anonymous memory, of whose bounds the sanitizer for addresses knows only what
// it is told.
#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t kFence = std::size_t{64} << 10;
#else
constexpr std::size_t kFence = 0;
#endif

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

Buffer::Buffer(std::size_t nbytes, bool huge_pages, bool lock) : nbytes_(nbytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t slack = nbytes >= kHugePage ? kHugePage : 0;
  if (nbytes == 0 || nbytes > SIZE_MAX / 2) {
    throw SystemError(EINVAL, "a buffer of " + std::to_string(nbytes) + " bytes cannot be mapped");
  }
  mapped_bytes_ = round_up(nbytes, page);
  void* raw = mmap(nullptr, mapped_bytes_ + slack + 2 * kFence, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) {
    throw SystemError(errno, "cannot map a buffer of " + std::to_string(nbytes) + " bytes");
  }
  auto start = reinterpret_cast<std::uintptr_t>(raw) + kFence;
  if (slack != 0) {
    const std::uintptr_t aligned = round_up(start, kHugePage);
    const std::size_t head = aligned - start;
    if (head != 0) munmap(raw, head);
    if (slack != head) {
      munmap(reinterpret_cast<void*>(aligned + mapped_bytes_ + kFence), slack - head);
    }
    start = aligned;
  }
  data_ = reinterpret_cast<void*>(start);
#ifdef __SANITIZE_ADDRESS__
  ASAN_POISON_MEMORY_REGION(reinterpret_cast<void*>(start - kFence), kFence);
  ASAN_POISON_MEMORY_REGION(reinterpret_cast<void*>(start + nbytes),
                            mapped_bytes_ - nbytes + kFence);
#endif
  // Huge pages are advice: a kernel without them serves the same memory in small pages.
  if (nbytes >= kHugePage) {
    madvise(data_, mapped_bytes_, huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  }
  if (lock && mlock(data_, mapped_bytes_) != 0) {
    const int code = errno;
    release();
    throw SystemError(code, "cannot lock " + std::to_string(nbytes) +
                                " bytes in memory (see `ulimit -l` for the bound)");
  }
}

Buffer::Buffer(int fd, std::size_t nbytes, bool writable, const std::string& path)
    : nbytes_(nbytes), of_file_(true) {
  mapped_bytes_ = round_up(nbytes, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* raw = mmap(nullptr, mapped_bytes_, protection, MAP_SHARED, fd, 0);
  if (raw == MAP_FAILED) {
    throw SystemError(errno, "cannot map " + std::to_string(nbytes) + " bytes of the file", path);
  }
  data_ = raw;
}

Buffer::~Buffer() { release(); }

void Buffer::release() {
  if (data_ != nullptr) {
    const std::size_t fence = of_file_ ? 0 : kFence;
    char* const first = static_cast<char*>(data_) - fence;
#ifdef __SANITIZE_ADDRESS__
    ASAN_UNPOISON_MEMORY_REGION(first, mapped_bytes_ + 2 * fence);
#endif
    munmap(first, mapped_bytes_ + 2 * fence);
  }
  data_ = nullptr;
  mapped_bytes_ = 0;
}

}  // namespace outgrid
