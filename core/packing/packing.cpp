#include "packing/packing.h"

#include <stdexcept>
#include <string>

#include "checksum/checksum.h"
#include "packing/rows.h"
#include "packing/wide.h"

namespace outgrid {
namespace {

struct Ways {
  std::int64_t (*pack)(const Plane&, std::byte*, std::int64_t, std::int64_t);
  bool (*unpack)(const std::byte*, std::int64_t, const Plane&);
};

Ways widest() {
#ifdef OUTGRID_WIDE_VECTORS
  if (__builtin_cpu_supports("avx512f")) return {pack_avx512, unpack_avx512};
  if (__builtin_cpu_supports("avx2")) return {pack_avx2, unpack_avx2};
#endif
  return {pack_any, unpack_any};
}

const Ways ways = widest();

void check(const Plane& plane) {
  const bool items = plane.item_bytes == 4 || plane.item_bytes == 8;
  if (!items || plane.rows < 1 || plane.row_bytes < 1 || plane.row_bytes % plane.item_bytes != 0 ||
      plane.stride < plane.row_bytes) {
    throw std::invalid_argument("planes are packed of rows of items of 4 or 8 bytes, not " +
                                std::to_string(plane.rows) + " rows of " +
                                std::to_string(plane.row_bytes) + " bytes with items of " +
                                std::to_string(plane.item_bytes));
  }
}

}  // namespace

Packed pack(const Plane& plane, std::byte* into, std::int64_t room, std::int64_t margin) {
  check(plane);
  const std::int64_t nbytes = ways.pack(plane, into, room, margin);
  return {nbytes, nbytes > 0 ? checksum(into, static_cast<std::size_t>(nbytes)) : 0};
}

bool unpack(const std::byte* from, Packed packed, const Plane& plane) {
  check(plane);
  if (checksum(from, static_cast<std::size_t>(packed.nbytes)) != packed.sum) return false;
  return ways.unpack(from, packed.nbytes, plane);
}

}  // namespace outgrid
