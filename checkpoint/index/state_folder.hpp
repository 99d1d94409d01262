#pragma once
// The local level: one rank's snapshots in a folder that outlives the process, in the memory of its node
// (/dev/shm) or on its disk. The format is that of any program's snapshot buffers (docs/protocol.md): each
// snapshot is a generation, whose one buffer is called "state". There are several, so that one is whole while
// another is written, and a step that all ranks have always exists. Buffers and seals are mapped: a seal
// needs no room and no call. No HDF5, no MPI. FORMAT.md has what the trainer's seals say.
//
//   buffer    what happens to it                          next
//   open      written by the optimizer or by a copy       seal() -> sealed
//   sealed    immutable; digested, named by its step      open() -> open
//
// A process that dies leaves the buffer that it wrote open, and the others sealed.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/index/state.hpp"

namespace holdfast::checkpoint {

namespace fs = std::filesystem;

/// What snapshots belong to. Those of any other identity are not used.
struct LocalIdentity {
  std::uint64_t run = 0;  ///< hash of everything that two states must share to be of one run and arithmetic
  std::uint64_t layout = 0;  ///< hash of tensors and pieces
  int rank = 0;              ///< whose state; on its partner's node the same rank as on its own
  int world = 1;  ///< ranks of the run, for people: one that lost a replica, or got it back, goes on with the
                  ///< same pieces
  bool operator==(const LocalIdentity& other) const {
    return run == other.run && layout == other.layout && rank == other.rank;
  }
};

/// What a sealed buffer holds.
struct Sealed {
  RunPoint point;
  std::vector<std::uint64_t> digests;  ///< one per piece of the rank, in the order of StateViews::held.pieces
  bool operator==(const Sealed&) const = default;
};

/// As it travels with a copy: one line of JSON. A seal has it, too.
std::string to_text(const Sealed& what);
/// Nothing when that is not what to_text() gave.
std::optional<Sealed> sealed_from_text(std::string_view text);

class StateFolder {
 public:
  /// The folder at `path`, mapped; made anew when it is missing, of other sizes, or when a seal in it is of
  /// another identity. The folder around it is made, too, and has to be this user's alone. `buffer_bytes`: of
  /// one snapshot. `record_room`: bytes for to_text() of what is sealed. `reset`: what it holds is void.
  /// Throws Error (runtime) that says how much was asked for and how much there is; memory is allocated and
  /// touched here, never later.
  StateFolder(fs::path path, const LocalIdentity& identity, std::int64_t buffer_bytes, int buffers,
              bool reset, std::int64_t record_room = 1 << 20);
  /// An existing one for reading, never for open() and seal(); nothing when no snapshot of this identity and
  /// size is sealed there.
  static std::optional<StateFolder> find(const fs::path& path, const LocalIdentity& identity,
                                         std::int64_t buffer_bytes);
  StateFolder(StateFolder&&) noexcept;
  StateFolder& operator=(StateFolder&&) noexcept;
  ~StateFolder();  ///< unmaps; the files stay

  int buffers() const;
  /// Memory of a buffer, aligned to 4096.
  std::span<std::byte> buffer(int index) const;
  /// What a buffer holds, when it is sealed and its seal is whole; the data are not read.
  std::optional<Sealed> sealed(int index) const;
  /// Before the first byte of a buffer is changed.
  void open(int index);
  /// The buffer's data are whole; nobody changes them until open(). `what.digests` were computed from them.
  /// An Error (runtime) when the seal has no room for it; the buffer then stays open.
  void seal(int index, const Sealed& what);
  const fs::path& path() const;

 private:
  StateFolder();
  struct Map;
  std::unique_ptr<Map> map_;
};

/// A folder of snapshots as people see it: whose it is, and what its buffers hold. The data are neither read
/// nor mapped.
struct StateOutline {
  std::optional<LocalIdentity> identity;  ///< nothing: no buffer is sealed
  std::int64_t buffer_bytes = 0, seal_bytes = 0;
  std::vector<std::optional<Sealed>> buffers;  ///< nothing: open, or its seal is not whole
};
/// Describes any folder of snapshots of a trainer; nothing when `path` is none. Throws Error where that
/// cannot be known: a state must not be taken for absent.
std::optional<StateOutline> outline_of(const fs::path& path);

/// Digests of pieces as a seal has them; `state` names the pieces and their memory.
std::vector<std::uint64_t> piece_digests(const State& state);

}  // namespace holdfast::checkpoint
