#include "pager/pager.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "bind/bind.h"
#include "pager/backing_file.h"

namespace nb = nanobind;

namespace outgrid {
namespace {

// The memory of a range through the buffer protocol. While an array uses it, it stays; and as long
// as it is there, so is its pager.
struct PagedMemory {
  std::shared_ptr<Pager> pager;
  std::shared_ptr<Pager::Range> range;
  int exports = 0;

  ~PagedMemory() {
    nb::gil_scoped_release release;
    range.reset();
    pager.reset();
  }
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  auto* memory = nb::inst_ptr<PagedMemory>(self);
  if (memory->range->data() == nullptr) {
    PyErr_SetString(PyExc_BufferError, "the paged memory was released");
    return -1;
  }
  const int code = PyBuffer_FillInfo(view, self, memory->range->data(),
                                     static_cast<Py_ssize_t>(memory->range->nbytes()),
                                     memory->range->writable() ? 0 : 1, flags);
  if (code == 0) ++memory->exports;
  return code;
}

void release_buffer(PyObject* self, Py_buffer*) { --nb::inst_ptr<PagedMemory>(self)->exports; }

PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                       {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                       {0, nullptr}};

void release(PagedMemory& self) {
  if (self.exports > 0) {
    PyErr_Format(PyExc_BufferError, "paged memory cannot be released: %d arrays use it",
                 self.exports);
    throw nb::python_error();
  }
  nb::gil_scoped_release unlocked;
  self.range->release();
}

}  // namespace

void bind_pager(nb::module_& module) {
  nb::class_<PagerStatistics>(module, "PagerStatistics")
      .def_ro("faults", &PagerStatistics::faults)
      .def_ro("first_writes", &PagerStatistics::first_writes)
      .def_ro("fetched_bytes", &PagerStatistics::fetched_bytes)
      .def_ro("written_bytes", &PagerStatistics::written_bytes)
      .def_ro("evictions", &PagerStatistics::evictions)
      .def_ro("ahead_pages", &PagerStatistics::ahead_pages)
      .def_ro("ahead_used", &PagerStatistics::ahead_used)
      .def_ro("most_resident", &PagerStatistics::most_resident)
      .def_ro("service_seconds", &PagerStatistics::service_seconds);

  nb::class_<Backing>(module, "Backing")
      .def_static(
          "of_file",
          [](const OpenFile& file, std::int64_t data_offset, std::int64_t nbytes) {
            return make_file_backing(file.get(), data_offset, nbytes);
          },
          nb::arg("file"), nb::arg("data_offset"), nb::arg("nbytes"))
      .def_prop_ro("name", &Backing::name)
      .def_prop_ro("nbytes", &Backing::nbytes);

  nb::class_<PagedMemory>(module, "PagedMemory", nb::type_slots(slots), nb::is_weak_referenceable())
      .def_prop_ro("nbytes", [](const PagedMemory& self) { return self.range->nbytes(); })
      .def("release", release);

  nb::class_<Pager>(module, "Pager", nb::is_weak_referenceable())
      .def(nb::new_([](std::int64_t local_bytes, std::int64_t page_bytes, int ahead_pages,
                       int movers, bool tracks_writes) {
             return started<Pager>(
                 PagerOptions{local_bytes, page_bytes, ahead_pages, movers, tracks_writes});
           }),
           nb::arg("local_bytes"), nb::arg("page_bytes") = std::int64_t{8} << 20,
           nb::arg("ahead_pages") = 1, nb::arg("movers") = 2, nb::arg("tracks_writes") = true)
      .def(
          "map",
          [](const std::shared_ptr<Pager>& self, const std::shared_ptr<Backing>& backing,
             bool writable, bool blank, bool keep) {
            return new PagedMemory{self, self->map(backing, writable, blank, keep)};
          },
          nb::arg("backing"), nb::arg("writable") = true, nb::arg("blank") = false,
          nb::arg("keep") = true, nb::rv_policy::take_ownership)
      .def_prop_ro("page_bytes", &Pager::page_bytes)
      .def_prop_ro("resident_limit", &Pager::resident_limit)
      .def_prop_ro("tracks_writes", &Pager::tracks_writes)
      .def_prop_ro("serves_kernel", &Pager::serves_kernel)
      .def_prop_ro("error", &Pager::error)
      .def("statistics", &Pager::statistics)
      .def("flush", [](Pager& self) { self.flush(); }, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace outgrid
