#include "folding/folding.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace outgrid {
namespace {

// Copies `count` chunks which are `from_pitch` apart to places that are `to_pitch` apart. A number
// of bytes that the compiler knows makes moves of vectors of the copies.
template <std::size_t nbytes>
void copy_chunks(const std::byte* from, std::int64_t from_pitch, std::byte* to,
                 std::int64_t to_pitch, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * to_pitch, from + i * from_pitch, nbytes);
  }
}

// One group, from its rows to its vectors.
template <std::size_t nbytes, int rows>
void fold_group(const std::byte* from, std::byte* to, std::int64_t stride) {
  const std::int64_t vectors = stride / static_cast<std::int64_t>(nbytes);
  for (std::int64_t v = 0; v < vectors; ++v, from += nbytes) {
    for (int r = 0; r < rows; ++r, to += nbytes) std::memcpy(to, from + r * stride, nbytes);
  }
}

void fold_any_group(const std::byte* from, std::byte* to, const Folding& folding) {
  const std::int64_t chunk = folding.chunk_bytes();
  for (std::int64_t at = 0; at < folding.stride; at += chunk) {
    for (std::int64_t r = 0; r < folding.rows; ++r, to += chunk) {
      std::memcpy(to, from + r * folding.stride + at, static_cast<std::size_t>(chunk));
    }
  }
}

void fold_group(const std::byte* from, std::byte* to, const Folding& folding) {
  const std::int64_t chunk = folding.chunk_bytes();
  if (folding.rows == 4 && chunk == 16) {
    fold_group<16, 4>(from, to, folding.stride);
  } else if (folding.rows == 2 && chunk == 32) {
    fold_group<32, 2>(from, to, folding.stride);
  } else if (folding.rows == 2 && chunk == 16) {
    fold_group<16, 2>(from, to, folding.stride);
  } else {
    fold_any_group(from, to, folding);
  }
}

// The first `count` rows of a group, and 0 in all that is beyond them.
void copy_group(const std::byte* from, std::int64_t count, std::byte* to, const Folding& folding) {
  const auto row = static_cast<std::size_t>(folding.row_bytes);
  const auto gap = static_cast<std::size_t>(folding.stride) - row;
  if (gap == 0) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * row);
  } else {
    for (std::int64_t r = 0; r < count; ++r) {
      std::memcpy(to + r * folding.stride, from + r * folding.stride, row);
      std::memset(to + r * folding.stride + row, 0, gap);
    }
  }
  const std::int64_t end = count * folding.stride;
  std::memset(to + end, 0, static_cast<std::size_t>(folding.group_bytes() - end));
}

// The bytes [begin, end) of a row whose chunks begin at `row`, every `pitch` bytes.
void unfold_row(const std::byte* row, std::int64_t begin, std::int64_t end, std::byte* to,
                std::int64_t chunk, std::int64_t pitch) {
  const auto copy_part = [&](std::int64_t last) {
    const std::byte* from = row + begin / chunk * pitch + begin % chunk;
    std::memcpy(to, from, static_cast<std::size_t>(last - begin));
    to += last - begin;
    begin = last;
  };
  if (begin % chunk != 0) copy_part(std::min(end, (begin / chunk + 1) * chunk));
  const std::int64_t whole = (end - begin) / chunk;
  const std::byte* from = row + begin / chunk * pitch;
  if (chunk == 16) {
    copy_chunks<16>(from, pitch, to, 16, whole);
  } else if (chunk == 32) {
    copy_chunks<32>(from, pitch, to, 32, whole);
  } else {
    for (std::int64_t i = 0; i < whole; ++i) {
      std::memcpy(to + i * chunk, from + i * pitch, static_cast<std::size_t>(chunk));
    }
  }
  to += whole * chunk;
  begin += whole * chunk;
  if (begin < end) copy_part(end);
}

// Visits the parts of rows among their bytes [begin, end): how far the bytes of each are from the
// first one, how far they lie from it in memory, and how many they are.
template <class Visit>
void each_part(std::int64_t begin, std::int64_t end, const Folding& folding, const Visit& visit) {
  for (std::int64_t row = begin / folding.row_bytes; row * folding.row_bytes < end; ++row) {
    const std::int64_t first = row * folding.row_bytes;
    for (const Folding::Part& part : folding.parts) {
      const std::int64_t from = std::max(begin, first + part.begin);
      const std::int64_t to = std::min(end, first + part.end);
      if (from < to) visit(from - begin, row * folding.stride + (from - first), to - from);
    }
  }
}

