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
  for (std::int64_t n = std::max(kLeastBlocks, held_bytes / kBlockBytes); n > 0; --n) {
    blocks_.push_back(std::make_unique<Block>());
    free_.push_back(blocks_.back().get());
  }
  writer_ = std::thread([this] { write_all(); });
}

Outlet::~Outlet() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  filled_.notify_all();
  writer_.join();
}

Outlet::Failure Outlet::failure() const {
  const std::int64_t found = failure_.load(std::memory_order_relaxed);
  return {static_cast<int>(found >> 32), static_cast<int>(found & 0xFFFFFFFF)};
}

void Outlet::drain() {
  std::unique_lock lock(mutex_);
  while (evict()) {
  }
  filled_.notify_one();
  freed_.wait(lock, [this] { return full_.empty() && !writing_; });
}

void Outlet::take(const Key& key, std::int64_t begin, const char* from, std::int64_t nbytes) {
  std::unique_lock lock(mutex_);
  Block* block = open(key);
  if (block == nullptr) {
    lock.unlock();
    write(key.first, key.second * kBlockBytes + begin, from, nbytes);
    return;
  }
  ++block->copying;
  lock.unlock();
  std::memcpy(block->data.data() + begin, from, static_cast<std::size_t>(nbytes));
  lock.lock();
  --block->copying;
  add(block->filled, begin, begin + nbytes);
  const bool whole = block->filled.front() == std::pair{std::int64_t{0}, kBlockBytes};
  if (whole && block->copying == 0) {
    open_.erase(block->key);
    full_.push_back(block);
    filled_.notify_one();
  }
}

// The block of that key; null where none is free. Then half of those that are open are let go, so
// that there are some for what comes next.
Outlet::Block* Outlet::open(const Key& key) {
  if (const auto there = open_.find(key); there != open_.end()) return there->second;
  if (free_.empty()) {
    if (full_.empty() && !writing_) {
      for (std::size_t n = blocks_.size() / 2; n > 0 && evict(); --n) {
      }
      filled_.notify_one();
    }
    return nullptr;
  }
  Block* block = free_.back();
  free_.pop_back();
  block->key = key;
  block->opened = opened_++;
  block->filled.clear();
  block->data.resize(static_cast<std::size_t>(kBlockBytes));
  open_[key] = block;
  return block;
}

// Lets the oldest block that nobody copies into be written as it is; false where there is none.
bool Outlet::evict() {
  auto oldest = open_.end();
  for (auto at = open_.begin(); at != open_.end(); ++at) {
    if (at->second->copying > 0) continue;
    if (oldest == open_.end() || at->second->opened < oldest->second->opened) oldest = at;
  }
  if (oldest == open_.end()) return false;
  full_.push_back(oldest->second);
  open_.erase(oldest);
  return true;
}

void Outlet::write_all() {
  std::unique_lock lock(mutex_);
  std::int64_t behind = 0;  // bytes that the disk was not told of
  for (;;) {
    filled_.wait(lock, [this] { return ends_ || !full_.empty(); });
    if (full_.empty()) return;
    std::deque<Block*> some;
    some.swap(full_);
    writing_ = true;
    lock.unlock();
    for (const Block* block : some) {
      const auto [file, number] = block->key;
      for (const auto& [begin, end] : block->filled) {
        write(file, number * kBlockBytes + begin, block->data.data() + begin, end - begin);
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

void Outlet::write(std::int64_t file, std::int64_t at, const char* from, std::int64_t nbytes) {
  const int descriptor = descriptors_[static_cast<std::size_t>(file)];
  for (std::int64_t done = 0; done < nbytes;) {
    const ssize_t n =
        pwrite(descriptor, from + done, static_cast<std::size_t>(nbytes - done), at + done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      failure_.store(file << 32 | (n < 0 ? errno : EIO), std::memory_order_relaxed);
      return;
    }
    done += n;
  }
}

}  // namespace outgrid
