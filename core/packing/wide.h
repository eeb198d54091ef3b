// The same by wider vectors, each in a source file compiled for processors that have them.
#pragma once

#include "packing/packing.h"

namespace outgrid {

std::int64_t pack_avx2(const Plane& plane, std::byte* into, std::int64_t room, std::int64_t margin);
bool unpack_avx2(const std::byte* from, std::int64_t nbytes, const Plane& plane);
std::int64_t pack_avx512(const Plane& plane, std::byte* into, std::int64_t room,
                         std::int64_t margin);
bool unpack_avx512(const std::byte* from, std::int64_t nbytes, const Plane& plane);

}  // namespace outgrid
