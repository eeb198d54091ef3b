#include "pager/backing_file.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "io/error.h"

namespace outgrid {
namespace {

class FileBacking : public Backing {
 public:
  FileBacking(std::shared_ptr<File> file, std::int64_t data_offset, std::int64_t nbytes)
      : file_(std::move(file)), data_offset_(data_offset), nbytes_(nbytes) {
    if (file_->size() < data_offset + nbytes) {
      throw SystemError(ENODATA,
                        "the file ends at " + std::to_string(file_->size()) +
                            " bytes, before the " + std::to_string(nbytes) + " from " +
                            std::to_string(data_offset) + " on",
                        file_->path());
    }
  }

  const std::string& name() const override { return file_->path(); }
  std::int64_t nbytes() const override { return nbytes_; }

  std::int64_t read(std::int64_t offset, const iovec* vectors, int count) const override {
    return move(pread, ENODATA, offset, vectors, count);
  }

  std::int64_t write(std::int64_t offset, const iovec* vectors, int count) const override {
    return move(pwrite, EIO, offset, vectors, count);
  }

  std::int64_t flush() const override {
    return -file_->flushed(fdatasync(file_->buffered_fd()) == 0 ? 0 : errno);
  }

 private:
  template <typename Call>
  std::int64_t move(Call call, int at_end, std::int64_t offset, const iovec* vectors,
                    int count) const {
    std::int64_t moved = 0;
    for (int i = 0; i < count; ++i) {
      auto* place = static_cast<char*>(vectors[i].iov_base);
      auto left = static_cast<std::int64_t>(vectors[i].iov_len);
      const int fd = descriptor(offset + moved, reinterpret_cast<std::uintptr_t>(place), left);
      while (left > 0) {
        const ssize_t done =
            call(fd, place, static_cast<std::size_t>(left), data_offset_ + offset + moved);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return done < 0 ? -errno : -at_end;
        place += done;
        moved += done;
        left -= done;
      }
    }
    return moved;
  }

  // A page always takes the same road, so that the two descriptors never meet in one block.
  int descriptor(std::int64_t offset, std::uintptr_t address, std::int64_t nbytes) const {
    const bool whole = (data_offset_ + offset) % kBlock == 0 && nbytes % kBlock == 0;
    const bool aligned = address % static_cast<std::uintptr_t>(file_->memory_alignment()) == 0;
    return file_->is_direct() && whole && aligned ? file_->direct_fd() : file_->buffered_fd();
  }

  const std::shared_ptr<File> file_;
  const std::int64_t data_offset_;
  const std::int64_t nbytes_;
};

}  // namespace

std::shared_ptr<Backing> make_file_backing(std::shared_ptr<File> file, std::int64_t data_offset,
                                           std::int64_t nbytes) {
  return std::make_shared<FileBacking>(std::move(file), data_offset, nbytes);
}

}  // namespace outgrid
