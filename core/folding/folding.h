// Rows that share vectors: how a plane lies in memory for kernels that compute several neighbouring
// rows at once.
//
//   a group   `rows` neighbouring rows, one behind the other: the same bytes of memory, natural or
//             folded
//   natural   row after row
//   folded    vector after vector of `vector_bytes`; vector v has, of each row in turn, the chunk
//             [v * c, (v + 1) * c) of its bytes, where c = vector_bytes / rows
#pragma once

#include <cstddef>
#include <cstdint>

namespace outgrid {

struct Folding {
  std::int64_t rows = 1;
  std::int64_t vector_bytes = 0;
  std::int64_t row_bytes = 0;

  bool folds() const { return rows > 1; }
  std::int64_t group_bytes() const { return rows * row_bytes; }
  std::int64_t chunk_bytes() const { return vector_bytes / rows; }

  // Throws std::invalid_argument where rows cannot be folded so, or `nbytes` are no whole groups.
  void check() const;
  void check_groups(std::int64_t nbytes) const;
};

// Folds whole groups where they lie.
void fold(std::byte* data, std::int64_t nbytes, const Folding& folding);

// The bytes [begin, end) of the natural order of what lies folded from `folded` on, where a group
// begins.
void unfold(const std::byte* folded, std::int64_t begin, std::int64_t end, std::byte* to,
            const Folding& folding);

}  // namespace outgrid
