#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "io/error.h"

namespace outgrid {
namespace {

int open_retrying(const char* path, int flags) {
  int fd;
  do {
    fd = open(path, flags | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

}  // namespace

File::File(std::string path, Mode mode, bool direct, std::int64_t base)
    : path_(std::move(path)), writable_(mode != Mode::read), base_(base) {
  const int access = writable_ ? O_RDWR : O_RDONLY;
  const int create = mode == Mode::create ? O_CREAT | O_EXCL : 0;
  buffered_fd_ = open_retrying(path_.c_str(), access | create);
  if (buffered_fd_ < 0) throw SystemError(errno, "cannot open the file", path_);
  if (direct) open_direct(access);
}

File::File(std::string name, std::int64_t nbytes, Habits habits)
    : File(std::make_shared<Mapping>(std::move(name), static_cast<std::size_t>(nbytes), habits)) {}

File::File(std::shared_ptr<const Backing> backing)
    : path_(backing->name()), writable_(true), backing_(std::move(backing)) {}

void File::map(Habits habits) {
  backing_ = std::make_shared<Mapping>(buffered_fd_, static_cast<std::size_t>(size()), writable_,
                                       path_, habits);
}

File::~File() {
  if (direct_fd_ >= 0) close(direct_fd_);
  if (buffered_fd_ >= 0) close(buffered_fd_);
}

void File::open_direct(int flags) {
  direct_fd_ = open_retrying(path_.c_str(), flags | O_DIRECT);
  if (direct_fd_ < 0) {
    const int code = errno;
    if (code == EINVAL || code == EOPNOTSUPP) return;  // the file system has no direct transfers
    close(buffered_fd_);
    throw SystemError(code, "cannot open the file for direct transfers", path_);
  }
#ifdef STATX_DIOALIGN
  struct statx status{};
  if (statx(direct_fd_, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
      (status.stx_mask & STATX_DIOALIGN) != 0) {
    if (status.stx_dio_offset_align == 0 || status.stx_dio_offset_align > kBlock) {
      close(direct_fd_);
      direct_fd_ = -1;
      return;
    }
    memory_alignment_ = status.stx_dio_mem_align;
  }
#endif
  // Only partial blocks go through the page cache: reading ahead of them would fill it in vain.
  posix_fadvise(buffered_fd_, 0, 0, POSIX_FADV_RANDOM);
}

std::int64_t File::size() const {
  if (buffered_fd_ < 0) return backing_->nbytes();
  struct stat status{};
  if (fstat(buffered_fd_, &status) != 0) throw SystemError(errno, "cannot read the size", path_);
  return status.st_size;
}

bool File::reserve(std::int64_t nbytes) {
  if (buffered_fd_ < 0) throw SystemError(EBADF, "memory has its size", path_);
  int code;
  do {
    code = fallocate(buffered_fd_, 0, 0, nbytes) == 0 ? 0 : errno;
  } while (code == EINTR);
  if (code == 0) return true;
  const std::string wanted = std::to_string(nbytes) + " bytes";
  if (code != EOPNOTSUPP) throw SystemError(code, "cannot reserve " + wanted, path_);
  if (size() < nbytes && ftruncate(buffered_fd_, nbytes) != 0) {
    throw SystemError(errno, "cannot extend the file to " + wanted, path_);
  }
  return false;
}

int File::flushed(int code) {
  int first = 0;
  return flush_error_.compare_exchange_strong(first, code) ? code : first;
}

}  // namespace outgrid
