// The kernel's userfaultfd: page faults of a range of memory become messages to this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace outgrid {

struct Fault {
  std::uintptr_t address;
  bool writes;
  bool protects;  // a write to a page that is there, but write-protected
};

// All ranges are whole system pages. Making one and `watch` throw SystemError where the kernel
// refuses; what threads of a pager call returns zero or an errno.
class UserFault {
 public:
  UserFault();
  ~UserFault();
  UserFault(const UserFault&) = delete;
  UserFault& operator=(const UserFault&) = delete;

  int fd() const { return fd_; }
  // Whether system calls may touch pages that are away; else they end with EFAULT.
  bool serves_kernel() const { return serves_kernel_; }

  void watch(void* start, std::size_t nbytes) const;
  void unwatch(void* start, std::size_t nbytes) const;
  // The faults that wait now; an empty span when there are none.
  std::span<const Fault> faults();
  // Brings bytes into an absent range and wakes who waits there; `protect`: against writing. Where
  // the kernel refuses, a part of it may be there.
  int fill(void* start, const void* source, std::size_t nbytes, bool protect) const;
  int protect(void* start, std::size_t nbytes) const;
  // Lets writes pass, and wakes who waits there.
  int unprotect(void* start, std::size_t nbytes) const;
  // Makes a range absent, also where the process has locked what it maps.
  int drop(void* start, std::size_t nbytes) const;
  // Lets who waits there try again.
  void wake(void* start, std::size_t nbytes) const;
  // Drops a range; whoever touches it gets SIGBUS. Ends the process where the kernel cannot.
  void poison(void* start, std::size_t nbytes) const;

 private:
  static constexpr std::size_t kMost = 64;
  int fd_ = -1;
  bool serves_kernel_ = false;
  bool poisons_ = false;
  Fault found_[kMost];
};

}  // namespace outgrid
