#include "packing/rows.h"
#include "packing/wide.h"

namespace outgrid {

std::int64_t pack_avx512(const Plane& plane, std::byte* into, std::int64_t room,
                         std::int64_t margin) {
  return pack_any(plane, into, room, margin);
}

bool unpack_avx512(const std::byte* from, std::int64_t nbytes, const Plane& plane) {
  return unpack_any(from, nbytes, plane);
}

}  // namespace outgrid
