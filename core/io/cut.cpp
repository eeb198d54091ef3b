#include "io/cut.h"

#include <algorithm>

#include "io/file.h"

namespace outgrid {
namespace {

// Fewer bytes than this are not worth a request of their own: they are copied with their
// neighbours.
constexpr std::int64_t kSmallestDirect = 64 << 10;
constexpr std::size_t kMostVectors = 1024;  // the kernel's UIO_MAXIOV

std::int64_t floor_block(std::int64_t value) { return value / kBlock * kBlock; }
std::int64_t ceil_block(std::int64_t value) { return (value + kBlock - 1) / kBlock * kBlock; }

void append(std::vector<Extent>& extents, const Segment& piece, std::int64_t first,
            std::int64_t last, Road road) {
  if (last <= first) return;
  const std::int64_t before = first - piece.offset;
  extents.push_back({first, piece.address + before, last - first, piece.position + before, road});
}

// The part [first, last) of a piece, which may use whole blocks.
void divide_inner(std::vector<Extent>& extents, const Segment& piece, std::int64_t first,
                  std::int64_t last, const CutRules& rules) {
  if (last <= first) return;
  const std::int64_t block_first = ceil_block(first);
  const std::int64_t block_last = floor_block(last);
  const bool whole = block_first == first && block_last == last;
  const bool aligned = (piece.address + (block_first - piece.offset)) % rules.memory_alignment == 0;
  const bool worth = whole || block_last - block_first >= kSmallestDirect;
  if (block_last > block_first && aligned && worth && !rules.translates) {
    append(extents, piece, first, block_first, Road::staged);
    append(extents, piece, block_first, block_last, Road::direct);
    append(extents, piece, block_last, last, Road::staged);
  } else {
    append(extents, piece, first, last, Road::staged);
  }
}

void divide_run(std::vector<Extent>& extents, std::span<const Segment> run, const CutRules& rules) {
  std::int64_t inner_first = run.front().offset;
  std::int64_t inner_last = run.back().offset + run.back().nbytes;
  if (!rules.direct) {
    inner_last = inner_first;
  } else if (rules.writes) {
    inner_first = ceil_block(inner_first);
    inner_last = std::max(inner_first, floor_block(inner_last));
  }
  const Road edge = rules.translates ? Road::gathered : Road::buffered;
  for (const Segment& piece : run) {
    const std::int64_t first = piece.offset;
    const std::int64_t last = piece.offset + piece.nbytes;
    append(extents, piece, first, std::min(last, inner_first), edge);
    divide_inner(extents, piece, std::max(first, inner_first), std::min(last, inner_last), rules);
    append(extents, piece, std::max(first, inner_last), last, edge);
  }
}

}  // namespace

std::vector<Extent> divide(std::span<const Segment> segments, const CutRules& rules) {
  std::vector<Segment> pieces;  // contiguous in both file and memory
  pieces.reserve(segments.size());
  for (const Segment& segment : segments) {
    if (segment.nbytes == 0) continue;
    if (!pieces.empty()) {
      Segment& last = pieces.back();
      if (last.offset + last.nbytes == segment.offset &&
          last.address + last.nbytes == segment.address &&
          last.position + last.nbytes == segment.position) {
        last.nbytes += segment.nbytes;
        continue;
      }
    }
    pieces.push_back(segment);
  }
  std::vector<Extent> extents;
  extents.reserve(pieces.size() + 4);
  for (std::size_t first = 0; first < pieces.size();) {
    std::size_t last = first + 1;
    while (last < pieces.size() &&
           pieces[last - 1].offset + pieces[last - 1].nbytes == pieces[last].offset) {
      ++last;
    }
    divide_run(extents, std::span(pieces).subspan(first, last - first), rules);
    first = last;
  }
  return extents;
}

bool cut_next(std::span<const Extent> extents, const CutRules& rules, Cursor& cursor, Cut& cut) {
  if (cursor.index == extents.size()) return false;
  const Road road = extents[cursor.index].road;
  const bool copied = is_copied(road), blocks = road == Road::staged;
  const std::int64_t first = extents[cursor.index].offset + cursor.nbytes;
  cut.road = road;
  cut.offset = blocks ? floor_block(first) : first;
  cut.vectors.clear();
  cut.pieces.clear();
  const std::int64_t bound = cut.offset + (copied ? rules.staging_bytes : rules.request_bytes);
  std::int64_t end = first;
  while (cursor.index < extents.size() && end < bound && cut.vectors.size() < kMostVectors) {
    const Extent& extent = extents[cursor.index];
    if (extent.road != road || extent.offset + cursor.nbytes != end) break;
    const std::int64_t taken = std::min(extent.nbytes - cursor.nbytes, bound - end);
    const std::int64_t address = extent.address + cursor.nbytes;
    cut.pieces.push_back({end - cut.offset, address, taken, extent.position + cursor.nbytes});
    if (!copied) {
      cut.vectors.push_back({reinterpret_cast<void*>(address), static_cast<std::size_t>(taken)});
    }
    end += taken;
    cursor.nbytes += taken;
    if (cursor.nbytes == extent.nbytes) cursor = {cursor.index + 1, 0};
  }
  cut.payload = end - first;
  cut.needed = end - cut.offset;
  cut.nbytes = (blocks ? ceil_block(end) : end) - cut.offset;
  return true;
}

}  // namespace outgrid
