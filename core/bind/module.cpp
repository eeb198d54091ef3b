// The compiled module outgrid._core. Only src/outgrid/native.py imports it.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

NB_MODULE(_core, module) { module.doc() = "Aligned buffers and asynchronous file transfers."; }
