// What random numbers need of the vectors of a processor.
#pragma once

#include "cpu/counts.hpp"
#include "random.hpp"
