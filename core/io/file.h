// A file opened twice: once past the page cache for whole blocks, once through it for partial
// blocks. Or a mapped file, or other memory in its place: then transfers are copies.
//
// Both descriptors may be used at the same time as long as no request writes a block through one of
// them while another request touches the same bytes through the other: the kernel writes dirty
// pages back before a direct read, and drops them before a direct write.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/backing.h"
#include "memory/mapping.h"

namespace outgrid {

// The unit of direct transfers: file offsets and lengths are multiples of it.
constexpr std::int64_t kBlock = 4096;

class File {
 public:
  enum class Mode { read, update, create };

  // `create` never opens an existing file. With `direct` the file is opened past the page cache
  // too, where the file system allows that; `is_direct` says whether it did. Offsets count from
  // `base`, a multiple of the block: a part of a block device is a file like any other.
  File(std::string path, Mode mode, bool direct, std::int64_t base = 0);
  // Anonymous memory of `nbytes` under a `name` for messages.
  File(std::string name, std::int64_t nbytes, Habits habits);
  // Whatever else holds bytes.
  explicit File(std::shared_ptr<const Backing> backing);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }
  bool writable() const { return writable_; }
  bool is_direct() const { return direct_fd_ >= 0; }
  int direct_fd() const { return direct_fd_; }
  int buffered_fd() const { return buffered_fd_; }
  // Addresses of direct transfers are multiples of this.
  std::int64_t memory_alignment() const { return memory_alignment_; }
  std::int64_t size() const;
  std::int64_t base() const { return base_; }
  // Null where transfers go through the descriptors.
  const Backing* backing() const { return backing_.get(); }

  // What a flush comes to that the kernel has answered with `code`, 0 or an errno: the first
  // failure for good, since the kernel takes what it could not write for written.
  int flushed(int code);

  // Maps the file as long as it is now; no transfer may be under way.
  void map(Habits habits);

  // Makes the file at least `nbytes` long with the space set aside. False where the file system
  // cannot set space aside: then only the length was set.
  bool reserve(std::int64_t nbytes);

 private:
  void open_direct(int flags);

  std::string path_;
  bool writable_;
  std::int64_t base_ = 0;
  int buffered_fd_ = -1;
  int direct_fd_ = -1;
  std::int64_t memory_alignment_ = kBlock;
  std::shared_ptr<const Backing> backing_;
  std::atomic<int> flush_error_ = 0;  // of the first flush that failed
};

// A file in one part, or in several that take turns: bytes [k*stripe, (k + 1)*stripe) lie in part
// k mod n, one behind the other. The stripe is a multiple of the block.
struct Striped {
  std::vector<std::shared_ptr<File>> parts;
  std::int64_t stripe_bytes = 0;

  Striped() = default;
  Striped(std::shared_ptr<File> file) : parts{std::move(file)} {}  // NOLINT: a file is one part
  Striped(std::vector<std::shared_ptr<File>> several, std::int64_t stripe)
      : parts(std::move(several)), stripe_bytes(stripe) {}
};

}  // namespace outgrid
