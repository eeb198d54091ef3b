#include "memory/buffer.h"

#include <nanobind/stl/string.h>

#include "bind/bind.h"
#include "io/file.h"
#include "memory/mapping.h"

namespace nb = nanobind;

namespace outgrid {
namespace {

// Arrays made from a buffer through the buffer protocol count as exports; while one lives the
// memory cannot be released, so no array ever points at memory that is gone.
struct ExportedBuffer {
  Buffer buffer;
  int exports = 0;
};

// A new file of `nbytes`, its space set aside where the file system can, as memory.
ExportedBuffer* map_new_file(const nb::object& path, std::int64_t nbytes) {
  const nb::object encoded = nb::steal(PyOS_FSPath(path.ptr()));
  if (!encoded.is_valid()) throw nb::python_error();
  PyObject* bytes = nullptr;
  if (PyUnicode_FSConverter(encoded.ptr(), &bytes) == 0) throw nb::python_error();
  const auto text = nb::steal<nb::bytes>(bytes);
  File file(text.c_str(), File::Mode::create, false);
  file.reserve(nbytes);
  return new ExportedBuffer{
      Buffer(file.buffered_fd(), static_cast<std::size_t>(nbytes), true, file.path())};
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  auto* exported = nb::inst_ptr<ExportedBuffer>(self);
  if (exported->buffer.data() == nullptr) {
    PyErr_SetString(PyExc_BufferError, "the buffer was released");
    return -1;
  }
  const int code = PyBuffer_FillInfo(view, self, exported->buffer.data(),
                                     static_cast<Py_ssize_t>(exported->buffer.nbytes()), 0, flags);
  if (code == 0) ++exported->exports;
  return code;
}

void release_buffer(PyObject* self, Py_buffer*) { --nb::inst_ptr<ExportedBuffer>(self)->exports; }

PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                       {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                       {0, nullptr}};

void release(ExportedBuffer& self) {
  if (self.exports > 0) {
    PyErr_Format(PyExc_BufferError, "the buffer cannot be released: %d arrays use its memory",
                 self.exports);
    throw nb::python_error();
  }
  self.buffer.release();
}

}  // namespace

void bind_buffer(nb::module_& module) {
  nb::class_<ExportedBuffer>(module, "Buffer", nb::type_slots(slots))
      .def(
          "__init__",
          [](ExportedBuffer* self, std::size_t nbytes, bool huge_pages, bool lock) {
            new (self) ExportedBuffer{Buffer(nbytes, huge_pages, lock)};
          },
          nb::arg("nbytes"), nb::arg("huge_pages") = true, nb::arg("lock") = false)
      .def_static("of_new_file", map_new_file, nb::arg("path"), nb::arg("nbytes"),
                  nb::rv_policy::take_ownership)
      .def(
          "advise",
          [](const ExportedBuffer& self, const std::string& order) {
            advise(self.buffer, Habits::of({order}, "none").order);
          },
          nb::arg("order"))
      .def_prop_ro("address",
                   [](const ExportedBuffer& self) {
                     return reinterpret_cast<std::uintptr_t>(self.buffer.data());
                   })
      .def_prop_ro("nbytes", [](const ExportedBuffer& self) { return self.buffer.nbytes(); })
      .def_prop_ro("mapped_bytes",
                   [](const ExportedBuffer& self) { return self.buffer.mapped_bytes(); })
      .def("release", release);
}

}  // namespace outgrid
