#include "io/outlet.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "bind/bind.h"

namespace nb = nanobind;

namespace outgrid {

void bind_outlet(nb::module_& module) {
  nb::class_<Outlet>(module, "Outlet")
      .def(nb::new_([](std::vector<int> descriptors, std::int64_t held_bytes) {
             return started<Outlet>(std::move(descriptors), held_bytes);
           }),
           nb::arg("descriptors"), nb::arg("held_bytes"))
      .def("drain", &Outlet::drain, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("address",
                   [](const Outlet& self) {
                     return reinterpret_cast<std::intptr_t>(static_cast<const OutletDoor*>(&self));
                   })
      .def_prop_ro("failure", [](const Outlet& self) {
        const Outlet::Failure found = self.failure();
        return nb::make_tuple(found.file, found.code);
      });
}

}  // namespace outgrid
