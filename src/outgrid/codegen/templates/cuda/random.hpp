// What random numbers need of the numbers of a device.
#pragma once

#include "cuda/counts.hpp"
#include "random.hpp"