// Whether a part of one row lies where the other part of another row does.
bool meet(const Folding::Part& one, const Folding::Part& other, std::int64_t stride) {
  const std::int64_t ahead = (other.begin - one.begin) % stride;
  return ahead < one.end - one.begin || stride - ahead < other.end - other.begin;
}

}  // namespace

void Folding::check() const {
  constexpr std::int64_t kSmallestItem = 4;
  std::int64_t last = 0;
  for (const Part& part : parts) {
    if (rows != 1 || part.begin < last || part.end <= part.begin || part.end > row_bytes ||
        part.end - part.begin > stride) {
      throw std::invalid_argument(
          "bytes " + std::to_string(part.begin) + " to " + std::to_string(part.end) + " of " +
          std::to_string(rows) + " rows of " + std::to_string(row_bytes) + " bytes, " +
          std::to_string(stride) +
          " from row to row: parts are those of single rows, in order and apart, and no longer "
          "than from row to row");
    }
    last = part.end;
    for (const Part* other = parts.data(); other != &part; ++other) {
      if (!meet(*other, part, stride)) continue;
      throw std::invalid_argument("with " + std::to_string(stride) +
                                  " bytes from row to row, bytes " + std::to_string(other->begin) +
                                  " to " + std::to_string(other->end) +
                                  " of a row lie where bytes " + std::to_string(part.begin) +
                                  " to " + std::to_string(part.end) + " of another one do");
    }
  }
  if (rows == 1) return;
  if (rows < 1 || vector_bytes <= 0 || vector_bytes % rows != 0 ||
      chunk_bytes() % kSmallestItem != 0 || row_bytes <= 0 || row_bytes > stride ||
      stride % chunk_bytes() != 0) {
    throw std::invalid_argument(
        std::to_string(rows) + " rows of " + std::to_string(row_bytes) + " bytes, " +
        std::to_string(stride) + " from row to row, cannot share vectors of " +
        std::to_string(vector_bytes) +
        ": each has an equal part of a vector, a multiple of 4 bytes, and such parts fill the "
        "bytes from row to row");
  }
}

void Folding::check_rows(std::int64_t nbytes) const {
  if (nbytes >= 0 && ((!folds() && !parted()) || nbytes % row_bytes == 0)) return;
  throw std::invalid_argument(std::to_string(nbytes) + " bytes are no whole rows of " +
                              std::to_string(row_bytes));
}

void fold(std::byte* data, std::int64_t count, const Folding& folding) {
  if (!folding.folds()) return;
  // One group is small enough to stay in a cache while it is copied twice.
  thread_local std::vector<std::byte> group;
  group.resize(static_cast<std::size_t>(folding.group_bytes()));
  for (; count > 0; count -= folding.rows, data += folding.group_bytes()) {
    copy_group(data, std::min(count, folding.rows), group.data(), folding);
    fold_group(group.data(), data, folding);
  }
}

void unfold(const std::byte* folded, std::int64_t begin, std::int64_t end, std::byte* to,
            const Folding& folding) {
  if (end <= begin) return;
  if (folding.parted()) {
    std::memset(to, 0, static_cast<std::size_t>(end - begin));
    each_part(begin, end, folding, [&](std::int64_t at, std::int64_t lies, std::int64_t nbytes) {
      std::memcpy(to + at, folded + lies, static_cast<std::size_t>(nbytes));
    });
    return;
  }
  if (!folding.folds()) {
    std::memcpy(to, folded + begin, static_cast<std::size_t>(end - begin));
    return;
  }
  const std::int64_t chunk = folding.chunk_bytes();
  while (begin < end) {
    const std::int64_t row = begin / folding.row_bytes, within = begin % folding.row_bytes;
    const std::int64_t taken = std::min(end - begin, folding.row_bytes - within);
    const std::byte* chunks =
        folded + row / folding.rows * folding.group_bytes() + row % folding.rows * chunk;
    unfold_row(chunks, within, within + taken, to, chunk, folding.vector_bytes);
    begin += taken;
    to += taken;
  }
}

void put_parts(const std::byte* from, std::int64_t begin, std::int64_t end, std::byte* parted,
               const Folding& folding) {
  each_part(begin, end, folding, [&](std::int64_t at, std::int64_t lies, std::int64_t nbytes) {
    std::memcpy(parted + lies, from + at, static_cast<std::size_t>(nbytes));
  });
}

}  // namespace outgrid
