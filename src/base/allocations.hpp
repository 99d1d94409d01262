#pragma once
// Counts what operator new hands out on threads that asked to be counted: training allocates nothing after
// its first step, and this is how it proves it. Programs that use it get a counting operator new; C libraries
// (MPI, HDF5, BLAS) call malloc and are not seen.
#include <cstdint>

namespace holdfast {

/// Counts on this thread during its life.
class Allocations {
 public:
  Allocations();
  ~Allocations();
  Allocations(const Allocations&) = delete;
  Allocations& operator=(const Allocations&) = delete;
  /// By all counted threads since this object was made. Always 0 under a sanitizer, which has its own
  /// operator new.
  std::uint64_t so_far() const;

 private:
  std::uint64_t before_;
  bool counted_before_;
};

}  // namespace holdfast
