#include "io/outlet.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace outgrid {
namespace {

constexpr std::int64_t kBlockBytes = 64 << 10;
constexpr std::int64_t kLeastBlocks = 64;
constexpr std::size_t kMostPieces = 4;  // of one request: larger ones take the page cache longer
constexpr std::int64_t kBeginBytes = 4 << 20;  // after which the disk is to begin

// Adds a range to sorted ones that are apart, and joins those that touch.
void add(std::vector<std::pair<std::int64_t, std::int64_t>>& ranges, std::int64_t begin,
         std::int64_t end) {
  auto at = std::lower_bound(ranges.begin(), ranges.end(), std::pair{begin, end});
  if (at != ranges.begin() && std::prev(at)->second >= begin) --at;
  auto last = at;
  while (last != ranges.end() && last->first <= end) {
    begin = std::min(begin, last->first), end = std::max(end, last->second);
    ++last;
  }
  at = ranges.erase(at, last);
  ranges.insert(at, {begin, end});
}

iovec piece(char* data, const std::pair<std::int64_t, std::int64_t>& range) {
  return {data + range.first, static_cast<std::size_t>(range.second - range.first)};
}

}  // namespace

Outlet::Outlet(std::vector<int> descriptors, std::int64_t held_bytes)
    : descriptors_(std::move(descriptors)) {
  put = [](OutletDoor* door, std::int64_t file, std::int64_t at, const void* from,
           std::int64_t nbytes) {
    auto* outlet = static_cast<Outlet*>(door);
    const char* next = static_cast<const char*>(from);
    while (nbytes > 0) {
      const std::int64_t begin = at % kBlockBytes;
      const std::int64_t part = std::min(nbytes, kBlockBytes - begin);
      outlet->take({file, at / kBlockBytes}, begin, next, part);
      at += part, next += part, nbytes -= part;
    }
  };
  const std::int64_t count = std::max(kLeastBlocks, held_bytes / kBlockBytes);
  memory_ = std::make_unique<Buffer>(static_cast<std::size_t>(count * kBlockBytes), true, false);
  blocks_.resize(static_cast<std::size_t>(count));
  for (std::int64_t n = count; n > 0; --n) {
    Block& block = blocks_[static_cast<std::size_t>(n - 1)];
    block.data = static_cast<char*>(memory_->data()) + (n - 1) * kBlockBytes;
    free_.push_back(&block);
  }
  writer_.start([this] { write_all(); });
}

void Outlet::stop() {
  const std::lock_guard lock(mutex_);
  ends_ = true;
  filled_.notify_all();
}

Outlet::Failure Outlet::failure() const {
  const std::int64_t found = failure_.load(std::memory_order_relaxed);
  return {static_cast<int>(found >> 32), static_cast<int>(found & 0xFFFFFFFF)};
}

void Outlet::drain() {
  if (!here()) return;
  std::unique_lock lock(mutex_);
  evict(open_.size());
  filled_.notify_one();
  freed_.wait(lock, [this] { return full_.empty() && !writing_; });
}

void Outlet::take(const Key& key, std::int64_t begin, const char* from, std::int64_t nbytes) {
  std::unique_lock lock(mutex_);
  Block* block = open(key, lock);
  ++block->copying;
  lock.unlock();
  std::memcpy(block->data + begin, from, static_cast<std::size_t>(nbytes));
  lock.lock();
  --block->copying;
  add(block->filled, begin, begin + nbytes);
  if (block->copying > 0) return;
  if (block->filled.front() == std::pair{std::int64_t{0}, kBlockBytes}) {
    open_.erase(block->key);
    full_.push_back(block);
    filled_.notify_one();
  } else if (waiting_ > 0) {
    freed_.notify_all();
  }
}

