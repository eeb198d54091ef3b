// The same checksum by wider vectors, each in a source file compiled for processors that have them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outgrid {

std::uint64_t checksum_avx2(const void* data, std::size_t nbytes);
std::uint64_t checksum_avx512(const void* data, std::size_t nbytes);

}  // namespace outgrid
