#include "checksum/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace outgrid {

std::uint64_t checksum(const void* data, std::size_t nbytes) { return XXH3_64bits(data, nbytes); }

std::vector<std::uint64_t> row_checksums(const std::vector<Segment>& segments,
                                         std::int64_t row_bytes) {
  std::vector<std::uint64_t> sums;
  for (const Segment& segment : segments) {
    for (std::int64_t done = 0; done < segment.nbytes; done += row_bytes) {
      sums.push_back(checksum(reinterpret_cast<const void*>(segment.address + done),
                              static_cast<std::size_t>(row_bytes)));
    }
  }
  return sums;
}

}  // namespace outgrid
