// Cutting a transfer into requests. Pure: no system calls, no memory is touched.
//
// 1. `divide` looks at the segments of one transfer and gives every byte one of three roads:
//      direct    whole blocks whose memory is aligned: no copy
//      staged    through an aligned staging area: reads of ragged ends, whole blocks in unaligned
//      memory buffered  through the page cache: written partial blocks, and everything where direct
//      is refused
//      gathered  the same bytes as buffered ones, through the staging area all the same
//    Segments that follow each other in the file are one run. A write goes buffered only in the
//    partial blocks at the two ends of a run; a ragged joint inside a run is gathered into whole
//    blocks. What is written of folded rows and what is moved of rows in parts (folding.h) is not
//    what lies in memory: it goes staged and gathered, and the addresses of its pieces mean
//    nothing.
// 2. `cut_next` joins neighbouring extents of one road into a request of bounded size.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace outgrid {

struct Segment {
  std::int64_t offset;  // in the file
  std::int64_t address;
  std::int64_t nbytes;
  std::int64_t position = 0;  // of its first byte among those of the transfer
};

enum class Road { direct, staged, buffered, gathered };

// Whether a road goes through the staging area, and whether it goes through the page cache: then it
// need not keep to blocks.
constexpr bool is_copied(Road road) { return road == Road::staged || road == Road::gathered; }
constexpr bool is_cached(Road road) { return road == Road::buffered || road == Road::gathered; }

struct Extent {
  std::int64_t offset;
  std::int64_t address;
  std::int64_t nbytes;
  std::int64_t position;
  Road road;
};

struct CutRules {
  bool writes;
  bool direct;
  std::int64_t memory_alignment;
  std::int64_t request_bytes;  // bound of one request, a multiple of the block
  std::int64_t staging_bytes;  // bound of one staged request, a multiple of the block
  bool translates = false;     // what is moved is not what lies in memory
};

std::vector<Extent> divide(std::span<const Segment> segments, const CutRules& rules);

// Where cutting stands: `nbytes` of extent `index` are already cut off.
struct Cursor {
  std::size_t index = 0;
  std::int64_t nbytes = 0;
};

// One piece of a request: the `nbytes` at `address`, `within` it of what it moves, from `position`
// on of all bytes of the transfer.
struct Piece {
  std::int64_t within;
  std::int64_t address;
  std::int64_t nbytes;
  std::int64_t position;
};

struct Cut {
  Road road;
  std::int64_t offset;         // of the transfer in the file
  std::int64_t nbytes;         // of the transfer, with the blocks around staged reads
  std::int64_t needed;         // the transfer must reach at least this far
  std::int64_t payload;        // bytes that the caller asked for
  std::vector<iovec> vectors;  // the memory of a direct or buffered request
  std::vector<Piece> pieces;   // what belongs to the caller
};

// Fills `cut` (whose lists keep their capacity) with the next request; false at the end.
bool cut_next(std::span<const Extent> extents, const CutRules& rules, Cursor& cursor, Cut& cut);

}  // namespace outgrid
