// The parts of the module, each in the file of its name.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <utility>

#include "io/file.h"
#include "io/threads.h"

namespace outgrid {

void bind_buffer(nanobind::module_& module);
void bind_queue(nanobind::module_& module);
void bind_outlet(nanobind::module_& module);
void bind_pager(nanobind::module_& module);
void bind_remote(nanobind::module_& module);

// What Python sees of a file: closing drops this reference, the queue may hold others.
struct OpenFile {
  std::shared_ptr<File> file;
  std::vector<std::shared_ptr<File>> others;  // further parts of a striped file
  std::int64_t stripe_bytes = 0;

  const std::shared_ptr<File>& get() const;
  Striped striped() const;
};

// An object with threads, as Python holds it.
template <typename Object, typename... Arguments>
std::shared_ptr<Object> started(Arguments&&... arguments) {
  return {new Object(std::forward<Arguments>(arguments)...), Dismissal()};
}

}  // namespace outgrid
