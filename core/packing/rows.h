// Rows of packed planes. Compiled once for each width of vectors.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "packing/packing.h"

namespace outgrid {
namespace {

enum Prediction : std::uint8_t { kNothing = 0, kAbove = 1, kLine = 2, kPredictions = 3 };

constexpr std::int64_t kVectorBytes = 64;
constexpr std::int64_t kAside = 1 << 16;  // the last bytes of a plane, which are copied before

// Numbers on the heap, zeroes at first. Of std::vector the linker would keep one copy for the whole
// module, and that may be the one for wide vectors, which other processors do not have.
template <typename Number>
class Array {
 public:
  explicit Array(std::int64_t count) : data_(new Number[static_cast<std::size_t>(count)]()) {}
  ~Array() { delete[] data_; }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  Number* data() const { return data_; }
  Number& operator[](std::int64_t index) const { return data_[index]; }

 private:
  Number* const data_;
};

// Whole numbers as wide as the items of a plane.
template <typename Word>
struct Rows {
  static constexpr int kBits = 8 * sizeof(Word);
  static constexpr std::int64_t kLanes = kVectorBytes / sizeof(Word);
  static constexpr std::int64_t kBlock = kBits * kLanes;  // numbers

  std::int64_t count;   // numbers of a row
  std::int64_t blocks;  // of a row

  explicit Rows(std::int64_t row_bytes)
      : count(row_bytes / static_cast<std::int64_t>(sizeof(Word))),
        blocks((count + kBlock - 1) / kBlock) {}

  std::int64_t header_bytes(std::int64_t rows) const { return rows * (1 + blocks); }

  std::int64_t vectors(std::int64_t block) const {
    return (std::min(kBlock, count - block * kBlock) + kLanes - 1) / kLanes;
  }

  // Vectors of words that hold the numbers of a block.
  static std::int64_t words(std::int64_t vectors, int bits) {
    return (vectors * bits + kBits - 1) / kBits;
  }

  static Word fold(Word difference) {
    return static_cast<Word>(difference << 1) ^ static_cast<Word>(0 - (difference >> (kBits - 1)));
  }

  static Word unfold(Word folded) {
    return static_cast<Word>(folded >> 1) ^ static_cast<Word>(0 - (folded & 1));
  }

  // What is kept of a row; `above` and `upper` are the rows before it.
  void differ(Prediction from, const Word* row, const Word* above, const Word* upper,
              Word* kept) const {
    if (from == kNothing) {
      std::copy(row, row + count, kept);
    } else if (from == kAbove) {
      for (std::int64_t i = 0; i < count; ++i) kept[i] = fold(row[i] - above[i]);
    } else {
      for (std::int64_t i = 0; i < count; ++i) kept[i] = fold(row[i] - (2 * above[i] - upper[i]));
    }
  }

  int bits(const Word* kept, std::int64_t block) const {
    Word any = 0;
    const std::int64_t first = block * kBlock, last = std::min(count, first + kBlock);
    for (std::int64_t i = first; i < last; ++i) any |= kept[i];
    return static_cast<int>(std::bit_width(any));
  }

  static void pack_block(const Word* kept, std::int64_t vectors, int bits, Word* into) {
    std::fill(into, into + words(vectors, bits) * kLanes, Word{0});
    for (std::int64_t v = 0; v < vectors; ++v) {
      const std::int64_t at = v * bits / kBits;
      const int shift = static_cast<int>(v * bits % kBits);
      const bool parted = shift + bits > kBits;
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        const Word number = kept[v * kLanes + lane];
        into[at * kLanes + lane] |= static_cast<Word>(number << shift);
        if (parted) {
          into[(at + 1) * kLanes + lane] |= static_cast<Word>(number >> (kBits - shift));
        }
      }
    }
  }

  static void unpack_block(const Word* from, std::int64_t vectors, int bits, Word* kept) {
    if (bits == 0) {
      std::fill(kept, kept + vectors * kLanes, Word{0});
      return;
    }
    const Word mask = static_cast<Word>(~Word{0}) >> (kBits - bits);
    for (std::int64_t v = 0; v < vectors; ++v) {
      const std::int64_t at = v * bits / kBits;
      const int shift = static_cast<int>(v * bits % kBits);
      const Word* low = from + at * kLanes;
      Word* to = kept + v * kLanes;
      if (shift + bits > kBits) {
        for (std::int64_t lane = 0; lane < kLanes; ++lane) {
          const Word high = static_cast<Word>(low[kLanes + lane] << (kBits - shift));
          to[lane] = static_cast<Word>((low[lane] >> shift) | high) & mask;
        }
      } else {
        for (std::int64_t lane = 0; lane < kLanes; ++lane) to[lane] = (low[lane] >> shift) & mask;
      }
    }
  }

  void add(Prediction from, const Word* kept, const Word* above, const Word* upper,
           Word* row) const {
    if (from == kNothing) {
      std::copy(kept, kept + count, row);
    } else if (from == kAbove) {
      for (std::int64_t i = 0; i < count; ++i) row[i] = above[i] + unfold(kept[i]);
    } else {
      for (std::int64_t i = 0; i < count; ++i) {
        row[i] = 2 * above[i] - upper[i] + unfold(kept[i]);
      }
    }
  }
};

// The bytes of a packed plane, of which the last are copied aside at once: what is unpacked may be
// written over them before they are read.
class Source {
 public:
  Source(const std::byte* from, std::int64_t nbytes)
      : from_(from), kept_(std::max<std::int64_t>(0, nbytes - kAside)), aside_(nbytes - kept_) {
    std::memcpy(aside_.data(), from + kept_, static_cast<std::size_t>(nbytes - kept_));
  }

