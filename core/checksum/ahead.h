// The checksum of a row whose successors in memory are fetched while it is computed. Compiled once
// for each width of vectors.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstddef>
#include <cstdint>

namespace outgrid {
namespace {

// XXH3 of long texts waits for memory, of which its own prefetches ask too little at a time. A part
// is fetched to the second cache while the one before it is summed, beyond the end of a row too:
// the next one begins there, or nothing is lost.
constexpr std::size_t kPart = 4096, kLine = 64;

inline void fetch(const char* part, std::size_t nbytes) {
  for (std::size_t at = 0; at < nbytes; at += kLine) __builtin_prefetch(part + at, 0, 2);
}

inline std::uint64_t checksum_ahead(const void* data, std::size_t nbytes) {
  const char* row = static_cast<const char*>(data);
  if (nbytes <= kPart) {
    fetch(row + kPart, nbytes);
    return XXH3_64bits(row, nbytes);
  }
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (std::size_t done = 0; done < nbytes; done += kPart) {
    const std::size_t part = nbytes - done < kPart ? nbytes - done : kPart;
    fetch(row + done + kPart, part);
    XXH3_64bits_update(&state, row + done, part);
  }
  return XXH3_64bits_digest(&state);
}

}  // namespace
}  // namespace outgrid
