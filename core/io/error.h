// The one exception that the core throws for a refused system call.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace outgrid {

class SystemError : public std::runtime_error {
 public:
  SystemError(int code, const std::string& what, std::string path = {})
      : std::runtime_error(what), code_(code), path_(std::move(path)) {}

  int code() const { return code_; }
  const std::string& path() const { return path_; }

 private:
  int code_;
  std::string path_;
};

}  // namespace outgrid
