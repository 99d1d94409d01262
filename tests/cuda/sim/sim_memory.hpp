#pragma once
// Memory of the simulated GPU: a file in memory, so that other processes of this user can map it too, as CUDA
// IPC does.
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/cuda/runtime/runtime.hpp"

namespace holdfast::cuda::sim {

enum class Kind {
  device,
  pinned,      ///< host_alloc()
  registered,  ///< host_register(): at its address on the GPU
  peer,        ///< ipc_open()
};

struct Region {
  Kind kind = Kind::device;
  std::byte* data = nullptr;
  std::int64_t bytes = 0;     ///< as asked for
  std::int64_t mapped = 0;    ///< whole pages
  int file = -1;              ///< of device memory
  std::byte* host = nullptr;  ///< of registered memory: its address on the host
};

/// What is mapped now. Throws Finding for a wrong use, Error (runtime) for "out of memory".
class SimMemory {
 public:
  /// `guard`: see open().
  SimMemory(std::int64_t device_bytes, bool guard);
  ~SimMemory();
  SimMemory(const SimMemory&) = delete;
  SimMemory& operator=(const SimMemory&) = delete;

  void set_limit(std::int64_t device_bytes) { limit_ = device_bytes; }
  std::int64_t limit() const { return limit_; }
  std::int64_t free_bytes() const { return limit_ > used_ ? limit_ - used_ : 0; }

  /// Poisoned with 0xFF; a page before and behind it traps.
  std::byte* device_alloc(std::int64_t bytes);
  std::byte* host_alloc(std::int64_t bytes);
  /// Another address of the same pages where the memory is shared between processes: whoever uses the host's
  /// address for the GPU's is found out.
  std::byte* host_register(void* memory, std::int64_t bytes);
  IpcHandle ipc_export(void* memory) const;
  std::byte* ipc_open(const IpcHandle& handle, std::int64_t bytes);

  /// The region that begins at `memory` (for registered memory: on the host).
  const Region& whole(const void* memory, Kind kind, const char* call) const;
  /// The region with all of [data, data + bytes), or null.
  const Region* find(const void* data, std::int64_t bytes) const;
  /// Ends a region. Throws Finding when something wrote behind its end.
  void release(const Region& region);

  /// With a guard, device memory (in regions of up to 16 MiB) can be touched only between open() and close(),
  /// and of that only the pages with what an operation has declared; those that it only reads cannot be
  /// written. Anything else is a crash that says in whose name it happened. So declarations are true, which
  /// the search for races builds on, and the host does not look at the GPU's memory behind the GPU's back.
  void open(const std::vector<Access>& accesses, const char* name);
  void close(const std::vector<Access>& accesses);

 private:
  std::byte* add(Region region);
  bool guarded(const Region& region) const;
  void protect(const Access& access, int protection);

  std::int64_t limit_, used_ = 0;
  bool guard_;
  std::map<const std::byte*, Region> regions_;
};

}  // namespace holdfast::cuda::sim
