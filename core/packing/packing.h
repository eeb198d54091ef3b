// Planes of numbers of 4 or 8 bytes, exactly, in fewer bytes: for values that are read in every
// sweep and change smoothly, or seldom, from row to row.
//
//   a plane    one byte per row, how it is predicted; one byte per block, the bits of a number in
//              it; then the blocks of all rows, in order
//   a row      what is kept of each number, as a whole one, is its difference from what is
//              predicted: nothing, the number above, or twice that less the one above it. Signs are
//              folded into the last bit, so that small differences have few bits.
//   a block    up to 32 or 64 vectors of 64 bytes, cut to the bits of the largest number: lane by
//              lane of a vector, so that a vector of numbers is taken out by shifts of vectors.
//
// A plane can be unpacked in the memory that it is unpacked to: its packed bytes lie at the end of
// it, and what is written never overtakes what is read. `pack` makes sure of that.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outgrid {

// Where the rows of a plane are, each of `row_bytes`, from row to row `stride`.
struct Plane {
  std::byte* data;
  std::int64_t rows;
  std::int64_t row_bytes;
  std::int64_t stride;
  std::int64_t item_bytes;

  std::int64_t extent() const { return (rows - 1) * stride + row_bytes; }
};

// Bytes of a packed plane and its checksum; 0 bytes where it cannot be packed into less than
// `room`, or, ending `margin` before the end of a plane without gaps between rows, not be unpacked
// in it.
struct Packed {
  std::int64_t nbytes;
  std::uint64_t sum;
};

Packed pack(const Plane& plane, std::byte* into, std::int64_t room, std::int64_t margin);

// Unpacks into `plane`, in whose memory the packed bytes may lie. False where these are not what
// was packed, by their checksum or by what they say.
bool unpack(const std::byte* from, Packed packed, const Plane& plane);

}  // namespace outgrid
