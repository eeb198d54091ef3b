// Preloaded into a run: writes down every operation that changes or flushes a file below a folder.
//
// OUTGRID_OPERATIONS = the file to write to, OUTGRID_UNDER = the folder. One entry per operation, in
// the order in which they ended; those of several threads are made one after the other.
//   write PATH OFFSET NBYTES, then the bytes      sync PATH        size PATH NBYTES
//   rename FROM TO          link FROM TO          unlink PATH
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

namespace {

std::recursive_mutex one_at_a_time;

FILE* log_file() {
  static FILE* const file = std::fopen(std::getenv("OUTGRID_OPERATIONS"), "wb");
  return file;
}

// The path of a descriptor as the folder calls it; empty for what lies elsewhere.
std::string inside(const std::string& path) {
  static const std::string under = std::getenv("OUTGRID_UNDER");
  return path.rfind(under, 0) == 0 ? path : "";
}

std::string path_of(int fd) {
  char path[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = readlink(link.c_str(), path, sizeof path);
  return inside(length < 0 ? "" : std::string(path, static_cast<size_t>(length)));
}

void note_write(const std::string& path, const iovec* parts, int count, off_t at, ssize_t moved) {
  if (path.empty() || moved <= 0) return;
  std::fprintf(log_file(), "write %s %lld %zd\n", path.c_str(), static_cast<long long>(at), moved);
  for (int i = 0; i < count && moved > 0; ++i) {
    const size_t part = parts[i].iov_len < static_cast<size_t>(moved) ? parts[i].iov_len : moved;
    std::fwrite(parts[i].iov_base, 1, part, log_file());
    moved -= static_cast<ssize_t>(part);
  }
  std::fputc('\n', log_file());
  std::fflush(log_file());
}

template <class... Words>
void note(const std::string& path, const char* format, Words... words) {
  if (path.empty()) return;
  std::fprintf(log_file(), format, words...);
  std::fflush(log_file());
}

template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {
ssize_t pwritev64(int fd, const iovec* parts, int count, off_t at) {
  static const auto call = real<ssize_t (*)(int, const iovec*, int, off_t)>("pwritev64");
  std::lock_guard lock(one_at_a_time);
  const ssize_t moved = call(fd, parts, count, at);
  note_write(path_of(fd), parts, count, at, moved);
  return moved;
}
ssize_t pwritev(int fd, const iovec* parts, int count, off_t at) {
  return pwritev64(fd, parts, count, at);
}
ssize_t pwrite64(int fd, const void* data, size_t nbytes, off_t at) {
  static const auto call = real<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite64");
  std::lock_guard lock(one_at_a_time);
  const ssize_t moved = call(fd, data, nbytes, at);
  const iovec part{const_cast<void*>(data), nbytes};
  note_write(path_of(fd), &part, 1, at, moved);
  return moved;
}
ssize_t pwrite(int fd, const void* data, size_t nbytes, off_t at) {
  return pwrite64(fd, data, nbytes, at);
}
ssize_t write(int fd, const void* data, size_t nbytes) {
  static const auto call = real<ssize_t (*)(int, const void*, size_t)>("write");
  std::lock_guard lock(one_at_a_time);
  const std::string path = path_of(fd);
  const off_t at = path.empty() ? 0 : lseek(fd, 0, SEEK_CUR);
  const ssize_t moved = call(fd, data, nbytes);
  const iovec part{const_cast<void*>(data), nbytes};
  note_write(path, &part, 1, at, moved);
  return moved;
}
int fsync(int fd) {
  static const auto call = real<int (*)(int)>("fsync");
  std::lock_guard lock(one_at_a_time);
  const int result = call(fd);
  note(path_of(fd), "sync %s\n", path_of(fd).c_str());
  return result;
}
int fdatasync(int fd) { return fsync(fd); }
int ftruncate64(int fd, off_t nbytes) {
  static const auto call = real<int (*)(int, off_t)>("ftruncate64");
  std::lock_guard lock(one_at_a_time);
  const int result = call(fd, nbytes);
  note(path_of(fd), "size %s %lld\n", path_of(fd).c_str(), static_cast<long long>(nbytes));
  return result;
}
int ftruncate(int fd, off_t nbytes) { return ftruncate64(fd, nbytes); }
int fallocate64(int fd, int mode, off_t at, off_t nbytes) {
  static const auto call = real<int (*)(int, int, off_t, off_t)>("fallocate64");
  std::lock_guard lock(one_at_a_time);
  const int result = call(fd, mode, at, nbytes);
  if (result == 0) {
    note(path_of(fd), "size %s %lld\n", path_of(fd).c_str(), static_cast<long long>(at + nbytes));
  }
  return result;
}
int fallocate(int fd, int mode, off_t at, off_t nbytes) { return fallocate64(fd, mode, at, nbytes); }
int rename(const char* from, const char* to) {
  static const auto call = real<int (*)(const char*, const char*)>("rename");
  std::lock_guard lock(one_at_a_time);
  const int result = call(from, to);
  if (result == 0) note(inside(from), "rename %s %s\n", from, to);
  return result;
}
int link(const char* from, const char* to) {
  static const auto call = real<int (*)(const char*, const char*)>("link");
  std::lock_guard lock(one_at_a_time);
  const int result = call(from, to);
  if (result == 0) note(inside(from), "link %s %s\n", from, to);
  return result;
}
int unlink(const char* path) {
  static const auto call = real<int (*)(const char*)>("unlink");
  std::lock_guard lock(one_at_a_time);
  const int result = call(path);
  if (result == 0) note(inside(path), "unlink %s\n", path);
  return result;
}
}
