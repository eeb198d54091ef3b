// Preloaded into a run: system calls on field files that fail, fall short, wait or get lost.
//
// OUTGRID_FAULT = call:kind:from[:count]   call: read, write or sync; the calls from number `from`
// on (counted from 0 among those of the same call) are treated as `kind` says, `count` of them.
//   errno number   the call fails with it and does nothing
//   short          whole blocks, but not all of them
//   slow           20 ms late
//   stuck          never returns
#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

std::atomic<long> calls{0};

struct Fault {
  std::string call, kind;
  long from = 0, count = LONG_MAX;

  Fault() {
    const char* text = std::getenv("OUTGRID_FAULT");
    if (text == nullptr) return;
    std::string rest = text;
    std::string* parts[] = {&call, &kind};
    for (std::string* part : parts) {
      *part = rest.substr(0, rest.find(':'));
      rest.erase(0, part->size() + 1);
    }
    from = std::atol(rest.c_str());
    if (rest.find(':') != std::string::npos) count = std::atol(rest.c_str() + rest.find(':') + 1);
  }

  bool hits(const char* name) const {
    if (call != name) return false;
    const long number = calls++;
    return number >= from && number - from < count;
  }
};

const Fault& fault() {
  static const Fault found;
  return found;
}

using Transfer = ssize_t (*)(int, const iovec*, int, off_t);

ssize_t transfer(const char* name, Transfer real, int fd, const iovec* v, int n, off_t offset) {
  if (!fault().hits(name)) return real(fd, v, n, offset);
  const std::string& kind = fault().kind;
  if (kind == "short") {
    iovec first = v[0];
    if (first.iov_len > 4096) first.iov_len = first.iov_len / 2 / 4096 * 4096;
    return real(fd, &first, 1, offset);
  }
  if (kind == "stuck") {
    while (true) pause();
  }
  if (kind == "slow") {
    usleep(20000);
    return real(fd, v, n, offset);
  }
  errno = std::atoi(kind.c_str());
  return -1;
}

template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {
ssize_t preadv64(int fd, const iovec* v, int n, off_t offset) {
  static const auto call = real<Transfer>("preadv64");
  return transfer("read", call, fd, v, n, offset);
}
ssize_t pwritev64(int fd, const iovec* v, int n, off_t offset) {
  static const auto call = real<Transfer>("pwritev64");
  return transfer("write", call, fd, v, n, offset);
}
ssize_t preadv(int fd, const iovec* v, int n, off_t offset) { return preadv64(fd, v, n, offset); }
ssize_t pwritev(int fd, const iovec* v, int n, off_t offset) { return pwritev64(fd, v, n, offset); }
int fdatasync(int fd) {
  static const auto call = real<int (*)(int)>("fdatasync");
  if (!fault().hits("sync")) return call(fd);
  if (fault().kind == "slow") {
    usleep(20000);
    return call(fd);
  }
  errno = std::atoi(fault().kind.c_str());
  return -1;
}
}
