// A kernel: `advance` is what a call of it does.
#pragma once

#include "cpu/by_diamond.hpp"
#include "cpu/by_level.hpp"
#include "cpu/threads.hpp"

namespace {

// Returns 0, or the error number of what failed before anything was updated.
template <class Stencil>
int advance(const Slab& slab) {
  const Pinned pinned(slab.threads, slab.pin != 0);
  if (pinned.error != 0) return pinned.error;
  auto* const uniform = new typename Stencil::Uniform[slab.depth];
  for (int64_t t = 0; t < slab.depth; ++t) {
    uniform[t] = Stencil::Uniform::of(slab.parameters + t * Stencil::kParameters);
  }
  const Call<Stencil> call{slab, uniform};
  if (slab.order == 1) {
    by_diamond(call);
  } else {
    by_level(call);
  }
  delete[] uniform;
  return 0;
}

}  // namespace