  void copy(std::int64_t at, std::int64_t nbytes, void* into) const {
    const std::int64_t first = std::clamp<std::int64_t>(kept_ - at, 0, nbytes);
    std::memcpy(into, from_ + at, static_cast<std::size_t>(first));
    if (first == nbytes) return;
    std::memcpy(static_cast<std::byte*>(into) + first, aside_.data() + (at + first - kept_),
                static_cast<std::size_t>(nbytes - first));
  }

  // Whether bytes from `at` on would be lost if `nbytes` were written to `to`.
  bool loses(std::int64_t at, const std::byte* to, std::int64_t nbytes) const {
    return at < kept_ && to < from_ + kept_ && to + nbytes > from_ + at;
  }

 private:
  const std::byte* from_;
  std::int64_t kept_;
  Array<std::byte> aside_;
};

// The last two rows that were gone through, and what is kept of the next: of whole vectors.
template <typename Word>
struct Near {
  std::int64_t size;
  Array<Word> numbers;
  Word *row, *above, *upper, *kept, *packed;

  explicit Near(const Rows<Word>& rows)
      : size(std::max<std::int64_t>(1, rows.blocks) * Rows<Word>::kBlock),
        numbers(5 * size),
        row(numbers.data()),
        above(row + size),
        upper(above + size),
        kept(upper + size),
        packed(kept + size) {}

  void pass() {
    Word* last = upper;
    upper = above;
    above = row;
    row = last;
  }
};

template <typename Word>
std::int64_t pack_rows(const Plane& plane, std::byte* into, std::int64_t room,
                       std::int64_t margin) {
  const Rows<Word> rows(plane.row_bytes);
  Near<Word> near(rows);
  std::byte* header = into;
  std::int64_t at = rows.header_bytes(plane.rows);
  if (at >= room) return 0;
  Array<std::int64_t> ends(plane.rows);
  for (std::int64_t r = 0; r < plane.rows; ++r) {
    std::memcpy(near.row, plane.data + r * plane.stride, static_cast<std::size_t>(plane.row_bytes));
    Prediction best = kNothing;
    std::int64_t least = INT64_MAX;
    for (int way = 0; way < kPredictions; ++way) {
      std::int64_t words = 0;
      rows.differ(static_cast<Prediction>(way), near.row, near.above, near.upper, near.kept);
      for (std::int64_t b = 0; b < rows.blocks; ++b) {
        words += rows.words(rows.vectors(b), rows.bits(near.kept, b));
      }
      if (words < least) {
        least = words;
        best = static_cast<Prediction>(way);
      }
    }
    if (at + least * kVectorBytes >= room) return 0;
    rows.differ(best, near.row, near.above, near.upper, near.kept);
    *header++ = static_cast<std::byte>(best);
    for (std::int64_t b = 0; b < rows.blocks; ++b) {
      const int bits = rows.bits(near.kept, b);
      const std::int64_t nbytes = rows.words(rows.vectors(b), bits) * kVectorBytes;
      rows.pack_block(near.kept + b * rows.kBlock, rows.vectors(b), bits, near.packed);
      std::memcpy(into + at, near.packed, static_cast<std::size_t>(nbytes));
      at += nbytes;
      *header++ = static_cast<std::byte>(bits);
    }
    ends[r] = at;
    near.pass();
  }
  // Where the packed bytes end `margin` before the plane, row r must end before those that follow.
  for (std::int64_t r = 0; r < plane.rows; ++r) {
    const std::int64_t left = at - ends[r];
    const std::int64_t free = (plane.rows - r - 1) * plane.row_bytes;
    if (left > kAside && left + margin > free) return 0;
  }
  return at;
}

template <typename Word>
bool unpack_rows(const std::byte* from, std::int64_t nbytes, const Plane& plane) {
  const Rows<Word> rows(plane.row_bytes);
  Near<Word> near(rows);
  std::int64_t at = rows.header_bytes(plane.rows);
  if (at > nbytes) return false;
  const Array<std::byte> header(at);
  std::memcpy(header.data(), from, static_cast<std::size_t>(at));
  const Source source(from, nbytes);
  const std::byte* told = header.data();
  for (std::int64_t r = 0; r < plane.rows; ++r) {
    const int way = static_cast<int>(*told++);
    if (way >= kPredictions) return false;
    for (std::int64_t b = 0; b < rows.blocks; ++b) {
      const int bits = static_cast<int>(*told++);
      if (bits > rows.kBits) return false;
      const std::int64_t size = rows.words(rows.vectors(b), bits) * kVectorBytes;
      if (size > nbytes - at) return false;
      source.copy(at, size, near.packed);
      rows.unpack_block(near.packed, rows.vectors(b), bits, near.kept + b * rows.kBlock);
      at += size;
    }
    rows.add(static_cast<Prediction>(way), near.kept, near.above, near.upper, near.row);
    std::byte* to = plane.data + r * plane.stride;
    if (source.loses(at, to, plane.row_bytes)) return false;
    std::memcpy(to, near.row, static_cast<std::size_t>(plane.row_bytes));
    near.pass();
  }
  return at == nbytes;
}

inline std::int64_t pack_any(const Plane& plane, std::byte* into, std::int64_t room,
                             std::int64_t margin) {
  return plane.item_bytes == 4 ? pack_rows<std::uint32_t>(plane, into, room, margin)
                               : pack_rows<std::uint64_t>(plane, into, room, margin);
}

inline bool unpack_any(const std::byte* from, std::int64_t nbytes, const Plane& plane) {
  return plane.item_bytes == 4 ? unpack_rows<std::uint32_t>(from, nbytes, plane)
                               : unpack_rows<std::uint64_t>(from, nbytes, plane);
}

}  // namespace
}  // namespace outgrid
