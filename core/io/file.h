// A file opened twice: once past the page cache for whole blocks, once through it for partial
// blocks.
//
// Both descriptors may be used at the same time as long as no request writes a block through one of
// them while another request touches the same bytes through the other: the kernel writes dirty
// pages back before a direct read, and drops them before a direct write.
#pragma once

#include <cstdint>
#include <string>

namespace outgrid {

// The unit of direct transfers: file offsets and lengths are multiples of it.
constexpr std::int64_t kBlock = 4096;

class File {
 public:
  enum class Mode { read, update, create };

  // `create` never opens an existing file. With `direct` the file is opened past the page cache
  // too, where the file system allows that; `is_direct` says whether it did.
  File(std::string path, Mode mode, bool direct);
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

  // Makes the file at least `nbytes` long with the space set aside. False where the file system
  // cannot set space aside: then only the length was set.
  bool reserve(std::int64_t nbytes);

 private:
  void open_direct(int flags);

  std::string path_;
  bool writable_;
  int buffered_fd_ = -1;
  int direct_fd_ = -1;
  std::int64_t memory_alignment_ = kBlock;
};

}  // namespace outgrid
