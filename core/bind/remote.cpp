#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cerrno>
#include <cstring>

#include "bind/bind.h"
#include "io/error.h"
#include "remote/memory.h"

namespace nb = nanobind;

namespace outgrid {
namespace {

using PieceArray = nb::ndarray<const std::int64_t, nb::shape<-1, 4>, nb::c_contig, nb::device::cpu>;
using PartArray = nb::ndarray<const std::int64_t, nb::shape<-1, 3>, nb::c_contig, nb::device::cpu>;

std::vector<Lent> parts_of(const PartArray& array) {
  std::vector<Lent> parts;
  parts.reserve(array.shape(0));
  const std::int64_t* row = array.data();
  for (std::size_t i = 0; i < array.shape(0); ++i, row += 3) {
    parts.push_back({row[0], static_cast<int>(row[1]), row[2]});
  }
  return parts;
}

void move(const MpiWindow& window, bool put, const PieceArray& array, std::uintptr_t address) {
  auto* memory = reinterpret_cast<std::byte*>(address);
  std::vector<MpiWindow::Piece> pieces;
  pieces.reserve(array.shape(0));
  const std::int64_t* row = array.data();
  for (std::size_t i = 0; i < array.shape(0); ++i, row += 4) {
    pieces.push_back({static_cast<int>(row[0]), row[1], memory + row[2], row[3]});
  }
  int code;
  {
    const nb::gil_scoped_release unlocked;
    code = window.move(put, pieces);
  }
  if (code != 0) throw SystemError(code, code == EIO ? window.error() : std::strerror(code));
}

}  // namespace

void bind_remote(nb::module_& module) {
  nb::class_<MpiWindow>(module, "MpiWindow")
      .def(nb::init<const MpiTable&, std::vector<std::uintptr_t>>(), nb::arg("table"),
           nb::arg("seen"))
      .def("lose", &MpiWindow::lose, nb::arg("rank"))
      .def("close", &MpiWindow::close, nb::call_guard<nb::gil_scoped_release>())
      .def("move", move, nb::arg("put"), nb::arg("pieces"), nb::arg("address"))
      .def(
          "backing",
          [](const std::shared_ptr<MpiWindow>& self, const std::string& name,
             const PartArray& parts) { return make_remote_backing(self, name, parts_of(parts)); },
          nb::arg("name"), nb::arg("parts"))
      .def_prop_ro("error", &MpiWindow::error);
}

}  // namespace outgrid
