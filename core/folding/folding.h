// Rows that share vectors, and rows of which only parts are kept: how a plane lies in memory.
//
// Kernels that compute several neighbouring rows at once have them folded:
//
//   a group   `rows` neighbouring rows, from row to row `stride` bytes: the same bytes of memory,
//             natural or folded. A row may be shorter, and the last group may have fewer rows: its
//             memory is there all the same, and what is in it beyond the rows is 0 once folded
//   natural   row after row; in files without gaps between them
//   folded    vector after vector of `vector_bytes`; vector v has, of each row in turn, the chunk
//             [v * c, (v + 1) * c) of its bytes, where c = vector_bytes / rows
//
// Of a field that exists in some columns only the `parts` of each row that have these are kept.
// Byte b of row r still lies r * stride + b from the first one, but the stride is shorter than a
// row: the parts of some rows lie between those of others. In files the other bytes are there, and
// 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace outgrid {

struct Folding {
  std::int64_t rows = 1;
  std::int64_t vector_bytes = 0;
  std::int64_t row_bytes = 0;
  std::int64_t stride = 0;

  struct Part {
    std::int64_t begin, end;  // bytes of a row
  };
  std::vector<Part> parts;  // in order; none: whole rows are kept

  bool folds() const { return rows > 1; }
  bool parted() const { return !parts.empty(); }
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
// group begins, or in parts, where a row begins.
void unfold(const std::byte* folded, std::int64_t begin, std::int64_t end, std::byte* to,
            const Folding& folding);

// Puts these bytes, which lie at `from`, where rows lie in parts from `parted` on.
void put_parts(const std::byte* from, std::int64_t begin, std::int64_t end, std::byte* parted,
               const Folding& folding);

}  // namespace outgrid
