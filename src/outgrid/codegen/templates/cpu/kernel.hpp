// A kernel: `advance` is what a call of it does.
#pragma once

#include "cpu/by_diamond.hpp"
#include "cpu/by_level.hpp"
#include "cpu/threads.hpp"

namespace {

// Returns 0, or an error number where, before anything was updated, threads could not be kept on
// processors, or less than 0 where they could not be started.
template <class Stencil>
int advance(const Slab& slab) {
  if (const int error = start(slab.team, slab.threads)) return -error;
  const Pinned pinned(slab.team, slab.threads, slab.pin != 0);
  if (pinned.error != 0) return pinned.error;
  auto* const uniform = new typename Stencil::Uniform[slab.depth];
  for (int64_t t = 0; t < slab.depth; ++t) {
    uniform[t] = Stencil::Uniform::of(slab.parameters + t * Stencil::kParameters);
  }
  const Call<Stencil> call{slab, uniform};
  if (slab.order == 1) {
    by_diamond(call);
  } else {
    by_level(call, slab.order == 2);
  }
  delete[] uniform;
  return 0;
}

}  // namespace
