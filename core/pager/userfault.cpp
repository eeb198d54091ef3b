#include "pager/userfault.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "io/error.h"

// Headers older than the kernel that runs lack these.
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif

namespace outgrid {
namespace {

constexpr std::uint64_t kPoison = std::uint64_t{1} << 14;  // UFFD_FEATURE_POISON

struct Poison {  // struct uffdio_poison
  uffdio_range range;
  __u64 mode;
  __s64 updated;
};
constexpr unsigned long kPoisonRange = _IOWR(UFFDIO, 0x08, Poison);

constexpr int kFlags = O_CLOEXEC | O_NONBLOCK;

// A descriptor, and whether it also serves faults inside of system calls.
int open_any(bool& serves_kernel) {
  serves_kernel = true;
  auto fd = static_cast<int>(syscall(SYS_userfaultfd, kFlags));
  if (fd >= 0 || errno != EPERM) return fd;
  const int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
  if (device >= 0) {
    fd = ioctl(device, USERFAULTFD_IOC_NEW, kFlags);
    close(device);
    if (fd >= 0) return fd;
  }
  serves_kernel = false;
  return static_cast<int>(syscall(SYS_userfaultfd, kFlags | UFFD_USER_MODE_ONLY));
}

std::string refusal(int code) {
  if (code == ENOSYS) return "this kernel was built without userfaultfd: paging needs it";
  if (code == EPERM) {
    return "the kernel refuses userfaultfd, which paging needs: set vm.unprivileged_userfaultfd "
           "to 1, allow /dev/userfaultfd or give CAP_SYS_PTRACE (in a container also its filter "
           "of system calls must allow it)";
  }
  return "the kernel refuses userfaultfd, which paging needs";
}

uffdio_range range_of(void* start, std::size_t nbytes) {
  return {reinterpret_cast<std::uintptr_t>(start), nbytes};
}

int set_protection(int fd, uffdio_range range, std::uint64_t mode) {
  uffdio_writeprotect wanted{};
  wanted.range = range;
  wanted.mode = mode;
  while (ioctl(fd, UFFDIO_WRITEPROTECT, &wanted) != 0) {
    if (errno != EAGAIN) return errno;
  }
  return 0;
}

}  // namespace

UserFault::UserFault() {
  fd_ = open_any(serves_kernel_);
  if (fd_ < 0) throw SystemError(errno, refusal(errno));
  uffdio_api found{};
  found.api = UFFD_API;
  const int code = ioctl(fd_, UFFDIO_API, &found) == 0 ? 0 : errno;
  // A descriptor says once what there is; another one is told what is wanted of it.
  close(fd_);
  if (code != 0) throw SystemError(code, "the kernel's userfaultfd speaks another version");
  if ((found.features & UFFD_FEATURE_PAGEFAULT_FLAG_WP) == 0) {
    throw SystemError(ENOTSUP,
                      "the kernel's userfaultfd cannot write-protect, which paging needs in order "
                      "to send pages out (Linux 5.7 on x86-64, 6.x on ARM can)");
  }
  fd_ = open_any(serves_kernel_);
  if (fd_ < 0) throw SystemError(errno, refusal(errno));
  poisons_ = (found.features & kPoison) != 0;
  uffdio_api wanted{};
  wanted.api = UFFD_API;
  wanted.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | (poisons_ ? kPoison : 0);
  if (ioctl(fd_, UFFDIO_API, &wanted) != 0) {
    const int error = errno;
    close(fd_);
    throw SystemError(error, "the kernel's userfaultfd refuses the features that it named");
  }
}

UserFault::~UserFault() { close(fd_); }

void UserFault::watch(void* start, std::size_t nbytes) const {
  uffdio_register wanted{};
  wanted.range = range_of(start, nbytes);
  wanted.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP;
  if (ioctl(fd_, UFFDIO_REGISTER, &wanted) != 0) {
    throw SystemError(errno, "cannot watch " + std::to_string(nbytes) + " bytes for page faults");
  }
}

void UserFault::unwatch(void* start, std::size_t nbytes) const {
  uffdio_range range = range_of(start, nbytes);
  ioctl(fd_, UFFDIO_UNREGISTER, &range);
}

std::span<const Fault> UserFault::faults() {
  uffd_msg messages[kMost];
  const ssize_t got = read(fd_, messages, sizeof messages);
  std::size_t count = 0;
  for (std::size_t i = 0; got > 0 && i < static_cast<std::size_t>(got) / sizeof(uffd_msg); ++i) {
    if (messages[i].event != UFFD_EVENT_PAGEFAULT) continue;
    const auto& fault = messages[i].arg.pagefault;
    found_[count++] = {static_cast<std::uintptr_t>(fault.address),
                       (fault.flags & UFFD_PAGEFAULT_FLAG_WRITE) != 0,
                       (fault.flags & UFFD_PAGEFAULT_FLAG_WP) != 0};
  }
  return {found_, count};
}

int UserFault::fill(void* start, const void* source, std::size_t nbytes, bool protect) const {
  uffdio_copy wanted{};
  wanted.dst = reinterpret_cast<std::uintptr_t>(start);
  wanted.src = reinterpret_cast<std::uintptr_t>(source);
  wanted.len = nbytes;
  wanted.mode = protect ? UFFDIO_COPY_MODE_WP : 0;
  while (ioctl(fd_, UFFDIO_COPY, &wanted) != 0) {
    // The map of the process changed meanwhile: go on after what was copied.
    if (errno != EAGAIN) return errno;
    const std::uint64_t copied = wanted.copy > 0 ? static_cast<std::uint64_t>(wanted.copy) : 0;
    wanted.dst += copied;
    wanted.src += copied;
    wanted.len -= copied;
    wanted.copy = 0;
    if (wanted.len == 0) return 0;
  }
  return 0;
}

int UserFault::protect(void* start, std::size_t nbytes) const {
  return set_protection(fd_, range_of(start, nbytes), UFFDIO_WRITEPROTECT_MODE_WP);
}

int UserFault::unprotect(void* start, std::size_t nbytes) const {
  return set_protection(fd_, range_of(start, nbytes), 0);
}

int UserFault::drop(void* start, std::size_t nbytes) const {
  if (madvise(start, nbytes, MADV_DONTNEED) == 0) return 0;
  const bool done = munlock(start, nbytes) == 0 && madvise(start, nbytes, MADV_DONTNEED) == 0;
  return done ? 0 : errno;
}

void UserFault::wake(void* start, std::size_t nbytes) const {
  uffdio_range range = range_of(start, nbytes);
  ioctl(fd_, UFFDIO_WAKE, &range);
}

void UserFault::poison(void* start, std::size_t nbytes) const {
  Poison wanted{};
  wanted.range = range_of(start, nbytes);
  while (poisons_ && drop(start, nbytes) == 0) {
    if (ioctl(fd_, kPoisonRange, &wanted) == 0) return;
    if (errno != EAGAIN) break;  // else a part was done
  }
  std::abort();
}

}  // namespace outgrid
