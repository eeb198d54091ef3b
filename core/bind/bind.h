// The parts of the module, each in the file of its name.
#pragma once

#include <nanobind/nanobind.h>

namespace outgrid {

void bind_buffer(nanobind::module_& module);
void bind_queue(nanobind::module_& module);

}  // namespace outgrid
