// The memory that other ranks lend, through MPI's one-sided calls.
//
// 1. MPI is whatever library Python has loaded: its calls come in as addresses and its handles as
//    numbers. A handle is an int in some MPIs and a pointer in others; it is passed on as a word of
//    the machine's size, of which an int is the lower half in a register and on the stack alike.
// 2. Transfers run on any thread, without the interpreter; MPI must have been initialised with
//    MPI_THREAD_MULTIPLE, and the window be in an epoch of MPI_Win_lock_all.
// 3. A transfer has ended when MPI_Win_flush has returned for every rank that it touched: then
// bytes
//    that were put are in that rank's memory, and bytes that were got in ours.
// 4. A rank that was lost is named by `lose`; whatever touches it ends with EHOSTDOWN from then on.
// 5. A window that is going to be freed is closed before: `close` waits for transfers under way, as
//    that of a page that nobody asked for yet. What is put after it is dropped with the rest.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "io/backing.h"

namespace outgrid {

// Addresses of MPI's functions and handles of its objects, by name.
using MpiTable = std::map<std::string, std::uintptr_t>;

class MpiWindow {
 public:
  // Throws std::invalid_argument where the table lacks a name.
  MpiWindow(const MpiTable& table, int ranks);

  void lose(int rank);
  bool lost(int rank) const { return lost_[static_cast<std::size_t>(rank)]; }
  void close();
  // While the lock is held the window stays open, if it still was when the lock was taken.
  std::shared_lock<std::shared_mutex> use() const { return std::shared_lock(open_); }
  bool closed() const { return closed_; }
  // What MPI said when a call failed; empty so far.
  std::string error() const;

  struct Piece {  // of our memory
    void* address;
    std::size_t nbytes;
  };
  // Starts to move `pieces` from (or to) the bytes of `rank` that begin at `displacement`.
  int start(bool put, int rank, std::int64_t displacement, const std::vector<Piece>& pieces) const;
  int finish(int rank) const;

 private:
  using Handle = std::uintptr_t;
  using Move = int (*)(void*, int, Handle, int, std::intptr_t, int, Handle, Handle);
  using Flush = int (*)(int, Handle);
  using Indexed = int (*)(int, const int*, const std::intptr_t*, Handle, Handle*);
  using OfType = int (*)(Handle*);
  using Text = int (*)(int, char*, int*);

  int failed(int code) const;

  Move get_, put_;
  Flush flush_;
  Indexed indexed_;
  OfType commit_, free_;
  Text text_;
  Handle byte_, window_;
  std::vector<std::atomic<bool>> lost_;
  mutable std::shared_mutex open_;
  bool closed_ = false;  // changed with `open_` held
  mutable std::mutex mutex_;
  mutable std::string error_;
};

// Consecutive bytes of a field, and the rank and place in its window where they are.
struct Lent {
  std::int64_t nbytes;
  int rank;
  std::int64_t displacement;
};

std::shared_ptr<Backing> make_remote_backing(std::shared_ptr<MpiWindow> window, std::string name,
                                             const std::vector<Lent>& parts);

}  // namespace outgrid
