// The memory that other ranks lend, through MPI's one-sided calls.
//
// 1. MPI is whatever library Python has loaded: its calls come in as addresses and its handles as
//    numbers. A handle is an int in some MPIs and a pointer in others; it is passed on as a word of
//    the machine's size, of which an int is the lower half in a register and on the stack alike.
// 2. Where MPI lets us see a rank's memory (MPI_Win_shared_query, one host), bytes are copied by
//    whoever moves them: MPI copies too, but under a lock, one thread at a time. Else they go by
//    MPI_Get and MPI_Put, and have arrived when MPI_Win_flush has returned for that rank.
// 3. Transfers run on any thread, without the interpreter; MPI must have been initialised with
//    MPI_THREAD_MULTIPLE, and the window be in an epoch of MPI_Win_lock_all.
// 4. A rank that was lost is named by `lose`; whatever touches it ends with EHOSTDOWN from then on.
// 5. A window that is going to be freed is closed before: `close` waits for transfers under way, as
//    that of a page that nobody asked for yet. What is put after it is dropped with the rest.
#pragma once

#include <atomic>
#include <cstddef>
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
  // `seen` has, for each rank, where its memory lies in this process, or zero. Throws
  // std::invalid_argument where the table lacks a name.
  MpiWindow(const MpiTable& table, std::vector<std::uintptr_t> seen);

  void lose(int rank);
  void close();
  // What MPI said when a call failed; empty so far.
  std::string error() const;

  struct Piece {  // consecutive bytes on both sides
    int rank;
    std::int64_t displacement;  // in its window
    std::byte* address;         // of our memory
    std::int64_t nbytes;
  };
  // Moves all pieces, out of our memory if `put`. Zero or an errno, when they are where they
  // belong.
  int move(bool put, const std::vector<Piece>& pieces) const;

 private:
  using Handle = std::uintptr_t;
  using Move = int (*)(void*, int, Handle, int, std::intptr_t, int, Handle, Handle);
  using Flush = int (*)(int, Handle);
  using Indexed = int (*)(int, const int*, const std::intptr_t*, Handle, Handle*);
  using OfType = int (*)(Handle*);
  using Text = int (*)(int, char*, int*);
  class Blocks;

  bool lost(int rank) const { return lost_[static_cast<std::size_t>(rank)]; }
  int start_whole(bool put, const Piece& piece) const;
  int start_together(bool put, const std::vector<Piece>& pieces) const;
  int finish(int rank) const;
  int failed(int code) const;

  Move get_, put_;
  Flush flush_;
  Indexed indexed_;
  OfType commit_, free_;
  Text text_;
  Handle byte_, window_;
  const std::vector<std::uintptr_t> seen_;
  std::vector<std::atomic<bool>> lost_;
  mutable std::shared_mutex open_;  // held by transfers
  bool closed_ = false;             // changed with it held alone
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
