// Elementary functions of vectors, and of numbers that are the same for all cells.
#pragma once

#include "cpu/vector.hpp"
#include "elementary.hpp"

namespace {

OG_INLINE Real exp_of(Real a) { return exp_of(all(a))[0]; }
OG_INLINE Real log_of(Real a) { return log_of(all(a))[0]; }
OG_INLINE Real sin_of(Real a) { return sin_of(all(a))[0]; }
OG_INLINE Real cos_of(Real a) { return cos_of(all(a))[0]; }
OG_INLINE Real tanh_of(Real a) { return tanh_of(all(a))[0]; }
OG_INLINE Real pow_of(Real a, Real b) { return pow_of(all(a), all(b))[0]; }

}  // namespace
