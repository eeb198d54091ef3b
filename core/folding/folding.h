// Rows that share vectors: how a plane lies in memory for kernels that compute several neighbouring
// rows at once.
//
//   a group   `rows` neighbouring rows, from row to row `stride` bytes: the same bytes of memory,
//             natural or folded. A row may be shorter, and the last group may have fewer rows: its
//             memory is there all the same, and what is in it beyond the rows is 0 once folded
//   natural   row after row; in files without gaps between them
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
  std::int64_t stride = 0;

  bool folds() const { return rows > 1; }
  bool has_gaps() const { return stride != row_bytes; }
  std::int64_t group_bytes() const { return rows * stride; }
  std::int64_t chunk_bytes() const { return vector_bytes / rows; }

  // Throws std::invalid_argument where rows cannot be folded so, or `nbytes` are no whole rows.
  void check() const;
  void check_rows(std::int64_t nbytes) const;
};

// Folds `count` rows where they lie, `stride` from row to row.
void fold(std::byte* data, std::int64_t count, const Folding& folding);

// The bytes [begin, end) of what a file has of the rows that lie folded from `folded` on, where a
// group begins.
void unfold(const std::byte* folded, std::int64_t begin, std::int64_t end, std::byte* to,
            const Folding& folding);

}  // namespace outgrid
