// Checksums of rows in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "io/cut.h"

namespace outgrid {

// XXH3, 64 bits, of the `nbytes` at `data`.
std::uint64_t checksum(const void* data, std::size_t nbytes);

// The checksums of all rows of `row_bytes` in the memory of `segments`, in their order.
std::vector<std::uint64_t> row_checksums(const std::vector<Segment>& segments,
                                         std::int64_t row_bytes);

}  // namespace outgrid
