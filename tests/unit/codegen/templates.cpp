// The headers that kernels are made of, for `make check`: a kernel's compiler says the same of
// them. Compiled with -DREAL=float, and double.
using Real = REAL;

#include "cpu/functions.hpp"
