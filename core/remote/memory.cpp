#include "remote/memory.h"

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <utility>

namespace outgrid {
namespace {

constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // counts of MPI's calls are ints
constexpr int kLongestText = 8192;                         // more than any MPI_MAX_ERROR_STRING

std::uintptr_t entry(const MpiTable& table, const char* name) {
  const auto found = table.find(name);
  if (found == table.end()) throw std::invalid_argument(std::string("no ") + name + " given");
  return found->second;
}

template <typename Call>
Call call(const MpiTable& table, const char* name) {
  return reinterpret_cast<Call>(entry(table, name));
}

class RemoteBacking : public Backing {
 public:
  RemoteBacking(std::shared_ptr<MpiWindow> window, std::string name, const std::vector<Lent>& parts)
      : window_(std::move(window)), name_(std::move(name)), parts_(parts) {
    for (const Lent& part : parts_) {
      if (part.nbytes <= 0) throw std::invalid_argument("a part holds no bytes");
      starts_.push_back(nbytes_);
      nbytes_ += part.nbytes;
    }
  }

  const std::string& name() const override { return name_; }
  std::int64_t nbytes() const override { return nbytes_; }
  std::int64_t read(std::int64_t offset, const iovec* vectors, int count) const override {
    return move(false, offset, vectors, count);
  }
  std::int64_t write(std::int64_t offset, const iovec* vectors, int count) const override {
    return move(true, offset, vectors, count);
  }
  std::int64_t flush() const override { return 0; }

 private:
  std::int64_t move(bool put, std::int64_t offset, const iovec* vectors, int count) const {
    std::int64_t total = 0;
    for (int i = 0; i < count; ++i) total += static_cast<std::int64_t>(vectors[i].iov_len);
    if (offset < 0 || offset + total > nbytes_) return put ? -ENOSPC : -ENODATA;
    const auto use = window_->use();
    if (window_->closed()) return put ? total : -ESHUTDOWN;
    auto index = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), offset) -
                                          starts_.begin() - 1);
    std::vector<int> touched;
    std::vector<MpiWindow::Piece> pieces;
    int error = 0;
    int vector = 0;
    std::size_t taken = 0;  // of that vector
    // What began must end, whatever fails besides.
    for (std::int64_t done = 0; done < total && error == 0;) {
      const Lent& lent = parts_[index];
      const std::int64_t within = offset + done - starts_[index];
      auto left = static_cast<std::size_t>(std::min(lent.nbytes - within, total - done));
      left = std::min(left, kMostAtOnce);
      pieces.clear();
      std::size_t nbytes = 0;
      while (nbytes < left) {
        const std::size_t part = std::min(vectors[vector].iov_len - taken, left - nbytes);
        if (part > 0) {
          pieces.push_back({static_cast<std::byte*>(vectors[vector].iov_base) + taken, part});
        }
        nbytes += part;
        taken += part;
        if (taken == vectors[vector].iov_len) {
          ++vector;
          taken = 0;
        }
      }
      error = window_->start(put, lent.rank, lent.displacement + within, pieces);
      if (std::find(touched.begin(), touched.end(), lent.rank) == touched.end()) {
        touched.push_back(lent.rank);
      }
      done += static_cast<std::int64_t>(nbytes);
      if (within + static_cast<std::int64_t>(nbytes) == lent.nbytes) ++index;
    }
    for (const int rank : touched) {
      const int code = window_->finish(rank);
      if (error == 0) error = code;
    }
    return error != 0 ? -error : total;
  }

  const std::shared_ptr<MpiWindow> window_;
  const std::string name_;
  const std::vector<Lent> parts_;
  std::vector<std::int64_t> starts_;
  std::int64_t nbytes_ = 0;
};

}  // namespace

MpiWindow::MpiWindow(const MpiTable& table, int ranks)
    : get_(call<Move>(table, "MPI_Get")),
      put_(call<Move>(table, "MPI_Put")),
      flush_(call<Flush>(table, "MPI_Win_flush")),
      indexed_(call<Indexed>(table, "MPI_Type_create_hindexed")),
      commit_(call<OfType>(table, "MPI_Type_commit")),
      free_(call<OfType>(table, "MPI_Type_free")),
      text_(call<Text>(table, "MPI_Error_string")),
      byte_(entry(table, "MPI_BYTE")),
      window_(entry(table, "window")),
      lost_(static_cast<std::size_t>(ranks)) {}

void MpiWindow::lose(int rank) { lost_.at(static_cast<std::size_t>(rank)) = true; }

void MpiWindow::close() {
  std::lock_guard lock(open_);
  closed_ = true;
}

std::string MpiWindow::error() const {
  std::lock_guard lock(mutex_);
  return error_;
}

int MpiWindow::start(bool put, int rank, std::int64_t displacement,
                     const std::vector<Piece>& pieces) const {
  if (lost(rank)) return EHOSTDOWN;
  const Move move = put ? put_ : get_;
  std::size_t nbytes = 0;
  for (const Piece& piece : pieces) nbytes += piece.nbytes;
  const int bytes = static_cast<int>(nbytes);
  if (pieces.size() == 1) {
    return failed(move(pieces[0].address, bytes, byte_, rank, displacement, bytes, byte_, window_));
  }
  // Pieces that are scattered here and follow each other there are one message all the same.
  std::vector<int> lengths;
  std::vector<std::intptr_t> places;
  auto* base = static_cast<std::byte*>(pieces[0].address);
  for (const Piece& piece : pieces) {
    lengths.push_back(static_cast<int>(piece.nbytes));
    places.push_back(static_cast<std::byte*>(piece.address) - base);
  }
  Handle type = 0;
  int code = indexed_(static_cast<int>(pieces.size()), lengths.data(), places.data(), byte_, &type);
  if (code != 0) return failed(code);
  code = commit_(&type);
  if (code == 0) code = move(base, 1, type, rank, displacement, bytes, byte_, window_);
  free_(&type);  // goes when the transfer has ended
  return failed(code);
}

int MpiWindow::finish(int rank) const {
  if (lost(rank)) return EHOSTDOWN;
  const int code = failed(flush_(rank, window_));
  return lost(rank) ? EHOSTDOWN : code;
}

int MpiWindow::failed(int code) const {
  if (code == 0) return 0;
  std::string text(kLongestText, '\0');
  int length = 0;
  text_(code, text.data(), &length);
  text.resize(static_cast<std::size_t>(std::clamp(length, 0, kLongestText)));
  std::lock_guard lock(mutex_);
  if (error_.empty()) error_ = text;
  return EIO;
}

std::shared_ptr<Backing> make_remote_backing(std::shared_ptr<MpiWindow> window, std::string name,
                                             const std::vector<Lent>& parts) {
  return std::make_shared<RemoteBacking>(std::move(window), std::move(name), parts);
}

}  // namespace outgrid