// The block of that key. Where none is free, and none is about to be, the older half of those that
// are open is let go.
Outlet::Block* Outlet::open(const Key& key, std::unique_lock<std::mutex>& lock) {
  for (;;) {
    if (const auto there = open_.find(key); there != open_.end()) return there->second;
    if (!free_.empty()) break;
    if (full_.empty() && !writing_) {
      evict(blocks_.size() / 2);
      filled_.notify_one();
    }
    ++waiting_;
    freed_.wait(lock);
    --waiting_;
  }
  Block* block = free_.back();
  free_.pop_back();
  block->key = key;
  block->opened = opened_++;
  block->filled.clear();
  open_[key] = block;
  return block;
}

// Lets so many of the oldest blocks that nobody copies into be written as they are.
void Outlet::evict(std::size_t count) {
  std::vector<Block*> idle;
  for (const auto& [key, block] : open_) {
    if (block->copying == 0) idle.push_back(block);
  }
  count = std::min(count, idle.size());
  std::nth_element(idle.begin(), idle.begin() + static_cast<std::ptrdiff_t>(count), idle.end(),
                   [](const Block* a, const Block* b) { return a->opened < b->opened; });
  for (std::size_t n = 0; n < count; ++n) {
    open_.erase(idle[n]->key);
    full_.push_back(idle[n]);
  }
}

void Outlet::write_all() {
  std::unique_lock lock(mutex_);
  std::int64_t behind = 0;  // bytes that the disk was not told of
  for (;;) {
    filled_.wait(lock, [this] { return ends_ || !full_.empty(); });
    if (full_.empty()) return;
    std::vector<Block*> some;
    some.swap(full_);
    writing_ = true;
    lock.unlock();
    std::sort(some.begin(), some.end(),
              [](const Block* a, const Block* b) { return a->key < b->key; });
    for (std::size_t n = 0; n < some.size();) {
      const std::size_t first = n;
      std::vector<iovec> pieces;
      const auto [file, number] = some[first]->key;
      std::int64_t at = number * kBlockBytes + some[first]->filled.front().first, end = at;
      for (; n < some.size() && pieces.size() < kMostPieces; ++n) {
        const Block& block = *some[n];
        const auto& filled = block.filled;
        const std::int64_t begin = block.key.second * kBlockBytes;
        if (block.key.first != file || begin + filled.front().first != end) break;
        pieces.push_back(piece(block.data, filled.front()));
        end = begin + filled.front().second;
        if (filled.size() > 1) {
          ++n;
          break;
        }
      }
      write(file, at, pieces);
      const Block& last = *some[n - 1];
      for (std::size_t k = 1; k < last.filled.size(); ++k) {
        write(file, last.key.second * kBlockBytes + last.filled[k].first,
              {piece(last.data, last.filled[k])});
      }
    }
    behind += static_cast<std::int64_t>(some.size()) * kBlockBytes;
    if (behind >= kBeginBytes) {
      // What fails here fails again where the file is made durable.
      for (const int file : descriptors_) (void)sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE);
      behind = 0;
    }
    lock.lock();
    writing_ = false;
    free_.insert(free_.end(), some.begin(), some.end());
    freed_.notify_all();
  }
}

// Writes the pieces one behind the other, from a place of the file on.
void Outlet::write(std::int64_t file, std::int64_t at, std::vector<iovec> pieces) {
  const int descriptor = descriptors_[static_cast<std::size_t>(file)];
  for (iovec* next = pieces.data(); next != pieces.data() + pieces.size();) {
    const auto count = pieces.data() + pieces.size() - next;
    ssize_t n = pwritev(descriptor, next, static_cast<int>(count), at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      failure_.store(file << 32 | (n < 0 ? errno : EIO), std::memory_order_relaxed);
      return;
    }
    at += n;
    for (; n > 0;) {
      const auto part = std::min(static_cast<std::size_t>(n), next->iov_len);
      next->iov_base = static_cast<char*>(next->iov_base) + part;
      next->iov_len -= part, n -= static_cast<ssize_t>(part);
      if (next->iov_len == 0) ++next;
    }
  }
}

}  // namespace outgrid
