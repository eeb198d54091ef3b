#include "remote/memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <stdexcept>
#include <utility>

namespace outgrid {
namespace {

constexpr int kMostAtOnce = 1 << 30;  // counts of MPI's calls are ints
// Pieces as long as this go one by one: one derived type of them was half as fast.
constexpr std::int64_t kWhole = 64 << 10;
constexpr int kLongestText = 8192;  // more than any MPI_MAX_ERROR_STRING

// Gets and puts begin one at a time. MPICH 5.0 grants MPI_THREAD_MULTIPLE, but on UCX it looks for
// what it knows of a rank before it takes its own lock, while the first get of another thread is
// still putting that into the same table.
std::mutex starting;

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
    auto index = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), offset) -
                                          starts_.begin() - 1);
    std::vector<MpiWindow::Piece> pieces;
    for (int i = 0; i < count; ++i) {
      auto* address = static_cast<std::byte*>(vectors[i].iov_base);
      auto left = static_cast<std::int64_t>(vectors[i].iov_len);
      while (left > 0) {
        const Lent& lent = parts_[index];
        const std::int64_t within = offset - starts_[index];
        const std::int64_t nbytes = std::min(lent.nbytes - within, left);
        pieces.push_back({lent.rank, lent.displacement + within, address, nbytes});
        address += nbytes;
        offset += nbytes;
        left -= nbytes;
        if (within + nbytes == lent.nbytes) ++index;
      }
    }
    const int error = window_->move(put, pieces);
    return error != 0 ? -error : total;
  }

  const std::shared_ptr<MpiWindow> window_;
  const std::string name_;
  const std::vector<Lent> parts_;
  std::vector<std::int64_t> starts_;
  std::int64_t nbytes_ = 0;
};

}  // namespace

// Consecutive blocks count as one.
class MpiWindow::Blocks {
 public:
  void add(std::intptr_t place, int nbytes) {
    if (!places_.empty() && places_.back() + lengths_.back() == place &&
        lengths_.back() <= kMostAtOnce - nbytes) {
      lengths_.back() += nbytes;
      return;
    }
    places_.push_back(place);
    lengths_.push_back(nbytes);
  }

  int make(const MpiWindow& mpi, Handle& type) const {
    const int code = mpi.indexed_(static_cast<int>(places_.size()), lengths_.data(), places_.data(),
                                  mpi.byte_, &type);
    return code != 0 ? code : mpi.commit_(&type);
  }

 private:
  std::vector<int> lengths_;
  std::vector<std::intptr_t> places_;
};

MpiWindow::MpiWindow(const MpiTable& table, std::vector<std::uintptr_t> seen)
    : get_(call<Move>(table, "MPI_Get")),
      put_(call<Move>(table, "MPI_Put")),
      flush_(call<Flush>(table, "MPI_Win_flush")),
      indexed_(call<Indexed>(table, "MPI_Type_create_hindexed")),
      commit_(call<OfType>(table, "MPI_Type_commit")),
      free_(call<OfType>(table, "MPI_Type_free")),
      text_(call<Text>(table, "MPI_Error_string")),
      byte_(entry(table, "MPI_BYTE")),
      window_(entry(table, "window")),
      seen_(std::move(seen)),
      lost_(seen_.size()) {}

void MpiWindow::lose(int rank) { lost_.at(static_cast<std::size_t>(rank)) = true; }

void MpiWindow::close() {
  std::lock_guard lock(open_);
  closed_ = true;
}

std::string MpiWindow::error() const {
  std::lock_guard lock(mutex_);
  return error_;
}

int MpiWindow::move(bool put, const std::vector<Piece>& pieces) const {
  const std::shared_lock use(open_);
  if (closed_) return put ? 0 : ESHUTDOWN;
  std::vector<Piece> whole;
  std::map<int, std::vector<Piece>> small;
  for (const Piece& piece : pieces) {
    const std::uintptr_t seen = seen_.at(static_cast<std::size_t>(piece.rank));
    if (lost(piece.rank)) return EHOSTDOWN;
    if (seen != 0) {
      auto* there = reinterpret_cast<std::byte*>(seen) + piece.displacement;
      std::memcpy(put ? there : piece.address, put ? piece.address : there,
                  static_cast<std::size_t>(piece.nbytes));
    } else if (piece.nbytes < kWhole) {
      small[piece.rank].push_back(piece);
    } else {
      whole.push_back(piece);
    }
  }
  if (whole.empty() && small.empty()) return 0;
  std::set<int> touched;
  int error = 0;
  {
    const std::lock_guard alone(starting);
    for (const Piece& piece : whole) {
      if (error != 0) break;
      touched.insert(piece.rank);
      error = start_whole(put, piece);
    }
    for (const auto& [rank, several] : small) {
      if (error != 0) break;
      touched.insert(rank);
      error = several.size() == 1 ? start_whole(put, several[0]) : start_together(put, several);
    }
  }
  // What began must end, whatever fails besides.
  for (const int rank : touched) {
    const int code = finish(rank);
    if (error == 0) error = code;
  }
  return error;
}

int MpiWindow::start_whole(bool put, const Piece& piece) const {
  for (std::int64_t done = 0; done < piece.nbytes; done += kMostAtOnce) {
    const auto nbytes = static_cast<int>(std::min<std::int64_t>(piece.nbytes - done, kMostAtOnce));
    const int code = (put ? put_ : get_)(piece.address + done, nbytes, byte_, piece.rank,
                                         piece.displacement + done, nbytes, byte_, window_);
    if (code != 0) return failed(code);
  }
  return 0;
}

// Pieces of one rank, as one message of derived types.
int MpiWindow::start_together(bool put, const std::vector<Piece>& pieces) const {
  Blocks ours;
  Blocks theirs;
  for (const Piece& piece : pieces) {
    const auto nbytes = static_cast<int>(piece.nbytes);
    ours.add(piece.address - pieces[0].address, nbytes);
    theirs.add(piece.displacement, nbytes);
  }
  Handle here = 0;
  Handle there = 0;
  int code = ours.make(*this, here);
  if (code != 0) return failed(code);
  code = theirs.make(*this, there);
  if (code == 0) {
    code = (put ? put_ : get_)(pieces[0].address, 1, here, pieces[0].rank, 0, 1, there, window_);
    free_(&there);  // goes when the transfer has ended
  }
  free_(&here);
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
