#include "memory/mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace outgrid {
namespace {

std::int64_t total(const iovec* vectors, int count) {
  std::size_t nbytes = 0;
  for (int i = 0; i < count; ++i) nbytes += vectors[i].iov_len;
  return static_cast<std::int64_t>(nbytes);
}

}  // namespace

Habits Habits::of(const std::vector<std::string>& advice, const std::string& sync) {
  Habits found;
  for (const std::string& word : advice) {
    if (word == "sequential") {
      found.order = Order::sequential;
    } else if (word == "random") {
      found.order = Order::random;
    } else if (word == "willneed") {
      found.ahead = true;
    } else if (word == "dontneed") {
      found.behind = true;
    } else if (word != "normal") {
      throw std::invalid_argument("no advice \"" + word + "\"");
    }
  }
  if (sync == "async") {
    found.sync = Sync::async;
  } else if (sync == "sync") {
    found.sync = Sync::sync;
  } else if (sync != "none") {
    throw std::invalid_argument("no way to synchronise \"" + sync + "\"");
  }
  return found;
}

Mapping::Mapping(int fd, std::size_t nbytes, bool writable, std::string path, Habits habits)
    : name_(std::move(path)),
      anonymous_(false),
      buffer_(fd, nbytes, writable, name_),
      habits_(habits) {
  advise(buffer_, habits.order);
}

// Huge pages would be taken apart on their way to swap.
Mapping::Mapping(std::string name, std::size_t nbytes, Habits habits)
    : name_(std::move(name)), anonymous_(true), buffer_(nbytes, false, false), habits_(habits) {
  advise(buffer_, habits.order);
}

std::byte* Mapping::data() const {
  return anonymous_ ? static_cast<std::byte*>(buffer_.data()) : nullptr;
}

std::int64_t Mapping::read(std::int64_t offset, const iovec* vectors, int count) const {
  const std::int64_t nbytes = total(vectors, count);
  if (offset < 0 || offset + nbytes > this->nbytes()) return -ENODATA;
  const std::byte* from = static_cast<const std::byte*>(buffer_.data()) + offset;
  for (int i = 0; i < count; ++i) {
    std::memcpy(vectors[i].iov_base, from, vectors[i].iov_len);
    from += vectors[i].iov_len;
  }
  if (habits_.behind) give_back(offset, nbytes);
  return nbytes;
}

std::int64_t Mapping::write(std::int64_t offset, const iovec* vectors, int count) const {
  const std::int64_t nbytes = total(vectors, count);
  if (offset < 0 || offset + nbytes > this->nbytes()) return -ENOSPC;
  std::byte* to = static_cast<std::byte*>(buffer_.data()) + offset;
  for (int i = 0; i < count; ++i) {
    std::memcpy(to, vectors[i].iov_base, vectors[i].iov_len);
    to += vectors[i].iov_len;
  }
  if (habits_.sync != Habits::Sync::none && buffer_.of_file()) {
    const Pages touched = pages(offset, nbytes);
    const int how = habits_.sync == Habits::Sync::sync ? MS_SYNC : MS_ASYNC;
    if (msync(touched.data, touched.nbytes, how) != 0) return -errno;
  }
  if (habits_.behind) give_back(offset, nbytes);
  return nbytes;
}

std::int64_t Mapping::flush() const {
  if (!buffer_.of_file()) return 0;
  return msync(buffer_.data(), buffer_.mapped_bytes(), MS_SYNC) == 0 ? 0 : -errno;
}

// Advice: a kernel that does not take it serves the same bytes.
void Mapping::expect(std::int64_t offset, std::int64_t nbytes) const {
  if (!habits_.ahead || nbytes == 0) return;
  const Pages wanted = pages(offset, nbytes);
  madvise(wanted.data, wanted.nbytes, MADV_WILLNEED);
}

Mapping::Pages Mapping::pages(std::int64_t offset, std::int64_t nbytes) const {
  const std::int64_t page = sysconf(_SC_PAGESIZE);
  const std::int64_t first = offset / page * page;
  return {static_cast<std::byte*>(buffer_.data()) + first,
          static_cast<std::size_t>(offset + nbytes - first)};
}

// Pages of a file are only unmapped by MADV_DONTNEED, whatever was written to them; anonymous ones
// would lose what they hold, so those are sent to swap instead.
void Mapping::give_back(std::int64_t offset, std::int64_t nbytes) const {
  if (nbytes == 0) return;
  const Pages used = pages(offset, nbytes);
  if (buffer_.of_file()) {
    madvise(used.data, used.nbytes, MADV_DONTNEED);
    return;
  }
#ifdef MADV_PAGEOUT
  madvise(used.data, used.nbytes, MADV_PAGEOUT);
#endif
}

void advise(const Buffer& buffer, Habits::Order order) {
  int advice = MADV_NORMAL;
  if (order == Habits::Order::sequential) advice = MADV_SEQUENTIAL;
  if (order == Habits::Order::random) advice = MADV_RANDOM;
  if (order != Habits::Order::normal) madvise(buffer.data(), buffer.mapped_bytes(), advice);
}

}  // namespace outgrid
