// How soon the system lets a thread run that has slept.
#pragma once

#include <cstdint>

namespace outgrid {

// Asks that the calling thread runs for so many nanoseconds at a time, 0 for as long as the system
// thinks best, and returns what it was. Threads that it starts do the same. A thread that asks for
// little comes before others when it wakes, and gets no more time in all. A wish: systems before
// Linux 6.12 do not know it, and none need grant it.
std::int64_t set_slice(std::int64_t nanoseconds);

// For threads that start transfers, or go on when these end, beside others that compute.
constexpr std::int64_t kPromptSlice = 100000;

}  // namespace outgrid
