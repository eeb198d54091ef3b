// The checksum of a row in memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outgrid {

// XXH3, 64 bits, of the `nbytes` at `data`.
std::uint64_t checksum(const void* data, std::size_t nbytes);

}  // namespace outgrid
