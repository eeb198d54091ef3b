// The compiled module outgrid._core. Only src/outgrid/native.py imports it.
#include <nanobind/nanobind.h>

#include <cstdint>
#include <exception>

#include "bind/bind.h"
#include "io/error.h"
#include "team/slice.h"
#include "team/team.h"

namespace nb = nanobind;

namespace {

// SystemError becomes OSError(errno, message, path).
void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const outgrid::SystemError& error) {
    const nb::object path = error.path().empty()
                                ? nb::none()
                                : nb::steal(PyUnicode_DecodeFSDefault(error.path().c_str()));
    const nb::tuple arguments = nb::make_tuple(error.code(), error.what(), path);
    PyErr_SetObject(PyExc_OSError, arguments.ptr());
  }
}

}  // namespace

NB_MODULE(_core, module) {
  module.doc() = "Aligned buffers, asynchronous file transfers and user-level paging.";
  nb::register_exception_translator(translate);
  outgrid::bind_buffer(module);
  outgrid::bind_queue(module);
  outgrid::bind_outlet(module);
  outgrid::bind_pager(module);
  outgrid::bind_remote(module);
  module.attr("PROMPT_SLICE") = outgrid::kPromptSlice;
  module.def("set_slice", &outgrid::set_slice, nb::arg("nanoseconds"));
  module.attr("TEAM_ADDRESS") = reinterpret_cast<std::intptr_t>(&outgrid::team());
}
