// Preloaded into a run: system calls on field files that fail, fall short, wait or get lost.
//
// OUTGRID_FAULT = call:kind:from[:count]   call: read, write or sync (of fields), pwrite (of
// checksums and pages), fsync or rename (of manifests), wake (the sleep of the thread that drives
// transfers), fill, protect or drop (of pages);
// the calls from number `from` on (counted from 0 among those of the same call) are treated as `kind`
// says, `count` of them.
//   errno number   the call fails with it and does nothing
//   short          whole blocks, but not all of them (reads and writes of fields only)
//   slow           20 ms late
//   stuck          never returns
//   kill           the process ends by SIGKILL, before or after the call
//   throw          the thread throws (wake only)
#include <dlfcn.h>
#include <linux/userfaultfd.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
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

// What a call gives that the fault may hit: that of `act`, which makes it, or an error.
template <class Act>
auto treat(const char* name, Act act) -> decltype(act()) {
  if (!fault().hits(name)) return act();
  const std::string& kind = fault().kind;
  if (kind == "stuck") {
    while (true) pause();
  }
  if (kind == "slow") {
    usleep(20000);
    return act();
  }
  if (kind == "kill") {
    if (fault().from % 2 == 0) act();
    kill(getpid(), SIGKILL);
  }
  errno = std::atoi(kind.c_str());
  return -1;
}

ssize_t transfer(const char* name, Transfer real, int fd, const iovec* v, int n, off_t offset) {
  if (fault().kind != "short") return treat(name, [=] { return real(fd, v, n, offset); });
  if (!fault().hits(name)) return real(fd, v, n, offset);
  iovec first = v[0];
  if (first.iov_len > 4096) first.iov_len = (first.iov_len / 2 + 4095) / 4096 * 4096;
  return real(fd, &first, 1, offset);
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
  return treat("sync", [=] { return call(fd); });
}
int fsync(int fd) {
  static const auto call = real<int (*)(int)>("fsync");
  return treat("fsync", [=] { return call(fd); });
}
ssize_t pwrite64(int fd, const void* data, size_t nbytes, off_t offset) {
  static const auto call = real<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite64");
  return treat("pwrite", [=] { return call(fd, data, nbytes, offset); });
}
ssize_t pwrite(int fd, const void* data, size_t nbytes, off_t offset) {
  return pwrite64(fd, data, nbytes, offset);
}
int eventfd_read(int fd, eventfd_t* value) {
  static const auto call = real<int (*)(int, eventfd_t*)>("eventfd_read");
  if (fault().hits("wake")) throw std::runtime_error("thrown on purpose");
  return call(fd, value);
}
int ioctl(int fd, unsigned long request, ...) {
  static const auto call = real<int (*)(int, unsigned long, ...)>("ioctl");
  va_list rest;
  va_start(rest, request);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  const auto act = [=] { return call(fd, request, argument); };
  if (request == UFFDIO_COPY) return treat("fill", act);
  return request == UFFDIO_WRITEPROTECT ? treat("protect", act) : act();
}
int madvise(void* start, size_t nbytes, int advice) {
  static const auto call = real<int (*)(void*, size_t, int)>("madvise");
  const auto act = [=] { return call(start, nbytes, advice); };
  return advice == MADV_DONTNEED ? treat("drop", act) : act();
}
int rename(const char* from, const char* to) {
  static const auto call = real<int (*)(const char*, const char*)>("rename");
  return treat("rename", [=] { return call(from, to); });
}
}
