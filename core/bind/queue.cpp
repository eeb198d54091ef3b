#include "io/queue.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <stdexcept>
#include <tuple>

#include "bind/bind.h"
#include "folding/folding.h"
#include "io/error.h"

namespace nb = nanobind;

namespace outgrid {
namespace {

using SegmentArray =
    nb::ndarray<const std::int64_t, nb::shape<-1, 3>, nb::c_contig, nb::device::cpu>;

std::vector<Segment> segments_of(const SegmentArray& array) {
  std::vector<Segment> segments;
  segments.reserve(array.shape(0));
  const std::int64_t* row = array.data();
  for (std::size_t i = 0; i < array.shape(0); ++i, row += 3) {
    segments.push_back({row[0], row[1], row[2]});
  }
  return segments;
}

using PlaneArray = nb::ndarray<const std::int64_t, nb::shape<-1, 8>, nb::c_contig, nb::device::cpu>;

std::vector<Unpacking> planes_of(const PlaneArray& array) {
  std::vector<Unpacking> planes;
  planes.reserve(array.shape(0));
  const std::int64_t* row = array.data();
  for (std::size_t i = 0; i < array.shape(0); ++i, row += 8) {
    planes.push_back({reinterpret_cast<const std::byte*>(row[0]),
                      {row[1], static_cast<std::uint64_t>(row[2])},
                      {reinterpret_cast<std::byte*>(row[3]), row[4], row[5], row[6], row[7]}});
  }
  return planes;
}

// Rows, bytes of a vector, bytes of a row, bytes from row to row, and where parts of a row begin
// and end, if parts are kept.
using PartsOfRow = std::vector<std::pair<std::int64_t, std::int64_t>>;
using FoldingTuple = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, PartsOfRow>;

Folding folding_of(const FoldingTuple& given) {
  const auto& [rows, vector_bytes, row_bytes, stride, parts] = given;
  Folding folding{rows, vector_bytes, row_bytes, stride, {}};
  for (const auto& [begin, end] : parts) folding.parts.push_back({begin, end});
  return folding;
}

void check_bytes(std::int64_t begin, std::int64_t end) {
  if (begin >= 0 && end >= begin) return;
  throw std::invalid_argument("no bytes from " + std::to_string(begin) + " to " +
                              std::to_string(end));
}

File::Mode mode_of(const std::string& mode) {
  if (mode == "r") return File::Mode::read;
  if (mode == "rw") return File::Mode::update;
  if (mode == "create") return File::Mode::create;
  throw std::invalid_argument("a file is opened as \"r\", \"rw\" or \"create\", not \"" + mode +
                              "\"");
}

// Waits in short turns, so that Ctrl-C is heard.
std::vector<Completion> wait(Queue& queue, std::optional<double> timeout_seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr double kTurn = 0.1;
  const double bound = timeout_seconds.value_or(std::numeric_limits<double>::infinity());
  const auto begin = Clock::now();
  while (true) {
    const double left = bound - std::chrono::duration<double>(Clock::now() - begin).count();
    std::vector<Completion> completions;
    {
      nb::gil_scoped_release release;
      completions = queue.wait(std::min(left, kTurn));
    }
    if (!completions.empty() || left <= kTurn || queue.outstanding() == 0) return completions;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

nb::str text_of(const std::string& path) {
  return nb::steal<nb::str>(PyUnicode_DecodeFSDefault(path.c_str()));
}

// The threads and the memory of a queue that was not waited for outlive whoever holds it.
void keep_forever(const nb::handle& queue) {
  nb::set_leak_warnings(false);
  queue.inc_ref();
}

void bind_file(nb::module_& module) {
  nb::class_<OpenFile>(module, "File")
      .def(
          "__init__",
          [](OpenFile* self, const nb::object& path, const std::string& mode, bool direct,
             std::int64_t base) {
            const nb::object encoded = nb::steal(PyOS_FSPath(path.ptr()));
            if (!encoded.is_valid()) throw nb::python_error();
            PyObject* bytes = nullptr;
            if (PyUnicode_FSConverter(encoded.ptr(), &bytes) == 0) throw nb::python_error();
            const auto text = nb::steal<nb::bytes>(bytes);
            new (self)
                OpenFile{std::make_shared<File>(text.c_str(), mode_of(mode), direct, base), {}, 0};
          },
          nb::arg("path"), nb::arg("mode") = "r", nb::arg("direct") = true, nb::arg("base") = 0)
      .def_static(
          "striped",
          [](const std::vector<OpenFile*>& parts, std::int64_t stripe_bytes) {
            if (parts.empty() || stripe_bytes < kBlock || stripe_bytes % kBlock != 0) {
              throw std::invalid_argument(
                  "a striped file has parts, and a stripe of whole blocks of " +
                  std::to_string(kBlock) + " bytes, not " + std::to_string(stripe_bytes));
            }
            OpenFile whole{parts.front()->get(), {}, stripe_bytes};
            for (std::size_t i = 1; i < parts.size(); ++i) whole.others.push_back(parts[i]->get());
            return whole;
          },
          nb::arg("parts"), nb::arg("stripe_bytes"))
      .def_static(
          "of_backing",
          [](const std::shared_ptr<Backing>& backing) {
            return OpenFile{std::make_shared<File>(backing)};
          },
          nb::arg("backing"))
      .def_static(
          "anonymous",
          [](const std::string& name, std::int64_t nbytes, const std::vector<std::string>& advice) {
            const Habits habits = Habits::of(advice, "none");
            return OpenFile{std::make_shared<File>(name, nbytes, habits), {}, 0};
          },
          nb::arg("name"), nb::arg("nbytes"), nb::arg("advice") = std::vector<std::string>())
      .def(
          "map",
          [](const OpenFile& self, const std::vector<std::string>& advice,
             const std::string& sync) { self.get()->map(Habits::of(advice, sync)); },
          nb::arg("advice") = std::vector<std::string>(), nb::arg("sync") = "none")
      .def_prop_ro("direct",
                   [](const OpenFile& self) {
                     const Striped file = self.striped();
                     return std::all_of(file.parts.begin(), file.parts.end(),
                                        [](const auto& part) { return part->is_direct(); });
                   })
      .def_prop_ro("memory_alignment",
                   [](const OpenFile& self) { return self.get()->memory_alignment(); })
      .def_prop_ro("nbytes", [](const OpenFile& self) { return self.get()->size(); })
      .def_prop_ro("address",
                   [](const OpenFile& self) {
                     const Backing* backing = self.get()->backing();
                     return reinterpret_cast<std::uintptr_t>(backing ? backing->data() : nullptr);
                   })
      .def_prop_ro("path", [](const OpenFile& self) { return text_of(self.get()->path()); })
      .def(
          "reserve",
          [](const OpenFile& self, std::int64_t nbytes) {
            const std::shared_ptr<File> file = self.get();
            nb::gil_scoped_release release;
            return file->reserve(nbytes);
          },
          nb::arg("nbytes"))
      .def("close", [](OpenFile& self) {
        self.file.reset();
        self.others.clear();
      });
}

}  // namespace

const std::shared_ptr<File>& OpenFile::get() const {
  if (!file) throw SystemError(EBADF, "the file was closed");
  return file;
}

Striped OpenFile::striped() const {
  std::vector<std::shared_ptr<File>> parts{get()};
  parts.insert(parts.end(), others.begin(), others.end());
  return {std::move(parts), stripe_bytes};
}

void bind_queue(nb::module_& module) {
  bind_file(module);
  module.attr("BLOCK_BYTES") = kBlock;
  module.def("engines", &engine_names);
  module.def(
      "pack",
      [](std::int64_t address, std::int64_t rows, std::int64_t row_bytes, std::int64_t item_bytes,
         std::int64_t into, std::int64_t room, std::int64_t margin) {
        const Plane plane{reinterpret_cast<std::byte*>(address), rows, row_bytes, row_bytes,
                          item_bytes};
        Packed packed;
        {
          nb::gil_scoped_release release;
          packed = pack(plane, reinterpret_cast<std::byte*>(into), room, margin);
        }
        return std::pair(packed.nbytes, packed.sum);
      },
      nb::arg("address"), nb::arg("rows"), nb::arg("row_bytes"), nb::arg("item_bytes"),
      nb::arg("into"), nb::arg("room"), nb::arg("margin"));
  module.def(
      "unpack",
      [](std::int64_t from, std::int64_t nbytes, std::uint64_t sum, std::int64_t address,
         std::int64_t rows, std::int64_t row_bytes, std::int64_t stride, std::int64_t item_bytes) {
        const Plane plane{reinterpret_cast<std::byte*>(address), rows, row_bytes, stride,
                          item_bytes};
        nb::gil_scoped_release release;
        return unpack(reinterpret_cast<const std::byte*>(from), {nbytes, sum}, plane);
      },
      nb::arg("from_"), nb::arg("nbytes"), nb::arg("total"), nb::arg("address"), nb::arg("rows"),
      nb::arg("row_bytes"), nb::arg("stride"), nb::arg("item_bytes"));
  module.def(
      "fold",
      [](std::int64_t address, std::int64_t nbytes, const FoldingTuple& how) {
        const Folding folding = folding_of(how);
        folding.check();
        folding.check_rows(nbytes);
        nb::gil_scoped_release release;
        if (folding.folds()) {
          fold(reinterpret_cast<std::byte*>(address), nbytes / folding.row_bytes, folding);
        }
      },
      nb::arg("address"), nb::arg("nbytes"), nb::arg("folding"));
  module.def(
      "unfold",
      [](std::int64_t from, std::int64_t begin, std::int64_t end, std::int64_t to,
         const FoldingTuple& how) {
        const Folding folding = folding_of(how);
        folding.check();
        check_bytes(begin, end);
        nb::gil_scoped_release release;
        unfold(reinterpret_cast<const std::byte*>(from), begin, end,
               reinterpret_cast<std::byte*>(to), folding);
      },
      nb::arg("from_"), nb::arg("begin"), nb::arg("end"), nb::arg("to"), nb::arg("folding"));
  module.def(
      "put_parts",
      [](std::int64_t from, std::int64_t begin, std::int64_t end, std::int64_t parted,
         const FoldingTuple& how) {
        const Folding folding = folding_of(how);
        folding.check();
        check_bytes(begin, end);
        nb::gil_scoped_release release;
        put_parts(reinterpret_cast<const std::byte*>(from), begin, end,
                  reinterpret_cast<std::byte*>(parted), folding);
      },
      nb::arg("from_"), nb::arg("begin"), nb::arg("end"), nb::arg("parted"), nb::arg("folding"));

  nb::class_<Completion>(module, "Completion")
      .def_ro("ticket", &Completion::ticket)
      .def_ro("nbytes", &Completion::nbytes)
      .def_ro("seconds", &Completion::seconds)
      .def_ro("errno", &Completion::error)
      .def_ro("offset", &Completion::offset)
      .def_ro("length", &Completion::length)
      .def_prop_ro("sums",
                   [](const Completion& self) {
                     return nb::bytes(reinterpret_cast<const char*>(self.sums.data()),
                                      self.sums.size() * sizeof(std::uint64_t));
                   })
      .def_prop_ro("path", [](const Completion& self) { return text_of(self.path); });

  nb::class_<Statistics>(module, "Statistics")
      .def_ro("read_bytes", &Statistics::read_bytes)
      .def_ro("written_bytes", &Statistics::written_bytes)
      .def_ro("direct_bytes", &Statistics::direct_bytes)
      .def_ro("buffered_bytes", &Statistics::buffered_bytes)
      .def_ro("staged_bytes", &Statistics::staged_bytes)
      .def_ro("read_requests", &Statistics::read_requests)
      .def_ro("write_requests", &Statistics::write_requests)
      .def_ro("flushes", &Statistics::flushes)
      .def_ro("busy_seconds", &Statistics::busy_seconds)
      .def_ro("summed_bytes", &Statistics::summed_bytes)
      .def_ro("sum_seconds", &Statistics::sum_seconds)
      .def_ro("unpacked_bytes", &Statistics::unpacked_bytes)
      .def_ro("unpack_seconds", &Statistics::unpack_seconds)
      .def_ro("folded_bytes", &Statistics::folded_bytes)
      .def_ro("fold_seconds", &Statistics::fold_seconds);

  const QueueOptions defaults;
  const FoldingTuple natural{1, 0, 0, 0, {}};
  nb::class_<Queue>(module, "Queue")
      .def(nb::new_([](const std::string& engine, int depth, std::int64_t request_bytes,
                       std::int64_t staging_bytes) {
             return started<Queue>(QueueOptions{engine, depth, request_bytes, staging_bytes});
           }),
           nb::arg("engine") = defaults.engine, nb::arg("depth") = defaults.depth,
           nb::arg("request_bytes") = defaults.request_bytes,
           nb::arg("staging_bytes") = defaults.staging_bytes)
      .def_prop_ro("engine", &Queue::engine)
      .def_prop_ro("refusals", &Queue::refusals)
      .def_prop_ro("staging_bytes", &Queue::staging_bytes)
      .def_prop_ro("outstanding", &Queue::outstanding)
      .def(
          "submit_read",
          [](Queue& self, const OpenFile& file, const SegmentArray& segments,
             std::int64_t row_bytes, const FoldingTuple& folding) {
            return self.read(file.striped(), segments_of(segments), row_bytes, folding_of(folding));
          },
          nb::arg("file"), nb::arg("segments"), nb::arg("row_bytes") = 0,
          nb::arg("folding") = natural)
      .def(
          "submit_read_packed",
          [](Queue& self, const OpenFile& file, const SegmentArray& segments,
             const PlaneArray& planes, const FoldingTuple& folding) {
            return self.read_packed(file.striped(), segments_of(segments), planes_of(planes),
                                    folding_of(folding));
          },
          nb::arg("file"), nb::arg("segments"), nb::arg("planes"), nb::arg("folding") = natural)
      .def(
          "submit_write",
          [](Queue& self, const OpenFile& file, const SegmentArray& segments,
             std::int64_t row_bytes, const FoldingTuple& folding) {
            return self.write(file.striped(), segments_of(segments), row_bytes,
                              folding_of(folding));
          },
          nb::arg("file"), nb::arg("segments"), nb::arg("row_bytes") = 0,
          nb::arg("folding") = natural)
      .def(
          "submit_flush",
          [](Queue& self, const OpenFile& file) { return self.flush(file.striped()); },
          nb::arg("file"))
      .def("submit_complete", &Queue::complete, nb::arg("nbytes"), nb::arg("seconds") = 0.0)
      .def("poll", &Queue::poll)
      .def("wait", wait, nb::arg("timeout_seconds") = nb::none())
      .def("statistics", &Queue::statistics)
      .def("abandon",
           [](const nb::handle& self) {
             nb::cast<Queue&>(self).abandon();
             keep_forever(self);
           })
      .def(
          "close",
          [](const nb::handle& self, double patience_seconds) {
            Queue& queue = nb::cast<Queue&>(self);
            bool closed;
            {
              nb::gil_scoped_release release;
              closed = queue.close(patience_seconds);
            }
            if (!closed) keep_forever(self);
            return closed;
          },
          nb::arg("patience_seconds") = std::numeric_limits<double>::infinity());
}

}  // namespace outgrid
