#pragma once
// The few things the backend asks of NCCL, so that everything above also runs without it: real_nccl.cpp does
// them with the library; the tests do them through shared memory.
//
// NCCL only moves bytes here. What is added up is added by our own kernels in canonical order
// (comm::OrderedReducer), as on the host, so no bit of a result depends on NCCL's algorithm, protocol,
// channels, or topology, and nothing of it has to be pinned for that.
//
// Every call but trouble() throws Error (runtime) that names it. Calls of one communicator come from one
// thread at a time; trouble() and abort() from any, also while another call waits: that one throws then.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "src/cuda/runtime/runtime.hpp"

namespace holdfast::cuda {

/// A communicator, as the implementation knows it.
enum class NcclHandle : std::uintptr_t {};

/// What makes members of one communicator find each other.
using NcclId = std::array<std::byte, 128>;

class Nccl {
 public:
  virtual ~Nccl() = default;
  /// 22809 is 2.28.9. Throws Error where it cannot be used: it is missing, or too old.
  virtual int version() = 0;
  virtual NcclId unique_id() = 0;
  /// Collective: waits for all members, not longer than `limit`.
  virtual NcclHandle init(const NcclId& id, int size, int rank, const std::string& name,
                          std::chrono::milliseconds limit) = 0;
  /// Device memory that many operations will use. An offer: false when it was not taken, which costs speed
  /// only.
  virtual bool register_memory(NcclHandle comm, void* memory, std::int64_t bytes) = 0;

  // What is called between begin() and end() is one operation of the stream, in which no part waits for
  // another.
  virtual void begin() = 0;
  /// Part `rank` of `to` is this member's and in place; the others' parts, of `bytes` each, come.
  virtual void all_gather(NcclHandle comm, StreamHandle stream, void* to, std::int64_t bytes) = 0;
  virtual void send(NcclHandle comm, StreamHandle stream, const void* from, std::int64_t bytes, int peer) = 0;
  virtual void receive(NcclHandle comm, StreamHandle stream, void* to, std::int64_t bytes, int peer) = 0;
  /// Returns when all of it is enqueued.
  virtual void end(NcclHandle comm, std::chrono::milliseconds limit) = 0;

  /// What has gone wrong since; "" for nothing. Never waits.
  virtual std::string trouble(NcclHandle comm) noexcept = 0;
  /// Ends everything under way here, so that streams go on; the communicator is gone. Returns within `limit`,
  /// or leaves it behind.
  virtual void abort(NcclHandle comm, std::chrono::milliseconds limit) noexcept = 0;
  /// Nothing is under way. Returns within `limit`, or leaves it behind.
  virtual void destroy(NcclHandle comm, std::chrono::milliseconds limit) noexcept = 0;
};

/// "2.28.9"
std::string nccl_version_text(int version);

}  // namespace holdfast::cuda
